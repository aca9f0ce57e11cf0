"""A GPU for tests of training: the real one if CuPy finds one, else a fake one."""
import gc
from contextlib import contextmanager

import fake_cupy
import pytest
from shim import COMPILER, shared_folder

from hpgcn.errors import MissingError
from hpgcn.runtime.device import Cuda, find


def real():
    try:
        return bool(find())
    except MissingError:
        return False


@contextmanager
def real_or_fake(**options):
    """Provide None if there is a real GPU, else the device of a fake one."""
    if real():
        yield None
        return
    if COMPILER is None:
        pytest.skip("neither a GPU nor a C++ compiler, which would stand for one")
    with fake_cupy.installed(shared_folder(), **options) as device:
        yield device


@pytest.fixture(scope="module")
def cuda():
    with real_or_fake() as device:
        yield device


@pytest.fixture
def gpu(cuda):
    return Cuda()


def held_bytes():
    """Return the bytes of all arrays on the fake GPU, without counting views."""
    owners = {}
    gc.collect()
    for thing in gc.get_objects():
        if issubclass(type(thing), fake_cupy.ndarray):  # isinstance fails on a dead weakref.proxy
            memory = thing.memory
            while memory.base is not None:
                memory = memory.base
            owners[id(memory)] = getattr(memory, "nbytes", 0)
    return sum(owners.values())

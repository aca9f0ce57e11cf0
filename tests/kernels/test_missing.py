"""Calling a kernel that a backend lacks raises an error; other kernels still work."""
import importlib.util
import re

import numpy as np
import pytest

from hpgcn.kernels import cpu, cuda, reference
from hpgcn.kernels.cpu import norm
from hpgcn.kernels.cuda.gpu_device import Device, using
from hpgcn.kernels.specs import SPECS


def loaded_again(package):
    """Execute a package's __init__.py again in a new module of the same name."""
    spec = importlib.util.spec_from_file_location(package.__name__, package.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", [reference, cpu, cuda])
def test_a_kernel_without_a_twin_is_missed_when_it_is_called(package, monkeypatch):
    monkeypatch.setitem(SPECS, "triple", "x real m f; out? into m f")
    without = loaded_again(package)
    assert "triple" in without.__all__
    for kernel in (without.triple, without.trusted.triple):
        with pytest.raises(NotImplementedError, match=re.escape(
                f"triple: {package.__name__} has no such kernel: it needs a function triple in a "
                f"module of kernels/{package.__name__.rpartition('.')[2]}/")):
            kernel(np.ones((2, 3)))
    with using(Device()), pytest.raises(TypeError, match="apply_mask: x has dtype int64"):
        without.apply_mask(np.ones((2, 3), int), np.ones((2, 1), np.uint8))


def test_a_twin_that_the_reference_lacks_works(monkeypatch):
    monkeypatch.setitem(SPECS, "triple", "x real m f; out? into m f")
    monkeypatch.setattr(norm, "triple", lambda x, out=None: 3 * x, raising=False)
    made = loaded_again(cpu)
    assert made.triple(np.ones((1, 1))) == 3
    with pytest.raises(ValueError, match="triple: x has shape"):
        made.triple(np.ones(1))

"""Fill arrays that must not be read with NaN, so that reads show in results.

The fixture `poisoned` fills new host memory, the work arrays and results of each layer
call, and what is discarded.
"""
from functools import wraps

import numpy as np
import pytest

from hpgcn.kernels.bits16 import BF16
from hpgcn.model import MODELS
from hpgcn.runtime.device import Host

FREE = ("scratch", "scratch2")  # work arrays that store nothing between two calls
LAST = "ping"  # holds H or G, or nothing


def fill(array):
    """Fill an array of floats with NaN, and one of bytes with 255."""
    if array.dtype.kind == "f":
        array.fill(np.nan)
    elif array.dtype == BF16:
        array.fill(0x7FC0)
    elif array.dtype == np.uint8:
        array.fill(255)


def fill_apart(arrays, *read):
    """Fill those of `arrays` that share no memory with the arrays `read`."""
    kept = [array for array in read if isinstance(array, np.ndarray)]
    for array in arrays:
        if isinstance(array, np.ndarray) and not any(
                np.shares_memory(array, other) for other in kept):
            fill(array)


def work_arrays(layer, *names):
    workspace = layer.buffer.__self__
    return [array for name, array in getattr(workspace, "arrays", {}).items()
            if name.split()[0] in names]


def poisoned_forward(forward):
    """Wrap a layer's forward: before it and its backward, fill arrays that they must not read."""

    @wraps(forward)
    def call(self, H, out, **options):
        fill_apart([out, *work_arrays(self, *FREE)], H, options.get("AX"))
        Z, backward = forward(self, H, out, **options)

        def poisoned_backward(G, *rest):
            fill_apart(work_arrays(self, *FREE, LAST), G)
            return backward(G, *rest)

        return Z, poisoned_backward

    return call


@pytest.fixture
def poisoned(monkeypatch):
    """Fill new host memory and the layers' work arrays with NaN."""
    empty = Host.empty

    def poisoned_empty(self, shape, dtype):
        array = empty(self, shape, dtype)
        fill(array)
        return array

    def poison(self, *arrays):
        fill_apart(arrays)

    monkeypatch.setattr(Host, "empty", poisoned_empty)
    monkeypatch.setattr(Host, "discard", poison)
    for kind in set(MODELS.values()):
        monkeypatch.setattr(kind, "forward", poisoned_forward(kind.forward))

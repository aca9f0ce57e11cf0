"""C functions are compiled once for equal constants in their closures."""
import numpy as np
from compilations import Names
from numba import types
from numba.core import event

from hpgcn.kernels.cpu.emit.c_functions import c_function, call
from hpgcn.kernels.host import jit as module
from hpgcn.kernels.host.jit import jit


def adding(constant):
    @c_function(values=types.CPointer(types.float64), factor=types.float32)
    def add(first, beyond, values, factor):
        for k in range(first, beyond):
            values[k] += factor * constant

    return add


def test_constants_are_compiled_in_and_kept_apart(tmp_path, monkeypatch):
    """Functions with different constants are compiled separately; equal ones are cached."""
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)

    @jit()
    def run(address, first, rest):
        call(address, first, rest)

    names = Names()
    with event.install_listener("numba:compile", names):
        for constant in (10, 100, 10):
            add = adding(constant)
            values = np.zeros(5)
            run(add.address, (1, 4), (values.ctypes.data, np.float32(0.5)))
            np.testing.assert_array_equal(values, [0, *3 * (constant / 2,), 0])
    assert sorted(names.found) == ["add", "add", "run"]

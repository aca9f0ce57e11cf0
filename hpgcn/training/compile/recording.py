"""Record which kernels a computation calls, without compiling or running them.

Two runs of the same computation call the same kernels, so a process can record them and
compile them for another process.
"""
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from hpgcn.kernels.cpu.emit.c_functions import CompiledFunction
from hpgcn.kernels.host.threads import num_threads, set_num_threads

RECORDED = "hpgcn.kernels.cpu."  # others make the index arrays that the computation reads


@contextmanager
def recorded() -> Iterator[None]:
    """Record the kernels of `hpgcn.kernels.cpu` that are called.

    The context manager yields a dict that fills in the order of the first calls. Its
    keys are a kernel and the types of its arguments. Each value is a function that
    compiles this kernel for these types, or loads it from the cache. Call it after the
    context has ended.

    A recorded kernel sets all arrays of floats among its arguments to 0, and returns
    None. So no result means anything. Other kernels run, and so do kernels that were
    called before.
    """
    found, compiling = {}, []
    compile_kernel, compile_function = Dispatcher.compile, CompiledFunction.compile

    def record_kernel(kernel: Any, types: Any) -> Any:
        # others need the kernels that they call
        if compiling or not kernel.py_func.__module__.startswith(RECORDED):
            compiling.append(kernel)
            try:
                return compile_kernel(kernel, types)
            finally:
                compiling.pop()
        found.setdefault((kernel, types), partial(compile_kernel, kernel, types))
        return _fill_with_zeros

    def record_function(function: Any) -> None:
        found.setdefault((function, ()), partial(compile_function, function))
        function._wrapper_address = 0  # an integer, as the types of its callers expect

    Dispatcher.compile, CompiledFunction.compile = record_kernel, record_function
    threads = num_threads()
    set_num_threads(1)  # other threads call compiled code by its address
    try:
        yield found
    finally:
        set_num_threads(threads)
        Dispatcher.compile, CompiledFunction.compile = compile_kernel, compile_function


def _fill_with_zeros(*arguments: Any) -> None:
    """Replace a compiled kernel; callers may check that numbers are finite."""
    for each in arguments:
        if isinstance(each, np.ndarray) and each.dtype.kind == "f" and each.flags.writeable:
            each.fill(0)

"""Record the kernels that Numba compiles during a test."""
from contextlib import contextmanager
from unittest import mock

from numba.core import event
from numba.core.dispatcher import Dispatcher

from hpgcn.kernels.cpu.emit.c_functions import CompiledFunction


class Names(event.Listener):
    def __init__(self):
        self.found = []

    def on_start(self, each):
        self.found.append(each.data["dispatcher"].py_func.__name__)

    def on_end(self, each):
        pass


@contextmanager
def noted_calls(note):
    """Call `note(kernel, *types)` for kernels that are not loaded yet.

    A context manager. Python code calls these kernels. C functions have no types.
    """
    nested = []

    def noting(compile_it):
        def noted(kernel, *types):
            if not nested:
                note(kernel, *types)
            nested.append(kernel)
            try:
                return compile_it(kernel, *types)
            finally:
                nested.pop()
        return noted

    with (mock.patch.object(Dispatcher, "compile", noting(Dispatcher.compile)),
          mock.patch.object(CompiledFunction, "compile", noting(CompiledFunction.compile))):
        yield

"""Record the kernels that Numba compiles during a test."""
from numba.core import event


class Names(event.Listener):
    def __init__(self):
        self.found = []

    def on_start(self, each):
        self.found.append(each.data["dispatcher"].py_func.__name__)

    def on_end(self, each):
        pass

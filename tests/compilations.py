"""The kernels that Numba compiles while a test listens."""
from numba.core import event


class Names(event.Listener):
    def __init__(self):
        self.found = []

    def on_start(self, each):
        self.found.append(each.data["dispatcher"].py_func.__name__)

    def on_end(self, each):
        pass

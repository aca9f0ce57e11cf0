"""Announce the arrays that a computation is about to read and write.

Arrays of a GPU may lie in host memory until a kernel needs them (hpgcn.runtime.gpu). Each
kernel of a GPU says so by `accessed`, and so do `repeat` and `derived` of
hpgcn.kernels.host.record. Without an observer nothing happens.
"""
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_observer: ContextVar = ContextVar("observer of accesses", default=None)
IN_PLACE = {operator.setitem, operator.iadd, operator.imul, operator.itruediv}


def is_observed() -> bool:
    """Return whether accesses of this thread are observed."""
    return _observer.get() is not None


def accessed(read: Iterable = (), written: Iterable = ()) -> None:
    """Note that arrays are read and written next; objects other than arrays do not count.

    Arrays that are written may be read as well.
    """
    observer = _observer.get()
    if observer is not None:
        observer(read, written)


def called(function: Callable, arguments: tuple, *, changes: bool) -> None:
    """Note that a function is called next, with arrays among its arguments or as its object.

    `changes`: whether it may change arguments.
    """
    if is_observed():
        given = [getattr(function, "__self__", None), *flattened(arguments)]
        accessed(given, _results(function, arguments, given) if changes else ())


def flattened(arguments: Iterable) -> Iterator:
    """Yield arguments and those in tuples."""
    for each in arguments:
        if isinstance(each, tuple):
            yield from flattened(each)
        else:
            yield each


def writes(place: int) -> Callable:
    """Return a decorator of functions that change only the argument at `place`."""
    def mark(function: Any) -> Any:
        function.written = place
        return function
    return mark


def _results(function: Callable, arguments: tuple, given: list) -> Iterable:
    """Return the arguments that a function may change; all of them if it is unknown."""
    if isinstance(function, np.ufunc):
        return arguments[function.nin:]
    place = 0 if function in IN_PLACE else getattr(function, "written", None)
    return given if place is None else arguments[place:place + 1]


@contextmanager
def observed(observer: Callable) -> Iterator[None]:
    """Context manager: call `observer(read, written)` for the accesses of this thread."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)

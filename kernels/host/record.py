"""Record the calls of a computation, to repeat them on the same arrays without Python.

A `Recording` notes each kernel with its arguments. NumPy's part of the work is noted
where it is done: by `repeat` and `derived`. What depends on the number of the step is made
by `of_step`. All other code is the same with and without a recording.
"""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from hpgcn.kernels.host.accesses import called

ALL = ...  # index of all elements of an array
_active: ContextVar = ContextVar("recording", default=None)


class Call(NamedTuple):
    """A call of a kernel with counters, or of a function if `work` is None."""

    function: Callable
    arguments: tuple
    work: int | None  # scalar operations
    label: Any  # what the time of the call counts for; None: it is not measured


class Recording:
    """The calls of one step, in order.

    Attributes
    ----------
    step : int
        Number of the step that is recorded.
    calls : list of Call
    arrays : list
        Arrays that calls read or write by their addresses.
    stepped : dict
        By the id of an argument: the argument, and the function that makes it of a step.
    updates : list
        Functions of the step that a repetition calls first.
    refusal : str
        Why the calls cannot be repeated; "" if they can.
    """

    def __init__(self, step: int, label: Callable) -> None:
        self.step = step
        self.label = label
        self.calls: list[Call] = []
        self.arrays: list = []
        self.stepped: dict[int, tuple] = {}
        self.updates: list[Callable[[int], None]] = []
        self.words: Any = None  # see hpgcn.kernels.cuda.step_words
        self.refusal = ""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Context manager: note the calls of this thread."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager: note no calls of this thread, because the caller adds one for them."""
        token = _active.set(None)
        try:
            yield
        finally:
            _active.reset(token)

    def reads_step(self, step: int) -> None:
        """Refuse the recording if a kernel depends on another step than the recorded one."""
        if step != self.step:
            self.refusal = f"a kernel reads step {step}"

    def note(self, function: Callable, arguments: tuple, work: int | None = None, *,
             timed: bool = True) -> None:
        """Add a call; one that is not `timed` measures its time itself."""
        self.calls.append(Call(function, arguments, work, self.label() if timed else None))


def recording() -> Recording | None:
    """Return the active Recording of this thread, if any."""
    return _active.get()


def repeat(function: Callable, *arguments: Any) -> None:
    """Call a function that changes arrays in place, now and in each repetition."""
    called(function, arguments, changes=True)
    active = _active.get()
    if active is None:
        function(*arguments)
        return
    with active.paused():
        function(*arguments)
    active.note(function, arguments)


def derived(function: Callable, *arguments: Any) -> Any:
    """Return an array or number that a function makes of others; repetitions make it anew.

    A number becomes an array without dimensions if it is recorded.
    """
    called(function, arguments, changes=False)
    active = _active.get()
    if active is None:
        return function(*arguments)
    with active.paused():
        value = function(*arguments)
    if any(value is each for each in arguments):
        return value
    value = value.copy() if hasattr(value, "__cuda_array_interface__") else np.array(value)

    def make_anew() -> None:
        value[...] = function(*arguments)

    active.note(make_anew, ())
    return value


def of_step(function: Callable, step: int, *arguments: Any) -> Any:
    """Return function(step, *arguments), an argument of kernels that depends on the step."""
    value = function(step, *arguments)
    if (active := _active.get()) is not None:
        active.reads_step(step)
        active.stepped[id(value)] = value, lambda now: function(now, *arguments)
    return value

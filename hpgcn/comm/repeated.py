"""Messages of recorded steps: repetitions start and wait for them again, in the same order.

A repetition waits where a message had arrived when the step was recorded. So each rank
goes through its calls in one order, and all ranks together in one that is possible.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from hpgcn.kernels.host.record import Recording, recording

if TYPE_CHECKING:
    from hpgcn.comm.pending import Pending
    from hpgcn.runtime.clock import Clock


def computed(method: Callable) -> Callable:
    """Let recorded steps compute a method by Python; its object has a `comm`.

    The method fills arrays that it is given, and may do something else in each step.
    """
    @wraps(method)
    def noted(self: Any, *args: Any, **options: Any) -> Any:
        active = recording()
        if active is None:
            return method(self, *args, **options)
        with active.paused():
            found = method(self, *args, **options)
        note_messages(active, self.comm.clock, partial(method, self, *args, **options))
        return found
    return noted


def repeated(method: Callable) -> Callable:
    """Let recorded steps repeat a method that moves messages; its object has a `comm`."""
    of_ranks = computed(method)

    @wraps(method)
    def noted(self: Any, *args: Any, **options: Any) -> Any:
        return (method if self.comm.size == 1 else of_ranks)(self, *args, **options)
    return noted


def started(method: Callable) -> Callable:
    """Let recorded steps repeat a method of a communicator that returns a Pending.

    Its Pending then stands for the collective that was started last.
    """
    @wraps(method)
    def noted(self: Any, *args: Any, **options: Any) -> Pending:
        active = recording()
        if active is None or self.size == 1:
            return method(self, *args, **options)
        with active.paused():
            pending = method(self, *args, **options)

        def start_again() -> None:
            vars(pending).update(vars(method(self, *args, **options)))

        note_messages(active, self.clock, start_again)
        return pending
    return noted


def note_messages(active: Recording, clock: Clock, function: Callable) -> None:
    """Add a call that clocks its messages itself, in the block that is under way now."""
    block = clock.block()

    def call() -> None:
        with clock.within(block):
            function()

    active.note(call, (), timed=False)

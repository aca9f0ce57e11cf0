"""Repeat recorded calls: pieces for the team of threads, with Python functions between them."""
import time
from collections.abc import Callable
from itertools import groupby

import numpy as np

from hpgcn.kernels.host.record import Call, Recording
from hpgcn.kernels.host.team import CallSequence
from hpgcn.kernels.host.threads import run_piece


class Replay:
    """The calls of a Recording, ready to be repeated for any step.

    `capture` makes larger parts of consecutive calls of a GPU, a list; see
    hpgcn.kernels.cuda.captured.

    Attributes
    ----------
    seconds : dict
        Seconds of the last repetition, by label.
    """

    def __init__(self, recorded: Recording, capture: Callable = list) -> None:
        self.arrays = recorded.arrays  # they must exist for as long as calls are repeated
        self.updates = recorded.updates
        self.labels = [*dict.fromkeys(call.label for call in recorded.calls if call.label)]
        self.nanoseconds = np.zeros(len(self.labels), np.int64)
        self.parts: list = []
        number = {label: place for place, label in enumerate(self.labels)}
        for (compiled, timed), group in groupby(
                recorded.calls, lambda call: (call.work is not None, call.label is not None)):
            calls = [*group]
            if compiled:
                self.parts.append(_CompiledCalls(calls, recorded.stepped, number,
                                                 self.nanoseconds))
            else:  # calls that are not timed are messages
                parts = capture(calls) if timed else calls
                self.parts += [_PythonCall(call, number.get(call.label), self.nanoseconds)
                               for call in parts]

    def run(self, step: int) -> None:
        """Repeat the calls for the number of a step."""
        self.nanoseconds[:] = 0
        for update in self.updates:
            update(step)
        for part in self.parts:
            part.run(step)

    @property
    def seconds(self) -> dict:
        return dict(zip(self.labels, (1e-9 * self.nanoseconds).tolist()))


class _PythonCall:
    def __init__(self, call: Call, place: int | None, nanoseconds: np.ndarray) -> None:
        self.call = call
        self.place = place
        self.nanoseconds = nanoseconds

    def run(self, step: int) -> None:
        begin = time.perf_counter_ns()
        self.call.function(*self.call.arguments)
        if self.place is not None:
            self.nanoseconds[self.place] += time.perf_counter_ns() - begin


class _CompiledCalls:
    """Calls of kernels that follow each other, as one CallSequence."""

    def __init__(self, calls: list[Call], stepped: dict, number: dict,
                 nanoseconds: np.ndarray) -> None:
        self.calls = [(call.function, call.arguments) for call in calls]
        self.work = sum(call.work for call in calls)
        self.places = [nanoseconds[number[call.label]:].ctypes.data for call in calls]
        self.stepped = [(call, place, stepped[id(argument)][1])
                        for call, (_, arguments) in enumerate(self.calls)
                        for place, argument in enumerate(arguments) if id(argument) in stepped]
        self.piece = CallSequence(self.calls, self.places)

    def run(self, step: int) -> None:
        if self.piece.busy:  # a thread that has lost its core is about to leave
            self.piece = CallSequence(self.calls, self.places)
        for call, argument, make in self.stepped:
            self.piece.set_argument(call, argument, make(step))
        run_piece(self.piece, self.work)

"""Repeat steps and evaluations as recorded calls, without Python.

The steps of a full batch are the same calls on the same arrays. The second step is
recorded. The third is both repeated and computed: if a bit of the results differs,
steps are computed by Python as before. Several ranks do each of this together. Each
rank repeats its messages between its calls of kernels.
"""
from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import Recording
from hpgcn.kernels.host.replay import Replay
from hpgcn.runtime import faults

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.workspace import Workspace

REFUSED, COMPUTE, RECORD, COMPARE, REPEAT = range(5)  # what a step does; the least of ranks counts
log = logging.getLogger("hpgcn")


def may_replay(comm: SerialComm) -> bool:
    """Return whether steps may be recorded; all ranks call this together."""
    allowed = not comm.device.in_files and faults.requested_fault() is None
    return not comm.max([not allowed])[0]


class StepReplay:
    """A computation that each step of a view does, recorded as soon as possible.

    `workspace` has the arrays of the steps: if one is replaced, a step is recorded
    again. Several ranks do so only until their first repeated step, because they must
    agree. Later each keeps the arrays that it has recorded.
    """

    def __init__(self, workspace: Workspace, comm: SerialComm) -> None:
        self.workspace = workspace
        self.comm = comm
        self.turn = COMPUTE  # what the next step does
        self.version = workspace.version
        self.agreed = False  # whether all ranks repeat steps, or none
        self.replay: Replay | None = None
        self.recorded: Any = None
        self.reason = ""  # why steps are not repeated

    def told(self) -> str:
        """Return in words whether steps are repeated; all ranks call this together."""
        pieces = len(self.replay.parts) if self.turn == REPEAT and self.replay else 0
        pieces = int(self.comm.max([pieces])[0])
        if pieces:
            return f"repeated in {pieces} pieces" if pieces > 1 else "repeated in one piece"
        return f"computed by Python: {self.reason or 'the first four steps of a run are'}"

    def run(self, compute: Callable, results: Callable, step: int = 0) -> Any:
        """Call `compute` or repeat its calls, and return its result.

        Repeated calls fill the arrays of the recorded result. The function `results`
        makes a list of numbers and arrays of it, to compare. `step` is a number on which
        kernels may depend. All ranks call this together.
        """
        if self.comm.clock.events is not None:
            return compute()
        turn = self._agree()
        self.turn = min(turn + 1, REPEAT) if turn else REFUSED
        if turn == RECORD:
            return self._record(compute, step)
        if turn == COMPARE:
            return self._compare(compute, results, step)
        if turn == REPEAT:
            self._repeat(step)
            return self.recorded
        return compute()

    def _agree(self) -> int:
        """Return the turn of this step, the same on all ranks."""
        alone = self.comm.size == 1
        replaced = self.version != self.workspace.version and (alone or not self.agreed)
        if replaced and self.turn != REFUSED:
            self.turn, self.version, self.replay = COMPUTE, self.workspace.version, None
        if self.turn == RECORD and not self.comm.device.has_room(2 * self.workspace.nbytes):
            self._refuse("the GPU has no room for temporary arrays of a whole step")
        if not (alone or self.agreed):
            self.turn = -int(self.comm.max([-self.turn])[0])
            self.agreed = self.turn in (REFUSED, REPEAT)
            if self.turn == REFUSED:
                self._refuse("another rank cannot repeat its calls")
        return self.turn

    def _record(self, compute: Callable, step: int) -> Any:
        recording = Recording(step, self.comm.clock.label)
        with recording.active():
            found = compute()
        if recording.refusal:
            self._refuse(recording.refusal)
        else:
            self.replay, self.recorded = Replay(recording, self.comm.device.capture), found
        return found

    def _repeat(self, step: int) -> None:
        self.replay.run(step)
        for label, seconds in self.replay.seconds.items():
            self.comm.clock.add(label, seconds)

    def _compare(self, compute: Callable, results: Callable, step: int) -> Any:
        """Repeat a step, compute it, and compare the results."""
        with self._uncounted():
            self._repeat(step)
            repeated = self._bits(results(self.recorded))
        computed = compute()
        with self._uncounted():
            differ = repeated != self._bits(results(computed))
        if differ:
            self._refuse("repeated calls give other bits")
        return computed

    def _bits(self, results: list) -> list[bytes]:
        return [np.array(self.comm.device.get(each)).tobytes() for each in results]

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Context manager: count no messages, because they are sent once more."""
        counters = vars(self.comm.counters)
        counted = copy.deepcopy(counters)
        yield
        counters.update(counted)

    def _refuse(self, reason: str) -> None:
        if self.turn != REFUSED or self.replay:
            log.debug("steps are computed by Python: %s", reason)
            self.reason = reason
        self.turn, self.replay, self.recorded = REFUSED, None, None

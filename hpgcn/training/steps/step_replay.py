"""Repeat forward, loss and backward of a step as recorded calls, without Python.

The steps of a full batch on one rank are the same calls on the same arrays. The second
step is recorded. The third is both repeated and computed: if a bit of the loss or of the
gradient differs, steps are computed by Python as before.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import Recording
from hpgcn.kernels.host.replay import Replay
from hpgcn.runtime import faults
from hpgcn.runtime.machine import is_allowed

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.model.parameters import Parameters
    from hpgcn.parallel.workspace import Workspace
    from hpgcn.runtime.clock import Clock

VARIABLE = "HPGCN_REPLAY"
log = logging.getLogger("hpgcn")


def may_replay(comm: SerialComm) -> bool:
    """Return whether steps of these ranks may be recorded; HPGCN_REPLAY=0 forbids it."""
    device = comm.device
    return (comm.size == 1 and device.name == "cpu" and not device.in_files
            and faults.requested_fault() is None and is_allowed(VARIABLE))


class StepReplay:
    """Loss and gradient of the steps of a view, recorded as soon as possible.

    `workspace` has the arrays of the steps: if one is replaced, a step is recorded
    again.
    """

    def __init__(self, workspace: Workspace, clock: Clock) -> None:
        self.workspace = workspace
        self.clock = clock
        self.steps = 0  # since arrays were replaced
        self.version = workspace.version
        self.replay: Replay | None = None
        self.recorded: tuple = ()
        self.refused = False

    def run(self, compute: Callable, step: int) -> tuple[Any, Parameters]:
        """Return loss and gradient of a step; `compute` is the function that computes them."""
        if self.refused or self.clock.events is not None:
            return compute()
        if self.version != self.workspace.version:
            self.steps, self.version, self.replay = 0, self.workspace.version, None
        self.steps += 1
        if self.replay is None:
            return compute() if self.steps == 1 else self._record(compute, step)
        self._repeat(step)
        if self.steps == 3:
            return self._compared(compute)
        return self.recorded

    def _record(self, compute: Callable, step: int) -> tuple[Any, Parameters]:
        recording = Recording(step, self.clock.label)
        with recording.active():
            found = compute()
        self.recorded = found
        if recording.refusal:
            self._refuse(recording.refusal)
        else:
            self.replay = Replay(recording)
        return found

    def _repeat(self, step: int) -> None:
        self.replay.run(step)
        for label, seconds in self.replay.seconds.items():
            self.clock.add(label, seconds)

    def _compared(self, compute: Callable) -> tuple[Any, Parameters]:
        """Compute a step that was repeated before, and compare the results."""
        loss, gradient = self.recorded
        repeated = np.array(loss), gradient.flat.copy()
        computed = compute()
        found = np.array(computed[0]), computed[1].flat
        if any(one.tobytes() != other.tobytes() for one, other in zip(repeated, found)):
            self._refuse("repeated calls give other bits")
        return computed

    def _refuse(self, reason: str) -> None:
        log.debug("steps are computed by Python: %s", reason)
        self.refused, self.replay, self.recorded = True, None, ()

"""Take, measure and check one training step of an epoch, and add it to the sums."""
from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.runtime import faults, signals
from hpgcn.runtime.machine import peak_rss
from hpgcn.training.steps.divergence import diverged
from hpgcn.training.steps.loop_state import CLOCKED
from hpgcn.training.steps.training_step import train_step

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.training.trainer import Trainer

# fields of EpochSums that count over all ranks
COUNTED = ("sent_bytes", "sent_messages", "between_bytes", "between_messages", "asked_bytes",
           "masked_additions")


def take_step(trainer: Trainer, epoch: int) -> None:
    """Take the next training step of an epoch, and record it in the state.

    All ranks call this together. A DivergedError is raised on all ranks if a number is
    not finite.
    """
    # note the counters and the time before the step
    comm, state = trainer.comm, trainer.state
    sums = state.sums
    clock = comm.clock
    clock.reset()
    before = count_sent(comm)
    comm.counters.masked_additions = 0
    begin = time.perf_counter()

    # forward, backward, update
    number = (epoch - 1) * trainer.batches.steps + sums.steps + 1
    state.steps += 1
    view = trainer.batches.view(number)
    loss, gradient = train_step(view, state.steps, trainer.optimizer, trainer.shard.columns, fault)
    seconds = time.perf_counter() - begin
    sent = [now - was for now, was in zip(count_sent(comm), before)]

    # sums over all ranks, then maxima; numbers that are not finite are refused
    finite = np.isfinite(gradient.flat).all() & np.isfinite(trainer.parameters.flat).all()
    loss, finite = comm.device.numbers([loss, finite])
    masked = int(comm.counters.masked_additions)
    counts = [*sent, trainer.batches.request_bytes, masked]
    parts = clock.parts.copy()
    loss, wrong, *summed = comm.sum([loss, not finite, *counts, *parts.values()]).tolist()
    counts, summed = summed[:len(counts)], summed[len(counts):]
    highest = comm.max([seconds, *(clock.seconds[kind] for kind in CLOCKED), peak_rss(), sent[0],
                        signals.pending_signal()]).tolist()
    seconds, *times, resident, max_sent, pending = highest
    if wrong or not math.isfinite(loss):
        raise diverged(epoch, loss / view.loss.norm, view, state.steps, gradient,
                       trainer.parameters, trainer.optimizer, comm, trainer.config.lr)

    # the step counts
    sums.add(steps=1, loss=loss, seconds=seconds, max_sent=max_sent, **dict(zip(CLOCKED, times)),
             **dict(zip(COUNTED, map(round, counts))))
    for part, spent in zip(parts, summed):
        sums.parts[part] += spent / comm.size
    sums.resident = max(sums.resident, int(resident))
    state.pending_signal = int(pending)


def count_sent(comm: SerialComm) -> tuple[int, ...]:
    """Return bytes and messages that this rank has sent in training.

    The third and fourth number are those to other nodes.
    """
    counters = comm.counters
    return *counters.total("train"), *counters.between_nodes("train", comm.nodes, comm.rank)


def fault(phase: str, array: Array | None = None) -> None:
    """Let a requested fault occur in a phase of the step; it may fill `array` with NaN."""
    if faults.point(phase):
        array[...] = math.nan

"""The training steps of an epoch, and what they add up to."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from hpgcn.runtime import signals
from hpgcn.runtime.machine import peak_rss
from hpgcn.store import Field
from hpgcn.training.loop.divergence import diverged
from hpgcn.training.loop.fault_view import with_faults
from hpgcn.training.loop.training_step import train_step
from hpgcn.training.runs.records import COUNT, FINITE, SECONDS

CLOCKED = ("spmm", "dense", "comm", "wait")


@dataclass
class EpochSums:
    """What the steps of an epoch so far add up to, equal on all ranks; seconds are maxima of ranks.

    A checkpoint within an epoch holds it.
    """

    steps: int = 0
    loss: float = 0.0  # of training vertices, not divided by their number
    seconds: float = 0.0
    spmm: float = 0.0
    dense: float = 0.0
    comm: float = 0.0
    wait: float = 0.0
    sent_bytes: int = 0
    sent_messages: int = 0
    asked_bytes: int = 0  # to make batches
    max_sent: float = 0.0  # bytes that a rank sent at most in a step
    resident: int = 0  # bytes, the most so far

    def metrics(self, epoch, norm):
        """The line of metrics.jsonl of an epoch that is not evaluated; norm: of the mean loss."""
        return {"epoch": epoch, "loss": self.loss / norm, "train_acc": None, "val_acc": None,
                "test_acc": None, "val_loss": None, "epoch_s": self.seconds, "eval_s": 0.0,
                "spmm_s": self.spmm, "dense_s": self.dense, "comm_s": self.comm,
                "wait_s": self.wait, "sent_bytes": self.sent_bytes,
                "sent_messages": self.sent_messages, "peak_rss_bytes": self.resident}


SUMS = {"steps": COUNT, "loss": FINITE, "seconds": SECONDS, **dict.fromkeys(CLOCKED, SECONDS),
        **dict.fromkeys(("sent_bytes", "sent_messages", "asked_bytes", "resident"), COUNT),
        "max_sent": Field(float, 0)}


def take_step(trainer, epoch, sums):
    """Take the next training step of an epoch, and add it up; all ranks call this together.

    Returns the signal that came to some rank before its end, or 0. A DivergedError on all ranks if
    a number is not finite.
    """
    comm = trainer.comm
    clock = comm.clock
    clock.reset()
    before = comm.counters.total("train")
    begin = time.perf_counter()
    number = (epoch - 1) * trainer.batches.steps + sums.steps + 1
    trainer.steps += 1
    view, columns = with_faults(trainer.batches.view(number), trainer.shard.columns)
    loss, gradient = train_step(view, trainer.steps, trainer.optimizer, columns)
    seconds = time.perf_counter() - begin
    sent = [now - was for now, was in zip(comm.counters.total("train"), before)]

    # over all ranks: sums, then maxima; numbers that are not finite are refused
    finite = np.isfinite(gradient.flat).all() & np.isfinite(trainer.parameters.flat).all()
    loss, finite = comm.device.numbers([loss, finite])
    counts = [*sent, trainer.batches.request_bytes]
    loss, sent_bytes, messages, asked_bytes, wrong = comm.sum([loss, *counts, not finite]).tolist()
    times = [clock.seconds[kind] for kind in CLOCKED]
    highest = comm.max([seconds, *times, peak_rss(), sent[0], signals.pending_signal()]).tolist()
    seconds, *times, resident, max_sent, asked = highest
    if wrong or not math.isfinite(loss):
        raise diverged(epoch, loss / view.loss.norm, view.model, gradient, trainer.parameters, comm,
                       trainer.config.lr)

    sums.steps += 1
    sums.loss += loss
    sums.seconds += seconds
    for kind, spent in zip(CLOCKED, times):
        setattr(sums, kind, getattr(sums, kind) + spent)
    sums.sent_bytes += round(sent_bytes)
    sums.sent_messages += round(messages)
    sums.asked_bytes += round(asked_bytes)
    sums.max_sent += max_sent
    sums.resident = max(sums.resident, int(resident))
    return int(asked)

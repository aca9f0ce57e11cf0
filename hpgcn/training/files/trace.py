"""Record the timeline of all ranks, and the bytes between them, for `hpgcn report`.

The timeline is a file of Chrome trace events (chrome://tracing, ui.perfetto.dev): one
process per rank, microseconds on the clock of rank 0. No barrier aligns the ranks: the
differences of their clocks are measured by messages there and back, before and after
the run, and interpolated. Half of the shortest round trip bounds the error. A
difference within that bound is taken as 0, because the ranks of one node share a clock.
The file states the bound of each rank.
"""
from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.store import atomic_write

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm

EVENTS_PER_RANK = 100_000  # about 20 MB of memory a rank
EVENTS = 1_000_000  # events of all ranks: about 120 MB of text, which viewers can still open
FEWEST_PER_RANK = 4_000
ROUNDS = 30
TAG = 13
SPANS = ("epoch", "evaluate", "checkpoint")


class Trace:
    """Recorder of the events of all ranks' clocks.

    All ranks create and write it together. It records from its creation until a rank
    has `limit` events, or min(EVENTS_PER_RANK, EVENTS / P) (FEWEST_PER_RANK at least).
    Epochs that some rank did not record whole are left out of the file, which has their
    number.
    """

    def __init__(self, comm: SerialComm, limit: int | None = None) -> None:
        self.comm = comm
        self.begin = clock_offset(comm)
        fair = max(FEWEST_PER_RANK, EVENTS // comm.size)
        comm.clock.record(limit or min(EVENTS_PER_RANK, fair))

    def write(self, path: str) -> None:
        """Stop recording and write the trace to `path`; an older file is replaced.

        An OutputError or StorageError is raised on all ranks.
        """
        # bring the times of this rank to the clock of rank 0
        comm = self.comm
        clock = comm.clock
        rows, texts = _rows(clock.stop())
        end = clock_offset(comm)
        rows[:, :2] -= _offsets(rows[:, :2], self.begin, end)

        # find the epochs that every rank recorded, and gather the spans
        full = math.inf if clock.full is None else clock.full
        accuracy = max(self.begin[2], end[2])
        counts, texts, fulls, accuracies = zip(*comm.allgather((len(rows), texts, full, accuracy)))
        rows = comm.gather_rows(rows)

        # write what rank 0 has gathered
        with comm.collective_errors():
            if comm.rank == 0:
                whole = min(fulls) - 1  # the last epoch that all ranks have
                rank = np.repeat(np.arange(comm.size), counts)
                kept = (rows[:, 2] <= whole) | (whole < 1)
                notes = {"clock": "rank 0's; ts and dur in microseconds", "ranks": comm.size,
                         "epochs": clock.epoch,
                         "epochs_recorded": int(min(clock.epoch, max(whole, 0))),
                         "clock_accuracy_us": [round(1e6 * bound, 3) for bound in accuracies]}
                lines = _lines(rows[kept], rank[kept], texts)
                atomic_write(path, lambda file: _write(file, notes, lines), overwrite=True,
                             follow=False)


def clock_offset(comm: SerialComm) -> tuple[float, ...]:
    """Measure the difference between this rank's clock and that of rank 0.

    All ranks call this together. Return (when, offset, accuracy) in seconds; `when` is
    the time.perf_counter of this rank.
    """
    offset = np.zeros(2)

    for other in range(1, comm.size):
        if comm.rank == 0:
            rounds = []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                _transfer(comm, "Isend", np.zeros(1), other)
                there = float(_transfer(comm, "Irecv", np.zeros(1), other)[0])
                end = time.perf_counter()
                rounds.append(((end - begin) / 2, there - (begin + end) / 2))

            # the shortest round trip bounds the error
            accuracy, distance = min(rounds)
            distance = 0.0 if abs(distance) <= accuracy else distance
            _transfer(comm, "Isend", np.array([distance, accuracy]), other)
        elif comm.rank == other:
            for _ in range(ROUNDS):
                _transfer(comm, "Irecv", np.zeros(1), 0)
                _transfer(comm, "Isend", np.array([time.perf_counter()]), 0)
            _transfer(comm, "Irecv", offset, 0)

    return time.perf_counter(), *offset.tolist()


def _transfer(comm: SerialComm, kind: str, values: np.ndarray, other: int) -> np.ndarray:
    request = getattr(comm.mpi, kind)(values, other, TAG)
    comm.wait([request], lambda _: f"rank {other} in a comparison of clocks")
    return values


def _offsets(times: np.ndarray, begin: tuple[float, ...], end: tuple[float, ...]) -> np.ndarray:
    """Interpolate clock offsets at `times` linearly between two results of `clock_offset`."""
    slope = (end[1] - begin[1]) / max(end[0] - begin[0], 1e-9)
    return begin[1] + slope * (times - begin[0])


def _rows(events: list[tuple]) -> tuple[np.ndarray, list]:
    """Return events as float64 (events, 6), and the list of their texts.

    In the array each text is replaced by its number.
    """
    texts = list(dict.fromkeys(text for name, *_, detail, _ in events for text in (name, detail)))
    number = {text: place for place, text in enumerate(texts)}
    rows = [(begin, end, epoch, number[name], number[detail], stage)
            for name, begin, end, epoch, detail, stage in events]
    return np.array(rows, np.float64).reshape(-1, 6), texts


def _lines(rows: np.ndarray, rank: np.ndarray, texts: Sequence) -> Iterator:
    """Yield all events as JSON objects; an event precedes those that it encloses."""
    for p in range(len(texts)):
        for name, args in (("process_name", {"name": f"rank {p}"}),
                           ("process_sort_index", {"sort_index": p})):
            yield json.dumps({"name": name, "ph": "M", "pid": p, "tid": 0, "args": args})

    zero = rows[:, 0].min(initial=math.inf)
    order = np.lexsort([-rows[:, 1], rows[:, 0], rank])
    for p, (begin, end, *numbers) in zip(rank[order].tolist(), rows[order].tolist()):
        epoch, name, detail, stage = map(int, numbers)
        name = texts[p][name]
        args = {"epoch": epoch}
        if texts[p][detail]:
            args["at"] = texts[p][detail]
        if stage >= 0:
            args["stage"] = stage
            name = f"{name}, stage {stage}"
        yield json.dumps({"name": f"{name} {epoch}" if name in SPANS else name, "ph": "X", "pid": p,
                          "tid": 0, "ts": round((begin - zero) * 1e6, 3),
                          "dur": round((end - begin) * 1e6, 3), "args": args})


def _write(file: Any, notes: Any, lines: Any) -> None:
    head = f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(notes)},\n"traceEvents": [\n'
    file.write((head + next(lines)).encode())
    file.writelines((",\n" + line).encode() for line in lines)
    file.write(b"\n]}\n")


def write_traffic(folder: str, comm: SerialComm, steps: int) -> None:
    """Write the bytes from rank to rank in one training step to files.

    All ranks call this together. The file traffic.npy contains (P, P) int64, with a row
    for each sender. The file sums.npy contains the share of these bytes that are
    partial sums for rows of the receiver. Older files are replaced. Reductions
    (allreduce) are excluded, because MPI chooses the ranks between which their bytes
    pass. OutputError or StorageError is raised on all ranks.
    """
    counters = comm.counters
    for name, sent in (("traffic.npy", counters.sent), ("sums.npy", counters.sums)):
        row = np.zeros((1, comm.size), np.int64)
        for rank, payload in sent.get("train", {}).items():
            row[0, rank] = round(payload / max(1, steps))
        matrix = comm.gather_rows(row)
        with comm.collective_errors():
            if comm.rank == 0:
                atomic_write(os.path.join(folder, name), partial(np.save, arr=matrix),
                             overwrite=True, follow=False)

"""Ranks talking to each other: communicators, counters, deadlines, errors raised on all ranks together.

`SerialComm` is a communicator of one rank that needs no MPI; `MpiComm` has the same methods over mpi4py. Nothing here
assumes COMM_WORLD but `world`, and importing this file starts no MPI.
"""
from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import contextmanager

import numpy as np

from hpgcn.clock import Clock
from hpgcn.errors import ConfigError, HpgcnError, InternalError, StoppedError, require
from hpgcn.machine import launched, slurm_tasks


class Counters:
    """Payload this rank contributed to others, by phase and by what it was for (definitions: hpgcn.cost)."""

    def __init__(self):
        self.phase = "setup"
        self.bytes = {}
        self.messages = {}

    def add(self, kind, payload, messages):
        """Count one call."""
        key = (self.phase, kind)
        self.bytes[key] = self.bytes.get(key, 0) + payload
        self.messages[key] = self.messages.get(key, 0) + messages

    def total(self, phase):
        """(bytes, messages) of a phase, all kinds; bytes may be fractional on one rank, never over all."""
        return (sum(value for key, value in self.bytes.items() if key[0] == phase),
                sum(value for key, value in self.messages.items() if key[0] == phase))


class SerialComm:
    """The communicator of a single rank; the methods are those of `MpiComm`."""

    rank, size, local_rank, mpi = 0, 1, 0, None

    def __init__(self, timeout=600.0):
        self.timeout = timeout
        self.counters = Counters()
        self.clock = Clock()

    def allreduce(self, array, kind):
        """Sum an array over ranks, in place; counted under `kind`."""

    def sum(self, values):
        """Sum of scalars over ranks, float64; not counted."""
        return np.asarray(values, np.float64)

    def max(self, values):
        """Maximum of scalars over ranks, float64; not counted."""
        return np.asarray(values, np.float64)

    def allgather(self, thing):
        """A small object of every rank, in rank order."""
        return [thing]

    def bcast(self, thing):
        """Rank 0's object, on every rank."""
        return thing

    def alltoallv(self, arrays):
        """Exchange 1-D int64 arrays: entry q goes to rank q, entry q of the result came from rank q. Counted."""
        return arrays

    def gather_rows(self, array):
        """Rows of all ranks stacked in rank order, on rank 0; None elsewhere."""
        return array

    def barrier(self):
        """Wait for all ranks."""

    @contextmanager
    def together(self):
        """Errors raised within, on any rank, are raised on all ranks as the lowest such rank's error."""
        try:
            yield
        except HpgcnError as error:
            error.collective = True
            raise

    def same(self, thing, what):
        """Refuse to go on unless all ranks hold an equal value.

        Raises
        ------
        ConfigError
            On all ranks, naming the first rank that differs from rank 0.
        """
        for rank, other in enumerate(self.allgather(thing)):
            if other != self.bcast(thing):
                error = ConfigError(f"rank {rank} was started with another {what} than rank 0")
                error.collective = True
                raise error


class MpiComm(SerialComm):
    """Ranks over mpi4py. Every wait has a deadline (`timeout`, seconds)."""

    def __init__(self, mpi, timeout=600.0):
        super().__init__(timeout)
        from mpi4py import MPI

        self.MPI, self.mpi = MPI, mpi
        self.rank, self.size = mpi.Get_rank(), mpi.Get_size()
        node = mpi.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank = node.Get_rank()
        node.Free()
        abort_on_exception()

    def wait(self, requests, what, pending=None):
        """Test requests until all (or those numbered in `pending`) are complete.

        Polls, yields, then sleeps: with more ranks than cores, MPI's own Waitsome is hundreds of times slower.

        Parameters
        ----------
        requests : list of mpi4py requests
        what : callable
            Called with the numbers of the requests still open; says in words what is waited for.
        pending : set of int, optional
            Changed: completed numbers leave it.

        Raises
        ------
        StoppedError
            After `timeout` seconds.
        """
        pending = set(range(len(requests))) if pending is None else pending
        if not pending:
            return
        with self.clock("wait"):
            polls, deadline = 0, time.monotonic() + self.timeout
            while pending:
                if self.test(requests, pending):
                    polls = 0
                    continue
                polls += 1
                if polls < 200:
                    os.sched_yield()
                    continue
                time.sleep(5e-5)
                if time.monotonic() > deadline:
                    raise StoppedError(f"rank {self.rank} waited {self.timeout:g} s for {what(sorted(pending))}")

    def test(self, requests, pending):
        """One test of the pending requests, which also lets messages progress; returns whether any completed."""
        numbers = sorted(pending)
        done = self.MPI.Request.Testsome([requests[number] for number in numbers])
        pending.difference_update(numbers[i] for i in done or ())
        return bool(done)

    def _finish(self, request, name):
        self.wait([request], lambda _: f"the other ranks in {name}")

    def allreduce(self, array, kind):
        self._finish(self.mpi.Iallreduce(self.MPI.IN_PLACE, array, self.MPI.SUM), "an allreduce of " + kind)
        self.counters.add(kind, 2 * array.nbytes * (self.size - 1) / self.size, 2 * (self.size - 1))

    def _reduce(self, values, operation):
        values = np.array(values, np.float64, ndmin=1)
        self._finish(self.mpi.Iallreduce(self.MPI.IN_PLACE, values, operation), "a reduction of scalars")
        return values

    def sum(self, values):
        return self._reduce(values, self.MPI.SUM)

    def max(self, values):
        return self._reduce(values, self.MPI.MAX)

    def allgather(self, thing):
        return self.mpi.allgather(thing)

    def bcast(self, thing):
        return self.mpi.bcast(thing)

    def alltoallv(self, arrays):
        arrays = [np.ascontiguousarray(array, np.int64) for array in arrays]
        counts = np.array([array.size for array in arrays], np.int64)
        incoming = np.empty_like(counts)
        self._finish(self.mpi.Ialltoall(counts, incoming), "an exchange of counts")
        sent, received = np.concatenate(arrays), np.empty(incoming.sum(), np.int64)
        ends, starts = np.cumsum(counts), np.cumsum(incoming)
        self._finish(self.mpi.Ialltoallv([sent, (counts, ends - counts)], [received, (incoming, starts - incoming)]),
                     "an exchange of row numbers")
        others = np.arange(self.size) != self.rank
        self.counters.add("plan", int(counts[others].sum()) * 8, int(np.count_nonzero(counts[others])))
        return np.split(received, starts[:-1])

    def gather_rows(self, array):
        # one message a rank: a whole Gatherv would need the counts first, and its own limits on size
        if self.rank:
            self.mpi.send(array.shape, 0, tag=11)
            if array.size:
                self.mpi.Send(np.ascontiguousarray(array), 0, tag=12)
            return None
        parts = [array]
        for source in range(1, self.size):
            part = np.empty(self.mpi.recv(source=source, tag=11), array.dtype)
            if part.size:
                self.mpi.Recv(part, source, tag=12)
            parts.append(part)
        return np.concatenate(parts)

    def barrier(self):
        self._finish(self.mpi.Ibarrier(), "a barrier")

    @contextmanager
    def together(self):
        error = None
        try:
            yield
        except HpgcnError as caught:
            error = caught
        except Exception as caught:
            traceback.print_exc()
            error = InternalError(f"{type(caught).__name__}: {caught}")
        if self.max([error is not None])[0]:
            errors = self.mpi.allgather(None if error is None else (type(error), str(error)))
            rank, (kind, text) = next((rank, found) for rank, found in enumerate(errors) if found is not None)
            everywhere = sum(found is not None for found in errors) == self.size
            agreed = kind(text if everywhere else f"{text} (on rank {rank} of {self.size})")
            agreed.collective = True
            raise agreed from error


def world(timeout=600.0):
    """The communicator of this process: COMM_WORLD under an MPI launcher, else a single rank without MPI.

    Raises
    ------
    MissingError
        A launcher started this process, but mpi4py or an MPI library is missing.
    ConfigError
        Slurm started several tasks that MPI does not connect: each would train alone and write the same files.
    """
    if not launched() and "mpi4py.MPI" not in sys.modules:
        return SerialComm(timeout)
    try:
        MPI = require("mpi4py.MPI", "mpi,mpich", "running under an MPI launcher")
        if MPI.COMM_WORLD.Get_size() == 1 and slurm_tasks() > 1:
            raise ConfigError(f"srun started {slurm_tasks()} tasks, but MPI sees one rank: "
                              "start with the srun --mpi=TYPE that your MPI was built for, or with its mpiexec")
    except HpgcnError as error:
        error.collective = True  # every process finds the same
        raise
    return as_comm(MPI.COMM_WORLD, timeout)


def as_comm(comm, timeout=600.0):
    """Wrap None (one rank), an mpi4py communicator, or what is wrapped already."""
    if comm is None:
        return SerialComm(timeout)
    if isinstance(comm, SerialComm):
        return comm
    return MpiComm(comm, timeout) if comm.Get_size() > 1 else SerialComm(timeout)


def abort_on_exception():
    """Let an exception that nobody catches end all ranks: a rank that dies alone leaves the others waiting."""
    if getattr(sys.excepthook, "ends_all_ranks", False):
        return
    before = sys.excepthook

    def hook(kind, error, trace):
        from mpi4py import MPI

        sys.stderr.write(f"rank {MPI.COMM_WORLD.Get_rank()} of {MPI.COMM_WORLD.Get_size()} failed:\n")
        before(kind, error, trace)
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(getattr(error, "code", 70) if isinstance(error, HpgcnError) else 70)

    hook.ends_all_ranks = True
    sys.excepthook = hook

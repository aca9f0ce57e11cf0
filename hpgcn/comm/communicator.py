"""Ranks talking to each other: communicators, counters, deadlines, errors raised on all ranks together.

`SerialComm` is a communicator of one rank that needs no MPI; `MpiComm` has the same methods over mpi4py; both have the
collectives of hpgcn.comm.collectives.
"""
from __future__ import annotations

import copy
import faulthandler
import math
import pickle
import sys

import numpy as np

from hpgcn.clock import Clock
from hpgcn.comm import route
from hpgcn.comm.agreement import Agreement
from hpgcn.comm.collectives import Collectives
from hpgcn.comm.counters import Counters
from hpgcn.comm.pending import named
from hpgcn.comm.queue import Queue
from hpgcn.comm.rollcall import drain
from hpgcn.comm.staging import Relay
from hpgcn.device import HOST
from hpgcn.errors import ConfigError, HpgcnError, InternalError, UsageError, require
from hpgcn.machine import die_with_parent, launched, launched_size, slurm_tasks

STARTING = 60.0  # seconds between the first rank and the last to start MPI, beyond the timeout


class SerialComm(Collectives, Agreement):
    """The communicator of a single rank; the methods are those of `MpiComm`.

    Attributes
    ----------
    rank, size : int
        Within this communicator.
    ranks : tuple of int
        What its ranks are called in messages: their numbers in the communicator that the first group was made of.
    local_rank : int
        Number among the ranks of this node.
    counters : Counters
    clock : hpgcn.clock.Clock
        Both are shared with the groups made of this communicator.
    timeout : float
        Seconds after which a wait ends with StoppedError.
    device : hpgcn.device.Host or Cuda
        Whose arrays the collectives take, besides those of the host; see `use`.
    relay : hpgcn.comm.staging.Relay or None
        How messages leave the device, if it is a GPU and there are others.
    """

    rank, size, local_rank, mpi, ranks = 0, 1, 0, None, (0,)
    device, relay = HOST, None

    def __init__(self, timeout=600.0):
        self.timeout = timeout
        self.counters = Counters()
        self.clock = Clock()

    def use(self, device, aware=None):
        """Take arrays of this device in collectives from now on; all ranks call it, before groups are made.

        Parameters
        ----------
        device : hpgcn.device.Host or Cuda
        aware : "0", "1" or "auto", optional
            Whether MPI takes GPU memory: see hpgcn.comm.route.choose.

        Returns
        -------
        hpgcn.comm.route.Route
        """
        self.device = device
        found = route.choose(self, device, aware)
        self.relay = Relay(device, found.direct) if device.name == "cuda" and self.size > 1 else None
        return found

    def group(self, ranks):
        """The communicator of some of these ranks; their order is kept, their numbers start at 0.

        Every rank calls it, with the group that it is in; groups may be made of groups. Asked for again, it is the same
        communicator: `close` it as often as it was asked for. A group of one rank needs no MPI.

        Parameters
        ----------
        ranks : increasing ints
            Numbers in this communicator, this rank's among them.
        """
        ranks = tuple(int(rank) for rank in ranks)
        if self.rank not in ranks or ranks != tuple(sorted(set(ranks) & set(range(self.size)))):
            raise InternalError(f"a group of ranks {ranks} cannot be made by rank {self.rank} of {self.size}: "
                                "expected increasing numbers, its own among them")
        return self._group(ranks)

    def _group(self, ranks):
        return self

    def close(self):
        """Free a communicator that `group` made, once all who asked for it have closed it.

        Of any other communicator: its groups, and what ranks past their deadlines told the others in vain.
        """

    def allreduce(self, array, kind, op="sum"):
        """Sum an array over ranks, or take the maximum (op "max"), in place; counted under `kind`."""
        self.start_allreduce(array, kind, op).wait(f"an allreduce of {kind}")

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


class MpiComm(SerialComm):
    """Ranks over mpi4py. Every wait has a deadline (`timeout`, seconds)."""

    def __init__(self, mpi, timeout=600.0):
        super().__init__(timeout)
        from mpi4py import MPI

        self.MPI, self.parent, self.busy = MPI, None, []
        self._over(mpi, range(mpi.Get_size()))
        if launched():
            die_with_parent()
        self.barrier()  # Split_type has no deadline
        node = mpi.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank = node.Get_rank()
        node.Free()
        abort_on_exception()

    def _over(self, mpi, ranks):
        self.mpi, self.ranks, self.rank, self.size = mpi, tuple(ranks), mpi.Get_rank(), mpi.Get_size()
        self.groups, self.users, self.queue = {}, 0, Queue(self.busy)

    def _group(self, ranks):
        if ranks not in self.groups:
            self.groups[ranks] = self._alone() if len(ranks) == 1 else self._among(ranks)
        group = self.groups[ranks]
        if group.mpi is not None:
            group.users += 1
        return group

    def _alone(self):
        group = SerialComm(self.timeout)
        group.counters, group.clock, group.device = self.counters, self.clock, self.device
        group.local_rank, group.ranks = self.local_rank, (self.ranks[self.rank],)
        return group

    def _among(self, ranks):
        first, ends = ranks[0], np.zeros((2, self.size), np.int64)
        if self.rank == first:
            ends[1, list(ranks[1:])] = 1
        else:
            ends[0, first] = 1
        for outgoing, incoming in (ends, ends[::-1]):  # Create_group has no deadline: a word to the first rank and back
            words = [np.zeros(counts.sum(), np.uint8) for counts in (outgoing, incoming)]
            self.start_alltoall(words[0], outgoing, words[1], incoming, None).wait("the making of a group")
        everyone = self.mpi.Get_group()
        members = everyone.Incl(ranks)
        group = copy.copy(self)  # shares counters, clock, timeout, device
        group.parent = self
        group._over(self.mpi.Create_group(members), [self.ranks[rank] for rank in ranks])
        members.Free()
        everyone.Free()
        return group

    def close(self):
        self.users -= 1
        if self.users > 0:
            return
        for group in [group for group in self.groups.values() if group.mpi is not None]:
            group.users = 1
            group.close()
        if self.parent is not None:
            self.parent.groups = {ranks: group for ranks, group in self.parent.groups.items() if group is not self}
            self.mpi.Free()
        else:
            drain(self)

    def _reduce(self, values, op):
        values = np.array(values, np.float64, ndmin=1)
        self.start_allreduce(values, None, op).wait("a reduction of scalars")
        return values

    def sum(self, values):
        return self._reduce(values, "sum")

    def max(self, values):
        return self._reduce(values, "max")

    def allgather(self, thing):
        data, sizes = np.frombuffer(pickle.dumps(thing), np.uint8), np.empty(self.size, np.int64)
        self.start_allgather(np.array([data.size]), sizes, [1] * self.size, None).wait("the sizes of small objects")
        found = np.empty(sizes.sum(), np.uint8)
        self.start_allgather(data, found, sizes, None).wait("small objects of all ranks")
        return [pickle.loads(part) for part in np.split(found, np.cumsum(sizes)[:-1])]

    def bcast(self, thing):
        data = np.frombuffer(pickle.dumps(thing), np.uint8) if self.rank == 0 else np.empty(0, np.uint8)
        size = np.array([data.size])
        self.start_bcast(size, 0, None).wait("the size of a small object")
        data = data if self.rank == 0 else np.empty(size[0], np.uint8)
        self.start_bcast(data, 0, None).wait("a small object")
        return pickle.loads(data) if self.rank else thing

    def alltoallv(self, arrays):
        arrays = [np.ascontiguousarray(array, np.int64) for array in arrays]
        sizes, ones = np.array([array.size for array in arrays], np.int64), [1] * self.size
        incoming = np.empty_like(sizes)
        self.start_alltoall(sizes, ones, incoming, ones, None).wait("an exchange of counts")
        received = np.empty(incoming.sum(), np.int64)
        self.start_alltoall(np.concatenate(arrays), sizes, received, incoming, "plan").wait("an exchange of rows")
        return np.split(received, np.cumsum(incoming)[:-1])

    def gather_rows(self, array):
        sizes = np.zeros((2, self.size), np.int64)  # elements that this rank sends to each, and receives of each
        sizes[0, 0] = array.size
        rows = self.allgather(len(array))
        if self.rank == 0:
            sizes[1] = np.array(rows) * math.prod(array.shape[1:])
        found = np.empty((sum(rows) if self.rank == 0 else 0, *array.shape[1:]), array.dtype)
        self.start_alltoall(np.ascontiguousarray(array), sizes[0], found, sizes[1], None).wait("the rows of all ranks")
        return found if self.rank == 0 else None

    def barrier(self):
        if self.relay is not None:
            self.relay.flush(self)
        self.queue.flush()
        self.wait([self.mpi.Ibarrier()], lambda _: f"a barrier ({named(self.ranks)})")


def world(timeout=600.0, error=None):
    """The communicator of this process: COMM_WORLD under an MPI launcher, else a single rank without MPI.

    Parameters
    ----------
    timeout : float
        Seconds that a rank waits for another; a minute more until all have started MPI.
    error : HpgcnError, optional
        Why this rank cannot go on: raised on all ranks.

    Raises
    ------
    MissingError
        A launcher started this process, but mpi4py or an MPI library is missing.
    ConfigError
        Slurm, or another MPI's launcher, started several tasks that MPI does not connect: each would train alone and
        write the same files.
    """
    if not launched() and "mpi4py.MPI" not in sys.modules:
        return SerialComm(timeout)
    faulthandler.dump_traceback_later(timeout + STARTING, exit=True, file=2)  # MPI_Init itself has no deadline
    try:
        MPI = require("mpi4py.MPI", "mpi,mpich", "running under an MPI launcher")
        if MPI.COMM_WORLD.Get_size() == 1 and launched_size() > 1:
            raise ConfigError(f"{'srun' if slurm_tasks() > 1 else 'the launcher'} started {launched_size()} tasks, but "
                              "MPI sees one rank: start with the srun --mpi=TYPE that your MPI was built for, or with "
                              "its mpiexec (`hpgcn doctor` says which MPI it is)")
    except HpgcnError as missing:
        missing.collective = True  # every process finds the same
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
    ranks = as_comm(MPI.COMM_WORLD, timeout)
    with ranks.together():
        if error is not None:
            raise error
    return ranks


def as_comm(comm, timeout=600.0):
    """Wrap None (one rank), an mpi4py communicator, or what is wrapped already; UsageError for anything else."""
    if comm is None:
        return SerialComm(timeout)
    if isinstance(comm, SerialComm):
        return comm
    if not hasattr(comm, "Get_size"):
        raise UsageError(f"comm is of type {type(comm).__name__}, expected a communicator of mpi4py, or None")
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

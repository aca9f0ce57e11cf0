"""Communicators: `SerialComm` of one rank, which needs no MPI, and `MpiComm` over mpi4py."""
from __future__ import annotations

import copy
import faulthandler
import itertools
import math
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm import connection, local_mpi, route, slow_network
from hpgcn.comm.collective_errors import CollectiveErrors, abort_on_exception
from hpgcn.comm.collectives import Collectives
from hpgcn.comm.counters import Counters
from hpgcn.comm.nodes import numbered, requested_layout
from hpgcn.comm.pending import Queue, format_ranks
from hpgcn.comm.staging import GpuStager
from hpgcn.comm.stragglers import drain
from hpgcn.errors import ConfigError, HpgcnError, InternalError, UsageError, agreed, require
from hpgcn.runtime.clock import Clock
from hpgcn.runtime.device import HOST, start_gpu
from hpgcn.runtime.launcher import (
    VARIABLE,
    alone,
    farm,
    in_interactive_shell,
    launched,
    set_ranks_on_node,
)
from hpgcn.runtime.machine import die_with_parent

if TYPE_CHECKING:

    from numpy.typing import ArrayLike

    from hpgcn.comm.route import Route
    from hpgcn.kernels import Array
    from hpgcn.runtime.device import Host

STARTING = 60.0  # seconds between the first rank and the last to start MPI, beyond the timeout


class SerialComm(Collectives, CollectiveErrors):
    """The communicator of a single rank; the methods are those of `MpiComm`."""

    rank = 0  # within this communicator
    size = 1
    ranks = (0,)  # in messages: numbers in the communicator that the first group was made of
    turn = 0  # number among the ranks of this process
    finds_all = False  # whether all other ranks have had their turns before this one waits
    process_ranks = 1  # ranks of this process, which are threads if there are several
    local_rank = 0  # number of this process among those of this node
    host = 0  # lowest rank with which this rank can share memory
    nodes = np.zeros(1, np.int32)  # (P,): the node of each rank, from 0
    mpi = None  # that of mpi4py
    device = HOST  # collectives take arrays of this device and of the host; see `use`
    stager = None  # GpuStager of messages, if the device is a GPU and there are several ranks
    spool = None  # the Spool or GpuSpool of the ranks of this process, if memory is short
    network = None  # a SlowNetwork that delays messages, in experiments
    overlap = True  # whether a rank computes during a broadcast; not, in experiments

    def __init__(self, timeout: float = 600.0) -> None:
        self.timeout = timeout  # seconds after which a wait ends with StoppedError
        self.counters = Counters()  # it and the clock are shared with groups
        self.clock = Clock()

    def restart_counts(self) -> None:
        """Count bytes and seconds anew, of groups that are made later as well."""
        self.counters, self.clock = Counters(), Clock()

    def use(self, device: Host, aware: str | None = None) -> Route:
        """Accept arrays of this device in collectives, and return a Route.

        All ranks call this before they make groups.
        """
        self.device = device
        way = route.choose(self, device, aware)
        several_gpus = device.name == "cuda" and self.size > 1
        self.stager = GpuStager(device, way.direct) if several_gpus else None
        return way

    def told(self) -> dict[str, Any]:
        """Return fields of summary.json on ranks that take turns in a process; here none."""
        return {}

    def group(self, ranks: Sequence[int]) -> SerialComm:
        """Return the communicator of the ranks in `ranks`, renumbered from 0 in their order.

        `ranks`, increasing, are numbers in this communicator. Every rank calls it, with
        the group that it is in; groups may be made of groups. A second call returns the
        same communicator; `close` it once for each call. A group of one rank needs no
        MPI.
        """
        ranks = tuple(int(rank) for rank in ranks)
        if self.rank not in ranks or ranks != tuple(sorted(set(ranks) & set(range(self.size)))):
            raise InternalError(f"a group of ranks {ranks} cannot be made by rank {self.rank} "
                                f"of {self.size}: expected increasing numbers, its own among them")
        return self._group(ranks)

    def _group(self, ranks: Sequence[int]) -> SerialComm:
        return self

    @property
    def threads(self) -> bool:
        """Whether another thread may communicate, by a `duplicate`, at the same time."""
        return self.device.in_tiles

    def duplicate(self) -> SerialComm:
        """Return a communicator of the same ranks for another thread; `close` it.

        It has counters and a clock of its own. All ranks call this together.
        """
        return SerialComm(self.timeout)

    def close(self) -> None:
        """Free a communicator of `group`, once each caller of `group` has closed it.

        For any other communicator, free its groups, and receive the messages that ranks
        sent after their deadlines.
        """

    def allreduce(self, array: Array, kind: str, op: str = "sum") -> None:
        """Replace an array by its sum over ranks, or maximum (op "max"); counted under `kind`."""
        self.start_allreduce(array, kind, op).wait(f"an allreduce of {kind}")

    def sum(self, values: ArrayLike) -> np.ndarray:
        """Return the sums of scalars over ranks, float64. Messages are not counted."""
        return self._reduce(values, "sum")

    def max(self, values: ArrayLike) -> np.ndarray:
        """Return the maxima of scalars over ranks, float64. Messages are not counted."""
        return self._reduce(values, "max")

    def _reduce(self, values: ArrayLike, op: str) -> np.ndarray:
        return np.asarray(values, np.float64)

    def allgather(self, thing: Any) -> list:
        """Return a list with a small object of every rank, in rank order."""
        return [thing]

    def bcast(self, thing: Any) -> Any:
        """Return rank 0's object on every rank."""
        return thing

    def alltoallv(self, arrays: list[np.ndarray],
                  kind: str | None = "plan") -> list[np.ndarray]:
        """Send array q, 1-D int64, to rank q; return received arrays.

        The bytes are counted under `kind`, except for None.
        """
        return arrays

    def gather_rows(self, array: Any) -> np.ndarray | None:
        """Return the rows of all ranks stacked in rank order on rank 0; None elsewhere."""
        return array

    def scatter_rows(self, array: np.ndarray, out: np.ndarray) -> None:
        """Fill `out` (m,) of each rank from consecutive rows of rank 0's `array`."""
        out[:] = array

    def barrier(self) -> None:
        """Wait for all ranks."""

    def begin_pass(self, arrays: Any = None) -> None:
        """Note that a pass through the model begins: see `LocalComm`. Default: do nothing."""

    def end_segment(self, *ends: Any) -> bool:
        """Note that a segment of a pass ends, and return whether the rank was in one.

        `ends` says where: (width, backward) of a product that has read own rows, or "sum"
        in a sum over ranks. It is empty at the end of the pass. Default: do nothing.
        """
        return False

    def next_turn(self, requests: Sequence, what: Callable, *ends: Any) -> None:
        """Let all other ranks run between two segments: see `LocalComm`. Default: do nothing."""

    def begin_segment(self) -> None:
        """Note that a segment of a pass begins: see `LocalComm`. Default: do nothing."""

    def end_stage(self, *product: Any) -> None:
        """Note that a product waits the first of two times. Default: do nothing."""

    def end_product(self, *product: Any) -> None:
        """Note that a product with A is complete: see `LocalComm`. Default: do nothing."""


class MpiComm(SerialComm):
    """Ranks over mpi4py. Every wait has a deadline (`timeout`, seconds)."""

    def __init__(self, mpi: Any, timeout: float = 600.0) -> None:
        super().__init__(timeout)
        self.parent = None
        self.busy = []
        self._connect(mpi)

    def _connect(self, mpi: Any) -> None:
        from mpi4py import MPI

        self.MPI = MPI
        self._over(mpi, range(mpi.Get_size()))
        self.network = slow_network.requested_network()
        self.overlap = slow_network.requested_overlap()
        if launched():
            die_with_parent()
        self.barrier()  # Split_type has no deadline
        node = mpi.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank = node.Get_rank()
        set_ranks_on_node(node.allgather(os.sched_getaffinity(0)), self.local_rank,
                          all_ranks=self.size == MPI.COMM_WORLD.Get_size())
        self.host = node.bcast(self.rank)
        node.Free()
        self.nodes = requested_layout(self.size)
        if self.nodes is None:
            self.nodes = numbered(self.allgather(self.host))
        abort_on_exception()
        connection.check_messages(self)

    def _over(self, mpi: Any, ranks: Sequence[int]) -> None:
        self.mpi = mpi
        self.ranks = tuple(ranks)
        self.rank = mpi.Get_rank()
        self.size = mpi.Get_size()
        self.groups = {}
        self.users = 0
        self.tags = itertools.count(100)  # see hpgcn.parallel.nodes.node_memory
        self.queue = Queue(self.busy)

    def _group(self, ranks: Sequence[int]) -> SerialComm:
        if ranks not in self.groups:
            self.groups[ranks] = self._alone() if len(ranks) == 1 else self._among(ranks)
        group = self.groups[ranks]
        if group.mpi is not None:
            group.users += 1
        return group

    def _alone(self) -> SerialComm:
        group = SerialComm(self.timeout)
        group.ranks = (self.ranks[self.rank],)
        for name in ("counters", "clock", "device", "local_rank"):
            setattr(group, name, getattr(self, name))
        return group

    def _among(self, ranks: Sequence[int]) -> SerialComm:
        counts = np.zeros(self.size, np.int64)
        counts[list(ranks)] = 1
        words = np.zeros((2, len(ranks)), np.uint8)  # Create_group has no deadline, but words do
        pending = self.start_alltoall(words[0], counts, words[1], counts, None)
        pending.wait("the making of a group")
        everyone = self.mpi.Get_group()
        members = everyone.Incl(ranks)
        group = copy.copy(self)  # shares counters, clock, timeout, device
        group.parent = self
        group._over(self.mpi.Create_group(members), [self.ranks[rank] for rank in ranks])
        group.nodes = numbered(self.nodes[list(ranks)])
        members.Free()
        everyone.Free()
        return group

    @property
    def threads(self) -> bool:
        return super().threads and self.MPI.Query_thread() == self.MPI.THREAD_MULTIPLE

    def duplicate(self) -> SerialComm:
        other = copy.copy(self)
        other.parent = self
        other.busy = []
        other.counters, other.clock = Counters(), Clock()
        other.stager = None
        self.barrier()  # Dup has no deadline
        other._over(self.mpi.Dup(), self.ranks)
        return other

    def close(self) -> None:
        self.users -= 1
        if self.users > 0:
            return
        for group in [group for group in self.groups.values() if group.mpi is not None]:
            group.users = 1
            group.close()
        if self.parent is not None:
            siblings = self.parent.groups.items()
            self.parent.groups = {ranks: group for ranks, group in siblings if group is not self}
            self.mpi.Free()
        else:
            drain(self)

    def _reduce(self, values: ArrayLike, op: str) -> np.ndarray:
        values = np.array(values, np.float64, ndmin=1)
        self.start_allreduce(values, None, op).wait("a reduction of scalars")
        return values

    def allgather(self, thing: Any) -> list:
        data = np.frombuffer(pickle.dumps(thing), np.uint8)
        sizes = np.empty(self.size, np.int64)
        pending = self.start_allgather(np.array([data.size]), sizes, [1] * self.size, None)
        pending.wait("the sizes of small objects")
        everything = np.empty(sizes.sum(), np.uint8)
        self.start_allgather(data, everything, sizes, None).wait("small objects of all ranks")
        parts: Any = np.split(everything, np.cumsum(sizes)[:-1])
        return [pickle.loads(part) for part in parts]

    def bcast(self, thing: Any) -> Any:
        data: Any = np.frombuffer(pickle.dumps(thing) if self.rank == 0 else b"", np.uint8)
        size = np.array([data.size])
        self.start_bcast(size, 0, None).wait("the size of a small object")
        if self.rank:
            data = np.empty(size[0], np.uint8)
        self.start_bcast(data, 0, None).wait("a small object")
        return pickle.loads(data) if self.rank else thing

    def alltoallv(self, arrays: list[np.ndarray],
                  kind: str | None = "plan") -> list[np.ndarray]:
        sizes = np.array([len(array) for array in arrays], np.int64)
        ones = [1] * self.size
        incoming = np.empty_like(sizes)
        self.start_alltoall(sizes, ones, incoming, ones, None).wait("an exchange of counts")
        sent = np.concatenate(arrays, dtype=np.int64, casting="unsafe")
        received = np.empty(incoming.sum(), np.int64)
        self.start_alltoall(sent, sizes, received, incoming, kind).wait("an exchange of rows")
        return np.split(received, np.cumsum(incoming)[:-1])

    def gather_rows(self, array: Any) -> np.ndarray | None:
        if array.dtype.kind == "U":  # MPI has no such type: its letters are sent as numbers
            width = array.dtype.itemsize // 4
            letters = np.ascontiguousarray(array).view(np.int32).reshape(len(array), width)
            letters = self.gather_rows(letters)
            return None if letters is None else letters.view(array.dtype)[:, 0]

        # only rank 0 receives
        to_root = np.zeros(self.size, np.int64)  # elements, as MPI counts
        to_root[0] = array.size
        received = np.zeros(self.size, np.int64)
        rows = self.allgather(len(array))
        if self.rank == 0:
            received[:] = np.array(rows) * math.prod(array.shape[1:])

        stacked = np.empty((sum(rows) if self.rank == 0 else 0, *array.shape[1:]), array.dtype)
        pending = self.start_alltoall(np.ascontiguousarray(array), to_root, stacked, received, None)
        pending.wait("the rows of all ranks")
        return stacked if self.rank == 0 else None

    def scatter_rows(self, array: np.ndarray, out: np.ndarray) -> None:
        sizes = np.array(self.allgather(out.size), np.int64)
        from_root = np.zeros(self.size, np.int64)
        from_root[0] = out.size
        sent = array if self.rank == 0 else out[:0]
        sizes = sizes if self.rank == 0 else np.zeros(self.size, np.int64)
        self.start_alltoall(sent, sizes, out, from_root, None).wait("the rows of this rank")

    def barrier(self) -> None:
        if self.stager is not None:
            self.stager.flush(self)
        self.queue.flush()
        self.wait([self.mpi.Ibarrier()], lambda _: f"a barrier ({format_ranks(self.ranks)})",
                  patient=True)


def world(timeout: float = 600.0, error: Exception | None = None,
          device: str = "cpu") -> SerialComm:
    """Return COMM_WORLD under an MPI launcher, else a single rank without MPI.

    A rank waits for another `timeout` seconds, a minute more until all have started
    MPI. `error`, why this rank cannot go on, is raised on all ranks. MissingError if a
    launcher started this process without mpi4py or an MPI library. ConfigError if a
    launcher of another MPI, or of none, started several tasks that MPI does not
    connect. Each task would write the same files. A process with the setting to work
    without MPI ignores the launcher. If `device` is cuda or auto, this rank's CUDA
    context is created before MPI starts, for fast messages of GPU memory.
    """
    # without a launcher there is one rank
    if alone() or (not launched() and "mpi4py.MPI" not in sys.modules):
        return SerialComm(timeout)

    if "mpi4py.MPI" not in sys.modules:
        connection.avoid_copies()
        if device != "cpu":
            start_gpu()
    connection.check_running()

    # start MPI, which may hang, and refuse an MPI that does not connect
    faulthandler.dump_traceback_later(timeout + STARTING, exit=True, file=2)  # deadline of MPI_Init
    try:
        tasks = describe_farm()
        purpose = f"{tasks}; to work together (--alone: each on its own)" if tasks else \
            "running under an MPI launcher"
        MPI = require("mpi4py.MPI", "mpi,mpich", purpose)
        if MPI.COMM_WORLD.Get_size() == 1 and tasks and in_interactive_shell():
            raise ConfigError(f"{tasks}, one of which is this interactive shell: add --alone to "
                              "run in it on one rank, or start the ranks with `srun -n N hpgcn "
                              "...` or `mpiexec -n N hpgcn ...`")
        if MPI.COMM_WORLD.Get_size() == 1 and tasks:
            raise ConfigError(f"{tasks}, but MPI has one rank only: start with the mpiexec of your "
                              "MPI library, or with srun --mpi=TYPE for it (`hpgcn doctor` names "
                              "the library); with --alone each process runs on its own")
    except HpgcnError as missing:
        agreed(missing)  # every process finds the same
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()

    # raise the error of any rank on all of them
    ranks = as_comm(MPI.COMM_WORLD, timeout)
    with ranks.collective_errors():
        if error is not None:
            raise error
    return ranks


def describe_farm() -> str:
    """Describe the launcher and its number of tasks; return "" if it started one task."""
    name, count = farm() or ("", 1)
    if count is None:
        return f"{name} started this process in a job of unknown size"
    return f"{name} started {count} tasks" if count > 1 else ""


def as_comm(comm: Any, timeout: float = 600.0) -> SerialComm:
    """Return the communicator for None (one rank) or an mpi4py communicator.

    UsageError for other types. A SerialComm or MpiComm is returned as it is.

    None gets a warning in a process that its launcher started together with others.
    """
    if isinstance(comm, SerialComm):
        return comm
    if comm is None and launched() and (tasks := describe_farm()):
        warnings.warn(f"{tasks}, but this process runs on its own: pass comm=MPI.COMM_WORLD of "
                      f"mpi4py to use all of them, or pass comm=MPI.COMM_SELF or set {VARIABLE}=1 "
                      "to confirm", stacklevel=3)
    if comm is not None and not hasattr(comm, "Get_size"):
        raise UsageError(f"comm is of type {type(comm).__name__}, expected a communicator of "
                         "mpi4py, or None")
    if comm is not None:
        connection.check_running(comm)
    if comm is None or comm.Get_size() == 1:
        return SerialComm(timeout)
    if isinstance(comm, local_mpi.Intracomm):
        from hpgcn.comm.local import LocalComm

        return LocalComm(comm, timeout)
    return MpiComm(comm, timeout)

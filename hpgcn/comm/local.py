"""Ranks in one process: `run_on_ranks` calls a function on several ranks.

One rank runs at a time, so nothing is faster than on one rank. Such ranks are useful to
learn, to debug and to count messages, and where memory is short. Several processes may
each have such ranks.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hpgcn.comm import local_mpi
from hpgcn.comm.communicator import MpiComm, SerialComm, as_comm
from hpgcn.comm.gpu_spool import GpuSpool
from hpgcn.comm.nodes import layout_of, requested_layout
from hpgcn.comm.processes import Processes
from hpgcn.comm.spool import Spool
from hpgcn.comm.turns import Turns
from hpgcn.errors import UsageError, setting
from hpgcn.runtime.disk.residency import Residency
from hpgcn.runtime.disk.scratch_folder import disk_bytes, scratch_errors, scratch_files

if TYPE_CHECKING:
    from hpgcn.comm.local_mpi import Intracomm
    from hpgcn.comm.route import Route
    from hpgcn.kernels import Array
    from hpgcn.runtime.device import Host
    from hpgcn.runtime.gpu.gpu_turns import GpuTurns

log = logging.getLogger("hpgcn")
MOST_RANKS = 1024  # each has a thread, and a stack of its own


class LocalComm(MpiComm):
    """Communicator of ranks that are threads of this process, or of several processes.

    Waits for ranks of this process have no deadline: a deadlock raises an error.
    """

    def _connect(self, mpi: Intracomm) -> None:
        self.MPI = local_mpi
        self._over(mpi, range(mpi.Get_size()))
        self.process_ranks = mpi.turns.size
        self.nodes = mpi.nodes
        self.spool = mpi.post.spool
        self.turn = mpi.turn
        self.host = self.rank - self.turn
        self.finds_all = mpi.post.processes is None and self.turn == mpi.turns.size - 1
        if mpi.post.processes is not None:
            self.local_rank = mpi.post.processes.outer.local_rank

    def use(self, device: Host, aware: str | None = None) -> Route:
        """Accept arrays of this device in collectives, and return a Route.

        Collectives copy the arrays on the device.
        """
        way = SerialComm.use(SerialComm(self.timeout), device, aware)
        self.device = device
        if device.name == "cuda" and self.rank == 0 and not device.in_files:
            log.warning("%d ranks in one process share a GPU and take turns: this is for learning "
                        "and counting, and slower than one rank", self.size)
        return way

    def wait(self, requests: Sequence, what: Callable, pending: set[int] | None = None,
             name: str | None = None, patient: bool = False) -> None:
        """Let other ranks run until the requests are complete.

        Arguments as in `Collectives.wait`.
        """
        pending = set(range(len(requests))) if pending is None else pending
        alone = self.mpi.post.processes is None

        def ready() -> bool:
            queued = (request for queue in self.busy for request in queue.running)
            if any(request.Get_status() for request in queued):
                return True
            if alone:
                return any(requests[number].Get_status() for number in pending)
            return self._goes_on(requests)

        if not pending:
            return
        with self.clock("wait", name):
            while pending:
                if not self.test(requests, pending):
                    self.mpi.turns.wait(self.turn, ready, lambda: what(sorted(pending)),
                                        self.timeout)
                    self._record_disk()

    def test(self, requests: Sequence, pending: set[int]) -> bool:
        if self.mpi.post.processes is not None:
            self.mpi.post.processes.advance()
        return super().test(requests, pending)

    def wait_for_one(self, groups: list[list], what: str) -> None:
        """Wait for the first group: another one may be ready no earlier in a turn."""
        for each in groups[0]:
            each.wait(what)

    def begin_pass(self, arrays: Any = None) -> None:
        """Note that a pass through the model begins, which touches some PassArrays.

        Ranks go on in the order of their numbers if arrays are in files. The last rank that
        calls a collective would go on first. Its next messages would be in files twice, in
        its array and in those of ranks that do not wait for them yet.
        """
        turns, rank = self.mpi.turns, self.turn
        if turns.observer is not None:
            turns.observer.begin_pass(rank, arrays)
            turns.in_order(rank)
            self._begin_segment()
            self._record_disk()

    def end_segment(self, *ends: Any) -> bool:
        observer = self.mpi.turns.observer
        return observer is not None and observer.end_segment(self.turn, *ends)

    def next_turn(self, requests: Sequence, what: Callable, *ends: Any) -> None:
        """End a segment, begin the next one in the next turn, once all requests are complete.

        They are those of messages that other ranks send before their calls. `what` as in
        `wait`.
        """
        def describe() -> str:
            return what([place for place, request in enumerate(requests)
                         if not request.Get_status()])

        turns = self.mpi.turns
        if turns.observer is not None:
            self.end_segment(*ends)
            turns.pass_turn(self.turn, lambda: self._goes_on(requests), describe, self.timeout)
            self._record_disk()
            self.begin_segment()

    def _goes_on(self, requests: Sequence) -> bool:
        """Return whether requests are complete, and it is the turn of this rank.

        Messages of other processes come one by one, in any order of their readers. A turn for
        each would move its arrays, and so would turns in another order.
        """
        alone, observer = self.mpi.post.processes is None, self.mpi.turns.observer
        return ((alone or observer is None or observer.is_in_order(self.turn))
                and all(request.Get_status() for request in requests))

    def allreduce(self, array: Array, kind: str, op: str = "sum") -> None:
        # a sum within a pass ends a segment: all ranks get here before it is complete
        pending = self.start_allreduce(array, kind, op)
        within = self.end_segment("sum")
        pending.wait(f"an allreduce of {kind}")
        if within:
            self.begin_segment()

    def begin_segment(self) -> None:
        """Note that the next segment begins, after a wait within a product or layer.

        A rank that found all messages lets the others run. If it went on it would be a
        product ahead, and messages of others would be in files for two products.
        """
        turns = self.mpi.turns
        if turns.observer is not None:
            if not turns.waited[self.turn]:
                turns.pass_turn(self.turn)
            self._record_disk()
            self._begin_segment()

    def _begin_segment(self) -> None:
        turns = self.mpi.turns
        turns.observer.begin_segment(self.turn)
        turns.waited[self.turn] = False

    def end_stage(self, *product: Any) -> None:
        """Note that a product waits the first of two times, as `end_product` does at its end."""
        if self.end_segment(*product) and self.mpi.post.processes is None:
            self.mpi.turns.pass_turn(self.turn)  # then all messages are there
            self._record_disk()

    def end_product(self, *product: Any) -> None:
        """Note that a product is complete, and that the next segment begins."""
        self.end_segment(*product)  # if the product has no own rows
        self.begin_segment()

    def told(self) -> dict[str, Any]:
        """Return bytes and seconds of ranks that take turns, as a field of summary.json."""
        observer = self.mpi.turns.observer
        found = {} if observer is None else observer.told()
        return {"turns": found} if found else {}

    def _record_disk(self) -> None:
        """Add the times of the disk to the timeline of this rank."""
        disk = self.mpi.turns.observer
        for event in disk.take_events(self.turn) if disk else ():
            self.clock.note(*event)


def run_on_ranks(function: Callable[..., Any], ranks: int, *arguments: Any,
                 nodes: int | Sequence[int] | None = None, processes: Any = None,
                 **options: Any) -> list[Any]:
    """Call a function on several ranks of this process; return their results.

    The ranks are threads of which one runs at a time: it runs until it waits for
    another. Kernels use all threads of the process. Losses, counters and files are
    those of `mpiexec -n RANKS`.

    Parameters
    ----------
    function : callable
        Called as `function(comm, *arguments, **options)`. The communicator is what
        `hpgcn.train`, `hpgcn.predict` and `hpgcn.propagation` take as `comm`. It also
        has mpi4py's `Barrier`, `bcast`, `gather`, `allgather` and `allreduce` of Python
        objects.
    ranks : int
        Number of ranks in this process, 1 to 1024.
    nodes : int or sequence of int, optional
        Nodes that the ranks are taken to run on, which determine what they send to each
        other: a number of nodes with consecutive ranks, or the node of each rank.
        Default: one node, or as the variable HPGCN_NODES says.
    processes : mpi4py communicator, optional
        Processes that call this together, each for the same number of ranks: those of
        the first process are the first ranks. Then MPI finds the nodes.

    Returns
    -------
    list
        The result of the function on each rank of this process, in rank order.

    Raises
    ------
    DeadlockError
        No rank can go on; the message names what each waits for.
    UsageError
        `ranks` is not a number from 1 to 1024, `nodes` does not fit it, or `function`
        cannot be called.
    HpgcnError
        The error of a rank; the message names the rank unless all ranks raised it
        together. Any other exception but an OSError becomes an InternalError.

    Examples
    --------
    >>> import hpgcn
    >>> def greet(comm, word):
    ...     return f"{word} {comm.Get_rank()} of {comm.Get_size()}"
    >>> hpgcn.run_on_ranks(greet, 3, "rank")
    ['rank 0 of 3', 'rank 1 of 3', 'rank 2 of 3']
    """
    if type(ranks) is not int or not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"{setting('ranks', ranks)}: expected a number from 1 to {MOST_RANKS}")
    if not callable(function):
        raise UsageError(f"function is of type {type(function).__name__}, expected a function")

    post = local_mpi.Post(processes=_processes(processes, ranks))
    turns = Turns(ranks, processes=post.processes)
    return turns.run([partial(function, comm, *arguments, **options)
                      for comm in _communicators(turns, post, nodes)])


def run_on_disk(function: Callable, ranks: int, scratch: str, *arguments: Any, kept: int = 0,
                **options: Any) -> list:
    """Call a function like `run_on_ranks`, with large arrays in files.

    The files lie in the folder `scratch`. The arrays of three turns are in memory at a
    time (hpgcn.runtime.disk.residency). The last `kept` ranks keep their arrays in
    memory. Nothing remains in the folder, however the process ends. StorageError if it
    cannot be written, or if its disk is full.
    """
    # arrays of the first ranks are files
    files = scratch_files(scratch)
    spool = Spool(scratch, ranks - kept, ranks)
    post = local_mpi.Post(spool)
    residency = post.observer = Residency(ranks - kept, ranks, scratch, post.waiting)
    turns = Turns(ranks, residency)

    def run(comm: SerialComm) -> Any:
        comm.disk = residency
        if comm.rank >= residency.in_files:
            return function(comm, *arguments, **options)
        with files.use(), scratch_errors(scratch, files):
            return function(comm, *arguments, **options)

    # run, and log what the disk did
    before = disk_bytes()
    try:
        results = turns.run([partial(run, comm) for comm in _communicators(turns, post)])
    finally:
        residency.close()
        spool.close()
    read, written = (now - was for now, was in zip(disk_bytes(), before))
    waited = (residency.disk.waited[kind] + spool.waited[kind] for kind in ("read", "write"))
    log.info("disk: %.4g GB read and %.4g GB written in all; ranks waited %.3g s for reading "
             "and %.3g s for writing", read / 1e9, written / 1e9, *waited)
    return results


def run_on_gpu(function: Callable, turns: GpuTurns, *arguments: Any, processes: Any = None,
               **options: Any) -> list:
    """Call a function like `run_on_ranks`, on ranks that take turns on the GPU of a process."""
    def run(comm: Intracomm) -> Any:
        comm.arena = turns.arenas[comm.turn]
        with comm.arena.use():
            return function(comm, *arguments, **options)

    between = _processes(processes, turns.ranks)
    spool = GpuSpool(turns, between)
    post = local_mpi.Post(spool, turns.messages, between)
    ranks = Turns(turns.ranks, turns, between)
    turns.read_messages = spool.read_awaited
    try:
        return ranks.run([partial(run, comm) for comm in _communicators(ranks, post)])
    finally:
        turns.close()


def _processes(comm: Any, ranks: int) -> Processes | None:
    """Return the Processes of a communicator; None for one process."""
    outer = SerialComm() if comm is None else as_comm(comm)
    if outer.process_ranks > 1:
        raise UsageError(f"{setting('ranks', ranks)}: starts ranks in each process, so comm must "
                         "not be of such ranks already")
    return None if outer.size == 1 else Processes(outer, ranks)


def _communicators(turns: Turns, post: local_mpi.Post, nodes: Any = None) -> list:
    """Return a communicator for each rank of this process, all over the same post.

    `nodes` as in `run_on_ranks`.
    """
    processes, ranks, first = post.processes, range(turns.size), 0
    if processes is not None:
        ranks, first, found = range(processes.size), processes.number * turns.size, processes.nodes
    elif nodes is None:
        found = requested_layout(turns.size)
    else:
        found = layout_of(nodes, turns.size, "nodes")
    own = ranks[first:first + turns.size]
    communicators = [local_mpi.Intracomm(post, turns, ranks, rank) for rank in own]
    for comm in communicators:
        comm.nodes = comm.nodes if found is None else found
    return communicators


def in_process(function: Callable, comm: Any = None, ranks: int = 1, *arguments: Any,
               nodes: Any = None, **options: Any) -> Any:
    """Call `function(comm, ...)` here, or on `ranks` ranks in each process of `comm`.

    One rank calls it directly. `nodes` is that of `run_on_ranks`. Returns the result of
    the first rank of this process.
    """
    if type(ranks) is int and ranks == 1:
        return function(comm, *arguments, **options)
    return run_on_ranks(function, ranks, *arguments, nodes=nodes, processes=comm, **options)[0]

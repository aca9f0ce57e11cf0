"""The part of mpi4py that hpgcn uses, for ranks that are threads of one process.

The module stands for `mpi4py.MPI`, an `Intracomm` for its communicator. A message is
copied from the sender's array to the receiver's when both are there. Sums are taken in
the order in which MPICH takes them, so that results are equal to the bit. Scripts also
get the calls with Python objects. Ranks of other processes take part by `Processes`.
"""
from __future__ import annotations

import functools
import operator
import pickle
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import InternalError, UsageError
from hpgcn.runtime.gpu.gpu_messages import put

if TYPE_CHECKING:
    from hpgcn.comm.gpu_spool import GpuSpool
    from hpgcn.comm.processes import Processes
    from hpgcn.comm.spool import Spool
    from hpgcn.comm.turns import Turns
    from hpgcn.runtime.gpu.gpu_messages import GpuMessages

SUM = np.add
MAX = np.maximum
IN_PLACE = object()
ANY_SOURCE = -1
pickled = partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL)
THREAD_SERIALIZED, THREAD_MULTIPLE = 2, 3
SHORT_REDUCE_BYTES = 2048  # MPICH reduces longer arrays of at least P elements in another order


class Request:
    """A call under way, or one that can be started again and again (persistent).

    `copied`, a function or None, is called after a message that this request sends is copied.
    A complete collective call has the `parts` of the ranks, by their number.
    """

    copied = None
    parts: dict

    def __init__(self, start: Callable | None = None, *, done: bool = False) -> None:
        self.done = done
        self.start = start

    def Start(self) -> None:
        self.done = False
        self.start(self)

    def Get_status(self) -> bool:
        """Return whether the call is complete."""
        return self.done

    def Free(self) -> None:
        self.start = self.copied = None

    @staticmethod
    def Testsome(requests: list[Request]) -> list[int]:
        """Return the positions of the complete requests."""
        return [place for place, request in enumerate(requests) if request.done]


class Prequest(Request):
    """Requests as `Send_init` and `Recv_init` return them."""

    @staticmethod
    def Startall(requests: list[Prequest]) -> None:
        for request in requests:
            request.Start()


REQUEST_NULL = Request()  # stands for a call that has not begun: it is never complete


class Status:
    """Result of `Iprobe` about a message; it never finds one."""


def Query_thread() -> int:
    """Return the thread level: only one thread at a time communicates."""
    return THREAD_SERIALIZED


class Post:
    """Messages that the ranks of a run have sent or expect, until they meet their counterpart.

    `spool` is the Spool of rows between ranks, or None. `messages` copies rows between
    arrays that take turns on a GPU; None: all stay. `processes` are those with other
    ranks of the run, or None. `observer`, a hpgcn.runtime.disk.residency.Residency or
    None, learns which arrays were copied.
    """

    def __init__(self, spool: Spool | GpuSpool | None = None, messages: GpuMessages | None = None,
                 processes: Processes | None = None) -> None:
        self.spool = spool
        self.processes = processes
        self.copy = put if messages is None else messages.copy
        self.readable = list if messages is None else messages.readable
        self.on_host = _on_host if messages is None else messages.on_host
        self.observer = None
        self.sends = defaultdict(deque)  # by (communicator, source, destination, tag)
        self.receives = defaultdict(deque)
        self.collectives = {}  # by (communicator, number of the call in it)

    def message(self, queue: defaultdict, counterparts: defaultdict, key: tuple,
                buffer: np.ndarray, request: Request) -> None:
        """Enqueue one side of a message, and copy it if the other side is there."""
        queue[key].append((buffer, request))
        if key not in counterparts:
            return
        sent, sender = _take(self.sends, key)
        received, receiver = _take(self.receives, key)
        if sent.size > received.size:
            raise InternalError(f"a message of {sent.size} bytes from rank {key[1]} to rank "
                                f"{key[2]}, which has room for {received.size}")
        if self.observer is not None:
            self.observer.finish_moves((received,))
        self.copy(received[:sent.size], sent)
        sender.done = receiver.done = True
        if self.observer is not None:
            self.observer.note_messages((sent, received))
        if sender.copied is not None:
            sender.copied()

    def send(self, process: int, key: tuple, buffer: np.ndarray, request: Request) -> None:
        """Send a message to a rank of another process."""
        def finish() -> None:
            request.done = True
            if request.copied is not None:
                request.copied()

        self.processes.send(process, key, self.on_host(buffer), finish)

    def receive(self, process: int, key: tuple, buffer: np.ndarray, request: Request) -> None:
        """Receive a message of a rank of another process."""
        memory = buffer if isinstance(buffer, np.ndarray) else np.empty(buffer.size, np.uint8)

        def finish() -> None:
            if memory is not buffer:
                self.copy(buffer, memory)
            request.done = True

        self.processes.receive(process, key, memory, finish)

    def collective(self, comm: Intracomm, kind: str, part: Any, finish: Callable,
                   source: int | None, target: int | None) -> Request:
        """Add a rank's part of a collective call.

        The last rank of this process to call it runs `finish(parts)`, a dict by rank, once
        the parts of other processes have arrived. `source` and `target` as in
        `Processes.exchange`.
        """
        key = comm.name, comm.calls
        calls = self.collectives.setdefault(key, {})
        request = Request()
        calls[comm.rank] = kind, part, request
        if len({kind for kind, *_ in calls.values()}) > 1:
            names = ", ".join(f"rank {q} {calls[q][0]}" for q in sorted(calls))
            raise InternalError(f"ranks make different collective calls: {names}")
        if len(calls) < len(comm.own):
            return request

        def complete(parts: dict) -> None:
            if self.observer is not None:
                self.observer.finish_moves(part for _, part, _ in calls.values())
            finish(parts)
            if self.observer is not None:
                self.observer.note_messages(part for _, part, _ in calls.values())
            for *_, waiting in calls.values():
                waiting.parts, waiting.done = parts, True

        del self.collectives[key]
        parts = {rank: part for rank, (_, part, _) in sorted(calls.items())}
        if comm.is_local:
            complete(parts)
        else:
            self.processes.exchange(
                comm.name, comm.world_ranks, {rank: self.on_host(each) for rank, each in
                                              parts.items()}, source, target,
                lambda found: complete({**found, **parts}))
        return request

    def waiting(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (rank in its communicator, bytes) of messages that no rank has received yet."""
        for key, queue in self.sends.items():
            for buffer, _ in queue:
                yield key[2], buffer


class Intracomm:
    """A communicator: the methods are mpi4py's, with the arguments that hpgcn gives them."""

    def __init__(self, post: Post, turns: Turns, world_ranks: Iterable[int], rank: int,
                 name: Any = "world") -> None:
        self.post = post
        self.turns = turns
        self.world_ranks = tuple(world_ranks)
        self.rank = rank
        self.size = len(self.world_ranks)
        first = 0 if post.processes is None else post.processes.number * turns.size
        self.turn = self.world_ranks[rank] - first  # number among the ranks of this process
        self.own = [place for place, each in enumerate(self.world_ranks)
                    if first <= each < first + turns.size]  # ranks of this process
        self.is_local = len(self.own) == self.size
        self.name = name  # equal on all its ranks, and on no other communicator
        self.calls = 0  # collective calls so far
        self.made = defaultdict(int)  # communicators made of this one, by their ranks
        self.nodes = np.zeros(self.size, np.int32)  # node of each rank

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_group(self) -> _Group:
        """Return the group of all ranks, whose `Incl` selects ranks."""
        return _Group(range(self.size))

    def Create_group(self, group: _Group) -> Intracomm:
        """Return the communicator of a group of ranks that includes this rank."""
        ranks = [self.world_ranks[rank] for rank in group.ranks]
        return self._make(ranks, group.ranks.index(self.rank))

    def Dup(self) -> Intracomm:
        return self._make(self.world_ranks, self.rank)

    def Free(self) -> None:
        """Do nothing, because a communicator has no memory."""

    def _make(self, world_ranks: Sequence[int], rank: int) -> Intracomm:
        ranks = tuple(world_ranks)
        self.made[ranks] += 1
        name = self.name, ranks, self.made[ranks]
        return Intracomm(self.post, self.turns, ranks, rank, name)

    def Isend(self, buffer: np.ndarray, dest: int, tag: int) -> Request:
        return self._begin(self._send(buffer, dest, tag))

    def Irecv(self, buffer: np.ndarray, source: int, tag: int) -> Request:
        return self._begin(self._receive(buffer, source, tag))

    def Send_init(self, buffer: np.ndarray, dest: int, tag: int) -> Prequest:
        return Prequest(self._send(buffer, dest, tag), done=True)

    def Recv_init(self, buffer: np.ndarray, source: int, tag: int) -> Prequest:
        return Prequest(self._receive(buffer, source, tag), done=True)

    def Iprobe(self, source: int, tag: int, status: Status) -> bool:
        """Return False: no message that hpgcn probes for is sent in one process."""
        return False

    def Ibarrier(self) -> Request:
        return self._collective("barrier", np.empty(0), lambda parts: None)

    def Ibcast(self, buffer: np.ndarray, root: int) -> Request:
        def copy(parts: dict) -> None:
            for rank in self.own:
                if rank != root:
                    self.post.copy(parts[rank], parts[root])

        return self._collective(f"broadcast of rank {root}", buffer, copy, source=root)

    def Ireduce(self, sent: Any, received: np.ndarray | None, op: Callable,
                root: int) -> Request:
        def reduce(parts: dict) -> None:
            if root in self.own:
                arrays = self._readable(parts)
                self.post.copy(parts[root], reduced(arrays, self.size, op, root))

        part = received if self.rank == root else sent
        return self._collective(f"reduction at rank {root}", part, reduce, target=root)

    def Iallreduce(self, sent: Any, received: np.ndarray, op: Callable) -> Request:
        def reduce(parts: dict) -> None:
            total = folded(self._readable(parts), self.size, op)
            for rank in self.own:
                self.post.copy(parts[rank], total)

        return self._collective("allreduce", received, reduce)

    def _readable(self, parts: dict) -> list:
        """Return the arrays of all ranks, in their order, so that they can be added."""
        arrays = [parts[rank] for rank in range(self.size)]
        return self.post.readable(arrays) if self.is_local else [*map(self.post.on_host, arrays)]

    def Barrier(self) -> None:
        self.share(None, "Barrier")

    barrier = Barrier

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return a copy of the root's `value`."""
        kind = self._at(root, "bcast")
        return pickle.loads(self.share(pickled(value) if self.rank == root else None, kind)[root])

    def gather(self, value: Any, root: int = 0) -> list | None:
        """Return a list with copies of the values of all ranks on the root, None on the others."""
        values = self.share(pickled(value), self._at(root, "gather"))
        return [*map(pickle.loads, values)] if self.rank == root else None

    def allreduce(self, value: Any, op: Any = operator.add) -> Any:
        """Combine copies of all values in rank order by a function of two, such as MPI.MAX."""
        values = self.share(pickled(value), "allreduce of objects")
        return functools.reduce(op, map(pickle.loads, values))

    def allgather(self, value: Any) -> list:
        """Return a list with copies of the values of all ranks."""
        return [*map(pickle.loads, self.share(pickled(value), "allgather of objects"))]

    def share(self, value: Any, kind: str = "exchange of objects") -> list:
        """Return a list of the values of all ranks: the objects themselves, not copies.

        They are copies if the ranks are in several processes. All ranks call it with the
        same `kind`; InternalError if one of this process differs.
        """
        if self.is_local:
            return self._parts(kind, value)
        text = np.frombuffer(pickled(value), np.uint8)
        sizes = [int(size) for size, in self._parts(f"sizes of {kind}", np.array([text.size]))]
        texts = self._parts(kind, np.resize(text, max(sizes)))
        return [pickle.loads(each[:size]) for each, size in zip(texts, sizes)]

    def _parts(self, kind: str, part: Any) -> list:
        request = self._collective(kind, part, lambda parts: None)
        self.turns.wait(self.turn, lambda: request.done, lambda: kind)
        return [request.parts[rank] for rank in range(self.size)]

    def _at(self, root: int, kind: str) -> str:
        if not isinstance(root, int | np.integer) or not 0 <= root < self.size:
            raise UsageError(f"{kind}: root is {root!r}, expected a rank from 0 to {self.size - 1}")
        return f"{kind} of objects with root {root}"

    def _begin(self, start: Callable) -> Request:
        request = Request(start)
        request.Start()
        return request

    def _send(self, buffer: np.ndarray, dest: int, tag: int) -> Callable:
        key = self.name, self.rank, dest, tag
        view = as_bytes(buffer)
        if dest in self.own:
            return lambda request: self.post.message(self.post.sends, self.post.receives, key, view,
                                                     request)
        process = self.post.processes.process_of(self.world_ranks[dest])
        return lambda request: self.post.send(process, key, view, request)

    def _receive(self, buffer: np.ndarray, source: int, tag: int) -> Callable:
        key = self.name, source, self.rank, tag
        view = as_bytes(buffer)
        if source in self.own:
            return lambda request: self.post.message(self.post.receives, self.post.sends, key, view,
                                                     request)
        process = self.post.processes.process_of(self.world_ranks[source])
        return lambda request: self.post.receive(process, key, view, request)

    def _collective(self, kind: str, part: Any, finish: Callable, source: int | None = None,
                    target: int | None = None) -> Request:
        self.calls += 1
        return self.post.collective(self, kind, part, finish, source, target)


class _Group:
    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = list(ranks)

    def Incl(self, ranks: Sequence[int]) -> _Group:
        return _Group(self.ranks[rank] for rank in ranks)

    def Free(self) -> None:
        pass


def _take(queues: defaultdict, key: tuple) -> Any:
    """Remove and return the first item of a queue, and an empty queue."""
    queue = queues[key]
    first = queue.popleft()
    if not queue:
        del queues[key]
    return first


def _on_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def as_bytes(buffer: np.ndarray) -> np.ndarray:
    """Return a contiguous array, or bytes, as one-dimensional uint8 that shares its memory."""
    if isinstance(buffer, bytes | bytearray):
        return np.frombuffer(buffer, np.uint8)
    return buffer.reshape(-1).view(np.uint8)


def folded(arrays: Iterable[np.ndarray], ranks: int, op: Callable) -> np.ndarray:
    """Return the reduction of the arrays of P ranks in the order of MPICH's allreduce.

    Let p be the largest power of two up to P. The first 2 (P - p) arrays are added in
    pairs, so that p arrays are left. Then neighboring arrays are added in pairs, until
    one is left. The arrays are taken one by one, and log p sums are kept.
    """
    arrays = iter(arrays)
    power = 1 << (ranks.bit_length() - 1)
    sums: list[tuple[int, np.ndarray]] = []  # (arrays in it, sum), fewer in each
    for k in range(power):
        total, count = next(arrays), 1
        if k < ranks - power:
            total = op(total, next(arrays))
        while sums and sums[-1][0] == count:
            total = op(sums.pop()[1], total)
            count *= 2
        sums.append((count, total))
    return sums[0][1]


def reduced(arrays: Iterable[np.ndarray], ranks: int, op: Callable, root: int,
            size: int | None = None) -> np.ndarray:
    """Return the reduction of the arrays of P ranks in the order of MPICH's reduce to a root.

    Long arrays are reduced as by `folded`, short ones along a binomial tree with the
    root first. Arrays may be parts of others, with `size` elements each.
    """
    arrays = iter(arrays)
    first = next(arrays)
    arrays = chain([first], arrays)
    size = first.size if size is None else size
    if size * first.itemsize > SHORT_REDUCE_BYTES and size >= 1 << (ranks.bit_length() - 1):
        return folded(arrays, ranks, op)
    parts = [*arrays]
    parts = [*parts[root:], *parts[:root]]
    distance = 1
    while distance < ranks:
        for k in range(0, ranks - distance, 2 * distance):
            parts[k] = op(parts[k], parts[k + distance])
        distance *= 2
    return parts[0]

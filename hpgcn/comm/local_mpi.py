"""The part of mpi4py that hpgcn uses, for ranks that are threads of one process.

The module stands for `mpi4py.MPI`, an `Intracomm` for its communicator. A message is
copied from the sender's array to the receiver's when both are there. Sums are taken in
the order in which MPICH takes them, so that results are equal to the bit. Scripts also
get the calls with Python objects.
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

if TYPE_CHECKING:
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
    """

    copied = None

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
    arrays that take turns on a GPU; None: all stay. `observer`, a
    hpgcn.runtime.disk.residency.Residency or None, learns which arrays were copied.
    """

    def __init__(self, spool: Spool | None = None, messages: GpuMessages | None = None) -> None:
        self.spool = spool
        self.copy = _copy if messages is None else messages.copy
        self.readable = list if messages is None else messages.readable
        self.observer = None
        self.sends = defaultdict(deque)  # by (communicator, source, destination, tag)
        self.receives = defaultdict(deque)
        self.collectives = {}  # by (communicator, number of the call in it)

    def message(self, queue: defaultdict, counterparts: defaultdict, key: tuple,
                buffer: np.ndarray, request: Request) -> None:
        """Enqueue one side of a message, and copy it if the other side is there."""
        queue[key].append((buffer, request))
        if not counterparts[key]:
            return
        sent, sender = self.sends[key].popleft()
        received, receiver = self.receives[key].popleft()
        if sent.size > received.size:
            raise InternalError(f"a message of {sent.size} bytes from rank {key[1]} to rank "
                                f"{key[2]}, which has room for {received.size}")
        self.copy(received[:sent.size], sent)
        sender.done = receiver.done = True
        if self.observer is not None:
            self.observer.note_messages((sent, received))
        if sender.copied is not None:
            sender.copied()

    def collective(self, key: tuple, rank: int, size: int, kind: str,
                   part: Any, finish: Callable) -> Request:
        """Add a rank's part of a collective call.

        The last rank to call it runs `finish(parts)`.
        """
        parts = self.collectives.setdefault(key, {})
        request = Request()
        parts[rank] = kind, part, request
        if len({kind for kind, *_ in parts.values()}) > 1:
            calls = ", ".join(f"rank {q} {parts[q][0]}" for q in sorted(parts))
            raise InternalError(f"ranks make different collective calls: {calls}")
        if len(parts) == size:
            del self.collectives[key]
            finish([parts[q][1] for q in range(size)])
            if self.observer is not None:
                self.observer.note_messages(part for _, part, _ in parts.values())
            for *_, waiting in parts.values():
                waiting.done = True
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
        return self._collective("barrier", None, lambda parts: None)

    def Ibcast(self, buffer: np.ndarray, root: int) -> Request:
        def copy(parts: list[np.ndarray]) -> None:
            for rank, part in enumerate(parts):
                if rank != root:
                    self.post.copy(part, parts[root])

        return self._collective(f"broadcast of rank {root}", buffer, copy)

    def Ireduce(self, sent: Any, received: np.ndarray | None, op: Callable,
                root: int) -> Request:
        def reduce(parts: list[tuple]) -> None:
            total = parts[root][1]
            arrays = [total if rank == root else part[0] for rank, part in enumerate(parts)]
            self.post.copy(total, reduced(self.post.readable(arrays), len(arrays), op, root))

        return self._collective(f"reduction at rank {root}", (sent, received), reduce)

    def Iallreduce(self, sent: Any, received: np.ndarray, op: Callable) -> Request:
        def reduce(parts: list[np.ndarray]) -> None:
            total = folded(self.post.readable(parts), len(parts), op)
            for part in parts:
                self.post.copy(part, total)

        return self._collective("allreduce", received, reduce)

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

        All ranks call it with the same `kind`; InternalError if one differs.
        """
        values = []

        def copy(parts: list[tuple]) -> None:
            everything = [value for value, _ in parts]
            for _, theirs in parts:
                theirs.extend(everything)

        request = self._collective(kind, (value, values), copy)
        self.turns.wait(self.world_ranks[self.rank], lambda: request.done, lambda: kind)
        return values

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
        return lambda request: self.post.message(self.post.sends, self.post.receives, key, view,
                                                 request)

    def _receive(self, buffer: np.ndarray, source: int, tag: int) -> Callable:
        key = self.name, source, self.rank, tag
        view = as_bytes(buffer)
        return lambda request: self.post.message(self.post.receives, self.post.sends, key, view,
                                                 request)

    def _collective(self, kind: str, part: Any, finish: Callable) -> Request:
        self.calls += 1
        return self.post.collective((self.name, self.calls), self.rank, self.size, kind, part,
                                    finish)


class _Group:
    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks = list(ranks)

    def Incl(self, ranks: Sequence[int]) -> _Group:
        return _Group(self.ranks[rank] for rank in ranks)

    def Free(self) -> None:
        pass


def _copy(target: Any, source: Any) -> None:
    target[...] = source


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


def reduced(arrays: Iterable[np.ndarray], ranks: int, op: Callable, root: int) -> np.ndarray:
    """Return the reduction of the arrays of P ranks in the order of MPICH's reduce to a root.

    Long arrays are reduced as by `folded`, short ones along a binomial tree with the
    root first.
    """
    arrays = iter(arrays)
    first = next(arrays)
    arrays = chain([first], arrays)
    if first.nbytes > SHORT_REDUCE_BYTES and first.size >= 1 << (ranks.bit_length() - 1):
        return folded(arrays, ranks, op)
    parts = [*arrays]
    parts = [*parts[root:], *parts[:root]]
    distance = 1
    while distance < ranks:
        for k in range(0, ranks - distance, 2 * distance):
            parts[k] = op(parts[k], parts[k + distance])
        distance *= 2
    return parts[0]

"""Messages between local ranks of several processes, by MPI.

Each process has the same number of local ranks: rank r is in process r // ranks. Only
the rank whose turn it is calls MPI.

The key of a message is a communicator, two ranks and a tag of hpgcn. Its sender chooses
an MPI tag for all messages of a key, and sends it to the receiver once, in a word. A message
that is not expected has a word of its own.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import ConfigError, InternalError, StoppedError

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm

WORD = 0  # tag of words about tags
PARTS = "parts"  # the key of the parts of collective calls, with the name of a communicator


class Processes:
    """The processes of a communicator, and the messages between their local ranks.

    All processes make it together, and `close` it.

    Attributes
    ----------
    ranks : int
        Number of local ranks of each process.
    number : int
        This process.
    size : int
        Number of ranks in all processes.
    announced : callable
        Returns host memory for a message that was announced, and a function to call once it
        is there, from the key and the object of `send`.
    awaited : dict
        How many messages of a key ranks wait for, although they may not be announced yet.
    """

    announced: Callable

    def __init__(self, comm: SerialComm, ranks: int) -> None:
        comm.assert_same({"ranks": ranks}, "number of local ranks")
        self.MPI = comm.MPI
        if self.MPI.Query_thread() < self.MPI.THREAD_SERIALIZED:
            raise ConfigError("MPI was started for calls of one thread, but local ranks are "
                              "threads: start it with MPI.THREAD_SERIALIZED or more")
        self.outer = comm
        self.comm = comm.duplicate()
        self.mpi = self.comm.mpi
        self.ranks = ranks
        self.number = comm.rank
        self.size = comm.size * ranks
        self._last_tag = comm.mpi.Get_attr(self.MPI.TAG_UB)
        self._own_tags: list[dict] = [{} for _ in range(comm.size)]  # by process, then by key
        self._their_tags: dict = {}  # by (process, key)
        self._early: defaultdict = defaultdict(list)  # receives whose tag is not known yet, by same
        self.awaited: dict = {}
        self._requests: list = []  # requests of MPI under way
        self._functions: list = []  # called once a request is complete

    def process_of(self, rank: int) -> int:
        return rank // self.ranks

    @property
    def nodes(self) -> np.ndarray:
        """Node of each rank, (P,) int32."""
        return np.repeat(self.outer.nodes, self.ranks)

    @property
    def pending(self) -> bool:
        """Whether a message is under way, or a rank waits for one."""
        return bool(self._requests or self._early or self.awaited)

    def send(self, process: int, key: Any, memory: Any, done: Callable,
             announced: Any = None) -> None:
        """Send host memory to another process, and call `done` once it may be changed.

        It is an array, or a list of arrays that are one message; `done` must keep them. A
        message that the other process does not expect is `announced` to it by an object.
        """
        tags = self._own_tags[process]
        if key not in tags or announced is not None:
            tag = tags.setdefault(key, WORD + 1 + len(tags))
            if tag > self._last_tag:
                raise InternalError(f"MPI has {self._last_tag} tags, too few for messages between "
                                    "local ranks of two processes")
            word = self.mpi.isend((self.number, key, tag, announced), process, WORD)
            self._begin(word, lambda: None)
        self._with_buffer(memory, lambda buffer: self._begin(
            self.mpi.Isend(buffer, process, tags[key]), done))

    def receive(self, process: int, key: Any, memory: Any, done: Callable) -> None:
        """Receive a message of another process in host memory, and then call `done`."""
        tag = self._their_tags.get((process, key))
        if tag is None:
            self._early[process, key].append((memory, done))
        else:
            self._with_buffer(memory, lambda buffer: self._begin(
                self.mpi.Irecv(buffer, process, tag), done))

    def _with_buffer(self, memory: Any, start: Callable) -> None:
        """Call a function of MPI with an array, or with several as one buffer."""
        if isinstance(memory, np.ndarray):
            start(memory)
            return
        scattered = self.MPI.BYTE.Create_hindexed(
            [part.nbytes for part in memory], [part.ctypes.data for part in memory]).Commit()
        start([self.MPI.BOTTOM, 1, scattered])
        scattered.Free()  # MPI keeps it until the message is there

    def _begin(self, request: Any, done: Callable) -> None:
        self._requests.append(request)
        self._functions.append(done)

    def advance(self) -> bool:
        """Let messages progress; return whether any of them is complete."""
        while (word := self.mpi.improbe(tag=WORD)) is not None:
            process, key, tag, announced = word.recv()
            self._their_tags[process, key] = tag
            if announced is not None:
                self.receive(process, key, *self.announced(key, announced))
            for memory, done in self._early.pop((process, key), ()):
                self.receive(process, key, memory, done)
        complete = self.MPI.Request.Testsome(self._requests) if self._requests else None
        if not complete:
            return False
        functions = [self._functions[place] for place in sorted(complete)]
        left = sorted({*range(len(self._requests))}.difference(complete))
        self._requests = [self._requests[place] for place in left]
        self._functions = [self._functions[place] for place in left]
        for function in functions:
            function()
        return True

    def wait(self, over: Callable, describe: Callable, timeout: float) -> None:
        """Let messages progress until `over()` is true, or none is under way.

        StoppedError after `timeout` seconds, with what `describe` returns.
        """
        self.comm.timeout = timeout
        self.comm.poll(self.advance, lambda: over() or not self.pending, describe,
                       named="process")

    def exchange(self, name: Any, world_ranks: Iterable[int], parts: dict, source: int | None,
                 target: int | None, complete: Callable) -> None:
        """Exchange the parts of ranks in a collective call, and call `complete(parts)`.

        Processes make the calls of a communicator in the same order.

        Parameters
        ----------
        name : hashable
            That of the communicator.
        world_ranks : sequence of int
            Its ranks, as numbers among all ranks.
        parts : dict
            Host arrays of the local ranks among them, by their number in the
            communicator; all ranks have arrays of the same shape.
        source : int or None
            Only the part of this rank is sent; None: all.
        target : int or None
            They are sent only to the process of this rank; None: to all.
        """
        places = [*map(self.process_of, world_ranks)]
        senders = defaultdict(list)  # their ranks by process
        for rank, process in enumerate(places):
            if source in (None, rank):
                senders[process].append(rank)
        receivers = {*places} if target is None else {places[target]}
        key = name, PARTS

        # one message from each process to each
        if self.number in senders:
            block = np.stack([parts[rank] for rank in senders[self.number]])
            for process in sorted(receivers - {self.number}):
                self.send(process, key, block, lambda: None)
        missing = {*senders} - {self.number} if self.number in receivers else set()
        found = dict(parts)

        def arrive(process: int, block: np.ndarray) -> None:
            found.update(zip(senders[process], block))
            missing.remove(process)
            if not missing:
                complete(found)

        one = next(iter(parts.values()))
        for process in sorted(missing):
            block = np.empty((len(senders[process]), *one.shape), one.dtype)
            self.receive(process, key, block, partial(arrive, process, block))
        if not missing:
            complete(found)

    def close(self, *, failed: bool) -> None:
        """Wait until all messages have left, and free the communicator.

        After an error that all ranks raised, messages that never come are no other one.
        """
        with suppress(*[StoppedError] * failed):
            self.wait(lambda: False, lambda: "its last messages", self.outer.timeout)
        if not self.pending:
            self.comm.close()

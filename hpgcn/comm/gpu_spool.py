"""Messages between ranks that take turns on a GPU, which wait in homes like arrays.

Each message is copied from the GPU to a home and back, once for each rank that takes it.
On the GPU it is in staging memory, which all ranks of the process share. Messages to other
processes are announced, so that these have a home for them.
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm.spool import Arrival, Message, StoredArrays
from hpgcn.runtime.device import address
from hpgcn.runtime.gpu.gpu_messages import PURPOSE

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.processes import Processes
    from hpgcn.runtime.gpu.gpu_turns import GpuTurns

STAGED = 3  # messages on the GPU: one is used, one comes or is filled, one may still go


class GpuMessage(Message):
    """A Message whose memory is on the GPU, and its home while it is on its way."""

    home: Any = None
    here = False  # whether it has come from another process
    staged = False  # whether its memory is that of messages

    def __reduce__(self) -> tuple:
        """Return a Message for another process: its contents, without a home."""
        return _with_contents, (*self.shape, self.dtype, self.home.load((0, self.nbytes)))


def _with_contents(rows: int, width: int, dtype: np.dtype, contents: np.ndarray) -> GpuMessage:
    message = GpuMessage(rows, width, dtype)
    message.memory = contents
    return message


class GpuSpool(StoredArrays):
    """The Spool of ranks that take turns on a GPU."""

    most_ahead = 2

    def __init__(self, turns: GpuTurns, processes: Processes | None) -> None:
        self.turns = turns
        self.gpu = turns.gpu
        self.processes = processes
        self.down, self.up = self.gpu.stream(), self.gpu.stream()
        self._sent: defaultdict = defaultdict(deque)  # Messages by (source, target)
        self._coming: defaultdict = defaultdict(deque)  # those from other processes, in order
        self._awaited: defaultdict = defaultdict(dict)  # by target: messages it waits for by source
        self._ahead: dict = {}  # the message that comes to the GPU, by (source, target)
        self._staging: deque = deque()  # (memory, event after its last use) that is not in use
        self._staged = 0  # all staging memories
        if processes is not None:
            processes.announced = self._announced

    def message(self, rows: int, width: int, dtype: DTypeLike) -> GpuMessage:
        """Return a Message with memory on the GPU, to fill it."""
        return self._with_memory(GpuMessage(rows, width, dtype), self.turns.compute)

    def block(self, rows: int, width: int, dtype: DTypeLike) -> GpuMessage:
        """Return a Message that is not sent, among the arrays of the rank."""
        block = GpuMessage(rows, width, dtype)
        block.memory = self.turns.xp.empty(block.nbytes, np.uint8)
        self.turns.discard(block.memory)
        return block

    def _with_memory(self, message: GpuMessage, stream: Any) -> GpuMessage:
        """Give a Message staging memory, which operations of a stream may use."""
        if self._staged < STAGED or not self._staging:
            memory, event = None, None
            self._staged += 1
        else:
            memory, event = self._staging.popleft()
        if memory is None or memory.size < message.nbytes:
            if event is not None:
                self.turns.compute.wait_event(event)
            memory = None  # let go of before there is more
            with self.turns.xp.cuda.using_allocator(self.turns.pool.malloc):
                memory = self.turns.xp.empty(message.nbytes, np.uint8)
            event = self.gpu.event(self.turns.compute)
        stream.wait_event(event)
        message.memory = memory
        message.staged = True
        return message

    def release(self, message: GpuMessage) -> None:
        """Let other messages use the memory of this one, after the kernels so far."""
        if message.staged:
            self._unstage(message, self.turns.compute)
        else:  # callers may still have its array
            self.turns.discard(message.memory)
            message.memory = np.empty(0, np.uint8)

    def _unstage(self, message: GpuMessage, stream: Any) -> None:
        self._staging.append((message.memory, self.gpu.event(stream)))
        message.memory = np.empty(0, np.uint8)
        message.staged = False

    def put(self, source: int, targets: Sequence[int], message: GpuMessage, *,
            soon: bool = True) -> None:
        """Send a filled Message from one rank to others; all read one home, which then ends."""
        message.home = self.turns.host.home_of_message(source, *targets, nbytes=message.nbytes)
        self.down.wait_event(self.gpu.event(self.turns.compute))
        self.turns.move(address(message.memory), message.home, (0, message.nbytes), self.down,
                        up=False)
        self.turns.count(PURPOSE, 1, (0, message.nbytes))
        self._unstage(message, self.down)
        message.readers = len(targets)
        for target in targets:
            if self._is_here(target):
                self._sent[source, target].append(message)
            else:
                self._send_away(source, target, message)

    def _is_here(self, rank: int) -> bool:
        return self.processes is None or self.processes.process_of(rank) == self.processes.number

    def _read(self, message: GpuMessage) -> None:
        """Note that one more rank has taken a Message."""
        message.readers -= 1
        if not message.readers:
            message.home.free()

    def _send_away(self, source: int, target: int, message: GpuMessage) -> None:
        """Send a Message to a rank of another process, once it is at home."""
        self.processes.send(self.processes.process_of(target), (source, target),
                            _pieces(message), lambda: self._read(message),
                            (*message.shape, message.dtype.str))

    def _announced(self, key: tuple, shape: tuple) -> tuple[list[np.ndarray], Callable]:
        """Return host memory for a message of another process, and a function to call with it."""
        message = GpuMessage(*shape)
        message.home = self.turns.host.home_of_message(*key, nbytes=message.nbytes)
        coming = self._coming[key]
        coming.append(message)

        def arrive() -> None:
            message.here = True
            while coming and coming[0].here:  # a later one may be complete before
                self._sent[key].append(coming.popleft())
            if len(self._sent[key]) >= self.processes.awaited.get(key, 0):
                self.processes.awaited.pop(key, None)

        return _pieces(message), arrive

    def arrival(self, source: int, target: int, count: int = 1) -> Arrival:
        """Return a request that is complete once `count` messages to `target` are there."""
        pair = source, target
        if not self._is_here(source) and len(self._sent.get(pair, ())) < count:
            self.processes.awaited[pair] = count
        self._awaited[target][source] = count
        return Arrival(self._sent, pair, count)

    def will_take(self, pairs: list[tuple[int, int]]) -> None:
        """Begin to read the next messages of pairs of ranks from a file; all are there."""
        for pair in pairs:
            self._read_from_file(self._sent[pair][0])

    def read_awaited(self, targets: Iterable[int]) -> None:
        """Begin to read the messages that ranks wait for from a file, if they are there."""
        for target in targets:
            for source, count in self._awaited[target].items():
                for message in islice(self._sent.get((source, target), ()), count):
                    self._read_from_file(message)

    def _read_from_file(self, message: GpuMessage) -> None:
        message.home.read_ahead((0, message.nbytes))

    def read_ahead(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Begin to bring the next message of pairs of ranks to the GPU, if it is there."""
        for pair in pairs:
            self._bring(*pair)

    def _bring(self, source: int, target: int) -> None:
        sent = self._sent.get((source, target))
        if sent and (source, target) not in self._ahead:
            self._ahead[source, target] = self._begin_reading(sent[0])

    def _begin_reading(self, written: GpuMessage) -> GpuMessage:
        message = self._with_memory(GpuMessage(*written.shape, written.dtype), self.up)
        self.turns.move(address(message.memory), written.home, (0, message.nbytes), self.up,
                        up=True)
        self.turns.count(PURPOSE, 0, (0, message.nbytes))
        message.moved = self.gpu.event(self.up)
        return message

    def _await(self, message: GpuMessage) -> None:
        self.turns.compute.wait_event(message.moved)

    def store(self, array: np.ndarray) -> GpuMessage:
        """Copy an array of the host, 1-D, to a home from which all ranks may read it."""
        message = GpuMessage(1, array.size, array.dtype)
        message.home = self.turns.host.home(0, message.nbytes)
        message.home.store((0, message.nbytes), array)
        return message

    def loaded(self, stored: Sequence[GpuMessage]) -> Iterator[Any]:
        for message in stored:
            self._read_from_file(message)
        return super().loaded(stored)

    def keep(self, stored: GpuMessage) -> GpuMessage:
        # those of another process come with their contents
        return stored if stored.home is not None else self.store(stored.array[0])

    def take(self, source: int, target: int) -> GpuMessage:
        """Return the next Message of two ranks, which must be there; `release` it later."""
        self._bring(source, target)
        queue = self._sent[source, target]
        sent = queue.popleft()
        if not queue:
            del self._sent[source, target]
        self._awaited[target].pop(source, None)
        message = self._ahead.pop((source, target))
        self._await(message)
        self._read(sent)
        return message


def _pieces(message: GpuMessage) -> list[np.ndarray]:
    """Return the pinned memory of a message after the copies so far, in one piece or several."""
    if message.home.moved is not None:
        message.home.moved.synchronize()
    return [part.memory for part in message.home.parts((0, message.nbytes), filled=True)]

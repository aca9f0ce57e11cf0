"""Messages between ranks of a process that pass through a file, because memory is short."""
from __future__ import annotations

import mmap
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.runtime.disk.page_cache import PAGE, whole_pages
from hpgcn.runtime.places import ScratchFile

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

WRITES = 2  # messages that are written while the next one is filled
BUFFERS = WRITES + 2  # most messages on their way to the file and back: one is used, one after it
WINDOW = 1 << 20  # bytes that may be on their way, each way, if they are of more messages
THREADS = 4  # reads and writes at a time: a disk needs several if messages are short
NEAR = 2  # most messages of each kind that stay in memory for next ranks


def buffer_bytes(largest: int) -> int:
    """Return the most bytes of messages on their way, of which one has at most `largest`."""
    return BUFFERS * largest + 2 * WINDOW


class Message:
    """Rows from one rank to another: an array in memory, and maybe its place in the file."""

    def __init__(self, rows: int, width: int, dtype: DTypeLike) -> None:
        self.shape = rows, width
        self.dtype = np.dtype(dtype)
        self.nbytes = rows * width * self.dtype.itemsize
        self.pages = max(PAGE, whole_pages(self.nbytes))  # bytes in whole pages
        self.memory: np.ndarray = np.empty(0, np.uint8)
        self.place = -1  # first byte in the file; -1: it stays in memory
        self.readers = 1  # ranks that have not taken it yet
        self.moved: Future | None = None  # under way to the file, or from it

    @property
    def array(self) -> np.ndarray:
        """The rows, (rows, width)."""
        return self.memory[:self.nbytes].view(self.dtype).reshape(self.shape)

    def empty_copy(self) -> Message:
        """Return a message of the same size at the same place."""
        other = Message(*self.shape, self.dtype)
        other.place = self.place
        return other


class Arrival:
    """A request that is complete once `count` messages of two ranks are there."""

    def __init__(self, sent: dict, pair: tuple[int, int], count: int) -> None:
        self._sent = sent
        self._pair = pair
        self._count = count

    @property
    def done(self) -> bool:
        return len(self._sent.get(self._pair, ())) >= self._count

    def Get_status(self) -> bool:
        """Return whether the message is there."""
        return self.done


class StoredArrays:
    """Base class of spools: arrays that are written once, and read as often as wanted."""

    def loaded(self, stored: Sequence[Message]) -> Iterator[Any]:
        """Yield stored arrays, each valid until the next, which is read in the meantime."""
        ahead = deque(map(self._begin_reading, stored[:1]))
        for following in [*stored[1:], None]:
            if following is not None:
                ahead.append(self._begin_reading(following))
            for message in [ahead.popleft()] if ahead else ():
                self._await(message)
                yield message.array[0]
                self.release(message)

    def keep(self, stored: Message) -> Message:
        """Return a stored array of any rank as this rank may read it."""
        return stored

    def release(self, message: Any) -> None:
        """Let other messages use the memory of this one."""
        raise NotImplementedError

    def _begin_reading(self, written: Any) -> Any:
        """Return a Message with the contents of another one, which are on their way."""
        raise NotImplementedError

    def _await(self, message: Any) -> None:
        """Wait until the contents of a Message are there."""
        raise NotImplementedError


class Spool(ScratchFile, StoredArrays):
    """A file of messages between the ranks of a process, which take turns.

    Messages of two ranks arrive in the order in which they were sent. Threads write them,
    and read the next ones ahead. Messages to the next rank stay in memory until its turn is
    over. So do messages to ranks from `in_files` on, until they are taken.
    """

    most_ahead = 16  # messages that `read_ahead` looks at

    def __init__(self, folder: str, in_files: int, ranks: int) -> None:
        super().__init__(folder, "messages between ranks", THREADS)
        self.in_files = in_files
        self.ranks = ranks
        self._sent: defaultdict = defaultdict(deque)  # Messages by (source, target)
        self._ahead: dict = {}  # the message that is read ahead, by (source, target)
        self._reading = 0  # bytes of these
        self._near: list = []  # (target, Message) of those in memory for ranks with files
        self._writes: deque = deque()
        self._writing = 0  # bytes of these
        self._free: list = []  # memory that is not in use, shortest first

    def message(self, rows: int, width: int, dtype: DTypeLike) -> Message:
        """Return a Message with memory, to fill it."""
        return self._with_memory(Message(rows, width, dtype))

    block = message  # one that is not sent

    def _with_memory(self, message: Message) -> Message:
        while self._writes and self._writes[0].moved.done():
            self._end_write()
        # more than twice the size is for rows of many ranks, which must not wait for it
        place = bisect_left(self._free, message.pages, key=len)
        if place < len(self._free) and len(self._free[place]) <= 2 * message.pages:
            message.memory = self._free.pop(place)
        else:
            if self._free:  # the sizes in use have changed
                pages = self._free.pop().base.obj
                pages.madvise(mmap.MADV_DONTNEED)  # variables of other ranks may refer to it
            pages = mmap.mmap(-1, message.pages, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            message.memory = np.frombuffer(pages, np.uint8)
        return message

    def release(self, message: Message) -> None:
        insort(self._free, message.memory, key=len)
        message.memory = message.memory[:0]

    def put(self, source: int, targets: Sequence[int], message: Message, *,
            soon: bool = True) -> None:
        """Send a filled Message from one rank to others; all read the same place.

        Unless they take it `soon`, it does not stay in memory.
        """
        message.readers = len(targets)
        near = source, (source + 1) % self.ranks
        for target, missed in self._near:
            if target not in near:  # its turn is over, and it waits for others first
                self._write(missed)
        self._near = [each for each in self._near if each[0] in near]

        in_file = targets[0] < self.in_files
        if len(targets) > 1 or not soon or (in_file and targets[0] not in near):
            self._write(message)
        elif in_file:
            self._near.append((targets[0], message))
        for target in targets:
            self._sent[source, target].append(message)

    def _write(self, message: Message) -> None:
        """Begin to write a message, once few others are being written."""
        while len(self._writes) >= WRITES and self._writing + message.pages > WINDOW:
            self._end_write()
        message.place = self.take_place(message.pages)
        message.moved = self.writer.submit(
            self.file.write_array, message.memory[:message.pages], message.place)
        self._writes.append(message)
        self._writing += message.pages
        self.moved["write"] += message.pages

    def _end_write(self) -> None:
        """Wait until the oldest message that is being written is in the file."""
        oldest = self._writes.popleft()
        self._writing -= oldest.pages
        self._wait("write", oldest)
        self.release(oldest)

    def store(self, array: np.ndarray) -> Message:
        """Write an array, 1-D, that all ranks may read as long as the Spool exists."""
        message = self.message(1, array.size, array.dtype)
        message.array[0] = array
        self._write(message)
        return message

    def _begin_reading(self, written: Message) -> Message:
        message = self._with_memory(written.empty_copy())
        message.moved = self.reader.submit(self._read, message, written.moved)
        self.moved["read"] += message.pages
        return message

    def arrival(self, source: int, target: int, count: int = 1) -> Arrival:
        """Return a request that is complete once `count` messages to `target` are there."""
        return Arrival(self._sent, (source, target), count)

    def will_take(self, pairs: list[tuple[int, int]]) -> None:
        """Do nothing: messages are read one by one."""

    def read_ahead(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Begin to read the next message of pairs of ranks: two, and more if they are short."""
        for number, pair in enumerate(pairs):
            sent = self._sent.get(pair)
            if sent and sent[0].place >= 0 and pair not in self._ahead and (
                    number < 2 or self._reading + sent[0].pages <= WINDOW):
                self._ahead[pair] = self._begin_reading(sent[0])
                self._reading += sent[0].pages

    def _read(self, message: Message, written: Future) -> None:
        written.result()
        self.file.read_array(message.memory[:message.pages], message.place)

    def take(self, source: int, target: int) -> Message:
        """Return the next Message of two ranks, which must be there; `release` it later."""
        self.read_ahead([(source, target)])
        queue = self._sent[source, target]
        sent = queue.popleft()
        if not queue:  # it takes a kilobyte
            del self._sent[source, target]
        if sent.place < 0:
            self._near = [each for each in self._near if each[1] is not sent]
            return sent
        message = self._ahead.pop((source, target))
        self._reading -= message.pages
        self._await(message)
        sent.readers -= 1
        if not sent.readers:
            self.give_place(message.place, message.pages)
        return message

    def _await(self, message: Message) -> None:
        self._wait("read", message)

    def _wait(self, kind: str, message: Message) -> None:
        with self.waiting(kind):
            message.moved.result()

"""Messages from and to GPU memory: MPI reads it directly, or they pass through pinned host memory.

MPI has no notion of CUDA streams: it may read what the GPU has yet to write. So a call
is made only after an event of the stream that wrote its memory. Calls that wait for an
event are queued (`GpuStager.waiting`). Each test of a request, also of other
communicators, checks whether the first of them can be made. The GPU and the host
compute in the meantime. Copies have two streams of their own, one for each direction.
Received data are copied to the GPU as they arrive. The stream that computes then waits
for these copies, the host does not.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.runtime.device import Host


CHUNK_BYTES = 4 << 20  # bytes of a copy or a message: one is sent while the next is copied
SEND = 1  # what a call does with its memory: bits, a sum in place has both
RECEIVE = 2


class MpiCall(NamedTuple):
    """An MPI call to be made: `start(piece)` returns its request; `way`: bits SEND and RECEIVE."""

    start: Callable
    piece: Any
    way: int


class StagedCopy(NamedTuple):
    """An MPI call with GPU memory: `start()` makes it.

    The other fields are addresses and size of its arrays. `host` is 0 if no copy is
    needed.
    """

    start: object
    gpu: int
    host: int
    size: int
    way: int


class PinnedMemory:
    """Pinned host memory, (bytes,) uint8, which a GPU copies from and to by itself."""

    def __init__(self, device: Host, size: int) -> None:
        self.memory = device.pinned(size)
        self.copied = None  # event after the last copy to the GPU: until then nothing is written

    def is_free(self) -> bool:
        return self.copied is None or self.copied.done

    def wait(self) -> None:
        if not self.is_free():
            self.copied.synchronize()


class Messages(list):
    """Requests of calls with GPU memory; the request of a call not yet made is inactive or null."""

    def __init__(self, stager: GpuStager, requests: Sequence = (), copies: Sequence = (),
                 blocks: Sequence = (), held: Any = None) -> None:
        super().__init__(requests)
        self.stager = stager
        self.copies = list(copies)  # a StagedCopy for each request
        self.blocks = list(blocks)  # list of PinnedMemory, with the host addresses of copies
        self.held = held
        self.queued = None  # event after all GPU work that was queued before these calls
        self.copied = None  # event after the last copy to the GPU without a wait yet

    def make(self, number: int, start: Any, piece: Any) -> None:
        self[number] = start(piece)

    def complete_receives(self, numbers: Sequence[int]) -> None:
        """Copy the data that the completed requests `numbers` received to the GPU."""
        copies = sorted(self.copies[number][1:4] for number in numbers
                        if self.copies[number].host and self.copies[number].way & RECEIVE)
        if copies:
            device = self.stager.device
            up = self.stager.up
            up.wait_event(self.queued)
            for gpu, host, size, _ in joined(copies):
                device.copy(gpu, host, size, up)
            self.copied = device.event(up)
            for block in self.blocks:
                block.copied = self.copied

    def wait_for_copies(self) -> None:
        """Make the compute stream wait for the last copy to the GPU."""
        if self.copied is not None:
            self.stager.device.wait(self.copied)
            self.copied = None

    def finish(self) -> None:
        """Wait for the copies once all requests are complete, and release the pinned memory."""
        self.wait_for_copies()
        self.stager.release(self.blocks)
        self.blocks = []
        self.held = None


class GpuStager:
    """Sender of a rank's messages from its GPU; the communicators of the rank share it.

    Operations in `direct` ("message", "bcast", "reduce"; see hpgcn.comm.route) take GPU
    memory, others go by way of pinned host memory.
    """

    def __init__(self, device: Host, direct: Iterable[str] = frozenset()) -> None:
        self.device = device
        self.direct = frozenset(direct)
        self.down = device.stream()
        self.up = device.stream()
        self.waiting = deque()  # (event, communicator, function that makes an MPI call)
        self.pool = {}  # unused PinnedMemory, by size

    def by_messages(self, operation: str) -> bool:
        """Return whether an operation on GPU memory is made of messages, the only calls for it."""
        return "message" in self.direct and operation not in self.direct

    def most(self, operation: str, limit: int) -> int:
        """Return the bytes of the longest piece that an operation sends at once.

        Sums are not cut, because the cut would change their bits.
        """
        if operation == "reduce" or operation in self.direct:
            return limit
        return min(limit, CHUNK_BYTES)

    def begin(self, comm: SerialComm, calls: list[MpiCall], operation: str) -> Messages:
        """Start MPI calls of an operation on GPU arrays; return their Messages."""
        messages = Messages(self, [comm.MPI.REQUEST_NULL] * len(calls), held=calls)
        if operation in self.direct:
            # MPI takes GPU memory as it is
            for number, call in enumerate(calls):
                start = partial(messages.make, number, call.start, call.piece)
                messages.copies.append(StagedCopy(start, 0, 0, 0, call.way))
        else:
            # pinned memory: each piece has a place in one block
            offsets = {}
            total = 0
            for call in calls:  # one and the same piece may go to several ranks
                key = (address(call.piece), call.piece.nbytes)
                if key not in offsets:
                    offsets[key] = total
                    total += call.piece.nbytes

            # MPI gets views of that block
            messages.blocks = [self.acquire(total)]
            memory = messages.blocks[0].memory
            for number, call in enumerate(calls):
                gpu = address(call.piece)
                size = call.piece.nbytes
                begin = offsets[gpu, size]
                host_view = memory[begin:begin + size].view(call.piece.dtype)
                start = partial(messages.make, number, call.start, host_view)
                messages.copies.append(StagedCopy(start, gpu, address(host_view), size, call.way))

        self.launch(comm, messages)
        return messages

    def launch(self, comm: SerialComm, messages: Any) -> None:
        """Make the MPI calls of `messages`, each as soon as its memory is ready."""
        messages.queued = self.device.event()
        if not messages.blocks:
            self.waiting.extend((messages.queued, comm, copy.start) for copy in messages.copies)
        else:
            for block in messages.blocks:
                block.wait()
            self.down.wait_event(messages.queued)

            # receive at once; copy what is sent to the host first
            sends = [copy for copy in messages.copies if copy.way & SEND]
            for copy in messages.copies:
                if not copy.way & SEND:
                    copy.start()
            ready = {}
            for gpu, host, size, parts in joined(dict.fromkeys(copy[1:4] for copy in sends)):
                self.device.copy(host, gpu, size, self.down)
                ready.update(dict.fromkeys(parts, self.device.event(self.down)))
            self.waiting.extend((ready[copy[1:4]], comm, copy.start) for copy in sends)

        self.advance()

    def advance(self) -> None:
        """Make the waiting MPI calls whose memory is ready, without blocking."""
        while self.waiting and self.waiting[0][0].done:
            self.waiting.popleft()[2]()

    def flush(self, comm: SerialComm) -> None:
        """Make all waiting MPI calls of a communicator, in their order.

        MPI matches collectives by this order.
        """
        places = (place for place, (_, other, _) in enumerate(self.waiting, 1) if other is comm)
        last = max(places, default=0)
        for _ in range(last):
            event, _, start = self.waiting.popleft()
            event.synchronize()
            start()

    def acquire(self, size: int) -> PinnedMemory:
        """Return pinned memory of `size` bytes or more: a released block, or a new one."""
        size = 1 << max(size - 1, 4095).bit_length()
        blocks = self.pool.setdefault(size, [])
        for place, block in enumerate(blocks):
            if block.is_free():
                return blocks.pop(place)
        return PinnedMemory(self.device, size)

    def release(self, blocks: list[PinnedMemory]) -> None:
        """Release pinned memory; copies to the GPU may still read it."""
        for block in blocks:
            self.pool[block.memory.size].append(block)


def joined(copies: Iterable[tuple]) -> Iterator[tuple]:
    """Join copies that are adjacent in both memories, into chunks.

    A copy is (GPU address, host address, bytes). Yield (GPU address, host address,
    bytes, list of the copies) for each chunk, of at most CHUNK_BYTES.
    """
    parts = []
    total = 0
    for copy in copies:
        if parts:
            gpu, host, _ = parts[0]
            if (gpu + total, host + total) == copy[:2] and total + copy[2] <= CHUNK_BYTES:
                parts.append(copy)
                total += copy[2]
                continue
            yield gpu, host, total, parts
        parts = [copy]
        total = copy[2]
    if parts:
        yield *parts[0][:2], total, parts

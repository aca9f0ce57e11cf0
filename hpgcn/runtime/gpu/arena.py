"""The arrays of one local rank: blocks with fixed places on the GPU and homes in host memory.

A block has three spans of its bytes. `contents` are defined. The GPU has the newest of
`here`. `dirty` is the part of `here` that is not at home. Spans grow with reads and
writes, and `discard` shortens them. What lies between two parts belongs to a span.
"""
from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hpgcn.errors import InternalError
from hpgcn.kernels.host.accesses import flattened, observed
from hpgcn.runtime.gpu import current_arena
from hpgcn.runtime.gpu.spans import Span, cut, hull, is_within, overlap, without
from hpgcn.runtime.places import Places

if TYPE_CHECKING:
    from hpgcn.runtime.gpu.arena_device import ArenaDevice
    from hpgcn.runtime.gpu.gpu_turns import GpuTurns, Slot
    from hpgcn.runtime.gpu.homes import Home

ALIGNMENT = 512  # bytes, as CuPy's own pool


class Block:
    """Memory of an array and its views."""

    def __init__(self, arena: Arena, offset: int, nbytes: int) -> None:
        self.arena = arena
        self.offset = offset
        self.nbytes = nbytes
        self.home: Home | None = None
        self.contents = self.here = self.dirty = (0, nbytes)  # what writes to it is not known

    @property
    def place(self) -> int:
        """Address on the GPU."""
        return self.arena.slot.begin + self.offset

    def note(self, span: Span, written: bool) -> None:
        """Extend the spans by bytes that are accessed, once they are on the GPU."""
        self.here = hull(self.here, span)
        if written:
            self.contents = hull(self.contents, span)
            self.dirty = hull(self.dirty, span)

    def missing(self, span: Span) -> list[Span]:
        """Return the spans at home only that must come before an access to `span`."""
        return without(overlap(hull(self.here, span), self.contents), self.here)

    def discard(self, span: Span) -> None:
        """Drop the contents of a span."""
        self.contents = cut(self.contents, span)
        self.here, self.dirty = (overlap(each, self.contents) for each in (self.here, self.dirty))


class Arena:
    """The blocks of a rank, in one slot of GPU memory.

    It allocates like a pool of CuPy: arrays below the threshold are not in it.
    """

    def __init__(self, turns: GpuTurns, rank: int, slot: Slot) -> None:
        self.turns = turns
        self.rank = rank
        self.slot = slot
        self.blocks: dict[int, Block] = {}  # by offset
        self.places = Places(slot.nbytes)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Context manager: arrays that this thread allocates are in the arena, on its GPU."""
        self.turns.xp.cuda.Device(self.turns.gpu.number).use()  # a thread begins with GPU 0
        token = current_arena.set(self)
        try:
            with (self.turns.host.use(), self.turns.xp.cuda.using_allocator(self.allocate),
                  observed(self.accessed)):
                yield
        finally:
            current_arena.reset(token)

    def device(self) -> ArenaDevice:
        """Return the GPU as the device of this rank."""
        from hpgcn.runtime.gpu.arena_device import ArenaDevice

        return ArenaDevice(self)

    def allocate(self, nbytes: int) -> Any:
        """Return a MemoryPointer of CuPy; its OutOfMemoryError if the slot is full."""
        if nbytes < self.turns.threshold:
            return self.turns.pool.malloc(nbytes)
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        offset = self.places.take(size)
        if offset < 0:
            gc.collect()  # arrays in cycles
            offset = self.places.take(size)
        if offset < 0:
            raise self.turns.gpu.exhausted[0](nbytes, self.nbytes, self.slot.nbytes)
        block = self.blocks[offset] = Block(self, offset, nbytes)
        return self.turns.pointer(block)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return sum(block.nbytes for block in self.blocks.values())

    def release(self, block: Block) -> None:
        """Free a block, whose arrays have all ended; its home serves another one."""
        del self.blocks[block.offset]
        self.places.give(block.offset, -(-block.nbytes // ALIGNMENT) * ALIGNMENT)
        if block.home is not None:
            block.home.free()
            block.home = None

    def accessed(self, read: Iterable, written: Iterable = ()) -> None:
        """Bring arrays of this rank to the GPU, before kernels read or write them."""
        for arrays, writes in ((read, False), (written, True)):
            for array in flattened(arrays):
                found = self.turns.find(array)
                if found is not None:
                    self.access(*found, written=writes)

    def access(self, block: Block, span: Span, *, written: bool) -> None:
        """Bring bytes of a block to the GPU, before kernels access them."""
        if self.slot.holder is not self:
            raise InternalError(f"rank {self.rank} accesses an array out of its turn")
        for part in block.missing(span):
            self.turns.bring_in(block, part, self.turns.compute)
        block.note(span, written)

    def holds(self, block: Block, span: Span) -> bool:
        """Return whether the GPU has the newest contents of a span, if it has any."""
        return self.slot.holder is self and is_within(overlap(span, block.contents), block.here)

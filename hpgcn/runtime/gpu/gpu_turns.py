"""Move arrays of local ranks between a GPU and pinned host memory, as the ranks take turns.

The GPU has a few slots. Ranks r, r + slots, ... share slot r mod slots, and the arrays of a
rank have fixed places in it. While a rank computes, the arrays of the next one come into
another slot, and those that the rank before has written go home.

Nothing must be foreseen for results to be right. Before a kernel reads or writes an array,
`Arena.accessed` brings in what is at home only. What comes ahead of a turn is what the
rank accessed in its last turn at the same place. In a place without such a turn, all comes.

Copies have a stream for each direction, and the host waits for none of them. Events order
copies after the kernels that wrote their source, and kernels after the copies of what they
read.
"""
from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from typing import Any

import numpy as np

from hpgcn.runtime.device import Cuda, address
from hpgcn.runtime.gpu.arena import Arena, Block, Home
from hpgcn.runtime.gpu.spans import EMPTY, Span, hull, overlap

THRESHOLD = 1 << 18  # bytes of the smallest array with a home; smaller ones stay on the GPU
CONTEXT = 4  # last waits of a rank that identify its next turn
ARRAYS, MESSAGES = "arrays", "messages"


class Slot:
    """Memory of a GPU from address `begin` on, which arrays of one rank hold at a time.

    `ready` is an event after the last copy from and to it. Kernels of the rank that enters
    wait for it.
    """

    def __init__(self, begin: int, nbytes: int) -> None:
        self.begin = begin
        self.nbytes = nbytes
        self.holder: Arena | None = None
        self.ready: Any = None  # set by GpuTurns


class Homes:
    """Pinned host memory for blocks, which is used again once its block has ended."""

    def __init__(self, gpu: Cuda) -> None:
        self.gpu = gpu
        self.unused = defaultdict(list)  # by size
        self.nbytes = 0  # of all homes, used and unused

    def take(self, nbytes: int) -> Home:
        if self.unused[nbytes]:
            return self.unused[nbytes].pop()
        self.nbytes += nbytes
        return Home(self.gpu.pinned(nbytes))

    def give(self, home: Home) -> None:
        self.unused[home.memory.size].append(home)


class GpuTurns:
    """Moves blocks of arrays between a GPU and host memory as ranks of a process take turns.

    Parameters
    ----------
    ranks : int
        Number of ranks.
    slots : int
        Number of slots: ranks whose arrays may be on the GPU at a time.
    slot_bytes : int
        Bytes of a slot, into which the arrays of any rank fit.
    limit : int
        Bytes of GPU memory that CuPy may allocate, slots included; 0: no limit.

    Attributes
    ----------
    copied : dict
        Bytes copied to the GPU and from it, two int, of "arrays" and of "messages".
    unforeseen : int
        Bytes of arrays that came once a kernel needed them.
    """

    def __init__(self, ranks: int, slots: int, slot_bytes: int, limit: int = 0) -> None:
        self.gpu = Cuda()
        self.xp = self.gpu.xp
        self.threshold = THRESHOLD
        self.block_memory = _block_memory(self.xp)
        self.pool = self.xp.get_default_memory_pool()
        self.limit_before = self.pool.get_limit()
        if limit:
            self.pool.set_limit(size=limit)
        self.ranks = ranks
        self.compute = self.xp.cuda.get_current_stream()
        self.down, self.up = self.gpu.stream(), self.gpu.stream()
        self.homes = Homes(self.gpu)
        self.memory = self.pool.malloc(slots * slot_bytes)
        self.slots = [Slot(self.memory.ptr + number * slot_bytes, slot_bytes)
                      for number in range(slots)]
        self.arenas = [Arena(self, rank, self.slots[rank % slots]) for rank in range(ranks)]
        for arena, slot in zip(self.arenas, self.slots):
            slot.holder = arena
        for slot in self.slots:
            slot.ready = self.gpu.event()
        self.alone = [sum(each.slot is arena.slot for each in self.arenas) == 1
                      for arena in self.arenas]  # by rank: no other one needs its slot
        self.copied = {ARRAYS: [0, 0], MESSAGES: [0, 0]}
        self.unforeseen = 0
        self._foreseen = {}  # by rank and its last waits: the spans that its turn touched
        self._waits = [deque(maxlen=CONTEXT) for _ in range(ranks)]

    def close(self) -> None:
        """Wait for all copies, and undo the limit; arrays of the ranks are not used any more."""
        for stream in (self.compute, self.down, self.up):
            stream.synchronize()
        self.pool.set_limit(size=self.limit_before)

    def pointer(self, block: Block) -> Any:
        """Return a MemoryPointer of CuPy, whose last array releases the block."""

        memory = self.block_memory(block.place, block.nbytes, self, self.gpu.number)
        memory.block = block
        return self.xp.cuda.MemoryPointer(memory, 0)

    def find(self, array: Any) -> tuple[Block, Span] | None:
        """Return the block of an array and its bytes there; None outside of the arenas."""
        if not isinstance(array, self.xp.ndarray) or not array.size:
            return None
        pointer = array.data
        block = getattr(pointer.mem, "block", None)
        if block is None:
            return None
        begin = pointer.ptr - block.place
        reach = sum((n - 1) * step for n, step in zip(array.shape, array.strides))
        return block, (begin, begin + reach + array.itemsize)

    # turns

    def switch(self, leaving: int, entering: int, place: Hashable) -> None:
        """Exchange blocks between the turns of two ranks; arguments as `Residency.switch`."""
        arena = self.arenas[leaving]
        self._foreseen |= dict.fromkeys(self._keys(leaving), arena.touched)
        arena.touched = {}
        self._waits[leaving].append(place)
        if not self.alone[leaving]:
            self._send_home(arena)
        self._enter(self.arenas[entering])
        self.compute.wait_event(self.arenas[entering].slot.ready)
        following = self.arenas[(entering + 1) % self.ranks]
        if following.slot is not self.arenas[entering].slot:
            self._enter(following)

    def _enter(self, arena: Arena) -> None:
        """Bring a rank into its slot, with all that its next turn is expected to access."""
        slot = arena.slot
        if slot.holder is not arena:
            self._empty(slot)
            slot.holder = arena
        foreseen = next((self._foreseen[key] for key in self._keys(arena.rank)
                         if key in self._foreseen), None)
        self.up.wait_event(slot.ready)
        for offset, block in list(arena.blocks.items()):
            span = block.contents if foreseen is None else overlap(
                foreseen.get(offset, EMPTY), block.contents)
            if span != EMPTY:
                for part in block.missing(span):
                    self.bring_in(block, part, self.up)
                block.note(span, False)
        slot.ready = self.gpu.event(self.up)

    def _empty(self, slot: Slot) -> None:
        """Make room for another rank in a slot."""
        self._send_home(slot.holder)
        for block in slot.holder.blocks.values():
            block.here = EMPTY

    def _send_home(self, arena: Arena) -> None:
        """Copy what a rank has written to its homes, once its kernels are complete."""
        self.down.wait_event(self.gpu.event(self.compute))
        self.down.wait_event(arena.slot.ready)
        for block in list(arena.blocks.values()):
            if block.dirty != EMPTY:
                self._copy_home(block, block.dirty, self.down)
                block.dirty = EMPTY
        arena.slot.ready = self.gpu.event(self.down)

    def _keys(self, rank: int) -> list[tuple]:
        """Return the keys of a rank's next turn: its last CONTEXT waits, then fewer of them."""
        waits = tuple(self._waits[rank])
        return [(rank, waits[first:]) for first in range(len(waits))]

    def take_events(self, rank: int) -> list[tuple]:
        """Return events for the timeline of a rank: none, because the host waits for no copy."""
        return []

    # copies

    def bring_in(self, block: Block, span: Span, stream: Any) -> None:
        """Queue the copy of a span from its home to the GPU."""
        self._copy(block.place + span[0], block.home, span, stream, up=True)
        self._count(ARRAYS, 0, span)
        if stream is self.compute:
            self.unforeseen += span[1] - span[0]

    def _copy_home(self, block: Block, span: Span, stream: Any) -> None:
        if block.home is None:
            block.home = self.homes.take(block.nbytes)
        self._copy(block.place + span[0], block.home, span, stream, up=False)
        self._count(ARRAYS, 1, span)

    def _copy(self, place: int, home: Home, span: Span, stream: Any, *, up: bool) -> None:
        """Queue a copy between an address of the GPU and a span of a home."""
        if home.moved is not None:
            stream.wait_event(home.moved)
        host, size = home.address + span[0], span[1] - span[0]
        self.gpu.copy(*(place, host) if up else (host, place), size, stream)
        home.moved = self.gpu.event(stream)

    def _count(self, purpose: str, way: int, span: Span) -> None:
        self.copied[purpose][way] += span[1] - span[0]

    # messages, of which one side is not on the GPU

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of a rank to one of another, wherever they are; both are contiguous.

        Host arrays stand for themselves.
        """
        there, here = self.find(target), self.find(source)
        if there is None and here is None:
            put(target, source)
        elif here is None or self._is_on_gpu(*here):
            if here is not None:
                self._await(here[0])
            self._to(there, target, source)
        else:
            self._from_home(here, there, target)

    def _is_on_gpu(self, block: Block, span: Span) -> bool:
        if block.arena.holds(block, span):
            return True
        if overlap(block.dirty, span) == EMPTY:
            return False
        self._await(block)
        block.arena.access(block, span, written=False)  # a part of it is
        return True

    def _await(self, block: Block) -> None:
        """Make kernels wait for the copies of a slot."""
        self.compute.wait_event(block.arena.slot.ready)

    def _receives_on_gpu(self, block: Block, span: Span) -> bool:
        """Return whether a message goes to the GPU; then make its place there ready."""
        held = block.arena.slot.holder is block.arena
        if not held or (block.here == EMPTY and block.contents != EMPTY):
            return False
        self._await(block)
        for part in block.missing(span):
            self.bring_in(block, part, self.compute)
        block.note(span, True)
        return True

    def _to(self, there: tuple | None, target: Any, source: Any) -> None:
        """Copy a host array, or one on the GPU, to a message's target."""
        if there is None or self._receives_on_gpu(*there):
            if there is not None and isinstance(source, np.ndarray):
                self._count(MESSAGES, 0, there[1])
            put(target, source)
            return
        block, span = there
        home = self._written_home(block, span)
        if isinstance(source, np.ndarray):
            home.wait()
            home.memory[slice(*span)] = source.reshape(-1).view(np.uint8)
        else:
            self._copy(address(source), home, span, self.compute, up=False)
            self._count(MESSAGES, 1, span)

    def _written_home(self, block: Block, span: Span) -> Home:
        """Return the home of a block, into which a message is written."""
        if block.home is None:
            block.home = self.homes.take(block.nbytes)
        block.contents = hull(block.contents, span)
        return block.home

    def _from_home(self, here: tuple, there: tuple | None, target: Any) -> None:
        """Copy a span at home to a message's target."""
        source, span = here
        if isinstance(target, self.xp.ndarray) and (there is None
                                                     or self._receives_on_gpu(*there)):
            self._copy(address(target), source.home, span, self.compute, up=True)
            self._count(MESSAGES, 0, span)
            return
        source.home.wait()
        memory = source.home.memory[slice(*span)]
        if there is None:
            target.reshape(-1).view(np.uint8)[:] = memory
        else:
            home = self._written_home(*there)
            home.wait()
            home.memory[slice(*there[1])] = memory

    def readable(self, arrays: list) -> list:
        """Return arrays that one rank can add: the same, or all on the host if one has a home."""
        if all(self.find(each) is None for each in arrays):
            return arrays
        return [self._on_host(each) for each in arrays]

    def _on_host(self, array: Any) -> np.ndarray:
        """Return the contents of an array in host memory; they are not changed there."""
        if isinstance(array, np.ndarray):
            return array
        found = self.find(array)
        if found is None or self._is_on_gpu(*found):
            if found is not None:
                self._await(found[0])
                self._count(MESSAGES, 1, found[1])
            return self.xp.asnumpy(array)
        block, span = found
        block.home.wait()
        return block.home.memory[slice(*span)].view(array.dtype).reshape(array.shape)


def put(target: Any, source: Any) -> None:
    """Copy an array to one on the same side, or a host array to the GPU."""
    if isinstance(source, np.ndarray) and not isinstance(target, np.ndarray):
        target.set(source.reshape(target.shape))
    else:
        target[...] = source


def _block_memory(xp: Any) -> type:
    """Return the class of CuPy's memory that belongs to a Block."""

    class BlockMemory(xp.cuda.UnownedMemory):
        block: Block

        def __del__(self) -> None:
            self.block.arena.release(self.block)

    return BlockMemory

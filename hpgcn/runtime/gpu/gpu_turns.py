"""Move arrays of local ranks between a GPU and their homes, as the ranks take turns.

Homes are in pinned host memory, or in a file that pinned memory stands before.

The GPU has a few slots. Ranks r, r + slots, ... share slot r mod slots, and the arrays of a
rank have fixed places in it. While a rank computes, the arrays of the next one come into
another slot, and those that the rank before has written go home.

What comes ahead of a turn is what the plan of the pass names
(hpgcn.runtime.planned_turns). Nothing must be foreseen for results to be right: before a
kernel reads or writes an array, `Arena.accessed` brings in what is at home only.

Copies have a stream for each direction, and the host waits for none of them. Events order
copies after the kernels that wrote their source, and kernels after the copies of what they
read.
"""
from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hpgcn.errors import DeviceMemoryError, setting
from hpgcn.runtime.device import Cuda
from hpgcn.runtime.gpu.arena import Arena, Block
from hpgcn.runtime.gpu.gpu_messages import PURPOSE as MESSAGES
from hpgcn.runtime.gpu.gpu_messages import GpuMessages
from hpgcn.runtime.gpu.homes import Home
from hpgcn.runtime.gpu.host_memory import HostMemory, ScratchSpace
from hpgcn.runtime.gpu.spans import EMPTY, Span, joined, overlap
from hpgcn.runtime.planned_turns import PlannedTurns

THRESHOLD = 1 << 18  # bytes of the smallest array with a home; smaller ones stay on the GPU
ARRAYS = "arrays"


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


class GpuTurns(PlannedTurns):
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
        Bytes of GPU memory that CuPy may allocate from now on, slots included; 0: no limit.
    scratch : ScratchSpace or None
        Where homes are that pinned memory has no room for; None: all are pinned.
    gpu : Cuda, optional
        The GPU; the first one by default.

    Attributes
    ----------
    copied : dict
        Bytes copied to the GPU and from it, two int, of "arrays" and of "messages".
    unforeseen : int
        Bytes of arrays that came once a kernel needed them.
    waited : float
        Seconds that kernels waited for the copies of a rank that enters.
    read_messages : callable
        Begins to read the messages that some ranks wait for from their homes in a file.
    """

    def __init__(self, ranks: int, slots: int, slot_bytes: int, limit: int = 0,
                 scratch: ScratchSpace | None = None, gpu: Cuda | None = None) -> None:
        super().__init__(ranks)
        self.gpu = gpu or Cuda()
        self.xp = self.gpu.xp
        self.threshold = THRESHOLD
        self.block_memory = _block_memory(self.xp)
        self.pool = self.xp.get_default_memory_pool()
        self.compute = self.xp.cuda.get_current_stream()
        self.down, self.up = self.gpu.stream(), self.gpu.stream()
        gc.collect()  # arrays of runs before this one may be in cycles
        self.pool.free_all_blocks()
        free, total = self.gpu.memory()
        if slots * slot_bytes > free:
            raise DeviceMemoryError(f"{setting('gpu_memory', limit)}: only {free:,} of {total:,} "
                                    f"bytes are free on GPU {self.gpu.number}")
        used = self.pool.used_bytes()  # by arrays of the caller
        self.memory = self.pool.malloc(slots * slot_bytes)
        self.host = HostMemory(self.gpu, ranks, scratch)
        self.read_messages: Callable = lambda ranks: None
        self.limit_before = self.pool.get_limit()
        if limit:
            self.pool.set_limit(size=used + limit)
        self.slots = [Slot(self.memory.ptr + number * slot_bytes, slot_bytes)
                      for number in range(slots)]
        self.arenas = [Arena(self, rank, self.slots[rank % slots]) for rank in range(ranks)]
        for arena, slot in zip(self.arenas, self.slots):
            slot.holder = arena
        for slot in self.slots:
            slot.ready = self.gpu.event()
        self.alone = [sum(each.slot is arena.slot for each in self.arenas) == 1
                      for arena in self.arenas]  # by rank: no other one needs its slot
        self.messages = GpuMessages(self)
        self.copied = {ARRAYS: [0, 0], MESSAGES: [0, 0]}
        self.unforeseen = 0
        self.waited = 0.0
        self._waits_of_kernels = deque()  # events before and after each

    def close(self) -> None:
        """Wait for all copies, and undo the limit; arrays of the ranks are not used any more."""
        for stream in (self.compute, self.down, self.up):
            stream.synchronize()
        self._add_waits()
        self.host.close()
        self.pool.set_limit(size=self.limit_before)
        self.memory = None
        # these refer to the turns in return, by the memory of their arrays
        self._passes, self.read_messages = [None] * self.ranks, lambda ranks: None

    def pointer(self, block: Block) -> Any:
        """Return a MemoryPointer of CuPy, whose last array releases the block."""
        memory = self.block_memory(block.place, block.nbytes, self, self.gpu.number)
        memory.block = block
        return self.xp.cuda.MemoryPointer(memory, 0)

    def discard(self, array: Any) -> None:
        """Drop the contents of an array, which are overwritten before they are read."""
        found = self.find(array)
        if found is not None:
            found[0].discard(found[1])

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

    def switch(self, leaving: int, entering: int) -> None:
        """Exchange blocks between the turns of two ranks, after that of `leaving`."""
        arena = self.arenas[leaving]
        for array, first in self._dead(leaving):
            self.discard(array.reshape(-1).view(np.uint8)[first:])
        if not self.alone[leaving]:
            self._send_home(arena)
        self._enter(self.arenas[entering])
        begin = self._timed()
        self.compute.wait_event(self.arenas[entering].slot.ready)
        self._waits_of_kernels.append((begin, self._timed()))
        self._add_waits()
        following = self.arenas[(entering + 1) % self.ranks]
        if following.slot is not self.arenas[entering].slot:
            self._enter(following)
        self.host.switch(leaving, entering)
        if self.host.files is not None:
            self._read_ahead(entering)

    def _read_ahead(self, entering: int) -> None:
        """Begin to read the messages to the next ranks, and arrays of the second one from now."""
        self.host.files.release_ahead()
        self.read_messages((entering, (entering + 1) % self.ranks))
        for block, span in self._expected(self.arenas[(entering + 2) % self.ranks]):
            for part in block.missing(span) if block.home is not None else ():
                block.home.read_ahead(part)

    def _timed(self) -> Any:
        """Return an event of the compute stream that has a time."""
        event = self.xp.cuda.Event()
        event.record(self.compute)
        return event

    def _add_waits(self) -> None:
        """Add the seconds of waits that are over to `waited`."""
        while self._waits_of_kernels and self._waits_of_kernels[0][1].done:
            pair = self._waits_of_kernels.popleft()
            self.waited += self.xp.cuda.get_elapsed_time(*pair) / 1e3

    def _enter(self, arena: Arena) -> None:
        """Bring a rank into its slot, with all that its next turn is expected to access."""
        slot = arena.slot
        if slot.holder is not arena:
            self._empty(slot)
            slot.holder = arena
        self.up.wait_event(slot.ready)
        for block, span in self._expected(arena):
            if span != EMPTY:
                for part in block.missing(span):
                    self.bring_in(block, part, self.up)
                block.note(span, False)
        slot.ready = self.gpu.event(self.up)

    def _expected(self, arena: Arena) -> list[tuple[Block, Span]]:
        """Return the blocks with contents that the next turn of a rank reads.

        Parts of a block that adjoin are one.
        """
        found: dict[Block, list[Span]] = {}
        for array, read, _ in self._coming(arena.rank):
            block, (begin, _) = self.find(array) or (None, EMPTY)
            if block is not None:
                found.setdefault(block, []).append(
                    overlap((begin, begin + read), block.contents))
        return [(block, span) for block, spans in found.items() for span in joined(spans)]

    def _empty(self, slot: Slot) -> None:
        """Make room for another rank in a slot."""
        self._send_home(slot.holder)
        for block in slot.holder.blocks.values():
            block.here = EMPTY

    def _send_home(self, arena: Arena) -> None:
        """Copy the arrays that a rank has written home, once its kernels are complete."""
        self.down.wait_event(self.gpu.event(self.compute))
        self.down.wait_event(arena.slot.ready)
        for block in list(arena.blocks.values()):
            if block.dirty != EMPTY:
                self._copy_home(block, block.dirty, self.down)
                block.dirty = EMPTY
        arena.slot.ready = self.gpu.event(self.down)

    def take_events(self, rank: int) -> list[tuple]:
        """Return events of the disk for the timeline of a rank; the host waits for no copy."""
        return self.host.take_events(rank)

    def bring_in(self, block: Block, span: Span, stream: Any) -> None:
        """Queue the copy of a span from its home to the GPU."""
        self.move(block.place + span[0], block.home, span, stream, up=True)
        self.count(ARRAYS, 0, span)
        if stream is self.compute:
            self.unforeseen += span[1] - span[0]

    def home_of(self, block: Block) -> Home:
        """Return the home of a block, made if it has none."""
        if block.home is None:
            block.home = self.host.home(block.arena.rank, block.nbytes)
        return block.home

    def _copy_home(self, block: Block, span: Span, stream: Any) -> None:
        self.move(block.place + span[0], self.home_of(block), span, stream, up=False)
        self.count(ARRAYS, 1, span)

    def move(self, place: int, home: Home, span: Span, stream: Any, *, up: bool) -> None:
        """Queue copies between a span of a home and an address of the GPU, of its first byte."""
        for part in home.parts(span, filled=up):
            if part.owner.moved is not None:
                stream.wait_event(part.owner.moved)
            there, here = place + part.span[0] - span[0], part.memory.ctypes.data
            self.gpu.copy(*(there, here) if up else (here, there), part.memory.size, stream)
            part.owner.copied(self.gpu.event(stream))

    def told(self) -> dict[str, Any]:
        """Return bytes that were copied and seconds of waits, by names of summary.json."""
        to_gpu, from_gpu = map(sum, zip(*self.copied.values()))
        return {"to_gpu_bytes": to_gpu, "from_gpu_bytes": from_gpu,
                "not_ahead_bytes": self.unforeseen, "kernels_waited_s": self.waited,
                **self.host.told()}

    def count(self, purpose: str, way: int, span: Span) -> None:
        self.copied[purpose][way] += span[1] - span[0]


def _block_memory(xp: Any) -> type:
    """Return the class of CuPy's memory that belongs to a Block."""

    class BlockMemory(xp.cuda.UnownedMemory):
        block: Block

        def __del__(self) -> None:
            self.block.arena.release(self.block)

    return BlockMemory

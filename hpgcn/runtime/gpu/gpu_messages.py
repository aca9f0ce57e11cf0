"""Messages between local ranks that take turns on a GPU: one side is there, or neither.

The array of a rank that does not run may still be in its slot, or there already. Else its
home stands for it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.runtime.device import address
from hpgcn.runtime.gpu.spans import EMPTY, Span, hull, overlap

if TYPE_CHECKING:
    from hpgcn.runtime.gpu.arena import Block
    from hpgcn.runtime.gpu.gpu_turns import GpuTurns
    from hpgcn.runtime.gpu.homes import Home

PURPOSE = "messages"


class GpuMessages:
    """Copies messages between arrays of any ranks of GpuTurns.

    It does what hpgcn.comm.local_mpi.Post does with arrays that are where they are.
    """

    def __init__(self, turns: GpuTurns) -> None:
        self.turns = turns

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of a rank to one of another, wherever they are; both are contiguous.

        Host arrays stand for themselves.
        """
        there, here = self.turns.find(target), self.turns.find(source)
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
        self.turns.compute.wait_event(block.arena.slot.ready)

    def _receives_on_gpu(self, block: Block, span: Span) -> bool:
        """Return whether a message goes to the GPU; then make its place there ready."""
        held = block.arena.slot.holder is block.arena
        if not held or (block.here == EMPTY and block.contents != EMPTY):
            return False
        self._await(block)
        for part in block.missing(span):
            self.turns.bring_in(block, part, self.turns.compute)
        block.note(span, True)
        return True

    def _to(self, there: tuple | None, target: Any, source: Any) -> None:
        """Copy a host array, or one on the GPU, to a message's target."""
        if there is None or self._receives_on_gpu(*there):
            if there is not None and isinstance(source, np.ndarray):
                self.turns.count(PURPOSE, 0, there[1])
            put(target, source)
            return
        block, span = there
        home = self._written_home(block, span)
        if isinstance(source, np.ndarray):
            home.store(span, source)
        else:
            self.turns.move(address(source), home, span, self.turns.compute, up=False)
            self.turns.count(PURPOSE, 1, span)

    def _written_home(self, block: Block, span: Span) -> Home:
        """Return the home of a block, into which a message is written."""
        block.contents = hull(block.contents, span)
        return self.turns.home_of(block)

    def _from_home(self, here: tuple, there: tuple | None, target: Any) -> None:
        """Copy a span at home to a message's target."""
        source, span = here
        turns = self.turns
        home = turns.home_of(source)
        on_gpu = there is None or self._receives_on_gpu(*there)
        if on_gpu and not isinstance(target, np.ndarray):
            turns.move(address(target), home, span, turns.compute, up=True)
            turns.count(PURPOSE, 0, span)
            return
        contents = home.load(span)
        if there is None:
            target.reshape(-1).view(np.uint8)[:] = contents
        else:
            self._written_home(*there).store(there[1], contents)

    def readable(self, arrays: list) -> list:
        """Return arrays that one rank can add: the same, or all on the host if one has a home."""
        if all(self.turns.find(each) is None for each in arrays):
            return arrays
        return [self.on_host(each) for each in arrays]

    def on_host(self, array: Any) -> np.ndarray:
        """Return the contents of an array in host memory."""
        if isinstance(array, np.ndarray):
            return array
        found = self.turns.find(array)
        if found is None or self._is_on_gpu(*found):
            if found is not None:
                self._await(found[0])
                self.turns.count(PURPOSE, 1, found[1])
            return self.turns.xp.asnumpy(array)
        block, span = found
        return self.turns.home_of(block).load(span).view(array.dtype).reshape(array.shape)


def put(target: Any, source: Any) -> None:
    """Copy an array to one on the same side, or a host array to the GPU."""
    if isinstance(source, np.ndarray) and not isinstance(target, np.ndarray):
        target.set(source.reshape(target.shape))
    else:
        target[...] = source

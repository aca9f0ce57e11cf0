"""The GPU as a device of a rank whose arrays lie in an arena."""
from __future__ import annotations

import os
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from hpgcn.runtime.device import Cuda

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.kernels import Array
    from hpgcn.runtime.gpu.arena import Arena


class ArenaDevice(Cuda):
    """A GPU on which a rank takes turns with others."""

    in_files = True  # arrays are away between turns, so contents are worth dropping

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena.turns.gpu.number)
        self.arena = arena
        self.place = (*self.place, os.getpid(), arena.rank)  # each rank has memory of its own

    def memory(self) -> tuple[int, int]:
        """Return the bytes that this rank may still allocate, and those of its slot."""
        return self.arena.slot.nbytes - self.arena.nbytes, self.arena.slot.nbytes

    def empty(self, shape: Any, dtype: DTypeLike) -> Array:
        array = super().empty(shape, dtype)
        self.arena.turns.discard(array)
        return array

    def get(self, array: Array) -> Any:
        self.arena.accessed((array,))
        return super().get(array)

    def lasting(self, known: dict, key: Hashable, array: Array) -> Array:
        self.arena.accessed((array,))
        return super().lasting(known, key, array)

    def keep(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def discard(self, *arrays: Any) -> None:
        """Drop the contents of arrays, which are then not copied between GPU and host."""
        for array in arrays:
            self.arena.turns.discard(array)

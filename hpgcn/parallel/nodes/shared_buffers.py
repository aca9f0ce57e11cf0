"""Buffers of an exchange in memory that the ranks of a node share."""
from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.parallel.nodes.node_memory import node_memory
from hpgcn.parallel.workspace import HaloBuffers

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.layout import NodeLayout
    from hpgcn.parallel.nodes.node_memory import NodeMemory


class SharedBuffers(HaloBuffers):
    """HaloBuffers in the memory of a NodeMemory (`memory`).

    Ranks of the node read each other's rows in place. Buffers grow on all ranks of a
    node together. Without room for shared memory they are ordinary arrays, and rows are
    sent as messages.
    """

    def __init__(self, memory: NodeMemory, *settings: Any, pushes: bool = True) -> None:
        super().__init__(*settings, pushes=pushes)
        self.memory = memory

    @cached_property
    def second(self) -> SharedBuffers:
        """Buffers of the same kind for a second exchange that goes with the first."""
        return SharedBuffers(self.memory.another(), *self.settings, pushes=self.pushes)

    def reserve(self, owned: int, ghost: int) -> None:
        """Make room for `owned` and `ghost` elements in the buffers.

        All ranks of the node call this together.
        """
        enough = self.owned.size >= owned and self.ghost.size >= ghost
        if not self.memory.any(not enough):
            return
        sizes = max(owned, self.owned.size), max(ghost, self.ghost.size)
        found = self.memory.allocate(*(size * self.dtype.itemsize for size in sizes))
        if found:
            self.near = found
            rank = self.memory.comm.rank
            self.owned, self.ghost = (arrays[rank].view(self.dtype) for arrays in found)
        else:
            self.near = HaloBuffers.near
            self.owned, self.ghost = (self.device.empty((size,), self.dtype) for size in sizes)
        self.host_views = self.owned, self.ghost

    def close(self) -> None:
        """Free the memory.

        All ranks of the node call this together, and use no exchange of these buffers
        afterwards.
        """
        if "second" in vars(self):
            self.second.close()
        if self.memory is not None:
            self.owned = self.ghost = self.device.empty((0,), self.dtype)
            self.host_views = self.owned, self.ghost
            self.near = HaloBuffers.near
            self.memory.close()
            self.memory = None


def make_buffers(comm: SerialComm, nodes: NodeLayout, dtype: np.dtype, sums: np.dtype, *,
                 pushes: bool = True) -> HaloBuffers:
    """Return buffers, shared within each node if its ranks can share memory.

    All ranks call this together. `nodes` is a NodeLayout. Other arguments are those of
    HaloBuffers.
    """
    memory = node_memory(comm, nodes.numbers) if nodes.aware else None
    settings = comm.device, comm.stager, dtype, sums
    if memory is None:
        return HaloBuffers(*settings, pushes=pushes)
    return SharedBuffers(memory, *settings, pushes=pushes)

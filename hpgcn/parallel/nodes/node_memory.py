"""Memory that the ranks of a node share.

A rank writes its own part, and reads those of other ranks in place.

A writer fills its part, and sends an empty message to each reader. Once a reader has
finished, it returns an empty message. The writer waits for it before it writes again.
HPGCN_SHARED_MEMORY=0 switches this off: rows within a node are then sent as messages.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.comm.pending import format_ranks
from hpgcn.parallel.nodes.memory_files import create_file, open_file
from hpgcn.runtime.device import HOST
from hpgcn.runtime.machine import is_allowed

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm

VARIABLE = "HPGCN_SHARED_MEMORY"
LINE = 64  # bytes of a cache line, at which arrays begin


class NodeMemory:
    """The memory of one pair of message buffers on each rank of a node.

    All ranks of the node use it in the same exchanges. Ranks are numbers in `comm`.

    Attributes
    ----------
    ranks : tuple of int
        Ranks of this node, increasing; this rank is among them.
    """

    def __init__(self, comm: SerialComm, ranks: Sequence[int]) -> None:
        self.comm = comm
        self.ranks = ranks
        self.node = comm.group(ranks)
        self.number = {rank: place for place, rank in enumerate(ranks)}
        self.tag = next(self.node.tags)
        self.read = set()  # ranks whose memory this rank may be reading
        self.acknowledgments = []  # requests of empty messages after reading
        self.readers = []  # the rank at the far end of each of them

    def another(self) -> NodeMemory:
        """Return the NodeMemory of further buffers of the same ranks."""
        return NodeMemory(self.comm, self.ranks)

    def any(self, value: bool) -> bool:
        """Return whether `value` is true on a rank of this node; all of them call this."""
        return bool(self.node.max([value])[0])

    def starts(self, *offsets: np.ndarray) -> list[dict]:
        """Exchange offsets within the node.

        Return a dict for each array: by rank, the offset of the data for this rank in
        that rank's array.
        """
        sent = [[array[rank] for rank in self.ranks] for array in offsets]
        place = self.number[self.comm.rank]
        received = self.node.allgather(sent)
        return [{rank: int(theirs[number][place]) for rank, theirs in zip(self.ranks, received)}
                for number in range(len(offsets))]

    def allocate(self, *sizes: int) -> list[dict]:
        """Return arrays of `sizes` bytes in the memory of each rank.

        The result has a dict by rank for each size. Return None if ranks cannot share
        memory.
        """
        offsets = np.cumsum([0, *(-(-size // LINE) * LINE for size in sizes)]).tolist()
        blocks = self._blocks(max(offsets[-1], LINE))
        if blocks is None:
            return None
        layouts = self.node.allgather([offsets, sizes])
        return [{rank: block[begins[place]:begins[place] + lengths[place]]
                 for rank, block, (begins, lengths) in zip(self.ranks, blocks, layouts)}
                for place in range(len(sizes))]

    def _blocks(self, nbytes: int) -> list:
        """Return the memory of each rank of the node, a list of uint8 arrays, or None."""
        if self.node.process_ranks > 1:
            return self.node.mpi.share(HOST.empty(nbytes, np.uint8))

        # a step that fails on one rank ends the attempt on all of them
        key, own = create_file(nbytes)
        keys = self.node.allgather(key)
        blocks = [None]
        if None not in keys:
            blocks = [own if each == key else open_file(each) for each in keys]
        failed = self.any(any(block is None for block in blocks))
        if key is not None:
            key.close()
        return None if failed else blocks

    def begin(self, sources: dict[int, np.ndarray], readers: list[int]) -> None:
        """Note which ranks use shared memory from now on.

        This rank reads the memory of `sources`, and the ranks `readers` read its own.
        """
        self.read.update(sources)
        for rank in readers:
            self._add(self.node.mpi.Irecv, rank)

    def release(self) -> None:
        """Let the ranks whose memory this rank has read write again."""
        for rank in sorted(self.read):
            self._add(self.node.mpi.Isend, rank)
        self.read.clear()

    def wait_for_readers(self) -> None:
        """Release the rows of other ranks, and wait until this rank's memory may be written."""
        self.release()
        if self.acknowledgments:
            self.node.wait(self.acknowledgments, lambda numbers: format_ranks(
                {self.comm.ranks[self.readers[number]] for number in numbers}) +
                " to read rows in shared memory")
            self.acknowledgments, self.readers = [], []

    def _add(self, start: Callable, rank: int) -> None:
        self.acknowledgments.append(start(np.empty(0, np.uint8), self.number[rank], self.tag))
        self.readers.append(rank)

    def close(self) -> None:
        """Free the memory.

        All ranks of the node call this together. No array in it may be used afterwards.
        """
        self.wait_for_readers()
        self.node.close()


def node_memory(comm: SerialComm, nodes: np.ndarray) -> NodeMemory | None:
    """Return a NodeMemory for the ranks of this rank's node, or None if they send messages.

    All ranks call this together. `nodes`: (P,), the node of each rank; None: no rank
    shares memory. GPUs, files as memory and a simulated network need messages.
    """
    if nodes is None or comm.device is not HOST or comm.network is not None:
        return None
    if comm.process_ranks > 1 and comm.mpi.turns.observer is not None:
        return None
    ranks = tuple(np.flatnonzero(nodes == nodes[comm.rank]).tolist())
    if len(ranks) == 1:
        return None

    # ranks that are taken to share a node may be on several
    wanted = is_allowed(VARIABLE)
    memory = NodeMemory(comm, ranks)
    if len(set(memory.node.allgather(comm.host))) == 1 and not memory.any(not wanted):
        return memory
    memory.close()
    return None

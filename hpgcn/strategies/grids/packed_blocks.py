"""Blocks of A that are broadcast, each in one message of row pointers, values and columns."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.csr import Csr, select
from hpgcn.parallel.layout import compressed_offsets
from hpgcn.runtime.gpu_limits import check_nonzeros

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.parallel.layout import BlockLayout, BroadcastStages

POINTER_BYTES = 8


class Blocks:
    """The blocks of A that a rank of an R x L x C grid stores.

    The sizes of all other blocks are known as well. The matrix has rows as `layout` and
    columns as `layout_in`, cut by the BroadcastStages `cuts`. `blocks` has pairs
    (stage, csr_array) of the blocks that this rank stores; blocks that are left out
    have no entries. All ranks of `comm` make their Blocks together.

    Attributes
    ----------
    num_rows : int
        n_i, rows of this rank's big block.
    messages : dict of (b,) uint8
        Packed blocks by stage, on the device; empty where a block has no entries.
    nonzeros : (R, S) int64
        Entries by big row block and stage, those of other ranks included.
    entries, sizes : lists of S int
        Entries of the blocks of this rank's big row block, and bytes of their messages.
    stored : dict of hpgcn.comm.spool.Message
        These blocks, by stage, in the Spool if the ranks have one; then `messages` are empty.
    """

    def __init__(self, layout: BlockLayout, layout_in: BlockLayout, cuts: BroadcastStages,
                 blocks: Iterator, dtype: DTypeLike, comm: SerialComm) -> None:
        self.layout = layout
        self.layout_in = layout_in
        self.cuts = cuts
        row, (self.start, *_, self.stop), own = held(layout, cuts)
        self.num_rows = self.stop - self.start
        self.dtype = dtype
        self.columns = index_dtype(int(layout_in.offsets[-1]))
        self.device = comm.device
        self.spool = comm.spool

        # pack the blocks of this rank
        self.messages = dict.fromkeys(own, self.device.empty(0, np.uint8))
        # Csr by stage: those of this rank, and those of others that a GPU recognizes
        self.arrays = {}
        self.stored = {}
        nonzeros = np.zeros(((layout.offsets.size - 1) // cuts.pieces, cuts.row.size))
        for stage, matrix in blocks:
            block = Csr.of(matrix)
            nonzeros[row, stage] = block.data.size
            message = self.pack(block)
            if self.spool is None:
                self.messages[stage] = self.device.put(message)
            elif message.size:
                self.stored[stage] = self.spool.store(message)

        # all ranks learn how large each block is
        self.nonzeros = comm.sum(nonzeros.ravel()).reshape(nonzeros.shape).astype(np.int64)
        self.entries = self.nonzeros[row].tolist()
        check_nonzeros(comm, comm.device, sum(self.entries[stage] for stage in own))
        entry = self.dtype.itemsize + self.columns.itemsize
        pointers = POINTER_BYTES * (self.num_rows + 1)
        self.sizes = [pointers + count * entry if count else 0 for count in self.entries]
        if self.spool is not None:
            every = comm.mpi.share(self.stored)
            self.stored = {stage: self.spool.keep(message) for rank in layout.row_ranks.tolist()
                           for stage, message in every[rank].items()}

    @classmethod
    def read(cls, adjacency: NormalizedAdjacency, layout: BlockLayout, cuts: BroadcastStages,
             comm: SerialComm, *, transposed: bool = False) -> Blocks:
        """Read blocks of A, or of A^T, from a NormalizedAdjacency.

        The columns of a rank lie among those of L layers. Rows are read in L portions,
        so that entries to be cut away are never more than the others in memory.
        """
        _, rows, own = held(layout, cuts)
        intervals = [tuple(cuts.offsets[stage:stage + 2].tolist()) for stage in own]
        with comm.collective_errors():
            if transposed:
                blocks = [adjacency.block(first, last, rows[0], rows[-1]).T.tocsr()
                          for first, last in intervals]
            else:
                blocks = adjacency.blocks(rows, intervals)
        packed = ((stage, blocks.pop()) for stage in reversed(own))
        return cls(layout, layout, cuts, packed, adjacency.dtype, comm)

    def restricted(self, rows: np.ndarray, columns: np.ndarray, comm: SerialComm) -> Blocks:
        """Return the Blocks of the marked rows and columns.

        Marks are (n_out,) bool and (n_in,) bool. If all are marked, self is returned.
        All ranks call this together.
        """
        if rows.all() and columns.all():
            return self
        kept = rows[self.start:self.stop]
        offsets = self.cuts.offsets

        def cut_blocks() -> Iterator[tuple]:
            for stage, message in self._own_messages():
                indptr, indices, data = self.unpack(self.device.get(message), self.entries[stage])
                interval = slice(*offsets[stage:stage + 2].tolist())
                yield stage, select(indptr, indices, data, kept, columns[interval])

        cuts = replace(self.cuts, offsets=compressed_offsets(offsets, columns))
        layouts = self.layout.restricted(rows), self.layout_in.restricted(columns)
        return Blocks(*layouts, cuts, cut_blocks(), self.dtype, comm)

    def _own_messages(self) -> Iterator[tuple[int, Array]]:
        """Yield (stage, packed block) of this rank's blocks with entries."""
        own = [stage for stage in self.messages if self.entries[stage]]
        if self.spool is None:
            return zip(own, map(self.messages.get, own))
        return zip(own, self.spool.loaded([self.stored[stage] for stage in own]))

    def pack(self, block: Csr) -> np.ndarray:
        """Pack a block into one message.

        It has row pointers, int64, then values and column numbers, the wider dtype
        first.
        """
        data = block.data
        if not data.size:
            return np.empty(0, np.uint8)
        entry = data.itemsize + self.columns.itemsize
        message = np.empty(block.indptr.size * POINTER_BYTES + data.size * entry, np.uint8)
        arrays = block.indptr, block.indices, data
        for part, array in zip(self.unpack(message, data.size), arrays):
            part[:] = array
        return message

    def unpack(self, message: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
        """Return (indptr, indices, data) of a block from its message.

        The arrays are aligned views. The block has `count` entries.
        """
        indptr, rest = cut(message, POINTER_BYTES * (self.num_rows + 1))
        if self.columns.itemsize > self.dtype.itemsize:
            indices, data = cut(rest, count * self.columns.itemsize)
        else:
            data, indices = cut(rest, count * self.dtype.itemsize)
        return indptr.view(np.int64), indices.view(self.columns), data.view(self.dtype)

    def arrived(self, stage: int, message: np.ndarray) -> Csr:
        """Return the block of a stage as a Csr, from the message that its owner sent."""
        if stage in self.arrays and stage in self.messages:  # a block of this rank stays there
            return self.arrays[stage]
        indptr, indices, data = self.unpack(message, self.entries[stage])
        if stage not in self.messages:
            indptr = self.device.lasting(self.arrays, stage, indptr)
        first, last = self.cuts.offsets[stage:stage + 2].tolist()
        block = Csr(indptr, indices, data, last - first, self.device)
        if stage in self.messages:
            self.arrays[stage] = block
        return block


def cut(array: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Split an array at index `place` into two views."""
    return array[:place], array[place:]


def held(layout: BlockLayout, cuts: BroadcastStages) -> tuple[int, list, list]:
    """Return this rank's big row block, the bounds of its pieces, and stages."""
    row, piece = divmod(layout.block, cuts.pieces)
    rows = layout.offsets[row * cuts.pieces:(row + 1) * cuts.pieces + 1].tolist()
    own = np.flatnonzero((cuts.piece == piece) & (cuts.column == layout.column)).tolist()
    return row, rows, own

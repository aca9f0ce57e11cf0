"""Blocks of A that travel: row pointers, values and column numbers packed in one message each."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.csr import Csr, select
from hpgcn.parallel.layout import image
from hpgcn.runtime.gpu_limits import check_nonzeros

POINTER_BYTES = 8


class Blocks:
    """The blocks of a matrix that a rank of an R x L x C grid keeps, and the sizes of all others.

    Parameters
    ----------
    layout, layout_in : hpgcn.parallel.layout.BlockLayout
        Who owns rows of the result, and rows of what is multiplied: the matrix has n_out rows, n_in columns.
    cuts : hpgcn.parallel.layout.Stages
        Of its columns.
    blocks : iterable of (int, scipy.sparse.csr_array)
        Stage and block of those that this rank keeps; what is left out has no entries.
    dtype : numpy dtype
    comm : hpgcn.comm.SerialComm or MpiComm
        Of all ranks, which make their blocks together.

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
    """

    def __init__(self, layout, layout_in, cuts, blocks, dtype, comm):
        self.layout = layout
        self.layout_in = layout_in
        self.cuts = cuts
        row, (self.start, *_, self.stop), own = held(layout, cuts)
        self.num_rows = self.stop - self.start
        self.dtype = dtype
        self.columns = index_dtype(int(layout_in.offsets[-1]))
        self.device = comm.device
        self.messages = dict.fromkeys(own, self.device.empty(0, np.uint8))
        self.arrays = {}  # Csr by stage: those of this rank, and of others what a GPU knows again
        nonzeros = np.zeros(((layout.offsets.size - 1) // num_pieces(cuts), cuts.row.size))
        for stage, matrix in blocks:
            block = Csr.of(matrix)
            nonzeros[row, stage] = block.data.size
            self.messages[stage] = self.device.put(self.pack(block))
        self.nonzeros = comm.sum(nonzeros.ravel()).reshape(nonzeros.shape).astype(np.int64)
        self.entries = self.nonzeros[row].tolist()
        check_nonzeros(comm, comm.device, sum(self.entries[stage] for stage in own))
        entry = self.dtype.itemsize + self.columns.itemsize
        pointers = POINTER_BYTES * (self.num_rows + 1)
        self.sizes = [pointers + count * entry if count else 0 for count in self.entries]

    @classmethod
    def read(cls, adjacency, layout, cuts, comm, *, transposed=False):
        """Read blocks of A, or of A^T, from a hpgcn.graphs.normalization.NormalizedAdjacency.

        The intervals of one rank lie among those of L layers: rows are read in L portions, so that what is
        cut away is never more than what stays.
        """
        _, rows, own = held(layout, cuts)
        intervals = [tuple(cuts.offsets[stage:stage + 2].tolist()) for stage in own]
        with comm.collective_errors():
            if transposed:
                blocks = [adjacency.block(lo, hi, rows[0], rows[-1]).T.tocsr() for lo, hi in intervals]
            else:
                blocks = adjacency.blocks(rows, intervals)
        packed = ((stage, blocks.pop()) for stage in reversed(own))
        return cls(layout, layout, cuts, packed, adjacency.dtype, comm)

    def restricted(self, rows, columns, comm):
        """Cut out the blocks of some rows and columns of the matrix; all ranks call it.

        Parameters
        ----------
        rows, columns : (n_out,), (n_in,) bool
            What stays.
        comm : hpgcn.comm.SerialComm or MpiComm

        Returns
        -------
        Blocks
            These, if all rows and columns stay.
        """
        if rows.all() and columns.all():
            return self
        kept = rows[self.start:self.stop]
        offsets = self.cuts.offsets

        def cut_blocks():
            for stage, message in self.messages.items():
                if message.size:
                    arrays = self.unpack(self.device.get(message), self.entries[stage])
                    yield stage, select(*arrays, kept, columns[offsets[stage]:offsets[stage + 1]])

        cuts = replace(self.cuts, offsets=image(offsets, columns))
        layouts = self.layout.restricted(rows), self.layout_in.restricted(columns)
        return Blocks(*layouts, cuts, cut_blocks(), self.dtype, comm)

    def pack(self, block):
        """One message: row pointers int64, then values and column numbers, the wider of the two first."""
        data = block.data
        if not data.size:
            return np.empty(0, np.uint8)
        entry = data.itemsize + self.columns.itemsize
        message = np.empty(block.indptr.size * POINTER_BYTES + data.size * entry, np.uint8)
        for part, array in zip(self.unpack(message, data.size), (block.indptr, block.indices, data)):
            part[:] = array
        return message

    def unpack(self, message, count):
        """(indptr, indices, data) of a block of `count` entries: aligned views into its message."""
        indptr, rest = cut(message, POINTER_BYTES * (self.num_rows + 1))
        if self.columns.itemsize > self.dtype.itemsize:
            indices, data = cut(rest, count * self.columns.itemsize)
        else:
            data, indices = cut(rest, count * self.dtype.itemsize)
        return indptr.view(np.int64), indices.view(self.columns), data.view(self.dtype)

    def arrived(self, stage, message):
        """The Csr of the block of a stage, which has come from its owner."""
        if stage in self.arrays and stage in self.messages:  # of this rank itself: it stays where it is
            return self.arrays[stage]
        indptr, indices, data = self.unpack(message, self.entries[stage])
        if stage not in self.messages:
            indptr = self.device.lasting(self.arrays, stage, indptr)
        width = int(np.diff(self.cuts.offsets[stage:stage + 2])[0])
        block = Csr(indptr, indices, data, width, self.device)
        if stage in self.messages:
            self.arrays[stage] = block
        return block


def cut(array, place):
    """The array before and from a place."""
    return array[:place], array[place:]


def num_pieces(cuts):
    """L."""
    return int(cuts.piece.max()) + 1


def held(layout, cuts):
    """What a rank keeps: its big row block, the bounds of the L pieces of that, and its stages."""
    pieces = num_pieces(cuts)
    row, piece = divmod(layout.block, pieces)
    rows = layout.offsets[row * pieces:(row + 1) * pieces + 1].tolist()
    own = np.flatnonzero((cuts.piece == piece) & (cuts.column == layout.column)).tolist()
    return row, rows, own

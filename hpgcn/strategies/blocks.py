"""Blocks of A that travel: row pointers, values and column numbers packed in one message each."""
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import cost
from hpgcn.capacity import check_nonzeros
from hpgcn.check import index_dtype
from hpgcn.layout import image
from hpgcn.operator import csr, select


class Blocks:
    """The blocks of a matrix that a rank of an R x L x C grid keeps, and the sizes of all others.

    Parameters
    ----------
    layout, layout_in : hpgcn.layout.Grid
        Who owns rows of the result, and rows of what is multiplied: the matrix has n_out rows and n_in columns.
    cuts : hpgcn.layout.Stages
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
        self.layout, self.layout_in, self.cuts = layout, layout_in, cuts
        row, (self.start, *_, self.stop), own = held(layout, cuts)
        self.num_rows = self.stop - self.start
        self.dtype, self.columns, self.device = dtype, index_dtype(int(layout_in.offsets[-1])), comm.device
        self.messages, self.pointers = dict.fromkeys(own, self.device.empty(0, np.uint8)), {}
        nonzeros = np.zeros(((layout.offsets.size - 1) // num_pieces(cuts), cuts.row.size))
        for s, block in blocks:
            arrays = csr(block)
            nonzeros[row, s] = arrays[2].size
            self.messages[s] = self.device.put(self.pack(*arrays))
        self.nonzeros = comm.sum(nonzeros.ravel()).reshape(nonzeros.shape).astype(np.int64)
        self.entries = self.nonzeros[row].tolist()
        check_nonzeros(comm, comm.device, sum(self.entries[s] for s in own))
        entry = self.dtype.itemsize + self.columns.itemsize
        self.sizes = [8 * (self.num_rows + 1) + count * entry if count else 0 for count in self.entries]

    @classmethod
    def of(cls, operator, grid, cuts, comm, *, transposed=False):
        """Blocks of A, or of A^T, read from a hpgcn.operator.Operator."""
        _, rows, own = held(grid, cuts)
        blocks = (read_transposed if transposed else read)(
            operator, rows, [cuts.offsets[s:s + 2].tolist() for s in own])
        return cls(grid, grid, cuts, ((s, blocks.pop()) for s in reversed(own)), operator.dtype, comm)

    def restricted(self, rows, columns, comm):
        """The blocks of some rows and columns of the matrix, cut out of these; all ranks call it.

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
        kept, offsets = rows[self.start:self.stop], self.cuts.offsets
        cut = ((s, select(self.unpack(self.device.get(message), self.entries[s]), kept,
                          columns[offsets[s]:offsets[s + 1]])) for s, message in self.messages.items() if message.size)
        cuts = replace(self.cuts, offsets=image(offsets, columns))
        return Blocks(self.layout.restricted(rows), self.layout_in.restricted(columns), cuts, cut, self.dtype, comm)

    def costs(self):
        """What a product with these sends; a hpgcn.cost.Blocks."""
        pieces, columns = num_pieces(self.cuts), self.layout.columns
        rows, rows_out = (np.diff(grid.offsets).reshape(-1, pieces) for grid in (self.layout_in, self.layout))
        sparse = cost.block_bytes(self.nonzeros, rows_out, columns, self.dtype.itemsize, int(rows.sum()))
        return cost.Blocks(rows, rows_out, columns, self.cuts, sparse)

    def pack(self, indptr, indices, data):
        """One message: row pointers int64, then values and column numbers, the wider of the two first."""
        if not data.size:
            return np.empty(0, np.uint8)
        message = np.empty(indptr.size * 8 + data.size * (data.itemsize + self.columns.itemsize), np.uint8)
        for part, array in zip(self.unpack(message, data.size), (indptr, indices, data)):
            part[:] = array
        return message

    def unpack(self, message, count):
        """(indptr, indices, data) of a block of `count` entries: views into its message, each aligned to its items."""
        indptr, rest = cut(message, 8 * (self.num_rows + 1))
        if self.columns.itemsize > self.dtype.itemsize:
            indices, data = cut(rest, count * self.columns.itemsize)
        else:
            data, indices = cut(rest, count * self.dtype.itemsize)
        return indptr.view(np.int64), indices.view(self.columns), data.view(self.dtype)

    def arrived(self, s, message):
        """(indptr, indices, data) of the block of stage s, which has come from its owner."""
        indptr, indices, data = self.unpack(message, self.entries[s])
        if s in self.messages:  # of this rank itself: it stays where it is
            return self.pointers.setdefault(s, indptr), indices, data
        return self.device.lasting(self.pointers, s, indptr), indices, data


def cut(array, place):
    """The array before and from a place."""
    return array[:place], array[place:]


def num_pieces(cuts):
    """L."""
    return int(cuts.piece.max()) + 1


def held(grid, cuts):
    """What a rank keeps: its big row block, the bounds of the L pieces of that, and its stages; int, two lists."""
    pieces = num_pieces(cuts)
    row, piece = divmod(grid.block, pieces)
    rows = grid.offsets[row * pieces:(row + 1) * pieces + 1].tolist()
    return row, rows, np.flatnonzero((cuts.piece == piece) & (cuts.column == grid.column)).tolist()


def read(operator, rows, intervals):
    """Blocks of A: its rows rows[0] to rows[-1], cut into intervals of columns.

    The intervals of one rank lie among those of L layers. Rows are therefore read once, and in L portions: what is cut
    away is never more than what stays.

    Parameters
    ----------
    operator : hpgcn.operator.Operator
    rows : list of L + 1 int
        Bounds of the portions.
    intervals : list of (int, int), increasing

    Returns
    -------
    list of scipy.sparse.csr_array
    """
    if not intervals:
        return []
    first, portions = intervals[0][0], []
    for start, stop in pairwise(rows):
        whole = operator.block(start, stop, first, intervals[-1][1])
        portions.append([whole[:, lo - first:hi - first] for lo, hi in intervals])
    return [portion[0] if len(portion) == 1 else sp.vstack(portion, format="csr") for portion in zip(*portions)]


def read_transposed(operator, rows, intervals):
    """Blocks of A^T, as `read`: transposes of the blocks in rows `intervals` of A and columns rows[0] to rows[-1]."""
    return [operator.block(lo, hi, rows[0], rows[-1]).T.tocsr() for lo, hi in intervals]

"""Blocks of A that travel: row pointers, values and column numbers packed in one message each."""
from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn.check import index_dtype
from hpgcn.operator import csr


class Blocks:
    """The blocks of A, or of A^T, that a rank of an R x L x C grid keeps, and the sizes of all others.

    Parameters
    ----------
    operator : hpgcn.operator.Operator
    grid : hpgcn.layout.Grid
    pieces : int
        L.
    cuts : hpgcn.layout.Stages
    comm : hpgcn.comm.SerialComm or MpiComm
        Of all ranks, which make their blocks together.
    transposed : bool
        Blocks of A^T.

    Attributes
    ----------
    num_rows : int
        n_i, rows of this rank's big block.
    messages : dict of (b,) uint8
        Packed blocks by stage; empty where a block has no entries.
    nonzeros : (R, S) int64
        Entries by big row block and stage, those of other ranks included.
    entries, sizes : lists of S int
        Entries of the blocks of this rank's big row block, and bytes of their messages.
    """

    def __init__(self, operator, grid, pieces, cuts, comm, *, transposed=False):
        row, piece = divmod(grid.block, pieces)
        rows = grid.offsets[row * pieces:(row + 1) * pieces + 1].tolist()
        self.num_rows = rows[-1] - rows[0]
        self.dtype, self.columns = operator.dtype, index_dtype(operator.num_rows)
        own = np.flatnonzero((cuts.piece == piece) & (cuts.column == grid.column)).tolist()
        blocks = (read_transposed if transposed else read)(
            operator, rows, [cuts.offsets[s:s + 2].tolist() for s in own])
        self.messages, nonzeros = {}, np.zeros(((grid.offsets.size - 1) // pieces, cuts.row.size))
        for s in reversed(own):
            block = csr(blocks.pop())
            nonzeros[row, s] = block[2].size
            self.messages[s] = self.pack(*block)
        self.nonzeros = comm.sum(nonzeros.ravel()).reshape(nonzeros.shape).astype(np.int64)
        self.entries = self.nonzeros[row].tolist()
        entry = self.dtype.itemsize + self.columns.itemsize
        self.sizes = [8 * (self.num_rows + 1) + count * entry if count else 0 for count in self.entries]

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
        indptr, rest = np.split(message, [8 * (self.num_rows + 1)])
        if self.columns.itemsize > self.dtype.itemsize:
            indices, data = np.split(rest, [count * self.columns.itemsize])
        else:
            data, indices = np.split(rest, [count * self.dtype.itemsize])
        return indptr.view(np.int64), indices.view(self.columns), data.view(self.dtype)


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

"""The matrix of strategy `mop`: each rank stores all of it, in the order of the batches
of rows.
"""
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.parallel.csr import Csr, in_order, rows_of
from hpgcn.strategies.mixture.row_batches import RowBatches


@dataclass(frozen=True, eq=False)
class BatchedOperand:
    """A matrix (n_out, n_in) whose rows and columns are sorted by batch."""

    block: Csr
    batches: list  # S Csr: the rows of each batch, in the memory of `block`
    order: np.ndarray  # (n_out,) int64: that of `rows`, on its device
    rows: RowBatches  # batches of the result
    columns: RowBatches  # batches of the multiplied matrix
    needed: list  # S int: batches of columns that must be there before each batch of rows

    @staticmethod
    def of(device, matrix, rows, columns):
        """Return the BatchedOperand of a csr_array that is already in the order of
        batches.
        """
        host = Csr.of(matrix)
        needed = columns.read(host.indptr, host.indices, rows).tolist()
        block = host.on(device)
        batches = [Csr(rows_of(block.indptr, first, last + 1), block.indices, block.data,
                       block.shape[1], device) for first, last in pairwise(rows.bounds.tolist())]
        order = device.put(rows.order) if rows.num_batches > 1 else None
        return BatchedOperand(block, batches, order, rows, columns, needed)

    def restricted(self, rows, columns, kept_rows, kept_columns):
        """Return the submatrix of the rows and columns marked in `kept_rows` and
        `kept_columns`.

        Both are (n,) bool in the distributed order. The result is in the order of the
        batches `rows` and `columns`.
        """
        kept_rows, row_numbers = self.rows.kept(kept_rows)
        kept_columns, column_numbers = self.columns.kept(kept_columns)
        matrix = self.block.select(kept_rows, kept_columns)
        if self.rows.num_batches > 1:
            matrix = in_order(matrix, rows.positions(row_numbers),
                              columns.positions(column_numbers))
        return BatchedOperand.of(self.block.device, matrix, rows, columns)

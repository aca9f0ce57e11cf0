"""Run attention by columns on arrays without contents; see hpgcn.planning.counts.shaped_step."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from hpgcn.runtime.clock import Clock
from hpgcn.strategies import Product
from hpgcn.strategies.mixture.mop_attention import ColumnAttention


class ShapeColumns(ColumnAttention):
    """A substitute for the attention on a rank that has some heads of all rows.

    It records the products, and the arrays that a rank touches between their two waits.
    `owner` is a ShapeMap. `rank` is that of `ranks`. `sizes` are the rows that all ranks
    read and compute. Its arrays are those of the Workspace `on_host`, or None.
    """

    def __init__(self, owner, heads, rank, ranks, sizes, on_host):
        self.owner = owner
        self.sizes = sizes
        self.kept = 0  # columns of W, if the rows of other ranks are constant
        rows_in, rows_out = (SimpleNamespace(num_rows=size) for size in sizes)
        comm = SimpleNamespace(device=owner.device, rank=rank, size=ranks, clock=Clock())
        super().__init__(SimpleNamespace(
            home=owner.device, comm=comm, product=self._product, operand_back=None,
            operand=SimpleNamespace(columns=rows_in, rows=rows_out), row_numbers=None,
            buffers=SimpleNamespace(attended=on_host)), heads)
        if on_host:
            self.columns = replace(heads, buffer=on_host.buffer)

    def _row_numbers(self, heads):
        rows_in, rows_out = self.sizes
        return [self.owner.device.empty(size, np.int64)
                for size in (rows_in, rows_out, rows_out, rows_in)]

    def forward(self, x, a, b, *, W=None, epoch=0):
        self.kept = 0 if W is None else W.shape[0]
        return super().forward(x, a, b, W=W, epoch=epoch)

    def _product(self, operand, H, out, work, *, backward=False):
        """Record a product, and the calls of `work` between its waits."""
        empty = self.owner.device.empty
        width = H.shape[1] // self.heads.count * self.count
        read, computed = self.sizes[::-1] if backward else self.sizes
        pattern = empty(computed + 1, np.int64), SimpleNamespace(indices=empty(0, np.int32))

        def work_on_columns():
            X, Z = (empty((rows, width), H.dtype) for rows in (read, computed))
            work.receive_rows(X, 0, read)
            work.tile(pattern[1], pattern[0], X, Z, 0, computed, None)
            work.finish()

        product = Product(self.owner.hop, H.shape[1], heads=self.heads.count, backward=backward,
                          kept=0 if backward else self.kept)
        self.owner.note(product, (H,), out, between=work_on_columns)
        return out

"""A product of strategies 2d and 3d on ranks that have a Spool, because memory is short.

A rank sends its rows once to all ranks that multiply by them, itself included, before it
waits. Blocks of A do not change, so they lie in the file of the Spool. The stages follow
without waits. With several layers a rank sends its sums to their owners, and waits again.
Messages are counted as the broadcasts that they stand for.
"""
from __future__ import annotations

import operator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.spooled_exchange import add_parts, arriving, count_call, next_turn, send_rows
from hpgcn.strategies.masked_additions import count_masked
from hpgcn.strategies.strategy import product_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.strategies.grids.packed_blocks import Blocks


class SpooledSumma:
    """The product with Blocks of the rank (row, piece, column) of an R x L x C grid.

    `sums` says whether sums are sent to their owners, also if there is one layer.
    """

    def __init__(self, comm: SerialComm, shape: tuple[int, int, int], blocks: Blocks,
                 place: tuple[int, int, int], stages: list[int], *, sums: bool) -> None:
        R, L, C = shape
        self.comm = comm
        self.shape = shape
        self.blocks = blocks
        self.row, self.piece, self.column = row, piece, column = place
        self.stages = stages
        self.sums = sums
        self.along_row = [(row * L + piece) * C + other for other in range(C)]
        self.along_column = [(other * L + piece) * C + column for other in range(R)]
        self.along_layers = [(row * L + other) * C + column for other in range(L)]

    def multiply(self, H: Array, mask: Array | None, out: Array, *, backward: bool) -> None:
        """Write the product with H to `out`."""
        comm, L = self.comm, self.shape[1]
        what, product = product_name(comm.clock), (H.shape[1], backward)
        send_rows(comm, self.along_column, H)
        self._count(H)
        self.full = self._full_rows(H.shape[1])
        next_turn(comm, [self.along_column[row] for row in self.full], what, *product)
        bits = mask if L == 1 else None
        if not self.sums:
            self._multiply(out, bits, H.dtype, what)
            return
        self._send_sums(out.shape[1], bits, H.dtype, what)
        layers = self.along_layers if out.size else []
        next_turn(comm, layers, what, *product)
        add_parts(comm, layers, out, what)
        if mask is not None and L > 1:
            with comm.clock("spmm"):
                kernels.backend(out).apply_mask(out, mask)

    def _send_sums(self, width: int, bits: Array | None, dtype: np.dtype, what: str) -> None:
        """Multiply the stages of this layer, and send the sums to the owners of their rows."""
        comm, L = self.comm, self.shape[1]
        with comm.device.in_memory():
            total = comm.device.empty((self.blocks.num_rows, width), dtype)
        self._multiply(total, bits, dtype, what)
        bounds = self.blocks.layout.offsets[self.row * L:(self.row + 1) * L + 1]
        parts = [total[first:last] for first, last in pairwise((bounds - bounds[0]).tolist())]
        for owner, part in zip(self.along_layers, parts):
            send_rows(comm, [owner], part)
        count_call(comm, {owner: part.nbytes for owner, part in zip(self.along_layers, parts)},
                   sums=True)

    def _multiply(self, total: np.ndarray, bits: Array | None, dtype: np.dtype, what: str) -> None:
        """Write the product of the stages of this layer to `total`."""
        comm, blocks = self.comm, self.blocks
        read = [stage for stage in self.stages if blocks.entries[stage]]
        if not read:
            repeat(operator.setitem, total, ALL, 0)
        ops = kernels.backend(total)
        matrices = comm.spool.loaded([blocks.stored[stage] for stage in read])
        for stage, rows in self._intervals(total.shape[1], dtype, what):
            if not blocks.entries[stage]:
                continue
            indptr, indices, data = blocks.unpack(next(matrices), blocks.entries[stage])
            with comm.clock("spmm"):
                ops.spmm(indptr, indices, data, rows, total, mask=bits,
                         accumulate=stage != read[0])
            count_masked(comm, indptr, bits, total.shape[1])
        next(matrices, None)  # lets go of the last one

    def _intervals(self, width: int, dtype: np.dtype,
                   what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (stage, rows of H of its interval) of the stages of this layer."""
        cuts = self.blocks.cuts
        first = self.blocks.layout_in.offsets[self.piece:-1:self.shape[1]]
        received = arriving(self.comm, [self.along_column[row] for row in self.full], what)
        current, rows = -1, self.comm.device.empty((0, width), dtype)
        for stage in self.stages:
            lo, hi = cuts.offsets[stage:stage + 2].tolist()
            row = int(cuts.row[stage])
            if row != current and row in self.full:
                current, rows = row, next(received)[1]
            yield stage, rows[lo - int(first[row]):hi - int(first[row])]
        next(received, None)  # lets go of the last one

    def _full_rows(self, width: int) -> list[int]:
        """Return the rows of the grid whose ranks send rows of this column and layer."""
        heights = np.diff(self.blocks.layout_in.offsets)[self.piece::self.shape[1]]
        return np.flatnonzero(heights * width).tolist()

    def _count(self, H: Array) -> None:
        """Count the broadcasts of own rows, by stage, and of own blocks of A."""
        cuts = self.blocks.cuts
        for stage in self.stages:
            if cuts.row[stage] == self.row:
                lo, hi = cuts.offsets[stage:stage + 2].tolist()
                nbytes = (hi - lo) * H.shape[1] * H.itemsize
                count_call(self.comm, dict.fromkeys(self.along_column, nbytes))
            if cuts.column[stage] == self.column:
                count_call(self.comm, dict.fromkeys(self.along_row,
                                                    self.blocks.sizes[stage]))

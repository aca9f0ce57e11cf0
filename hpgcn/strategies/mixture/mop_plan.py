"""Messages and memory of strategy mop on all ranks (pure: no MPI); see `mop`."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hpgcn.parallel.layout import split
from hpgcn.parallel.pattern import BlockPattern
from hpgcn.strategies.mixture.row_batches import RowBatches, count_batches, count_fewer
from hpgcn.strategies.plan import POINTER, Operand, Plan, SpoolMemory, Traffic

if TYPE_CHECKING:
    from hpgcn.parallel.layout import BlockLayout
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.strategies.plan import Product, RankGrid

ORDERED = 2.5  # times the matrix is held while it is put in the order of batches


class MopTraffic(Traffic):
    """Traffic of strategy mop: an all-to-all from rows to columns, and one back.

    `batches`: number of batches in which each rank's rows are sent.
    """

    packing = MappingProxyType({"pack pieces": 2})

    def __init__(self, layouts: tuple[BlockLayout, ...], batches: int) -> None:
        super().__init__(layouts)
        self.slices = self.num_ranks
        self.batches = batches

    def calls(self, product: Product, itemsize: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        # One message for the bits of a mask, then one for each batch.
        rows, rows_out, width = self._sizes(product)
        rows, rows_out = rows[:, None], rows_out[:, None]
        others = ~np.eye(self.num_ranks, dtype=bool)
        for each, axis in ((rows, 1), (rows_out, 0)):
            moved = each * width * itemsize * others
            yield moved.sum(axis), (np.minimum(each, self.batches) * (moved > 0)).sum(axis)
        if product.masked:
            bits = rows_out * -(-width // 8) * others
            yield bits.sum(1), np.count_nonzero(bits, axis=1)

    def spooled(self, product: Product, itemsize: int, in_files: int,
                rule: Callable) -> np.ndarray:
        rows, rows_out, width = self._sizes(product)
        sent = [rows * width[:, None] * itemsize, (rows_out * width[:, None] * itemsize).T]
        if product.masked:
            sent.append(rows_out * -(-width[:, None] // 8))
        return np.sum([rule(sizes, in_files) for sizes in sent], axis=0)

    def held(self, product: Product, itemsize: int) -> SpoolMemory:
        # Own columns of all rows and of their sums.
        rows, rows_out, width = self._sizes(product)
        widest = int(width.max())
        whole = (rows.sum() + rows_out.sum()) * widest * itemsize
        bits = int(rows_out.sum()) * -(-widest // 8) * product.masked
        largest = int(max(rows.max(), rows_out.max())) * widest * itemsize
        return SpoolMemory(int(whole) + bits, largest)

    def _sizes(self, product: Product) -> tuple[np.ndarray, ...]:
        """Return rows of each rank of the multiplied matrix and of the result, and columns."""
        rows, rows_out = (np.diff(layout.offsets) for layout in (self.layout_in, self.layout))
        if product.backward:
            rows, rows_out = rows_out, rows
        return rows, rows_out, np.diff(split(product.width, self.num_ranks))

    @staticmethod
    def columns(product: Product) -> int:
        # The rank that receives rows computes their scores.
        return product.width


class MopPlan(Plan):
    """Plan of mop: every rank stores all of A; `batches`: as in MopTraffic."""

    Traffic = MopTraffic

    def __init__(self, pattern: Pattern, rank_grid: RankGrid, batches: int) -> None:
        self.batches = batches
        super().__init__(pattern, rank_grid)

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> MopTraffic:
        return MopTraffic(layouts, self.batches)

    @classmethod
    def of(cls, pattern: Pattern, rank_grid: RankGrid) -> Self:
        offsets = rank_grid.layout.offsets
        pipeline_batches = rank_grid.options["pipeline_batches"]
        batches = count_batches(offsets, pipeline_batches, lambda: pattern.bandwidth)
        return cls(pattern, rank_grid, batches)

    @classmethod
    def floor(cls, pattern: Pattern, rank_grid: RankGrid) -> Plan | None:
        # With more batches, only the number of messages is larger.
        pipeline_batches = rank_grid.options["pipeline_batches"]
        if pipeline_batches or not (isinstance(pattern, BlockPattern) and pattern.needs_order):
            return None
        made = cls(pattern, rank_grid, 1)
        made.is_floor = True
        return made

    @property
    def pipeline_batches(self) -> Any:
        return self.batches if self.rank_grid.options["pipeline_batches"] > 1 else 0

    @property
    def first_batches(self) -> Any:
        if self.batches == 1:
            return None
        if self.pattern.matrix is None:  # only sizes are known: each batch reads all batches
            return self.batches, self.batches
        layout = self.rank_grid.layout
        indptr, indices = self.pattern.indptr, self.pattern.indices
        best = RowBatches.best(layout.offsets, self.batches, indptr, indices)
        return int(best.waits(indptr, indices)[0]), self.batches

    def make_restricted(self, pattern: Pattern) -> MopPlan:
        # Keep the number of batches, unless all row blocks are too short for it.
        layouts = pattern.layouts(self.rank_grid.layout)
        batches = count_fewer(self.batches, self.rank_grid.options["pipeline_batches"], layouts)
        return type(self)(pattern, self.rank_grid, batches)

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # All of A on every rank.
        rows = int(layout.offsets[-1])
        return Operand.of(self.num_ranks, int(pattern.indptr[-1]), rows + 1, results=rows)

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Rows in transit, columns of all rows of H and of the result, and masks.
        P = self.num_ranks
        rows = self.rows()
        if P == 1:
            return 0 * rows
        n = int(rows.sum())
        part = -(-width // P)
        bits = (1 + (self.batches > 1)) * n + P * rows
        return (rows * width + 2 * n * part) * itemsize + bits * -(-part // 8)

    def begins_early(self, following: MopPlan) -> bool:
        # Both have the same batches of rows.
        return (self.num_ranks > 1 and isinstance(following, MopPlan)
                and self.batches == following.batches > 1)

    def early_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Rows in transit, and columns of all rows of H.
        rows = self.rows()
        return (rows * width + int(rows.sum()) * -(-width // self.num_ranks)) * itemsize

    @property
    def attention_home(self) -> Any:
        return "host" if self.rank_grid.options["on_host"] else "device"

    @property
    def attention_bytes(self) -> np.ndarray:
        rows = sum(int(layout.offsets[-1]) for layout in (self.layout_in, self.layout))
        return np.full(self.num_ranks, 2 * rows * POINTER)

    def packed_bytes(self, width: int, itemsize: int) -> np.ndarray:
        if not self.rank_grid.options["on_host"]:
            return None
        return self.rows() * (self.num_ranks > 1) * width * itemsize

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        held, transposes = self.kept_bytes(itemsize)
        ordered = held * (ORDERED if self.batches > 1 else 1)
        filling = self.read_chunk_bytes(held, np.maximum(self.operands[0].entries, 1))
        return self.degree_bytes() + np.maximum.reduce([filling, ordered, held + transposes])

"""Messages and memory of strategies 2d and 3d on all ranks (pure: no MPI); see `summa`."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.counts import Collective, reduce_scatter, stored_bytes
from hpgcn.parallel.layout import BlockLayout, compressed_offsets, split, stages
from hpgcn.parallel.layout import BroadcastStages as Cuts
from hpgcn.strategies.grids.packed_blocks import POINTER_BYTES
from hpgcn.strategies.plan import INDEX, POINTER, Operand, Plan, SpoolMemory, Traffic

if TYPE_CHECKING:
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.strategies.plan import Product

TWICE, TWICE_LAYERS = 2, 2.7  # blocks as read, as they are cut or packed, as transposes are read


def cube_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (R, L, C).

    The numbers of big row blocks, of pieces of each, and of column blocks. Ranks are
    numbered in this order of axes.
    """
    rows, columns, *layers = shape
    return rows, layers[0] if layers else 1, columns


@dataclass(frozen=True, eq=False)
class BroadcastBlocks:
    """Sizes of the blocks of A or A^T, with the attributes of packed_blocks.Blocks."""

    layout: BlockLayout  # layout of rows of the result
    layout_in: BlockLayout  # layout of the multiplied matrix
    cuts: Cuts
    nonzeros: np.ndarray  # (R, S) int64: entries by big row block and stage


class SummaTraffic(Traffic):
    """Broadcasts of blocks of A along rows, and of intervals of H along columns, in stages.

    `shape`: the grid of ranks. `directions`: a pair of BroadcastBlocks or Blocks, for
    the forward and for the backward.
    """

    packing = MappingProxyType({})

    def __init__(self, layouts: tuple[BlockLayout, ...], shape: tuple[int, ...],
                 directions: tuple) -> None:
        super().__init__(layouts)
        self.shape = cube_of(shape)
        self.sums = len(shape) > 2  # whether sums are added up over layers
        self.directions = directions

    def pieces(self, layout: BlockLayout) -> np.ndarray:
        """Return the number of rows of each piece of each big block, (R, L)."""
        R, L, _ = self.shape
        return np.diff(layout.offsets).reshape(R, L)

    def calls(self, product: Product,
              itemsize: int) -> Iterator[Collective | tuple[np.ndarray, np.ndarray]]:
        # A along rows, H along columns, sums over layers.
        R, L, C = self.shape
        blocks = self.directions[product.backward]
        cuts = blocks.cuts
        rows_out = self.pieces(blocks.layout)
        width = np.diff(split(product.width, C))

        n = int(blocks.layout_in.offsets[-1])
        sparse = block_bytes(blocks.nonzeros, rows_out, C, itemsize, n).T
        places = cuts.piece, cuts.column
        layer = (cuts.piece[:, None] == np.arange(L))[:, None, :, None]  # layer of each stage
        sent, messages = (gathered(counts * (C - 1), places, (L, C, R)).transpose(2, 0, 1)
                          for counts in (sparse, sparse > 0))
        yield Collective(sent, messages, "broadcast", C, sparse[:, :, None, None] * layer, 2)

        tall = np.diff(cuts.offsets)[:, None] * width * itemsize
        sent, messages = (gathered(counts * (R - 1), (cuts.row, cuts.piece), (R, L, C))
                          for counts in (tall, tall > 0))
        yield Collective(sent, messages, "broadcast", R, tall[:, None, None, :] * layer, 0)
        yield reduce_scatter(rows_out[..., None] * width * itemsize, 1)


    def spooled(self, product: Product, itemsize: int, in_files: int,
                rule: Callable) -> np.ndarray:
        # Rows go to all ranks of a column, sums to the owners of their rows; blocks are read.
        row, piece, column = np.unravel_index(np.arange(self.num_ranks), self.shape)
        rows, rows_out, width = self._sizes(product, itemsize)
        reads = (piece[:, None] == piece) & (column[:, None] == column)
        found = rule(rows * width * reads, in_files, once=True)
        read = stored_bytes(self._blocks(product, itemsize), rule)[row]
        found[0] += (read * (self.directions[product.backward].cuts.piece == piece[:, None])).sum(1)
        if self.sums:
            sums = (row[:, None] == row) & (column[:, None] == column)
            found = found + rule((rows_out * width)[:, None] * sums, in_files)
        return found

    def held(self, product: Product, itemsize: int) -> SpoolMemory:
        # Sums of all layers.
        rows, rows_out, width = self._sizes(product, itemsize)
        big = rows_out.reshape(self.shape).sum(1).max() * self.sums
        largest = max(int(rows.max()), int(rows_out.max()) * self.sums)
        blocks = self._blocks(product, itemsize)
        return SpoolMemory(int(big * width.max()), int(largest * width.max()), int(blocks.max()))

    def _sizes(self, product: Product, itemsize: int) -> tuple[np.ndarray, ...]:
        """Return the rows of each rank of H and of the result, and the bytes of its rows."""
        layouts = self.layout_in, self.layout
        rows, rows_out = (np.repeat(np.diff(each.offsets), each.columns) for each in layouts)
        if product.backward:
            rows, rows_out = rows_out, rows
        return rows, rows_out, np.tile(np.diff(split(product.width, self.shape[2])) * itemsize,
                                       self.num_ranks // self.shape[2])

    def _blocks(self, product: Product, itemsize: int) -> np.ndarray:
        """Return the bytes of the blocks of A by big row block and stage, (R, S)."""
        blocks = self.directions[product.backward]
        n = int(blocks.layout_in.offsets[-1])
        return message_bytes(blocks.nonzeros, self.pieces(blocks.layout), itemsize, n)


class SummaPlan(Plan):
    """Plan of 2d and 3d: each rank stores the blocks of A that it broadcasts."""

    Traffic = SummaTraffic

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> SummaTraffic:
        # Blocks are counted from the pattern.
        shape = self.rank_grid.shape
        _, L, _ = cube = cube_of(shape)
        offsets = self.rank_grid.layout.offsets
        cuts = stages(offsets, *cube)
        big = offsets[::L]

        def direction(pattern: Pattern, layout: BlockLayout,
                      layout_in: BlockLayout) -> BroadcastBlocks:
            kept = cuts
            if pattern.rows_in is not None:
                kept = replace(cuts, offsets=compressed_offsets(cuts.offsets, pattern.rows_in))
            return BroadcastBlocks(layout, layout_in, kept, pattern.nonzeros(big, cuts.offsets))

        forward = backward = direction(self.pattern, *layouts)
        if not (self.pattern.symmetric and self.pattern.square):
            backward = direction(self.pattern.transposed, *layouts[::-1])
        return SummaTraffic(layouts, shape, (forward, backward))

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # A rank keeps the blocks that it sends, one for each stage of its layer.
        R, L, C = self.traffic.shape
        blocks = self.traffic.directions[pattern is not self.pattern]

        cuts = blocks.cuts
        rows = self.traffic.pieces(layout).reshape(R, L, 1)
        big = rows.sum(1, keepdims=True)

        holder = (cuts.piece * C + cuts.column)[:, None] == np.arange(L * C)
        entries = (blocks.nonzeros @ holder).reshape(R, L, C)
        full = ((blocks.nonzeros > 0).astype(np.int64) @ holder).reshape(R, L, C)

        results = big + rows * (L > 1)
        count = holder.sum(0).reshape(1, L, C).sum(2, keepdims=True)
        pointers = full * (big + 1)

        return Operand.of((R, L, C), entries, pointers, entries_read=entries.sum(2, keepdims=True),
                          results=results, blocks=count,
                          copied_pointers=np.maximum(count * (results + 1) - pointers, 0))

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Two buffers for blocks of A and intervals of H, and one for the sum over
        # layers.
        R, L, C = self.traffic.shape
        rows = self.traffic.pieces(self.layout)[..., None]
        big = rows.sum(1)[:, 0]

        cuts = self.traffic.directions[0].cuts
        heights = np.diff(cuts.offsets)
        tall, entries, pointers = (np.zeros((R, L, C), np.int64) for _ in range(3))

        # the largest block of each buffer, on each rank
        for piece in range(L):
            own_stages = np.flatnonzero(cuts.piece == piece)
            for turn in (own_stages[::2], own_stages[1::2]):
                for i in range(R):
                    tall[i, piece] += heights[turn[cuts.row[turn] != i]].max(initial=0)
                for j in range(C):
                    moved = turn[cuts.column[turn] != j]
                    most = np.max([blocks.nonzeros[:, moved].max(1, initial=0)
                                   for blocks in dict.fromkeys(self.traffic.directions)], axis=0)
                    entries[:, piece, j] += most
                    pointers[:, piece, j] += np.where(most > 0, big + 1, 0)

        if L > 1:
            tall += big.reshape(R, 1, 1) + (L - 1) * rows
        part = -(-width // C)
        return (tall * part * itemsize + entries * (INDEX + itemsize) + pointers * POINTER).ravel()

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Blocks as they are read, cut and packed.
        _, L, C = self.traffic.shape
        forward = self.operands[0]
        held, transposes = self.kept_bytes(itemsize)
        rows = self.of_big_rows(forward.entries, L * C)
        chunk = self.chunk_bytes(rows // np.maximum(forward.blocks, 1), forward.entries / rows)
        again = (held + transposes + chunk) * (len(self.stored_operands) > 1)
        twice = held * (TWICE_LAYERS if L > 1 else TWICE)
        filling = self.read_chunk_bytes(held, rows)
        return self.degree_bytes() + np.maximum.reduce([filling, twice, again])


def block_bytes(nonzeros: np.ndarray, rows: np.ndarray, columns: int, itemsize: int,
                n: int) -> np.ndarray:
    """Return the bytes of the message of each block of A, (R, S); 0 for an empty block.

    `nonzeros`: (R, S) entries of the blocks. `rows`: (R, L) rows in each piece of each
    big block. `columns`: C; with C = 1 A is not sent. `n`: number of columns of A.
    """
    return message_bytes(nonzeros, rows, itemsize, n) * (columns > 1)


def message_bytes(nonzeros: np.ndarray, rows: np.ndarray, itemsize: int, n: int) -> np.ndarray:
    """Return the bytes of packed blocks of A, (R, S); parameters as `block_bytes`."""
    pointers = (rows.sum(1, keepdims=True) + 1) * POINTER_BYTES
    return np.where(nonzeros > 0, pointers + nonzeros * (itemsize + index_dtype(n).itemsize), 0)


def gathered(counts: np.ndarray, places: tuple[np.ndarray, np.ndarray],
             shape: tuple[int, ...]) -> np.ndarray:
    """Sum `counts` by the grid positions of the ranks that send them.

    `counts` has a row for each stage.
    """
    sums = np.zeros(shape, np.int64)
    np.add.at(sums, places, counts)
    return sums

"""Strategy `vertex-cut` with delayed sums: `--delay r` or `--delay none`. Approximate.

A rank has copies of all vertices in whose row or column it holds a nonzero. It computes
all layers for them: its own rows first, then replicas. Let A_loc be the nonzeros that
ranks hold, on the rows of all copies. Let C be the sum over the copies of a vertex,
given to all of them,

    exact        Z = C A_loc H, dH = A_loc^T C G: of evaluations, and of an A X formed once
    cd-r         the same with sums C' that have old parts of other ranks: of training steps
    0c (none)    Z = A_loc H, dH = A_loc^T G: of training steps, which send no rows at all

Values of A are those of the whole matrix. The loss is of own rows only. Gradients of
weights are sums over all copies, each of which has its share of the gradient. With an
exact C the sums are the gradients of one rank. Dropout is keyed by the original vertex,
and so alike on all copies.

As in Algorithm 4 of distgnn-2021, one bin of r is sent in each step. Owners use its
sums r steps later, replicas 2r steps later, in that one step. Split vertices of other
bins have local sums only. Two things are decided here. In the paper, a replica replaces
its sum by an old total. Here it adds the sum of the others to its own share, which is
never old. The paper does not describe the backward. Its program sends none of it, but
lets each replica have a loss of its own, so that a split vertex counts several times.
Here the loss is of own rows only, and gradients are summed up over copies by the same
delays. Using received sums until they are replaced was tried. With delayed gradients
runs then diverge; without them accuracy falls in the long run (docs/adr/0010).

Unread rows are not left out. Memory: A on copies; X and activations of replicas. For
each product with A, and with A^T, two pairs of message buffers for all replicas and
owners.

Source: distgnn-2021, section 5.3.
"""
from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.halo_plan import needs
from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.replicas import (
    DelayedSum,
    ReplicaExchange,
    WholeSum,
    assign_bins,
    with_replicas,
)
from hpgcn.parallel.sizes import ExchangeSizes, gather_tables, pair_table
from hpgcn.parallel.transfers import LOCAL, OwnRows
from hpgcn.parallel.workspace import Workspace
from hpgcn.strategies.nonzeros import HELD, READ, ROW, held_nonzeros
from hpgcn.strategies.p2p import halo_plan, local_numbers
from hpgcn.strategies.plan import WEIGHT, Operand, Plan, Traffic
from hpgcn.strategies.rows import RowProduct, RowStrategy
from hpgcn.strategies.strategy import product_name
from hpgcn.strategies.vertex_cut import VertexCut, VertexCutPlan

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.parallel.pattern import Pattern
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.plan import Product, RankGrid
    from hpgcn.strategies.strategy import Strategy, StrategyOptions

MONITORED_STEPS = 5  # least number of training steps that are compared with exact ones


class DelayedTraffic(Traffic):
    """Traffic of r consecutive training steps.

    Each step sends the sums of one bin of vertices. `delay` is r, 0 if sums are exact,
    or None if nothing is sent. `bins` lists the ExchangeSizes of the bins.
    """

    def __init__(self, layouts: tuple[BlockLayout, ...], delay: int | None, bins: list) -> None:
        super().__init__(layouts)
        self.delay = delay
        self.bins = bins

    @property
    def period(self) -> int:
        return max(self.delay or 0, 1)

    def calls(self, product: Product, itemsize: int) -> Iterator:
        if self.delay is None:
            return
        row_bytes = product.width * itemsize
        for sizes in self.bins:
            yield from sizes.push(row_bytes)
            yield from sizes.pull(row_bytes)


class DelayedPlan(Plan):
    """Plan of a vertex cut whose ranks store the rows of all their copies of vertices.

    Attributes
    ----------
    vertices : (rows,) int64
        Vertex of which each row of `layout` is a copy, in the distributed order.
    """

    Traffic = DelayedTraffic

    @property
    def delay(self) -> int | None:
        """Number of steps by which sums are late (r), or None if none are sent."""
        return self.rank_grid.options["delay"]

    @classmethod
    def of(cls, pattern: Pattern, rank_grid: RankGrid) -> Plan:
        # The holders are put into the pattern.
        return cls(pattern.assign_holders(VertexCutPlan.holders(pattern, rank_grid)), rank_grid)

    def make_traffic(self, layouts: tuple[BlockLayout, ...]) -> DelayedTraffic:
        # Find the replicas and the owners of all copies.
        pattern = self.pattern
        layout = self.rank_grid.layout
        owner = layout.row_blocks
        k = layout.size

        # pairs of a vertex and a rank that has a replica of it
        pairs = np.unique(np.concatenate([
            (lines * k + pattern.holders)[owner[lines] != pattern.holders]
            for lines in (pattern.rows, pattern.indices.astype(np.int64))]))
        vertex, rank = pairs // k, pairs % k

        # replicas are exchanged in turns
        _, turn = np.unique(vertex, return_inverse=True)
        count = self.delay or 1
        chosen = [turn % count == number for number in range(count)]
        bins = [ExchangeSizes(pair_table(owner[vertex[each]], rank[each], k)) for each in chosen]

        self.replicas = np.bincount(rank, minlength=k)
        self.sent = np.bincount(owner[vertex], minlength=k)

        # own rows first, then replicas
        copies = np.concatenate([np.arange(owner.size), vertex])
        holder = np.concatenate([owner, rank])
        self.vertices = copies[np.lexsort((copies, owner[copies] != holder, holder))]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(holder, minlength=k))])
        return self.Traffic((BlockLayout(offsets, 1, layout.rank),) * 2, self.delay, bins)

    def operand(self, pattern: Pattern, layout: BlockLayout) -> Operand:
        # One block, of all copies.
        rows = np.diff(self.layout.offsets)
        plans = 2 if self.delay else 1  # plans of all replicas, and of bins
        index_entries = (self.sent + 2 * self.replicas) * plans
        return Operand.of(rows.shape, np.bincount(pattern.holders, minlength=self.num_ranks),
                          rows + 1, index_entries=index_entries, results=rows)

    def adjoint(self, forward: Operand) -> Operand:
        return dataclasses.replace(forward, index_entries=np.zeros_like(forward.index_entries))

    def buffer_bytes(self, width: int, itemsize: int) -> np.ndarray:
        # Buffers of exact sums, and of gradients with the sums added to them.
        totals = self.rows() * (self.delay is not None)
        return (self.sent + self.replicas + totals) * width * itemsize

    def persistent_bytes(self, product: Product, itemsize: int) -> np.ndarray:
        # Messages up and down, as they were sent and as they arrive.
        if not self.delay:
            return super().persistent_bytes(product, itemsize)
        return 2 * (self.sent + self.replicas) * product.width * itemsize

    def read_peak_bytes(self, itemsize: int) -> np.ndarray:
        # Own rows as they are read, nonzeros in transit, then one block.
        read = np.diff(self.pattern.indptr[self.rank_grid.layout.offsets])
        held, transposed = self.kept_bytes(itemsize)
        entry = READ + WEIGHT * self.pattern.weighted
        return (read * entry + self.operands[0].entries * HELD + held + transposed
                + self.rows() * ROW)


class DelayedVertexCut(RowStrategy):
    """Strategy `vertex-cut` with a delay.

    Products are exact, except those of maps that `training_map` returns.

    Parameters
    ----------
    rank_grid : hpgcn.strategies.plan.RankGrid
        Grid and owners of rows; each row has one owner.
    layout : hpgcn.parallel.layout.BlockLayout
        Layout of the rows of all copies.
    product : RowProduct
        Product with the nonzeros that this rank holds, without messages.
    replicas : hpgcn.parallel.halo_plan.HaloPlan
        Plan of the exchange between all replicas and their owners.
    """

    name = VertexCut.name
    Plan = DelayedPlan
    options = VertexCut.options
    accepts_partition = requires_partition = accepts_nonzero_owners = True
    method = VertexCut.method
    supports_pruning = False
    num_monitored_steps = MONITORED_STEPS

    def __init__(self, rank_grid: RankGrid, layout: BlockLayout, comm: SerialComm,
                 product: RowProduct, replicas: Any, dtype: DTypeLike, *, symmetric: bool) -> None:
        super().__init__(layout, layout, comm, product, symmetric=symmetric)
        self.rank_grid = rank_grid
        self.replicas = replicas
        self.delay = rank_grid.options["delay"]
        self.num_monitored_steps = max(2 * (self.delay or 0), MONITORED_STEPS)
        self.bins = assign_bins(replicas, self.delay, comm) if self.delay else []
        here = comm.device.put(np.arange(replicas.layout.num_rows, product.num_rows))
        whole = WholeSum(ReplicaExchange(replicas, here, comm, dtype))
        # sums of products with A, and with A^T; empty: nothing is added up
        self.sums = [whole, whole]
        self.workspace = Workspace(dtype, comm.device)  # totals that A^T multiplies
        self.trained = []  # maps of training steps

    @classmethod
    def title(cls, options: StrategyOptions) -> str:
        delay = _steps(options)
        return f"{cls.name} 0c" if delay is None else f"{cls.name} cd-{delay}"

    @classmethod
    def own_options(cls, options: StrategyOptions, device: Host) -> dict:
        return {"delay": _steps(options)}

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Strategy:
        rows = rank_grid.layout.rows
        i, j, values = held_nonzeros(adjacency, rank_grid, comm, VertexCut.holders)

        # own rows first, then replicas
        ghosts = np.union1d(needs(i, rows), needs(j, rows))
        places = local_numbers(i, ghosts, rows), local_numbers(j, ghosts, rows)
        copies = rows.num_rows + ghosts.size
        matrix = sp.csr_array((values, places), shape=(copies, copies))
        del i, j, values, places

        product = RowProduct({LOCAL: {LOCAL: Csr.of(matrix, comm.device)}}, OwnRows(), OwnRows(),
                             copies)
        layout = BlockLayout(run_offsets(comm.allgather(copies)), 1, comm.rank)
        strategy = cls(rank_grid, layout, comm, product, halo_plan(rows, ghosts, comm),
                       adjacency.dtype, symmetric=adjacency.symmetric)

        strategy.reserve(width)
        return strategy

    def replicate_slab(self, slab: Graph) -> Graph:
        # Only own rows have masks.
        arrays = {name: with_replicas(array, self.replicas, self.comm)
                  for name in ("features", "labels", "targets", "vertex", "original_ids")
                  if (array := getattr(slab, name)) is not None}
        none = np.zeros(self.replicas.ghosts.size, bool)
        masks = slab.masks and {key: np.concatenate([mask, none])
                                for key, mask in slab.masks.items()}
        return dataclasses.replace(slab, masks=masks, **arrays)

    def training_map(self, *widths: int) -> Strategy:
        if self.delay == 0:
            return self
        made = copy.copy(self)
        made.parent = self
        made.sums = [DelayedSum(self.bins, width, self.comm, self.workspace.dtype)
                     for width in widths if self.delay]
        self.trained.append(made)
        return made

    def forward(self, H: Array, *, mask: Array | None = None,
                out: Array | None = None) -> Array:
        if not self.sums:
            return self.multiply("product", H, mask=mask, out=out)
        out = self.multiply("product", H, out=out)
        self.sums[0].add(out, product_name(self.comm.clock))
        if mask is not None:
            with self.comm.clock("spmm"):
                kernels.backend(out).apply_mask(out, mask)
        return out

    def backward(self, G: Array, *, mask: Array | None = None,
                 out: Array | None = None) -> Array:
        # G is left as it is.
        if self.sums:
            totals = self.workspace.buffer("totals", *G.shape)
            repeat(operator.setitem, totals, ALL, G)
            self.sums[1].add(totals, product_name(self.comm.clock))
            G = totals
        return self.multiply("back", G, mask=mask, out=out)

    def reserve(self, width: int) -> None:
        self.sums[0].reserve(width)
        if self.delay is not None:
            self.workspace.flat("totals", self.product.num_rows * width)

    def traffic(self) -> Traffic:
        plans = [plan for plan, _ in self.bins] or [self.replicas]
        bins = [ExchangeSizes(*tables) for tables in gather_tables(self.comm, *plans)]
        return self.Plan.Traffic((self.layout, self.layout), self.delay, bins)

    def persistent_arrays(self) -> list:
        return [array for each in self.sums for array in each.persistent_arrays()]

    def resume_at_step(self, steps: int) -> None:
        for each in self.sums:
            each.step = steps

    @property
    def buffer_bytes(self) -> int:
        if self.parent:
            return sum(each.nbytes for each in self.sums)
        return (self.sums[0].nbytes + self.workspace.nbytes
                + sum(each.buffer_bytes for each in self.trained))

    def close(self) -> None:
        for each in self.sums:
            each.close()


def _steps(options: StrategyOptions) -> int | None:
    """Return the number of steps of the setting `delay`, or None if nothing is sent."""
    steps = options.config.delay.rpartition(":")[2]
    return None if steps == "none" else int(steps)

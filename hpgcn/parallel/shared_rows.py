"""The dense steps of ranks that share rows, each with its own columns.

They are products with W, and gradients, written once for all layouts. Gradients of
weights are partial sums over this rank's rows until all of them are reduced together.
"""
from __future__ import annotations

import operator
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.layout import split
from hpgcn.parallel.spooled_exchange import (
    add_parts,
    arriving,
    count_call,
    next_turn,
    send_part,
    send_rows,
)
from hpgcn.parallel.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.parallel.layout import BlockLayout

PACKED = "packed"  # name of the work array of rows to send, or that were received


class SharedRows:
    """The dense steps of C ranks that share rows.

    Each rank has its own columns. With C = 1 nothing is sent. T and H are distributed
    by `layout`, W and b are on every rank. Names: f columns in, f' out; f_j, f'_j this
    rank's.
    """

    def __init__(self, layout: BlockLayout, comm: SerialComm,
                 dtype: DTypeLike = np.float32) -> None:
        self.layout = layout
        self.comm = comm
        self.device = comm.device
        self.row = comm.group(layout.row_ranks.tolist())
        self.column = comm.group(layout.column_ranks.tolist())
        self.workspace = Workspace(dtype, comm.device)
        self.of = cache(layout.columns_of)  # slice of a width that this rank owns

    def width(self, width: int) -> int:
        """Return the columns that this rank owns of `width` columns."""
        columns = self.of(width)
        return columns.stop - columns.start

    def linear(self, T: Array, W: Array, out: Array | None = None) -> Array:
        """Return T W, (m, f'_j), for T (m, f_j) and W (f, f').

        Partial products are summed over ranks.
        """
        ops = kernels.backend(W)
        multiply = partial(ops.matmul, T)
        if isinstance(T, Csr):
            multiply = partial(ops.spmm, T.indptr, T.indices, T.data)
        if self.row.size == 1:
            return multiply(W, out)

        # multiply by the columns of each rank, packed one after another
        W = W[self.of(W.shape[0])]
        m = T.shape[0]
        if out is None:
            out = self.device.empty((m, self.width(W.shape[1])), W.dtype)
        cuts = split(W.shape[1], self.row.size)
        if self.row.spool is not None:
            self._sum_by_spool(multiply, W, cuts, out)
            return out
        packed = self.workspace.flat(PACKED, m * W.shape[1], W.dtype)
        with self.comm.clock("dense", part="gemm"):
            for first, last in pairwise(cuts.tolist()):
                part = derived(self.device.xp.ascontiguousarray, W[:, first:last])
                multiply(part, packed[m * first:m * last].reshape(m, last - first))

        # sum the partial products; each rank receives its columns
        work = self.workspace.flat("whole", (self.row.size - 1) * out.size, W.dtype)
        counts = (m * np.diff(cuts)).tolist()
        handle = self.row.start_reduce_scatter(packed, out.reshape(-1), counts, "dense", work=work)
        handle.wait("a dense product")
        return out

    def _sum_by_spool(self, multiply: Callable, W: Array, cuts: np.ndarray, out: Array) -> None:
        """Send the products with the columns of each rank to it; write the sum of own ones."""
        row, sizes = self.row, {}
        for target, (first, last) in enumerate(pairwise(cuts.tolist())):
            part = derived(self.device.xp.ascontiguousarray, W[:, first:last])
            shape = len(out), last - first
            sizes[target] = shape[0] * shape[1] * W.itemsize
            with self.comm.clock("dense", part="gemm"):
                send_part(row, [target], shape, W.dtype, partial(multiply, part))
        count_call(row, sizes, sums=True, kind="dense")
        sources = [*range(row.size)] if out.size else []
        next_turn(row, sources, "a dense product", "sum")
        add_parts(row, sources, out, "a dense product")

    def gathered(self, G: Array, width: int) -> Array:
        """Gather all columns, (m, f'), of G, (m, f'_j).

        Each rank that shares the rows has a part. The result is valid until the next
        call.
        """
        if self.row.size == 1:
            return G
        m = G.shape[0]
        cuts = split(width, self.row.size)
        parts = (self._gathered_by_spool if self.row.spool else self._gathered)(G, cuts)
        whole = self.workspace.buffer("whole", m, width, G.dtype)
        self.device.discard(whole)
        for part, first, last in zip(parts, cuts.tolist(), cuts[1:].tolist()):
            repeat(operator.setitem, whole, (ALL, slice(first, last)), part)
        return whole

    def _gathered(self, G: Array, cuts: np.ndarray) -> list[Array]:
        """Return the columns of G of each rank."""
        m = len(G)
        packed = self.workspace.flat(PACKED, m * int(cuts[-1]), G.dtype)
        counts = (m * np.diff(cuts)).tolist()
        self.row.start_allgather(G.reshape(-1), packed, counts, "dense").wait("a dense gradient")
        return [packed[m * first:m * last].reshape(m, last - first)
                for first, last in pairwise(cuts.tolist())]

    def _gathered_by_spool(self, G: Array, cuts: np.ndarray) -> Iterator[Array]:
        """Yield the columns of G of each rank, valid until the next ones."""
        ranks = [*range(self.row.size)]
        send_rows(self.row, ranks, G)
        count_call(self.row, dict.fromkeys(ranks, G.nbytes), kind="dense")
        full = np.flatnonzero(np.diff(cuts) * len(G)).tolist()
        next_turn(self.row, full, "a dense gradient", "sum")
        received = arriving(self.row, full, "a dense gradient")
        for rank in ranks:
            yield next(received)[1] if rank in full else G[:, :0]
        next(received, None)  # lets go of the last one

    def reduce(self, gradient: Parameters) -> None:
        """Sum the gradients of all hpgcn.model.Parameters over ranks, in place.

        Each rank has the sums over its rows for W[its columns, :] and b[its columns].
        They are summed over the ranks that share these columns. Then each rank collects
        the sums for all other columns.
        """
        if self.row.size == 1:
            self.comm.allreduce(gradient.shared, "weights")
            return

        # divide each array among the ranks that share rows
        arrays = [*gradient.weights, *gradient.biases]
        cuts = [split(array.shape[0], self.row.size) for array in arrays]
        blocks = [[array[cut[j]:cut[j + 1]] for array, cut in zip(arrays, cuts)]
                  for j in range(self.row.size)]

        # sum the own blocks over the column, then collect those of the row
        accessed((gradient.flat,))
        own_blocks = np.concatenate([block.ravel() for block in blocks[self.row.rank]])
        self.column.allreduce(own_blocks, "weights")
        sizes = [sum(block.size for block in part) for part in blocks]
        every = self.device.empty(sum(sizes), own_blocks.dtype)
        self.row.start_allgather(own_blocks, every, sizes, "weights").wait("gradients of weights")

        accessed((every,), (gradient.flat,))
        first = 0
        for part in blocks:
            for block in part:
                block[...] = every[first:first + block.size].reshape(block.shape)
                first += block.size

    def close(self) -> None:
        """Free the communicators."""
        self.row.close()
        self.column.close()

"""Sums of messages that read edge features: out_i = sum over (i, j) of relu(x_j + e_ij W + b).

The sum is linear in its messages, so rows are pulled and partial sums are pushed as in
a product with A. A rank stores the features of its own entries, which it never sends.
The values of its blocks are rows of these features. The backward runs along the
transpose: the rank that holds entry (i, j) pulls the gradient of row i and pushes that
of row j. It also adds up its part of the gradients of W and b. For these it keeps the
rows that it pulled in the forward pass.

Source: Hu et al. 2020; distgnn-2021, section 3 (the aggregation primitive).
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.strategies.rows import RowStrategy


class RowMessages:
    """Messages along the entries of a RowStrategy, for one layer."""

    def __init__(self, strategy: RowStrategy, dtype: DTypeLike) -> None:
        self.strategy = strategy
        self.features = strategy.edge_features
        self.work = Workspace(dtype, strategy.comm.device)  # rows that the backward reads

    @property
    def arrays(self) -> list:
        """Arrays stored between steps."""
        return list(self.work.arrays.values())

    def forward(self, H: Array, W: Array, b: np.ndarray, out: Array, *,
                keep: bool = False) -> tuple[np.ndarray, Callable]:
        """Return the sums (m, f) for H (m_in, f), and a function for the backward pass.

        `W`, `b`: (d, f) and (f,). The sums are written to `out`. The function takes
        their gradient and an array for the gradient of H; it returns that of H, and
        those of W and b, float64. It may be called only if `keep`.
        """
        rows = {}  # rows of H by source
        edge_relu = kernels.backend(H).edge_relu

        def sum_tile(target: int, source: int, block: Csr, X: Array, lo: int, hi: int,
                     indptr: np.ndarray, Z: Array, *, accumulate: bool) -> None:
            if keep and source not in rows:
                rows[source] = X if X is H else self._copy(source, X)
            edge_relu(indptr, block.indices, block.data, X, self.features, W, b, Z,
                      accumulate=accumulate)

        out = self.strategy.multiply("product", H, out=out, kernel=sum_tile)
        return out, partial(self._backward, rows, W, b)

    def _copy(self, source: int, X: Array) -> np.ndarray:
        kept = self.work.buffer(f"rows {source}", *X.shape)
        repeat(operator.setitem, kept, ALL, X)
        return kept

    def _backward(self, rows: dict[int, np.ndarray], W: Array, b: np.ndarray, G: Array,
                  out: Array) -> tuple[np.ndarray, ...]:
        edge_relu_backward = kernels.backend(G).edge_relu_backward
        sums = [derived(self.work.device.xp.zeros, each.shape) for each in (W, b)]

        def return_tile(target: int, source: int, block: Csr, X: Array, lo: int, hi: int,
                        indptr: np.ndarray, Z: Array, *, accumulate: bool) -> None:
            _, *parts = edge_relu_backward(
                indptr, block.indices, block.data, rows_of(rows[target], lo, hi), self.features,
                W, b, X, Z, accumulate=accumulate)
            for total, part in zip(sums, parts):
                repeat(operator.iadd, total, part)

        out = self.strategy.multiply("back", G, out=out, kernel=return_tile)
        self.work.device.discard(*self.arrays)
        return out, *sums

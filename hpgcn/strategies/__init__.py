"""Ways of computing A H in parallel: one file each. They are interchangeable and change nothing but rounding."""
from __future__ import annotations

from typing import Protocol

import numpy as np

from hpgcn.cost import Map
from hpgcn.layout import Grid
from hpgcn.strategies.mop import MixtureOfParallelism
from hpgcn.strategies.one_and_a_half_d import OneAndAHalfD
from hpgcn.strategies.one_d import OneD
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.summa import ThreeD, TwoD

STRATEGIES = {"p2p": PointToPoint, "1d": OneD, "1.5d": OneAndAHalfD, "2d": TwoD, "3d": ThreeD,
              "mop": MixtureOfParallelism}


class Strategy(Protocol):
    """The linear map A-hat, and its transpose, on distributed dense matrices.

    Built from (source, grid, comm, norm="sym" | "row" | "none", self_loops, dtype, max_width, slab, axes), by all
    ranks.
    `source` is the whole graph, in memory or in a file, of which a rank reads what it must hold; `slab` are the rank's
    own rows where they were read already; `max_width` is the widest H, over all columns; `axes` the grid as hpgcn.cost
    has it.

    Attributes
    ----------
    layout : Grid
        Who owns which element of A H and of G; each has exactly one owner.
    layout_in : Grid
        Who owns which element of H and of A^T G: `layout`, unless the map is restricted.
    """

    layout: Grid
    layout_in: Grid

    def forward(self, H: np.ndarray, *, layer: int, mask: np.ndarray | None = None,
                out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's block of A H.

        Parameters
        ----------
        H : (m_in, f_j), C order
        layer : int
            For messages about waiting.
        mask : (m, ceil(f_j / 8)) uint8, optional
            Bits of the result to keep (S-SpMM).
        out : (m, f_j), optional
            Receives the result, C order; must not be H.

        Returns
        -------
        (m, f_j)
        """

    def backward(self, G: np.ndarray, *, layer: int, mask: np.ndarray | None = None,
                 out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's block of A^T G, (m_in, f_j), of G (m, f_j); parameters as `forward`."""

    def restrict(self, rows_out: np.ndarray, rows_in: np.ndarray) -> Strategy:
        """Return the map A[rows_out][:, rows_in], with its own plan; all ranks call this together.

        Its rows and columns are numbered anew without gaps, and owned by the ranks that own them here. It uses this
        strategy's buffers: no two products may be under way at once, and it is closed first.

        Parameters
        ----------
        rows_out, rows_in : (n,) bool
            Over all rows in the distributed order, equal on all ranks.
        """

    def costs(self) -> Map:
        """What a product with A, and one with A^T, of any width depend on (collective)."""

    def close(self):
        """Free what MPI holds."""


__all__ = ["STRATEGIES", "Strategy"]

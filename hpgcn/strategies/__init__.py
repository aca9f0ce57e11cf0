"""Ways of computing A H in parallel: one file each. They are interchangeable and change nothing but rounding."""
from __future__ import annotations

from typing import Protocol

import numpy as np

from hpgcn.layout import Layout
from hpgcn.strategies.p2p import PointToPoint

STRATEGIES = {"p2p": PointToPoint}


class Strategy(Protocol):
    """The linear map A-hat, and its transpose, on distributed dense rows.

    Built from (graph slab, layout, comm, norm="sym" | "none", self_loops).
    """

    layout: Layout

    def forward(self, H: np.ndarray, *, layer: int, mask: np.ndarray | None = None,
                out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's rows of A H; `mask` (bits) applies to the result."""

    def backward(self, G: np.ndarray, *, layer: int, mask: np.ndarray | None = None,
                 out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's rows of A^T G; `mask` (bits) applies to the result."""


__all__ = ["STRATEGIES", "Strategy"]

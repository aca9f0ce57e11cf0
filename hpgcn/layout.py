"""Which block of a distributed matrix lives on which rank (pure: no MPI, no files)."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows cut into contiguous blocks, one a rank; every element has exactly one owner.

    Attributes
    ----------
    offsets : (P + 1,) int64
        Rank p owns rows [offsets[p], offsets[p + 1]); blocks may be empty.
    rank : int
        This rank.
    """

    offsets: np.ndarray
    rank: int

    @property
    def size(self):
        """Number of ranks (P)."""
        return self.offsets.size - 1

    @property
    def start(self):
        """First row owned by this rank."""
        return int(self.offsets[self.rank])

    @property
    def stop(self):
        """One past the last row owned by this rank."""
        return int(self.offsets[self.rank + 1])

    @property
    def num_rows(self):
        """Rows owned by this rank (m)."""
        return self.stop - self.start

    def owner(self, rows):
        """Rank that owns each of some rows, (r,) int64; empty blocks own nothing."""
        return np.searchsorted(self.offsets, rows, side="right") - 1

"""Exchange between ranks that share rows: some columns of all rows to all columns of some rows.

A layout of C column blocks gives C ranks the same rows. The work after a product may
need whole rows, as in a model that a user writes. Each of the C ranks then takes a
share of the rows, with all columns. The C ranks exchange pieces before and after.
"""
from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.parallel.layout import split

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.layout import BlockLayout



class RowRedistribution:
    """The exchange between all rows with own columns and own rows.

    Own rows are a share of the rows, with all columns. With C = 1 the share has all
    rows, and nothing is exchanged.
    """

    def __init__(self, layout: BlockLayout, comm: SerialComm) -> None:
        self.layout = layout
        self.device = comm.device
        self.row = comm.group(layout.row_ranks.tolist())
        self.cuts = split(layout.rows.num_rows, layout.columns)
        self.own = slice(*self.cuts[layout.column:layout.column + 2].tolist())

    def to_columns(self, H: np.ndarray) -> np.ndarray:
        """Convert this rank's rows to all rows with own columns.

        H has all columns, (m_j, f). The result is (m, f_j).
        """
        if self.row.size == 1:
            return H
        xp = self.device.xp
        place = split(H.shape[1], self.row.size)
        width = int(place[self.row.rank + 1] - place[self.row.rank])
        send = xp.concatenate([H[:, first:last].ravel() for first, last in pairwise(place)])
        out = self.device.empty((self.layout.rows.num_rows, width), H.dtype)
        self._exchange(send, len(H) * np.diff(place), out, np.diff(self.cuts) * width)
        return out

    def to_rows(self, T: np.ndarray, width: int) -> np.ndarray:
        """Convert all rows with own columns to this rank's rows.

        T is (m, f_j), the result (m_j, f).
        """
        if self.row.size == 1:
            return T
        place = split(width, self.row.size)
        rows = self.own.stop - self.own.start
        received = self.device.empty(rows * width, T.dtype)
        self._exchange(T, np.diff(self.cuts) * T.shape[1], received, rows * np.diff(place))
        out = self.device.empty((rows, width), T.dtype)
        for first, last in pairwise(place.tolist()):
            out[:, first:last] = received[rows * first:rows * last].reshape(rows, last - first)
        return out

    def _exchange(self, send: np.ndarray, sizes: np.ndarray, out: np.ndarray,
                  arriving: np.ndarray) -> None:
        self.row.start_alltoall(send.reshape(-1), sizes.tolist(), out.reshape(-1),
                                arriving.tolist(), "dense").wait("whole rows of a matrix")

    def close(self) -> None:
        """Free the communicator; all ranks call this together."""
        self.row.close()

"""Count the additions of a masked product (S-SpMM) whose results its mask sets to 0."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.kernels.host.accesses import writes
from hpgcn.kernels.host.record import repeat

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array

ONES = np.array([bin(byte).count("1") for byte in range(256)], np.int64)


def count_masked(comm: SerialComm, indptr: np.ndarray, bits: Array | None, width: int,
                 rows: Array | None = None) -> None:
    """Count the additions that a mask makes needless, in the counters of `comm`.

    For each number of the result whose bit is 0 they are the entries of its row. On a
    GPU nothing waits for the sum.

    Parameters
    ----------
    indptr : (m + 1,) int64
        Row pointers of the matrix that is multiplied.
    bits : (m, ceil(width / 8)) uint8, or None
        The mask; None: nothing is counted.
    rows : (r,) int64, optional
        Numbers of the rows that have entries; others may be left out.
    """
    if bits is not None:
        repeat(_count, comm, indptr, bits, width, rows)


@writes(0)  # it changes counters
def _count(comm: SerialComm, indptr: np.ndarray, bits: Array, width: int,
           rows: Array | None) -> None:
    entries = indptr[1:] - indptr[:-1]
    if rows is not None:
        entries, bits = entries[rows], bits[rows]
    ones = ONES if isinstance(bits, np.ndarray) else comm.device.put(ONES)
    comm.counters.masked_additions += entries @ (width - ones[bits].sum(axis=1))

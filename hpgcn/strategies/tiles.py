"""Rows of a product in tiles: between two of them a rank looks at its messages, which move only within MPI's calls."""
from __future__ import annotations

from itertools import pairwise

import numpy as np

TILES = 8  # a product is multiplied in about as many, while messages are under way


def tiles(indptr, count):
    """Cut rows in at most `count` tiles of about equal nonzeros; pairs (first row, row after the last).

    Parameters
    ----------
    indptr : (m + 1,) integers
        Row pointers, which need not begin at 0; not read for one tile.
    count : int
    """
    if count == 1:
        return [(0, indptr.size - 1)]
    first, total = indptr[0], indptr[-1] - indptr[0]
    inner = np.searchsorted(indptr, first + total * np.arange(1, count) // count)
    return pairwise([0, *inner.tolist(), indptr.size - 1])


def rows_of(array, first, last):
    """Rows [first, last) of an array, the array itself where these are all; None of None.

    Kernels on a GPU know an array of row pointers again, and not a part of it that is made anew for each product.
    """
    return array if array is None or (first, last) == (0, len(array)) else array[first:last]

"""Select the cheapest partial sums up to a number of entries, without sorting all."""
import numpy as np

from hpgcn.kernels.jit import jit


@jit()
def select_cheapest(price, row, number, size, most, whole):
    """Move the cheapest sums to the front of the arrays, and return their number.

    Sums of the same price are chosen by row, then by number. The front has each sum
    before which, in this order, there are fewer than `most` entries. If `whole`, the
    entries of the sum itself may not exceed `most` either.

    Parameters
    ----------
    price : (n,) float64
    row, number, size : (n,) integers
        Row, number and positive number of entries of each sum. No number occurs twice.
    most : int
    whole : bool
    """
    first, last = 0, price.size
    before = np.int64(0)  # entries of the sums in front of `first`
    draw = np.uint64(1)
    while first < last:
        # the pivot is drawn: no pattern in the prices then makes every step short
        draw = draw * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        pivot = first + np.int64(draw >> np.uint64(33)) % (last - first)
        _swap(price, row, number, size, pivot, last - 1)
        pivot = last - 1

        # sums that come before the pivot
        middle = first
        cheaper = np.int64(0)
        for i in range(first, pivot):
            if _precedes(price, row, number, i, pivot):
                cheaper += size[i]
                _swap(price, row, number, size, i, middle)
                middle += 1
        _swap(price, row, number, size, middle, pivot)

        # the front ends before the pivot or behind it
        if before + cheaper + (size[middle] if whole else 1) <= most:
            before += cheaper + size[middle]
            first = middle + 1
        else:
            last = middle
    return first


@jit(forceinline=True)
def _precedes(price, row, number, i, j):
    if price[i] != price[j]:
        return price[i] < price[j]
    if row[i] != row[j]:
        return row[i] < row[j]
    return number[i] < number[j]


@jit(forceinline=True)
def _swap(price, row, number, size, i, j):
    price[i], price[j] = price[j], price[i]
    row[i], row[j] = row[j], row[i]
    number[i], number[j] = number[j], number[i]
    size[i], size[j] = size[j], size[i]

"""Check row pointers and column numbers: whole arrays on all threads, or a range of rows."""
from collections import deque

import numpy as np

from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import run_on_all_threads, worth_threads

BLOCK = 1 << 19  # numbers in a block, which one thread reads


def largest(numbers: np.ndarray) -> int:
    """Return the largest number of an array of unsigned integers, found on all threads."""
    numbers = np.ascontiguousarray(numbers).reshape(-1)
    if not worth_threads(numbers.size // 2):  # NumPy reads several at once
        return int(numbers.max())
    blocks = deque(range(0, numbers.size, BLOCK))
    tops = []

    def scan_blocks() -> None:
        while True:
            try:
                first = blocks.popleft()
            except IndexError:
                return
            tops.append(int(numbers[first:first + BLOCK].max()))

    run_on_all_threads(scan_blocks)
    return max(tops)


@jit(forceinline=True)
def invalid_rows(starts, stops, columns, first, beyond, last):
    """Return whether rows [first, beyond) have decreasing pointers or columns not in 0..last.

    Columns and `last` are unsigned, so that a negative column is among the largest.
    """
    low, high = np.int64(starts[first]), np.int64(stops[beyond - 1])
    invalid = False
    for i in range(np.uint64(first), np.uint64(beyond)):  # without `break`: vector code
        invalid |= stops[i] < starts[i]
    if invalid or low < 0 or high > columns.size:
        return True
    most = last
    for k in range(np.uint64(low), np.uint64(high)):
        most = max(most, columns[k])
    return most > last

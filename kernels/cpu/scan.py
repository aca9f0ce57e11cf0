"""The largest of many integers, by all threads."""
from collections import deque

import numpy as np

from hpgcn.kernels.threads import together, worth_threads

BLOCK = 1 << 19  # numbers that a thread looks at before it takes the next


def largest(numbers):
    """Return the largest of an array's unsigned integers."""
    numbers = np.ascontiguousarray(numbers).reshape(-1)
    if not worth_threads(numbers.size // 2):  # NumPy looks at several at once
        return int(numbers.max())
    blocks = deque(range(0, numbers.size, BLOCK))
    tops = []

    def look():
        while True:
            try:
                first = blocks.popleft()
            except IndexError:
                return
            tops.append(int(numbers[first:first + BLOCK].max()))

    together(look)
    return max(tops)

"""Dense products on threads of our own: each multiplies blocks of the result by BLAS on one thread.

Threads of a BLAS library wait for each other hundreds of times within one product, and spin
meanwhile: where another process holds one of the cores, each of these waits takes a time
slice. Here nobody waits but once, at the end, and never for a thread that has not begun.
"""
import functools
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba
import numpy as np

from hpgcn.kernels.jit import worth_threads

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNIT = 24  # blocks begin at multiples: BLAS then sums within them as it does in the whole product
TALL = 512  # rows of a block from which on it hardly matters that each block reads all of y
PER_THREAD = 8  # blocks, where that leaves them TALL: a thread that loses its core holds up little
RATE = 16  # multiplications in the time of one scalar operation of other kernels
SMALL = 1 << 21  # multiplications: BLAS takes other ways with less, and other roundings


def matmul(x, y, out=None):
    """Where BLAS was told to use one thread, all multiply blocks: of rows, or of more columns."""
    m, k = x.shape
    n = y.shape[1]
    threads = numba.get_num_threads()
    if threads == 1 or not worth_threads(m * k * n // RATE) or not one_blas_thread():
        return np.matmul(x, y, out=out)

    out = np.empty((m, n), np.result_type(x, y)) if out is None else out
    if m >= n:
        cuts = cut(m, k * n, threads)
        blocks = deque((x[first:last], y, out[first:last]) for first, last in cuts)
    else:
        cuts = cut(n, m * k, threads)
        blocks = deque((x, y[:, first:last], out[:, first:last]) for first, last in cuts)
    errors = np.geterr()
    others = [_pool().submit(_multiply, blocks, errors)
              for _ in range(min(threads, len(blocks)) - 1)]
    try:
        _multiply(blocks, errors)
    finally:
        blocks.clear()
        for other in others:
            if not other.cancel():
                other.result()
    return out


def cut(size, work, threads):
    """Return (first, last) of blocks of `size` rows, each row of `work` multiplications."""
    least = max(-(-size // (PER_THREAD * threads)), min(TALL, size // threads),
                SMALL // max(work, 1), UNIT)
    count = max(1, size // least)
    bounds = [(size * block // count + UNIT // 2) // UNIT * UNIT for block in range(count)]
    return list(pairwise([*bounds, size]))


def _multiply(blocks, errors):
    """Multiply blocks, with NumPy's errors as the caller has them, until none is left."""
    with np.errstate(**errors):
        while True:
            try:
                x, y, out = blocks.popleft()
            except IndexError:
                return
            np.matmul(x, y, out=out)


@functools.cache
def _pool():
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "hpgcn-dense")


@functools.cache
def one_blas_thread():
    return all(os.environ.get(name) == "1" for name in BLAS_VARIABLES)

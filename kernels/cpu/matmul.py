"""Dense products on threads of our own: each takes blocks of the result, and multiplies them by BLAS on one thread.

Threads of a BLAS library wait for each other hundreds of times within one product, and spin meanwhile: where another
process holds one of the cores, each of these waits takes a time slice. Here nobody waits but once, at the end, and
never for a thread that has not begun.
"""
import functools
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba
import numpy as np

from hpgcn.kernels.jit import Threaded

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNIT = 24  # blocks begin at multiples: BLAS then sums within them as it does in the whole product
TALL = 512  # rows of a block from which on it hardly matters that each block reads all of y
PER_THREAD = 8  # blocks, where that leaves them TALL: a thread that loses its core then holds up little
RATE = 16  # multiplications in the time of one scalar operation of other kernels
SMALL = 1 << 21  # multiplications: BLAS takes other ways with less, and other roundings


def matmul(x, y, out=None):
    """Dense product: see `hpgcn.kernels.reference.matmul`.

    Where BLAS was told to use one thread, all threads multiply blocks of rows, or of columns where there are more.
    """
    (m, k), n = x.shape, y.shape[1]
    threads, work = numba.get_num_threads(), m * k * n
    if threads == 1 or work < RATE * Threaded.threshold or not one_blas_thread():
        return np.matmul(x, y, out=out)

    out = np.empty((m, n), np.result_type(x, y)) if out is None else out
    if m >= n:
        blocks = [(x[first:last], y, out[first:last]) for first, last in cut(m, k * n, threads)]
    else:
        blocks = [(x, y[:, first:last], out[:, first:last]) for first, last in cut(n, m * k, threads)]
    _share(deque(blocks), threads, np.geterr())
    return out


def cut(size, work, threads):
    """Return (first, last) of the blocks of `size` rows, each of which takes `work` multiplications."""
    least = max(-(-size // (PER_THREAD * threads)), min(TALL, size // threads), SMALL // max(work, 1), UNIT)
    count = max(1, size // least)
    bounds = [(size * block // count + UNIT // 2) // UNIT * UNIT for block in range(count)]
    return list(pairwise([*bounds, size]))


def _share(blocks, threads, errors):
    """Multiply all blocks on this thread and on as many others as begin before none is left."""

    def work():
        with np.errstate(**errors):
            while True:
                try:
                    x, y, out = blocks.popleft()
                except IndexError:
                    return
                np.matmul(x, y, out=out)

    others = [_pool().submit(work) for _ in range(min(threads, len(blocks)) - 1)]
    try:
        work()
    finally:
        blocks.clear()
        for other in others:
            if not other.cancel():
                other.result()


@functools.cache
def _pool():
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "hpgcn-dense")


@functools.cache
def one_blas_thread():
    """Whether the environment tells NumPy's BLAS to use one thread."""
    return all(os.environ.get(name) == "1" for name in BLAS_VARIABLES)

"""Dense products on threads of our own: each multiplies blocks of the result by BLAS on one thread.

Threads of a BLAS library wait for each other hundreds of times within one product, and spin
meanwhile: where another process holds one of the cores, each of these waits takes a time
slice. Here nobody waits but once, at the end, and never for a thread that has not begun.
"""
import functools
import os
from collections import deque
from itertools import pairwise

import numpy as np

from hpgcn.kernels.bits16 import BF16, store
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.elementwise import keep_bits
from hpgcn.kernels.cpu.gemm import RATE, columns_times, kernel_for, rows_times, sums_of
from hpgcn.kernels.threads import num_threads, together, worth_threads

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNIT = 24  # blocks begin at multiples: BLAS then sums within them as it does in the whole product
TALL = 512  # rows of a block from which on it hardly matters that each block reads all of y
PER_THREAD = 8  # blocks, where that leaves them TALL: a thread that loses its core holds up little
SMALL = 1 << 21  # multiplications: BLAS takes other ways with less, and other roundings


def matmul(x, y, out=None, *, mask=None):
    """Long rows times a small matrix, and sums of products of rows, take tiles of their own.

    Else, where BLAS was told to use one thread, all multiply blocks: of rows, or of more columns.
    """
    m, k = x.shape
    n = y.shape[1]
    out = np.empty((m, n), sums_of(x)) if out is None else out
    if not (m and n and k):
        out[...] = 0
        return out
    kernel = kernel_for(x, y, out)
    if kernel is rows_times:
        launch, arguments = rows_times(x, y, out, mask)
        launch(*arguments)
        return out
    if kernel is columns_times:
        sums, launch, arguments = columns_times(x, y)
        launch(*arguments)
        store(sums.sum(axis=0), out)
    elif BF16 in (x.dtype, y.dtype, out.dtype):  # in another order
        rows = np.empty((m, n), out.dtype)
        launch, arguments = rows_times(np.ascontiguousarray(x), y, rows)
        launch(*arguments)
        out[...] = rows
    elif not worth_threads(m * k * n // RATE) or not one_blas_thread():
        np.matmul(x, y, out=out)
    else:
        _in_blocks(x, y, out)
    if mask is not None:
        rows = np.ascontiguousarray(out)
        keep_bits(2 * out.size, rows, mask, sums_of(out).type(1), evenly(m))
        if rows is not out:
            out[...] = rows
    return out


def _in_blocks(x, y, out):
    m, k = x.shape
    n = y.shape[1]
    threads = num_threads()
    if m >= n:
        cuts = cut(m, k * n, threads)
        blocks = deque((x[first:last], y, out[first:last]) for first, last in cuts)
    else:
        cuts = cut(n, m * k, threads)
        blocks = deque((x, y[:, first:last], out[:, first:last]) for first, last in cuts)
    together(_multiply, blocks, np.geterr())


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
def one_blas_thread():
    return all(os.environ.get(name) == "1" for name in BLAS_VARIABLES)

"""Dense products on hpgcn's own threads: blocks of the result by single-threaded BLAS.

Threads of a BLAS library wait for each other hundreds of times within one product, in
busy loops. If another process uses one of the cores, each of these waits takes a time
slice. Here the calling thread waits once, at the end, and only for threads that have
started. Blocks depend on the shapes only, and one thread multiplies each. So no bit of
a result depends on the number of threads, or on the load of the machine.
"""
import functools
import os
from collections import deque
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, store
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.dense.gemm import RATE, columns_times, kernel_for, rows_times, sums_of
from hpgcn.kernels.cpu.elementwise import keep_bits
from hpgcn.kernels.host.record import derived, repeat
from hpgcn.kernels.host.threads import run_on_all_threads, worth_threads

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNIT = 24  # rows: blocks begin at multiples, as the tiles of BLAS
TALL = 256  # rows of a block: for taller ones, reading all of y hardly matters
MOST = 256  # blocks, at most
SMALL = 1 << 21  # multiplications of a block, at least
LONG = 1 << 12  # products of a partial sum, at least
MOST_SUMS = 32


def matmul(x: Array, y: Array, out: Array | None = None, *, mask: Array | None = None) -> Array:
    """Multiply many rows by the tiles of gemm where these are faster, else in blocks.

    If BLAS is limited to one thread, all threads multiply blocks. These are blocks of
    rows, of columns if there are more, or partial products of a few long sums.
    """
    m, k = x.shape
    n = y.shape[1]
    out = np.empty((m, n), sums_of(x)) if out is None else out
    if not (m and n and k):
        repeat(out.fill, 0)
        return out

    # long rows: masked and stored at once
    kernel = kernel_for(x, y, out)
    if kernel is rows_times:
        launch, arguments = rows_times(x, y, out, mask)
        launch(*arguments)
        return out

    # sums of products of rows, 16 bits, or blocks
    if kernel is columns_times:
        sums, launch, arguments = columns_times(x, y)
        launch(*arguments)
        repeat(store, derived(np.sum, sums, 0), out)
    elif BF16 in (x.dtype, y.dtype, out.dtype):  # 16 bits in another order
        rows = np.empty((m, n), out.dtype)
        launch, arguments = rows_times(derived(np.ascontiguousarray, x), y, rows)
        launch(*arguments)
        repeat(np.copyto, out, rows)
    elif one_blas_thread():
        repeat(_in_blocks, x, y, out)
    else:
        repeat(np.matmul, x, y, out)

    # apply the mask
    if mask is not None:
        rows = derived(np.ascontiguousarray, out)
        keep_bits(2 * out.size, rows, mask, sums_of(out).type(1), evenly(m))
        if rows is not out:
            repeat(np.copyto, out, rows)
    return out


def _in_blocks(x: Array, y: Array, out: Array) -> None:
    m, k = x.shape
    n = y.shape[1]
    sums = None
    if m * n <= k:
        cuts = cut(k, m * n, LONG, MOST_SUMS)
        sums = np.empty((len(cuts), m, n), out.dtype)
        blocks = deque((x[:, first:last], y[first:last], part)
                       for (first, last), part in zip(cuts, sums))
    elif m >= n:
        cuts = cut(m, k * n, min(TALL, m // 4), MOST)
        blocks = deque((x[first:last], y, out[first:last]) for first, last in cuts)
    else:
        cuts = cut(n, m * k, min(TALL, n // 4), MOST)
        blocks = deque((x, y[:, first:last], out[:, first:last]) for first, last in cuts)
    if len(cuts) > 1 and worth_threads(m * k * n // RATE):
        run_on_all_threads(_multiply, blocks, np.geterr())
    else:
        _multiply(blocks, np.geterr())
    if sums is not None:
        sums.sum(axis=0, out=out)


def cut(size: int, work: int, least: int, most: int) -> list[tuple[int, int]]:
    """Divide `size` rows into at most `most` blocks of at least `least` rows.

    Return (first, last) of each. Each row takes `work` multiplications.
    """
    least = max(-(-size // most), least, SMALL // max(work, 1), UNIT)
    count = max(1, size // least)
    bounds = [(size * block // count + UNIT // 2) // UNIT * UNIT for block in range(count)]
    return list(pairwise([*bounds, size]))


def _multiply(blocks: deque, errors: Mapping) -> None:
    """Multiply blocks from a shared queue until it is empty; `errors` as of numpy.errstate."""
    with np.errstate(**errors):
        while True:
            try:
                x, y, out = blocks.popleft()
            except IndexError:
                return
            np.matmul(x, y, out=out)


@functools.cache
def one_blas_thread() -> bool:
    return all(os.environ.get(name) == "1" for name in BLAS_VARIABLES)

"""Blocks of rows of x that a product reads in turn, each for a second-level cache."""
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.emit.row_product import max_width, sets_of
from hpgcn.kernels.cpu.emit.vector_intrinsics import address
from hpgcn.kernels.cpu.tuning import current, second_cache
from hpgcn.kernels.host.threads import Threaded, chunks

WIDTHS = (128, 64)  # columns of a pass over blocks, at most
IN_BLOCK = 16  # nonzeros of a row of A in a block, at least, on average
MATRICES = 2  # matrices whose cuts each thread keeps: at most an eighth of A's bytes each
APART = 80
AHEAD = 4  # rows of A between the prefetch of a block's nonzeros and their use
_count: ContextVar = ContextVar("count", default=None)


class ColumnBlock(NamedTuple):
    """Columns of a pass, and rows of x in a block; the last may have fewer."""

    columns: int
    rows: int


def block_of(m: int, n: int, nnz: int, width: int, x_bytes: int,
             itemsize: int) -> ColumnBlock | None:
    """Return the ColumnBlock by which x, (n, width), is read; None to read x at once.

    A block has the number of rows that `Tuning.blocks` second-level caches hold. Blocks
    pay only if x is larger than that. Each block reads and writes the row of the result
    once, so it must hold enough nonzeros of the row: IN_BLOCK on average. Fewer columns
    make fewer blocks. Rows whose sum uses two sets of accumulators are not read in
    blocks.

    Numbers of x have `x_bytes`, and numbers of sums `itemsize`.
    """
    room = current().blocks * second_cache()
    if sets_of(width, itemsize) > 1:
        return None
    count = blocks_read()
    if count:
        columns = min(width, max_width(itemsize))
        return ColumnBlock(columns, -(-n // count)) if 1 < count <= n else None
    if not room:
        return None

    # the widest columns whose blocks hold enough nonzeros
    for most in WIDTHS:
        count = -(-width // min(most, max_width(itemsize)))
        columns = min(width, -(-width // count // 16) * 16)
        blocks = -(-n * columns * x_bytes // room)
        if blocks > 1 and nnz >= IN_BLOCK * m * blocks:
            return ColumnBlock(columns, -(-n // blocks))
    return None


def blocks_read() -> int | None:
    """Return the number of blocks that `reading_in_blocks` has set, if any."""
    return _count.get()


@contextmanager
def reading_in_blocks(count: int) -> Iterator[None]:
    """Read every x in `count` blocks in this thread, for measurements; a context manager.

    A count of 1 reads all rows at once.
    """
    token = _count.set(count)
    try:
        yield
    finally:
        _count.reset(token)


def cuts_of(indptr: Array, indices: Array, n: int, size: int, bounds: Array) -> Array | None:
    """Return the position of each row's first nonzero in each block of x, (blocks + 1, m).

    The blocks have `size` rows. The result is None if columns do not increase within
    every row. `bounds` are those of chunks of rows.
    """
    cuts = _room(indptr, indices, -(-n // size) + 1)
    falls = np.zeros(bounds.size - 1, np.int32)
    _cut(int(indptr[-1]) - int(indptr[0]), indptr, indices, size, cuts, falls, bounds)
    return None if falls.any() else cuts


@Threaded
def _cut(counters, indptr, indices, size, cuts, falls, bounds):
    """Write each row's position of each block to `cuts`, searching it where it is not right.

    An earlier call may have left the right positions. They are compared with row
    pointers and columns, because the owner of these arrays may have changed them.
    """
    one = np.uint64(1)  # other integers would be tried for negative ones, entry by entry
    last = cuts.shape[0] - 1
    for chunk in chunks(counters, bounds.size - 1):
        fall = np.int32(0)
        for i in range(bounds[chunk], bounds[chunk + 1]):
            # columns must rise
            start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            for entry in range(start + one, stop):
                fall |= np.int32(indices[entry] < indices[entry - one])

            # keep a cut that is right, else search for it
            cuts[0, i] = start
            for block in range(1, last):
                limit = block * size
                k = np.uint64(cuts[block, i])
                if start <= k <= stop and (k == stop or indices[k] >= limit) and (
                        k == start or indices[k - one] < limit):
                    continue
                k, count = start, stop - start
                while count > 0:
                    half = count >> one
                    before = indices[k + half] < limit
                    k = k + half + one if before else k
                    count = count - half - one if before else half
                cuts[block, i] = k
            cuts[last, i] = stop
        falls[chunk] = fall


def _room(indptr: Array, indices: Array, count: int) -> Array:
    """Return a (count, m) work array of indptr's dtype; a kept one has its last contents.

    Its rows are not a power of two apart, because they would then compete for a few
    lines of the first-level cache.
    """
    m = indptr.size - 1
    key = address(indptr), address(indices), indptr.dtype, m, count
    cuts = _work_arrays.rooms.pop(key, None)
    if cuts is None:
        while len(_work_arrays.rooms) >= MATRICES:
            _work_arrays.rooms.pop(next(iter(_work_arrays.rooms)))
        cuts = np.zeros((count, m + APART), indptr.dtype)[:, :m]
    _work_arrays.rooms[key] = cuts  # the latest comes last
    return cuts


class _WorkArrays(threading.local):
    def __init__(self) -> None:
        self.rooms = {}


_work_arrays = _WorkArrays()

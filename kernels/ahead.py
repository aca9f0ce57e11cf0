"""Compile kernels before they are needed, by calls on tiny arrays.

Numba compiles a kernel for each combination of argument types. Sparse products are also
compiled for each width of rows, and for each cache level (or memory) that holds them.
Compiled kernels are stored in the cache on disk (`hpgcn.kernels.host.jit`), from which
later processes load them. Numba holds a lock while it compiles, so only separate
processes can compile at the same time.
"""
from itertools import product

import numpy as np

from hpgcn.kernels import backend, entries, orders
from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.column_blocks import IN_BLOCK, block_of
from hpgcn.kernels.cpu.emit.tile_product import panel_shape, panel_width
from hpgcn.kernels.cpu.tuning import current, second_cache
from hpgcn.kernels.host.threads import threshold

# Common widths of hidden layers and classes. Another width uses the kernels of a width
# here with the same number of vectors a row and the same fill of the last vector.
WIDTHS = (3, 7, 8, 10, 16, 32, 40, 47, 64, 100, 128, 256)
DTYPES = ("float32", "float64")
# bytes of x: fits in the second cache, in the last one, in memory only
SIZES = (1 << 16, 4 << 20, 1 << 30)
LONG = 1000  # nonzeros of rows that are read in blocks
ALIGNMENT = 64  # bytes: arrays of hpgcn.runtime.device begin at multiples


def load_product(rows: int, width: int, nnz: int, dtype: str | np.dtype,
                 row_dtype: str | np.dtype | None = None, *, aligned: bool = True,
                 masked: bool = False, accumulate: bool = False, summed: bool = False) -> None:
    """Compile or load the kernels of A x, for A (rows, rows) and x (rows, width).

    No array of that size is read or written: memory is reserved, and one empty row is
    multiplied. If rows of x are read in blocks, a second row has all its nonzeros in
    the first of two blocks.

    Without `aligned`, x does not begin at a cache line. With `masked`, bits say which
    results are kept. Values of the matrix have `dtype`, and rows have `row_dtype`
    (default: `dtype`). Results have `dtype` if they are `summed` before they are stored
    as rows.
    """
    # arguments of the size that chooses the code; only one row is multiplied
    by_nonzeros(np.arange(400))  # more rows than chunks
    indptr = np.zeros(rows + 1, np.int64)
    indptr[-1] = nnz
    row_dtype = row_dtype or dtype
    x = _reserved((rows, width), row_dtype, aligned)
    out = _reserved((rows, width), dtype if summed else row_dtype, True)
    one = np.zeros(1, np.int64)
    ops = backend(x)
    arguments = indptr, one.astype(np.int32), np.ones(1, dtype), x
    with threshold(np.inf):
        # the product row by row
        if masked:
            mask = np.zeros((rows, -(-width // 8)), np.uint8)
            ops.sspmm(*arguments, mask, out, rows=one, accumulate=accumulate)
        else:
            ops.spmm(*arguments, out, rows=one, accumulate=accumulate)

        # the product in blocks of rows of x
        block = block_of(rows, rows, nnz, width, x.itemsize, np.dtype(dtype).itemsize)
        if block and not accumulate and out.dtype == dtype:
            n = min(rows, 2 * block.rows)
            count = IN_BLOCK * n  # enough nonzeros per row of x: rows are copied
            ops.spmm(np.array([0, count]), np.zeros(count, np.int32), np.ones(count, dtype), x[:n],
                     out[:1])


def load_layer(fan_in: int, fan_out: int, dtype: str | np.dtype,
               row_dtype: str | np.dtype) -> None:
    """Compile or load the dense products of a layer with 300 rows or more."""
    H = np.zeros((300, fan_in), row_dtype)
    W = np.zeros((fan_in, fan_out), dtype)
    G = np.zeros((300, fan_out), row_dtype)
    ops = backend(H)
    ops.matmul(H, W, G)
    ops.matmul(H, W)
    ops.matmul(H.T, G, W)
    ops.matmul(G, W.T, H)
    ops.matmul(G, W.T, H, mask=np.zeros((300, -(-fan_in // 8)), np.uint8))


def _reserved(shape: tuple[int, int], dtype: str | np.dtype, aligned: bool) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 2 * ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT + (0 if aligned else 16)
    return memory[first:first + size].view(dtype).reshape(shape)


def dense(dtype: str) -> None:
    """Call the dense kernels of GCN and SAGE on three rows, so that they are compiled."""
    x, y = np.ones((2, 3, 5), dtype)
    ops = backend(x)
    bias = np.ones(5, dtype)
    numbers = np.arange(3)
    bits = np.zeros((3, 1), np.uint8)
    keys = {"seed": 0, "epoch": 1, "layer": 0, "p": 0.5, "first": 0}
    for vertex, mask in product((None, numbers), (None, bits)):
        ops.activate(x.copy(), bias, relu=True, mask=mask, vertex=vertex, **keys)
    ops.dropout(x, numbers, out=y, **keys)
    ops.apply_mask(y, bits, 2.0)
    ops.gather(x, numbers, y)
    ops.scatter_add(x, numbers, y)
    ops.column_sum(x)
    ops.inner(x, y)
    ops.matmul(x, np.ones((5, 2), dtype))
    ops.matmul(x.T, np.ones((3, 2), dtype), np.ones((5, 2), dtype))
    for grad in (None, y):
        ops.softmax_cross_entropy(x, numbers, numbers, grad=grad)
        ops.sigmoid_cross_entropy(x, x, numbers, grad=grad)
    ops.softmax_cross_entropy(x, numbers, numbers[:1], grad=y)
    w, g, mean, variance = np.ones((4, 6), dtype)
    ops.adam(w, g, mean, variance, step=1, lr=0.01, decay=0.0, decayed=0)
    ops.sgd(w, g, lr=0.01, decay=0.0, decayed=0)


def normalize(dtype: str) -> None:
    """Call the kernels of layer and batch norm on three rows."""
    x, y, z = np.ones((3, 3, 5), dtype)
    ops = backend(x)
    gain, bias = np.ones((2, 5), dtype)
    of_rows, of_columns = np.ones(3), np.ones(5)
    ops.row_sum(x)
    ops.row_squares(x, of_rows)
    ops.layer_norm(x, of_rows, of_rows, gain, bias, y, xhat=z)
    ops.layer_norm_backward_sums(x, z, gain)
    ops.layer_norm_backward(x, z, of_rows, gain, np.ones((3, 2)), x)
    ops.column_squares(x, of_columns)
    ops.batch_norm(x, of_columns, of_columns, gain, bias, y, xhat=z)
    ops.batch_norm_backward(x, z, of_columns, gain, np.ones((2, 5)), x)


def sparse(dtype: str, width: int) -> None:
    """Compile sparse products for rows of `width` columns, for each cache that can hold x."""
    row = width * np.dtype(dtype).itemsize
    for size, nnz, aligned in product(SIZES, (8, 40), (True, False)):
        rows = max(400, size // row)
        load_product(rows, width, nnz * rows, dtype, aligned=aligned)
    rows = max(400, 3 * current().blocks * second_cache() // row)
    for aligned in (True, False):
        load_product(rows, width, LONG * rows, dtype, aligned=aligned)  # in blocks
    load_product(400, width, 400, dtype, masked=True)


def tiles(dtype: str) -> None:
    """Compile the dense products of layers, one width for each shape of a last panel."""
    itemsize = np.dtype(dtype).itemsize
    widths = range(1, panel_width(itemsize) + 1)
    for width in {panel_shape(each, itemsize): each for each in widths}.values():
        load_layer(width, width, dtype, dtype)


def whole(dtype: str) -> None:
    """Call the kernels that training runs once, on the entries and the rows of a matrix."""
    n = 400
    indptr = np.arange(n + 1)
    indices = np.arange(n, dtype=np.int32)
    for aligned in (True, False):  # arrays of NumPy begin at any address
        x = _reserved((n, 8), dtype, aligned)
        x.fill(1)
        backend(x).spmm(indptr, indices, np.ones(n, dtype), x)
    degree = np.ones(n)
    keys = np.ones(2, np.uint64)
    for data in (np.empty(0, np.float32), np.ones(n, np.float32)):
        entries.add_up(indptr, indices, data, 0, degree, degree, degree, True, 1e-9, keys,
                       np.zeros(2, np.uint64), np.zeros((8, 2)))
        added = entries.missing_loops(indptr, indices, 0)
        rows = entries.scaled_rows(indptr, indices, data, 0, added, (degree, degree), indices[:0],
                                    dtype)
    entries.split_columns(*rows, np.array([0, n // 2, n]))
    entries.pair_sum(indptr, indptr, keys[0])
    label = orders.communities(indptr, indices, 8, 8, 1)
    order = orders.breadth_first(indptr, indices, np.arange(n), label)
    orders.far_reads(indptr, indices, order, np.zeros(1, np.int64), n, np.array([8, 16]), 8, 8)
    orders.place_rows(indptr, indices, indices, indices, indptr, indices.copy())


def cases() -> list[tuple]:
    """Return the calls that compile kernels, pairs (function, arguments), the longest first."""
    made = [(sparse, (dtype, width)) for dtype, width in product(DTYPES, WIDTHS)]
    calls = tiles, dense, normalize, whole
    return made + [(call, (dtype,)) for call in calls for dtype in DTYPES]

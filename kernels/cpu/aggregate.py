"""DistGNN's aggregation primitive on CPU threads, and the gradients of its operands."""
import functools
from functools import partial

import numpy as np
import scipy.sparse as sp
from numba import types
from numba.np.numpy_support import from_dtype

from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.emit.c_functions import CompiledFunction, c_function, call
from hpgcn.kernels.cpu.emit.row_aggregate import RowReduction, row_aggregate
from hpgcn.kernels.cpu.emit.row_passes import choose_row_shape, unit_past_cache
from hpgcn.kernels.cpu.emit.row_product import RowShape, max_width
from hpgcn.kernels.cpu.emit.vector_intrinsics import LINE, address
from hpgcn.kernels.cpu.spmm import CHUNKS, Pass, product
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks, num_threads
from hpgcn.kernels.reference.aggregate import OP_CODES, check_operands

SUB, MUL, DIV = (OP_CODES[op] for op in ("sub", "mul", "div"))
STRIP = 16  # a task has a multiple of this number of columns, a cache line of float32
NO_EDGE = np.empty(0, np.int64)
NO_ARG = np.empty((0, 0), np.int64)


@functools.cache
def _rows_code(reduction: RowReduction, shape: RowShape, real: np.dtype, index: np.dtype,
               permuted: bool) -> CompiledFunction:
    """Return a C function that reduces a range of rows, for a RowReduction and a RowShape.

    `real` and `index` are the dtypes of numbers and indices; `permuted` says whether
    there is `edge`.
    """
    reduction, shape = reduction.literal(), shape.literal()
    itemsize, number = real.itemsize, real.type
    pointers = types.CPointer(types.int64)

    @c_function(indptr=pointers, indices=types.CPointer(from_dtype(index)),
                edge=pointers if permuted else types.none, one=from_dtype(real))
    def reduce_rows(first, beyond, indptr, indices, edge, last, near, far, x, ldx, e, lde, out, arg,
                    ldo, width, flip, mean, one):
        for v in range(first, beyond):
            start, stop = indptr[v], indptr[v + 1]
            divisor = number(max(1, stop - start)) if mean else one
            row_aggregate(indices, edge, start, stop, near, far, last, x, ldx, e, lde,
                          out + v * ldo * itemsize, arg + v * ldo * 8, width, flip, divisor,
                          reduction, shape)

    return reduce_rows


@Threaded
def _on_rows(counters, bounds, code, arguments):
    """Call the C function `code` for each chunk of rows that this thread takes."""
    for chunk in chunks(counters, bounds.size - 1):
        call(code, (bounds[chunk], bounds[chunk + 1]), arguments)


@Threaded
def _to_chosen(counters, indices, e, op, grad, arg, dx, columns, parts):
    """Add gradients to the rows of x that max or min chose.

    Each task has a range of columns and of rows of x. Each sum is taken in the order of
    the rows v, like a sum along the transpose.
    """
    m, width = grad.shape
    n = dx.shape[0]
    for task in chunks(counters, -(-width // columns) * parts):
        first, part = task // parts * columns, task % parts
        low, high = n * part // parts, n * (part + 1) // parts
        for v in range(m):
            for q in range(first, min(width, first + columns)):
                k = arg[v, q]
                if 0 <= k < indices.size:
                    u = indices[k]
                    if low <= u < high:
                        g = grad[v, q]
                        if op == MUL:
                            g *= e[k, q if e.shape[1] > 1 else 0]
                        elif op == DIV:
                            g /= e[k, q if e.shape[1] > 1 else 0]
                        dx[u, q] += g


@functools.cache
def _gradients_code(op: str, extreme: bool, column: bool, real: np.dtype,
                    index: np.dtype) -> CompiledFunction:
    """Return a C function that writes the gradients of the edges of a range of rows.

    `extreme` and `column` are those of a RowReduction; `real` and `index` are the
    dtypes of numbers and indices.
    """
    zero, number = real.type(0), real.type
    integers, numbers = types.CPointer(types.int64), types.CPointer(from_dtype(real))

    @c_function(indptr=integers, indices=types.CPointer(from_dtype(index)), x=numbers, e=numbers,
                grad=numbers, chosen=integers, de=numbers)
    def write_gradients(first, beyond, indptr, indices, x, e, grad, chosen, de, width):
        row = np.empty(width, number)
        for v in range(first, beyond):
            to = v * width
            for k in range(indptr[v], indptr[v + 1]):
                u, at = 0, k if column else k * width
                if op in (MUL, DIV):
                    u = np.int64(indices[k]) * width
                for q in range(width):
                    # gradient of the message, times the slope of the operator
                    g = grad[to + q]
                    if op == SUB:
                        g = -g
                    elif op == MUL:
                        g = x[u + q] * g
                    elif op == DIV:
                        divisor = e[at if column else at + q]
                        g = -(x[u + q] * g / divisor) / divisor

                    # max and min send it to the chosen edge
                    if extreme:
                        g = g if chosen[to + q] == k else zero
                    if column:
                        row[q] = g
                    else:
                        de[at + q] = g
                if column:  # one column of e serves all columns of x
                    de[k] = _halved_sum(row)

    return write_gradients


@jit(inner=True)
def _halved_sum(g):
    """Return the sum of g: add its upper half to the lower one until one number is left.

    g is overwritten.
    """
    width = g.size
    while width > 1:
        half = (width + 1) // 2
        for q in range(width - half):
            g[q] += g[half + q]
        width = half
    return g[0]


def _reduction(indptr: Array, indices: Array, x: Array, e: Array, out: Array, op: str, reduce: str,
               *, arg: Array = NO_ARG, edge: Array = NO_EDGE) -> list[Pass]:
    """Return functions without arguments that together fill `out`, and `arg` for max and min.

    Entry t reads row edge[t] of e. Wide rows take several passes over their columns.
    """
    column = op != "copylhs" and e.shape[1] == 1
    if reduce in ("sum", "mean") and (op == "copylhs" or (op == "mul" and column)):
        data = None  # SpMM (distgnn equation 2)
        if column:
            data = e.ravel()[edge] if edge.size else e.ravel()
        scale = None if reduce == "sum" else 1 / np.maximum(np.diff(indptr), 1)
        return product(indptr, indices, data, x, out, row_scale=scale)[1]

    # operands that the operator does not read have no columns
    width, itemsize = out.shape[1], out.itemsize
    x = np.empty((0, width), out.dtype) if op == "copyrhs" else x
    e = np.empty((0, 1), out.dtype) if op == "copylhs" else e
    extreme = reduce in ("max", "min")
    flip = -1 << 8 * itemsize - 1 if reduce == "min" else 0  # the bit of the sign
    bounds = by_nonzeros(indptr, CHUNKS)
    work = (int(indptr[-1]) - int(indptr[0]) + indptr.size) * width
    step = max_width(itemsize)

    # a launch for each pass
    launches = []
    for first in range(0, width, step):
        columns = min(step, width - first)
        source = x[:, first:first + columns]
        shape, near, far = choose_row_shape(source, columns)
        streamed = min(unit_past_cache(each, first, shape) for each in (out, arg) if each.size)
        shape = shape._replace(streamed=streamed)
        e_lines = 0 if op == "copylhs" else -(-min(columns, e.shape[1]) * itemsize // LINE)
        code = _rows_code(RowReduction(OP_CODES[op], int(extreme), int(column), e_lines), shape,
                          out.dtype, indices.dtype, edge.size > 0)

        # addresses of arrays, which the launch keeps alive
        e_first = 0 if column else first * itemsize
        arguments = (
            address(indptr), address(indices), address(edge), indices.size - 1, near, far,
            address(source), width, address(e) + e_first, e.shape[1],
            address(out) + first * itemsize, address(arg) + first * arg.itemsize, width, columns,
            flip, reduce == "mean")
        launch = _on_rows.launch(2 * work, bounds, code.address,
                                   (*map(int, arguments), out.dtype.type(1)))
        launches.append(Pass(launch))
        launches[-1].arrays = code, indptr, indices, edge, x, e, out, arg
    return launches


def aggregate(indptr: Array, indices: Array, x: Array, e: Array | None = None,
              out: Array | None = None, *, op: str = "copylhs", reduce: str = "sum") -> tuple[Array,
              Array]:
    """Reduce each row on one thread, in edge order, so the bits do not depend on the threads.

    Chunks of rows are balanced by nonzeros. Sum and mean of copylhs, and of mul by one
    column, are computed by `spmm`.
    """
    x, e, width, dtype = check_operands(x, e, op, reduce)
    indptr = indptr.astype(np.int64, copy=False)
    m = indptr.size - 1
    out = np.empty((m, width), dtype) if out is None else out
    arg = np.empty((m, width), np.int64) if reduce in ("max", "min") else None
    if indptr[0] == indptr[-1]:
        out[:] = 0
        if arg is not None:
            arg[:] = -1
    elif width:
        for launch in _reduction(indptr, indices, x, e, out, op, reduce,
                                 arg=NO_ARG if arg is None else arg):
            launch()
    return out, arg


def aggregate_backward(grad: Array, indptr: Array, indices: Array, x: Array, e: Array | None = None,
                       *, op: str, reduce: str, arg: Array | None = None,
                       transposed: tuple | None = None) -> tuple[Array, Array]:
    """Compute dx as an aggregation of grad, grad * e (mul) or grad / e (div) along the transpose.

    For max and min, gradients are added to the chosen rows instead.
    """
    extreme = reduce in ("max", "min")
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if extreme else ())
    dx = None if op == "copyrhs" else np.zeros(x.shape, dtype)
    de = None if op == "copylhs" else np.zeros(e.shape, dtype)
    indptr = indptr.astype(np.int64, copy=False)
    if indptr[0] == indptr[-1] or width == 0:
        return dx, de

    # the gradient of a mean is that of a sum
    grad = np.ascontiguousarray(grad, dtype)
    if reduce == "mean":
        grad = grad / np.maximum(np.diff(indptr), 1)[:, None].astype(dtype)
    chosen = np.ascontiguousarray(arg) if extreme else NO_ARG

    # gradient of x: to the chosen rows, or along the transpose
    launches = []
    if extreme and dx is not None:
        values = np.empty((0, 0), dtype) if e is None else e
        threads = num_threads()
        columns = -(-width // (STRIP * threads)) * STRIP
        parts = -(-threads // -(-width // columns))  # a task for each thread
        launches.append(partial(_to_chosen, grad.size * parts, indices, values, OP_CODES[op], grad,
                                chosen, dx, columns, parts))
    elif dx is not None:
        pattern = transposed or transpose_pattern(indptr, indices, x.shape[0])
        indptr_t, edge_t = (np.ascontiguousarray(pattern[i], np.int64) for i in (0, 2))
        indices_t = np.ascontiguousarray(pattern[1])
        launches += _reduction(indptr_t, indices_t, grad, e, dx,
                               op if op in ("mul", "div") else "copylhs", "sum",
                               edge=edge_t)

    # gradient of e
    if de is not None:
        work = (int(indptr[-1]) - int(indptr[0])) * width
        x = np.empty((0, 0), dtype) if x is None else x
        code = _gradients_code(OP_CODES[op], extreme, e.shape[1] == 1, dtype, indices.dtype)
        arguments = *map(address, (indptr, indices, x, e, grad, chosen, de)), width
        launches.append(partial(_on_rows, work, by_nonzeros(indptr), code.address, arguments))
    for launch in launches:
        launch()
    return dx, de


def transpose_pattern(indptr: Array, indices: Array, n: int) -> tuple[Array, ...]:
    first, last = int(indptr[0]), int(indptr[-1])
    shape = (indptr.size - 1, n)
    entries = (np.arange(first, last), indices[first:last], indptr - first)
    # a stable counting sort; it keeps duplicates
    by_column = sp.csr_array(entries, shape=shape).tocsc()
    rows = by_column.indices.astype(indices.dtype, copy=False)
    return by_column.indptr.astype(np.int64), rows, by_column.data

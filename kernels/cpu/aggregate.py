"""DistGNN's aggregation primitive on CPU threads, and the gradients of its operands."""
from functools import partial

import numpy as np
import scipy.sparse as sp

from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.emit.emitter import FIRST
from hpgcn.kernels.cpu.emit.row_extreme import row_extreme
from hpgcn.kernels.cpu.emit.row_passes import choose_row_shape, unit_past_cache
from hpgcn.kernels.cpu.emit.row_product import max_width
from hpgcn.kernels.cpu.emit.vector_intrinsics import address, prefetch
from hpgcn.kernels.cpu.spmm import CHUNKS, product
from hpgcn.kernels.jit import jit
from hpgcn.kernels.reference.aggregate import OP_CODES, REDUCE_CODES, check_operands
from hpgcn.kernels.threads import Threaded, chunks, num_threads

ADD, SUB, MUL, DIV, COPYLHS, COPYRHS = range(6)
SUM, MEAN, MAX, MIN = range(4)
STRIP = 16  # columns of a task, or a multiple: a cache line of float32
AHEAD = 16  # edges between asking for a row of x and reading it
NO_EDGE = np.empty(0, np.int64)
NO_ARG = np.empty((0, 0), np.int64)


@jit()
def _message(op, x, u, e, k, out):
    """Write one message, out = op(x[u], e[k]): one branch, then loops that become vector code."""
    width = out.size
    if op == COPYLHS:
        for q in range(width):
            out[q] = x[u, q]
        return
    if e.shape[1] == 1:
        out[:] = e[k, 0]
    else:
        for q in range(width):
            out[q] = e[k, q]
    if op == ADD:
        for q in range(width):
            out[q] = x[u, q] + out[q]
    elif op == SUB:
        for q in range(width):
            out[q] = x[u, q] - out[q]
    elif op == MUL:
        for q in range(width):
            out[q] = x[u, q] * out[q]
    elif op == DIV:
        for q in range(width):
            out[q] = x[u, q] / out[q]


@jit()
def _prefetch(x, u):
    size = x.shape[1] * x.itemsize
    for byte in range(0, size, 64):
        prefetch(x.ctypes.data + u * size + byte, FIRST)


@Threaded
def _aggregate(next_chunk, indptr, indices, edge, x, e, op, reduce, chosen, out, arg, bounds):
    width = out.shape[1]
    zero = out.dtype.type(0)
    sign = out.dtype.type(1 if reduce == MAX else -1)
    for chunk in chunks(next_chunk, bounds.size - 1):
        message = np.empty(width, out.dtype)
        for v in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(width):
                out[v, q] = zero
            if reduce >= MAX and indptr[v] == indptr[v + 1]:
                arg[v] = -1
            for t in range(indptr[v], indptr[v + 1]):
                u = indices[t]
                k = edge[t] if edge.size else t
                if t + AHEAD < indices.size:
                    _prefetch(x, indices[t + AHEAD])
                    if edge.size and e.size:
                        _prefetch(e, edge[t + AHEAD])
                _message(op, x, u, e, k, message)
                if reduce >= MAX:
                    for q in range(width):
                        # not <= takes a NaN; the second test keeps the first one met
                        above = not (sign * message[q] <= sign * out[v, q])
                        if t == indptr[v] or (above and out[v, q] == out[v, q]):
                            out[v, q] = message[q]
                            arg[v, q] = k
                elif chosen.size:
                    for q in range(width):
                        out[v, q] += message[q] if chosen[u, q] == k else zero
                else:
                    for q in range(width):
                        out[v, q] += message[q]
            if reduce == MEAN:
                count = out.dtype.type(max(1, indptr[v + 1] - indptr[v]))
                for q in range(width):
                    out[v, q] /= count


@Threaded
def _extreme(next_chunk, indptr, indices, weight, highest, x, ldx, out, arg, first, width, bounds,
             near, far, one, shape):
    last = np.int64(indices.size - 1)
    to, chosen = out.ctypes.data, arg.ctypes.data
    for chunk in chunks(next_chunk, bounds.size - 1):
        for v in range(bounds[chunk], bounds[chunk + 1]):
            start, stop = np.int64(indptr[v]), np.int64(indptr[v + 1])
            begin = v * out.shape[1] + first
            at, place = np.int64(to + begin * out.itemsize), np.int64(chosen + begin * arg.itemsize)
            if start == stop:
                out[v, first:first + width] = 0
                arg[v, first:first + width] = -1
            elif highest:
                row_extreme(indices, weight, start, stop, near, far, last, x, ldx, at, place,
                            width, one, True, shape)
            else:
                row_extreme(indices, weight, start, stop, near, far, last, x, ldx, at, place,
                            width, one, False, shape)


def _extremes(indptr, indices, x, weight, highest, out, arg):
    """Return what fills out and arg, a function without arguments for each pass over columns."""
    width = x.shape[1]
    step = max_width(x.itemsize)
    bounds = by_nonzeros(indptr, CHUNKS)
    work = (int(indptr[-1]) - int(indptr[0]) + indptr.size) * width
    launches = []
    for first in range(0, width, step):
        columns = min(step, width - first)
        source = x[:, first:first + columns]
        shape, near, far = choose_row_shape(source, columns)
        streamed = min(unit_past_cache(each, first, shape) for each in (out, arg))
        shape = shape._replace(streamed=streamed)
        launches.append(partial(
            _extreme, 2 * work, indptr, indices, weight, highest, address(source), width, out, arg,
            first, columns, bounds, near, far, x.dtype.type(1), shape.literal()))
    return launches


@Threaded
def _to_chosen(next_chunk, indices, weight, grad, arg, dx, columns, parts):
    """Add gradients to the rows of x that were chosen: a task has some columns and rows of x.

    Each sum is taken in the order of the rows v, as along the transpose.
    """
    m, width = grad.shape
    n = dx.shape[0]
    for task in chunks(next_chunk, -(-width // columns) * parts):
        first, part = task // parts * columns, task % parts
        low, high = n * part // parts, n * (part + 1) // parts
        for v in range(m):
            for q in range(first, min(width, first + columns)):
                k = arg[v, q]
                if k >= 0:
                    u = indices[k]
                    if low <= u < high:
                        dx[u, q] += grad[v, q] * weight[k] if weight.size else grad[v, q]


@Threaded
def _edge_gradient(next_chunk, indptr, indices, x, e, op, grad, chosen, de, bounds):
    width = grad.shape[1]
    for chunk in chunks(next_chunk, bounds.size - 1):
        g = np.empty(width, de.dtype)
        for v in range(bounds[chunk], bounds[chunk + 1]):
            for k in range(indptr[v], indptr[v + 1]):
                # gradient of the message
                if op in (MUL, DIV):
                    if k + AHEAD < indices.size:
                        _prefetch(x, indices[k + AHEAD])
                    _message(MUL, x, indices[k], grad, v, g)
                else:
                    _message(COPYLHS, grad, v, e, k, g)

                # its sign and divisor
                if op == SUB:
                    for q in range(width):
                        g[q] = -g[q]
                elif op == DIV:
                    for q in range(width):
                        divisor = e[k, q if e.shape[1] > 1 else 0]
                        g[q] = -(g[q] / divisor) / divisor

                # max and min send it to the chosen edge
                if chosen.size:
                    for q in range(width):
                        g[q] = g[q] if chosen[v, q] == k else de.dtype.type(0)

                # one column of e serves all columns of x
                if de.shape[1] == 1:
                    de[k, 0] = _halved_sum(g)
                else:
                    for q in range(width):
                        de[k, q] = g[q]


@jit()
def _halved_sum(g):
    """Sum of g, which is destroyed: halves are added until one element is left, by vectors."""
    width = g.size
    while width > 1:
        half = (width + 1) // 2
        for q in range(width - half):
            g[q] += g[half + q]
        width = half
    return g[0]


def _reduction(indptr, indices, x, e, out, op, reduce, *, arg=NO_ARG, edge=NO_EDGE, chosen=NO_ARG):
    """Return what fills out, and arg for max and min: functions without arguments.

    Entry t is edge[t] of e; only edges found in `chosen` (x's shape) count.
    """
    column = op == "mul" and e.shape[1] == 1
    if reduce in ("sum", "mean") and not chosen.size and (op == "copylhs" or column):
        data = None  # SpMM (distgnn equation 2)
        if column:
            data = e.ravel()[edge] if edge.size else e.ravel()
        scale = None if reduce == "sum" else 1 / np.maximum(np.diff(indptr), 1)
        return product(indptr, indices, data, x, out, row_scale=scale)[1]
    work = (int(indptr[-1]) - int(indptr[0]) + indptr.size) * out.shape[1]
    if reduce in ("max", "min") and (op == "copylhs" or column):
        weight = e.ravel() if column else None
        return _extremes(indptr, indices, x, weight, reduce == "max", out, arg)
    none = np.empty((0, 0), out.dtype)
    x = none if op == "copyrhs" else x
    e = none if op == "copylhs" else e
    return [partial(_aggregate, work, indptr, indices, edge, x, e, OP_CODES[op],
                    REDUCE_CODES[reduce], chosen, out, arg, by_nonzeros(indptr))]


def aggregate(indptr, indices, x, e=None, out=None, *, op="copylhs", reduce="sum"):
    """Reduce each row on one thread in edge order: the bits do not depend on the threads.

    Chunks are balanced by nonzeros. Sum and mean of copylhs, mul by a column, are
    `spmm`.
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


def aggregate_backward(grad, indptr, indices, x, e=None, *, op, reduce, arg=None, transposed=None):
    """Compute dx as an aggregation of grad, grad * e (mul) or grad / e (div), transposed.

    For max and min of copylhs, and of mul by one column, it is added to the rows
    chosen.
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
    if extreme and (op == "copylhs" or (op == "mul" and e.shape[1] == 1)):
        weight = np.empty(0, dtype) if e is None else e.ravel()
        threads = num_threads()
        columns = -(-width // (STRIP * threads)) * STRIP
        parts = -(-threads // -(-width // columns))  # to each thread its task
        launches.append(partial(_to_chosen, grad.size * parts, indices, weight, grad, chosen, dx,
                                columns, parts))
    elif dx is not None:
        indptr_t, indices_t, edge_t = transposed or transpose_pattern(indptr, indices, x.shape[0])
        launches += _reduction(indptr_t, indices_t, grad, e, dx,
                               op if op in ("mul", "div") else "copylhs", "sum",
                               edge=edge_t, chosen=chosen)

    # gradient of e
    if de is not None:
        work = (int(indptr[-1]) - int(indptr[0])) * width
        x = np.empty((0, 0), dtype) if x is None else x
        launches.append(partial(_edge_gradient, work, indptr, indices, x, e, OP_CODES[op], grad,
                                chosen, de, by_nonzeros(indptr)))
    for launch in launches:
        launch()
    return dx, de


def transpose_pattern(indptr, indices, n):
    first, last = int(indptr[0]), int(indptr[-1])
    shape = (indptr.size - 1, n)
    entries = (np.arange(first, last), indices[first:last], indptr - first)
    # a stable counting sort; it keeps duplicates
    by_column = sp.csr_array(entries, shape=shape).tocsc()
    rows = by_column.indices.astype(indices.dtype, copy=False)
    return by_column.indptr.astype(np.int64), rows, by_column.data

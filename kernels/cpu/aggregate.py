"""DistGNN's aggregation primitive on CPU threads: edge operator, reduction, and the gradients of both."""
import numba
import numpy as np
import scipy.sparse as sp

from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.cpu.pieces import prefetch
from hpgcn.kernels.cpu.spmm import spmm
from hpgcn.kernels.jit import Threaded, jit
from hpgcn.kernels.reference import check_operands

ADD, SUB, MUL, DIV, COPYLHS, COPYRHS = range(6)
SUM, MEAN, MAX, MIN = range(4)
OPS = {"add": ADD, "sub": SUB, "mul": MUL, "div": DIV, "copylhs": COPYLHS, "copyrhs": COPYRHS}
REDUCES = {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN}
AHEAD = 16  # edges between asking for a row of x and reading it
NO_EDGE, NO_ARG = np.empty(0, np.int64), np.empty((0, 0), np.int64)


@jit()
def _message(op, x, u, e, k, out):
    """One message, out = op(x[u], e[k]): a branch a row, then loops over columns that the compiler vectorises."""
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
    """Ask for the cache lines of row u of x."""
    size = x.shape[1] * x.itemsize
    for byte in range(0, size, 64):
        prefetch(x.ctypes.data + u * size + byte, True)


@Threaded
def _aggregate(indptr, indices, edge, x, e, op, reduce, chosen, out, arg, bounds):
    width = out.shape[1]
    for chunk in numba.prange(bounds.size - 1):
        message = np.empty(width, out.dtype)
        for v in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(width):
                out[v, q] = 0
            for t in range(indptr[v], indptr[v + 1]):
                u, k = indices[t], edge[t] if edge.size else t
                if t + AHEAD < indices.size:
                    _prefetch(x, indices[t + AHEAD])
                    if edge.size and e.size:
                        _prefetch(e, edge[t + AHEAD])
                _message(op, x, u, e, k, message)
                if reduce >= MAX:
                    first, sign = t == indptr[v], out.dtype.type(1 if reduce == MAX else -1)
                    for q in range(width):
                        # not <= takes a NaN; the second test keeps the first one met
                        better = not (sign * message[q] <= sign * out[v, q]) and out[v, q] == out[v, q]
                        if first or better:
                            out[v, q], arg[v, q] = message[q], k
                elif chosen.size:
                    for q in range(width):
                        out[v, q] += message[q] if chosen[u, q] == k else out.dtype.type(0)
                else:
                    for q in range(width):
                        out[v, q] += message[q]
            if reduce == MEAN:
                count = out.dtype.type(max(1, indptr[v + 1] - indptr[v]))
                for q in range(width):
                    out[v, q] /= count


@Threaded
def _edge_gradient(indptr, indices, x, e, op, grad, chosen, de, bounds):
    width = grad.shape[1]
    for chunk in numba.prange(bounds.size - 1):
        g = np.empty(width, de.dtype)
        for v in range(bounds[chunk], bounds[chunk + 1]):
            for k in range(indptr[v], indptr[v + 1]):
                if op in (MUL, DIV):
                    if k + AHEAD < indices.size:
                        _prefetch(x, indices[k + AHEAD])
                    _message(MUL, x, indices[k], grad, v, g)
                else:
                    _message(COPYLHS, grad, v, e, k, g)
                if op == SUB:
                    for q in range(width):
                        g[q] = -g[q]
                elif op == DIV:
                    for q in range(width):
                        by = e[k, q if e.shape[1] > 1 else 0]
                        g[q] = -(g[q] / by) / by
                if chosen.size:
                    for q in range(width):
                        g[q] = g[q] if chosen[v, q] == k else de.dtype.type(0)
                if de.shape[1] == 1:
                    de[k, 0] = _fold(g)
                else:
                    for q in range(width):
                        de[k, q] = g[q]


@jit()
def _fold(g):
    """Sum of g, which is destroyed: its halves are added until one element is left, which vectorises."""
    width = g.size
    while width > 1:
        half = (width + 1) // 2
        for q in range(width - half):
            g[q] += g[half + q]
        width = half
    return g[0]


def _reduce(indptr, indices, x, e, out, *, op, reduce, arg=NO_ARG, edge=NO_EDGE, chosen=NO_ARG):
    """Fill out, and arg for max and min. Entry t is edge[t] of e; only edges found in `chosen` (x's shape) count."""
    column = op == "mul" and e.shape[1] == 1
    if reduce in ("sum", "mean") and not chosen.size and (op == "copylhs" or column):  # SpMM (distgnn equation 2)
        data = None if op == "copylhs" else e.ravel()[edge] if edge.size else e.ravel()
        scale = None if reduce == "sum" else 1 / np.maximum(np.diff(indptr), 1)
        spmm(indptr, indices, data, x, out, row_scale=scale)
    else:
        none = np.empty((0, 0), out.dtype)
        work = (int(indptr[-1]) - int(indptr[0]) + indptr.size) * out.shape[1]
        _aggregate(work, indptr, indices, edge, none if op == "copyrhs" else x, none if op == "copylhs" else e, OPS[op],
                   REDUCES[reduce], chosen, out, arg, by_nonzeros(indptr))


def aggregate(indptr, indices, x, e=None, out=None, *, op="copylhs", reduce="sum"):
    """Edge operator and reduction: see `hpgcn.kernels.reference.aggregate` for what each argument means.

    Threads take chunks of rows balanced by nonzeros; a row is reduced by one thread in the order of its edges, so the
    bits do not depend on the number of threads. Sum and mean of copylhs, and of mul by one column, are `spmm`.
    """
    x, e, width, dtype = check_operands(x, e, op, reduce)
    indptr, m = indptr.astype(np.int64, copy=False), indptr.size - 1
    out = np.empty((m, width), dtype) if out is None else out
    arg = np.full((m, width), -1, np.int64) if reduce in ("max", "min") else None
    if indptr[0] == indptr[-1]:
        out[:] = 0
    elif width:
        _reduce(indptr, indices, x, e, out, op=op, reduce=reduce, arg=NO_ARG if arg is None else arg)
    return out, arg


def aggregate_backward(grad, indptr, indices, x, e=None, *, op, reduce, arg=None, transposed=None):
    """Gradients of `aggregate`: see `hpgcn.kernels.reference.aggregate_backward` for what each argument means.

    dx is itself an aggregation, over the transposed pattern: of grad, of grad * e (mul) or of grad / e (div).
    """
    extreme = reduce in ("max", "min")
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if extreme else ())
    dx = None if op == "copyrhs" else np.zeros(x.shape, dtype)
    de = None if op == "copylhs" else np.zeros(e.shape, dtype)
    indptr = indptr.astype(np.int64, copy=False)
    if indptr[0] == indptr[-1] or width == 0:
        return dx, de
    grad = np.ascontiguousarray(grad, dtype)
    if reduce == "mean":
        grad = grad / np.maximum(np.diff(indptr), 1)[:, None].astype(dtype)
    chosen = np.ascontiguousarray(arg) if extreme else NO_ARG
    if dx is not None:
        indptr_t, indices_t, edge_t = transposed or transpose_pattern(indptr, indices, x.shape[0])
        _reduce(indptr_t, indices_t, grad, e, dx, op=op if op in ("mul", "div") else "copylhs", reduce="sum",
                edge=edge_t, chosen=chosen)
    if de is not None:
        work = (int(indptr[-1]) - int(indptr[0])) * width
        _edge_gradient(work, indptr, indices, np.empty((0, 0), dtype) if x is None else x, e, OPS[op], grad, chosen, de,
                       by_nonzeros(indptr))
    return dx, de


def transpose_pattern(indptr, indices, n):
    """Entries of each column by increasing number: see `hpgcn.kernels.reference.transpose_pattern`."""
    first, last, m = int(indptr[0]), int(indptr[-1]), indptr.size - 1
    by_row = sp.csr_array((np.arange(first, last), indices[first:last], indptr - first), shape=(m, n))
    by_column = by_row.tocsc()  # a stable counting sort; it keeps duplicates
    return by_column.indptr.astype(np.int64), by_column.indices.astype(indices.dtype, copy=False), by_column.data

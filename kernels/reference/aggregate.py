"""Aggregation primitive of DistGNN, and its gradients."""
import numpy as np

REDUCES = ("sum", "mean", "max", "min")
OPS = {  # op(x, e), and the gradients of x and e for a gradient g of it
    "add": (lambda x, e: x + e, lambda g, x, e: g, lambda g, x, e: g),
    "sub": (lambda x, e: x - e, lambda g, x, e: g, lambda g, x, e: -g),
    "mul": (lambda x, e: x * e, lambda g, x, e: g * e, lambda g, x, e: g * x),
    "div": (lambda x, e: x / e, lambda g, x, e: g / e, lambda g, x, e: -(g * x / e) / e),
    "copylhs": (lambda x, e: x, lambda g, x, e: g, None), "copyrhs": (lambda x, e: e, None, lambda g, x, e: g)}


def aggregate(indptr, indices, x, e=None, out=None, *, op="copylhs", reduce="sum"):
    """Aggregation primitive (distgnn 2.1): out[v] = reduce over edges k of row v of op(x[indices[k]], e[k]).

    NaN propagates, through max and min too: the first NaN of a row is then the edge chosen. An operator that is not
    known, an operand that is missing and an e that fits neither shape are a ValueError. indptr may start past 0.

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows are destinations v, columns sources u
    x : (n, f) float32 or float64; copyrhs takes f alone from it, and goes without: f is then e's width
    e : (nnz, f) or (nnz, 1), optional
        Edge features, one column serving all f; cast to x's dtype. Needed unless op is copylhs, which ignores it.
    out : (m, f), optional
        Result, C order, of x's dtype (e's if there is no x); made if absent. An empty row gives 0.
    op, reduce : one of OPS, one of REDUCES

    Returns
    -------
    out : (m, f)
    arg : (m, f) int64 for max and min: the edge k chosen, the first of equals, -1 in an empty row; else None
    """
    x, e, width, dtype = check_operands(x, e, op, reduce)
    m, count, edges = indptr.size - 1, np.diff(indptr), np.arange(indptr[0], indptr[-1])
    message, arg = np.empty((edges.size, width), dtype), np.full((m, width), -1, np.int64)
    with np.errstate(all="ignore"):
        message[:] = OPS[op][0](x if x is None else x[indices[edges]], e if e is None else e[edges])
    out = np.empty((m, width), dtype) if out is None else out
    out[:] = 0
    if reduce in ("sum", "mean"):
        np.add.at(out, np.repeat(np.arange(m), count), message)
        out /= np.maximum(count, 1)[:, None] if reduce == "mean" else 1
        return out, None
    for v in np.flatnonzero(count):
        row = message[indptr[v] - indptr[0]:indptr[v + 1] - indptr[0]]
        first = row.argmax(0) if reduce == "max" else row.argmin(0)
        out[v], arg[v] = row[first, np.arange(width)], indptr[v] + first
    return out, arg


def aggregate_backward(grad, indptr, indices, x, e=None, *, op, reduce, arg=None, transposed=None):
    """Gradients (dx, de) of `aggregate` from grad (m, f); None for an operand that op does not read.

    max and min need the `arg` that `aggregate` returned: the edge chosen gets the gradient. `transposed` is
    `transpose_pattern(indptr, indices, n)`, made if absent: dx (n, f) is summed along it, in increasing edge number.
    de has e's shape, summed over f where e is one column; 0 for edges of no row. Both have x's dtype (e's without x).
    """
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if reduce in ("max", "min") else ())
    count, edges = np.diff(indptr), np.arange(indptr[0], indptr[-1])
    row, source = np.repeat(np.arange(count.size), count), indices[edges]
    g = (grad / np.maximum(count, 1)[:, None] if reduce == "mean" else grad)[row].astype(dtype)
    chosen = arg[row] == edges[:, None] if reduce in ("max", "min") else True
    operands = g, x if x is None else x[source], e if e is None else e[edges]
    with np.errstate(all="ignore"):
        to_x, to_e = (partial and np.where(chosen, partial(*operands), 0) for partial in OPS[op][1:])
    dx, de = (None if to is None else np.zeros(a.shape, dtype) for to, a in ((to_x, x), (to_e, e)))
    if dx is not None:
        np.add.at(dx, source, to_x)
    if de is not None:
        de[edges] = to_e if e.shape[1] == width else to_e.sum(1, keepdims=True)
    return dx, de


def transpose_pattern(indptr, indices, n):
    """(indptr_t (n + 1,), indices_t (nnz,), edge_t (nnz,)): rows and numbers k of each column's entries, by k."""
    first, last = int(indptr[0]), int(indptr[-1])
    edge = first + np.argsort(indices[first:last], kind="stable")
    row = np.searchsorted(indptr, edge, side="right") - 1
    return np.r_[0, np.bincount(indices[first:last], minlength=n).cumsum()], row.astype(indices.dtype), edge


def check_operands(x, e, op, reduce, arg=(), ordered=np.ascontiguousarray):
    """Return (x, e, f, dtype) of `aggregate`: C order, one dtype, e None for copylhs; ValueError if they do not fit.

    `ordered` puts an array in C order, and in a dtype if it is given one: that of the backend's arrays.
    """
    if op not in OPS or reduce not in REDUCES:
        raise ValueError(f"op {op!r}, reduce {reduce!r}: known ops {', '.join(OPS)}; reduces {', '.join(REDUCES)}")
    missing = "x" * (x is None and op != "copyrhs") or "e" * (e is None and op != "copylhs") or "arg" * (arg is None)
    if missing:
        raise ValueError(f"op {op!r} with reduce {reduce!r} needs {missing}: only copyrhs goes without x, only copylhs "
                         "without e, only sum and mean without arg")
    width, dtype = (e if x is None else x).shape[-1], (e if x is None else x).dtype
    if op != "copylhs" and (e.ndim != 2 or e.shape[1] not in (1, width)):
        raise ValueError(f"e has shape {e.shape}, expected (nnz, {width}) or (nnz, 1)")
    return None if x is None else ordered(x), None if op == "copylhs" else ordered(e, dtype), width, dtype

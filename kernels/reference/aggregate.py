"""Aggregation primitive of DistGNN, and its gradients."""
from collections.abc import Callable

import numpy as np

from hpgcn.kernels import Array

REDUCES = ("sum", "mean", "max", "min")
OPS = {  # op(x, e), and the gradients of x and e for the gradient g of its result
    "add": (lambda x, e: x + e, lambda g, x, e: g, lambda g, x, e: g),
    "sub": (lambda x, e: x - e, lambda g, x, e: g, lambda g, x, e: -g),
    "mul": (lambda x, e: x * e, lambda g, x, e: g * e, lambda g, x, e: g * x),
    "div": (lambda x, e: x / e, lambda g, x, e: g / e, lambda g, x, e: -(g * x / e) / e),
    "copylhs": (lambda x, e: x, lambda g, x, e: g, None),
    "copyrhs": (lambda x, e: e, None, lambda g, x, e: g)}
OP_CODES = {op: code for code, op in enumerate(OPS)}  # codes that compiled kernels use
REDUCE_CODES = {reduce: code for code, reduce in enumerate(REDUCES)}


def aggregate(indptr: Array, indices: Array, x: Array, e: Array | None = None,
              out: Array | None = None, *, op: str = "copylhs", reduce: str = "sum") -> tuple[Array,
              Array]:
    """Return the reduced messages of each row, and arg (distgnn 2.1).

    out[v] = reduce of op(x[indices[k]], e[k]) over the edges k of row v.

    If a message is NaN, the result is NaN, also of max and min, whose chosen edge is
    then the first NaN of the row. An unknown operator, a missing operand, or an e of a
    wrong shape raises ValueError. indptr may start past 0.

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows are destinations v, columns sources u
    x : (n, f) float32 or float64; may be None for copyrhs, and f is then the width of e
    e : (nnz, f) or (nnz, 1), optional
        Edge features; a single column is used for all f. They are converted to x's dtype.
        Only copylhs needs none, and ignores them.
    out : (m, f), optional
        Result, C order, of x's dtype (e's if there is no x). An empty row gives 0.
    op, reduce : one of OPS, one of REDUCES

    Returns
    -------
    out : (m, f)
    arg : (m, f) int64 for max and min, else None
        The chosen edge k, the first of equal ones; -1 in an empty row.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> out, arg = reference.aggregate(indptr, indices, x, reduce="max")
    >>> out
    array([[ 2., 20.],
           [ 2., 20.]])
    >>> arg
    array([[1, 1],
           [2, 2]])
    """
    # a message for each edge
    x, e, width, dtype = check_operands(x, e, op, reduce)
    m = indptr.size - 1
    count = np.diff(indptr)
    edges = np.arange(indptr[0], indptr[-1])
    message = np.empty((edges.size, width), dtype)
    with np.errstate(all="ignore"):
        of_sources = None if x is None else x[indices[edges]]
        message[:] = OPS[op][0](of_sources, None if e is None else e[edges])

    # sums and means
    out = np.empty((m, width), dtype) if out is None else out
    out[:] = 0
    if reduce in ("sum", "mean"):
        np.add.at(out, np.repeat(np.arange(m), count), message)
        out /= np.maximum(count, 1)[:, None] if reduce == "mean" else 1
        return out, None

    # max and min, row by row
    arg = np.full((m, width), -1, np.int64)
    for v in np.flatnonzero(count):
        row = message[indptr[v] - indptr[0]:indptr[v + 1] - indptr[0]]
        first = row.argmax(0) if reduce == "max" else row.argmin(0)
        out[v] = row[first, np.arange(width)]
        arg[v] = indptr[v] + first
    return out, arg


def aggregate_backward(grad: Array, indptr: Array, indices: Array, x: Array, e: Array | None = None,
                       *, op: str, reduce: str, arg: Array | None = None,
                       transposed: tuple | None = None) -> tuple[Array, Array]:
    """Return the gradients (dx, de) of `aggregate` from grad (m, f); None for an unused operand.

    max and min need the `arg` that `aggregate` returned: the chosen edge gets the
    gradient. `transposed` is `transpose_pattern(indptr, indices, n)`, computed if
    absent. dx (n, f) is summed along the transpose, by increasing edge number. de has
    e's shape, and is summed over f if e is one column. It is 0 for edges of no row.
    Both have x's dtype, or e's without x.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> dx, de = reference.aggregate_backward(
    ...     np.ones((2, 2)), indptr, indices, x, op="copylhs", reduce="mean")
    >>> dx
    array([[0.5, 0.5],
           [1.5, 1.5]])
    >>> de is None
    True
    """
    # gradient of each message
    extreme = reduce in ("max", "min")
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if extreme else ())
    count = np.diff(indptr)
    edges = np.arange(indptr[0], indptr[-1])
    row = np.repeat(np.arange(count.size), count)
    source = indices[edges]
    g = (grad / np.maximum(count, 1)[:, None] if reduce == "mean" else grad)[row].astype(dtype)
    chosen = arg[row] == edges[:, None] if extreme else True

    # gradients of its operands
    operands = (g, None if x is None else x[source], None if e is None else e[edges])
    with np.errstate(all="ignore"):
        to_x, to_e = (
            partial and np.where(chosen, partial(*operands), 0) for partial in OPS[op][1:])

    # sum them by source and by edge
    dx, de = None, None
    if to_x is not None:
        dx = np.zeros(x.shape, dtype)
        np.add.at(dx, source, to_x)
    if to_e is not None:
        de = np.zeros(e.shape, dtype)
        de[edges] = to_e if e.shape[1] == width else to_e.sum(1, keepdims=True)
    return dx, de


def transpose_pattern(indptr: Array, indices: Array, n: int) -> tuple[Array, ...]:
    """Return pointers, rows and entry numbers of a transposed CSR pattern.

    Pointers are (n + 1,). Rows and entry numbers are (k,), and increase in each column.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> reference.transpose_pattern(indptr, indices, 2)
    (array([0, 1, 3]), array([0, 0, 1]), array([0, 1, 2]))
    """
    first = int(indptr[0])
    columns = indices[first:int(indptr[-1])]
    edge = first + np.argsort(columns, kind="stable")
    row = np.searchsorted(indptr, edge, side="right") - 1
    indptr_t = np.r_[0, np.bincount(columns, minlength=n).cumsum()]
    return indptr_t, row.astype(indices.dtype), edge


def check_operands(x: Array, e: Array, op: str, reduce: str, arg: tuple = (),
                   ordered: Callable = np.ascontiguousarray) -> tuple[Array, Array, int, np.dtype]:
    """Return (x, e, f, dtype) of `aggregate`, in C order and of one dtype.

    e is None for copylhs. `ordered` is the function of a version that puts an array in
    C order and, if given, in a dtype.
    """
    if op not in OPS or reduce not in REDUCES:
        raise ValueError(f"op {op!r}, reduce {reduce!r}: known ops {', '.join(OPS)}; reduces "
                         f"{', '.join(REDUCES)}")
    needed = {"x": x is None and op != "copyrhs", "e": e is None and op != "copylhs",
              "arg": arg is None}
    missing = next((name for name, absent in needed.items() if absent), None)
    if missing:
        raise ValueError(f"op {op!r} with reduce {reduce!r} needs {missing}: only copyrhs needs no "
                         "x, only copylhs no e, only sum and mean no arg")
    leading = e if x is None else x
    width = leading.shape[-1]
    dtype = leading.dtype
    if op != "copylhs" and (e.ndim != 2 or e.shape[1] not in (1, width)):
        raise ValueError(f"e has shape {e.shape}, expected (nnz, {width}) or (nnz, 1)")
    x = None if x is None else ordered(x)
    e = None if op == "copylhs" else ordered(e, dtype)
    return x, e, width, dtype

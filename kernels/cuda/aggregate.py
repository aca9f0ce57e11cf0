"""DistGNN's aggregation primitive on a GPU, and the gradients of its operands."""
import operator

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.cuda.spmm import spmm
from hpgcn.kernels.cuda.submatrix import flipped
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.reference.aggregate import OP_CODES, REDUCE_CODES, check_operands


def aggregate(indptr: Array, indices: Array, x: Array, e: Array | None = None,
              out: Array | None = None, *, op: str = "copylhs", reduce: str = "sum") -> tuple[Array,
              Array]:
    """Aggregate by `spmm` if it can, else each row on one thread.

    `spmm` computes sum and mean of copylhs, and of mul by one column.
    """
    x, e, width, dtype = check_operands(x, e, op, reduce, ordered=current().ordered)
    xp = current().xp
    m = indptr.size - 1
    out = xp.empty((m, width), dtype) if out is None else out
    arg = derived(xp.full, (m, width), -1, np.int64) if reduce in ("max", "min") else None
    if m and width:
        _reduce(indptr, indices, x, e, out, op=op, reduce=reduce, arg=arg)
    return out, arg


def aggregate_backward(grad: Array, indptr: Array, indices: Array, x: Array, e: Array | None = None,
                       *, op: str, reduce: str, arg: Array | None = None,
                       transposed: tuple | None = None) -> tuple[Array, Array]:
    """Compute dx by aggregating grad, grad * e (mul) or grad / e (div) along the transpose."""
    device = current()
    xp = device.xp
    extreme = reduce in ("max", "min")
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if extreme else (), device.ordered)
    dx = None if op == "copyrhs" else derived(xp.zeros, x.shape, dtype)
    de = None if op == "copylhs" else derived(xp.zeros, e.shape, dtype)
    indptr = device.ordered(indptr, np.int64)
    indices = device.ordered(indices)
    if indptr.size < 2 or indices.size == 0 or width == 0:
        return dx, de

    # the gradient of a mean is that of a sum
    grad = device.ordered(grad, dtype)
    if reduce == "mean":
        counts = xp.maximum(xp.diff(indptr), 1)[:, None].astype(dtype)
        grad = derived(operator.truediv, grad, counts)
    chosen = device.ordered(arg, np.int64) if extreme else None

    # gradient of x, along the transpose
    if dx is not None and dx.size:
        indptr_t, indices_t, edge_t = transposed or transpose_pattern(indptr, indices, x.shape[0])
        _reduce(indptr_t, indices_t, grad, e, dx, op=op if op in ("mul", "div") else "copylhs",
                reduce="sum", edge=device.ordered(edge_t, np.int64), chosen=chosen)

    # gradient of e
    if de is not None:
        first = int(indptr[0])
        count = int(indptr[-1]) - first
        narrow = e.shape[1] < width
        device.launch(
            "aggregate", "edge_gradient_sum" if narrow else "edge_gradient",
            count * (device.team if narrow else width), indptr, indptr.size - 1, indices, x, e,
            e.shape[1], OP_CODES[op], grad, chosen, de, width, first, count, REAL=dtype,
            INDEX=indices.dtype)
    return dx, de


def _reduce(indptr: Array, indices: Array, x: Array, e: Array, out: Array, *, op: str, reduce: str,
            arg: Array | None = None, edge: Array | None = None,
            chosen: Array | None = None) -> None:
    """Fill `out`, and `arg` for max and min; entry t reads row edge[t] of e.

    If `chosen` is given, only the entries that max or min chose are summed.
    """
    device = current()
    m, width = out.shape
    column = op == "mul" and e.shape[1] == 1
    if reduce in ("sum", "mean") and chosen is None and (op == "copylhs" or column):
        data = None
        if column:
            data = e.ravel() if edge is None else derived(operator.getitem, e.ravel(), edge)
        scale = None if reduce == "sum" else 1 / device.xp.maximum(device.xp.diff(indptr), 1)
        spmm(indptr, indices, data, x, out, row_scale=scale)  # distgnn equation 2
        return
    device.launch(
        "aggregate", "aggregate", m * width, device.ordered(indptr, np.int64),
        device.ordered(indices), edge, x, e, 1 if e is None else e.shape[1], OP_CODES[op],
        REDUCE_CODES[reduce], chosen, out, arg, m, width, REAL=out.dtype, INDEX=indices.dtype)


def transpose_pattern(indptr: Array, indices: Array, n: int) -> tuple[Array, ...]:
    xp = current().xp
    first, last = int(indptr[0]), int(indptr[-1])
    if first == last:
        return xp.zeros(n + 1, np.int64), indices[:0], xp.zeros(0, np.int64)
    indptr_t, row, order = flipped(indptr - first, indices[first:last], n)
    return indptr_t, row.astype(indices.dtype), first + order.astype(np.int64, copy=False)

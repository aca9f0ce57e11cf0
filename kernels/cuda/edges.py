"""Kernels on stored entries on a GPU: dot products, softmax over rows, and sums of
messages that read edge features.
"""
import numpy as np

from hpgcn.kernels.cuda.gpu_device import current, kept
from hpgcn.kernels.cuda.matmul import matmul
from hpgcn.kernels.cuda.reductions import column_sum

TILE = 1 << 24  # numbers of the gradients of entries that are in memory at a time


def edge_dot(indptr, indices, x, y, out=None, *, heads=1):
    device = current()
    out = device.xp.zeros((indices.size, heads), x.dtype) if out is None else out
    first = int(indptr[0])
    count = int(indptr[-1]) - first
    device.launch("edges", "edge_dot", count * heads, device.ordered(indptr, np.int64),
                  indptr.size - 1, device.ordered(indices), device.ordered(x),
                  device.ordered(y, x.dtype), out, heads, x.shape[1] // heads, first, count,
                  REAL=x.dtype, INDEX=indices.dtype)
    return out


def edge_softmax(indptr, values, out=None):
    return _by_row("edge_softmax", indptr, out, values)


def edge_softmax_backward(indptr, alpha, grad, out=None):
    return _by_row("edge_softmax_backward", indptr, out, alpha, grad)


def _by_row(name, indptr, out, *arrays):
    """Run a kernel with one thread for each row and head."""
    device = current()
    dtype = arrays[0].dtype
    out = device.xp.empty(arrays[0].shape, dtype) if out is None else out
    heads = out.shape[1]
    items = (indptr.size - 1) * heads if out.size else 0
    device.launch("edges", name, items, device.ordered(indptr, np.int64),
                  *(device.ordered(array, dtype) for array in arrays), out, items, heads,
                  REAL=dtype)
    return out


def edge_relu(indptr, indices, edge, x, features, weight, bias, out=None, *, accumulate=False):
    xp = current().xp
    m, width = indptr.size - 1, weight.shape[1]
    out = xp.empty((m, width), x.dtype) if out is None else out
    _on_messages("edge_relu", m * width, indptr, indices, edge, x, features, weight, bias, out,
            int(accumulate), m)
    return out


def edge_relu_backward(indptr, indices, edge, x, features, weight, bias, grad, out=None, *,
                       accumulate=False):
    """Write the gradients of a tile of entries to memory, and multiply them by their
    features.
    """
    xp = current().xp
    d, width = weight.shape
    n = indptr.size - 1
    out = xp.empty(x.shape, x.dtype) if out is None else out
    given = indptr, indices, edge, x, features, weight, bias, current().ordered(grad, x.dtype)
    _on_messages("edge_relu_rows", n * width, *given, out, int(accumulate), n)

    # the gradients of the weights, a tile of entries at a time
    dweight, dbias = xp.zeros((d, width), np.float64), xp.zeros(width, np.float64)
    first, last = kept(_ends, indptr)
    step = max(1, TILE // max(1, width))
    for start in range(first, last, step):
        count = min(step, last - start)
        slopes = xp.empty((count, width), x.dtype)
        _on_messages("edge_relu_slopes", count * width, *given, slopes, n, start, count)
        dweight += matmul(features[edge[start:start + count]].T, slopes)
        dbias += column_sum(slopes)
    return out, dweight, dbias


def _ends(indptr):
    """Return the first entry of a pattern and the one behind its last."""
    return int(indptr[0]), int(indptr[-1])


def _on_messages(name, threads, indptr, indices, edge, x, features, weight, bias, *others):
    device = current()
    arrays = (device.ordered(array, x.dtype) for array in (x, features, weight, bias))
    device.launch("edges", name, threads, device.ordered(indptr, np.int64),
                  device.ordered(indices), device.ordered(edge), *arrays, *weight.shape, *others,
                  REAL=x.dtype, INDEX=indices.dtype, EDGE=edge.dtype)

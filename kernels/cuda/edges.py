"""Kernels on stored entries on a GPU: dot products, and softmax over rows."""
import numpy as np

from hpgcn.kernels.cuda.gpu_device import current


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

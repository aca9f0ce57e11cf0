"""Normalization of rows and columns on a GPU.

hpgcn.kernels.reference.norm documents it.
"""
import numpy as np

from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.cuda.reductions import chunks_of, total


def row_sum(x):
    device = current()
    m, width = x.shape
    out = device.xp.empty(m)
    device.launch("norm", "row_sum", m * device.team, device.ordered(x), m, width, out,
                  REAL=x.dtype)
    return out


def row_squares(x, mean):
    device = current()
    m, width = x.shape
    out = device.xp.empty(m)
    device.launch("norm", "row_squares", m * device.team, device.ordered(x),
                  device.ordered(mean, np.float64), m, width, out, REAL=x.dtype)
    return out


def layer_norm(x, mean, inv_std, gain, bias, out=None, *, xhat=None):
    return _normalise("layer_norm", x, (mean, inv_std, gain, bias), out, xhat)


def _normalise(kernel, x, wide, out, xhat):
    device = current()
    m, width = x.shape
    out = device.xp.empty((m, width), x.dtype) if out is None else out
    wide = (device.ordered(array, np.float64) for array in wide)
    device.launch("norm", kernel, m * width, device.ordered(x), *wide, m, width, out, xhat,
                  REAL=x.dtype)
    return out


def layer_norm_backward_sums(g, xhat, gain):
    device = current()
    m, width = g.shape
    g = device.ordered(g)
    xhat = device.ordered(xhat, g.dtype)
    chunks = chunks_of(m)
    sums = device.xp.empty((m, 2))
    columns = device.xp.empty((chunks, 2 * width))
    device.launch("norm", "backward_row_sums", m * device.team, g, xhat,
                  device.ordered(gain, np.float64), m, width, sums, REAL=g.dtype)
    device.launch("norm", "backward_column_sums", chunks * width, g, xhat, m, width, chunks,
                  columns, REAL=g.dtype)
    both = total(columns)
    return sums, both[:width], both[width:]


def layer_norm_backward(g, xhat, inv_std, gain, means, out=None):
    return _backward("layer_norm_backward", g, xhat, (inv_std, gain, means), out)


def _backward(kernel, g, xhat, wide, out):
    device = current()
    m, width = g.shape
    out = device.xp.empty((m, width), g.dtype) if out is None else out
    wide = (device.ordered(array, np.float64) for array in wide)
    device.launch("norm", kernel, m * width, device.ordered(g), device.ordered(xhat, g.dtype),
                  *wide, m, width, out, REAL=g.dtype)
    return out


def column_squares(x, mean):
    device = current()
    m, width = x.shape
    chunks = chunks_of(m)
    sums = device.xp.empty((chunks, width))
    device.launch("norm", "column_squares", sums.size, device.ordered(x),
                  device.ordered(mean, np.float64), m, width, chunks, sums, REAL=x.dtype)
    return total(sums)


def batch_norm(x, mean, inv_std, gain, bias, out=None, *, xhat=None):
    return _normalise("batch_norm", x, (mean, inv_std, gain, bias), out, xhat)


def batch_norm_backward(g, xhat, inv_std, gain, means, out=None):
    return _backward("batch_norm_backward", g, xhat, (inv_std, gain, means), out)

"""Normalization of rows and columns on a GPU; see hpgcn.kernels.reference.norm."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.cuda.reductions import by_row, chunks_of, total


def row_sum(x: Array) -> Array:
    return by_row("norm", "row_sum", x, np.float64)


def row_squares(x: Array, mean: Array) -> Array:
    return by_row("norm", "row_squares", x, np.float64, current().ordered(mean, np.float64))


def layer_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    return _by_number("layer_norm", (x,), (mean, inv_std, gain, bias), out, xhat)


def _by_number(name: str, arrays: tuple, wide: tuple, out: Array | None,
               *last: Array | None) -> Array:
    """Run a kernel with one thread for each number of `out`, by default a new array."""
    device = current()
    m, width = arrays[0].shape
    dtype = arrays[0].dtype
    out = device.xp.empty((m, width), dtype) if out is None else out
    device.launch("norm", name, m * width, *(device.ordered(each, dtype) for each in arrays),
                  *(device.ordered(each, np.float64) for each in wide), m, width, out, *last,
                  REAL=dtype)
    return out


def layer_norm_backward_sums(g: Array, xhat: Array, gain: Array) -> tuple[Array, ...]:
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


def layer_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    return _by_number("layer_norm_backward", (g, xhat), (inv_std, gain, means), out)


def column_squares(x: Array, mean: Array) -> Array:
    device = current()
    m, width = x.shape
    chunks = chunks_of(m)
    sums = device.xp.empty((chunks, width))
    device.launch("norm", "column_squares", sums.size, device.ordered(x),
                  device.ordered(mean, np.float64), m, width, chunks, sums, REAL=x.dtype)
    return total(sums)


def batch_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    return _by_number("batch_norm", (x,), (mean, inv_std, gain, bias), out, xhat)


def batch_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    return _by_number("batch_norm_backward", (g, xhat), (inv_std, gain, means), out)

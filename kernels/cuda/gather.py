"""Copies of rows into exchange buffers, and sums of received rows, on a GPU."""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import Device, cached, current
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import recording


def gather(x: Array, index: Array, out: Array | None = None) -> Array:
    device = current()
    if out is None:
        out = device.xp.empty((index.size, x.shape[1]), x.dtype)
    if out.size == 0:
        return out
    accessed((x,), (out,))
    row_bytes = x.shape[1] * x.itemsize
    source, target = _row(device, x), _row(device, out)
    common = math.gcd(row_bytes, *source, *target)
    unit = next(unit for unit in (16, 4, 2, 1) if common % unit == 0)
    device.launch("gather", f"gather_{unit}", index.size * (row_bytes // unit), *source,
                  device.ordered(index, np.int64), *target, row_bytes // unit, index.size)
    return out


def scatter_add(x: Array, index: Array, out: Array) -> Array:
    """Add rows; one thread adds a piece of all rows that belong to one sum.

    A stable sort of the index groups these rows. The sorted order is cached as long as
    the index exists, so the index must not change.
    """
    device = current()
    if x.size == 0:
        return out
    if index.dtype != np.int64:
        index = cached(_wide, index)
    order = cached(_order, index)
    accessed((x,), (out,))
    source, stride = _row(device, x)
    target, out_stride = _row(device, out)
    row_bytes = x.shape[1] * x.itemsize
    wide = math.gcd(row_bytes, source, stride, target, out_stride) % 16 == 0
    pieces = row_bytes // 16 if wide else x.shape[1]
    device.launch("gather", "scatter_add_16" if wide else "scatter_add_1", index.size * pieces,
                  source, stride // x.itemsize, index, order, target, out_stride // x.itemsize,
                  pieces, index.size, REAL=x.dtype)
    return out


def _wide(index: Array) -> Array:
    return index.astype(np.int64)


def _order(index: Array) -> Array:
    return current().xp.argsort(index, kind="stable").astype(np.int64, copy=False)


def _row(device: Device, array: Array) -> tuple[int, int]:
    """Return an array's address and row distance in bytes; ValueError if rows have gaps."""
    if array.shape[1] > 1 and array.strides[1] != array.itemsize:
        raise ValueError(f"rows of an array with strides {array.strides} are not contiguous, "
                         f"expected {array.itemsize} bytes between columns")
    if (active := recording()) is not None:
        active.arrays.append(array)
    return device.address(array), array.strides[0]

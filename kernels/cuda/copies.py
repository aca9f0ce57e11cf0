"""Copies and sums of rows of two dtypes on a GPU."""
from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current


def convert(x: Array, out: Array) -> Array:
    device = current()
    device.launch("copies", "convert", x.size, device.ordered(x), out, x.size, FROM=x.dtype,
                  TO=out.dtype)
    return out


def add(x: Array, out: Array) -> Array:
    device = current()
    device.launch("copies", "add", x.size, device.ordered(x), out, x.size, FROM=x.dtype)
    return out

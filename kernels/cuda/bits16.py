"""Copies and sums of rows of two dtypes on a GPU."""
from hpgcn.kernels.cuda.gpu_device import current


def convert(x, out):
    device = current()
    device.launch("bits16", "convert", x.size, device.ordered(x), out, x.size, FROM=x.dtype,
                  TO=out.dtype)
    return out


def add(x, out):
    device = current()
    device.launch("bits16", "add", x.size, device.ordered(x), out, x.size, FROM=x.dtype)
    return out

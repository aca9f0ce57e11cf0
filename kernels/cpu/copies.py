"""Copies and sums of rows of two dtypes on CPU threads."""


from hpgcn.kernels import Array
from hpgcn.kernels.cpu.chunks import evenly
from hpgcn.kernels.cpu.emit.bfloat16 import narrow, widen
from hpgcn.kernels.host.threads import Threaded, chunks


@Threaded
def _convert(counters, x, out, bounds):
    zero = out.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(x.shape[1]):
                out[i, q] = narrow(widen(x[i, q]), zero)


@Threaded
def _add(counters, x, out, bounds):
    zero = out.dtype.type(0)
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            for q in range(x.shape[1]):
                out[i, q] = narrow(widen(out[i, q]) + widen(x[i, q]), zero)


def convert(x: Array, out: Array) -> Array:
    _convert(x.size, x, out, evenly(x.shape[0]))
    return out


def add(x: Array, out: Array) -> Array:
    _add(x.size, x, out, evenly(x.shape[0]))
    return out

"""Passes over dense rows and parameters on a GPU: dropout, activation, masks, optimizers."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import number_dtype
from hpgcn.kernels.cuda.copies import convert
from hpgcn.kernels.cuda.gpu_device import current, rows_of
from hpgcn.kernels.cuda.step_words import words_of_step
from hpgcn.kernels.reference.random import draw_key, dropout_scale


def philox(counter: Array | tuple[int, ...], key: Array | tuple[int, int]) -> Array:
    device = current()
    counter = device.ordered(device.xp.asarray(counter).astype(np.uint32))
    out = device.xp.empty_like(counter)
    items = counter.size // 4
    device.launch("elementwise", "philox", items, counter, items,
                  *(np.uint32(int(k)) for k in key), out)
    return out


def _key(seed: int, epoch: int, layer: int, p: float) -> tuple:
    """Return arguments of draws: where the epoch is if it is in memory, and the key."""
    now = words_of_step(_epoch_word, epoch) if p else None
    return now, *draw_key(np.uint32, seed, epoch, layer, p)


def _epoch_word(epoch: int) -> tuple:
    return (epoch,)


def dropout_bits(vertex: Array, width: int, *, seed: int, epoch: int, layer: int, p: float,
                 first: int = 0) -> Array:
    device = current()
    out = device.xp.empty((vertex.size, -(-width // 8)), np.uint8)
    device.launch("elementwise", "dropout_bits", out.size, device.ordered(vertex, np.int64),
                  vertex.size, width, first, *_key(seed, epoch, layer, p), out)
    return out


def dropout(x: Array, vertex: Array, *, seed: int, epoch: int, layer: int, p: float, first: int = 0,
            out: Array | None = None) -> Array:
    device = current()
    m, width = x.shape
    out = device.xp.empty((m, width), x.dtype) if out is None else out
    x = device.ordered(x)
    if x.dtype != out.dtype:
        x = convert(x, device.xp.empty(x.shape, out.dtype))
    device.launch("elementwise", "dropout", m * -(-width // 8), x, device.ordered(vertex, np.int64),
                  m, width, first, *_key(seed, epoch, layer, p),
                  number_dtype(x.dtype).type(dropout_scale(p)), out,
                  int(device.aligned(x, out)), **rows_of(x.dtype))
    return out


def dropout_csr(indptr: Array, indices: Array, data: Array, vertex: Array, *, seed: int, epoch: int,
                layer: int, p: float, first: int = 0, out: Array | None = None) -> Array:
    device = current()
    m = indptr.size - 1
    out = device.xp.empty_like(data) if out is None else out
    device.launch("elementwise", "dropout_csr", m * device.team if data.size else 0,
                  device.ordered(indptr, np.int64), device.ordered(indices), device.ordered(data),
                  device.ordered(vertex, np.int64), m, first,
                  *_key(seed, epoch, layer, p), data.dtype.type(dropout_scale(p)),
                  out, REAL=data.dtype, INDEX=indices.dtype)
    return out


def activate(z: Array, bias: Array, vertex: Array | None = None, *, relu: bool = True,
             seed: int = 0, epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
             mask: Array | None = None, drawn: bool = False) -> Array:
    device = current()
    m, width = z.shape
    number = number_dtype(z.dtype)
    bias = device.ordered(bias, number)
    device.launch("elementwise", "activate", m * -(-width // 8), z, bias,
                  device.ordered(vertex, np.int64), m, width, int(relu), first,
                  *_key(seed, epoch, layer, p), number.type(dropout_scale(p)), mask,
                  int(drawn and p > 0), int(device.aligned(z, bias)), **rows_of(z.dtype))
    return z


def activate_smooth(z: Array, bias: Array, vertex: Array | None = None, *, kind: str, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    mask: Array | None = None, slopes: Array | None = None) -> Array:
    device = current()
    m, width = z.shape
    device.launch("elementwise", "activate_smooth", m * -(-width // 8), z,
                  device.ordered(bias, z.dtype), device.ordered(vertex, np.int64), m, width,
                  int(kind == "elu"), first, *_key(seed, epoch, layer, p),
                  float(dropout_scale(p)), mask, slopes, REAL=z.dtype)
    return z


def elu_backward(g: Array, out: Array, mask: Array | None = None, scale: float = 1.0) -> Array:
    device = current()
    m, width = g.shape
    device.launch("elementwise", "elu_backward", m * width, g, device.ordered(out, g.dtype),
                  None if mask is None else device.ordered(mask), m, width, float(scale),
                  REAL=g.dtype)
    return g


def apply_mask(x: Array, mask: Array, scale: float = 1.0) -> Array:
    device = current()
    m, width = x.shape
    device.launch("elementwise", "apply_mask", m * -(-width // 8), x, device.ordered(mask), m,
                  width, number_dtype(x.dtype).type(scale), int(device.aligned(x)),
                  **rows_of(x.dtype))
    return x


def adam(w: Array, g: Array, mean: Array, variance: Array, *, step: int, lr: float,
         decay: float = 0.0, decayed: int = 0, beta1: float = 0.9, beta2: float = 0.999,
         epsilon: float = 1e-8) -> None:
    device = current()
    device.launch("elementwise", "adam", w.size, w, device.ordered(g, w.dtype), mean, variance,
                  w.size, float(decay), decayed, float(beta1), float(beta2), lr / (1 - beta1**step),
                  (1 - beta2**step) ** -0.5, float(epsilon), REAL=w.dtype)


def sgd(w: Array, g: Array, *, lr: float, decay: float = 0.0, decayed: int = 0) -> None:
    device = current()
    device.launch("elementwise", "sgd", w.size, w, device.ordered(g, w.dtype), w.size, float(decay),
                  decayed, float(lr), REAL=w.dtype)

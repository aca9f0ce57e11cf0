"""Kernels on dense rows and parameters: activation, column sums, optimizer steps."""
import math

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import numbers, store
from hpgcn.kernels.masks import pack_mask, unpack
from hpgcn.kernels.reference.random import dropout_bits, dropout_scale


def activate(z: Array, bias: Array, vertex: Array | None = None, *, relu: bool = True,
             seed: int = 0, epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
             mask: Array | None = None, drawn: bool = False) -> Array:
    """Set z = keep * scale * relu(z + bias) in place and return it.

    Bits of the mask are 1 where the slope is not 0.

    Parameters
    ----------
    z : (m, f), changed; may have 16 bits (hpgcn.kernels.bits16)
    bias : (f,)
    vertex : (m,) int64; ORIGINAL vertex numbers; needed if p > 0
    p : float; probability of dropping; `layer` and `epoch` key the draw
    first : int
        Global number of column 0 of z, for the draw. Bit 0 of the mask is always column 0
        of z.
    mask : (m, ceil(f / 8)) uint8, optional
        Receives the bits (keep and z + bias > 0), in the order of
        `hpgcn.kernels.pack_mask`: little-endian. Bits from column f on are 0.
    drawn : bool
        The mask has the bits that dropout keeps (`dropout_bits`). None are drawn then, and
        `vertex` is not needed.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> z = np.array([[-1.0, 2.0]])
    >>> reference.activate(z, np.array([0.5, 0.5]))
    array([[0. , 2.5]])
    """
    # activation and dropout decide what is kept
    value = numbers(z) + bias
    keep = ~(value <= 0) if relu else np.ones(z.shape, bool)  # NaN stays: the loss must show it
    if p:
        bits = mask if drawn else dropout_bits(
            vertex, z.shape[1], seed=seed, epoch=epoch, layer=layer, p=p, first=first)
        keep = keep & unpack(bits, z.shape[1])

    # write z and the mask
    store(np.where(keep, value * value.dtype.type(dropout_scale(p)), 0), z)
    if mask is not None:
        mask[:] = pack_mask(keep)
    return z


def activate_smooth(z: Array, bias: Array, vertex: Array | None = None, *, kind: str, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    mask: Array | None = None, slopes: Array | None = None) -> Array:
    """Set z = keep * scale * act(z + bias) in place, in float64, and return it.

    Parameters
    ----------
    kind : "elu", z or exp(z) - 1 (Clevert, Unterthiner and Hochreiter 2016, equation 15, alpha 1),
        or "gelu", z Phi(z) (Hendrycks and Gimpel 2016, section 2)
    mask : (m, ceil(f / 8)) uint8, optional
        Receives the bits that dropout keeps, in the order of `hpgcn.kernels.pack_mask`:
        little-endian. Bits from column f on are 0.
    slopes : (m, f), optional; receives keep * scale * act'(z + bias)

    All other arguments are as in `activate`.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> z, slopes = np.array([[0.0, 2.0]]), np.empty((1, 2))
    >>> reference.activate_smooth(z, np.zeros(2), kind="elu", slopes=slopes)
    array([[0., 2.]])
    >>> slopes
    array([[1., 1.]])
    """
    # dropout
    z += bias
    value = z.astype(np.float64)
    keep = np.ones(z.shape, bool)
    if p:
        bits = dropout_bits(
            vertex, z.shape[1], seed=seed, epoch=epoch, layer=layer, p=p, first=first)
        keep = unpack(bits, z.shape[1])

    # value and slope
    scale = dropout_scale(p)
    if kind == "elu":
        low = np.expm1(np.minimum(value, 0))
        result, rise = np.where(value > 0, value, low), np.where(value > 0, 1, low + 1)
    else:
        below = (1 + np.vectorize(math.erf, [float])(value * math.sqrt(0.5))) / 2
        density = np.exp(-value * value / 2) / math.sqrt(2 * math.pi)
        result, rise = value * below, below + value * density

    # write z, the mask and the slopes
    z[:] = np.where(keep, result * scale, 0)
    if mask is not None:
        mask[:] = pack_mask(keep)
    if slopes is not None:
        slopes[:] = np.where(keep, rise * scale, 0)
    return z


def elu_backward(g: Array, out: Array, mask: Array | None = None, scale: float = 1.0) -> Array:
    """Set g = keep * scale * elu' * g in place and return it.

    `out` is the result of `activate_smooth`. Below 0 elu' is elu + 1, so scale * elu'
    is `out` + scale. Without a mask all numbers are kept.

    Parameters
    ----------
    g : (m, f), changed
    out : (m, f)
    mask : (m, ceil(f / 8)) uint8, optional
        Bits to keep, in the order of `hpgcn.kernels.pack_mask`: little-endian.
    scale : float

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> out = np.array([[-0.5, 2.0]])
    >>> reference.elu_backward(np.ones((1, 2)), out)
    array([[0.5, 1. ]])
    """
    rise = np.where(out > 0, scale, out.astype(np.float64) + scale)
    keep = True if mask is None else unpack(mask, g.shape[1])
    g[:] = np.where(keep, g * rise, 0)
    return g


def apply_mask(x: Array, mask: Array, scale: float = 1.0) -> Array:
    """Set x = mask * scale * x in place, and return it.

    Parameters
    ----------
    x : (m, f), changed; may have 16 bits
    mask : (m, ceil(f / 8)) uint8
        Bits to keep, in the order of `hpgcn.kernels.pack_mask`: little-endian.
    scale : float

    Examples
    --------
    >>> from hpgcn.kernels import pack_mask, reference
    >>> reference.apply_mask(np.array([[1.0, 2.0]]), pack_mask([[True, False]]), scale=2.0)
    array([[2., 0.]])
    """
    value = numbers(x)
    return store(np.where(unpack(mask, x.shape[1]), value * value.dtype.type(scale), 0), x)


def column_sum(x: Array) -> Array:
    """Return the sum over rows in float64: (m, f), which may have 16 bits, to (f,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.column_sum(np.array([[1.0, 10.0], [2.0, 20.0]]))
    array([ 3., 30.])
    """
    return numbers(x).sum(0, dtype=np.float64)


def inner(x: Array, y: Array) -> Array:
    """Return the sum of all products x * y in float64: (m, f) twice to (1,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.inner(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([11.])
    """
    return (x.astype(np.float64) * y).sum().reshape(1)


def adam(w: Array, g: Array, mean: Array, variance: Array, *, step: int, lr: float,
         decay: float = 0.0, decayed: int = 0, beta1: float = 0.9, beta2: float = 0.999,
         epsilon: float = 1e-8) -> None:
    """Take one Adam step in place, with bias correction (Kingma and Ba 2015, Algorithm 1).

    `step` counts from 1. The first `decayed` elements use g + decay * w in place of g.
    w, mean and variance change; g does not.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> w, mean, variance = np.ones(2), np.zeros(2), np.zeros(2)
    >>> reference.adam(w, np.array([1.0, -2.0]), mean, variance, step=1, lr=0.5)
    >>> w.round(6)
    array([0.5, 1.5])
    """
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    mean += (1 - beta1) * (g - mean)
    variance += (1 - beta2) * (g * g - variance)
    root = np.sqrt(variance / (1 - beta2**step)) + epsilon
    w -= lr * (mean / (1 - beta1**step)) / root


def sgd(w: Array, g: Array, *, lr: float, decay: float = 0.0, decayed: int = 0) -> None:
    """Take one step of gradient descent in place.

    `decay` and `decayed` are as in `adam`.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> w = np.ones(2)
    >>> reference.sgd(w, np.array([1.0, 2.0]), lr=0.5)
    >>> w
    array([0.5, 0. ])
    """
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    w -= lr * g

"""Counter-based random bits, and dropout by keyed bits."""

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import numbers, store
from hpgcn.kernels.masks import pack_mask, unpack

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox(counter: Array | tuple[int, ...], key: Array | tuple[int, int]) -> Array:
    """Scramble counters by a key: Philox4x32-10 (Salmon et al. 2011).

    Counters are (..., 4) uint32, the key (2,) uint32.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> counter, key = np.zeros(4, np.uint32), np.zeros(2, np.uint32)
    >>> [f"{word:08x}" for word in reference.philox(counter, key)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = (np.asarray(counter, np.uint64)[..., i] for i in range(4))
    k0, k1 = (np.uint64(k) for k in key)
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1 = (p1 >> SHIFT) ^ c1 ^ k0, p1 & LOW
        c2, c3 = (p0 >> SHIFT) ^ c3 ^ k1, p0 & LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & LOW
    return np.stack([c0, c1, c2, c3], -1).astype(np.uint32)


def dropout_threshold(p: float) -> int:
    """Return the integer t in [0, 65536) for a probability p: 16-bit draws below t drop."""
    return round(p * 65536)


def dropout_scale(p: float) -> float:
    """Return 65536 / (65536 - t), the scale of numbers that dropout keeps.

    This scale preserves the mean.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.dropout_scale(0.5)
    2.0
    """
    return 65536 / (65536 - dropout_threshold(p))


def draw_key(word: type, seed: int, epoch: int, layer: int, p: float) -> tuple:
    """Return the key of dropout draws, integers of type `word`.

    The key is epoch, layer, the two words of the seed, and the threshold for p.
    """
    words = (epoch, layer, seed & 0xFFFFFFFF, seed >> 32, dropout_threshold(p))
    return tuple(map(word, words))


def dropout_bits(vertex: Array, width: int, *, seed: int, epoch: int, layer: int, p: float,
                 first: int = 0) -> Array:
    """Return the keep bits of vertices and columns.

    They depend only on seed, epoch, layer, vertex and column. One Philox block gives 8
    columns, one byte. The counter is (vertex low, byte, epoch, layer << 16 | vertex
    high), and the key is the seed. Bit q is 1 (keep) if 16-bit lane q >= round(p
    65536).

    Parameters
    ----------
    vertex : (m,) int64; ORIGINAL vertex numbers
    width : int; columns (f)
    first : int
        Global number of column 0, which is always bit 0 of the result. If it lies within a
        byte of draws, a byte of the result has bits of two of them.

    Returns
    -------
    (m, ceil(f / 8)) uint8
        Bit 1 means keep, in the order of `hpgcn.kernels.pack_mask`: little-endian.

    Examples
    --------
    >>> from hpgcn.kernels import reference, unpack_mask
    >>> bits = reference.dropout_bits(np.arange(2), 4, seed=0, epoch=1, layer=0, p=0.5)
    >>> unpack_mask(bits, 4)
    array([[False,  True, False,  True],
           [ True,  True, False,  True]])
    """
    # whole bytes, from the one that column 0 is in
    vertex = np.asarray(vertex, np.int64)
    skip = first % 8
    num_bytes = -(-(skip + width) // 8)

    # a counter for each byte
    counter = np.empty((vertex.size, num_bytes, 4), np.uint64)
    counter[..., 0] = (vertex & 0xFFFFFFFF)[:, None]
    counter[..., 1] = first // 8 + np.arange(num_bytes)
    counter[..., 2] = epoch
    counter[..., 3] = (layer << 16 | vertex >> 32)[:, None]

    # 16 bits a column
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    lanes = np.stack([words & 0xFFFF, words >> 16], -1).reshape(vertex.size, num_bytes * 8)
    return pack_mask(lanes[:, skip:skip + width] >= dropout_threshold(p))


def dropout(x: Array, vertex: Array, *, seed: int, epoch: int, layer: int, p: float, first: int = 0,
            out: Array | None = None) -> Array:
    """Return keep * x * 65536 / (65536 - t).

    Column 0 of x has the global number `first`. x and out may have 16 bits.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.dropout(np.ones((2, 4)), np.arange(2), seed=0, epoch=1, layer=0, p=0.5)
    array([[0., 2., 0., 2.],
           [2., 2., 0., 2.]])
    """
    out = np.empty_like(x) if out is None else out
    width = x.shape[1]
    bits = dropout_bits(vertex, width, seed=seed, epoch=epoch, layer=layer, p=p, first=first)
    value = numbers(x)
    return store(np.where(unpack(bits, width), value * value.dtype.type(dropout_scale(p)), 0), out)


def dropout_csr(indptr: Array, indices: Array, data: Array, vertex: Array, *, seed: int, epoch: int,
                layer: int, p: float, first: int = 0, out: Array | None = None) -> Array:
    """Drop stored entries of sparse features (CSR); return the values.

    The bits are those of `dropout` for dense features. Column j of `indices` is the
    global column first + j.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> reference.dropout_csr(
    ...     indptr, indices, np.ones(3), np.arange(2), seed=0, epoch=1, layer=0, p=0.5)
    array([0., 2., 2.])
    """
    out = np.empty_like(data) if out is None else out
    width = int(indices.max(initial=-1)) + 1
    bits = dropout_bits(vertex, width, seed=seed, epoch=epoch, layer=layer, p=p, first=first)
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    keep = unpack(bits, width)[row, indices]
    out[:] = np.where(keep, data * data.dtype.type(dropout_scale(p)), 0)
    return out

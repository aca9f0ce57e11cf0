"""Counter-based random bits and keyed dropout."""
import numpy as np

from hpgcn.kernels.reference.bits import pack, unpack


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011): (..., 4) uint32 counters and (2,) uint32 key to (..., 4) uint32."""
    c0, c1, c2, c3 = (np.asarray(counter, np.uint64)[..., i] for i in range(4))
    k0, k1 = (np.uint64(k) for k in key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack([c0, c1, c2, c3], -1).astype(np.uint32)


def dropout_threshold(p):
    """Integer t in [0, 65536): a 16-bit draw below t is dropped; kept values grow by 65536 / (65536 - t)."""
    return round(p * 65536)


def dropout_scale(p):
    """65536 / (65536 - t): the expected value of a kept and scaled number stays the same."""
    return 65536 / (65536 - dropout_threshold(p))


def dropout_bits(vertex, width, *, seed, epoch, layer, p, first=0):
    """Keyed dropout: the bit of (vertex, column) depends on (seed, epoch, layer, vertex, global column) alone.

    One Philox block is 8 columns, one byte: counter (vertex low, byte, epoch, layer << 16 | vertex high), key = seed;
    bit q is 1 (keep) where 16-bit lane q >= round(p 65536).

    Parameters
    ----------
    vertex : (m,) int64
        ORIGINAL vertex numbers.
    width : int
        Columns (f).
    first : int
        Global number of column 0. A block that begins inside a byte gets bits of two bytes: its own bit 0 is column 0.

    Returns
    -------
    (m, ceil(f / 8)) uint8
    """
    vertex, skip, bytes_ = np.asarray(vertex, np.int64), first % 8, -(-(first % 8 + width) // 8)
    counter = np.empty((vertex.size, bytes_, 4), np.uint64)
    counter[..., 0] = (vertex & 0xFFFFFFFF)[:, None]
    counter[..., 1] = first // 8 + np.arange(bytes_)
    counter[..., 2] = epoch
    counter[..., 3] = (layer << 16 | vertex >> 32)[:, None]
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    lanes = np.stack([words & 0xFFFF, words >> 16], -1).reshape(vertex.size, bytes_ * 8)
    return pack(lanes[:, skip:skip + width] >= dropout_threshold(p))


def dropout(x, vertex, *, seed, epoch, layer, p, first=0, out=None):
    """Dense dropout of columns from `first` on: out = keep * x * 65536 / (65536 - t)."""
    out, width = np.empty_like(x) if out is None else out, x.shape[1]
    keep = unpack(dropout_bits(vertex, width, seed=seed, epoch=epoch, layer=layer, p=p, first=first), width)
    out[:] = np.where(keep, x * x.dtype.type(dropout_scale(p)), 0)
    return out


def dropout_csr(indptr, indices, data, vertex, *, seed, epoch, layer, p, first=0, out=None):
    """Dropout of the stored entries of CSR features, the same bits as their dense form would get. Returns values.

    Column j of `indices` is global column first + j.
    """
    out = np.empty_like(data) if out is None else out
    width = int(indices.max(initial=-1)) + 1
    keep = unpack(dropout_bits(vertex, width, seed=seed, epoch=epoch, layer=layer, p=p, first=first), width)
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    out[:] = np.where(keep[row, indices], data * data.dtype.type(dropout_scale(p)), 0)
    return out

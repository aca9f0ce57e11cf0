"""The oracle: every kernel in plain NumPy and SciPy, with the names and signatures of kernels.cpu and kernels.cuda.

Slow and obvious. Tests hold the other backends against it; nothing else calls it.

Bit masks: (m, ceil(f / 8)) uint8, little-endian within a byte, column 0 first, pad bits 0; bit 1 means keep.
"""
import numpy as np
import scipy.sparse as sp


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None, mask=None, accumulate=False):
    """Sparse times dense: out[i] = mask[i] * (out[i] if accumulate + row_scale[i] * sum_k data[k] col_scale[j] x[j]).

    Here j = indices[k] and k runs over indptr[i]..indptr[i + 1].

    Parameters
    ----------
    indptr : (m + 1,) int64 or int32
        Row pointers into indices and data; need not start at 0.
    indices : (nnz,) int32 or int64
        Rows of x.
    data : (nnz,) float or None
        Weights; None if all are 1.
    x : (n, f) float32 or float64, C order
    out : (m, f), optional
        Result, of x's dtype; made (zeros) if absent.
    row_scale : (m,), optional
    col_scale : (n,), optional
    rows : (r,) int64, optional
        The only rows to compute, each at most once; the others keep what out holds.
    mask : (m, ceil(f / 8)) uint8, optional
        Bits to keep; it applies to the result (S-SpMM, mixgcn section 3).
    accumulate : bool
        Add to what out holds.

    Returns
    -------
    out : (m, f)
    """
    m, (n, f) = indptr.size - 1, x.shape
    out = np.zeros((m, f), x.dtype) if out is None else out
    rows = np.arange(m) if rows is None else rows
    first, last = int(indptr[0]), int(indptr[-1])
    values = np.ones(last - first, x.dtype) if data is None else data[first:last]
    total = sp.csr_array((values, indices[first:last], indptr - first), shape=(m, n))
    total = total @ (x if col_scale is None else x * np.asarray(col_scale)[:, None])
    if row_scale is not None:
        total = total * np.asarray(row_scale)[:, None]
    result = total + out if accumulate else total
    if mask is not None:
        result = np.where(unpack(mask, f), result, 0)
    out[rows] = result[rows]
    return out


def sspmm(indptr, indices, data, x, mask, out=None, *, row_scale=None, col_scale=None, rows=None, accumulate=False):
    """Masked SpMM, (A x) .* M: `spmm` with its mask named first (mixgcn, S-SpMM)."""
    return spmm(indptr, indices, data, x, out, row_scale=row_scale, col_scale=col_scale, rows=rows, mask=mask,
                accumulate=accumulate)


def gather(x, index, out=None):
    """Copy rows: out[i] = x[index[i]] (the copy semiring of demirci-2022, Algorithm 1)."""
    out = np.empty((index.size, x.shape[1]), x.dtype) if out is None else out
    out[:] = x[index]
    return out


def scatter_add(x, index, out):
    """Add rows: out[index[i]] += x[i], in increasing i; the transpose of `gather`. Returns out."""
    np.add.at(out, index, x)
    return out


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


def dropout_bits(vertex, width, *, seed, epoch, layer, p):
    """Keyed dropout: the bit of (vertex, column) depends on (seed, epoch, layer, vertex, column) alone.

    One Philox block is 8 columns, one byte: counter (vertex low, byte, epoch, layer << 16 | vertex high), key = seed;
    bit q is 1 (keep) where 16-bit lane q >= round(p 65536).

    Parameters
    ----------
    vertex : (m,) int64
        ORIGINAL vertex numbers.
    width : int
        Columns (f).

    Returns
    -------
    (m, ceil(f / 8)) uint8
    """
    vertex, bytes_ = np.asarray(vertex, np.int64), -(-width // 8)
    counter = np.empty((vertex.size, bytes_, 4), np.uint64)
    counter[..., 0] = (vertex & 0xFFFFFFFF)[:, None]
    counter[..., 1] = np.arange(bytes_)
    counter[..., 2] = epoch
    counter[..., 3] = (layer << 16 | vertex >> 32)[:, None]
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    lanes = np.stack([words & 0xFFFF, words >> 16], -1).reshape(vertex.size, bytes_ * 8)
    return pack(lanes[:, :width] >= dropout_threshold(p))


def dropout(x, vertex, *, seed, epoch, layer, p, out=None):
    """Dense dropout: out = keep * x * 65536 / (65536 - t)."""
    out = np.empty_like(x) if out is None else out
    keep = unpack(dropout_bits(vertex, x.shape[1], seed=seed, epoch=epoch, layer=layer, p=p), x.shape[1])
    out[:] = np.where(keep, x * x.dtype.type(dropout_scale(p)), 0)
    return out


def dropout_csr(indptr, indices, data, vertex, *, seed, epoch, layer, p, out=None):
    """Dropout of the stored entries of CSR features, the same bits as their dense form would get. Returns values."""
    out = np.empty_like(data) if out is None else out
    width = int(indices.max(initial=-1)) + 1
    keep = unpack(dropout_bits(vertex, width, seed=seed, epoch=epoch, layer=layer, p=p), width)
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    out[:] = np.where(keep[row, indices], data * data.dtype.type(dropout_scale(p)), 0)
    return out


def dropout_scale(p):
    """65536 / (65536 - t): the expected value of a kept and scaled number stays the same."""
    return 65536 / (65536 - dropout_threshold(p))


def activate(z, bias, vertex=None, *, relu=True, seed=0, epoch=0, layer=0, p=0.0, mask=None):
    """In place z = keep * scale * relu(z + bias), in one pass; emits the bits where the derivative is not 0.

    Parameters
    ----------
    z : (m, f), changed
    bias : (f,)
    vertex : (m,) int64
        ORIGINAL vertex numbers; needed if p > 0.
    p : float
        Probability of dropping; `layer` and `epoch` key the draw.
    mask : (m, ceil(f / 8)) uint8, optional
        Receives the bits (keep and z + bias > 0).

    Returns
    -------
    z
    """
    z += bias
    keep = ~(z <= 0) if relu else np.ones(z.shape, bool)  # NaN passes on: the loss must see it
    if p:
        keep = keep & unpack(dropout_bits(vertex, z.shape[1], seed=seed, epoch=epoch, layer=layer, p=p), z.shape[1])
    z[:] = np.where(keep, z * z.dtype.type(dropout_scale(p)), 0)
    if mask is not None:
        mask[:] = pack(keep)
    return z


def apply_mask(x, mask, scale=1.0):
    """In place x = mask * scale * x. Returns x."""
    x[:] = np.where(unpack(mask, x.shape[1]), x * x.dtype.type(scale), 0)
    return x


def softmax_cross_entropy(logits, labels, rows, *, scale=1.0, grad=None):
    """Cross-entropy of the softmax of some rows, how many argmaxes are right, and the gradient.

    Parameters
    ----------
    logits : (m, c)
    labels : (m,) int64
        Class ids in 0..c-1 at `rows`.
    rows : (r,) int64
        Rows that count.
    scale : float
        Factor of the gradient (1 / global number of counted rows).
    grad : (m, c), optional
        Receives scale * (softmax - one-hot) at `rows`, 0 elsewhere.

    Returns
    -------
    loss : float
        SUM over rows, in float64.
    correct : int
    """
    z = logits[rows].astype(np.float64)
    top = z.max(1, initial=-np.inf, keepdims=True)
    power = np.exp(z - top)
    total = power.sum(1, keepdims=True)
    here = np.arange(rows.size)
    loss = float((np.log(total[:, 0]) + top[:, 0] - z[here, labels[rows]]).sum())
    correct = int((logits[rows].argmax(1) == labels[rows]).sum()) if rows.size else 0
    if grad is not None:
        soft = power / total
        soft[here, labels[rows]] -= 1
        grad[:] = 0
        grad[rows] = soft * scale
    return loss, correct


def column_sum(x):
    """Sum over rows, in float64: (m, f) to (f,)."""
    return x.sum(0, dtype=np.float64)


def adam(w, g, mean, variance, *, step, lr, decay=0.0, decayed=0, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """One Adam step in place (Kingma and Ba 2015, Algorithm 1, with bias correction); step counts from 1.

    g += decay * w is taken for the first `decayed` elements. w, mean and variance change; g does not.
    """
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    mean += (1 - beta1) * (g - mean)
    variance += (1 - beta2) * (g * g - variance)
    root = np.sqrt(variance / (1 - beta2**step)) + epsilon
    w -= lr * (mean / (1 - beta1**step)) / root


def sgd(w, g, *, lr, decay=0.0, decayed=0):
    """One step of gradient descent in place; decay as in `adam`."""
    g = g.copy()
    g[:decayed] += w.dtype.type(decay) * w[:decayed]
    w -= lr * g


REDUCES = ("sum", "mean", "max", "min")
OPS = {  # op(x, e), and the gradients of x and e for a gradient g of it
    "add": (lambda x, e: x + e, lambda g, x, e: g, lambda g, x, e: g),
    "sub": (lambda x, e: x - e, lambda g, x, e: g, lambda g, x, e: -g),
    "mul": (lambda x, e: x * e, lambda g, x, e: g * e, lambda g, x, e: g * x),
    "div": (lambda x, e: x / e, lambda g, x, e: g / e, lambda g, x, e: -(g * x / e) / e),
    "copylhs": (lambda x, e: x, lambda g, x, e: g, None), "copyrhs": (lambda x, e: e, None, lambda g, x, e: g)}


def aggregate(indptr, indices, x, e=None, out=None, *, op="copylhs", reduce="sum"):
    """Aggregation primitive (distgnn 2.1): out[v] = reduce over edges k of row v of op(x[indices[k]], e[k]).

    NaN propagates, through max and min too: the first NaN of a row is then the edge chosen. An operator that is not
    known, an operand that is missing and an e that fits neither shape are a ValueError. indptr may start past 0.

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows are destinations v, columns sources u
    x : (n, f) float32 or float64; copyrhs takes f alone from it, and goes without: f is then e's width
    e : (nnz, f) or (nnz, 1), optional
        Edge features, one column serving all f; cast to x's dtype. Needed unless op is copylhs, which ignores it.
    out : (m, f), optional
        Result, C order, of x's dtype (e's if there is no x); made if absent. An empty row gives 0.
    op, reduce : one of OPS, one of REDUCES

    Returns
    -------
    out : (m, f)
    arg : (m, f) int64 for max and min: the edge k chosen, the first of equals, -1 in an empty row; else None
    """
    x, e, width, dtype = check_operands(x, e, op, reduce)
    m, count, edges = indptr.size - 1, np.diff(indptr), np.arange(indptr[0], indptr[-1])
    message, arg = np.empty((edges.size, width), dtype), np.full((m, width), -1, np.int64)
    with np.errstate(all="ignore"):
        message[:] = OPS[op][0](x if x is None else x[indices[edges]], e if e is None else e[edges])
    out = np.empty((m, width), dtype) if out is None else out
    out[:] = 0
    if reduce in ("sum", "mean"):
        np.add.at(out, np.repeat(np.arange(m), count), message)
        out /= np.maximum(count, 1)[:, None] if reduce == "mean" else 1
        return out, None
    for v in np.flatnonzero(count):
        row = message[indptr[v] - indptr[0]:indptr[v + 1] - indptr[0]]
        first = row.argmax(0) if reduce == "max" else row.argmin(0)
        out[v], arg[v] = row[first, np.arange(width)], indptr[v] + first
    return out, arg


def aggregate_backward(grad, indptr, indices, x, e=None, *, op, reduce, arg=None, transposed=None):
    """Gradients (dx, de) of `aggregate` from grad (m, f); None for an operand that op does not read.

    max and min need the `arg` that `aggregate` returned: the edge chosen gets the gradient. `transposed` is
    `transpose_pattern(indptr, indices, n)`, made if absent: dx (n, f) is summed along it, in increasing edge number.
    de has e's shape, summed over f where e is one column; 0 for edges of no row. Both have x's dtype (e's without x).
    """
    x, e, width, dtype = check_operands(x, e, op, reduce, arg if reduce in ("max", "min") else ())
    count, edges = np.diff(indptr), np.arange(indptr[0], indptr[-1])
    row, source = np.repeat(np.arange(count.size), count), indices[edges]
    g = (grad / np.maximum(count, 1)[:, None] if reduce == "mean" else grad)[row].astype(dtype)
    chosen = arg[row] == edges[:, None] if reduce in ("max", "min") else True
    operands = g, x if x is None else x[source], e if e is None else e[edges]
    with np.errstate(all="ignore"):
        to_x, to_e = (partial and np.where(chosen, partial(*operands), 0) for partial in OPS[op][1:])
    dx, de = (None if to is None else np.zeros(a.shape, dtype) for to, a in ((to_x, x), (to_e, e)))
    if dx is not None:
        np.add.at(dx, source, to_x)
    if de is not None:
        de[edges] = to_e if e.shape[1] == width else to_e.sum(1, keepdims=True)
    return dx, de


def transpose_pattern(indptr, indices, n):
    """(indptr_t (n + 1,), indices_t (nnz,), edge_t (nnz,)): rows and numbers k of each column's entries, by k."""
    first, last = int(indptr[0]), int(indptr[-1])
    edge = first + np.argsort(indices[first:last], kind="stable")
    row = np.searchsorted(indptr, edge, side="right") - 1
    return np.r_[0, np.bincount(indices[first:last], minlength=n).cumsum()], row.astype(indices.dtype), edge


def check_operands(x, e, op, reduce, arg=()):
    """Return (x, e, f, dtype) of `aggregate`: C order, one dtype, e None for copylhs; ValueError if they do not fit."""
    if op not in OPS or reduce not in REDUCES:
        raise ValueError(f"op {op!r}, reduce {reduce!r}: known ops {', '.join(OPS)}; reduces {', '.join(REDUCES)}")
    missing = "x" * (x is None and op != "copyrhs") or "e" * (e is None and op != "copylhs") or "arg" * (arg is None)
    if missing:
        raise ValueError(f"op {op!r} with reduce {reduce!r} needs {missing}: only copyrhs goes without x, only copylhs "
                         "without e, only sum and mean without arg")
    width, dtype = (e if x is None else x).shape[-1], (e if x is None else x).dtype
    if op != "copylhs" and (e.ndim != 2 or e.shape[1] not in (1, width)):
        raise ValueError(f"e has shape {e.shape}, expected (nnz, {width}) or (nnz, 1)")
    return (None if x is None else np.ascontiguousarray(x),
            None if op == "copylhs" else np.ascontiguousarray(e, dtype), width, dtype)


def pack(bits):
    """(m, f) bool to (m, ceil(f / 8)) uint8."""
    return np.packbits(bits, axis=1, bitorder="little")


def unpack(mask, width):
    """(m, ceil(f / 8)) uint8 to (m, f) bool."""
    return np.unpackbits(mask, axis=1, count=width, bitorder="little").astype(bool)

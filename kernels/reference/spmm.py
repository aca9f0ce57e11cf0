"""Products of a sparse and a dense matrix, plain and masked."""

import numpy as np
import scipy.sparse as sp

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import numbers, store
from hpgcn.kernels.masks import unpack, with_mask


def spmm(indptr: Array, indices: Array, data: Array, x: Array, out: Array | None = None, *,
         row_scale: Array | None = None, col_scale: Array | None = None, rows: Array | None = None,
         mask: Array | None = None, accumulate: bool = False) -> Array:
    """Multiply a sparse by a dense matrix.

    Scales, a choice of rows, a mask and accumulation are optional:

    out[i] = mask[i] * (out[i] if accumulate + row_scale[i] * sum_k data[k] col_scale[j]
    x[j]), where j = indices[k] and k runs over indptr[i]..indptr[i + 1].

    Parameters
    ----------
    indptr : (m + 1,) int64 or int32; row pointers into indices and data; need not start at 0
    indices : (nnz,) int32 or int64; rows of x
    data : (nnz,) float or None; weights; None if all are 1
    x : (n, f) float32 or float64, C order; or of 16 bits
    out : (m, f), optional
        The result, of x's dtype; a new array of zeros if absent. x, out or both may have 16
        bits. Sums are then taken in float32, the dtype of a new array, and rounded once.
    row_scale : (m,), optional
    col_scale : (n,), optional
    rows : (r,) int64, optional
        The only rows to compute, each at most once; other rows of `out` do not change.
    mask : (m, ceil(f / 8)) uint8, optional
        Bits to keep, in little-endian bit order: `hpgcn.kernels.pack_mask` makes it. It
        applies to the result (S-SpMM, mixgcn section 3).
    accumulate : bool; add to `out`, which must not have 16 bits, whose sums are rounded once

    Returns
    -------
    out : (m, f)

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> reference.spmm(indptr, indices, None, x)
    array([[ 3., 30.],
           [ 2., 20.]])
    >>> reference.spmm(indptr, indices, None, x, row_scale=np.array([0.5, 1.0]))
    array([[ 1.5, 15. ],
           [ 2. , 20. ]])
    """
    # operands
    m = indptr.size - 1
    n, f = x.shape
    x = numbers(x)
    out = np.zeros((m, f), x.dtype) if out is None else out
    rows = np.arange(m) if rows is None else rows

    # the product, by SciPy
    first, last = int(indptr[0]), int(indptr[-1])
    values = np.ones(last - first, x.dtype) if data is None else data[first:last]
    total = sp.csr_array((values, indices[first:last], indptr - first), shape=(m, n))
    total = total @ (x if col_scale is None else x * np.asarray(col_scale)[:, None])
    if row_scale is not None:
        total = total * np.asarray(row_scale)[:, None]

    # add, mask, and store some rows
    result = total + numbers(out) if accumulate else total
    if mask is not None:
        result = np.where(unpack(mask, f), result, 0)
    out[rows] = store(result[rows], np.empty((rows.size, f), out.dtype))
    return out


sspmm = with_mask(spmm)

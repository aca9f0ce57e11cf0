"""Sparse times dense on CPU threads."""
import numba
import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.jit import Threaded

NO_ROWS, NO_MASK = np.empty(0, np.int64), np.empty((0, 0), np.uint8)


@Threaded
def _spmm(indptr, indices, data, x, out, row_scale, col_scale, rows, mask, accumulate, bounds):
    width = x.shape[1]
    weighted, scaled, some = data.size > 0, col_scale.size > 0, rows.size > 0
    for chunk in numba.prange(bounds.size - 1):
        total = np.empty(width, x.dtype)
        for r in range(bounds[chunk], bounds[chunk + 1]):
            i = rows[r] if some else r
            total[:] = 0
            for k in range(indptr[i], indptr[i + 1]):
                j = indices[k]
                value = data[k] if weighted else x.dtype.type(1)
                if scaled:
                    value *= col_scale[j]
                for q in range(width):
                    total[q] += value * x[j, q]
            if row_scale.size:
                for q in range(width):
                    total[q] *= row_scale[i]
            if accumulate:
                for q in range(width):
                    total[q] += out[i, q]
            if mask.size:
                for q in range(width):
                    out[i, q] = total[q] if mask[i, q >> 3] >> (q & 7) & 1 else x.dtype.type(0)
            else:
                for q in range(width):
                    out[i, q] = total[q]


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None, mask=None, accumulate=False):
    """Sparse times dense: see `hpgcn.kernels.reference.spmm` for what each argument means.

    Threads take chunks of rows balanced by nonzeros; a row is summed by one thread in the order of its entries, so the
    bits do not depend on the number of threads.
    """
    m, dtype = indptr.size - 1, x.dtype
    if out is None:
        out = np.zeros((m, x.shape[1]), dtype)
    if m == 0 or x.shape[1] == 0 or (rows is not None and rows.size == 0):
        return out
    none = np.empty(0, dtype)
    bounds = by_nonzeros(indptr) if rows is None else evenly(rows.size)
    work = (int(indptr[-1]) - int(indptr[0]) + m) * x.shape[1]
    _spmm(work, indptr, indices, none if data is None else data.astype(dtype, copy=False), x, out,
          none if row_scale is None else np.asarray(row_scale, dtype),
          none if col_scale is None else np.asarray(col_scale, dtype),
          NO_ROWS if rows is None else rows, NO_MASK if mask is None else mask, accumulate, bounds)
    return out

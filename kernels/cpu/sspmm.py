"""Masked sparse times dense (S-SpMM) on CPU threads."""
from hpgcn.kernels.cpu.spmm import spmm


def sspmm(indptr, indices, data, x, mask, out=None, *, row_scale=None, col_scale=None, rows=None, accumulate=False):
    """Masked SpMM, (A x) .* M: see `hpgcn.kernels.reference.sspmm`. The mask is applied as each row is stored."""
    return spmm(indptr, indices, data, x, out, row_scale=row_scale, col_scale=col_scale, rows=rows, mask=mask,
                accumulate=accumulate)

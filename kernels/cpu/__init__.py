"""Numba kernels for NumPy arrays: documented by hpgcn.kernels.reference.

What they are given is checked (`hpgcn.kernels.checks`); `trusted` holds the same without checks.
"""
# ruff: noqa: F401 - the names are said in SPECS
from hpgcn.kernels import reference
from hpgcn.kernels.checks import guard
from hpgcn.kernels.cpu.aggregate import aggregate, aggregate_backward, transpose_pattern
from hpgcn.kernels.cpu.elementwise import activate, adam, apply_mask, column_sum, inner, sgd
from hpgcn.kernels.cpu.gather import gather, scatter_add
from hpgcn.kernels.cpu.loss import (
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    spread_argmax,
    spread_gradient,
    spread_max,
    spread_sum,
)
from hpgcn.kernels.cpu.matmul import matmul
from hpgcn.kernels.cpu.norm import (
    layer_norm,
    layer_norm_backward,
    layer_norm_backward_sums,
    row_squares,
    row_sum,
)
from hpgcn.kernels.cpu.random import dropout, dropout_bits, dropout_csr
from hpgcn.kernels.cpu.spmm import spmm, sspmm
from hpgcn.kernels.reference.random import dropout_scale, philox
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = guard(globals(), reference)

"""CUDA kernels for CuPy arrays: documented by hpgcn.kernels.reference.

What they are given is checked (`hpgcn.kernels.checks`); `trusted` holds the same without checks.
"""
# ruff: noqa: F401 - the names are said in SPECS
from hpgcn.kernels import reference
from hpgcn.kernels.checks import guard
from hpgcn.kernels.cuda.aggregate import aggregate, aggregate_backward, transpose_pattern
from hpgcn.kernels.cuda.device import current
from hpgcn.kernels.cuda.elementwise import (
    activate,
    adam,
    apply_mask,
    dropout,
    dropout_bits,
    dropout_csr,
    philox,
    sgd,
)
from hpgcn.kernels.cuda.gather import gather, scatter_add
from hpgcn.kernels.cuda.loss import (
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    spread_argmax,
    spread_gradient,
    spread_max,
    spread_sum,
)
from hpgcn.kernels.cuda.matmul import matmul
from hpgcn.kernels.cuda.norm import (
    layer_norm,
    layer_norm_backward,
    layer_norm_backward_sums,
    row_squares,
    row_sum,
)
from hpgcn.kernels.cuda.reductions import column_sum, inner
from hpgcn.kernels.cuda.spmm import spmm, sspmm
from hpgcn.kernels.reference.random import dropout_scale
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = guard(globals(), reference, lambda: current().xp)

"""The oracle: every kernel in plain NumPy and SciPy, by the names and signatures of all backends.

Slow and obvious. Tests hold the other backends against it; nothing else calls it.

Where columns of a matrix are spread over ranks, `first` is the global number of a block's column 0,
and what a function returns for a block adds up over the blocks (or is their maximum, or minimum):
blocks may be empty.
"""
# ruff: noqa: F401 - the names are said in SPECS
from hpgcn.kernels.checks import guard
from hpgcn.kernels.reference.aggregate import (
    OPS,
    REDUCES,
    aggregate,
    aggregate_backward,
    transpose_pattern,
)
from hpgcn.kernels.reference.elementwise import activate, adam, apply_mask, column_sum, inner, sgd
from hpgcn.kernels.reference.gather import gather, scatter_add
from hpgcn.kernels.reference.loss import (
    ABSENT,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    spread_argmax,
    spread_gradient,
    spread_max,
    spread_sum,
)
from hpgcn.kernels.reference.matmul import matmul
from hpgcn.kernels.reference.norm import (
    layer_norm,
    layer_norm_backward,
    layer_norm_backward_sums,
    row_squares,
    row_sum,
)
from hpgcn.kernels.reference.random import (
    dropout,
    dropout_bits,
    dropout_csr,
    dropout_scale,
    pack,
    philox,
    unpack,
)
from hpgcn.kernels.reference.spmm import spmm, sspmm
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = guard(globals())

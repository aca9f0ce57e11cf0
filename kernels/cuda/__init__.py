"""CUDA kernels for CuPy arrays. Names and signatures are those of hpgcn.kernels.reference.

What they are given is checked (`hpgcn.kernels.checks`); `trusted` holds the same kernels without.
"""
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
from hpgcn.kernels.cuda.norm import layer_norm, layer_norm_backward, layer_norm_backward_sums, row_squares, row_sum
from hpgcn.kernels.cuda.spmm import spmm, sspmm
from hpgcn.kernels.cuda.total import column_sum, inner
from hpgcn.kernels.reference.random import dropout_scale

__all__ = ["activate", "adam", "aggregate", "aggregate_backward", "apply_mask", "column_sum", "dropout", "dropout_bits",
           "dropout_csr", "dropout_scale", "gather", "inner", "layer_norm", "layer_norm_backward",
           "layer_norm_backward_sums", "matmul", "philox", "row_squares", "row_sum", "scatter_add", "sgd",
           "sigmoid_cross_entropy", "softmax_cross_entropy", "spmm", "spread_argmax", "spread_gradient", "spread_max",
           "spread_sum", "sspmm", "transpose_pattern"]
trusted = guard(__all__, globals(), lambda: current().xp)

"""Numba kernels for NumPy arrays. Names and signatures are those of hpgcn.kernels.reference.

What they are given is checked (`hpgcn.kernels.checks`); `trusted` holds the same kernels without.
"""
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
from hpgcn.kernels.cpu.norm import layer_norm, layer_norm_backward, layer_norm_backward_sums, row_squares, row_sum
from hpgcn.kernels.cpu.random import dropout, dropout_bits, dropout_csr, dropout_scale, philox
from hpgcn.kernels.cpu.spmm import spmm
from hpgcn.kernels.cpu.sspmm import sspmm

__all__ = ["activate", "adam", "aggregate", "aggregate_backward", "apply_mask", "column_sum", "dropout", "dropout_bits",
           "dropout_csr", "dropout_scale", "gather", "inner", "layer_norm", "layer_norm_backward",
           "layer_norm_backward_sums", "matmul", "philox", "row_squares", "row_sum", "scatter_add", "sgd",
           "sigmoid_cross_entropy", "softmax_cross_entropy", "spmm", "spread_argmax", "spread_gradient", "spread_max",
           "spread_sum", "sspmm", "transpose_pattern"]
trusted = guard(__all__, globals())

"""Numba kernels for NumPy arrays. Names and signatures are those of hpgcn.kernels.reference."""
from hpgcn.kernels.cpu.aggregate import aggregate, aggregate_backward, transpose_pattern
from hpgcn.kernels.cpu.elementwise import activate, adam, apply_mask, column_sum, sgd, softmax_cross_entropy
from hpgcn.kernels.cpu.gather import gather, scatter_add
from hpgcn.kernels.cpu.random import dropout, dropout_bits, dropout_csr, dropout_scale, philox
from hpgcn.kernels.cpu.spmm import spmm
from hpgcn.kernels.cpu.sspmm import sspmm

__all__ = ["activate", "adam", "aggregate", "aggregate_backward", "apply_mask", "column_sum", "dropout", "dropout_bits",
           "dropout_csr", "dropout_scale", "gather", "philox", "scatter_add", "sgd", "softmax_cross_entropy", "spmm",
           "sspmm", "transpose_pattern"]

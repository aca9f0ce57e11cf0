"""Numba kernels for NumPy arrays; `trusted` has them without checks.

hpgcn.kernels.reference has their documentation.
"""
from hpgcn.kernels import reference
from hpgcn.kernels.cpu import (
    aggregate,
    attend,
    copies,
    cross_entropy,
    edges,
    elementwise,
    gather,
    matmul,
    norm,
    random,
    spmm,
)
from hpgcn.kernels.packages import install_checks
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = install_checks(globals(), (aggregate, attend, copies, cross_entropy, edges,
                                     elementwise, gather, matmul, norm, random, spmm,
                                     reference.random), reference)

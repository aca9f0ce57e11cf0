"""CUDA kernels for CuPy arrays; `trusted` has them without checks.

hpgcn.kernels.reference has their documentation.
"""
from hpgcn.kernels import reference
from hpgcn.kernels.cuda import (
    aggregate,
    attend,
    copies,
    cross_entropy,
    edges,
    elementwise,
    gather,
    matmul,
    norm,
    reductions,
    spmm,
)
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.packages import install_checks
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = install_checks(globals(), (aggregate, attend, copies, cross_entropy, edges,
                                     elementwise, gather, matmul, norm, reductions, spmm),
                         reference, lambda: current().xp)

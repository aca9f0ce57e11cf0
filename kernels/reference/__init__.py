"""Reference kernels in plain NumPy and SciPy.

Names and signatures are those of all backends.

They are slow and simple. Only tests call them, to compare the other backends with them.

If the columns of a matrix are divided over ranks, `first` is the global number of a
block's column
0. Results of blocks add up (or take their maximum or minimum); blocks may be empty.
"""
from hpgcn.kernels.packages import install_checks
from hpgcn.kernels.reference import (
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
from hpgcn.kernels.reference.aggregate import OPS, REDUCES  # noqa: F401
from hpgcn.kernels.specs import SPECS

__all__ = list(SPECS)
trusted = install_checks(globals(), (aggregate, attend, copies, cross_entropy, edges,
                                     elementwise, gather, matmul, norm, random, spmm))

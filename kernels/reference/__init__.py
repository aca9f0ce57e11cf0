"""Reference kernels in plain NumPy and SciPy, with the names and signatures of all versions.

They are slow and simple. Only tests call them, to compare the other versions with them.

If the columns of a matrix are divided over ranks, `first` is the global number of the
first column of a block. Results of blocks add up, or their maximum or minimum is taken.
Blocks may be empty.
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

"""Kernels: functions of arrays that use neither MPI nor HDF5 nor graphs.

`pack_mask` and `unpack_mask` convert the bit masks that some kernels accept.
"""
from typing import Any, TypeAlias

__all__ = ["Array", "backend", "pack_mask", "unpack_mask"]

Array: TypeAlias = Any  # numpy.ndarray, or cupy.ndarray on a GPU


def __getattr__(name):
    if name in ("pack_mask", "unpack_mask"):  # late: NumPy takes its threads at import
        from hpgcn.kernels import masks

        return getattr(masks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def backend(array):
    """Return the unchecked kernels for an array.

    Those of kernels.cpu for NumPy, of kernels.cuda for CuPy.

    Examples
    --------
    >>> from hpgcn.kernels import backend, cpu
    >>> backend(np.ones(3)) is cpu.trusted
    True
    """
    import numpy as np

    if isinstance(array, np.ndarray):
        from hpgcn.kernels import cpu

        return cpu.trusted
    if hasattr(array, "kernels"):  # arrays that bring their own: of planning.counts.shapes
        return array.kernels
    owner = type(array).__module__
    if owner.partition(".")[0] == "cupy":  # to import CuPy takes a GPU's driver, and seconds
        from hpgcn.kernels import cuda

        return cuda.trusted
    raise TypeError(f"no kernels for arrays of type {owner}.{type(array).__name__}")

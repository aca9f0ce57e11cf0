"""Kernels: functions of arrays that use neither MPI nor HDF5 nor graphs.

`pack_mask` and `unpack_mask` convert the bit masks that some kernels accept.
"""
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["backend", "pack_mask", "unpack_mask"]

Array: TypeAlias = Any  # numpy.ndarray, or cupy.ndarray on a GPU


def __getattr__(name: str) -> Callable:
    if name in ("pack_mask", "unpack_mask"):  # imported late: NumPy chooses its threads at import
        from hpgcn.kernels import masks

        return getattr(masks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def backend(array: Array) -> Any:
    """Return the unchecked kernels for an array: of kernels.cpu or, for CuPy, of kernels.cuda.

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
    if hasattr(array, "kernels"):  # arrays of planning.counts.shapes have their own kernels
        return array.kernels
    owner = type(array).__module__
    if owner.partition(".")[0] == "cupy":  # the import of CuPy needs a driver, and takes seconds
        from hpgcn.kernels import cuda

        return cuda.trusted
    raise TypeError(f"no kernels for arrays of type {owner}.{type(array).__name__}")

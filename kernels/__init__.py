"""Kernels: arrays in, arrays out. They know nothing of MPI, HDF5 or graphs, and trust their arguments.

`backend(array)` answers which module of kernels serves an array.
"""


def backend(array):
    """Return the module of kernels for the kind of this array: NumPy is served by hpgcn.kernels.cpu."""
    import numpy as np

    if isinstance(array, np.ndarray):
        from hpgcn.kernels import cpu

        return cpu
    raise TypeError(f"no kernels for arrays of type {type(array).__module__}.{type(array).__name__}")

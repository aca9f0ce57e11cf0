"""Kernels: arrays in, arrays out. They know nothing of MPI, HDF5 or graphs, and trust their arguments.

`backend(array)` answers which module of kernels serves an array.
"""


def backend(array):
    """Return the module of kernels for this array: hpgcn.kernels.cpu for NumPy's, hpgcn.kernels.cuda for CuPy's."""
    import numpy as np

    if isinstance(array, np.ndarray):
        from hpgcn.kernels import cpu

        return cpu
    if type(array).__module__.partition(".")[0] == "cupy":  # whose import takes a GPU's driver, and seconds
        from hpgcn.kernels import cuda

        return cuda
    raise TypeError(f"no kernels for arrays of type {type(array).__module__}.{type(array).__name__}")

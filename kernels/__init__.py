"""Kernels: arrays in, arrays out. They know nothing of MPI, HDF5 or graphs.

`backend(array)` answers which kernels serve an array; these trust their arguments, which those of the packages check.
"""


def backend(array):
    """Return the kernels for this array, unchecked: of hpgcn.kernels.cpu for NumPy's, hpgcn.kernels.cuda for CuPy's."""
    import numpy as np

    if isinstance(array, np.ndarray):
        from hpgcn.kernels import cpu

        return cpu.trusted
    if hasattr(array, "kernels"):  # arrays that bring their own: those of hpgcn.planning.shapes
        return array.kernels
    if type(array).__module__.partition(".")[0] == "cupy":  # whose import takes a GPU's driver, and seconds
        from hpgcn.kernels import cuda

        return cuda.trusted
    raise TypeError(f"no kernels for arrays of type {type(array).__module__}.{type(array).__name__}")

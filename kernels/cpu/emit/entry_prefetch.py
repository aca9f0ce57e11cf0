"""Prefetch the numbers of later entries, for passes that read at random places.

If branches depend on the numbers that were read, a processor does not read ahead by
itself.
"""
from hpgcn.kernels.cpu.emit.emitter import FIRST
from hpgcn.kernels.cpu.emit.vector_intrinsics import prefetch
from hpgcn.kernels.host.jit import jit

AHEAD = 32  # entries between the prefetch of an element and its use


@jit(forceinline=True)
def fetch_element(array, index):
    """Prefetch an element or row of an array, which need not exist."""
    prefetch(array.ctypes.data + index * array.strides[0], FIRST)


@jit(forceinline=True)
def fetch_later(array, indices, t):
    """Prefetch the element of `array` for the entry AHEAD positions after entry t."""
    if t + AHEAD < indices.size:
        fetch_element(array, indices[t + AHEAD])


@jit(forceinline=True)
def fetch_entries(array, indptr, indices, row):
    """Prefetch the elements of `array` for the first AHEAD entries of a row."""
    for t in range(indptr[row], min(indptr[row + 1], indptr[row] + AHEAD)):
        fetch_element(array, indices[t])

"""SpMM of cuSPARSE as a program calls it in every step: descriptors and preprocessing once.

CuPy makes descriptors anew in each call, so this calls the library that CuPy has loaded.
"""

import ctypes
import re
from functools import partial
from pathlib import Path

import numpy as np

ALGORITHMS = {"default": 0, "alg1": 4, "alg2": 5, "alg3": 12}  # CUSPARSE_SPMM_CSR_ALG1 and so on
REAL32, BF16, INT32, BASE0, ROW_MAJOR = 0, 14, 2, 0, 2
POINTER, LONG = ctypes.c_void_p, ctypes.c_int64


class CachedProduct:
    """out = A x for one A, x (n, f) and out (m, f) by rows on the GPU, float32 or bf16.

    bf16 are uint16 arrays. `call` runs the product on the null stream.
    """

    def __init__(self, xp, arrays, shape, x, out, algorithm):
        self.library = ctypes.CDLL(loaded_path())
        self.held = [xp.asarray(array) for array in arrays], x, out  # as long as their descriptors
        indptr, indices, values = self.held[0]
        kind = BF16 if x.dtype == np.uint16 else REAL32
        handle, A, X, Z = (POINTER() for _ in range(4))
        self._check("Create", ctypes.byref(handle))
        self._check("CreateCsr", ctypes.byref(A), *map(LONG, (*shape, indices.size)),
                    *(POINTER(each.data.ptr) for each in (indptr, indices, values)),
                    INT32, INT32, BASE0, kind)
        for descriptor, array in ((X, x), (Z, out)):
            self._check("CreateDnMat", ctypes.byref(descriptor),
                        *map(LONG, (*array.shape, array.shape[1])), POINTER(array.data.ptr), kind,
                        ROW_MAJOR)
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        given = (handle, 0, 0, ctypes.byref(self.one), A, X, ctypes.byref(self.zero), Z, REAL32,
                 ALGORITHMS[algorithm])
        size = ctypes.c_size_t()
        self._check("SpMM_bufferSize", *given, ctypes.byref(size))
        self.buffer = xp.empty(max(1, size.value), np.uint8)
        given = (*given, POINTER(self.buffer.data.ptr))
        self._check("SpMM_preprocess", *given)
        self.call = partial(self._multiply, out, given)

    def _multiply(self, out, given):
        self._check("SpMM", *given)
        return out

    def _check(self, name, *given):
        status = getattr(self.library, f"cusparse{name}")(*given)
        if status:
            raise RuntimeError(f"cusparse{name}: status {status}")


def loaded_path():
    """Return the path of the library that CuPy has loaded into this process."""
    import cupyx.cusparse  # noqa: F401 - loads it

    found = re.search(r"\S*libcusparse\.so\S*", Path("/proc/self/maps").read_text())
    if not found:
        raise ImportError("CuPy has loaded no libcusparse.so")
    return found[0]

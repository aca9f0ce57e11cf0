"""Functions of the C library, and memory that compiled code finds by itself."""
import ctypes
import os

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from hpgcn.kernels.host.jit import compile_c_function

INT, LONG, ADDRESS = types.int32, types.int64, types.int64
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes; direct reads move whole pages
ACCESS = 3  # PROT_READ | PROT_WRITE
SHARED = 1  # MAP_SHARED
NO_FILE = 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
FAILED = -1  # MAP_FAILED
Py_IncRef = ctypes.pythonapi.Py_IncRef


def _c(name, *kinds):
    """Return a function of the C library; `kinds` are types of its arguments and its result."""
    return types.ExternalFunction(name, kinds[-1](*kinds[:-1]))


malloc = _c("malloc", LONG, ADDRESS)
calloc = _c("calloc", LONG, LONG, ADDRESS)
realloc = _c("realloc", ADDRESS, LONG, ADDRESS)
free = _c("free", ADDRESS, types.void)
usable_size = _c("malloc_usable_size", ADDRESS, LONG)
memcpy = _c("memcpy", ADDRESS, ADDRESS, LONG, ADDRESS)
open_nameless = _c("open", ADDRESS, INT, INT, INT)
mkostemp = _c("mkostemp", ADDRESS, INT, INT)
unlink = _c("unlink", ADDRESS, INT)
close = _c("close", INT, INT)
fallocate = _c("posix_fallocate", INT, LONG, LONG, INT)
mmap = _c("mmap", ADDRESS, LONG, INT, INT, INT, LONG, ADDRESS)
munmap = _c("munmap", ADDRESS, LONG, INT)
pread = _c("pread", INT, ADDRESS, LONG, LONG, LONG)
mutex_lock = _c("pthread_mutex_lock", ADDRESS, INT)
mutex_unlock = _c("pthread_mutex_unlock", ADDRESS, INT)
place_of_errno = _c("__errno_location", ADDRESS)


def lasting(symbol, size, dtype):
    """Return an array of zeros that lasts, and a function that returns it in compiled code.

    Compiled code, also from the cache, finds the array by its symbol.
    """
    array = np.zeros(size, dtype)
    kind = numba.from_dtype(array.dtype)
    pointer = types.CPointer(kind)
    llvmlite.binding.add_symbol(symbol, array.ctypes.data)
    Py_IncRef(ctypes.py_object(array))

    @intrinsic
    def address(_):
        def generate(context, builder, signature, arguments):
            known = builder.module.globals.get(symbol)
            return known or ir.GlobalVariable(builder.module, context.get_data_type(kind), symbol)
        return pointer(), generate

    return array, address


@intrinsic
def int_at(_, address):
    """Return the C int at an address."""
    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))
    return INT(ADDRESS), generate


def c_function(*kinds):
    """Return a decorator that compiles a function for C code; `kinds` as in `_c`."""
    def decorate(function):
        return compile_c_function(function, kinds[-1](*kinds[:-1]))
    return decorate

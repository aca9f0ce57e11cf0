"""NumPy arrays in files: the large arrays of a thread are mappings of files without names.

NumPy lets a context choose the functions that allocate the data of its arrays (NEP 49).
The functions here are compiled, because NumPy calls them until the process ends.
"""
import ctypes
import errno
import os
from contextlib import contextmanager
from typing import NamedTuple

import numba
import numpy as np
from numba import types

from hpgcn.kernels.disk import current_files
from hpgcn.kernels.jit import cache_folder, jit

try:
    from numpy._core import _multiarray_umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath

READ_WRITE, SHARED = 3, 1  # PROT_READ | PROT_WRITE, MAP_SHARED
FAILED = -1  # MAP_FAILED
PAGE = 4096  # bytes: mappings begin at multiples, allocations of the C library do not
SET_HANDLER = 304  # place of PyDataMem_SetHandler in NumPy's table of C functions
CAPSULE = b"mem_handler"  # name that NumPy gives the capsule of a handler
ZERO_KEEPING_SIZE = 0x11  # FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
TEMPLATE = "hpgcn-array-XXXXXX"  # file names for mkostemp, where files always have names
OPEN = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)

# The int64 array that FileArrays shares with the functions: these fields, then for each array its
# address (0: free), its bytes and its file descriptor.
THRESHOLD, FOLDER, NAME, NAME_BYTES, SLOTS, BYTES, ERROR, FIRST = range(8)
SLOT = 3  # numbers of an array
MOST = 20_000  # arrays at a time
FIELDS = FIRST + SLOT * MOST


def _c(name, *kinds):
    """Return a function of the C library; `kinds` are types of its arguments and its result."""
    return types.ExternalFunction(name, kinds[-1](*kinds[:-1]))


INT, LONG, ADDRESS = types.int32, types.int64, types.int64
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
place_of_errno = _c("__errno_location", ADDRESS)


@jit()
def _find(context, place):
    """Return the slot of the array at an address, the first free slot for 0; else -1."""
    if place % PAGE:
        return -1
    for slot in range(context[SLOTS]):
        if context[FIRST + SLOT * slot] == place:
            return slot
    return -1


@jit()
def _open(context):
    """Return the descriptor of a new file without a name; below 0 if that fails."""
    descriptor = open_nameless(context[FOLDER], INT(OPEN), INT(0o600))
    if descriptor >= 0:
        return descriptor

    # some file systems have no such files: remove the name at once
    name = malloc(context[NAME_BYTES])
    memcpy(name, context[NAME], context[NAME_BYTES])
    descriptor = mkostemp(name, INT(os.O_CLOEXEC))
    if descriptor >= 0:
        unlink(name)
    free(name)
    return descriptor


@jit()
def _map(context, size):
    """Map a new file without a name; return the address, 0 if that fails."""
    slot = _find(context, 0)
    if slot < 0:
        slot = context[SLOTS]
    if slot == MOST:
        context[ERROR] = errno.EMFILE
        return 0
    descriptor = _open(context)
    if descriptor < 0:
        memcpy(context.ctypes.data + 8 * ERROR, place_of_errno(), 4)
        return 0

    # space first: a write to a mapping cannot report a full disk
    failed = fallocate(descriptor, 0, size)
    place = 0 if failed else mmap(0, size, INT(READ_WRITE), INT(SHARED), descriptor, 0)
    if failed or place == FAILED:
        close(descriptor)
        context[ERROR] = failed or errno.ENOMEM
        return 0

    context[SLOTS] = max(context[SLOTS], slot + 1)
    context[BYTES] += size
    context[FIRST + SLOT * slot] = place
    context[FIRST + SLOT * slot + 1] = size
    context[FIRST + SLOT * slot + 2] = descriptor
    return place


@jit()
def _unmap(context, slot):
    place, size, descriptor = context[FIRST + SLOT * slot:FIRST + SLOT * slot + SLOT]
    munmap(place, size)
    close(INT(descriptor))
    context[BYTES] -= size
    context[FIRST + SLOT * slot] = 0


def _cfunc(*kinds):
    """Return a decorator that compiles a function which NumPy calls; `kinds` as in `_c`."""
    def decorate(function):
        with cache_folder(function):
            return numba.cfunc(kinds[-1](types.CPointer(LONG), *kinds[:-1]), cache=True)(function)
    return decorate


@_cfunc(LONG, ADDRESS)
def _allocate(pointer, size):
    context = numba.carray(pointer, FIELDS)
    return malloc(size) if size < context[THRESHOLD] else _map(context, size)


@_cfunc(LONG, LONG, ADDRESS)
def _allocate_zeros(pointer, count, each):
    context = numba.carray(pointer, FIELDS)
    return calloc(count, each) if count * each < context[THRESHOLD] else _map(context, count * each)


@_cfunc(ADDRESS, LONG, types.void)
def _release(pointer, place, size):
    context = numba.carray(pointer, FIELDS)
    slot = _find(context, place) if place else -1
    if slot < 0:
        free(place)
    else:
        _unmap(context, slot)


@_cfunc(ADDRESS, LONG, ADDRESS)
def _resize(pointer, place, size):
    context = numba.carray(pointer, FIELDS)
    slot = _find(context, place) if place else -1
    if slot < 0 and size < context[THRESHOLD]:
        return realloc(place, size)

    # to a file, or from one
    new = malloc(size) if size < context[THRESHOLD] else _map(context, size)
    if not new or not place:
        return new
    if slot < 0:
        memcpy(new, place, min(size, usable_size(place)))
        free(place)
    else:
        memcpy(new, place, min(size, context[FIRST + SLOT * slot + 1]))
        _unmap(context, slot)
    return new


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy."""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8),
                *((field, ctypes.c_void_p)
                  for field in ("context", "malloc", "calloc", "realloc", "free")))


_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype = ctypes.c_void_p
_address.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api = ctypes.cast(_address(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_api[SET_HANDLER])
FUNCTIONS = _allocate, _allocate_zeros, _resize, _release


zero_range = getattr(ctypes.CDLL(None), "fallocate", lambda *given: -1)  # Linux only
zero_range.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long


def _keep(value):
    """Keep an object until the process has ended, because NumPy frees arrays while Python ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


for each in FUNCTIONS:
    _keep(each)


class FileArray(NamedTuple):
    """Place of an array whose data are a file."""

    address: int
    nbytes: int
    descriptor: int  # descriptor of the file


class FileArrays:
    """Large arrays of NumPy in files of a folder, without names, so that nothing remains.

    Parameters
    ----------
    folder : str or path-like
        Where the files are.
    threshold : int
        Bytes of the smallest array in a file.

    Examples
    --------
    >>> import tempfile
    >>> files = FileArrays(tempfile.gettempdir(), threshold=1 << 16)
    >>> with files.use():
    ...     x = np.ones(1 << 16)
    >>> files.nbytes, float(x.sum())
    (524288, 65536.0)
    """

    def __init__(self, folder, threshold=1 << 20):
        folder = os.path.abspath(folder)
        self._folder = ctypes.create_string_buffer(os.fsencode(folder))
        self._name = ctypes.create_string_buffer(os.fsencode(os.path.join(folder, TEMPLATE)))
        self._context = np.zeros(FIELDS, np.int64)
        self._context[:SLOTS] = (threshold, ctypes.addressof(self._folder),
                                 ctypes.addressof(self._name), len(self._name))
        self._handler = _Handler(b"hpgcn.file_arrays", 1, self._context.ctypes.data, *(
            function.address for function in FUNCTIONS))
        self.left_out = set()  # addresses of arrays that are not read ahead
        self._made = _capsule(ctypes.addressof(self._handler), CAPSULE, None)
        _keep(self)

    @contextmanager
    def use(self):
        """Context manager: put large arrays that this thread allocates in files."""
        before = _set_handler(self._made)
        token = current_files.set(self)
        try:
            yield self
        finally:
            current_files.reset(token)
            _set_handler(before)

    def read_ahead(self, array, wanted):
        """Set whether an array is read ahead of a turn, because its rank reads it."""
        found = {each.address for each in self.slots().values()
                 if 0 <= array.ctypes.data - each.address < each.nbytes}
        self.left_out = self.left_out - found if wanted else self.left_out | found

    def discard(self, array):
        """Zero an array without writing it, if it is in a file; else do nothing.

        Its file keeps its space. Some file systems refuse; then the array stays.
        """
        table = self._context[FIRST:FIRST + SLOT * self._context[SLOTS]].reshape(-1, SLOT)
        first = array.ctypes.data - table[:, 0]
        for slot in np.flatnonzero((table[:, 0] > 0) & (first >= 0) & (first < table[:, 1])):
            zero_range(int(table[slot, 2]), ZERO_KEEPING_SIZE, int(first[slot]), array.nbytes)

    @property
    def nbytes(self):
        """Bytes of all arrays in files."""
        return int(self._context[BYTES])

    @property
    def error(self):
        """The errno of the last allocation that failed; 0 if none has."""
        return int(self._context[ERROR])

    def slots(self):
        """Return the FileArray of each array, by the number of its place in the table."""
        end = FIRST + SLOT * self._context[SLOTS]
        table = self._context[FIRST:end].reshape(-1, SLOT).tolist()
        return {slot: FileArray(*each) for slot, each in enumerate(table) if each[0]}

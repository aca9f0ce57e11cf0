"""NumPy arrays in files: the large arrays of a thread have files without names.

NumPy lets a context choose the functions that allocate the data of its arrays (NEP 49).
The functions here are compiled, because NumPy calls them until the process ends.
"""
import ctypes
import os
from contextlib import contextmanager, suppress
from functools import cache, partial

import numba
import numpy as np

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk import current_files, in_memory
from hpgcn.kernels.disk import file_table as table
from hpgcn.kernels.disk.c_library import ADDRESS as POINTER
from hpgcn.kernels.disk.c_library import LONG
from hpgcn.kernels.disk.direct import DIRECT
from hpgcn.kernels.disk.gathers import LONGEST, READS, gather
from hpgcn.kernels.host.pools import start_pool

try:
    from numpy._core import _multiarray_umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath

SET_HANDLER = 304  # place of PyDataMem_SetHandler in NumPy's table of C functions
CAPSULE = b"mem_handler"  # name that NumPy gives the capsule of a handler
TEMPLATE = "hpgcn-array-XXXXXX"  # a name for mkostemp, if the system needs names

@c.c_function(POINTER, LONG, POINTER)
def _allocate(context, size):
    return c.malloc(size) if table.is_small(size) else table.add(size)


@c.c_function(POINTER, LONG, LONG, POINTER)
def _allocate_zeros(context, count, each):
    return c.calloc(count, each) if table.is_small(count * each) else table.add(count * each)


@c.c_function(POINTER, POINTER, LONG, numba.void)
def _release(context, place, size):
    a = table.find(place)
    if a < 0:
        c.free(place)
    else:
        table.remove(a)


@c.c_function(POINTER, POINTER, LONG, POINTER)
def _resize(context, place, size):
    a = table.find(place)
    if a < 0 and table.is_small(size):
        return c.realloc(place, size)

    # to a file, or from one
    new = c.malloc(size) if table.is_small(size) else table.add(size)
    if not new or not place:
        return new
    if a < 0:
        c.memcpy(new, place, min(size, c.usable_size(place)))
        c.free(place)
    else:
        c.memcpy(new, place, min(size, table.nbytes_of(a)))
        table.remove(a)
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


def _keep(value):
    """Keep an object until the process has ended, because NumPy frees arrays while Python ends."""
    c.Py_IncRef(ctypes.py_object(value))


for each in FUNCTIONS:
    _keep(each)


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
        self.threshold = threshold
        folder = os.path.abspath(folder)
        self._texts = [ctypes.create_string_buffer(os.fsencode(text))
                       for text in (folder, os.path.join(folder, TEMPLATE))]
        folder, name = map(ctypes.addressof, self._texts)
        flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
        self._fields = {table.THRESHOLD: threshold, table.OPEN_FLAGS: flags, table.FOLDER: folder,
                        table.NAME: name, table.NAME_BYTES: len(self._texts[1])}
        self._handler = _Handler(b"hpgcn.file_arrays", 1, None, *(
            function.address for function in FUNCTIONS))
        self._made = _capsule(ctypes.addressof(self._handler), CAPSULE, None)
        _keep(self)

    @contextmanager
    def use(self):
        """Context manager: put large arrays that this thread allocates in files."""
        for field, value in self._fields.items():
            table.TABLE[field] = value
        before = self._outside = _set_handler(self._made)
        token = current_files.set(self)
        try:
            yield self
        finally:
            current_files.reset(token)
            _set_handler(before)

    @contextmanager
    def in_memory(self):
        """Context manager: allocate arrays of this thread in memory, within `use`."""
        before = _set_handler(self._outside)
        token = in_memory.set(True)
        try:
            yield
        finally:
            in_memory.reset(token)
            _set_handler(before)

    def take(self, array, rows):
        """Return the rows `rows`, (r,) int, of an array, like `array[rows]`.

        If the array is in a file, only the pages of these rows are read, and the array
        stays in the file.
        """
        found = table.row_of(array) if array.flags.c_contiguous and len(array) else None
        row_bytes = array.nbytes // max(len(array), 1)
        if found is None or row_bytes > LONGEST:
            return array[rows]
        descriptor = None
        with suppress(OSError):  # some file systems have no direct reads
            descriptor = os.open(f"/proc/self/fd/{found[table.DESCRIPTOR]}", os.O_RDONLY | DIRECT)
        if descriptor is None:
            return array[rows]

        # threads read at the same time, each neighboring rows
        rows = np.ascontiguousarray(rows, np.int64)
        out = np.empty((rows.size, *array.shape[1:]), array.dtype)
        offset = array.ctypes.data - int(found[table.ADDRESS])
        size = max(-(-rows.size // READS), 1)
        read = partial(gather, descriptor, offset, row_bytes)
        try:
            reads = [_readers(os.getpid()).submit(read, rows[first:first + size],
                                                  out.ctypes.data + first * row_bytes)
                     for first in range(0, rows.size, size)]
            failed = max((each.result() for each in reads), default=0)
        finally:
            os.close(descriptor)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return out

    @property
    def nbytes(self):
        """Bytes of all arrays in files."""
        return int(table.TABLE[table.FILE_BYTES])

    @property
    def error(self):
        """The errno of the last failed allocation, or 0."""
        return int(table.TABLE[table.ERROR])


@cache
def _readers(process):
    """Return the threads of this process that read rows.

    A forked process has none of the threads of its parent.
    """
    return start_pool(READS, "read rows")[0]

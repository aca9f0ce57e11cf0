"""NumPy arrays in files: the large arrays of a thread have files without names.

NumPy lets a context choose the functions that allocate the data of its arrays (NEP 49).
The functions here are compiled, because NumPy calls them until the process ends.
"""
import ctypes
import os
import tempfile
from contextlib import contextmanager
from functools import cache

import numba
import numpy as np

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk import current_files, disk_turns, in_memory
from hpgcn.kernels.disk.block_table import (
    ERROR,
    FILE_BYTES,
    FOLDER,
    GROUP,
    MESSAGE,
    MESSAGE_BYTES,
    NAME,
    NAME_BYTES,
    OLD_ACTION,
    OPEN_FLAGS,
    ROOM,
    TABLE,
    THRESHOLD,
    UNIT,
    table_parts,
)
from hpgcn.kernels.disk.c_library import ADDRESS as POINTER
from hpgcn.kernels.disk.c_library import LONG
from hpgcn.kernels.disk.direct import DIRECT, use_directly
from hpgcn.kernels.disk.gathers import READS, gather, is_in_file
from hpgcn.kernels.disk.page_faults import SEGMENTATION_FAULT, on_fault
from hpgcn.kernels.disk.places import add, find, nbytes_of, remove
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pools import start_pool

try:
    from numpy._core import _multiarray_umath
except ImportError:  # NumPy 1
    from numpy.core import _multiarray_umath

SET_HANDLER = 304  # place of PyDataMem_SetHandler in NumPy's table of C functions
CAPSULE = b"mem_handler"  # name that NumPy gives the capsule of a handler
TEMPLATE = "hpgcn-array-XXXXXX"  # a name for mkostemp, if the system needs names
ALL = 1 << 62  # bytes: no limit
PIECES = 1 << 13  # pieces of the memory that are brought in one by one
SIGNAL_INFO = 4  # SA_SIGINFO


@jit(inner=True)
def _is_small(size):
    return size < table_parts()[0][THRESHOLD]


@c.c_function(POINTER, LONG, POINTER)
def _allocate(context, size):
    return c.malloc(size) if _is_small(size) else add(size)


@c.c_function(POINTER, LONG, LONG, POINTER)
def _allocate_zeros(context, count, each):
    return c.calloc(count, each) if _is_small(count * each) else add(count * each)


@c.c_function(POINTER, POINTER, LONG, numba.void)
def _release(context, place, size):
    a = find(place)
    if a < 0:
        c.free(place)
    else:
        remove(a)


@c.c_function(POINTER, POINTER, LONG, POINTER)
def _resize(context, place, size):
    a = find(place)
    if a < 0 and _is_small(size):
        return c.realloc(place, size)

    # to a file, or from one
    new = c.malloc(size) if _is_small(size) else add(size)
    if not new or not place:
        return new
    if a < 0:
        c.memcpy(new, place, min(size, c.usable_size(place)))
        c.free(place)
    else:
        c.memcpy(new, place, min(size, nbytes_of(a)))
        remove(a)
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


for each in (*FUNCTIONS, on_fault):
    _keep(each)


class _Action(ctypes.Structure):
    """Struct sigaction of the C library."""

    _fields_ = (("handler", ctypes.c_void_p), ("mask", ctypes.c_byte * 128),
                ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p))


_before = _Action()  # the former handler, for accesses to other memory
TABLE[OLD_ACTION] = ctypes.addressof(_before)
_keep(_before)


def _handle_faults():
    """Let `on_fault` handle accesses to blocks that are not in memory, from now on."""
    sigaction = ctypes.CDLL(None).sigaction
    found = _Action()
    sigaction(SEGMENTATION_FAULT, None, ctypes.byref(found))
    if found.handler != on_fault.address:
        ctypes.memmove(ctypes.byref(_before), ctypes.byref(found), ctypes.sizeof(found))
        action = _Action(on_fault.address, flags=SIGNAL_INFO)
        sigaction(SEGMENTATION_FAULT, ctypes.byref(action), None)


class FileArrays:
    """Large arrays of NumPy in files of a folder, without names, so that nothing remains.

    System calls cannot access blocks that are not in memory, so touch such an array
    first.

    Parameters
    ----------
    folder : str or path-like
        Where the files are.
    threshold : int
        Bytes of the smallest array in a file.
    room : int
        Bytes of the arrays that may be in memory.

    Examples
    --------
    >>> import tempfile
    >>> files = FileArrays(tempfile.gettempdir(), threshold=1 << 16)
    >>> with files.use():
    ...     x = np.ones(1 << 16)
    >>> files.nbytes, float(x.sum())
    (524288, 65536.0)
    """

    def __init__(self, folder, threshold=1 << 20, room=ALL):
        self.threshold = threshold
        folder = os.path.abspath(folder)
        texts = [os.fsencode(folder), os.fsencode(os.path.join(folder, TEMPLATE)),
                 os.fsencode(f"hpgcn: {folder}: an array could not be read or written\n")]
        self._texts = [ctypes.create_string_buffer(text) for text in texts]
        folder, name, message = map(ctypes.addressof, self._texts)
        flags = _open_flags(self._texts[0].value)
        unit = max(GROUP, 1 << (room // PIECES).bit_length()) if room < ALL else GROUP
        self._fields = {
            THRESHOLD: threshold, ROOM: room, UNIT: unit, OPEN_FLAGS: flags, FOLDER: folder,
            NAME: name, NAME_BYTES: len(self._texts[1]), MESSAGE: message,
            MESSAGE_BYTES: len(texts[2])}
        self._handler = _Handler(b"hpgcn.file_arrays", 1, None, *(
            function.address for function in FUNCTIONS))
        self._made = _capsule(ctypes.addressof(self._handler), CAPSULE, None)
        _keep(self)

    @contextmanager
    def use(self):
        """Context manager: put large arrays that this thread allocates in files."""
        for field, value in self._fields.items():
            TABLE[field] = value
        _handle_faults()
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
        address, row_bytes = array.ctypes.data, array.strides[0]
        if not (array.flags.c_contiguous and is_in_file(address)):
            return array[rows]

        # threads read at the same time, each neighboring rows
        rows = np.ascontiguousarray(rows, np.int64)
        out = np.empty((rows.size, *array.shape[1:]), array.dtype)
        readers = _readers(os.getpid())
        size = max(-(-rows.size // READS), 1)
        reads = [readers.submit(gather, address, row_bytes, rows[first:first + size],
                                out.ctypes.data + first * row_bytes)
                 for first in range(0, rows.size, size)]
        for read in reads:
            read.result()
        return out

    def read_ahead(self, array, wanted):
        """Set whether an array is read ahead of a turn, because its rank will read it."""
        disk_turns.read_ahead(array.ctypes.data, wanted)

    def discard(self, array):
        """Drop the contents of an array in a file; do nothing for other arrays."""
        disk_turns.discard(array.ctypes.data, array.nbytes)

    @property
    def nbytes(self):
        """Bytes of all arrays in files."""
        return int(TABLE[FILE_BYTES])

    @property
    def error(self):
        """The errno of the last failed allocation, or 0."""
        return int(TABLE[ERROR])


@cache
def _readers(process):
    """Return the threads of this process that read rows.

    A forked process has none of the threads of its parent.
    """
    return start_pool(READS, "read rows")[0]


def _open_flags(folder):
    """Return the flags for opening files of a folder: direct, if its file system can."""
    flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
    with tempfile.TemporaryFile(dir=folder) as file:
        return flags | DIRECT * use_directly(file)

"""The table of all arrays in files, in memory that compiled code and Python find."""
import errno
import os

import numba
import numpy as np

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.c_library import INT, LONG, PAGE
from hpgcn.kernels.host.jit import jit

MOST = 20_000  # arrays at a time

# The table begins with these fields of int64; the mutex takes 8 of them.
(MUTEX, ARRAYS, FILE_BYTES, ERROR, RUNNING, THRESHOLD, OPEN_FLAGS, FOLDER, NAME,
 NAME_BYTES) = 0, *range(8, 17)
HEAD = 17
ADDRESS, NBYTES, DESCRIPTOR, OWNER = range(4)  # fields of each array; a free place has no address

TABLE, _table = c.lasting("hpgcn_arrays_in_files", HEAD + 4 * MOST, np.int64)
ROWS = TABLE[HEAD:].reshape(MOST, 4)


@jit(inner=True)
def _parts():
    """Return the fields of the table, and its rows (MOST, 4)."""
    table = numba.carray(_table(), HEAD + 4 * MOST)
    return table[:HEAD], table[HEAD:].reshape(MOST, 4)


@jit(inner=True)
def is_small(size):
    """Return whether an array is too small for a file."""
    return size < _parts()[0][THRESHOLD]


@jit(inner=True)
def _pages(size):
    """Return the bytes of the pages of an array."""
    return (size + PAGE - 1) // PAGE * PAGE


@jit(inner=True)
def _open(head):
    """Return the descriptor of a new file without a name; a failure is below 0."""
    flags = INT(head[OPEN_FLAGS])
    descriptor = c.open_nameless(head[FOLDER], flags, INT(0o600))
    if descriptor >= 0:
        return descriptor

    # for file systems without such files: remove the name at once
    name = c.malloc(head[NAME_BYTES])
    c.memcpy(name, head[NAME], head[NAME_BYTES])
    descriptor = c.mkostemp(name, INT(flags & os.O_CLOEXEC))
    if descriptor >= 0:
        c.unlink(name)
    c.free(name)
    return descriptor


@jit(inner=True)
def add(size):
    """Return the address of a new array in a file; 0 without a place for it."""
    head, rows = _parts()
    descriptor = _open(head)
    if descriptor < 0:
        head[ERROR] = c.int_at(c.place_of_errno())
        return 0

    # reserve the space now, because later writes of pages cannot report a full disk
    failed = LONG(c.fallocate(descriptor, 0, _pages(size)))
    address = LONG(c.FAILED)
    if not failed:
        address = c.mmap(0, _pages(size), INT(c.ACCESS), INT(c.SHARED), descriptor, 0)
        failed = errno.ENOMEM
    if address != c.FAILED:
        c.mutex_lock(head.ctypes.data + 8 * MUTEX)
        a = 0
        while a < MOST and rows[a, ADDRESS]:
            a += 1
        if a < MOST:
            rows[a, NBYTES], rows[a, DESCRIPTOR], rows[a, OWNER] = size, descriptor, head[RUNNING]
            rows[a, ADDRESS] = address
            head[ARRAYS] = max(head[ARRAYS], a + 1)
            head[FILE_BYTES] += size
        c.mutex_unlock(head.ctypes.data + 8 * MUTEX)
        if a < MOST:
            return address
        c.munmap(address, _pages(size))
        failed = errno.EMFILE
    c.close(descriptor)
    head[ERROR] = failed
    return 0


@jit(inner=True)
def find(address):
    """Return the number of the array at an address; -1 for other memory."""
    head, rows = _parts()
    if address % PAGE == 0 and address:
        for a in range(head[ARRAYS]):
            if rows[a, ADDRESS] == address:
                return a
    return -1


@jit(inner=True)
def nbytes_of(a):
    """Return the bytes of array number a."""
    return _parts()[1][a, NBYTES]


@jit(inner=True)
def remove(a):
    """Free the memory and the file of array number a."""
    head, rows = _parts()
    address, size, descriptor = rows[a, ADDRESS], rows[a, NBYTES], rows[a, DESCRIPTOR]
    c.mutex_lock(head.ctypes.data + 8 * MUTEX)
    rows[a, ADDRESS] = 0
    head[FILE_BYTES] -= size
    c.mutex_unlock(head.ctypes.data + 8 * MUTEX)
    c.munmap(address, _pages(size))
    c.close(INT(descriptor))


def row_of(array):
    """Return the row of ROWS of the file that the begin of an array lies in, or None."""
    rows = ROWS[:TABLE[ARRAYS]]
    place = array.ctypes.data - rows[:, ADDRESS]
    found = np.flatnonzero((place >= 0) & (place < rows[:, NBYTES]) & (rows[:, ADDRESS] > 0))
    return rows[found[0]].copy() if found.size else None

"""The table of all arrays in files and their blocks, in memory that compiled code finds.

One mutex guards the table. A block that moves between memory and file is marked MOVING;
the mutex is free in the meantime. A thread that needs the block then tries again.
"""
import os

import numba
import numpy as np

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.c_library import INT, PAGE
from hpgcn.kernels.host.jit import jit

BLOCK = 1 << 16  # bytes
GROUP = 1 << 21  # bytes of blocks that are opened together: a huge page
RUN = 1 << 24  # bytes that are read or written at once
MOST = 20_000  # arrays at a time
MOST_BLOCKS = 1 << 25  # 2 TiB in all arrays
PAUSE = 20  # microseconds between two tests of a block that moves
NAP = 200  # microseconds between two searches for notes of accesses

# The table begins with these fields of int64; the mutex takes 8 of them.
(MUTEX, ROOM, IN_MEMORY, ARRAYS, BLOCKS, FILE_BYTES, ERROR, HAND, RUNNING, UNIT, THRESHOLD,
 OPEN_FLAGS, FOLDER, NAME, NAME_BYTES, OLD_ACTION, MESSAGE, MESSAGE_BYTES, TURN, NUM_NOTES,
 NOTES) = 0, *range(8, 28)
SLOTS = 8  # the last notes of accesses, which `follow` reads: array and block each
HEAD = NOTES + 2 * SLOTS

# Fields of each array. A free place has no address.
(ADDRESS, NBYTES, DESCRIPTOR, OWNER, FIRST_BLOCK, AHEAD,
 READ, WRITTEN) = range(8)  # READ and WRITTEN: bytes of its file that were read, and written
NOBODY = -1  # OWNER of an array whose run has ended
NOT_AHEAD, MESSAGES, ORDINARY = range(3)  # AHEAD: whether the array is read ahead of a turn

# Fields of each block: flags, the begin and end of its dead bytes, which nothing reads, its array.
# A free place has no flags.
FLAGS, DEAD, DEAD_END, ARRAY = range(4)
USED, PRESENT, STORED, MOVING, READABLE, WRITABLE, TOUCHED, KEPT = (1 << bit for bit in range(8))
OPEN = READABLE | WRITABLE
PLACE = PRESENT | STORED | MOVING  # where the contents of a block are

TABLE, _table = c.lasting("hpgcn_arrays_in_files", HEAD + 8 * MOST, np.int64)
_, _blocks = c.lasting("hpgcn_blocks_in_files", 4 * MOST_BLOCKS, np.int32)


@jit(inner=True)
def table_parts():
    """Return the parts of the table: fields, arrays (MOST, 8) and blocks (MOST_BLOCKS, 4)."""
    table = numba.carray(_table(), HEAD + 8 * MOST)
    return (table[:HEAD], table[HEAD:].reshape(MOST, 8),
            numba.carray(_blocks(), (MOST_BLOCKS, 4)))


@jit(inner=True)
def lock(head):
    c.mutex_lock(head.ctypes.data + 8 * MUTEX)


@jit(inner=True)
def unlock(head):
    c.mutex_unlock(head.ctypes.data + 8 * MUTEX)


@jit(inner=True)
def pause(head, microseconds=PAUSE):
    """Give the mutex to another thread for a while."""
    unlock(head)
    c.sleep(INT(microseconds))
    lock(head)


@jit(inner=True)
def fail(head):
    """End the process, because a read or write of an array failed and its values are lost."""
    c.write(INT(2), head[MESSAGE], head[MESSAGE_BYTES])
    c.exit_now(INT(os.EX_IOERR))


@jit(inner=True)
def num_blocks(nbytes):
    """Return the number of blocks of an array."""
    return (nbytes + BLOCK - 1) // BLOCK


@jit(inner=True)
def whole_pages(nbytes):
    """Return the bytes of the pages of an array."""
    return (nbytes + PAGE - 1) // PAGE * PAGE


@jit(inner=True)
def place_of(array, first, last):
    """Return the address and bytes of blocks [first, last) of an array."""
    end = min(last * BLOCK, whole_pages(array[NBYTES]))
    return array[ADDRESS] + first * BLOCK, end - first * BLOCK


@jit(inner=True)
def mark(blocks, first, last, add, remove):
    for b in range(first, last):
        blocks[b, FLAGS] = (blocks[b, FLAGS] | add) & ~remove


@jit(inner=True)
def end_of_run(blocks, base, first, last, mask):
    """Return the end of the run of blocks from `first` with equal flags under a mask."""
    end, flags = first + 1, blocks[base + first, FLAGS] & mask
    while end < last and blocks[base + end, FLAGS] & mask == flags:
        end += 1
    return end


@jit(inner=True)
def array_at(head, arrays, address):
    """Return the number of the array with a byte at an address; -1 for other memory."""
    for a in range(head[ARRAYS]):
        if arrays[a, ADDRESS] and 0 <= address - arrays[a, ADDRESS] < arrays[a, NBYTES]:
            return a
    return -1

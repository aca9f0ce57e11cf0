"""Gather rows of an array in a file by direct reads of their pages.

An access would bring in whole blocks, which have many other rows if these are random.
"""
from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.block_table import (
    ADDRESS,
    BLOCK,
    DESCRIPTOR,
    FIRST_BLOCK,
    FLAGS,
    PLACE,
    READ,
    STORED,
    array_at,
    fail,
    lock,
    num_blocks,
    table_parts,
    unlock,
)
from hpgcn.kernels.disk.c_library import INT, PAGE
from hpgcn.kernels.disk.moves import transfer
from hpgcn.kernels.host.jit import jit

MOST_READ = 1 << 18  # bytes of a read
GAP = 1 << 14  # bytes between two pages: to read them as well takes less time than another read
READS = 16  # reads at a time


@jit(inner=True)
def _is_stored(head, array, blocks, first, end):
    """Return whether bytes of an array are in its file but not in memory."""
    base, stored = array[FIRST_BLOCK], True
    lock(head)
    for b in range(base + first // BLOCK, base + num_blocks(end)):
        stored &= blocks[b, FLAGS] & PLACE == STORED
    unlock(head)
    return stored


@jit()
def is_in_file(address):
    """Return whether the byte at an address is in an array in a file."""
    head, arrays, _ = table_parts()
    lock(head)
    a = array_at(head, arrays, address)
    unlock(head)
    return a >= 0


@jit()
def gather(address, row_bytes, rows, out):
    """Copy rows of an array in a file, which nothing changes in the meantime.

    Parameters
    ----------
    address : int
        Where row 0 is.
    row_bytes : int
    rows : (r,) int64 ndarray
        Numbers of rows. Increasing ones with less than GAP bytes between their pages are
        read at once.
    out : int
        Address of the copy.
    """
    # the array, and memory for what is read
    head, arrays, blocks = table_parts()
    lock(head)
    array = arrays[array_at(head, arrays, address)]
    unlock(head)
    offset = address - array[ADDRESS]
    buffer = c.mmap(0, MOST_READ, INT(c.READ | c.WRITE), INT(c.NO_FILE), INT(-1), 0)
    if buffer == c.FAILED:
        fail(head)

    k = moved = 0
    while k < rows.size:
        # the rows of the next read
        first = (offset + rows[k] * row_bytes) // PAGE * PAGE
        end, last = first, k
        while last < rows.size:
            begin = offset + rows[last] * row_bytes
            stop = (begin + row_bytes + PAGE - 1) // PAGE * PAGE
            if begin < first or begin // PAGE * PAGE > end + GAP or stop - first > MOST_READ:
                break
            end = max(end, stop)
            last += 1

        # rows in memory, and rows longer than a read, are ordinary accesses
        source = array[ADDRESS]
        if last == k:
            last = k + 1
        elif _is_stored(head, array, blocks, first, end):
            transfer(head, False, array[DESCRIPTOR], buffer, end - first, first)
            source, moved = buffer - first, moved + end - first
        for i in range(k, last):
            c.memcpy(out + i * row_bytes, source + offset + rows[i] * row_bytes, row_bytes)
        k = last

    c.munmap(buffer, MOST_READ)
    lock(head)
    array[READ] += moved
    unlock(head)

"""Move blocks of arrays between memory and their files, by direct reads and writes.

Callers hold the mutex of the table. The functions release it while contents move.
"""
import errno
import os

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.block_table import (
    ARRAY,
    BLOCK,
    BLOCKS,
    DEAD,
    DESCRIPTOR,
    FIRST_BLOCK,
    FLAGS,
    GROUP,
    HAND,
    IN_MEMORY,
    MOVING,
    NBYTES,
    OPEN,
    OPEN_FLAGS,
    OWNER,
    PLACE,
    PRESENT,
    READ,
    ROOM,
    RUNNING,
    STORED,
    TOUCHED,
    WRITABLE,
    WRITTEN,
    end_of_run,
    fail,
    lock,
    mark,
    num_blocks,
    pause,
    place_of,
    table_parts,
    unlock,
)
from hpgcn.kernels.disk.c_library import INT
from hpgcn.kernels.disk.direct import DIRECT
from hpgcn.kernels.host.jit import jit


@jit(inner=True)
def protect(address, size, access):
    """Set the protection of memory; this fails only if the system itself lacks memory."""
    if c.mprotect(address, size, INT(access)):
        fail(table_parts()[0])


@jit(inner=True)
def reserve(size, offset):
    """Return the address of new memory without access; `offset` is its place in a group."""
    raw = c.mmap(0, size + GROUP, INT(0), INT(c.NO_FILE), INT(-1), 0)
    if raw == c.FAILED:
        return 0
    begin = raw + (offset - raw) % GROUP
    if begin > raw:
        c.munmap(raw, begin - raw)
    c.munmap(begin + size, raw + GROUP - begin)
    return begin


@jit(inner=True)
def drop(address, size):
    """Free the memory of blocks, and deny accesses."""
    if c.mmap(address, size, INT(0), INT(c.NO_FILE | c.FIXED), INT(-1), 0) == c.FAILED:
        fail(table_parts()[0])


@jit(inner=True)
def open_empty(address, size):
    """Open blocks without contents: allow accesses to their memory."""
    protect(address, size, c.READ | c.WRITE)
    c.madvise(address, size, INT(c.HUGE if size >= GROUP else c.POPULATE))


@jit(inner=True)
def open_new(head, array, blocks, first, last):
    """Mark blocks without contents as in memory and touched."""
    address, size = place_of(array, first, last)
    open_empty(address, size)
    head[IN_MEMORY] += size
    begin, end = array[FIRST_BLOCK] + first, array[FIRST_BLOCK] + last
    blocks[begin:end, DEAD:ARRAY] = 0
    mark(blocks, begin, end, PRESENT | OPEN | TOUCHED, 0)


@jit(inner=True)
def uncount(head, array, blocks, first, last):
    """Wait until no block moves; then subtract the blocks in memory, which are dropped next."""
    # each pause may let another block move
    k = first
    while k < last:
        k += 1
        if blocks[array[FIRST_BLOCK] + k - 1, FLAGS] & MOVING:
            pause(head)
            k = first

    for k in range(first, last):
        if blocks[array[FIRST_BLOCK] + k, FLAGS] & PRESENT:
            head[IN_MEMORY] -= place_of(array, k, k + 1)[1]


@jit(inner=True)
def transfer(head, writing, descriptor, address, size, offset):
    """Read or write a part of a file."""
    done = 0
    while done < size:
        if writing:
            count = c.pwrite(INT(descriptor), address + done, size - done, offset + done)
        else:
            count = c.pread(INT(descriptor), address + done, size - done, offset + done)
        if count <= 0 and not (count < 0 and c.int_at(c.place_of_errno()) == errno.EINTR):
            fail(head)
        done += max(count, 0)
    if not head[OPEN_FLAGS] & DIRECT:  # drop the contents from the page cache
        if writing:
            c.write_back(INT(descriptor))
        c.drop_cached(INT(descriptor), offset, size, INT(os.POSIX_FADV_DONTNEED))


@jit(inner=True)
def read_blocks(head, array, blocks, first, last):
    """Bring in stored blocks; release the mutex in the meantime.

    The contents are read to other memory first, which then replaces that of the blocks.
    So no thread sees a block that is read in part.
    """
    base = array[FIRST_BLOCK]
    address, size = place_of(array, first, last)
    mark(blocks, base + first, base + last, MOVING, 0)
    head[IN_MEMORY] += size
    unlock(head)

    staging = reserve(size, address)
    if not staging:
        fail(head)
    open_empty(staging, size)
    transfer(head, False, array[DESCRIPTOR], staging, size, first * BLOCK)
    protect(staging, size, 0)

    lock(head)
    if c.mremap(staging, size, size, INT(c.MOVE), address) == c.FAILED:
        fail(head)
    array[READ] += size
    mark(blocks, base + first, base + last, PRESENT, MOVING)


@jit(inner=True)
def write_blocks(head, array, blocks, first, last):
    """Put out blocks in memory, all of them stored or none, without the mutex."""
    base = array[FIRST_BLOCK]
    address, size = place_of(array, first, last)
    stored = blocks[base + first, FLAGS] & STORED
    mark(blocks, base + first, base + last, MOVING, WRITABLE)
    if not stored:
        protect(address, size, c.READ)
        unlock(head)
        transfer(head, True, array[DESCRIPTOR], address, size, first * BLOCK)
        lock(head)
        array[WRITTEN] += size
    drop(address, size)
    head[IN_MEMORY] -= size
    mark(blocks, base + first, base + last, STORED, PRESENT | MOVING | OPEN)


@jit(inner=True)
def make_room(head, arrays, blocks, size):
    """Put out blocks until `size` bytes fit, first blocks of ranks that do not run."""
    for also_own in range(2):
        for _ in range(head[BLOCKS]):
            if head[IN_MEMORY] + size <= head[ROOM]:
                return
            b = head[HAND] % head[BLOCKS]
            head[HAND] = b + 1
            array = arrays[blocks[b, ARRAY]]
            if blocks[b, FLAGS] & (PRESENT | MOVING) == PRESENT and (
                    also_own or array[OWNER] != head[RUNNING]):
                first = b - array[FIRST_BLOCK]
                last = min(first + GROUP // BLOCK, num_blocks(array[NBYTES]))
                end = end_of_run(blocks, array[FIRST_BLOCK], first, last, PLACE)
                write_blocks(head, array, blocks, first, end)

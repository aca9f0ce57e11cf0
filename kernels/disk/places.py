"""Arrays in the table: add, find and remove them."""
import errno
import os

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.block_table import (
    ADDRESS,
    AHEAD,
    ARRAY,
    ARRAYS,
    BLOCKS,
    DEAD,
    DEAD_END,
    DESCRIPTOR,
    ERROR,
    FILE_BYTES,
    FIRST_BLOCK,
    FLAGS,
    FOLDER,
    IN_MEMORY,
    MOST,
    MOST_BLOCKS,
    NAME,
    NAME_BYTES,
    NBYTES,
    OPEN_FLAGS,
    ORDINARY,
    OWNER,
    READ,
    ROOM,
    RUNNING,
    USED,
    WRITTEN,
    array_at,
    lock,
    num_blocks,
    place_of,
    table_parts,
    unlock,
    whole_pages,
)
from hpgcn.kernels.disk.c_library import INT, LONG, PAGE
from hpgcn.kernels.disk.direct import DIRECT
from hpgcn.kernels.disk.moves import make_room, open_new, reserve, uncount
from hpgcn.kernels.host.jit import jit


@jit(inner=True)
def _free_blocks(arrays, blocks, count):
    """Return the first of `count` adjacent free places for blocks, or -1."""
    b = free = 0
    while b < MOST_BLOCKS:
        if blocks[b, FLAGS]:
            array = arrays[blocks[b, ARRAY]]
            b = array[FIRST_BLOCK] + num_blocks(array[NBYTES])
            free = 0
            continue
        b += 1
        free += 1
        if free == count:
            return b - count
    return -1


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
    descriptor = c.mkostemp(name, INT(flags & (DIRECT | os.O_CLOEXEC)))
    if descriptor >= 0:
        c.unlink(name)
    c.free(name)
    return descriptor


@jit(inner=True)
def add(size):
    """Return the address of a new array in a file; 0 without a place for it."""
    head, arrays, blocks = table_parts()
    descriptor = _open(head)
    if descriptor < 0:
        head[ERROR] = c.int_at(c.place_of_errno())
        return 0

    # reserve the space now, because later writes of blocks cannot report a full disk
    pages = whole_pages(size)
    failed = LONG(c.fallocate(descriptor, 0, pages))
    address = 0
    if not failed:
        lock(head)
        a = 0
        while a < MOST and arrays[a, ADDRESS]:
            a += 1
        count = num_blocks(size)
        base = _free_blocks(arrays, blocks, count) if a < MOST else -1
        address = reserve(pages, 0) if base >= 0 else 0
        failed = errno.EMFILE if base < 0 else errno.ENOMEM
        if address:
            _enter(head, arrays, blocks, a, base, count, address, size, descriptor)
        unlock(head)
    if not address:
        c.close(descriptor)
        head[ERROR] = failed
    return address


@jit(inner=True)
def _enter(head, arrays, blocks, a, base, count, address, size, descriptor):
    """Enter an array into the table; it is in memory at once if it fits."""
    array = arrays[a]
    array[NBYTES], array[DESCRIPTOR], array[OWNER] = size, descriptor, head[RUNNING]
    array[FIRST_BLOCK], array[AHEAD] = base, ORDINARY
    array[READ] = array[WRITTEN] = 0
    array[ADDRESS] = address
    head[ARRAYS] = max(head[ARRAYS], a + 1)
    head[BLOCKS] = max(head[BLOCKS], base + count)
    head[FILE_BYTES] += size
    for b in range(base, base + count):
        blocks[b, FLAGS], blocks[b, DEAD], blocks[b, DEAD_END], blocks[b, ARRAY] = USED, 0, 0, a

    _, pages = place_of(array, 0, count)
    make_room(head, arrays, blocks, pages)
    if head[IN_MEMORY] + pages <= head[ROOM]:
        open_new(head, array, blocks, 0, count)


@jit(inner=True)
def find(address):
    """Return the number of the array at an address; -1 for other memory."""
    head, arrays, _ = table_parts()
    return -1 if address % PAGE else array_at(head, arrays, address)


@jit(inner=True)
def nbytes_of(a):
    """Return the bytes of array number a."""
    return table_parts()[1][a, NBYTES]


@jit(inner=True)
def remove(a):
    """Free the memory and the file of array number a."""
    head, arrays, blocks = table_parts()
    array = arrays[a]
    base, count = array[FIRST_BLOCK], num_blocks(array[NBYTES])
    lock(head)
    uncount(head, array, blocks, 0, count)
    blocks[base:base + count, FLAGS] = 0
    address, pages = place_of(array, 0, count)
    c.munmap(address, pages)
    c.close(INT(array[DESCRIPTOR]))
    head[FILE_BYTES] -= array[NBYTES]
    array[ADDRESS] = 0
    unlock(head)


"""Bring in blocks of arrays in files when they are touched.

An array is memory in blocks that cannot be accessed until their contents are there. An
access to such a block is a segmentation fault. Its handler brings the block in, and the
access is repeated.
"""
import platform

import numba

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.block_table import (
    ADDRESS,
    AHEAD,
    ARRAY,
    BLOCK,
    DEAD,
    FIRST_BLOCK,
    FLAGS,
    GROUP,
    MOVING,
    NBYTES,
    NOT_AHEAD,
    OLD_ACTION,
    OPEN,
    ORDINARY,
    OWNER,
    PLACE,
    PRESENT,
    READABLE,
    RUNNING,
    STORED,
    TOUCHED,
    UNIT,
    WRITABLE,
    array_at,
    end_of_run,
    lock,
    mark,
    num_blocks,
    pause,
    place_of,
    table_parts,
    unlock,
)
from hpgcn.kernels.disk.c_library import INT
from hpgcn.kernels.disk.following import note
from hpgcn.kernels.disk.moves import make_room, open_new, protect, read_blocks
from hpgcn.kernels.host.jit import jit

SEGMENTATION_FAULT = 11
WRITE_FAULT = 2  # bit of the error code that x86-64 gives a fault
PARTS = 64  # the least number of parts in which an array is brought in
ERROR_CODE = 24 if platform.machine() == "x86_64" else 0  # its place in the context of a signal


@jit(inner=True)
def _bring(head, arrays, blocks, a, k, writing):
    """Make block k of array a accessible, or let the access try again; hold the mutex."""
    array = arrays[a]
    base, count = array[FIRST_BLOCK], num_blocks(array[NBYTES])
    flags = blocks[base + k, FLAGS]
    if flags & MOVING:
        pause(head)
        return

    # A block in memory: allow reads of the blocks after it as well. Allow writes of them only
    # if its rank has written a block before.
    own = array[OWNER] == head[RUNNING]
    if flags & PRESENT:
        last = min(count, (k // (GROUP // BLOCK) + 1) * (GROUP // BLOCK))
        if not ERROR_CODE:
            writing = flags & READABLE > 0  # the second fault of a block
        if flags & WRITABLE:
            pass  # another thread has opened it
        elif writing:
            end = k + 1
            if own and k % (GROUP // BLOCK) and blocks[base + k - 1, FLAGS] & WRITABLE:
                end = end_of_run(blocks, base, k, last, PRESENT | MOVING | OPEN)
            address, size = place_of(array, k, end)
            protect(address, size, c.READ | c.WRITE)
            blocks[base + k:base + end, DEAD:ARRAY] = 0
            mark(blocks, base + k, base + end, OPEN | TOUCHED, STORED)
        elif not flags & READABLE:
            end = end_of_run(blocks, base, k, last, PRESENT | MOVING | OPEN)
            address, size = place_of(array, k, end)
            protect(address, size, c.READ)
            mark(blocks, base + k, base + end, READABLE | TOUCHED, 0)
            if own:
                note(head, a, end)
        return

    # Not in memory: bring in blocks around it too, if its rank runs, which goes through all of
    # them. Only some rows of messages are touched at a time, one after the other.
    unit, first_of_all = BLOCK, k
    if own and array[AHEAD] == ORDINARY:
        most = head[UNIT] if flags & STORED else GROUP
        while unit < most and unit * PARTS <= array[NBYTES]:
            unit *= 2
        first_of_all = k // (unit // BLOCK) * (unit // BLOCK)
    elif flags & STORED:
        unit = GROUP if k and blocks[base + k - 1, FLAGS] & TOUCHED else BLOCK
    else:  # an eighth of the blocks written before it
        written = k
        while k - written < GROUP // BLOCK and written and (
                blocks[base + written - 1, FLAGS] & WRITABLE):
            written -= 1
        unit = max((k - written) // 8, 1) * BLOCK
    make_room(head, arrays, blocks, unit)
    flags = blocks[base + k, FLAGS] & PLACE  # other threads may have changed them in the meantime
    first = k
    while first > first_of_all and blocks[base + first - 1, FLAGS] & PLACE == flags:
        first -= 1
    last = end_of_run(blocks, base, k, min(count, first_of_all + unit // BLOCK), PLACE)
    if flags == STORED:
        read_blocks(head, array, blocks, first, last)
        if own and array[AHEAD] != NOT_AHEAD:
            note(head, a, last)
    elif flags == 0:
        open_new(head, array, blocks, first, last)


@c.c_function(INT, c.LONGS, c.LONGS, numba.void)
def on_fault(number, info, context):
    """Handle SIGSEGV: make an accessed block of an array accessible.

    Any other access goes to the former handler.
    """
    before = c.int_at(c.place_of_errno())
    head, arrays, blocks = table_parts()
    address = numba.carray(info, 3)[2]
    a = array_at(head, arrays, address)
    if a < 0:
        c.sigaction(INT(SEGMENTATION_FAULT), head[OLD_ACTION], 0)
    else:
        writing = numba.carray(context, 25)[ERROR_CODE] & WRITE_FAULT > 0
        lock(head)
        _bring(head, arrays, blocks, a, (address - arrays[a, ADDRESS]) // BLOCK, writing)
        unlock(head)
    c.set_int(c.place_of_errno(), before)

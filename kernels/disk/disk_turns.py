"""Move blocks when the running rank changes: find touched blocks, write, read, discard.

A turn is the time from one change of the running rank to the next.
"""
import mmap

import numpy as np

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.block_table import (
    ADDRESS,
    AHEAD,
    ARRAY,
    ARRAYS,
    BLOCK,
    BLOCKS,
    DEAD,
    DEAD_END,
    FIRST_BLOCK,
    FLAGS,
    IN_MEMORY,
    KEPT,
    MESSAGES,
    MOVING,
    NBYTES,
    NOBODY,
    NOT_AHEAD,
    NUM_NOTES,
    OPEN,
    OWNER,
    PLACE,
    PRESENT,
    ROOM,
    RUN,
    RUNNING,
    STORED,
    TABLE,
    TOUCHED,
    TURN,
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
from hpgcn.kernels.disk.moves import drop, open_empty, protect, read_blocks, uncount, write_blocks
from hpgcn.kernels.host.jit import jit

RUN_BYTES = 32  # bytes of the numbers that describe a run of blocks


def _runs_in(memory):
    """Return memory as runs of blocks, (R, 4) int64.

    NumPy does not allocate it, because a large array could be in a file. The reader of
    such an array would hold the mutex, which `on_fault` needs to bring the array in.
    """
    return np.frombuffer(memory, np.int64).reshape(-1, 4)


@jit(inner=True)
def _append(runs, count, last, a, k, nbytes):
    """Append a block to runs of blocks; return the number of runs."""
    if last != k:
        runs[count, 0], runs[count, 1], runs[count, 3] = a, k, nbytes
        count += 1
    runs[count - 1, 2] = k + 1
    return count


@jit()
def _end_turn(leaving, entering, known, touched, out):
    """Fill `touched` and `out` with runs of blocks, as `end_turn` returns them.

    Return the numbers of runs.
    """
    head, arrays, blocks = table_parts()
    lock(head)
    for number in range(len(known)):
        a, first, last, nbytes = known[number]
        if arrays[a, ADDRESS] and arrays[a, NBYTES] == nbytes:
            mark(blocks, arrays[a, FIRST_BLOCK] + first, arrays[a, FIRST_BLOCK] + last, KEPT, 0)

    touches = outs = 0
    for a in range(head[ARRAYS]):
        array = arrays[a]
        if not array[ADDRESS] or array[OWNER] == NOBODY:
            continue
        last_touched = last_out = -1
        for k in range(num_blocks(array[NBYTES])):
            b = array[FIRST_BLOCK] + k
            flags = blocks[b, FLAGS]
            if flags & TOUCHED:
                touches = _append(touched, touches, last_touched, a, k, array[NBYTES])
                last_touched = k + 1
            if not flags & KEPT and array[OWNER] != entering and (
                    flags & (PRESENT | MOVING) == PRESENT) and (
                    array[OWNER] == leaving or flags & OPEN):
                outs = _append(out, outs, last_out, a, k, array[NBYTES])
                last_out = k + 1

            # blocks that stay accessible count as touched by the next turn
            if flags & KEPT and flags & OPEN:
                blocks[b, FLAGS] = (flags | TOUCHED) & ~KEPT
            elif array[OWNER] != entering:
                blocks[b, FLAGS] = flags & ~(TOUCHED | KEPT)
            else:
                blocks[b, FLAGS] = flags & ~KEPT
    head[RUNNING] = entering
    head[TURN] += 1
    head[NUM_NOTES] = 0
    unlock(head)
    return touches, outs


def end_turn(leaving, entering, known=None):
    """Note that another rank runs now.

    Parameters
    ----------
    leaving, entering : int
        The rank that has run, and the rank that runs now.
    known : (R, 4) int64 ndarray, optional
        Runs of blocks that `entering` probably touches, as in an earlier turn like this one.

    Returns
    -------
    touched : (R, 4) int64 ndarray
        Runs of blocks that the turn has touched: number of the array, first block, end,
        bytes of the array.
    out : (S, 4) int64 ndarray
        Runs of blocks that the rank `entering` does not need.
    """
    known = _runs_in(bytearray()) if known is None else known
    nbytes = RUN_BYTES * max(int(TABLE[BLOCKS]), 1)  # a run has at least a block
    touched, out = (_runs_in(mmap.mmap(-1, nbytes)) for _ in range(2))
    touches, outs = _end_turn(leaving, entering, known, touched, out)
    return _runs_in(bytearray(touched[:touches])), _runs_in(bytearray(out[:outs]))


def begin_turns():
    """Note that rank 0 runs now."""
    TABLE[RUNNING] = 0


def current_turn():
    """Return the number of the turn that began last."""
    return int(TABLE[TURN])


def end_turns():
    """Let `follow` return, after the last turn."""
    TABLE[TURN] += 1


@jit()
def put_out(runs):
    """Write the blocks of runs that are in memory and not stored yet; free their memory."""
    head, arrays, blocks = table_parts()
    lock(head)
    for number in range(len(runs)):
        a, k, last, nbytes = runs[number]
        array = arrays[a]
        while k < last and array[ADDRESS] and array[NBYTES] == nbytes:
            base = array[FIRST_BLOCK]
            end = end_of_run(blocks, base, k, min(last, k + RUN // BLOCK), PLACE)
            if blocks[base + k, FLAGS] & (PRESENT | MOVING) == PRESENT:
                write_blocks(head, array, blocks, k, end)
            k = end
    unlock(head)


@jit()
def bring_in(runs, rank):
    """Read stored blocks of runs for the next turn of a rank, until the room is full.

    An array is left out if its place was given to one of another size, or if the rank
    will overwrite it.
    """
    head, arrays, blocks = table_parts()
    lock(head)
    for number in range(len(runs)):
        a, k, last, nbytes = runs[number]
        array = arrays[a]
        if array[AHEAD] == NOT_AHEAD and array[OWNER] == rank:
            continue
        while k < last and array[ADDRESS] and array[NBYTES] == nbytes:
            base = array[FIRST_BLOCK]
            end = end_of_run(blocks, base, k, min(last, k + RUN // BLOCK), PLACE)
            if blocks[base + k, FLAGS] & PLACE == STORED:
                if head[IN_MEMORY] + place_of(array, k, end)[1] > head[ROOM]:
                    break
                read_blocks(head, array, blocks, k, end)
            k = end
    unlock(head)


@jit()
def open_all():
    """Bring in all arrays after a run, until the room is full, and allow accesses."""
    head, arrays, blocks = table_parts()
    lock(head)
    for a in range(head[ARRAYS]):
        array, k = arrays[a], 0
        array[OWNER] = NOBODY
        while array[ADDRESS] and k < num_blocks(array[NBYTES]):
            base = array[FIRST_BLOCK]
            last = min(num_blocks(array[NBYTES]), k + RUN // BLOCK)
            end = end_of_run(blocks, base, k, last, PLACE | WRITABLE)
            flags = blocks[base + k, FLAGS]
            address, size = place_of(array, k, end)
            if flags & MOVING:
                pause(head)
            elif flags & WRITABLE or (
                    not flags & PRESENT and head[IN_MEMORY] + size > head[ROOM]):
                k = end
            elif flags & PLACE == STORED:
                read_blocks(head, array, blocks, k, end)
            else:
                open_empty(address, size)
                if not flags & PRESENT:
                    head[IN_MEMORY] += size
                mark(blocks, base + k, base + end, PRESENT | OPEN, STORED)
    unlock(head)


@jit(inner=True)
def _drop_all(head, array, blocks, first, last):
    """Drop the contents of blocks [first, last)."""
    uncount(head, array, blocks, first, last)
    address, size = place_of(array, first, last)
    drop(address, size)
    begin, end = array[FIRST_BLOCK] + first, array[FIRST_BLOCK] + last
    blocks[begin:end, DEAD:ARRAY] = 0
    mark(blocks, begin, end, 0, PRESENT | STORED | OPEN)


@jit(inner=True)
def _drop_part(head, array, blocks, k, first, last, whole):
    """Drop the contents of bytes of a block once all `whole` bytes are dropped.

    Until then, note which bytes are.
    """
    b = array[FIRST_BLOCK] + k
    while blocks[b, FLAGS] & MOVING:
        pause(head)
    if not blocks[b, FLAGS] & (PRESENT | STORED):
        return

    # join with bytes that were dropped before
    if first <= blocks[b, DEAD_END] and last >= blocks[b, DEAD]:
        first, last = min(first, blocks[b, DEAD]), max(last, blocks[b, DEAD_END])
    elif last - first < blocks[b, DEAD_END] - blocks[b, DEAD]:
        return
    if first == 0 and last >= whole:
        _drop_all(head, array, blocks, k, k + 1)
        return
    blocks[b, DEAD], blocks[b, DEAD_END] = first, last
    if blocks[b, FLAGS] & WRITABLE:  # the next write must cause a fault
        address, size = place_of(array, k, k + 1)
        protect(address, size, c.READ)
        mark(blocks, b, b + 1, 0, WRITABLE)


@jit()
def discard(address, nbytes):
    """Drop the contents of bytes of an array, which are overwritten before they are read.

    A block is dropped once all of its bytes are, in one piece. Dropped bytes of other
    blocks are noted until the block is written.
    """
    head, arrays, blocks = table_parts()
    lock(head)
    a = array_at(head, arrays, address)
    if a >= 0 and nbytes:
        array = arrays[a]
        begin = address - array[ADDRESS]
        end = min(begin + nbytes, array[NBYTES])
        first, last = num_blocks(begin), end // BLOCK  # whole blocks
        if end == array[NBYTES]:
            last = num_blocks(end)
        if first < last:
            _drop_all(head, array, blocks, first, last)
        for k in range(begin // BLOCK, num_blocks(end)):
            if not first <= k < last:
                _drop_part(head, array, blocks, k, max(begin - k * BLOCK, 0),
                           min(end - k * BLOCK, BLOCK), min(array[NBYTES] - k * BLOCK, BLOCK))
    unlock(head)


@jit()
def read_ahead(address, wanted):
    """Set whether `bring_in` reads the array of messages at an address for its own rank."""
    head, arrays, _ = table_parts()
    a = array_at(head, arrays, address)
    if a >= 0:
        arrays[a, AHEAD] = MESSAGES if wanted else NOT_AHEAD

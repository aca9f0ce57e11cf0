"""Read arrays in files ahead of the accesses of a rank, in turns without a record.

The handler of page faults notes where accesses arrive. Another thread reads the blocks
that follow, while the rank computes.
"""
from hpgcn.kernels.disk.block_table import (
    ADDRESS,
    BLOCK,
    FIRST_BLOCK,
    FLAGS,
    IN_MEMORY,
    NAP,
    NBYTES,
    NOTES,
    NUM_NOTES,
    PLACE,
    PRESENT,
    ROOM,
    RUN,
    SLOTS,
    STORED,
    TURN,
    end_of_run,
    lock,
    num_blocks,
    pause,
    place_of,
    table_parts,
    unlock,
)
from hpgcn.kernels.disk.moves import read_blocks
from hpgcn.kernels.host.jit import jit


@jit(inner=True)
def note(head, a, k):
    """Note for `follow` that blocks of array a are accessed up to block k."""
    place = NOTES + 2 * (head[NUM_NOTES] % SLOTS)
    head[place], head[place + 1] = a, k
    head[NUM_NOTES] += 1


@jit()
def follow(turn):
    """Read stored blocks after those that the running rank accesses, until its turn ends.

    `turn` is its number, from `hpgcn.kernels.disk.disk_turns.current_turn`.
    """
    head, arrays, blocks = table_parts()
    lock(head)
    seen = 0
    while head[TURN] == turn:
        if seen == head[NUM_NOTES]:
            pause(head, NAP)
            continue
        seen = max(seen, head[NUM_NOTES] - SLOTS)
        place = NOTES + 2 * (seen % SLOTS)
        a, k = head[place], head[place + 1]
        seen += 1
        if arrays[a, ADDRESS]:
            _read_on(head, arrays[a], blocks, k)
    unlock(head)


@jit(inner=True)
def _read_on(head, array, blocks, k):
    """Read stored blocks from block k on: the number in memory before it, at most a run."""
    base, count = array[FIRST_BLOCK], num_blocks(array[NBYTES])
    first = k
    while first and k - first < RUN // BLOCK and blocks[base + first - 1, FLAGS] & PRESENT:
        first -= 1
    end = min(count, 2 * k - first)

    # few reads of many blocks are faster than many reads of few
    begin = k
    while begin < end and blocks[base + begin, FLAGS] & PLACE != STORED:
        begin += 1
    if begin == end or 2 * (begin - k) > end - k:
        return
    end = end_of_run(blocks, base, begin, end, PLACE)
    if head[IN_MEMORY] + place_of(array, begin, end)[1] <= head[ROOM]:
        read_blocks(head, array, blocks, begin, end)

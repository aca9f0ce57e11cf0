"""Count the bytes that ranks of one process read from and write to a disk.

They are those of an epoch. Arrays of the ranks are files, and each turn of a rank moves
the arrays that it touches (hpgcn.runtime.disk.residency). A turn begins when a rank has
received rows in a product with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.comm.spool import BUFFERS, NEAR
from hpgcn.parallel.sizes import ExchangeSizes
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.footprint import COPIES
from hpgcn.strategies.plan import INDEX, POINTER, sum_bytes

INDEX_ARRAYS = 3  # arrays of row numbers: to send, to receive, and touched by a block
SHARED, LEARNED = 5, 4  # arrays of the size of parameters, and of learned rows: see `_optimized`
ARRAYS, MATRIX, MESSAGES = PURPOSES = "arrays of the model", "matrix", "messages"


@dataclass(frozen=True, eq=False)
class DiskTraffic:
    """Bytes by rank, (P,) int64, of a training step or of an evaluation."""

    moved: dict  # bytes read and written for each of PURPOSES, (2, P)
    turn: np.ndarray  # the most that a turn touches, without messages in a Spool
    messages: int  # the most bytes of messages in a Spool that are in memory at a time

    @property
    def read(self):
        """Bytes that each rank reads."""
        return sum(each[0] for each in self.moved.values())

    @property
    def written(self):
        """Bytes that each rank writes."""
        return sum(each[1] for each in self.moved.values())

    @property
    def nbytes(self):
        """Bytes read and written by all ranks."""
        return int(self.read.sum() + self.written.sum())


def disk_traffic(footprint, strategy, in_files=None, near=None):
    """Return the DiskTraffic of a step and of an evaluation.

    `footprint` is a RankFootprint, `strategy` a subclass of
    hpgcn.strategies.strategy.Strategy. Arrays of the first `in_files` ranks are in files, by
    default of all. Without a Spool `near` are two numbers of next ranks: messages to them
    are not read, or not written.
    """
    in_files = footprint.rows.size if in_files is None else in_files
    itemsize = footprint.spec.row_itemsize
    spools = near is None and strategy.spools
    found = []
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        # arrays of the model: segments of a rank between its waits
        turns = [step.turns(strategy, spools)[number] for step in footprint.rank_steps]
        segments = np.array([each.nbytes for each in turns])
        touched, *moved = np.moveaxis(segments, -1, 0).copy()  # (P, segments)
        moved = {name: np.zeros((2, len(touched)), np.int64) for name in PURPOSES} | {
            ARRAYS: np.array([each.sum(1) for each in moved])}
        messages = 0
        if number == 0:
            moved[ARRAYS] += _optimized(footprint)

        # the matrix, the messages and the sums of each product
        for place, (product, first, last) in enumerate(turns[0].waits):
            if product is None:  # a sum over ranks, of a few numbers
                continue
            plan = plans[product.layer]
            operand = plan.operands[product.backward]
            matrix = operand.nbytes(itemsize) - small_bytes(operand, itemsize)
            sent = plan.traffic.counts(product, itemsize)[0] // plan.traffic.period
            held = sent * (not spools)
            if not last or (strategy.sends_own_rows and first):  # all blocks come after it
                touched[:, place + 1] += matrix + held
            elif first:
                for segment in (place, place + 1):
                    touched[:, segment] += matrix // 2 + held
            if not last:
                continue
            moved[MATRIX][0] += matrix + _read_numbers(plan, product, operand, itemsize)
            if product.heads and not strategy.sends_own_rows and plan.returns:
                moved[ARRAYS] += _returned(plan, product, itemsize, training=number == 0)
            if not spools:
                moved[MESSAGES] += _messages(plan, product, sent, itemsize, strategy,
                                             near or (2, 2))
                continue
            if strategy.sends_own_rows:
                moved[MESSAGES] += plan.traffic.spooled(product, itemsize, in_files)
                messages = max(messages, plan.traffic.held(product, itemsize))
                continue
            moves = plan.traffic.moves(product, itemsize)
            pulls = any(transfer.largest for transfer, _, pushed in moves if not pushed)
            for transfer, nbytes, pushed in moves:
                # the second sums of attention are for its gradients
                nbytes //= 2 if pushed and product.heads and number else 1
                at_once = _taken_at_once(plan.num_ranks, pulls, strategy.waits(product), pushed)
                moved[MESSAGES] += transfer.spooled(nbytes, in_files, at_once, pushed=pushed)
            messages = max(messages, _in_memory(plan, product, itemsize, strategy))
        for purpose in (ARRAYS, MATRIX) if spools else PURPOSES:
            moved[purpose][:, in_files:] = 0
        found.append(DiskTraffic(moved, touched.max(1), messages))
    return found


def _taken_at_once(ranks, pulls, waits, pushed):
    """Return which ranks take rows or sums of the rank before in their next turn, (P,) bool.

    All take what they wait for at its end: the sums, if a product `pulls` no rows or waits for
    them before. In one wait sums follow rows, which only the last rank finds complete. All
    messages are there for rank 0.
    """
    number = np.arange(ranks)
    sums = waits > 1 or not pulls
    return (number == 0) | (pushed == sums) | (waits == 1) & (number == ranks - 1)


def _optimized(footprint):
    """Return the bytes that an optimizer reads after a pass and writes, (P,).

    They are of parameters, gradients and two moments. The sums of gradients over ranks are
    written once more.
    """
    shared, learned = footprint.one_copy
    return SHARED * _large(shared) + LEARNED * _large(learned)


def _read_numbers(plan, product, operand, itemsize):
    """Return the bytes of numbers of rows that each rank reads in a product, (P,).

    They are those of rows to send, of rows to which sums are added, and of rows that
    blocks touch. A matrix may list the first ones too.
    """
    found = {each for each, *_ in plan.traffic.moves(product, itemsize)
             if isinstance(each, ExchangeSizes)}
    listed = sum(each.buffer_rows for each in found)
    touched = operand.index_entries
    touched = np.where(touched < listed, touched, touched - listed)
    return sum(_large(count * POINTER) for count in (touched, *(each.sent for each in found)))


def _large(nbytes):
    """Return the bytes of arrays that are large enough for files; 0 for others."""
    return np.where(nbytes < touches.LEAST, 0, nbytes)


def _in_memory(plan, product, itemsize, strategy):
    """Return the most bytes of a product's messages in a Spool that are in memory at a time."""
    moves = plan.traffic.moves(product, itemsize)
    largest = [transfer.largest * nbytes for transfer, nbytes, _ in moves]
    most = BUFFERS * max(largest) + NEAR * sum(largest)
    if strategy.waits(product) > 1:  # rows of all other ranks, and sums for them
        most += sum(int(np.max(transfer.ghost_rows)) * nbytes for transfer, nbytes, _ in moves)
    if not all(isinstance(transfer, ExchangeSizes) for transfer, *_ in moves):
        # sums of several ranks are added in pairs, and the sums of pairs
        most += sum(transfer.largest * nbytes * plan.num_ranks.bit_length()
                    for transfer, nbytes, pushed in moves if pushed)
    return most


def gpu_traffic(footprint, strategy, slots, gpus=1):
    """Return the traffic between GPUs and the homes of their arrays, as `disk_traffic` does.

    A rank that has one of the `slots` of its GPU to itself keeps its arrays there. With two
    slots, messages to the next rank go by way of homes as well: its own are then in the
    other slot. Messages between GPUs are counted like those of one.
    """
    ranks = footprint.rows.size
    local = ranks // gpus
    places = np.arange(local) % slots
    alone = np.tile(np.bincount(places)[places] == 1, gpus)
    found = disk_traffic(footprint, strategy, near=(int(slots > 2), 0))
    for number, each in enumerate(found):
        plans = (footprint.train_plans, footprint.evaluated_plans)[number]
        turns = footprint.rank_steps[0].turns(strategy, False)[number]
        for product in [wait.product for wait in turns.waits if wait.product and wait.last
                        ] if ranks > 1 else ():
            plan = plans[product.layer]
            sent = plan.traffic.counts(product, footprint.spec.row_itemsize)[0]
            sent = sent // plan.traffic.period
            if not strategy.frees_rows:  # the last rank copies for all, from homes but its own
                each.moved[MESSAGES][1] -= (sent - sent // ranks) * (np.arange(ranks) < ranks - 1)
            elif strategy.waits(product) > 1:  # `near` does not count there
                each.moved[MESSAGES] += sent // (ranks - 1) * np.array([[slots < 3], [1]])
        for purpose in ((ARRAYS, MATRIX) if local > slots else PURPOSES):
            each.moved[purpose] = each.moved[purpose] * ~(alone | (local <= slots))
    return found


def _messages(plan, product, sent, itemsize, strategy, near):
    """Return the bytes of a product's messages that are read and written, (2, P).

    `sent`, (P,), are the bytes that ranks send. The later of two ranks copies a
    message: it has just filled the one buffer, or empties the other at once. So only
    one of them is written and read. `near` are two numbers of next ranks: messages to
    them are not read, or not written.
    """
    ranks = sent.size
    if not strategy.frees_rows:
        return np.array([sent, sent - sent // ranks])
    if ranks == 1:
        return np.array([sent, sent])

    # columns of pulled rows, and of sums
    pull, push = product.width, product.width
    if product.heads:
        pull += 3 * product.heads * product.backward
        push = (push + product.heads) * (1 if product.backward else 2)
    pulled, pushed = plan.traffic.transfers(product)
    if strategy.waits(product) > 1:
        return np.array([_of_two_waits(pulled, pushed, pull * itemsize,
                                       push * sum_bytes(itemsize))] * 2)

    # messages to next ranks stay; the first ranks are the next of the last
    moved = np.array([sent * max(ranks - 1 - each, 0) // (ranks - 1) for each in near])

    # sums of the ranks before came at once, but stay until all rows have arrived
    to_single_ranks = isinstance(pulled, ExchangeSizes) and isinstance(pushed, ExchangeSizes)
    if to_single_ranks and not pushed.passes_gateways and (pushed.joined or product.heads):
        before = np.append(np.arange(ranks - 1), 0)
        moved += pushed.sent * before // (ranks - 1) * push * sum_bytes(itemsize)
    return moved


def _of_two_waits(pulled, pushed, pull_bytes, push_bytes):
    """Return the bytes of buffers that ranks write and read again, (P,).

    A rank waits for rows and then for sums. The last rank finds all rows, so it sends
    its sums first. The one before it finds all sums, so it sends the rows of the next
    product first. Rows and sums of a rank are taken to be equally many for each other
    one.
    """
    ranks = pulled.sent.size
    number = np.arange(ranks)
    last, before_last, others = number == ranks - 1, number == ranks - 2, ranks - 1
    later = np.maximum(ranks - 3 - number, 0)  # ranks that take a message only in their turn

    # rows come before the wait for all of them, and sums of other ranks are begun before it
    rows = pulled.received * ~last * others
    sums = pushed.received * (~last * others + np.where(last, ranks - 2, later))

    # messages in the buffer of their sender, and sums that came before a wait
    rows += pulled.sent * np.select([last, before_last], [0, ranks - 2], np.maximum(later, 1))
    sums += pushed.sent * np.select([last, before_last], [ranks - 2, 0], others - number)
    return (rows * pull_bytes + sums * push_bytes) // others


def _returned(plan, product, itemsize, *, training):
    """Return the bytes that rows which attention keeps for its gradients are moved, (2, P).

    Rows of other ranks and their scores stay from the forward product to the backward one.
    Packed gradients of own rows stay until those of other ranks arrive.
    """
    pulled = plan.traffic.right
    if isinstance(pulled, ExchangeSizes):
        sizes = pulled.received[:, None] if plan.traffic.one_block else sum(pulled.tables)
    else:
        sizes = np.diff(plan.layout_in.offsets) * ~np.eye(plan.num_ranks, dtype=bool)
    kept = sum(_large(sizes * columns * itemsize).sum(1)
               for columns in (product.width, product.heads)) * training
    if not product.backward:
        return np.array([0 * kept, kept])
    rows = np.diff(plan.layout_in.offsets)
    packed = _large(rows * (product.width + product.heads) * itemsize)
    packed = packed * (not plan.traffic.joined)  # sums came with rows
    return np.array([kept + packed, packed])


def small_bytes(operand, itemsize):
    """Return the bytes of a matrix that are in memory, (P,): arrays too small for files."""
    arrays = ((operand.pointers, POINTER), (operand.entries, INDEX),
              (operand.entries, sum_bytes(itemsize)))
    return sum(np.where(count * size < touches.LEAST, count * size, 0) for count, size in arrays)


def small_arrays(footprint):
    """Return the bytes of small arrays of each rank, (P,), in matrices and parameters.

    Row numbers of an Operand are in INDEX_ARRAYS arrays.
    """
    parameters = footprint.parts["parameters"]
    small = np.where(parameters < touches.LEAST * COPIES, parameters, 0)
    for operand in footprint.operands:
        numbers = operand.index_entries * POINTER
        small = small + (small_bytes(operand, footprint.spec.row_itemsize)
                         + np.where(numbers < touches.LEAST * INDEX_ARRAYS, numbers, 0))
    return small

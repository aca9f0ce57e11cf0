"""Count the bytes that ranks of one process read from and write to a disk.

They are those of an epoch. Arrays of the ranks are files, and each turn of a rank moves
the arrays that it touches (hpgcn.runtime.disk.residency). A turn begins when a rank has
received rows in a product with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.parallel.sizes import ExchangeSizes
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.footprint import COPIES
from hpgcn.strategies.plan import INDEX, POINTER, sum_bytes

INDEX_ARRAYS = 3  # arrays of row numbers: to send, to receive, and touched by a block
ARRAYS, MATRIX, MESSAGES = PURPOSES = "arrays of the model", "matrix", "messages"


@dataclass(frozen=True, eq=False)
class DiskTraffic:
    """Bytes by rank, (P,) int64, of a training step or of an evaluation."""

    moved: dict  # bytes read and written for each of PURPOSES, (2, P)
    turn: np.ndarray  # the most that a turn touches, without messages in a Spool
    largest: int  # bytes of the largest message in a Spool, 0 without one

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


def disk_traffic(footprint, strategy, near=None):
    """Return the DiskTraffic of a step and of an evaluation.

    `footprint` is a RankFootprint, `strategy` a subclass of
    hpgcn.strategies.strategy.Strategy. `near` are two numbers of next ranks: messages to
    them are not read, or not written. By default they are those of files.
    """
    itemsize = footprint.spec.row_itemsize
    found = []
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        # arrays of the model: segments of a rank between its products
        turns = [step.turns(frees_rows=strategy.frees_rows)[number]
                 for step in footprint.rank_steps]
        segments = np.array([each.nbytes for each in turns])
        touched, *moved = np.moveaxis(segments, -1, 0).copy()  # (P, segments)
        moved = {name: np.zeros((2, len(touched)), np.int64) for name in PURPOSES} | {
            ARRAYS: np.array([each.sum(1) for each in moved])}
        largest = 0

        # the matrix, the messages and the sums of each product, before and after its wait
        for place, product in enumerate(turns[0].products):
            plan = plans[product.layer]
            operand = plan.operands[product.backward]
            matrix = operand.nbytes(itemsize) - small_bytes(operand, itemsize)
            sent = plan.traffic.counts(product, itemsize)[0] // plan.traffic.period
            moved[MATRIX][0] += matrix + _read_numbers(plan, product, operand) * POINTER
            spooled = 0 if near else _largest(plan, product, itemsize, strategy)
            moved[MESSAGES] += _messages(plan, product, sent, itemsize, strategy,
                                         near or ((1, 1) if spooled else (2, 2)))
            moved[ARRAYS] += operand.results * product.width * (sum_bytes(itemsize) - itemsize)
            if product.heads and plan.returns:
                moved[ARRAYS] += _returned(plan, product, itemsize, training=number == 0)
            if strategy.waits > 1:
                # rows that are multiplied before the wait and after it, unless a rank need not wait
                rows = (plan.layout if product.backward else plan.layout_in).offsets
                waiting = np.arange(sent.size) != sent.size - 2
                moved[ARRAYS] += np.diff(rows) * waiting * product.width * itemsize
            largest = max(largest, spooled)
            for segment in (place, place + 1):
                touched[:, segment] += matrix // 2 + (0 if spooled else sent)
        found.append(DiskTraffic(moved, touched.max(1), largest))
    return found


def _read_numbers(plan, product, operand):
    """Return how many numbers of rows each rank reads in a product, (P,).

    They are those of rows to send, and of rows that blocks touch.
    """
    pulled = plan.traffic.transfers(product)[0]
    if not isinstance(pulled, ExchangeSizes):
        return np.zeros(plan.num_ranks, np.int64)
    touched = (operand.index_entries - pulled.sent - pulled.received).clip(min=0)
    return pulled.sent + touched


def _largest(plan, product, itemsize, strategy):
    """Return the bytes of the largest message of a product in a Spool; 0 if it has none there."""
    if not strategy.spools or product.heads or plan.rank_grid.nodes.aware:
        return 0
    pulled, pushed = plan.traffic.transfers(product)
    return product.width * max(pulled.largest * itemsize, pushed.largest * sum_bytes(itemsize))


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
        turns = footprint.rank_steps[0].turns(frees_rows=strategy.frees_rows)[number]
        for product in turns.products if ranks > 1 else ():
            plan = plans[product.layer]
            sent = plan.traffic.counts(product, footprint.spec.row_itemsize)[0]
            sent = sent // plan.traffic.period
            if not strategy.frees_rows:  # the last rank copies for all, from homes but its own
                each.moved[MESSAGES][1] -= (sent - sent // ranks) * (np.arange(ranks) < ranks - 1)
            elif strategy.waits > 1:  # `near` does not count there
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
    if strategy.waits > 1:
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

    Rows of other ranks stay from the forward product to the backward one. Packed gradients
    of own rows stay until those of other ranks arrive.
    """
    ghosts = np.broadcast_to(np.ravel(plan.traffic.right.ghost_rows), (plan.num_ranks,))
    kept = ghosts * product.width * itemsize * training
    if not product.backward:
        return np.array([0 * kept, kept])
    packed = np.diff(plan.layout_in.offsets) * (product.width + product.heads) * itemsize
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

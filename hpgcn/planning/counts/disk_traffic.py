"""Count the bytes that ranks of one process read from a disk and write to it in an epoch.

Their arrays are files, and each turn of a rank moves the arrays that it touches
(hpgcn.runtime.disk.residency). A turn begins when a rank has received rows in a product
with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.parallel.merged_exchange import MergedSizes
from hpgcn.planning.counts import touches
from hpgcn.strategies.plan import INDEX, POINTER, sum_bytes

ARRAYS, MATRIX, MESSAGES = PURPOSES = "arrays of the model", "matrix", "messages"


@dataclass(frozen=True, eq=False)
class DiskTraffic:
    """Bytes by rank, (P,) int64, of a training step or of an evaluation."""

    moved: dict  # bytes read and written for each of PURPOSES, (2, P)
    turn: np.ndarray  # the most that a turn touches

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


def disk_traffic(footprint, strategy):
    """Return the DiskTraffic of a training step and of an evaluation of a RankFootprint,
    of a subclass of hpgcn.strategies.strategy.Strategy.
    """
    itemsize = footprint.spec.row_itemsize
    found = []
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        # arrays of the model: segments of a rank between its products
        segments = np.array([step.turns[number].segments for step in footprint.rank_steps])
        touched, *moved = np.moveaxis(segments, -1, 0).copy()  # (P, segments)
        moved = {name: np.zeros((2, len(touched)), np.int64) for name in PURPOSES} | {
            ARRAYS: np.array([each.sum(1) for each in moved])}
        if not strategy.frees_rows:
            moved[ARRAYS] += [sum(step.turns[number].freed) for step in footprint.rank_steps]

        # the matrix, the messages and the sums of each product, before and after its wait
        for place, product in enumerate(footprint.rank_steps[0].turns[number].products):
            plan = plans[product.layer]
            operand = plan.operands[product.backward]
            matrix = operand.nbytes(itemsize) - small_bytes(operand, itemsize)
            sent = plan.traffic.counts(product, itemsize)[0] // plan.traffic.period
            moved[MATRIX][0] += matrix
            moved[MESSAGES] += _messages(plan, product, sent, itemsize, strategy)
            moved[ARRAYS] += operand.results * product.width * (sum_bytes(itemsize) - itemsize)
            if strategy.waits > 1:
                moved[MESSAGES] += _between_waits(plan, product, operand) * (
                    product.width * itemsize)
            touched[:, place] += sent + matrix // 2
            touched[:, place + 1] += sent + matrix // 2
        found.append(DiskTraffic(moved, touched.max(1)))
    return found


def _messages(plan, product, sent, itemsize, strategy):
    """Return the bytes that messages of a product are read and written, (2, P); `sent`: (P,)
    bytes that ranks send.

    The later of two ranks copies a message: it has just filled the one buffer, or empties
    the other at once. So only one of them is written and read.
    """
    ranks = sent.size
    _, wrote = moved = np.array([sent, sent])
    if not strategy.frees_rows:
        wrote -= sent // ranks
    elif ranks > 1:
        # Messages to the next rank are copied before they would be written. The first one is
        # the next of the last.
        moved -= sent // (ranks - 1)

        # sums of the ranks before came at once, but stay until all rows have arrived
        _, pushed = plan.traffic.transfers(product)
        if isinstance(pushed, MergedSizes):
            before = np.append(np.arange(ranks - 1), 0)
            moved += pushed.own.sent * before // (ranks - 1) * (
                product.width * sum_bytes(itemsize))
    return moved


def small_bytes(operand, itemsize):
    """Return the bytes of a matrix that are in memory, (P,): arrays too small for files.

    A matrix of many blocks has many such arrays. Blocks of a rank are taken to have
    equally many entries.
    """
    arrays = ((operand.pointers, POINTER), (operand.entries, INDEX),
              (operand.entries, sum_bytes(itemsize)))
    return sum(np.where(count * size < touches.LEAST * operand.blocks, count * size, 0)
               for count, size in arrays)


def _between_waits(plan, product, operand):
    """Return the rows of each rank that stay from the wait for rows to that for sums, (P,).

    These are own rows, sums for other ranks, and rows of the ranks before it, which came
    at once.
    """
    pulled, pushed = plan.traffic.transfers(product)
    own = operand.results - pushed.received
    return own + pushed.sent + np.triu(pulled.received_parts, 1).sum(0)

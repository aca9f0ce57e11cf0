"""Count the bytes that ranks of one process read from a disk and write to it in an epoch.

Their arrays are files, and each turn of a rank moves the arrays that it touches
(hpgcn.runtime.disk.residency). A turn begins when a rank has received rows in a product
with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.planning.counts import touches
from hpgcn.strategies.plan import INDEX, POINTER, sum_bytes


@dataclass(frozen=True, eq=False)
class DiskTraffic:
    """Bytes by rank, (P,) int64, of a training step or of an evaluation."""

    read: np.ndarray
    written: np.ndarray
    turn: np.ndarray  # the most that a turn touches

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
        read, wrote = (each.sum(1) for each in moved)
        if not strategy.frees_rows:
            freed = np.array([sum(step.turns[number].freed) for step in footprint.rank_steps])
            read += freed
            wrote += freed

        # The matrix and the messages of each product, before and after its wait. The later of two
        # ranks copies a message: it has just filled the one buffer, or empties the other at once.
        # So only one of them is written and read. Sums of rows of 16 bits are longer than these.
        for place, product in enumerate(footprint.rank_steps[0].turns[number].products):
            plan = plans[product.layer]
            operand = plan.operands[product.backward]
            matrix = operand.nbytes(itemsize) - small_bytes(operand, itemsize)
            sent = plan.traffic.counts(product, itemsize)[0] // plan.traffic.period
            longer = operand.results * product.width * (sum_bytes(itemsize) - itemsize)
            read += matrix + sent + longer
            wrote += longer + sent
            if strategy.frees_rows:
                # The next rank finds its messages in memory. The last rank waits once more:
                # LocalComm.end_product.
                if sent.size > 1:
                    read -= sent // (sent.size - 1)
                result = operand.results[-1] * product.width * itemsize
                read[-1] += result
                wrote[-1] += result
            else:
                wrote -= sent // sent.size
            if strategy.waits > 1:
                between = _between_waits(plan, product, operand) * product.width * itemsize
                read += between
                wrote += between
            touched[:, place] += sent + matrix // 2
            touched[:, place + 1] += sent + matrix // 2
        found.append(DiskTraffic(read, wrote, touched.max(1)))
    return found


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
    ends = plan.traffic.right, plan.traffic.left
    pulled, pushed = reversed(ends) if product.backward else ends
    own = operand.results - pushed.received
    return own + pushed.sent + np.triu(pulled.received_parts, 1).sum(0)

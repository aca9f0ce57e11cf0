"""Count the bytes that ranks of one process read from a disk and write to it in an epoch.

Their arrays are files, and each turn of a rank moves the arrays that it touches
(hpgcn.runtime.disk.residency). A turn begins when a rank has received rows in a product
with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

# A rank reads its two message buffers in its turn, and later ranks copy half of them again
MESSAGE_READS, MESSAGE_WRITES = 3, 2  # times the bytes that it sends


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


def disk_traffic(footprint):
    """Return the DiskTraffic of a training step and of an evaluation of a RankFootprint."""
    itemsize = footprint.spec.row_itemsize
    found = []
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        # arrays of the model: segments of a rank between its products
        segments = np.array([step.turns[number].segments for step in footprint.rank_steps])
        touched, written = np.moveaxis(segments, -1, 0).copy()  # (P, segments)

        # the matrix and the messages of each product, before and after its wait
        read = touched.sum(1)
        wrote = written.sum(1)
        for place, product in enumerate(footprint.rank_steps[0].turns[number].products):
            plan = plans[product.layer]
            matrix = plan.operands[product.backward].nbytes(itemsize)
            sent = plan.traffic.counts(product, itemsize)[0] // plan.traffic.period
            read += matrix + MESSAGE_READS * sent
            wrote += MESSAGE_WRITES * sent
            touched[:, place] += sent + matrix // 2
            touched[:, place + 1] += sent + matrix // 2
        found.append(DiskTraffic(read, wrote, touched.max(1)))
    return found

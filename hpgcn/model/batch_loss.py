"""The rows that count in a loss, and its restriction to mini-batches."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from hpgcn.graphs.validation import SPLIT

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.parallel.shared_rows import SharedRows


class MaskedRows(NamedTuple):
    """Rows of this rank in each mask, and their number over all ranks.

    The rows lie on the rank's device.
    """

    rows: dict  # by mask
    count: dict

    @staticmethod
    def of(masks: dict[str, np.ndarray], columns: SharedRows) -> MaskedRows:
        """Find the rows of each mask, dict of (m,) bool.

        A row that several ranks share counts once.
        """
        rows = {key: columns.device.put(np.flatnonzero(masks[key])) for key in SPLIT}
        own = columns.row.rank == 0  # one of the ranks that share a row counts it
        totals = columns.comm.sum([own * rows[key].size for key in SPLIT])
        return MaskedRows(rows, {key: int(total) for key, total in zip(SPLIT, totals)})


class BatchLoss:
    """Base class of all losses: their rows, and their restriction to mini-batches."""

    def __init__(self, labels: Array, masked: MaskedRows, columns: SharedRows,
                 num_classes: int) -> None:
        self.num_classes = num_classes
        self.labels = columns.device.put(labels)
        self.columns = columns
        self.comm = columns.comm
        self.rows, self.count = masked
        self.norm = self.count["train"]

    def add_parameters(self, gradient: Parameters) -> None:
        """Write the gradients of the loss's own parameters; by default it has none."""

    def part(self, labels: np.ndarray, train: np.ndarray, share: float) -> Self:
        """Return the training loss restricted to some rows.

        `labels` are those of the rows, (m',) or (m', t); `train`, (k,), the positions
        that count. `share` is the probability, over all ranks, that a training vertex
        is in the batch. Because `norm` is multiplied by it, the gradient of a batch
        estimates the full gradient.
        """
        part = copy.copy(self)
        put = self.columns.device.put
        part.labels = put(labels)
        part.rows = {"train": put(train)}
        part.norm = self.norm * share
        return part

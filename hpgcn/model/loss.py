"""Loss and metrics over all ranks: nothing communicates but sums over the columns of a row, and scalars."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpgcn import kernels
from hpgcn.graphs.validation import SPLIT


class MaskedRows(NamedTuple):
    """Rows of this rank in each mask, on its device, and how many there are over all ranks; dicts by mask."""

    rows: dict
    count: dict

    @staticmethod
    def of(masks, columns):
        """Find the rows of masks, dict of (m,) bool; every row has one owner a column, so none counts twice."""
        rows = {key: columns.device.put(np.flatnonzero(masks[key])) for key in SPLIT}
        own = columns.row.rank == 0  # one of the ranks that share a row counts it
        totals = columns.comm.sum([own * rows[key].size for key in SPLIT])
        return MaskedRows(rows, {key: int(total) for key, total in zip(SPLIT, totals)})


class Loss:
    """Softmax cross-entropy, its mean taken over the GLOBAL number of masked vertices.

    Parameters
    ----------
    labels : (m,) int64
    masked : MaskedRows
    columns : Columns
    num_classes : int
        Width of the logits over all ranks.
    """

    def __init__(self, labels, masked, columns, num_classes):
        self.labels = columns.device.put(labels)
        self.columns = columns
        self.comm = columns.comm
        self.first = columns.of(num_classes).start
        self.rows, self.count = masked

    def gradient(self, logits, out=None):
        """Return this rank's share of the SUM of training losses, and the gradient of their global mean (m, c_j)."""
        grad = np.empty_like(logits) if out is None else out
        scale = 1 / self.count["train"]
        if self.columns.row.size == 1:
            total, _ = kernels.backend(logits).softmax_cross_entropy(logits, self.labels, self.rows["train"],
                                                                     scale=scale, grad=grad)
            return total, grad
        return self._spread(logits, self._moments(logits), "train", scale, grad), grad

    def evaluate(self, logits):
        """Return train_acc, val_acc, test_acc and val_loss over all ranks; None where a mask is empty."""
        if self.columns.row.size == 1:
            ops = kernels.backend(logits)
            found = [ops.softmax_cross_entropy(logits, self.labels, self.rows[key]) for key in SPLIT]
        else:
            moments = self._moments(logits)
            right = self._right(logits, moments[0])
            found = [(self._spread(logits, moments, key, 1.0, None), right[self.rows[key]].sum()) for key in SPLIT]
        sums = self.comm.sum(self.columns.device.numbers([number for pair in found for number in pair]))
        result = {f"{key}_acc": float(sums[2 * i + 1] / self.count[key]) if self.count[key] else None
                  for i, key in enumerate(SPLIT)}
        result["val_loss"] = float(sums[2] / self.count["val"]) if self.count["val"] else None
        return result

    def _moments(self, logits):
        """Maximum, and sum of exp(z - maximum), of each row over the ranks that share it."""
        ops = kernels.backend(logits)
        row = self.columns.row
        largest = ops.spread_max(logits)
        row.allreduce(largest, "dense", op="max")
        total = ops.spread_sum(logits, largest)
        row.allreduce(total, "dense")
        return largest, total

    def _spread(self, logits, moments, key, scale, grad):
        """Return what this block adds to the losses of a mask, and to their gradient."""
        return kernels.backend(logits).spread_gradient(logits, self.labels, self.first, self.rows[key], *moments,
                                                       scale=scale, grad=grad)

    def _right(self, logits, largest):
        """Which rows are classified rightly, counted by the first of the ranks that share them."""
        row = self.columns.row
        where = -kernels.backend(logits).spread_argmax(logits, self.first, largest)
        row.allreduce(where, "dense", op="max")
        return (-where == self.labels) & (row.rank == 0)


class MultiLabelLoss:
    """Sigmoid cross-entropy, its mean taken over the GLOBAL number of masked vertices and over all t labels.

    `gradient` and `evaluate` as of Loss; in place of accuracies they give micro-averaged F1, under the same names:
    2 TP / (2 TP + FP + FN) over all vertices and labels of a mask, a label being predicted where its logit is positive,
    and 0 where nothing is predicted nor true.

    Parameters
    ----------
    labels : (m, t) of 0 and 1
    masked : MaskedRows
    columns : Columns
    num_labels : int
        t.
    """

    def __init__(self, labels, masked, columns, num_labels):
        self.labels = columns.device.put(np.ascontiguousarray(labels[:, columns.of(num_labels)]))
        self.comm = columns.comm
        self.num_labels = num_labels
        self.rows, self.count = masked

    def gradient(self, logits, out=None):
        """Return this rank's share of the SUM over vertices of their mean losses, and the gradient (m, t_j)."""
        grad = np.empty_like(logits) if out is None else out
        total, *_ = kernels.backend(logits).sigmoid_cross_entropy(
            logits, self.labels, self.rows["train"], scale=1 / (self.count["train"] * self.num_labels), grad=grad)
        return total / self.num_labels, grad

    def evaluate(self, logits):
        """Return train_acc, val_acc, test_acc (micro-F1) and val_loss over all ranks; None where a mask is empty."""
        kernel = kernels.backend(logits).sigmoid_cross_entropy
        found = [number for key in SPLIT for number in kernel(logits, self.labels, self.rows[key])]
        found = self.comm.sum(self.comm.device.numbers(found))
        result = {}
        for key, (_, true, false, missed) in zip(SPLIT, found.reshape(-1, 4).tolist()):
            result[f"{key}_acc"] = 2 * true / max(2 * true + false + missed, 1) if self.count[key] else None
        count = self.count["val"] * self.num_labels
        result["val_loss"] = float(found[4] / count) if count else None
        return result


def make_loss(spec, labels, masked, columns):
    """The loss of a model: on labels (m,), or (m, t) where spec.multilabel."""
    kind = MultiLabelLoss if spec.multilabel else Loss
    return kind(labels, masked, columns, spec.widths[-1])

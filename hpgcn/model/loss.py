"""Loss and accuracies over all ranks.

Ranks that share a row exchange sums over its columns.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.graphs.validation import SPLIT
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import derived
from hpgcn.model.batch_loss import BatchLoss
from hpgcn.model.target_loss import TargetLoss
from hpgcn.model.target_scale import TargetScale
from hpgcn.model.targets import PLAIN

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.batch_loss import MaskedRows
    from hpgcn.model.spec import ModelSpec
    from hpgcn.model.targets import Targets
    from hpgcn.parallel.shared_rows import SharedRows


class LabelLoss(BatchLoss):
    """Base class of the losses of labels, which are right or wrong."""

    def tally(self, logits: Array) -> np.ndarray:
        """Count correct, predicted and true vertices over all ranks.

        Return (masks, 3, c), by mask and class (or label).
        """
        predicted, true = self.predictions(logits)
        counts = np.array([self.count_rows(predicted[rows], true[rows]) for rows in
                           (self.columns.device.get(self.rows[key]) for key in SPLIT)], np.float64)
        return self.comm.sum(counts.ravel()).reshape(counts.shape)


class Loss(LabelLoss):
    """The softmax cross-entropy loss for labels (m,) int64.

    The mean is over the GLOBAL number of masked vertices; `num_classes` is the width of
    the logits over all ranks. Only the training loss uses `targets`; its mean is then
    the sum over all ranks divided by `norm`.
    """

    several = False

    def __init__(self, labels: Array, masked: MaskedRows, columns: SharedRows, num_classes: int,
                 targets: Targets) -> None:
        super().__init__(labels, masked, columns, num_classes)
        self.first = columns.of(num_classes).start
        self.target = None
        if targets.class_weight is not None:
            weights, self.norm = self._weigh(labels, num_classes, targets)
            self.target = columns.device.put(targets.table(weights))
        elif targets.smoothing:
            self.target = columns.device.put(targets.table(np.ones(num_classes)))

    def _weigh(self, labels: np.ndarray, num_classes: int,
               targets: Targets) -> tuple[np.ndarray, float]:
        """Return the weight of each class, and the total weight.

        The total is over the training vertices of all ranks.
        """
        train_labels = labels[self.columns.device.get(self.rows["train"])]
        own = self.columns.row.rank == 0  # one of the ranks that share a row counts it
        counts = self.comm.sum(own * np.bincount(train_labels, minlength=num_classes))
        weights = targets.weights(counts)
        return weights, float(counts @ weights)

    def gradient(self, logits: Array, out: Array | None = None) -> tuple:
        """Return this rank's term of the SUM of losses, and a gradient.

        The gradient, (m, c_j), is that of the mean of losses.
        """
        grad = np.empty_like(logits) if out is None else out
        options = {"scale": 1 / self.norm, "grad": grad, "target": self.target}
        if self.columns.row.size == 1:
            kernel = kernels.backend(logits).softmax_cross_entropy
            total, _ = kernel(logits, self.labels, self.rows["train"], **options)
            return total, grad
        return self._spread(logits, self._moments(logits), "train", **options), grad

    def evaluate(self, logits: Array) -> dict[str, Any]:
        """Return a dict of train_acc, val_acc, test_acc and val_loss; None if a mask is empty."""
        if self.columns.row.size == 1:
            ops = kernels.backend(logits)
            found = [ops.softmax_cross_entropy(logits, self.labels, self.rows[key])
                     for key in SPLIT]
        else:
            moments = self._moments(logits)
            right = self._right(logits, moments[0])
            accessed((right, *self.rows.values()))
            found = [(self._spread(logits, moments, key), right[self.rows[key]].sum())
                     for key in SPLIT]

        numbers = self.columns.device.numbers([number for pair in found for number in pair])
        sums = self.comm.sum(numbers)

        count = self.count
        result = {f"{key}_acc": float(sums[2 * i + 1] / count[key]) if count[key] else None
                  for i, key in enumerate(SPLIT)}
        result["val_loss"] = float(sums[2] / count["val"]) if count["val"] else None
        return result

    def _moments(self, logits: Array) -> tuple:
        """Return z_max and the sum of exp(z - z_max) of each row.

        Maximum and sum are over the ranks that share the row.
        """
        largest = self._largest(logits)
        total = kernels.backend(logits).spread_sum(logits, largest)
        self.columns.row.allreduce(total, "dense")
        return largest, total

    def _largest(self, logits: Array) -> Array:
        """Return the maximum logit of each row, over all ranks that share the row."""
        largest = kernels.backend(logits).spread_max(logits)
        self.columns.row.allreduce(largest, "dense", op="max")
        return largest

    def _spread(self, logits: Array, moments: tuple, key: str, **options: Any) -> float:
        """Return the loss terms of this rank's columns over the rows of a mask."""
        return kernels.backend(logits).spread_gradient(
            logits, self.labels, self.first, self.rows[key], *moments, **options)

    def _right(self, logits: Array, largest: Array) -> np.ndarray:
        """Return which rows are classified correctly, (m,) bool.

        Among the ranks that share a row only the first counts it.
        """
        predicted = self._predicted(logits, largest)
        accessed((self.labels,))
        return (predicted == self.labels) & (self.columns.row.rank == 0)

    def _predicted(self, logits: Array, largest: Array) -> np.ndarray:
        """Return the predicted class of each row, (m,) int64."""
        where = -kernels.backend(logits).spread_argmax(logits, self.first, largest)
        self.columns.row.allreduce(where, "dense", op="max")
        accessed((where,))
        return -where

    def predictions(self, logits: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the predicted classes (m,) and the labels, on the host.

        The first class with the largest logit is predicted.
        """
        get = self.columns.device.get
        return get(self._predicted(logits, self._largest(logits))), get(self.labels)

    def count_rows(self, predicted: np.ndarray, true: np.ndarray) -> Any:
        """Count correct, predicted and true vertices by class, (3, c).

        Among the ranks that share rows only the first counts them.
        """
        own = self.columns.row.rank == 0
        return [own * np.bincount(classes, minlength=self.num_classes)
                for classes in (true[predicted == true], predicted, true)]

    def ranking(self, logits: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and labels for ROC-AUC with two classes, on the host.

        Scores are z[:, 1] - z[:, 0], (m, 1), labels y == 1.
        """
        lead = self.columns.device.xp.zeros(logits.shape[0], logits.dtype)
        accessed((logits,))
        for column in range(logits.shape[1]):
            lead += logits[:, column] if self.first + column else -logits[:, column]
        self.columns.row.allreduce(lead, "dense")
        get = self.columns.device.get
        return get(lead)[:, None], get(self.labels)[:, None] == 1


class MultiLabelLoss(LabelLoss):
    """The sigmoid cross-entropy loss for labels (m, t) of 0 and 1.

    Its mean is over the GLOBAL number of masked vertices and over all t labels. Instead
    of accuracies it gives micro-averaged F1, under the same names: 2 TP / (2 TP + FP +
    FN) over all vertices and labels of a mask. A label is predicted if its logit is
    positive. F1 is 0 if no label is predicted or true. Only the smoothing of `targets`
    counts: labels y are (1 - smoothing) y + smoothing / 2.
    """

    several = True

    def __init__(self, labels: Array, masked: MaskedRows, columns: SharedRows, num_labels: int,
                 targets: Targets) -> None:
        labels = np.ascontiguousarray(labels[:, columns.of(num_labels)])
        super().__init__(labels, masked, columns, num_labels)
        self.smoothing = targets.smoothing

    def gradient(self, logits: Array, out: Array | None = None) -> tuple:
        """Return this rank's term of the SUM of mean losses, and a gradient.

        Means are over the labels of a vertex. The gradient, (m, t_j), is that of the
        mean over vertices.
        """
        grad = np.empty_like(logits) if out is None else out
        scale = 1 / (self.norm * self.num_classes)
        kernel = kernels.backend(logits).sigmoid_cross_entropy
        total, *_ = kernel(logits, self.labels, self.rows["train"], scale=scale, grad=grad,
                           smoothing=self.smoothing)
        return derived(operator.truediv, total, self.num_classes), grad

    def evaluate(self, logits: Array) -> dict[str, Any]:
        """Return the same dict as `Loss.evaluate`, with micro-F1 in place of accuracy."""
        kernel = kernels.backend(logits).sigmoid_cross_entropy
        found = [number for key in SPLIT for number in kernel(logits, self.labels, self.rows[key])]
        found = self.comm.sum(self.comm.device.numbers(found))
        result = {}
        for key, (_, true, false, missed) in zip(SPLIT, found.reshape(-1, 4).tolist()):
            score = 2 * true / max(2 * true + false + missed, 1)
            result[f"{key}_acc"] = score if self.count[key] else None
        count = self.count["val"] * self.num_classes
        result["val_loss"] = float(found[4] / count) if count else None
        return result

    def predictions(self, logits: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return which labels are predicted, and which are true, (m, t_j) bool on the host."""
        numbers, true = self.ranking(logits)
        return numbers > 0, true

    def count_rows(self, predicted: np.ndarray, true: np.ndarray) -> Any:
        """Count like `Loss.count_rows`, but by label: (3, t)."""
        counts = np.zeros((3, self.num_classes))
        counts[:, self.columns.of(self.num_classes)] = [
            which.sum(0) for which in (predicted & true, predicted, true)]
        return counts

    def ranking(self, logits: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits (m, t_j) and a bool array of the true labels, on the host."""
        get = self.columns.device.get
        return get(logits), get(self.labels) > 0


def make_loss(spec: ModelSpec, labels: Array, masked: MaskedRows, columns: SharedRows,
              targets: Targets | TargetScale = PLAIN) -> Loss | MultiLabelLoss | TargetLoss:
    """Return the loss of a model.

    It is for labels (m,), or labels (m, t) if spec.multilabel. With a TargetScale it is
    for standardized targets (m, t), and spec.target_loss names it.
    """
    if isinstance(targets, TargetScale):
        return TargetLoss(labels, masked, columns, spec.target_loss, targets)
    kind = MultiLabelLoss if spec.multilabel else Loss
    return kind(labels, masked, columns, spec.widths[-1], targets)

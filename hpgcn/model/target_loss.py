"""Losses of targets, which are numbers to predict, and their metrics."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.graphs.validation import SPLIT
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import repeat
from hpgcn.model.batch_loss import BatchLoss

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.batch_loss import MaskedRows
    from hpgcn.model.target_scale import TargetScale
    from hpgcn.parallel.shared_rows import SharedRows


def mse(error: Array) -> tuple[Array, Array]:
    """Return the squares of errors, and the derivatives."""
    return error * error, 2 * error


def mae(error: Array) -> tuple[Array, Array]:
    """Return the sizes of errors, and the derivatives."""
    return np.abs(error), np.sign(error)


def huber(error: Array) -> tuple[Array, Array]:
    """Return Huber's loss of errors, and the derivatives.

    It is error**2 / 2 up to 1 deviation, and abs(error) - 1/2 beyond (Huber 1964).
    """
    near = np.minimum(np.maximum(error, -1), 1)
    return near * (error - near / 2), near


LOSSES = {"mse": mse, "mae": mae, "huber": huber}


class TargetLoss(BatchLoss):
    """A loss of standardized targets (m, t), NaN for unknown.

    It is the mean over the GLOBAL number of known targets of training vertices, as
    torch.nn.functional has it for these. A rank that shares rows has the errors of its
    columns. Metrics are means over targets, in the user's units, as in scikit-learn: the
    root of the mean square (rmse), the mean size (mae), and R^2.
    """

    def __init__(self, targets: Array, masked: MaskedRows, columns: SharedRows, kind: str,
                 scale: TargetScale) -> None:
        num_targets = targets.shape[1]
        self.own = columns.of(num_targets)
        super().__init__(targets[:, self.own], masked, columns, num_targets)
        self.kind = LOSSES[kind]
        self.scale = scale
        self.norm = float(scale.counts[0].sum())

    def part(self, labels: np.ndarray, train: np.ndarray, share: float) -> TargetLoss:
        return super().part(labels[:, self.own], train, share)

    def gradient(self, logits: Array, out: Array | None = None) -> tuple:
        """Return this rank's term of the SUM of losses, and a gradient.

        The gradient, (m, t_j), is that of the mean over known targets.
        """
        grad = np.empty_like(logits) if out is None else out
        total = self.columns.device.xp.zeros((), np.float64)
        if grad.dtype != BF16:
            repeat(self._differentiate, logits, grad, total)
            return total, grad
        wide = self.columns.device.empty(grad.shape, np.float32)
        repeat(self._differentiate, logits, wide, total)
        return total, kernels.backend(grad).convert(wide, grad)

    def _differentiate(self, logits: Array, grad: Array, total: Array) -> None:
        terms, slopes = self.kind(self._errors(logits, "train"))
        total[...] = terms.sum()
        grad[...] = 0
        grad[self.rows["train"]] = slopes * (1 / self.norm)

    def _errors(self, logits: Array, key: str) -> Array:
        """Return predictions minus targets in a mask, float64; 0 where unknown."""
        accessed((logits, self.labels, self.rows[key]))
        targets = self.labels[self.rows[key]]
        error = logits[self.rows[key]] - targets
        error[np.isnan(targets)] = 0
        return error

    def evaluate(self, logits: Array) -> dict[str, Any]:
        """Return val_loss, and each metric of each mask, a dict.

        Names are train_rmse, train_mae, train_r2, val_rmse and so on. A value is None
        if no target of the mask has the values that it needs.
        """
        # sums of squares, of sizes and of losses, by mask and target
        device = self.columns.device
        own = device.xp.zeros((3, len(SPLIT), logits.shape[1]))
        for k, key in enumerate(SPLIT):
            error = self._errors(logits, key)
            for place, kind in enumerate((mse, mae, self.kind)):
                own[place, k] = kind(error)[0].sum(0)
        sums = np.zeros((3, len(SPLIT), self.num_classes))
        sums[:, :, self.own] = device.get(own)
        squares, sizes, losses = self.comm.sum(sums.ravel()).reshape(sums.shape)

        # metrics of each target
        scale = self.scale
        known = scale.counts > 0
        counts = np.maximum(scale.counts, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1 - squares / scale.squares
        r2 = np.where(scale.squares > 0, r2, squares == 0)  # constant ones as in scikit-learn
        found = {"rmse": (scale.deviation * np.sqrt(squares / counts), known),
                 "mae": (scale.deviation * sizes / counts, known),
                 "r2": (r2, scale.counts > 1)}

        # their means over targets
        result = {f"{key}_{name}": float(values[k][there[k]].mean()) if there[k].any() else None
                  for name, (values, there) in found.items() for k, key in enumerate(SPLIT)}
        count = scale.counts[SPLIT.index("val")].sum()
        result["val_loss"] = float(losses[SPLIT.index("val")].sum() / count) if count else None
        return result

"""Metrics of an evaluation that the loss does not compute itself: macro-F1 and ROC-AUC.

They are exact over all ranks. Ranks add whole numbers, or one rank collects all scores.
Therefore the partition does not influence metrics, except through rounding of the
logits.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import UsageError, assigned, setting
from hpgcn.graphs.validation import SPLIT
from hpgcn.setting_words import ERRORS, LABEL_METRICS, LINK_METRIC, TARGET_METRICS

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.loss import LabelLoss
    from hpgcn.model.spec import ModelSpec


def macro_f1(loss: LabelLoss, logits: Array) -> dict:
    """Return macro-F1 by mask.

    The mean of 2 TP / (2 TP + FP + FN) over classes, or labels; a dict.

    As in scikit-learn, classes that are neither true nor predicted in a mask are left
    out; such labels count as 0. None for an empty mask.
    """
    right, given, true = np.moveaxis(loss.tally(logits), 1, 0)  # (masks, classes) each
    scores = 2 * right / np.maximum(given + true, 1)
    found = {}
    for key, score, seen in zip(SPLIT, scores, given + true > 0):
        if not loss.several:
            score = score[seen]
        found[key] = float(score.mean()) if loss.count[key] else None
    return found


def roc_auc(loss: LabelLoss, logits: Array) -> dict:
    """Return the area under the ROC curve by mask, a dict.

    The area is the share of pairs of a true and a false vertex whose scores are in
    order; ties count half (Hanley and McNeil 1982). For several labels it is the mean
    of their areas. Labels that are all true or all false in a mask are left out. The
    value is None if no label remains.
    """
    columns = loss.columns
    width = loss.num_classes if loss.several else 1
    areas = np.zeros((2, len(SPLIT), width))  # areas, and flags that they exist
    scores, truth = loss.ranking(logits)

    own_labels = columns.of(width) if loss.several else slice(0, 1)

    # rank 0 of each column gathers all rows
    for number, key in enumerate(SPLIT):
        rows = columns.device.get(loss.rows[key])
        score, true = (columns.column.gather_rows(each[rows]) for each in (scores, truth))
        if columns.column.rank or not (loss.several or columns.row.rank == 0):
            continue
        for i, label in enumerate(range(own_labels.start, own_labels.stop)):
            area = _area(score[:, i], true[:, i])
            if area is not None:
                areas[:, number, label] = area, 1

    areas, there = loss.comm.sum(areas.ravel()).reshape(areas.shape)
    return {key: float(area.sum() / known.sum()) if known.any() else None
            for key, area, known in zip(SPLIT, areas, there)}


def _area(score: np.ndarray, true: np.ndarray) -> float | None:
    """Return the area under the ROC curve for scores (m,) and truth (m,) bool.

    Return None if all or none are true.
    """
    positive = int(true.sum())
    pairs = positive * (true.size - positive)
    if not pairs:
        return None
    from scipy.stats import rankdata  # takes a second to import
    ranks = rankdata(score)[true].sum()  # multiples of 1/2, thus exact
    return (ranks - positive * (positive + 1) / 2) / pairs


# metrics that the loss does not compute itself
METRICS: dict[str, Callable] = {"macro-f1": macro_f1, "roc-auc": roc_auc}


def goodness(metric: str, value: float) -> float:
    """Return a number that is larger for a better value of a metric."""
    return -value if metric in ERRORS else value


def metric_of(spec: ModelSpec, name: str) -> str:
    """Return the name of the metric by which a model is judged; `auto` is resolved.

    Raise UsageError if the metric does not exist for this kind of labels.
    """
    links = LINK_METRIC.fullmatch(name)
    if spec.decoder:
        if name != "auto" and not links:
            raise UsageError(f"{assigned('metric', name)}: not a metric of links, expected auc, "
                             "ap, mrr or hits@K")
        return "auc" if name == "auto" else name
    if links:
        raise UsageError(f"{assigned('metric', name)}: only for {setting('task', 'links')}")
    if name == "auto":
        labels = "micro-f1" if spec.multilabel else "accuracy"
        return "rmse" if spec.target_loss else labels
    if spec.target_loss and name not in TARGET_METRICS:
        raise UsageError(f"{assigned('metric', name)}: vertices have targets, which are numbers, "
                         f"expected {', '.join(TARGET_METRICS)}")
    if not spec.target_loss and name in TARGET_METRICS:
        raise UsageError(f"{assigned('metric', name)}: vertices have labels, not targets, expected "
                         f"{', '.join(LABEL_METRICS)}")
    if name == "accuracy" and spec.multilabel:
        raise UsageError(f"{assigned('metric', name)}: vertices have several labels, expected "
                         "micro-f1, macro-f1 or roc-auc")
    if name == "roc-auc" and not spec.multilabel and spec.widths[-1] != 2:
        raise UsageError(f"{assigned('metric', name)}: {spec.widths[-1]} classes, expected 2, or "
                         "several labels a vertex")
    return name

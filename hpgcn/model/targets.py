"""What training takes for the labels: smoothed ones, and classes that weigh differently."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpgcn.errors import DataError, UsageError, agreed, setting
from hpgcn.runtime.files import reading

BALANCED = "balanced"
LONGEST = 400  # characters of a number


class Targets(NamedTuple):
    """Label smoothing and weights of classes in a training loss, as PyTorch's CrossEntropyLoss.

    The loss of a vertex of class y is the sum over the C classes of -t_c log(softmax_c), where t_c
    is w_c smoothing / C, and w_y (1 - smoothing) more at y. Its mean is the sum over training
    vertices divided by the sum of their w_y.
    """

    smoothing: float = 0.0
    class_weight: np.ndarray | str | None = None  # (C,) float64, BALANCED, or None: all 1

    def weights(self, counts):
        """Weights of classes, (C,) float64, of which so many training vertices are there.

        A DataError if all these vertices weigh 0.
        """
        if isinstance(self.class_weight, str):
            # as in scikit-learn, but that no class of the graph is left out
            return np.where(counts > 0, counts.sum() / (counts.size * np.maximum(counts, 1)), 0.0)
        if not counts @ self.class_weight > 0:
            # all ranks know the same counts
            raise agreed(DataError("the weights of all classes that training vertices have are 0"))
        return self.class_weight

    def table(self, weights):
        """The `target` of the kernels for these weights, (3, C)."""
        own = (1 - self.smoothing) * weights
        every = self.smoothing / weights.size * weights
        return np.stack([own, every, own + every.sum()])


PLAIN = Targets()


def find_targets(config, header, comm):
    """Targets of a run by its settings, on a graph; all ranks call this together.

    Raised on all ranks: a UsageError if classes are to weigh, but vertices have several labels;
    as `read_weights`.
    """
    given = config.class_weight or None
    with comm.collective_errors():
        if given and header.multilabel:
            raise UsageError(f"{setting('class_weight', given)}: vertices of {header.name} have "
                             "several labels, expected one of each to weigh classes")
        if given and given != BALANCED and comm.rank == 0:
            given = read_weights(given, header.num_classes)
    if config.class_weight:
        given = comm.bcast(given)  # one file for all ranks
    return Targets(config.label_smoothing, given)


def read_weights(path, classes):
    """Weights of so many classes out of a text file, a number from 0 a line: (C,) float64.

    A DataError, with file and line, for what is none; as `hpgcn.runtime.files.reading`.
    """
    with reading(path) as file:
        lines = file.read(LONGEST * (classes + 1)).splitlines()
    weights = np.empty(len(lines))
    for number, line in enumerate(lines, 1):
        try:
            weights[number - 1] = float(line)
        except ValueError:
            weights[number - 1] = -1
        if not 0 <= weights[number - 1] < np.inf:
            text = line.decode(errors="replace")
            raise DataError(f"{path}: line {number} is {text!r:.40}, expected a number from 0")
    if len(lines) != classes:
        raise DataError(f"{path}: {len(lines)} lines, expected a weight for each of {classes} "
                        "classes")
    return weights

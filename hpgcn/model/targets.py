"""Training targets: label smoothing and class weights."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.errors import DataError, InputNotFoundError, UsageError, agreed, setting
from hpgcn.graphs.validation import MAX_NAME
from hpgcn.runtime.files import reading

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph_source import GraphSource

BALANCED = "balanced"
LONGEST = 400  # characters of a number


class Targets(NamedTuple):
    """Label smoothing and class weights of a training loss.

    They are defined as in PyTorch's CrossEntropyLoss. The loss of a vertex of class y
    is the sum over the C classes of -t_c log(softmax_c). t_c is w_c smoothing / C, plus
    w_y (1 - smoothing) at y. Its mean is the sum over training vertices divided by the
    sum of their w_y.
    """

    smoothing: float = 0.0
    class_weight: np.ndarray | str | None = None  # (C,) float64, BALANCED, or None: all 1

    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Return the weight of each class, (C,) float64.

        `counts` has the number of training vertices of each class. Raise a DataError if
        all training vertices have weight 0.
        """
        if isinstance(self.class_weight, str):
            # as in scikit-learn, but that no class of the graph is left out
            return np.where(counts > 0, counts.sum() / (counts.size * np.maximum(counts, 1)), 0.0)
        if not counts @ self.class_weight > 0:
            # all ranks have the same counts
            raise agreed(DataError("all classes of the training vertices have weight 0"))
        return self.class_weight

    def table(self, weights: np.ndarray) -> np.ndarray:
        """Return the argument `target` of the loss kernels for these class weights, (3, C)."""
        own = (1 - self.smoothing) * weights
        every = self.smoothing / weights.size * weights
        return np.stack([own, every, own + every.sum()])


PLAIN = Targets()


def find_targets(source: GraphSource, comm: SerialComm, class_weight: str,
                 label_smoothing: float) -> Targets:
    """Return the Targets for two settings and the graph of a GraphSource.

    All ranks call this together. Raise on all ranks a UsageError if there are class
    weights, but several labels per vertex. Other errors are as in `read_weights`.
    """
    weights = class_weight or None
    header = source.header
    with comm.collective_errors():
        if weights and header.multilabel:
            raise UsageError(f"{setting('class_weight', weights)}: vertices of {header.name} have "
                             "several labels, but class weights need one label per vertex")
        if weights and weights != BALANCED and comm.rank == 0:
            weights = read_weights(weights, header.num_classes, source.class_names)
    if class_weight:
        weights = comm.bcast(weights)  # one file for all ranks
    return Targets(label_smoothing, weights)


def read_weights(path: str, classes: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Read the weight of each of `classes` classes from a text file, (C,) float64.

    A line has the weight of a class, a number from 0, in the order of the classes.
    Otherwise each line has the name of a class, a comma, a tab or blanks, and its
    weight, in any order. A DataError, with file and line, for what is neither; as
    `hpgcn.runtime.files.reading`.
    """
    if not os.path.exists(path):
        raise InputNotFoundError(f"{setting('class_weight', path)}: there is no such file; "
                                 "expected balanced, or a text file with a line per class")

    # read no more lines than there may be, and find out which form they have
    with reading(path) as file:
        lines = file.read((LONGEST + MAX_NAME) * (classes + 1)).splitlines()
    named = bool(names) and not any(map(_is_weight, lines))
    pairs = map(_named, lines) if named else [(b"", line) for line in lines]
    numbers = {name.strip().encode(): k for k, name in enumerate(names or ())}

    # one weight for each class
    weights = np.full(classes, np.nan)
    for number, (name, text) in enumerate(pairs, 1):
        where = f"{path}: line {number}"
        k = numbers.get(name) if named else number - 1
        if not _is_weight(text) or (named and k is None):
            expected = " after the name of a class" * named
            text = lines[number - 1].decode(errors="replace")
            raise DataError(f"{where} is {text!r:.40}, expected a number from 0{expected}")
        if named and not np.isnan(weights[k]):
            raise DataError(f"{where}: class {names[k]!r:.40} occurs twice")
        if k < classes:
            weights[k] = float(text)

    if len(lines) != classes:
        raise DataError(f"{path}: {len(lines)} lines, expected one weight for each of {classes} "
                        "classes")
    return weights


def _is_weight(text: str) -> bool:
    try:
        return 0 <= float(text) < np.inf
    except ValueError:
        return False


def _named(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into the name of a class and the text after it.

    The name may be quoted as in CSV.
    """
    separator = next((each for each in (b"\t", b",") if each in line), None)
    name, *text = line.rsplit(separator, 1)
    if not text:
        return b"", line
    name = name.strip()
    if len(name) > 1 and name[:1] == name[-1:] == b'"':
        name = name[1:-1].replace(b'""', b'"')
    return name, text[0]

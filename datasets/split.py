"""Splits of the labelled vertices into train, validation and test, class by class and keyed.

The draw of vertex i depends on the seed and on i alone, so a split depends on nothing but the seed and the labels.
"""
from __future__ import annotations

import re

import numpy as np

from hpgcn.errors import DataError, UsageError

PER_CLASS, NUM_VAL, NUM_TEST = 20, 500, 1000
RANDOM = re.compile(r"random:(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)(?::(\d{1,19}))?")


def parse_split(text):
    """Return ("file",), ("planetoid",) or ("random", (train, val, test) in percent, seed).

    Raises
    ------
    UsageError
        Another word; percentages that exceed 100 together, or leave nothing to train.
    """
    if text in ("file", "planetoid"):
        return (text,)
    found = RANDOM.fullmatch("random:60/20/20" if text == "random" else text)
    if not found:
        raise UsageError(f"split {text!r}: expected file, planetoid or random:60/20/20[:SEED]")
    percent = tuple(float(share) for share in found.groups()[:3])
    if not percent[0] or sum(percent) > 100 + 1e-9:
        raise UsageError(f"split {text!r}: expected percentages of at most 100 together, and more than 0 to train")
    seed = int(found[4] or 0)
    if seed >= 2**63:
        raise UsageError(f"split {text!r}: expected a seed below 2^63")
    return "random", percent, seed


def describe_split(kind, percent=(), seed=0):
    """How a split is recorded in a file, e.g. "random:60/20/20:0"."""
    return kind if kind != "random" else f"random:{'/'.join(f'{share:g}' for share in percent)}:{seed}"


def random_split(labels, percent, seed, where):
    """Divide the labelled vertices of each class by percentages.

    Parameters
    ----------
    labels : (n,) integers, -1 for unknown, or (n, t) multi-label (divided as one class)
    percent : three numbers
        Of train, validation and test; what they leave is in no mask.
    seed : int

    Returns
    -------
    dict of (n,) bool under "train", "val" and "test"
    """
    labels = _classes(labels, where)
    rank, size = _ranks(labels, seed)
    known = labels >= 0
    cuts = [np.floor(size * np.sum(percent[:k]) / 100 + 0.5).astype(np.int64) for k in (1, 2, 3)]
    return {"train": known & (rank < cuts[0]), "val": known & (rank >= cuts[0]) & (rank < cuts[1]),
            "test": known & (rank >= cuts[1]) & (rank < cuts[2])}


def planetoid_split(labels, where, seed=0):
    """Draw 20 vertices of each class to train; of the others 500 to validate and 1,000 to test, classes in proportion.

    Parameters
    ----------
    labels : (n,) integers, -1 for unknown

    Returns
    -------
    dict of (n,) bool under "train", "val" and "test"

    Raises
    ------
    DataError
        Multi-label, a class with fewer than 20 vertices, or fewer than 1,500 other labelled vertices.
    """
    if labels is not None and labels.ndim != 1:
        raise DataError(f"{where}: split planetoid needs one class per vertex, labels have shape {labels.shape}")
    labels = _classes(labels, where)
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    small = np.flatnonzero(counts < PER_CLASS)
    if small.size:
        raise DataError(f"{where}: class {classes[small[0]]} has {counts[small[0]]} labelled vertices, split planetoid "
                        f"trains on {PER_CLASS} of each class")
    others = int(counts.sum()) - PER_CLASS * classes.size
    if others < NUM_VAL + NUM_TEST:
        raise DataError(f"{where}: {others} labelled vertices besides {PER_CLASS} of each class, split planetoid needs "
                        f"{NUM_VAL} + {NUM_TEST}")
    rank, size = _ranks(labels, seed)
    train = (labels >= 0) & (rank < PER_CLASS)
    rest = np.flatnonzero((labels >= 0) & ~train)
    place = (rank[rest] - PER_CLASS + 0.5) / (size[rest] - PER_CLASS)  # how far down its class, from 0 to 1
    rest = rest[np.lexsort((labels[rest], place))]
    masks = {"train": train, "val": np.zeros(labels.size, bool), "test": np.zeros(labels.size, bool)}
    masks["val"][rest[:NUM_VAL]] = True
    masks["test"][rest[NUM_VAL:NUM_VAL + NUM_TEST]] = True
    return masks


def _classes(labels, where):
    if labels is None:
        raise DataError(f"{where}: no labels, which a split needs: give --labels")
    return labels if labels.ndim == 1 else np.zeros(labels.shape[0], np.int64)


def _ranks(labels, seed):
    """Place of each vertex among those of its class in the order of their draws, and the size of its class."""
    draws = np.random.Philox(key=seed).random_raw(labels.size)
    order = np.lexsort((draws, labels))
    grouped = labels[order]
    first = np.searchsorted(grouped, grouped, side="left")
    last = np.searchsorted(grouped, grouped, side="right")
    rank, size = np.empty((2, labels.size), np.int64)
    rank[order], size[order] = np.arange(labels.size) - first, last - first
    return rank, size

"""Splits of labeled vertices into train, validation and test, drawn class by class.

The random number of a vertex depends only on the seed and the vertex's number. A split
depends on the seed and the labels.
"""
from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError, UsageError, setting
from hpgcn.graphs.validation import ALL, MAX_SPLITS, SPLIT, check_labels, first_true

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw

PER_CLASS = 20
NUM_VAL = 500
NUM_TEST = 1000
SHARE = r"(\d+(?:\.\d+)?)"
RANDOM = re.compile(rf"random:{SHARE}/{SHARE}/{SHARE}(?::(\d{{1,19}}))?")
FILE = re.compile(r"^:|\.(npz|npy|json|jsonl|csv|tsv|txt|parquet|mtx|pt)(\.gz)?(:[^/]*)?$")
EACH = re.compile(r"per-class:(\d{1,9})/(\d{1,9})(?::(\d{1,19}))?")


def parse_split(text: str) -> tuple:
    """Return the parts of a --split text as a tuple; raise UsageError for other text.

    ("file",), ("planetoid",), ("all",), ("random", percentages, seed), ("per-class",
    numbers of training and validation vertices, seed), or ("table", FILE, FILE:COLUMN or
    :ATTRIBUTE).
    """
    if text in ("file", "planetoid", ALL):
        return (text,)

    # per-class: counts of vertices of each class
    if match := EACH.fullmatch("per-class:20/30" if text == "per-class" else text):
        counts = tuple(int(count) for count in match.groups()[:2])
        if not counts[0]:
            raise UsageError(f"split {text!r}: expected more than 0 training vertices of each "
                             "class")
        return "per-class", counts, _seed(text, match[3])

    # random: shares of all vertices; otherwise a file
    match = RANDOM.fullmatch("random:60/20/20" if text == "random" else text)
    if not match and (FILE.search(text) or _exists(text) or _exists(text.rpartition(":")[0])):
        return "table", text
    if not match:
        raise UsageError(f"split {text!r}: expected file, planetoid, all, random:60/20/20[:SEED], "
                         "per-class:20/30[:SEED], or a file with a split: FILE or FILE:COLUMN")

    percent = tuple(float(share) for share in match.groups()[:3])
    if not percent[0] or sum(percent) > 100 + 1e-9:
        raise UsageError(f"split {text!r}: expected percentages that sum to at most 100, with more "
                         "than 0 for training")

    return "random", percent, _seed(text, match[4])


def _exists(path: str) -> bool:
    return bool(path) and "\0" not in path and os.path.exists(path)


def _seed(text: str, digits: str) -> int:
    seed = int(digits or 0)
    if seed >= 2**63:
        raise UsageError(f"split {text!r}: expected a seed below 2^63")
    return seed


def describe_split(kind: str, sizes: Any = (), seed: Any = 0, count: Any = 1) -> str:
    """Return the description of splits that a graph file stores: "random:60/20/20:0".

    The seeds of several splits are "0..9".
    """
    seeds = f"{seed}..{seed + count - 1}" if count > 1 else seed
    return f"{kind}:{'/'.join(f'{size:.10g}' for size in sizes)}:{seeds}" if sizes else kind


def check_count(count: int, wanted: tuple | None) -> None:
    """Raise UsageError if `count` splits cannot be drawn.

    The count is out of range, the split is not random, or seeds exceed 2^63.
    """
    if not isinstance(count, int) or not 1 <= count <= MAX_SPLITS:
        raise UsageError(f"{setting('num_splits', count)}: expected 1 to {MAX_SPLITS}")
    if count > 1 and (wanted is None or len(wanted) < 3):
        raise UsageError(f"{setting('num_splits', count)}: needs {setting('split')} random or "
                         "per-class, which can be drawn several times")
    if count > 1 and wanted[2] + count > 2**63:
        raise UsageError(f"{setting('num_splits', count)}: the seed of the last split would exceed "
                         "2^63")


def make_split(raw: Raw, wanted: Any, num_splits: int, where: str) -> tuple:
    """Return the masks of the split `wanted`, by default the input's, and a description."""
    if wanted is None or wanted == ("file",):
        if wanted and raw.masks is None:
            raise DataError(f"{where}: no split in the input: give --split planetoid, --split "
                            "random:60/20/20 or --split per-class:20/30")
        return raw.masks, raw.split
    if wanted == ("planetoid",) and raw.masks is not None and raw.split == "planetoid":
        return raw.masks, raw.split
    labels, _ = check_labels(raw.labels, raw.num_nodes, where)
    if raw.targets is not None:
        if wanted[0] not in (ALL, "random"):
            raise UsageError(f"split {wanted[0]}: only for classes, but vertices have targets: "
                             "give --split random:60/20/20")
        labels = raw.labeled - 1  # one class of vertices with a target
    if wanted == (ALL,):
        return all_labeled(labels, where), ALL
    if wanted == ("planetoid",):
        return planetoid_split(labels, where), "planetoid"
    masks = drawn_splits(labels, wanted, num_splits, where)
    return masks, describe_split(*wanted, count=num_splits)


def drawn_splits(labels: np.ndarray, wanted: tuple, count: int,
                 where: str) -> dict[str, np.ndarray]:
    """Draw `count` splits, the i-th with the seed plus i; return masks (n,) or (n, count).

    `wanted` is the result of `parse_split` for random or per-class; errors are those of
    these splits.
    """
    kind, sizes, seed = wanted
    make = per_class_split if kind == "per-class" else random_split
    drawn = [make(labels, sizes, seed + i, where) for i in range(count)]
    if count == 1:
        return drawn[0]
    return {key: np.stack([masks[key] for masks in drawn], axis=1) for key in drawn[0]}


def all_labeled(labels: np.ndarray | None, where: str) -> dict[str, np.ndarray]:
    """Return masks with every labeled vertex in all three, for runs that measure time."""
    labels = _classes(labels, where)
    return dict.fromkeys(SPLIT, labels >= 0)


def random_split(labels: np.ndarray | None, percent: tuple, seed: int,
                 where: str) -> dict[str, np.ndarray]:
    """Divide the labeled vertices of each class into train, validation and test by percent.

    `labels` are (n,) integers, -1 for unknown, or (n, t) multi-label, divided as one
    class. Return (n,) bool masks under "train", "val" and "test". If percentages sum to
    less than 100, the rest is in no mask.
    """
    labels = _classes(labels, where)
    rank, size = _ranks(labels, seed)
    masks = {}
    low = 0
    for key, share in zip(("train", "val", "test"), np.cumsum(percent)):
        high = np.floor(size * share / 100 + 0.5).astype(np.int64)
        masks[key] = (labels >= 0) & (rank >= low) & (rank < high)
        low = high
    return masks


def per_class_split(labels: np.ndarray | None, counts: tuple[int, int], seed: int,
                    where: str) -> dict[str, np.ndarray]:
    """Draw `counts` training and validation vertices of each class; the rest is for testing.

    Shchur et al., Pitfalls of graph neural network evaluation, 2018, section 3, use 20
    and 30, in the largest component. DataError for multi-label data, and if a class has
    no vertex left for testing.
    """
    labels, rank, _ = _whole_classes(labels, seed, sum(counts) + 1, "per-class", where)
    train, val = counts
    known = labels >= 0
    return {"train": known & (rank < train), "val": known & (rank >= train) & (rank < train + val),
            "test": known & (rank >= train + val)}


def planetoid_split(labels: np.ndarray | None, where: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw 20 training vertices of each class, then 500 validation and 1,000 test vertices.

    Classes have the same proportions among validation and test vertices as in all.
    DataError for multi-label data, and if too few vertices have a label.
    """
    labels, rank, size = _whole_classes(labels, seed, PER_CLASS, "planetoid", where)
    others = int(np.count_nonzero((labels >= 0) & (rank >= PER_CLASS)))
    if others < NUM_VAL + NUM_TEST:
        raise DataError(f"{where}: {others} labeled vertices remain after {PER_CLASS} of each "
                        f"class, but split planetoid needs {NUM_VAL} + {NUM_TEST}")

    train = (labels >= 0) & (rank < PER_CLASS)
    rest = np.flatnonzero((labels >= 0) & ~train)
    depth = (rank[rest] - PER_CLASS + 0.5) / (size[rest] - PER_CLASS)  # place in class, 0 to 1
    rest = rest[np.lexsort((labels[rest], depth))]
    vertices = np.arange(labels.size)
    return {"train": train, "val": np.isin(vertices, rest[:NUM_VAL]),
            "test": np.isin(vertices, rest[NUM_VAL:NUM_VAL + NUM_TEST])}


def _classes(labels: np.ndarray | None, where: str) -> np.ndarray:
    if labels is None:
        raise DataError(f"{where}: no labels, but a split needs them: give --labels or --targets")
    return labels if labels.ndim == 1 else np.zeros(labels.shape[0], np.int64)


def _whole_classes(labels: np.ndarray | None, seed: int, least: int, split: str,
                   where: str) -> tuple[np.ndarray, ...]:
    """Return labels (n,) and their `_ranks`.

    Raise DataError if a class has fewer than `least` vertices.
    """
    if labels is not None and labels.ndim != 1:
        raise DataError(f"{where}: split {split} needs one class per vertex, but labels have shape "
                        f"{labels.shape}")
    labels = _classes(labels, where)
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    if (k := first_true(counts < least)) is not None:
        raise DataError(f"{where}: class {classes[k]} has {counts[k]} labeled vertices, but split "
                        f"{split} needs {least} of each class")
    return labels, *_ranks(labels, seed)


def _ranks(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each vertex's random rank within its class, and the size of the class."""
    draws = np.random.Philox(key=seed).random_raw(labels.size)
    order = np.lexsort((draws, labels))
    grouped = labels[order]
    first = np.searchsorted(grouped, grouped, side="left")
    rank, size = np.empty((2, labels.size), np.int64)
    rank[order] = np.arange(labels.size) - first
    size[order] = np.searchsorted(grouped, grouped, side="right") - first
    return rank, size

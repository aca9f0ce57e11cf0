"""Random features and labels, for runs that measure time (--features random:128).

A draw depends only on the seed, the vertex's id in the input and the column. It does
not depend on the order of rows, the memory or the number of columns. Features are
uniform in [-1, 1), in steps of 2^-23: the same bits on every machine.
"""
from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.datasets.source import need
from hpgcn.errors import UsageError
from hpgcn.graphs.validation import MAX_WIDTH
from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.graphs.graph import Graph

RANDOM = re.compile(r"random:(\d{1,9})(?::(\d{1,19}))?")
MOST = {"features": MAX_WIDTH, "labels": 1 << 16}
VERTEX_BYTES = 16  # memory per vertex: a key and a label
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FEATURES, LABELS = np.uint64(0x66656174), np.uint64(0x6C616265)  # streams of draws of a seed
STEP = np.float32(2**-23)


class RandomDraw(NamedTuple):
    """Random features or labels: `count` columns or classes, drawn by `seed`."""

    count: int
    seed: int

    def __str__(self) -> str:
        return f"random:{self.count}:{self.seed}"


def parse_draw(flag: str, text: Any) -> RandomDraw | None:
    """Return the RandomDraw in the value of --features or --labels; None for a file.

    UsageError if the text begins with random: but is not random:N or random:N:SEED.
    """
    text = None if text is None else os.fsdecode(text)
    if text is None or not (text.startswith("random:")
                            or (text == "random" and not os.path.exists(text))):
        return None
    match = RANDOM.fullmatch(text)
    count, seed = (int(digits or 0) for digits in match.groups()) if match else (0, 0)
    if not 1 <= count <= MOST[flag] or seed >= 2**63:
        raise UsageError(f"--{flag} {text}: expected random:N or random:N:SEED, N from 1 to "
                         f"{MOST[flag]}, SEED below 2^63; a file of this name is ./{text}")
    return RandomDraw(count, seed)


def vertex_keys(num_nodes: int, base: int, original_ids: np.ndarray | None) -> np.ndarray:
    """Return the random key of each vertex, (n,) uint64: its id, or a hash of its name."""
    if original_ids is None:
        return np.arange(base, base + num_nodes, dtype=np.uint64)
    if original_ids.dtype.kind != "U":
        return original_ids.astype(np.uint64)
    letters = np.ascontiguousarray(original_ids).view(np.uint32)
    return _hash_names(letters.reshape(num_nodes, -1))


def random_labels(draw: RandomDraw, keys: np.ndarray) -> np.ndarray:
    """Return a random class below `draw.count` for each key, (n,) int64."""
    return _draw_labels(_seed_key(draw.seed, LABELS), keys, np.uint64(draw.count))


class RandomFeatures:
    """Random features (n, f) float32, drawn when rows are read by a slice or by numbers."""

    def __init__(self, draw: RandomDraw, keys: np.ndarray) -> None:
        self.key = _seed_key(draw.seed, FEATURES)
        self.keys = keys
        self.shape = keys.size, draw.count
        self.dtype = np.dtype(np.float32)

    def __getitem__(self, rows: slice) -> np.ndarray:
        keys = self.keys[rows]
        X = np.empty((keys.size, self.shape[1]), np.float32)
        _draw_features(self.key, keys, X)
        return X


class RandomContents(NamedTuple):
    """The RandomDraws of features and labels; None keeps those of the input."""

    features: RandomDraw | None
    labels: RandomDraw | None

    @staticmethod
    def parse(features: Path | str | None, labels: Path | str | None,
              row_normalize: bool | None) -> RandomContents:
        """Return the RandomContents for options of `convert.read`; UsageError for invalid ones."""
        drawn = RandomContents(parse_draw("features", features), parse_draw("labels", labels))
        if drawn.features and row_normalize:
            raise UsageError(f"--features {drawn.features}: excludes --row-normalize, because the "
                             "sums of random rows are about 0")
        return drawn

    def clear(self, raw: Raw) -> None:
        """Drop the features and labels of the input that random ones will replace."""
        if self.features:
            raw.features = raw.feature_names = None
            raw.row_normalize = False
        if self.labels:
            raw.labels = raw.class_names = None

    def draw(self, raw: Raw, memory: int, where: str) -> None:
        """Draw the labels of all vertices, and set features that are drawn when read.

        Notes are appended to `raw.notes`.
        """
        if not any(self):
            return
        need(VERTEX_BYTES * raw.num_nodes, memory, f"{where}: {raw.num_nodes} vertices")
        keys = vertex_keys(raw.num_nodes, raw.base, raw.original_ids)
        if self.features:
            raw.features = RandomFeatures(self.features, keys)
        if self.labels:
            raw.labels = random_labels(self.labels, keys)
        raw.notes += [f"{what}: {draw}, for runs that only measure time and memory"
                      for what, draw in zip(self._fields, self) if draw]

    def add_to(self, graph: Graph, raw: Raw, *, lazy: bool) -> Graph:
        """Return `graph` with the random contents of `raw`.

        If `lazy`, features are drawn when they are read.
        """
        facts, arrays = {}, {}
        if self.features:
            arrays["features"] = raw.features if lazy else raw.features[:]
            facts |= {"num_features": self.features.count, "random_features": str(self.features)}
        if self.labels:
            arrays["labels"] = raw.labels
            facts |= {"num_classes": self.labels.count, "random_labels": str(self.labels)}
        header = dataclasses.replace(graph.header, **facts)
        return dataclasses.replace(graph, header=header, **arrays)


def _seed_key(seed: int, stream: np.uint64) -> np.uint64:
    return np.uint64(mix(np.uint64((seed * int(GOLDEN) + int(stream)) % 2**64)))


@jit()
def _draw_features(seed_key: np.uint64, keys: np.ndarray, X: np.ndarray) -> None:
    """Fill X, (n, f), with numbers from 24 bits of a hash of (seed, key, column)."""
    for i in range(keys.size):
        state = mix(seed_key + keys[i] * GOLDEN)
        for j in range(X.shape[1]):
            state += GOLDEN
            X[i, j] = np.float32(mix(state) >> np.uint64(40)) * STEP - np.float32(1)


@jit()
def _draw_labels(seed_key: np.uint64, keys: np.ndarray, classes: np.uint64) -> np.ndarray:
    """Return a class for each key, from 32 bits of a hash of (seed, key)."""
    labels = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        bits = mix(mix(seed_key + keys[i] * GOLDEN)) >> np.uint64(32)
        labels[i] = np.int64((bits * classes) >> np.uint64(32))
    return labels


@jit()
def _hash_names(letters: np.ndarray) -> np.ndarray:
    """Return a hash of each name.

    A name is a row of code points, (n, letters) uint32, and ends before the first 0.
    """
    keys = np.zeros(letters.shape[0], np.uint64)
    for i in range(letters.shape[0]):
        for letter in letters[i]:
            if letter:
                keys[i] = mix(keys[i] + np.uint64(letter) * GOLDEN)
    return keys

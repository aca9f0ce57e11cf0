"""Graphs that need no file: scikit-learn's handwritten digits, and Zachary's karate club."""
import hashlib
from typing import Any

import numpy as np

from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.split import planetoid_split
from hpgcn.errors import require

NUM_NEIGHBORS = 10

# W. W. Zachary, An Information Flow Model for Conflict and Fission in Small Groups, J.
# Anthropol. Res. 33 (1977). The 34 members are counted from 0. For each of them, between
# semicolons, the text lists the neighbors with larger numbers. There are 78 ties.
KARATE = """1 2 3 4 5 6 7 8 10 11 12 13 17 19 21 31; 2 3 7 13 17 19 21 30; 3 7 8 9 13 27 28 32;
    7 12 13; 6 10; 6 10 16; 16; ; 30 32 33; 33; ; ; ; 33; 32 33; 32 33; ; ; 32 33; 33; 32 33; ;
    32 33; 25 27 29 32 33; 25 27 31; 31; 29 33; 33; 31 33; 32 33; 32 33; 32 33; 33; """
FACTION = "0000000001000011001010111111111111"
KARATE_TRAIN = (0, 1, 32, 33)
KARATE_VAL = (3, 5, 13, 21, 14, 23, 27, 30)


def digits() -> Raw:
    """Return the digits graph: images in 10 classes, joined to their nearest images.

    It has 1,797 images of 8 x 8 pixels, each joined to its 10 nearest images. Features
    are X / 16. Distances are integers and ties go to the lower number, so the graph has
    the same 24,678 entries everywhere. Needs scikit-learn; without it a MissingError is
    raised.
    """
    images = require("sklearn.datasets", "demo", "the digits graph").load_digits()
    X = images.data.astype(np.int64)
    norm = (X * X).sum(axis=1)
    distance = norm[:, None] + norm - 2 * (X @ X.T)
    np.fill_diagonal(distance, np.iinfo(np.int64).max)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :NUM_NEIGHBORS]
    labels = images.target.astype(np.int64)
    return Raw(len(X), np.repeat(np.arange(len(X)), NUM_NEIGHBORS), nearest.ravel(), None,
               (X / 16).astype(np.float32), labels, planetoid_split(labels, "digits"), "planetoid",
               symmetrize=True)


def karate() -> Raw:
    """Return the karate club: 34 vertices, 78 edges and 2 classes.

    Each class has 2 training vertices. The features are the identity matrix.
    """
    edges = np.array([(u, int(v)) for u, neighbors in enumerate(KARATE.split(";"))
                      for v in neighbors.split()])
    n = len(FACTION)
    vertices = np.arange(n)
    masks = {"train": np.isin(vertices, KARATE_TRAIN), "val": np.isin(vertices, KARATE_VAL)}
    masks["test"] = ~(masks["train"] | masks["val"])
    return Raw(n, edges[:, 0], edges[:, 1], None, np.eye(n, dtype=np.float32),
               np.array(list(FACTION), np.int64), masks, symmetrize=True)


BUILTIN = {"digits": digits, "karate": karate}


def sha256(raw: Any) -> str:
    """Return the SHA-256 over the bytes of a built-in graph's entries, features and labels."""
    digest = hashlib.sha256()
    for array, dtype in ((raw.rows, "<i8"), (raw.columns, "<i8"), (raw.features, "<f4"),
                         (raw.labels, "<i8")):
        digest.update(np.asarray(array, dtype).tobytes())
    return digest.hexdigest()

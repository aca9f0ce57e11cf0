"""Reader of the Reddit set of DGL and PyG: reddit_data.npz and reddit_graph.npz.

Hamilton et al., Inductive Representation Learning on Large Graphs, NIPS 2017. Both
loaders read an entry of the matrix as an edge of weight 1, from its row to its column.
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.collections.graphsaint import INDUCTIVE, read_unweighted
from hpgcn.datasets.raw_graph import TARGET_FIRST
from hpgcn.datasets.readers.numpy_files import Archive
from hpgcn.datasets.source import folder_name, open_all
from hpgcn.errors import DataError
from hpgcn.graphs.validation import first_true

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

FILES = ("reddit_data.npz", "reddit_graph.npz")
TYPES = {"train": 1, "val": 2, "test": 3}
graph_name = folder_name


def belongs(path: Path) -> bool:
    """Return whether `path` is reddit_data.npz, or reddit_graph.npz beside it."""
    return path.name in FILES and (path.parent / FILES[0]).is_file()


def read(source: Source, memory: int) -> Raw:
    """Read the graph, and the arrays `feature`, `label` and `node_types`.

    The last has 1 for training, 2 for validation and 3 for test vertices.
    """
    source.files = open_all(source.path.parent / name for name in FILES)
    data, graph = source.files
    raw = read_unweighted(graph, memory)
    raw.rows, raw.columns, raw.reads = raw.columns, raw.rows, TARGET_FIRST

    archive = Archive(data, memory)
    archive.require("feature", "label", "node_types")
    raw.features, raw.labels = archive.read("feature"), archive.read("label")
    types = archive.read("node_types").ravel()
    if types.shape != (raw.num_nodes,):
        raise DataError(f"{data} node_types: shape {types.shape}, expected ({raw.num_nodes},)")
    if (k := first_true(~np.isin(types, (0, *TYPES.values())))) is not None:
        raise DataError(f"{data} node_types: entry {k} is {types[k]}, expected 1 (train), 2 "
                        "(validate), 3 (test), or 0")
    raw.masks = {key: types == number for key, number in TYPES.items()}
    raw.notes += [*archive.notes, *archive.unread_notes(), INDUCTIVE]
    return raw

"""Reader of GraphSAINT's folders: adj_full.npz, role.json, class_map.json and feats.npy.

Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020. Its
own loader sets all weights to 1, and standardizes features by the training vertices.
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.readers.adjacency_matrix import from_matrix
from hpgcn.datasets.readers.numpy_files import Archive, read_array
from hpgcn.datasets.source import folder_name, need, open_all, truncate
from hpgcn.datasets.text.data_table import plural
from hpgcn.datasets.text.json_files import parse_json
from hpgcn.datasets.text.lines import WHOLE
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.validation import MAX_WIDTH

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

ADJACENCY = "adj_full.npz"
BESIDE = ("feats.npy", "class_map.json", "role.json")
TRAIN = "adj_train.npz"  # not read, because adj_full.npz has its entries
ROLES = {"train": "tr", "val": "va", "test": "te"}
INDUCTIVE = ("published for inductive training, on the edges between train vertices alone: `hpgcn "
             "train --training-graph train`")


def belongs(path: Path) -> bool:
    """Return whether `path` is a file of a GraphSAINT set.

    Its folder has the adjacency and another file of the set.
    """
    names = (ADJACENCY, TRAIN, *BESIDE)
    return (path.name in names and (path.parent / ADJACENCY).is_file()
            and any((path.parent / name).is_file() for name in BESIDE))


graph_name = folder_name


def read(source: Source, memory: int) -> Raw:
    """Read those files of a data set that exist.

    Vertex u aggregates v if row u of the adjacency has an entry in column v.
    """
    folder = source.path.parent
    missing = [name for name in BESIDE if not (folder / name).exists()]
    names = [name for name in (ADJACENCY, *BESIDE) if name not in missing]
    source.files = open_all(folder / name for name in names)
    files = dict(zip(names, source.files))
    raw = read_unweighted(files[ADJACENCY], memory)
    for name, file in files.items():
        if name == "feats.npy":
            raw.features, notes = read_array(file, memory)
            raw.notes += [*notes, "features read unchanged: GraphSAINT's own loader standardizes "
                                  "them by mean and deviation of the train vertices"]
        elif name == "class_map.json":
            raw.labels = _classes(file, raw, memory)
        elif name == "role.json":
            raw.masks = _roles(file, raw.num_nodes, memory)
            raw.notes.append(INDUCTIVE)
    raw.notes += [f"no {join_names(missing)} beside {ADJACENCY}"] * bool(missing)
    return raw


def read_unweighted(file: Source, memory: int) -> Raw:
    """Return the Raw of a matrix of save_npz with all weights set to 1.

    A note says if that changes weights.
    """
    archive = Archive(file, memory)
    if not archive.is_sparse:
        raise DataError(f"{file}: expected a matrix written by scipy.sparse.save_npz")
    raw = from_matrix(archive.read_sparse(), memory, str(file))
    there = raw.values != 0
    if not np.all(raw.values == 1):
        raw.notes.append("weights set to 1, like in GraphSAINT's own loader")
    raw.rows, raw.columns, raw.values = raw.rows[there], raw.columns[there], None
    return raw


def _classes(file: Source, raw: Raw, memory: int) -> np.ndarray:
    """Return the labels in a file {"vertex": class}.

    Labels are class numbers (n,), or rows of 0 and 1 (n, t) if the values are lists.
    """
    n = raw.num_nodes
    classes = parse_json(file, memory, dict, '{"vertex": class}')

    # lists are multi-label rows; a single number is a class
    lists = any(isinstance(value, list) for value in classes.values())
    width = max((len(value) for value in classes.values() if isinstance(value, list)), default=0)
    if width > MAX_WIDTH:
        raise DataError(f"{file}: lists of {width} classes, expected at most {MAX_WIDTH}")
    need(8 * n * max(width, 1), memory, f"{file}: {n} x {width} labels")
    labels = np.zeros((n, width), np.float32) if lists else np.full(n, -1, np.int64)

    # fill in the vertices, in any order
    for key, value in classes.items():
        vertex = _vertex(key, n, file)
        numbers = value if lists and isinstance(value, list) else [value]
        highest = 1 if lists else MAX_WIDTH
        known = all(type(number) in (int, float) and lists - 1 <= number <= highest
                    and number == int(number) for number in numbers)
        if not known or len(numbers) != (width if lists else 1) or isinstance(value, list) != lists:
            expected = f"{width} numbers 0 and 1" if lists else "a class number"
            raise DataError(f"{file}: vertex {vertex}: {truncate(value, 40)}, expected {expected}")
        labels[vertex] = numbers if lists else numbers[0]

    # vertices without an entry are unlabeled, which only classes allow
    if len(classes) < n:
        if lists:
            absent = next(vertex for vertex in range(n) if str(vertex) not in classes)
            raise DataError(f"{file}: vertex {absent} is missing, expected classes of all {n}")
        count = plural(n - len(classes), "vertex", "vertices")
        raw.notes.append(f"{count} without a class in {file.path.name}: unlabeled")
    return labels


def _roles(file: Source, n: int, memory: int) -> dict[str, np.ndarray]:
    """Return masks (n,) from a file {"tr": [..], "va": [..], "te": [..]}."""
    found = parse_json(file, memory, dict, '{"tr": [..], "va": [..], "te": [..]}')
    masks = {}
    for key, role in ROLES.items():
        numbers = found.get(role)
        if not isinstance(numbers, list):
            raise DataError(f'{file}: no list "{role}", expected tr, va and te')
        masks[key] = np.zeros(n, bool)
        masks[key][[_vertex(number, n, f"{file}: {role}") for number in numbers]] = True
    return masks


def _vertex(number: int | str, n: int, where: object) -> int:
    """Return `number`, an int or its text, as a vertex.

    Raise DataError if it is not in 0..n-1.
    """
    whole = type(number) is int or (isinstance(number, str) and WHOLE.fullmatch(number))
    if not whole or not 0 <= int(number) < n:
        raise DataError(f"{where}: vertex {truncate(repr(number), 40)}, expected 0..{n - 1}")
    return int(number)

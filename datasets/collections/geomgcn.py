"""Reader of Geom-GCN's data sets: a table of edges, one of nodes, and ten splits.

Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020. The tables are
out1_graph_edges.txt and out1_node_feature_label.txt, both with a header and tabs.
Splits are NAME_split_0.6_0.2_K.npz, beside the tables or in ../../splits.
"""
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.collections.linqs import rows_of
from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.readers.numpy_files import Archive
from hpgcn.datasets.source import Source, decoded, folder_name, need, open_all, truncate
from hpgcn.datasets.text.data_table import plural
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.classes import parse_classes
from hpgcn.graphs.validation import MAX_WIDTH, SPLIT, check_finite

EDGES = "out1_graph_edges.txt"
NODES = "out1_node_feature_label.txt"
SPLIT_FILE = re.compile(r"(.+)_split_0\.6_0\.2_(\d+)\.npz")
WIDTHS = {"film": 932, "actor": 932}  # widths of sets whose features are lists of column numbers
NUMBER_BYTES = 100  # memory per number in a list of features


def belongs(path: Path) -> bool:
    """Return whether `path` is a table of a set, or a split file beside its tables."""
    return path.name in (EDGES, NODES) or (
        SPLIT_FILE.fullmatch(path.name) is not None and (path.parent / NODES).is_file())


def graph_name(path: Path) -> str:
    """Return the NAME of split files beside the tables, or that of the folder."""
    names = {name for name, _, _ in _splits(path.parent)}
    return names.pop() if len(names) == 1 else folder_name(path)


def read(source: Source, memory: int) -> Raw:
    """Read both tables and all splits.

    A line `u v` is the edge u -> v, which is the entry A[v, u].
    """
    folder = source.path.parent
    name = graph_name(source.path)
    edges, table = open_all(folder / file for file in (EDGES, NODES))
    source.files = [edges, table]

    # read vertices with features and labels
    ids, lists, labels, lines = _vertices(table, memory)
    nodes = Nodes(ids, table)
    order = nodes.order
    features, note = _features(lists, lines, name, table, memory)
    classes = parse_classes(labels, f"{table}: label", lambda k: f"line {lines[k]}",
                            classes=True)

    # read splits and edges
    masks = _masks(folder, name, len(ids), source, memory)
    sources, targets = _edges(edges, nodes, memory)

    return Raw(len(ids), targets, sources, features=features[order],
               labels=classes.numbers[order], class_names=classes.names, masks=masks,
               original_ids=nodes.original_ids, reads=TARGET_FIRST, notes=[note, *classes.notes])


def _vertices(file: Source, memory: int) -> tuple[list, ...]:
    """Return ids, feature lists (bytes), labels and line numbers of the node table."""
    ids, lists, labels, lines = [], [], [], []
    for line, fields in _table(file, 3, "node_id, feature and label"):
        where = f"{file}: line {line}"
        ids.append(decoded(fields[0], where))
        lists.append(fields[1])
        labels.append(decoded(fields[2], where))
        lines.append(line)
        need(400 * len(ids), memory, file)
    if not ids:
        raise DataError(f"{file}: no vertices")
    return ids, lists, labels, lines


def _features(lists: list[bytes], lines: list[int], name: str, file: Source, memory: int) -> tuple:
    """Return the features (n, f), and a note on how they were read.

    A row has the values of all columns, or lists the numbers of its features. Rows of
    equal length have values if these are all 0 or 1, or include fractions or a number
    twice in a row. A number that is twice in a list is one feature.
    """
    counts = np.array([text.count(b",") + 1 if text.strip() else 0 for text in lists])
    need(NUMBER_BYTES * int(counts.sum()), memory, file)

    # parse every row, before it is known whether numbers are values or columns
    rows = []
    for line, text in zip(lines, lists):
        words = text.split(b",") if text.strip() else []
        try:
            rows.append(np.array(words, dtype="S").astype(np.float64))
        except ValueError as error:
            raise DataError(f"{file}: line {line}: {truncate(error)}") from error
        check_finite(rows[-1], f"{file}: line {line}: feature")

    # rows of equal length are values, unless they look like lists of columns
    values = np.concatenate(rows)
    whole = bool(np.all(values == np.floor(values)))
    even = bool(np.all(counts == counts[0]))
    repeated = [line for line, row in zip(lines, rows) if np.unique(row).size < row.size]
    if even and name not in WIDTHS and (repeated or not (whole and np.any(values > 1))):
        dense = values.reshape(len(rows), -1)
        return sp.csr_array(dense), f"features: {dense.shape[1]} columns of numbers"

    # otherwise each row lists the columns of its features
    most = 2 * len(repeated) > len(rows)  # then rows may be values, and one of them truncated
    if not whole or values.min(initial=0) < 0 or values.max(initial=0) >= MAX_WIDTH or most:
        place = f"line {repeated[0]}: " if repeated else ""
        raise DataError(f"{file}: {place}features are neither rows of 0 and 1 of equal length, nor "
                        "lists of feature numbers")

    # put ones into the listed columns
    width = max(int(values.max(initial=-1)) + 1, WIDTHS.get(name, 0))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    features = sp.csr_array((np.ones(values.size), values.astype(np.int64), indptr),
                            shape=(len(rows), width))
    features.sum_duplicates()
    features.data[:] = 1
    note = f"features: lists of feature numbers, 0..{width - 1}"
    if repeated:
        note += f"; {plural(len(repeated), 'list has', 'lists have')} a number twice, which is a 1"
    return features, note


def _edges(file: Source, nodes: Nodes, memory: int) -> np.ndarray:
    """Return the source and the target of each edge, two (e,) int64."""
    edges = []
    for line, fields in _table(file, 2, "two nodes"):
        where = f"{file}: line {line}"
        names = [decoded(field, where) for field in fields]
        missing = next((name for name in names if name not in nodes.number), None)
        if missing is not None:
            raise DataError(f"{where}: node {truncate(missing, 40)!r} is not in {NODES}")
        edges.append([nodes.number[name] for name in names])
        need(200 * len(edges), memory, file)
    return np.array(edges, np.int64).reshape(-1, 2).T


def _table(file: Source, width: int, expected: str) -> Iterator[tuple[int, list]]:
    """Yield the line number and the fields of each line of a table.

    A first line that does not begin with a number is skipped as a header.
    """
    for line, fields in rows_of(file):
        if line == 1 and not fields[0].isdigit():
            continue
        if len(fields) != width:
            raise DataError(f"{file}: line {line}: {len(fields)} field(s), expected {expected}")
        yield line, fields


def _splits(folder: Path) -> list[tuple]:
    """Return (data set name, split number, path) of each split file.

    Split files lie beside the tables or else in ../../splits.
    """
    beside = [(match[1], int(match[2]), path) for path in folder.glob("*_split_0.6_0.2_*.npz")
              if (match := SPLIT_FILE.fullmatch(path.name))]
    if beside:
        return sorted(beside)
    apart = folder.absolute().parent.parent / "splits"
    return sorted((match[1], int(match[2]), path) for path in apart.glob("*_split_0.6_0.2_*.npz")
                  if (match := SPLIT_FILE.fullmatch(path.name)) and match[1] == folder.name)


def _masks(folder: Path, name: str, n: int, source: Source,
           memory: int) -> dict[str, np.ndarray] | None:
    """Return a dict of masks, (n,) or (n, s) for s splits; None without splits.

    Row i of a mask belongs to the vertex with the i-th smallest id.
    """
    splits = [split for split in _splits(folder) if split[0] == name]
    if not splits:
        names = sorted({split[0] for split in _splits(folder)})
        if names:
            raise DataError(f"{folder}: splits of {truncate(', '.join(names))}, expected those of "
                            "one data set")
        return None

    # read each file as a split
    need(3 * n * len(splits), memory, f"{folder}: {len(splits)} splits")
    columns = {key: [] for key in SPLIT}
    for _, _, path in splits:
        source.files.append(Source(path))
        archive = Archive(source.files[-1], memory)
        archive.require(*(f"{key}_mask" for key in SPLIT))
        for key in SPLIT:
            mask = archive.read(f"{key}_mask").ravel()
            if mask.shape != (n,) or not np.isin(mask, (0, 1)).all():
                raise DataError(f"{path} {key}_mask: shape {mask.shape}, expected ({n},) of 0 and "
                                "1")
            columns[key].append(mask.astype(bool))

    return {key: np.stack(masks, axis=1) if len(masks) > 1 else masks[0]
            for key, masks in columns.items()}

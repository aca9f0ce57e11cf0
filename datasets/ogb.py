"""Folders of the Open Graph Benchmark, node property prediction: raw/*.csv.gz, or raw/*.npz of the large sets.

    NAME/raw/edge.csv.gz num-node-list.csv.gz [node-feat.csv.gz] [node-label.csv.gz]
    NAME/raw/data.npz (edge_index, num_nodes_list, [node_feat]) [node-label.npz (node_label)]
    NAME/split/SCHEME/train.csv.gz valid.csv.gz test.csv.gz

Hu et al., Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020. An edge goes from source to
target, as in PyG: `u v` is the entry a[v, u]. Ids are vertices, and kept; num-node-list says how many there are.
"""
from __future__ import annotations

import re

import numpy as np

from hpgcn.check import check_range
from hpgcn.datasets.arrays import Archive
from hpgcn.datasets.parse import U, V
from hpgcn.datasets.raw import TARGET_FIRST, Raw
from hpgcn.datasets.source import LINE_LIMIT, Source, need, shown
from hpgcn.datasets.text import Grammar, Table
from hpgcn.errors import DataError

NODES = "num-node-list.csv.gz"
TABLES = ("edge.csv.gz", NODES, "node-feat.csv.gz", "node-label.csv.gz")
ARCHIVES = ("data.npz", "node-label.npz")
SPLIT = {"train": "train", "val": "valid", "test": "test"}
LISTED_ONCE = ("products", "proteins")  # add_inverse_edge in OGB's nodeproppred/master.csv
MANY = 1 << 24  # graphs of a set, which are counted only to say that they are too many
BLOCK = 1 << 24  # bytes of a table at a time


def belongs(path):
    """Whether a file is one of those above, by its name and its neighbours."""
    raw = path.parent
    return (path.name in TABLES and (raw / NODES).is_file() and (raw / TABLES[0]).is_file()) or (
        path.name in ARCHIVES and raw.name == "raw" and (raw / ARCHIVES[0]).is_file())


def graph_name(path):
    """Name of the graph: that of the folder around raw."""
    folder = path.absolute().parent
    return (folder.parent if folder.name == "raw" else folder).name.encode("utf-8", "replace").decode() or "graph"


def read(source, memory):
    """Read the set that a file belongs to.

    Labels are one class a vertex (nan: unknown), or 0 and 1 in several columns.

    Parameters
    ----------
    source : Source
        Any one of the files in raw; its `files` become all that are read.
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw

    Raises
    ------
    InputNotFoundError
        The edges or the number of vertices are missing.
    DataError
        More than one graph; a table with another number of rows; an edge or a split of vertices that are not there.
    """
    raw = source.path.parent
    source.files = []
    graph = (_from_archives if source.path.name in ARCHIVES else _from_tables)(raw, source, memory)
    graph.masks = _split(raw, source, graph.num_nodes)
    name = graph_name(source.path)
    if name.removeprefix("ogbn_").removeprefix("ogbn-") in LISTED_ONCE:
        graph.notes.append(f"{name} lists each edge once: OGB's own loader takes both directions, as --symmetrize does")
    if graph.masks is not None and graph.labels is not None and graph.labels.ndim == 1:
        for mask in graph.masks.values():
            mask &= graph.labels >= 0
    return graph


def _file(source, path):
    source.files.append(Source(path))
    return source.files[-1]


def _from_tables(raw, source, memory):
    n = _one_number(_integers(_file(source, raw / NODES), 1 << 62, MANY), raw / NODES)
    need(64 * n, memory, f"{raw / NODES}: {n} vertices")
    edges = _file(source, raw / TABLES[0])
    with edges.open() as stream:
        grammar = Grammar((U, V), b",", high=n - 1, names=("source", "target", ""), comments=False)
        columns, rows, _ = Table(stream, edges).columns(grammar, memory=memory)
    features, labels = (_numbers(_file(source, raw / name), n, memory) if (raw / name).exists() else None
                        for name in TABLES[2:])
    return Raw(n, rows, columns, features=features, labels=_labels(labels), reads=TARGET_FIRST)


def _from_archives(raw, source, memory):
    archive = Archive(_file(source, raw / ARCHIVES[0]), memory)
    where = archive.source
    for key in ("edge_index", "num_nodes_list"):
        if key not in archive:
            raise DataError(f"{where}: no array {key}, expected edge_index and num_nodes_list")
    n = _one_number(archive.read("num_nodes_list").ravel(), f"{where} num_nodes_list")
    need(64 * n, memory, f"{where} num_nodes_list: {n} vertices")
    edges = archive.read("edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where} edge_index: dtype {edges.dtype} and shape {edges.shape}, expected integers (2, e)")
    for k, numbers in enumerate(edges):
        check_range(numbers, n, f"{where} edge_index row {k}")
    _, features = archive.first("node_feat")
    _, labels = archive.first("node_label")
    notes = archive.notes
    if labels is None and (raw / ARCHIVES[1]).exists():
        file = Archive(_file(source, raw / ARCHIVES[1]), memory)
        if "node_label" not in file:
            raise DataError(f"{file.source}: no array node_label")
        labels = file.read("node_label")
        notes = notes + file.notes
    return Raw(n, edges[1], edges[0], features=features, labels=_labels(labels), reads=TARGET_FIRST, notes=notes)


def _labels(labels):
    """Class ids with -1 for unknown, from one column; several columns as they are."""
    if labels is None or labels.ndim != 2 or labels.shape[1] != 1:
        return labels
    labels = labels[:, 0]
    return np.where(np.isnan(labels), -1, labels) if labels.dtype.kind == "f" else labels


def _split(raw, source, n):
    """Masks out of the only folder in `split`, or None."""
    found = sorted(folder for folder in raw.parent.glob("split/*/") if (folder / "train.csv.gz").is_file())
    if raw.name != "raw" or not found:
        return None
    if len(found) > 1:
        raise DataError(f"{raw.parent / 'split'}: splits {shown(', '.join(folder.name for folder in found))}, expected "
                        "one")
    masks = {}
    for key, name in SPLIT.items():
        path = found[0] / f"{name}.csv.gz"
        numbers = _integers(_file(source, path), n, 2 * n)
        masks[key] = np.zeros(n, bool)
        masks[key][numbers] = True
    return masks


def _one_number(numbers, where):
    if numbers.size > 1:
        raise DataError(f"{where}: a set of {numbers.size} graphs (graph classification), expected a node "
                        "property set: one graph is trained on here")
    if numbers.size != 1 or numbers.dtype.kind not in "iu" or int(numbers[0]) < 1:
        raise DataError(f"{where}: {numbers.size} numbers {shown(numbers[:4].tolist())}, expected that of the vertices "
                        "of one graph")
    return int(numbers[0])


def _integers(file, stop, limit):
    """One integer in 0..stop - 1 a line; at most `limit` lines."""
    grammar = Grammar((U,), b",", high=stop - 1, names=("number", "", ""), comments=False)
    with file.open() as stream:
        return Table(stream, file).columns(grammar, limit=limit)[0]


def _numbers(file, n, memory):
    """A table of n lines of numbers separated by commas, (n, f) float32."""
    table = None
    with file.open() as stream:
        first = 0
        while first < n:
            lines = _lines(stream, n - first)
            if not lines:
                raise DataError(f"{file}: {first} lines, expected {n}: one for each vertex")
            if table is None:
                width = lines[0].count(b",") + 1
                need(4 * n * width, memory, f"{file}: {n} x {width} numbers")
                table = np.empty((n, width), np.float32)
            table[first:first + len(lines)] = _block(lines, width, first, file)
            first += len(lines)
        if stream.readline(LINE_LIMIT).strip():
            raise DataError(f"{file}: more than {n} lines, expected one for each vertex")
    return table


def _lines(stream, most):
    """The next lines: `most`, or what BLOCK bytes hold."""
    lines, size = [], 0
    while len(lines) < most and size < BLOCK and (line := stream.readline(LINE_LIMIT)):
        lines.append(line)
        size += len(line)
    return lines


def _block(lines, width, first, file):
    for k, line in enumerate(lines):
        if line.count(b",") != width - 1 or not line.strip():
            raise DataError(f"{file}: line {first + k + 1}: {line.count(b',') + 1} field(s), expected {width}")
    try:
        with np.errstate(over="ignore"):
            return np.loadtxt(lines, np.float32, comments=None, delimiter=",", ndmin=2).reshape(len(lines), width)
    except ValueError as error:
        row = re.search(r"at row (\d+)", str(error))
        line = f"line {first + int(row[1]) + 1}: " if row else ""
        raise DataError(f"{file}: {line}{shown(str(error).split(' at row')[0])}") from error

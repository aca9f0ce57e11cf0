"""Reader of Open Graph Benchmark folders for node and link property prediction.

    NAME/raw/edge.csv.gz num-node-list.csv.gz [node-feat.csv.gz] [node-label.csv.gz]
    NAME/raw/data.npz (edge_index, num_nodes_list, [node_feat]) [node-label.npz (node_label)]
    NAME/split/SCHEME/train.csv.gz valid.csv.gz test.csv.gz
    NAME/split/SCHEME/train.pt valid.pt test.pt (links, read by PyTorch)

Hu et al., Open Graph Benchmark: Datasets for Machine Learning on Graphs,
NeurIPS 2020. An edge goes from source to target, as in PyG: `u v` is the entry
a[v, u]. Ids are vertices, and kept; num-node-list says how many there are.
"""
import re
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.readers.npz import read_edge_index
from hpgcn.datasets.readers.numpy_files import Archive
from hpgcn.datasets.source import LINE_LIMIT, Source, folder_name, need, truncate
from hpgcn.datasets.text.lines import Grammar, read_columns
from hpgcn.datasets.text.parse import U, V
from hpgcn.datasets.text.text_cells import simple_numbers
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.links import Links

NODES = "num-node-list.csv.gz"
TABLES = ("edge.csv.gz", NODES, "node-feat.csv.gz", "node-label.csv.gz")
EDGE_FEATURES = "edge-feat.csv.gz"
READ = (*TABLES, "num-edge-list.csv.gz")
ARCHIVES = ("data.npz", "node-label.npz")
SPLIT = {"train": "train", "val": "valid", "test": "test"}
LISTED_ONCE = ("products", "proteins", "ppa", "collab", "ddi",
               "vessel")  # add_inverse_edge is true in master.csv of nodeproppred and linkproppred
BLOCK = 1 << 24  # bytes of a table per read


def belongs(path: Path) -> bool:
    """Return whether `path` is a file of an OGB data set, by its name and those beside it."""
    raw = path.parent
    if path.name in TABLES:
        return (raw / NODES).is_file() and (raw / TABLES[0]).is_file()
    return path.name in ARCHIVES and raw.name == "raw" and (raw / ARCHIVES[0]).is_file()


graph_name = folder_name


def read(source: Source, memory: int) -> Raw:
    """Read the data set that the file `source` belongs to.

    Set `source.files` to all files that were read.

    Labels are one class a vertex (nan: unknown), or 0 and 1 in several columns. Raises
    DataError for a set of several graphs, and for arrays that do not fit the number of
    vertices.
    """
    raw = source.path.parent
    source.files = []
    read_graph = _from_archives if source.path.name in ARCHIVES else _from_tables
    graph = read_graph(raw, source, memory)
    graph.masks = _split(raw, source, graph.num_nodes, memory)
    graph.links = _links(raw, source, memory, graph.notes)
    name = graph_name(source.path)
    if re.sub("^ogb[nl][_-]", "", name) in LISTED_ONCE:
        graph.if_directed = (f"{name} lists each edge once: use --symmetrize to read both "
                             "directions, like OGB's own loader")
    else:
        graph.if_directed = (f"{name} is directed, as OGB's own loader reads it, but published "
                             "models make it undirected: use --symmetrize for their graph")
    if graph.masks is not None and graph.labels is not None and graph.labels.ndim == 1:
        for mask in graph.masks.values():
            mask &= graph.labels >= 0
    return graph


def _file(source: Source, path: Path) -> Source:
    source.files.append(Source(path))
    return source.files[-1]


def _from_tables(raw: Path, source: Source, memory: int) -> Raw:
    counts = _integers(_file(source, raw / NODES), 1 << 62, memory)
    n = _one_number(counts, raw / NODES)
    need(64 * n, memory, f"{raw / NODES}: {n} vertices")
    edges = _file(source, raw / TABLES[0])
    grammar = Grammar((U, V), b",", high=n - 1, names=("source", "target", ""), comments=False)
    columns, rows, _ = read_columns(edges, grammar, memory)
    features, labels = (_numbers(_file(source, raw / name), n, memory)
                        if (raw / name).exists() else None for name in TABLES[2:])
    unread = sorted(file.name for file in raw.glob("*.csv.gz") if file.name not in READ)
    notes = [f"not read: {join_names(unread)}"] if unread else []
    if EDGE_FEATURES in unread:
        notes.append(f"--edge-features {EDGE_FEATURES} reads the features of the edges")
    return Raw(n, rows, columns, features=features, labels=_labels(labels), reads=TARGET_FIRST,
               notes=notes)


def _from_archives(raw: Path, source: Source, memory: int) -> Raw:
    archive = Archive(_file(source, raw / ARCHIVES[0]), memory)
    archive.require("edge_index", "num_nodes_list")
    where = f"{archive.source} num_nodes_list"

    n = _one_number(archive.read("num_nodes_list").ravel(), where)
    need(64 * n, memory, f"{where}: {n} vertices")
    columns, rows = read_edge_index(archive, n)

    features = archive.first("node_feat")
    labels = archive.first("node_label")
    notes = archive.notes
    if unread := [key for key in archive.unread if key != "num_edges_list"]:
        notes.append(f"not read: {join_names(unread)}")
    if "edge_feat" in unread:
        notes.append("--edge-features edge_feat reads the features of the edges")

    # labels may lie in another archive
    if labels is None and (raw / ARCHIVES[1]).exists():
        archive = Archive(_file(source, raw / ARCHIVES[1]), memory)
        archive.require("node_label")
        labels = archive.read("node_label")
        notes += archive.notes

    return Raw(n, rows, columns, features=features, labels=_labels(labels), reads=TARGET_FIRST,
               notes=notes)


def _labels(labels: np.ndarray | None) -> np.ndarray | None:
    """Return a single column of labels as class ids, -1 for NaN; else the columns."""
    if labels is None or labels.ndim != 2 or labels.shape[1] != 1:
        return labels
    labels = labels[:, 0]
    if labels.dtype.kind != "f":
        return labels
    labels = np.where(np.isnan(labels), -1, labels)
    whole = labels.astype(np.int64)
    return whole if (whole == labels).all() else labels


def _split(raw: Path, source: Source, n: int, memory: int) -> dict[str, np.ndarray] | None:
    """Return the masks of the only folder in `split` beside `raw`; None without one."""
    folder = _split_folder(raw, "train.csv.gz")
    if folder is None:
        return None
    masks = {}
    for key, name in SPLIT.items():
        numbers = _integers(_file(source, folder / f"{name}.csv.gz"), n, memory)
        masks[key] = np.isin(np.arange(n), numbers)
    return masks


def _links(raw: Path, source: Source, memory: int, notes: list[str]) -> Links | None:
    """Return the links of the only folder in `split` beside `raw`; None without one.

    `notes` get the arrays that are not read.
    """
    folder = _split_folder(raw, "train.pt")
    if folder is None:
        return None
    from hpgcn.interop import link_splits, pt

    files = {key: _file(source, folder / f"{name}.pt") for key, name in SPLIT.items()}
    parts = {key: pt.read_dict(file.path, memory, str(file)) for key, file in files.items()}
    links = {key: link_splits.links_of_ogb(part, str(files[key])) for key, part in parts.items()}
    if unread := sorted({*chain(*parts.values())} - {*link_splits.OF_OGB}):
        notes.append(f"not read of links: {join_names(unread)}")
    return links


def _split_folder(raw: Path, name: str) -> Path | None:
    """Return the only folder in `split` beside `raw` with a file `name`; None without one."""
    folders = sorted(file.parent for file in raw.parent.glob(f"split/*/{name}"))
    if raw.name != "raw" or not folders:
        return None
    if len(folders) > 1:
        names = truncate(", ".join(folder.name for folder in folders))
        raise DataError(f"{raw.parent / 'split'}: splits {names}, expected one")
    return folders[0]


def _one_number(numbers: np.ndarray, where: object) -> int:
    if numbers.size > 1:
        raise DataError(f"{where}: a set of {numbers.size} graphs (graph classification), expected "
                        "a node property set with one graph")
    if numbers.size != 1 or numbers.dtype.kind not in "iu" or int(numbers[0]) < 1:
        raise DataError(f"{where}: {numbers.size} numbers {truncate(numbers[:4].tolist())}, "
                        "expected one: the number of vertices")
    return int(numbers[0])


def _integers(file: Source, stop: int, memory: int) -> np.ndarray:
    """Return the integers in a file that has one integer in 0..stop - 1 on each line."""
    grammar = Grammar((U,), b",", high=stop - 1, names=("number", "", ""), comments=False)
    return read_columns(file, grammar, memory)[0]


def _numbers(file: Source, n: int, memory: int) -> np.ndarray:
    """Return the table in a file of n lines of comma-separated numbers, (n, f) float32."""
    table = None
    first = 0
    with file.open() as stream:
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


def _lines(stream: BinaryIO, most: int) -> list[bytes]:
    lines = []
    size = 0
    while len(lines) < most and size < BLOCK and (line := stream.readline(LINE_LIMIT)):
        lines.append(line)
        size += len(line)
    return lines


def _block(lines: Any, width: int, first: int, file: Source) -> np.ndarray:
    """Return the numbers in `lines`, of which the first is line `first`, from 0."""
    for k, line in enumerate(lines, first + 1):
        if line.count(b",") != width - 1 or not line.strip():
            raise DataError(f"{file}: line {k}: {line.count(b',') + 1} field(s), expected {width}")
    if (block := simple_numbers(lines, width)) is not None:
        return block
    try:
        with np.errstate(over="ignore"):
            block = np.loadtxt(lines, np.float32, comments=None, delimiter=",", ndmin=2)
    except ValueError as error:
        row = re.search(r"at row (\d+)", str(error))
        line = f"line {first + int(row[1]) + 1}: " if row else ""
        raise DataError(f"{file}: {line}{truncate(str(error).split(' at row')[0])}") from error
    return block.reshape(len(lines), width)

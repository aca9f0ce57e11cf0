"""Reader of folders of DGL's CSVDataset: meta.yaml names the tables of nodes and edges.

Only data sets of one graph are read. meta.yaml is read as lines `key: value`, and lists
of such lines under edge_data and node_data.
"""
from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.source import LINE_LIMIT, need, open_all, truncate
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError, InputNotFoundError
from hpgcn.graphs.classes import parse_classes
from hpgcn.graphs.edge_weights import choose_weight, join_names, plain
from hpgcn.graphs.validation import SPLIT, check_finite

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.source import Source

META = "meta.yaml"
LONGEST = 1 << 16  # most bytes of meta.yaml
LINE = re.compile(r"( *)(- +)?([A-Za-z_]+) *:(?: +(.*))?")
PLAIN = re.compile(r"""'[^']*'|"[^"\\]*"|[^\s'"\[\]{}&*|>!%@`,#][^\[\]{}#]*|\[[^\[\]{}]*\]""")
KEYS = {"dataset_name", "version", "separator", "edge_data", "node_data", "graph_data", "file_name",
        "ntype", "etype"}
FEATURES = ("feat", "feats", "feature", "features", "x", "attr")
LABELS = ("label", "labels", "y")
FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
WAY = ("in Python hpgcn.from_dgl(g) takes one graph g of one type, such as "
       "dgl.to_homogeneous(dgl.data.CSVDataset(FOLDER)[0])")
CELL_BYTES = 120  # memory per cell, without its text


def belongs(path: Path) -> bool:
    """Return whether `path` is the meta.yaml of a graph, or a table named in it."""
    meta = path.with_name(META)
    if path.suffix not in (".csv", ".yaml") or not meta.is_file():
        return False
    with open(meta, "rb") as file:
        text = file.read(LONGEST)
    return b"edge_data" in text and (path.name == META or path.name.encode() in text)


def graph_name(path: Path) -> str:
    return path.absolute().parent.name or "graph"


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read the nodes and edges of the graph in a folder.

    An edge src -> dst is the entry A[dst, src].
    """
    folder = source.path.parent
    meta, = source.files = open_all([folder / META])
    edge_file, node_file, separator = _tables(meta)
    try:
        source.files += open_all([folder / edge_file, folder / node_file])
    except InputNotFoundError as error:
        raise InputNotFoundError(f"{meta} names {truncate(error)}") from error
    _, edges, vertices = source.files
    names, columns = _columns(vertices, separator, memory)
    raw, nodes = _vertices(vertices, names, columns)
    _edges(edges, separator, nodes, raw, memory, options.asked_weights)
    return raw


def _tables(file: Source) -> tuple[str, str, str]:
    """Return the names of the edge table, of the node table, and the separator."""
    meta = _parse(file)
    tables = {}
    for key in ("edge_data", "node_data"):
        entries = meta.get(key)
        if not isinstance(entries, list) or not entries:
            raise DataError(f"{file}: no list {key}, expected edge_data and node_data with "
                            "file_name")
        if len(entries) > 1:
            raise DataError(f"{file}: {len(entries)} tables in {key}, expected one type of nodes "
                            f"and of edges: {WAY}")
        name = entries[0].get("file_name")
        if not name or "/" in name or "\0" in name:
            raise DataError(f"{file}: {key} lacks file_name, the name of a file in this folder")
        tables[key] = name

    separator = meta.get("separator", ",")
    if len(separator) != 1:
        raise DataError(f"{file}: separator is {truncate(separator, 40)!r}, expected one character")
    return tables["edge_data"], tables["node_data"], separator


def _parse(file: Source) -> dict[str, Any]:
    """Return the content of meta.yaml as a dict of strings and lists of dicts.

    Raise DataError for other YAML.
    """
    with file.open() as stream:
        text = stream.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise DataError(f"{file}: more than {LONGEST} bytes")

    # a line is `key: value`; items of lists begin with a dash or a blank
    values, block = {}, None
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        line = line.rstrip()
        if not line.strip() or line.lstrip()[0] == "#" or line in ("---", "..."):
            continue
        match = LINE.fullmatch(line)
        value = re.sub(r"\s+#.*", "", match[4] or "") if match else ""
        inside = bool(match and (match[1] or match[2]))
        known = match and match[3] in KEYS and (not value or PLAIN.fullmatch(value))
        if not known or (inside and (block is None or not value)):
            raise DataError(f"{file}: line {number}: {truncate(line.strip(), 40)!r}, expected "
                            f"`key: value` of {', '.join(sorted(KEYS))}")

        # without indent: a value is text, and a missing value begins a list
        value = value[1:-1] if value[:1] in ("'", '"') else value
        if not inside:
            block = None if value else values.setdefault(match[3], [])
            if value:
                values[match[3]] = value
            continue

        # a dash begins the next item of the list
        if match[2] or not block:
            block.append({})
        block[-1][match[3]] = value
    return values


@contextmanager
def _reader(file: Source, separator: str) -> Iterator:
    """Open a CSV file and give an iterator over its rows; a field may be a long list."""
    limit = csv.field_size_limit(LINE_LIMIT)
    try:
        with file.open() as stream:
            yield csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""),
                             delimiter=separator)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: broken CSV ({truncate(error)})") from error
    finally:
        csv.field_size_limit(limit)


def _columns(file: Source, separator: str, memory: int) -> tuple[list[str], dict[str, list[str]]]:
    """Return the column names of a CSV file, and a dict from name to list of cells."""
    with _reader(file, separator) as rows:
        names = [name.strip() for name in next(rows, [])]
        columns = [[] for _ in names]
        size = 0
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(f"{file}: line {rows.line_num}: {len(row)} field(s), expected "
                                f"{len(names)}")
            for column, text in zip(columns, row):
                column.append(text.strip())
            size += sum(map(len, row)) + CELL_BYTES * len(row)
            need(size, memory, file)

    if len(set(names)) < len(names):
        raise DataError(f"{file}: line 1: {truncate(', '.join(names))}, expected distinct names")
    return names, dict(zip(names, columns))


def _one_graph(columns: dict[str, list[str]], file: Source) -> None:
    """Raise DataError if the column graph_id of a table has several values."""
    graphs = set(columns.get("graph_id", ()))
    if len(graphs) > 1:
        raise DataError(f"{file}: {len(graphs)} graphs (graph_id), expected one: {WAY}")


def _require(columns: dict[str, list[str]], file: Source, *names: str) -> None:
    for name in names:
        if name not in columns:
            raise DataError(f"{file}: line 1: columns {truncate(', '.join(columns)) or 'none'}, "
                            f"expected {' and '.join(names)}")


def _vertices(file: Source, names: list[str], columns: dict[str, list[str]]) -> tuple[Raw, Nodes]:
    """Return a Raw with the vertices of the node table, and the Nodes of their ids."""
    _require(columns, file, "node_id")
    _one_graph(columns, file)
    ids = columns["node_id"]
    nodes = Nodes(ids, file)
    order = nodes.order
    none = np.empty(0, np.int64)

    # sort the vertices by their ids
    raw = Raw(len(ids), none, none, original_ids=nodes.original_ids, reads=TARGET_FIRST)
    read = {"node_id", "graph_id"}

    # find features and labels by the usual names of columns
    feature = next((name for name in names if plain(name) in FEATURES), None)
    if feature is not None:
        read.add(feature)
        raw.features = _numbers(columns[feature], f"{file}: {feature}")[order]
    label = next((name for name in names if plain(name) in LABELS), None)
    if label is not None:
        read.add(label)
        where = f"{file}: {label}"
        if any("," in text for text in columns[label]):
            raw.labels = _numbers(columns[label], where)[order]
        else:
            classes = parse_classes(columns[label], where, lambda row: f"line {row + 2}",
                            classes=True)
            raw.labels, raw.class_names = classes.numbers[order], classes.names
            raw.notes += classes.notes

    # read the masks of train, val and test
    masks = {}
    for key in SPLIT:
        name = f"{key}_mask"
        if name not in columns:
            continue
        read.add(name)
        for row, text in enumerate(columns[name]):
            if text.lower() not in FLAGS:
                raise DataError(f"{file}: {name}: line {row + 2}: {truncate(text, 40)!r}, expected "
                                "True or False")
        masks[key] = np.array([FLAGS[text.lower()] for text in columns[name]], bool)[order]
    raw.masks = masks or None

    # name the columns that have no meaning here
    if unread := [name for name in names if name not in read]:
        raw.notes.append(f"columns of {file.path.name} are not read: {join_names(unread)}")
    return raw, nodes


def _numbers(texts: list[str], where: object) -> np.ndarray:
    """Parse `texts` of the form `number,number,..` into an array (n, f) float64."""
    rows = []
    for row, text in enumerate(texts):
        try:
            rows.append(np.array(text.split(",") if text else [], dtype=np.float64))
        except ValueError as error:
            raise DataError(f"{where}: line {row + 2}: {truncate(error)}") from error
        if rows[-1].size != rows[0].size:
            raise DataError(f"{where}: line {row + 2}: {rows[-1].size} numbers, expected "
                            f"{rows[0].size}")
    return np.array(rows)


def _edges(file: Source, separator: str, nodes: Nodes, raw: Raw, memory: int,
           weights: str | bool | None) -> None:
    """Read the edge table into `raw`, with the weights that `choose_weight` finds."""
    names, columns = _columns(file, separator, memory)
    _require(columns, file, "src_id", "dst_id")
    _one_graph(columns, file)
    ends = []
    for key in ("src_id", "dst_id"):
        for row, name in enumerate(columns[key]):
            if name not in nodes.number:
                raise DataError(f"{file}: {key}: line {row + 2}: {truncate(name, 40)!r} is not a "
                                f"node_id of {nodes.where.path.name}")
        ends.append(np.array([nodes.number[name] for name in columns[key]], np.int64))
    raw.columns, raw.rows = ends

    others = [name for name in names if name not in ("src_id", "dst_id", "graph_id")]
    weight = choose_weight(others, weights, str(file), "--weights {}".format)
    if weight is not None:
        values = _numbers(columns[weight], f"{file}: {weight}")
        if values.ndim != 2 or values.shape[1:] != (1,):
            raise DataError(f"{file}: {weight}: shape {values.shape}, expected one number per edge")
        raw.values = values[:, 0]
        check_finite(raw.values, f"{file}: {weight}")
        raw.notes.append(f"weights read from {weight} (--unweighted sets them to 1)")
    if unread := [name for name in others if name != weight]:
        raw.notes.append(f"columns of {file.path.name} are not read: {join_names(unread)}")

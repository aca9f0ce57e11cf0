"""Join labels, features and splits of several files with the vertices of a graph."""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.source import Source, truncate
from hpgcn.datasets.tables import table_files
from hpgcn.datasets.tables.label_files import read_labels
from hpgcn.datasets.tables.split_files import read_split, read_split_folder
from hpgcn.datasets.tables.target_files import read_targets
from hpgcn.datasets.tables.vertex_ids import VertexIds
from hpgcn.datasets.tables.vertex_rows import by_vertex, missing_vertices, take_positional
from hpgcn.datasets.text.data_table import plural
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.classes import check_classes, renumber_classes
from hpgcn.graphs.validation import (
    SPLIT,
    check_features,
    check_labels,
    check_masks,
    check_targets,
)

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.sorting.external import Entries
    from hpgcn.datasets.tables.table_files import TableOptions
    from hpgcn.datasets.tables.vertex_rows import VertexRows


def join(raw: Raw, entries: Entries | None, options: TableOptions, where: str) -> None:
    """Set labels or targets, features and masks of `raw` from files; add their vertices.

    `entries` are those of an edge list on disk, or None. Errors are those of
    `hpgcn.datasets.convert.read`.
    """
    if not any((options.labels, options.features, options.split, options.ids, options.targets)):
        if options.add_vertices:
            raise UsageError("--add-vertices: only with a file of --features, --labels, --targets "
                             "or --split")
        return

    # read the order of rows for files without ids
    vertices = VertexIds(raw, where, options.memory)
    options = replace(options, count=raw.num_nodes)
    sources, order = [], None
    if options.ids is not None:
        path, column = table_files.file_and_column(options.ids)
        source = Source(path)
        order = table_files.read_ids(source, column, vertices, options)
        options = replace(options, count=order.num_rows)
        sources.append(source)

    # read the files; each marks the columns that it uses
    files = []
    if options.split is not None:
        split, column_of_split = table_files.file_and_column(options.split)
        if column_of_split:
            options.use(split if split != table_files.GRAPH else where, column_of_split)
    if options.labels is not None:
        path, column = table_files.file_and_column(options.labels)
        options = replace(options, label_column=column or options.label_column)
        source = _open(path, raw, where, (column or "").split(","))
        sources.append(source)
        files.append(read_labels(source, vertices, options))
    if options.targets is not None:
        path, column = table_files.file_and_column(options.targets)
        source = _open(path, raw, where, (column or "").split(","))
        sources.append(source)
        files.append(read_targets(source, column, vertices, options))
    if options.split is not None:
        counts = [options.count]
        if order is None and vertices.last is not None:
            counts.append(vertices.last - raw.base + 1)
        if split and os.path.isdir(split):
            found, parts = read_split_folder(split, vertices, options)
            sources += parts
        else:
            sources.append(_open(split, raw, where, [column_of_split or "*"]))
            found = read_split(sources[-1], column_of_split or None, vertices, options, counts)
        files.append(found)
    if options.features is not None:  # last, to omit the columns of labels, targets and split
        path, column = table_files.file_and_column(options.features)
        if path != table_files.GRAPH:
            path = options.features
        elif column:
            options = replace(options, feature_columns=tuple(column.split(",")))
        source = _open(path, raw, where, options.feature_columns or ("*",))
        sources.append(source)
        files.append(table_files.read_features(source, vertices, options))

    # refuse an order that no file uses
    if order is not None and all(rows.keys is not None for rows in files):
        raise UsageError(f"--ids {order.where}: all files of labels, features and splits have ids, "
                         "so --ids has no use")

    # add vertices that only tables have
    _add_vertices(vertices, entries, [*files, *([order] if order else [])])
    if options.add_vertices and order is None:
        _add_trailing(vertices, entries, files)

    # assign the rows to the vertices
    places = _places(vertices, files, order)
    if _leave_out(vertices, entries, files, places):
        places = _places(vertices, files, order)
    for rows, at in zip(files, places):
        raw.notes += rows.notes
        _take(raw, rows, at, options)
    for source in sources:
        if isinstance(source, table_files.VertexAttributes):
            raw.attributes_read |= source.names
        else:
            source.refuse_changed()


def _open(path: Path | str, raw: Raw, where: str, names: Sequence) -> Any:
    """Return a Source, or the attributes called `names` in the file `where` of the graph."""
    if path == table_files.GRAPH:
        return table_files.VertexAttributes(raw, where, names)
    return Source(path)


def close_gaps(raw: Raw, where: str) -> None:
    """Renumber the classes of `raw` if their numbers have large gaps."""
    labels = raw.labels
    if getattr(labels, "ndim", 0) != 1 or labels.dtype.kind not in "iuf" or raw.class_names:
        return
    if labels.dtype.kind == "f":
        labels = np.where(np.isfinite(labels), labels, -1)
        if (labels != np.floor(labels)).any() or labels.max(initial=0) >= 2**53:
            return  # refused later
    numbers, names, notes = renumber_classes(labels.astype(np.int64))
    if names is not None:
        raw.labels, raw.class_names = numbers, names
        raw.notes += [f"{where}: {note}" for note in notes]


def _add_vertices(vertices: VertexIds, entries: Entries | None, files: list[VertexRows]) -> None:
    """Add a vertex for each id that tables have but no edge.

    DataError if the input already determines all vertices.
    """
    new = {}
    for rows in files:
        if rows.keys is None:
            continue

        # find ids of the table that no edge has
        rows_in_graph = vertices.find(rows.keys)
        _refuse_shifted(rows, vertices)
        unknown = np.flatnonzero(rows_in_graph < 0)
        if not unknown.size:
            continue

        # refuse ids that cannot be new vertices
        where = f"{rows.where}: {rows.place(unknown[0])}: id {truncate(rows.keys[unknown[0]], 40)}"
        if not vertices.is_open:
            raise DataError(f"{where} is not a vertex, expected {vertices.describe()} "
                            f"({unknown.size} ids in total)")
        if unknown.size == len(rows_in_graph):
            raise DataError(f"{where} is in no edge, like all ids of this file: ids of the edges "
                            f"are {vertices.describe()}" + "; use --id-column NAME to name another "
                                                           "column"
                            * (rows.order or "").startswith("column"))
        keys = [rows.keys[k] for k in unknown]
        if not vertices.has_names and min(keys) < vertices.raw.base:
            raise DataError(f"{rows.where}: id {min(keys)}, but ids begin at {vertices.raw.base} "
                            "(--base)")

        # add the vertices, and note their number
        more = {key: rows.where for key in keys if key not in new}
        new.update(more)
        if more:
            vertices.raw.notes.append(
                f"{rows.where}: {plural(len(more), 'vertex', 'vertices')} without edges added: "
                f"ids of {rows.kind} in no edge")
    if new:
        vertices.move(entries, *vertices.add(list(new)))


def _refuse_shifted(rows: VertexRows, vertices: VertexIds) -> None:
    """Raise DataError if ids of a table are 0..n-1 but those of the edges 1..n, or vice versa."""
    raw = vertices.raw
    if vertices.has_names or not vertices.is_open or raw.original_ids is not None:
        return
    inside = np.flatnonzero(raw.in_edge) + raw.base
    low, high = int(np.min(rows.keys)), int(np.max(rows.keys))
    first, last = int(inside[0]), int(inside[-1])
    whole = high - low == len(rows.keys) - 1 and last - first == high - low
    if whole and abs(low - first) == 1:
        raise DataError(f"{rows.where}: ids {low}..{high}, but ids of the edges are "
                        f"{first}..{last}: use the same numbers in both files, or give --num-nodes "
                        f"{max(high, last) - raw.base + 1} if they already mean the same vertices")


def _add_trailing(vertices: VertexIds, entries: Entries | None, files: list[VertexRows]) -> None:
    """Add vertices without edges at the end for files without ids that have more rows."""
    raw = vertices.raw
    rows = max((rows for rows in files if rows.keys is None), default=None,
               key=lambda rows: rows.num_rows)
    if rows is None or not vertices.is_open or raw.original_ids is not None \
            or rows.num_rows <= raw.num_nodes:
        return
    if raw.first == 1:
        raise DataError(f"{rows.where}: {rows.size}, expected {raw.num_nodes} rows; ids begin at "
                        "1: give --base 0 or --base 1 as the id of row 0")
    more = plural(rows.num_rows - raw.num_nodes, "vertex", "vertices")
    raw.notes.append(f"{rows.where}: {rows.num_rows} rows: {more} without edges added after the "
                     "largest id")
    vertices.move(entries, np.arange(raw.num_nodes), rows.num_rows, None)


def _places(vertices: VertexIds, files: list[VertexRows],
            order: VertexRows | None) -> list[np.ndarray]:
    return [take_positional(rows, vertices, order) if rows.keys is None
            else vertices.find(rows.keys) for rows in files]


def _leave_out(vertices: VertexIds, entries: Entries | None, files: list[VertexRows],
               places: list[np.ndarray]) -> bool:
    """Drop numbers that neither an edge nor a table has; return whether there were any.

    Only numbers below the largest id are dropped.
    """
    raw = vertices.raw
    index = next((k for k, rows in enumerate(files) if rows.kind == "features"), None)
    if index is None or not vertices.is_open or files[index].keys is None:
        return False

    # find numbers that no edge and no table has
    missing = missing_vertices(places[index], raw.num_nodes)
    listed_there = np.zeros(raw.num_nodes, bool)
    for rows, place in zip(files, places):
        if rows.keys is not None:
            listed_there[place] = True
    if not missing.any() or (missing & (raw.in_edge | listed_there)).any():
        return False

    # renumber the vertices without these gaps, and store the ids of the file
    image = np.where(missing, -1, np.cumsum(~missing) - 1)
    ids = np.arange(raw.num_nodes) + raw.base if raw.original_ids is None else raw.original_ids
    count = plural(np.count_nonzero(missing), "number")
    raw.notes.append(f"{files[index].where}: {count} below the largest id dropped: in no edge and "
                     "without features")

    raw.first = 0
    raw.gap_notes = []
    vertices.move(entries, image, int(np.count_nonzero(~missing)), ids[~missing])
    return True


def vertex_range(raw: Raw) -> str:
    """Return the names of the first and the last vertex, for rows taken by position."""
    if raw.original_ids is None:
        return f"{raw.base}..{raw.base + raw.num_nodes - 1}"
    return f"0..{raw.num_nodes - 1} of the graph file"


def _take(raw: Raw, rows: VertexRows, places: np.ndarray, options: TableOptions) -> None:
    """Set the labels, masks or features of `raw` from rows, whose vertices are `places`."""
    n = raw.num_nodes

    # note how the rows were joined
    missing = missing_vertices(places, n)
    count = int(np.count_nonzero(missing))
    if rows.order is not None:
        note = (f"{rows.where}: {plural(rows.num_rows, 'row')} of {rows.kind} matched by "
                f"{rows.order}")
        if rows.kind == "targets":
            known = np.count_nonzero(~np.isnan(rows.values[places >= 0]).all(axis=1))
            if known < n:
                note += f", {plural(n - known, 'vertex', 'vertices')} without a target"
        if rows.kind == "labels":
            blank = rows.values[places >= 0] < 0 if rows.values.ndim == 1 else ()
            if without := count + np.count_nonzero(blank):
                note += f", {plural(without, 'vertex', 'vertices')} without a label"
        raw.notes.append(note)
    elif len(places) > n:
        raw.notes.append(f"{rows.where}: {rows.kind} have one row per id "
                         f"{raw.base}..{raw.original_ids.max()}: only those of the {n} vertices "
                         "are used")
    else:
        names = vertex_range(raw)
        raw.notes.append(f"{rows.where}: rows of {rows.kind} are those of vertices {names}, in "
                         "order")

    # remove unlabeled vertices from a split
    if rows.kind == "split":
        masks = by_vertex(rows, places, n, False)
        if raw.labeled is not None:
            unlabeled = masks.reshape(n, -1).any(axis=1) & ~raw.labeled
            word = "label" if raw.targets is None else "target"
            if unlabeled.any():
                raw.notes.append(f"{rows.where}: {plural(unlabeled.sum(), 'vertex', 'vertices')} "
                                 f"without a {word} left out of the split")
                masks[unlabeled] = False
        masks = {part: masks[:, k] for k, part in enumerate(SPLIT)}
        raw.masks = check_masks(masks, n, None, rows.where)
        raw.split = "file"
        return

    # refuse a vertex without a row, unless the file may leave some out
    if count and rows.kind == "features" and rows.is_partial:
        raw.notes.append(f"{rows.where}: {plural(count, 'vertex', 'vertices')} without features")
    elif count and rows.kind != "targets" and (rows.kind == "features" or rows.values.ndim != 1):
        v = int(np.argmax(missing))
        name = v + raw.base if raw.original_ids is None else raw.original_ids[v]
        hint = "; ids begin at 1: use --base 1 to drop vertex 0" if raw.first == 1 else ""
        raise DataError(f"{rows.where}: {count} vertices have no row of {rows.kind}, the first is "
                        f"id {truncate(name, 40)}, expected one row per vertex{hint}")

    # order labels, targets or features by vertex
    values = by_vertex(rows, places, n, {"labels": -1, "targets": np.nan}.get(rows.kind, 0))
    if rows.kind == "labels":
        raw.class_names = rows.class_names
        if not options.classes:
            check_classes(rows.values, rows.class_names, rows.where)
        raw.labels = values
        close_gaps(raw, rows.where)
        raw.labels, _ = check_labels(raw.labels, n, rows.where)
    elif rows.kind == "targets":
        raw.targets, raw.target_names = check_targets(values, n, rows.where), rows.target_names
    else:
        raw.features = check_features(values, n, rows.where)
        raw.feature_names = rows.feature_names

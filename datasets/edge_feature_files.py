"""Readers of edge features: columns of an edge list, an array, or a file of rows."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets import formats
from hpgcn.datasets.readers import numpy_files
from hpgcn.datasets.source import Source, need, truncate
from hpgcn.datasets.tables import roles, table_files
from hpgcn.datasets.tables.vertex_ids import VertexIds
from hpgcn.datasets.text.column_names import is_header
from hpgcn.datasets.text.data_table import plural
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_features import check_edge_features
from hpgcn.graphs.edge_weights import join_names
from hpgcn.model import MODELS

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.tables.table_files import TableOptions
    from hpgcn.datasets.text.data_table import Table

FLAG = "--edge-features"
ARRAYS = ("npz", "pt", "ogb")  # formats whose files may have features in another array


def read_edge_features(source: Source, fmt: str, raw: Raw, options: TableOptions) -> np.ndarray:
    """Return the features of the edges of `raw`, (e, d) float32, in their order.

    Extend `raw.notes`.

    Parameters
    ----------
    source : Source
        The file of the edges, in format `fmt`.
    options : TableOptions
        `edge_features` is a file, names of columns of the list, or the name of an array.
    """
    choice = options.edge_features
    beside = Path(source.path).parent / choice
    path = next((path for path in (choice, beside) if os.path.isfile(path)), None)
    if path is not None:
        file = Source(path)
        X, names = _from_file(file, raw, options)
        source.files.append(file)
    elif fmt in formats.STREAMED:
        X, names = _from_columns(source, options.edge_feature_names, raw, options)
    elif fmt in ARRAYS:
        X, names = _from_array(source, choice, fmt, options.memory), choice
    else:
        raise UsageError(f"{FLAG} {truncate(choice)}: no such file; names are of columns of an "
                         f"edge list ({', '.join(formats.STREAMED)}) or of arrays "
                         f"({', '.join(ARRAYS)}), not for {fmt}")

    where = f"{source.path if path is None else path}"
    count = raw.rows.size
    if X.shape[0] != count:
        raise DataError(f"{where}: {plural(X.shape[0], 'row')} of edge features, but the input "
                        f"has {plural(count, 'edge')}: expected one row for each, in their order")
    X = check_edge_features(X, count, where)
    models = ", ".join(name for name, layer in MODELS.items() if layer.uses_edge_features)
    raw.notes.append(f"{where}: {plural(X.shape[1], 'edge feature')} ({names}), which model "
                     f"{models} reads")
    return X


def _from_file(file: Source, raw: Raw, options: TableOptions) -> tuple[Any, str]:
    """Return the matrix in a file with a row for each edge, and names of its columns."""
    if table_files.is_array(file):
        X, notes = table_files.read_matrix_file(file, options.memory)
        raw.notes += notes
        need(4 * int(np.prod(X.shape)), options.memory, file)
        return (X.toarray() if sp.issparse(X) else X), file.path.name

    table = _table(file, raw, options, None)
    names = [column.name for column in table.columns]
    if is_header(names):
        raise DataError(f"{file}: columns {table.list_columns()} name the ends of edges: expected "
                        "the features alone, a row for each edge of the input in its order")
    return _matrix(table, range(len(names)), options)


def _from_columns(source: Source, patterns: Sequence[str], raw: Raw,
                options: TableOptions) -> tuple[np.ndarray, str]:
    """Return the columns of the edge list that `patterns` name, (e, d), and their names."""
    table = _table(source, raw, options, patterns)
    return _matrix(table, roles.find_features(table, None, patterns, flag=FLAG)[0], options)


def _table(file: Source, raw: Raw, options: TableOptions, patterns: Any) -> Table:
    """Return the Table of a file with a row for each edge."""
    options = dataclasses.replace(options, id_column=None, label_column=None,
                                  feature_columns=patterns, count=raw.rows.size)
    vertices = VertexIds(raw, str(file), options.memory)
    table, _ = table_files.read_table(file, vertices, options)
    if table is None:
        raise DataError(f"{file}: lists, expected a table with a row for each edge")
    return table


def _matrix(table: Table, chosen: Sequence[int], options: TableOptions) -> tuple[np.ndarray, str]:
    names = join_names([table.title(k) for k in chosen])
    return table_files.read_matrix(table, list(chosen), options.memory), names


def _from_array(source: Source, name: str, fmt: str, memory: int) -> np.ndarray:
    """Return the array called `name` in the file of the edges."""
    if fmt == "pt":
        from hpgcn.interop import pt

        arrays = pt.read_data(source.path, memory, str(source))
    else:
        arrays = numpy_files.Archive(source, memory)
    if name not in arrays:
        raise DataError(f"{source}: no array {truncate(name)} ({FLAG}), expected one of "
                        f"{join_names(arrays)}")
    found = arrays[name] if fmt == "pt" else arrays.read(name)
    if not isinstance(found, np.ndarray):
        raise DataError(f"{source} {truncate(name)}: a {type(found).__name__}, expected an array "
                        "(e, d)")
    return found


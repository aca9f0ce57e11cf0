"""Readers of targets: values to predict, in tables or in arrays of the source."""
from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import need
from hpgcn.datasets.tables import roles, table_files
from hpgcn.datasets.tables.vertex_rows import VertexRows
from hpgcn.datasets.text.column_names import INDEX, MASK, SPLIT_NAME
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.contents import check_names
from hpgcn.graphs.edge_weights import join_names, plain
from hpgcn.graphs.validation import check_targets

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.tables.table_files import TableOptions
    from hpgcn.datasets.tables.vertex_ids import VertexIds
    from hpgcn.datasets.text.data_table import Table


def read_targets(source: Source, columns: str | None, vertices: VertexIds,
                 options: TableOptions) -> VertexRows:
    """Return the VertexRows of a file of targets, (rows, t) float64 with NaN for unknown.

    `columns` are names or patterns, joined by commas. None stands for all columns except
    ids and split.
    """
    where = str(source)
    rows = partial(VertexRows, "targets", where)
    if table_files.is_array(source):
        array, notes = table_files.read_array(source, options.memory, "fiub")
        return rows(check_targets(array, len(array), where), notes=notes)
    table, _ = table_files.read_table(source, vertices, options)
    if table is None:
        raise DataError(f"{where}: lists of numbers, expected a table with named columns, or .npy")

    # find the columns of targets and of ids
    taken = options.used_in(table)
    chosen: list[int] = []
    if columns is not None:
        chosen, _ = roles.find_features(table, None, columns.split(","), flag="--targets")
    ids = roles.find_ids(table, vertices, options.id_column, taken + chosen)
    if columns is None:
        chosen = _all_columns(table, ids, taken, options)
    for k in chosen:
        options.use(where, table.columns[k].name)

    # read numbers; an empty cell is unknown
    need(8 * table.num_rows * len(chosen), options.memory, where)
    made = rows(np.concatenate([_numbers(table, k) for k in chosen], axis=1), place=table.place)
    made.values = check_targets(made.values, table.num_rows, where)
    names = tuple(table.columns[k].name for k in chosen)
    made.notes = [*table.notes, f"{where}: targets: {join_names(names)}"]
    if table.has_names and len(names) == made.values.shape[1]:
        made.target_names = check_names("target_names", names, len(names), len(names), where)
    return table_files.with_ids(made, table, ids, vertices)


def _all_columns(table: Table, ids: int | None, taken: list[int],
                 options: TableOptions) -> list[int]:
    """Return the indices of all columns that may be targets; refuse a file of features."""
    if str(options.features) == table.where:
        raise UsageError(f"--targets {table.where}: is the file of --features too: name the "
                         f"columns, --targets {table.where}:NAME,...")
    chosen = [k for k, column in enumerate(table.columns) if k != ids and k not in taken
              and not re.fullmatch(f"{SPLIT_NAME}|{MASK}|{INDEX}", plain(column.name))]
    if not chosen:
        raise DataError(f"{table.where}: columns {table.list_columns()}: no column has targets")
    return chosen


def _numbers(table: Table, k: int) -> np.ndarray:
    """Return column k as (rows, width) float64; DataError for text or an infinite number."""
    hint = f"; name the columns of targets, --targets {table.where}:NAME,..."
    numbers = table.number_column(k, hint).reshape(table.num_rows, -1)
    infinite = np.isinf(numbers).any(axis=1)
    if infinite.any():
        raise DataError(f"{table.where}: {table.place(int(infinite.argmax()))}: column "
                        f"{table.title(k)} is infinite, expected a number, or an empty cell for "
                        "unknown")
    return numbers

"""Readers of ids that a request names: pairs of vertices, and lists of them."""
from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from hpgcn.datasets.source import Source
from hpgcn.datasets.tables.table_files import PARQUET, file_and_column
from hpgcn.datasets.text.column_names import find_ends, is_header
from hpgcn.datasets.text.delimited import read_delimited
from hpgcn.datasets.text.parquet_table import read_parquet
from hpgcn.errors import DataError
from hpgcn.graphs.classes import NUMBER
from hpgcn.graphs.named_vertices import read_ids

if TYPE_CHECKING:
    import numpy as np

    from hpgcn.datasets.text.data_table import Table

log = logging.getLogger("hpgcn")


def read_pairs(path: str, ids: np.ndarray) -> tuple[list[list[str]], list[str]]:
    """Return the k pairs of ids in a table of text or Parquet, and the place of each.

    The columns are those called like the ends of an edge, else the first two. A first line
    without an id of the graph is a header, which is logged if its words are not known.

    Parameters
    ----------
    path : str
    ids : array, (n,), int64 or text
        Ids of all vertices.

    Raises
    ------
    InputNotFoundError
    DataError
        Fewer than two columns, or no pair.
    """
    table, texts = _read(path, ids)
    if not table.names_known:
        first = [cell.strip() for cell in table.first]
        are_ids = [cell in texts or bool(NUMBER.fullmatch(cell)) for cell in first[:2]]
        named = is_header(first) and not all(are_ids)
        table.name_columns(named or not any(are_ids))
        if table.has_names and not named:
            log.warning("%s: line %d has no id of the graph, and is read as a header: %s", path,
                        table.first_line, table.list_columns())
    names = [column.name for column in table.columns]
    if len(names) < 2:
        raise DataError(f"{path}: {table.place(0) if table.num_rows else 'line 1'}: expected two "
                        "ids, source,target")
    ends = find_ends(names)
    columns = [names.index(name) for name in ends] if ends else [0, 1]
    pairs = [list(pair) for pair in zip(*(table.columns[k].texts() for k in columns))]
    if not pairs:
        raise DataError(f"{path}: no pairs, expected one a line")
    return pairs, _places(table)


def read_list(text: str, ids: np.ndarray) -> tuple[list[str], list[str]]:
    """Return the k ids in FILE, one a line, or in a column, FILE:COLUMN; and their places.

    An id that a column repeats is returned once. `ids` and errors as in `read_pairs`; also a
    DataError for a missing column.
    """
    path, name = file_and_column(text)
    if name is None:
        found, lines = read_ids(path)
        return found, [f"line {number}" for number in lines]
    table, _ = _read(path, ids)
    if not table.names_known:
        table.name_columns(header=True)
    cells = table.columns[table.column(name, text)].texts()
    places = dict(zip(reversed(cells), reversed(_places(table))))  # an id has its first place
    if not places:
        raise DataError(f"{path}: no ids below the header")
    found = [*dict.fromkeys(cells)]
    return found, [places[each] for each in found]


def _read(path: str, ids: np.ndarray) -> tuple[Table, dict[str, int]]:
    """Return a table, and the ids as text, in which a name may begin with #."""
    source = Source(path)
    texts = dict.fromkeys(ids.astype(str).tolist(), 0)
    if source.magic[:4] == PARQUET:
        return read_parquet(source, sys.maxsize), texts
    return read_delimited(source, sys.maxsize, texts), texts


def _places(table: Table) -> list[str]:
    return [table.place(row) for row in range(table.num_rows)]

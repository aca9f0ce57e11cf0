"""Reader of files of links: pairs of ids, with a label column if some are no links."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import Source, truncate
from hpgcn.datasets.tables.table_files import PARQUET
from hpgcn.datasets.text.column_names import DIRECTED, find_ends, find_triple, is_header, kind_of
from hpgcn.datasets.text.delimited import read_delimited
from hpgcn.datasets.text.parquet_table import read_parquet
from hpgcn.errors import DataError
from hpgcn.graphs.classes import NUMBER
from hpgcn.graphs.edge_weights import plain
from hpgcn.graphs.links import LinkSet

if TYPE_CHECKING:
    from hpgcn.datasets.tables.vertex_ids import VertexIds
    from hpgcn.datasets.text.data_table import Table

LABELS = ("label", "edgelabel", "linklabel", "y", "positive", "islink", "isedge", "exists")
RELATIONS = ("relation", "rel", "edgetype", "predicate")


def read_links(source: Source, vertices: VertexIds, target_first: bool, header: bool | None,
               memory: int) -> LinkSet:
    """Read the links of a set, and its negatives, from a table of text or Parquet.

    The two columns of ids are those called like the ends of edges, else the first two. A
    column called label, or the third of a table without names, has 1 for a link and 0 for
    another pair.

    Parameters
    ----------
    source : Source
    vertices : VertexIds
        Their ids are those of the file.
    target_first : bool
        The first of two columns that are not called source and target is the target.
    header : bool or None
        Whether the first line has names; None: by the words in it.
    memory : int

    Raises
    ------
    DataError
        Relations, fewer than two columns, an id that no vertex has, labels other than 0 and 1,
        no link.
    """
    if source.magic[:4] == PARQUET:
        table = read_parquet(source, memory)
    else:
        table = read_delimited(source, memory)
        if not table.names_known:
            named = is_header(table.first) if header is None else header
            table.name_columns(named and not _are_ids(table.first[:2], vertices))
    first, second, label = _columns(table)

    # find the vertices of the ids
    pairs = np.stack([_find(table, k, vertices) for k in (first, second)], axis=1)
    ends = kind_of(table.columns[first].name)[0]
    if target_first and ends != DIRECTED:
        pairs = pairs[:, ::-1]
    if not len(pairs):
        raise DataError(f"{source}: no links")
    if label is None:
        return LinkSet(np.ascontiguousarray(pairs))
    positive = table.flags(label)
    if not positive.any():
        raise DataError(f"{source}: column {table.title(label)}: no 1, expected links")
    return LinkSet(pairs[positive], pairs[~positive] if not positive.all() else None)


def _are_ids(cells: list[str], vertices: VertexIds) -> bool:
    """Return whether all cells are ids: --header is about the edges, a file of links may differ."""
    return all(NUMBER.fullmatch(cell.strip())
               or (vertices.has_names and cell.strip() in vertices.numbers) for cell in cells)


def _columns(table: Table) -> tuple[int, int, int | None]:
    """Return the indices of the two columns of ids and of the labels, or None."""
    names = [column.name for column in table.columns]
    relation = next((name for name in names if plain(name) in RELATIONS), None)
    if relation is not None or find_triple(names):
        raise DataError(f"{table.where}: relations of several types "
                        f"({relation or ', '.join(names)}), expected pairs: links of one type "
                        "are read")
    if len(names) < 2:
        raise DataError(f"{table.where}: {len(names)} column, expected two with ids")
    ends = find_ends(names) or names[:2]
    first, second = (names.index(name) for name in ends)
    others = [k for k in range(len(names)) if k not in (first, second)]
    if table.has_names:
        others = [k for k in others if plain(names[k]) in LABELS]
    if len(others) > 1:
        raise DataError(f"{table.where}: columns {table.list_columns()}: expected two of ids, and "
                        "one called label, 1 for a link and 0 for another pair")
    return first, second, others[0] if others else None


def _find(table: Table, k: int, vertices: VertexIds) -> np.ndarray:
    """Return the vertices with the ids of column k, (rows,) int64."""
    column = table.columns[k]
    if vertices.raw.bipartite and not table.has_names:
        column.name = vertices.side(k)
    keys = vertices.keys(column)
    if keys is None:
        raise DataError(f"{table.where}: column {table.title(k)} has no ids of the graph's kind, "
                        f"which are {vertices.describe()}")
    found = vertices.find(keys)
    if (found < 0).any():
        row = int(np.argmax(found < 0))
        raise DataError(f"{table.where}: {table.place(row)}: {truncate(column.texts()[row])!r} is "
                        f"no id of the graph, whose ids are {vertices.describe()}: a link needs "
                        "two vertices of the graph")
    return found

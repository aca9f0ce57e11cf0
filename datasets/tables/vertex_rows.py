"""Rows of labels, features or masks, and the vertices to which the rows belong."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.data_table import TextColumn
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.tables.vertex_ids import VertexIds


@dataclass
class VertexRows:
    """The rows of a file of labels, features or a split, each for one vertex.

    Attributes
    ----------
    kind : str
        "labels", "targets", "features" or "split".
    where : str
        The file, for errors.
    values : (rows, ...) array or sparse matrix
    keys : list of str, (rows,) int64, or None
        The id of each row; None if the file has none.
    place : callable
        Returns the name of row i in errors.
    order : str, or None
        Source of the ids, for notes.
    class_names : tuple of str, or None
        Names of the classes, if these are labels.
    feature_names : tuple of str, or None
        Names of the columns, if these are features.
    target_names : tuple of str, or None
        Names of the columns, if these are targets.
    is_partial : bool
        Whether vertices may lack a row of features; otherwise it is missing.
    in_order : bool
        Whether row i is of vertex i, whatever its id.
    """

    kind: str
    where: str
    values: object
    keys: object = None
    place: Callable = "row {}".format
    order: str | None = None
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    is_partial: bool = False
    in_order: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        return self.values.shape[0] if self.values.shape else 0

    @property
    def size(self) -> str:
        """The number of rows, described for errors."""
        if self.kind == "split":
            return f"split has {self.num_rows} rows"
        return f"{self.kind} have shape {tuple(self.values.shape)}"


def keys_of(column: Any, vertices: VertexIds, where: str,
            place: Callable) -> list[str] | np.ndarray:
    """Return the ids in a column; DataError for one that is empty, repeated, or no id."""
    keys = vertices.keys(column)
    if keys is None:
        for row, text in enumerate(column.texts()):
            one = TextColumn(column.name, [text]) if not hasattr(column, "array") else None
            if not text or (one is not None and vertices.keys(one) is None):
                expected = "a name" if vertices.has_names else "a whole number, as in the edges"
                raise DataError(f"{where}: {place(row)}: id {truncate(text, 40)!r}, expected "
                                f"{expected}")
        raise DataError(f"{where}: column {truncate(column.name, 40)}: expected ids, whole numbers "
                        "as in the edges")
    _refuse_repeated(keys, where, place)
    return keys


def _refuse_repeated(keys: list[str] | np.ndarray, where: str, place: Callable) -> None:
    if len(set(keys if isinstance(keys, list) else keys.tolist())) == len(keys):
        return
    first_of = {}
    for row, key in enumerate(keys):
        if key in first_of:
            raise DataError(f"{where}: id {truncate(key, 40)} occurs twice, in "
                            f"{place(first_of[key])} and {place(row)}, expected one row per id")
        first_of[key] = row


def take_positional(rows: VertexRows, vertices: VertexIds, order: VertexRows | None) -> np.ndarray:
    """Return the vertex of each row without an id, (rows,), by its position.

    `order` are the VertexRows of --ids, or None. DataError if vertices are named or
    renumbered and --ids is missing, or if there are more or fewer rows than vertices.
    """
    n = vertices.num_nodes
    raw = vertices.raw
    if rows.in_order:
        return np.arange(n)

    # assign rows by the file of --ids
    if order is not None:
        if rows.num_rows != order.num_rows:
            raise DataError(f"{rows.where}: {rows.size}, expected {order.num_rows} rows, one for "
                            f"each id in {order.where}")
        rows.order = f"the ids in {order.where}"
        return vertices.find(order.keys)

    # a row for each id of a range, of which only some are vertices: select these
    ids = raw.original_ids
    hint = ""
    if vertices.last is not None:
        stop = vertices.last - raw.base + 1
        if rows.num_rows == stop and stop != n:
            places = np.full(stop, -1, np.int64)
            places[ids - raw.base] = np.arange(n)
            return places
        hint = f" (or give {stop} rows, one for each id {raw.base}..{vertices.last})"

    # refuse rows if vertices have no natural order
    if not vertices.rows_are_known:
        kind = "names" if vertices.has_names else f"numbers with gaps, {vertices.describe()}"
        raise DataError(f"{rows.where}: {rows.kind} have {rows.num_rows} rows without ids, but the "
                        f"ids of the {n} vertices are {kind}: give the id of each row with --ids "
                        f"FILE, one per line{hint}")

    # refuse another number of rows than vertices
    if rows.num_rows != n:
        if raw.first == 1 and rows.num_rows == n - 1:
            hint = "; ids begin at 1: use --base 1 to drop vertex 0"
        elif vertices.is_open and rows.num_rows == vertices.num_in_edge and ids is None:
            hint = (f"; use --compact to number only the {rows.num_rows} ids in edges, or --ids "
                    "FILE to give the id of each row")
        elif vertices.is_open and rows.num_rows > n and ids is None:
            hint = (f"; use --num-nodes {rows.num_rows} to add vertices without edges for the last "
                    "rows, or --add-vertices")
        raise DataError(f"{rows.where}: {rows.size}, expected {n} rows{hint}")
    return np.arange(n)


def by_vertex(rows: VertexRows, places: np.ndarray, n: int, fill: float | None = None) -> Any:
    """Return the values of `rows` in the order of the vertices.

    `places` has the vertex of each row, -1 for a row without one. A vertex without a
    row gets `fill`.
    """
    row_of = np.full(n, -1, np.int64)
    known = places >= 0
    row_of[places[known]] = np.flatnonzero(known)
    missing = row_of < 0

    if not missing.any():
        if np.array_equal(row_of, np.arange(rows.num_rows)):
            return rows.values
        values = rows.values.tocsr() if sp.issparse(rows.values) else rows.values
        return values[row_of]

    if sp.issparse(rows.values):
        blank = sp.csr_array((1, rows.values.shape[1]), dtype=rows.values.dtype)
        return sp.vstack([rows.values, blank], format="csr")[np.where(missing, -1, row_of)]

    result = np.full((n, *rows.values.shape[1:]), fill, rows.values.dtype)
    result[~missing] = rows.values[row_of[~missing]]
    return result


def missing_vertices(places: np.ndarray, n: int) -> np.ndarray:
    """Return for each vertex whether it has no row, (n,) bool."""
    missing = np.ones(n, bool)
    missing[places[places >= 0]] = False
    return missing

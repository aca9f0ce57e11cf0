"""Readers of files of labels, features, splits and ids, in every supported format."""
from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets import unsupported_formats
from hpgcn.datasets.convert_options import ConvertOptions
from hpgcn.datasets.readers import matrix_market, numpy_files
from hpgcn.datasets.readers.network_graph import OverTime
from hpgcn.datasets.source import need, truncate
from hpgcn.datasets.tables import roles
from hpgcn.datasets.tables.libsvm import is_libsvm, read_libsvm
from hpgcn.datasets.tables.vertex_rows import VertexRows, keys_of
from hpgcn.datasets.text import text_cells
from hpgcn.datasets.text.column_names import is_known
from hpgcn.datasets.text.data_table import CellError, NumberColumn, Table, TextColumn, plural
from hpgcn.datasets.text.delimited import read_delimited
from hpgcn.datasets.text.json_files import feature_lists, json_table, read_json, records_table
from hpgcn.datasets.text.parquet_table import read_parquet
from hpgcn.datasets.text.text_cells import CellColumn
from hpgcn.errors import DataError
from hpgcn.graphs.contents import check_names
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.validation import MAX_NAME

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.tables.vertex_ids import VertexIds

GRAPH = ""  # in place of a path, means the file of the graph
NAME_THEM = ("; name the columns to read with --feature-columns NAME,NAME,..., such as "
             "'f*'")
PARQUET = b"PAR1"  # first bytes
NPY = b"\x93NUMPY"
ZIP = b"PK\x03\x04"  # first bytes of .npz


@dataclass(frozen=True)
class TableOptions(ConvertOptions):
    """The user's options, and values that the readers of all tables share."""

    memory: int = 0
    count: int | None = None  # number of rows of a table without ids
    used: dict = field(default_factory=dict)  # file -> columns of labels, targets and split

    def files(self) -> list:
        """Return the paths of all files of tables, without :COLUMN."""
        given = (self.features, self.labels, self.targets, self.split, self.ids)
        paths = [file_and_column(path)[0] for path in given if path is not None]
        return [path for path in paths if path != GRAPH]

    @property
    def requested_columns(self) -> list[str]:
        """The names of columns in the user's options."""
        labels = (self.label_column or "").split(",")
        _, targets = file_and_column(self.targets or "")
        names = (self.id_column, *labels, *(targets or "").split(","),
                 *(self.feature_columns or ()))
        return [name for name in names if name not in (None, "", roles.NONE)]

    def use(self, path: Path | str, name: str) -> None:
        """Record that the column `name` of a file has labels, targets or the split."""
        self.used.setdefault(os.path.realpath(path), set()).add(name)

    def used_in(self, table: Table) -> list:
        """Return the indices of a table's columns that were recorded by `use`."""
        names = self.used.get(os.path.realpath(table.where), ())
        return [k for k, column in enumerate(table.columns) if column.name in names]


class VertexAttributes:
    """A table of the vertices of a Raw, in order, with the attributes `requested`.

    These are names or patterns. The table has those members of a Source that readers of
    tables use.
    """

    suffix = ""

    def __init__(self, raw: Raw, where: object, requested: Sequence[str]) -> None:
        self.path = where
        if not raw.attributes:
            raise DataError(f"{where}: vertices have no attributes, of which "
                            f"{', '.join(requested)} should be one")
        names = dict.fromkeys(name for node in raw.attributes for name in node)
        self.names = {name for name in names
                      if any(fnmatchcase(name, pattern) for pattern in requested)}
        for node in raw.attributes:
            for name in self.names & node.keys():
                if isinstance(node[name], OverTime):
                    raise DataError(f"{where}: attribute {truncate(name, 40)} of a vertex has "
                                    f"{node[name]}, expected one")
        self.table = records_table(raw.attributes, where)
        self.table.in_order = True

    def __str__(self) -> str:
        return str(self.path)

    def head(self) -> bytes:
        return b""


def file_and_column(text: Path | str) -> tuple:
    """Return (FILE, COLUMN) of a text FILE:COLUMN, or (FILE, None) of a text FILE.

    FILE is GRAPH in `:COLUMN`, which names attributes in the graph's own file.
    """
    if str(text)[:1] == ":":
        return GRAPH, str(text)[1:]
    head, colon, column = str(text).rpartition(":")
    if colon and not os.path.exists(text) and os.path.exists(head):
        return head, column
    return text, None


def read_features(source: Source, vertices: VertexIds, options: TableOptions) -> VertexRows:
    """Return the VertexRows of a feature file, (rows, f) dense or sparse."""
    rows = partial(VertexRows, "features", str(source))

    # read files that have only features
    if is_array(source):
        values, notes = read_matrix_file(source, options.memory)
        return rows(values, notes=notes)
    if is_libsvm(source.head()):
        _, values, notes = read_libsvm(source, options.memory)
        return rows(values, notes=notes)

    # read lists of features, or else a table
    table, lists = read_table(source, vertices, options)
    if table is None:
        patterns = options.feature_columns
        ids, values, read_as = feature_lists(lists, str(source), options.memory,
                                             patterns is not None)
        if patterns is not None:
            names = [NumberColumn(str(k), None) for k in range(values.shape[1])]
            numbered = Table(str(source), names, len(values))
            values = values[:, roles.find_features(numbered, None, patterns)[0]]
        rows = rows(values, is_partial=sp.issparse(values), notes=[f"{source}: {read_as}"])
        if ids is not None:
            rows.keys = keys_of(TextColumn("id", ids), vertices, str(source), rows.place)
            rows.order = "the ids in it"
        return rows

    # find the columns of features and of ids
    taken = used = options.used_in(table)
    if options.feature_columns is not None:
        taken = used + roles.find_features(table, None, options.feature_columns)[0]
    ids = roles.find_ids(table, vertices, options.id_column, taken)
    chosen, left_out = roles.find_features(table, ids, options.feature_columns, used)

    # note which columns are features
    notes = [*table.notes]
    if len(table.columns) > 1:
        notes.append(f"{source}: {plural(len(chosen), 'column')} of features: "
                     f"{join_names([table.title(k) for k in chosen])}")
    if left_out:
        notes.append(f"{source}: columns not read as features: {join_names(left_out)} (use "
                     "--feature-columns to read them)")
    rows = rows(read_matrix(table, chosen, options.memory), place=table.place, notes=notes)
    rows.feature_names = _feature_names(table, chosen, notes)
    return with_ids(rows, table, ids, vertices)


def _feature_names(table: Table, chosen: list[int], notes: list[str]) -> tuple[str, ...] | None:
    """Return the names of feature columns; None without names, or if they cannot be kept.

    A column of lists has a name for each position.
    """
    names = [column.name if width is None else f"{column.name}[{k}]"
             for column in (table.columns[k] for k in chosen)
             for width in [column.width] for k in range(width or 1)]
    if not table.has_names or names == [str(k) for k in range(len(names))]:
        return None  # pandas numbers unnamed columns
    with suppress(DataError):
        return check_names("feature_names", names, len(names), len(names), table.where)
    notes.append(f"{table.where}: names of features are not kept: some are equal, empty or longer "
                 f"than {MAX_NAME} bytes")
    return None


def read_matrix(table: Table, chosen: list[int], memory: int) -> np.ndarray:
    """Return the columns `chosen` as float32, (rows, f).

    Raise DataError if a cell is not a finite number.
    """
    if not chosen:
        raise DataError(f"{table.where}: columns {table.list_columns()}: no column has features")

    # columns of one text are parsed together
    columns = [table.columns[k] for k in chosen]
    if all(isinstance(column, CellColumn) for column in columns):
        need(4 * table.num_rows * len(chosen), memory, table.where)
        try:
            X = text_cells.numbers(columns, np.float32)
        except CellError as error:
            raise table.cell_error(error, error.column, NAME_THEM) from None
        wrong = ~np.isfinite(X)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            _refuse_infinite(table, row, chosen[place], X[row, place])
        return X

    parts = []
    for k in chosen:
        numbers = table.number_column(k, NAME_THEM)
        need(4 * numbers.size * len(chosen), memory, table.where)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row = int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
            _refuse_infinite(table, row, k, numbers[row])

        with np.errstate(over="ignore"):
            parts.append(numbers.astype(np.float32).reshape(table.num_rows, -1))

    return np.concatenate(parts, axis=1)


def _refuse_infinite(table: Table, row: int, k: int, numbers: Any) -> None:
    text = "empty" if np.isnan(numbers).any() else truncate(numbers, 40)
    raise DataError(f"{table.where}: {table.place(row)}: column {table.title(k)} is {text}, "
                    "expected a finite number in each row")


def read_ids(source: Source, column: str | None, vertices: VertexIds,
             options: TableOptions) -> VertexRows:
    """Return the VertexRows of --ids, the order of rows in files without ids."""
    # read an array, or a column of a table
    if is_array(source):
        array, notes = read_array(source, options.memory, "iuSU")
        if array.ndim != 1:
            raise DataError(f"{source}: ids have shape {array.shape}, expected (n,)")
        ids = (TextColumn("id", array.astype(np.str_).tolist()) if array.dtype.kind in "SU"
               else NumberColumn("id", array))
        place_of = "row {}".format
    else:
        table, _ = read_table(source, vertices, options, of_ids=True)
        if table is None:
            raise DataError(f"{source}: lists of numbers, expected an id for each row")
        k = 0
        if column is not None:
            k = table.column(column, "--ids FILE:COLUMN")
        elif len(table.columns) > 1:
            k = roles.find_ids(table, vertices, options.id_column)
        if k is None:
            raise DataError(f"{source}: columns {table.list_columns()}: which column has the ids? "
                            f"Give --ids {source}:COLUMN")
        ids, place_of, notes = table.columns[k], table.place, table.notes

    keys = keys_of(ids, vertices, str(source), place_of)
    return VertexRows("ids", str(source), np.empty(len(keys)), keys, place_of, notes=notes)


def with_ids(rows: VertexRows, table: Table, ids: int | None, vertices: VertexIds) -> VertexRows:
    if table.in_order:
        rows.in_order, rows.order = True, "the vertices of the file"
    if ids is not None:
        rows.keys = keys_of(table.columns[ids], vertices, table.where, table.place)
        rows.order = f"column {table.title(ids)}"
    return rows


def is_array(source: Source) -> bool:
    """Return whether a file is .npy, .npz or MatrixMarket; DataError if it is no table either."""
    if isinstance(source, VertexAttributes):
        return False
    if source.suffix in (".npy", ".npz") or source.magic.startswith(NPY) \
            or matrix_market.is_matrix_market(source):
        return True
    known = unsupported_formats.identify(source, by_name=False)
    if known is not None and known not in unsupported_formats.TEXTS:
        way = ""
        if known is unsupported_formats.UTF16:
            way = f": {known.way.partition(' > ')[0]} > table.csv"
        raise DataError(f"{source}: is {known.name}, expected a table (text, Parquet or JSON) or "
                        f"an array of numpy.save{way}")
    return source.magic.startswith(ZIP)


def read_matrix_file(source: Source, memory: int) -> tuple[Any, list[str]]:
    """Return the matrix of a file that `is_array`, dense or sparse, and notes."""
    known = matrix_market.is_matrix_market(source)
    return (matrix_market if known else numpy_files).read_matrix(source, memory)


def read_array(source: Source, memory: int, kinds: str = "fiubSU") -> tuple[np.ndarray, list]:
    """Return the array of a file that `is_array`, and notes.

    MatrixMarket becomes dense, and one column (n,).
    """
    if not matrix_market.is_matrix_market(source):
        return numpy_files.read_array(source, memory, kinds)
    matrix, notes = matrix_market.read_matrix(source, memory)
    need(12 * matrix.shape[0] * matrix.shape[1], memory, source)
    matrix = matrix.toarray() if sp.issparse(matrix) else matrix
    matrix = matrix[:, 0] if matrix.shape[1] == 1 else matrix
    whole = matrix.astype(np.int64)
    return (whole if (whole == matrix).all() else matrix), notes


def is_json(source: Source) -> bool:
    return source.head().lstrip()[:1] in (b"{", b"[")


def read_table(source: Source, vertices: VertexIds, options: TableOptions,
               of_ids: bool = False) -> tuple:
    """Return the Table of a file with named columns, and its JSON; each may be None.

    DataError for a table without rows.
    """
    document = None
    if isinstance(source, VertexAttributes):
        return source.table, None
    if source.magic[:4] == PARQUET:
        table = read_parquet(source, options.memory)
    elif is_json(source):
        document = read_json(source, options.memory)
        table = json_table(document, str(source), is_known)
    else:
        names = vertices.numbers if vertices.has_names else ()
        table = read_delimited(source, options.memory, names, of_names=of_ids)
        roles.settle_header(table, vertices, options.header, None if of_ids else options.count,
                            options.requested_columns)

    if table is not None and not table.num_rows:
        raise DataError(f"{source}: no rows, expected a table")
    return table, document

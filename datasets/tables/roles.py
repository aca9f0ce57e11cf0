"""The roles of a table's columns: ids, labels, split or features."""
from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.source import truncate
from hpgcn.datasets.tables.vertex_ids import HALF
from hpgcn.datasets.text.column_names import (
    CLASS,
    ID,
    INDEX,
    LABEL,
    MASK,
    MUSAE,
    PART_NAMES,
    PARTS,
    SPLIT_NAME,
    WEAK_ID,
    is_known,
)
from hpgcn.datasets.text.data_table import WHOLE
from hpgcn.errors import DataError
from hpgcn.graphs.classes import NUMBER, UNLABELED
from hpgcn.graphs.edge_weights import join_names, plain

if TYPE_CHECKING:
    from hpgcn.datasets.tables.vertex_ids import VertexIds
    from hpgcn.datasets.text.data_table import NumberColumn, Table, TextColumn

NONE = "none"  # value of --id-column: row i is vertex i
FIRST = 32  # a text below more numbers is an error, not a name
LINES = 3  # in fewer rows, values may be distinct by accident


def settle_header(table: Table, vertices: VertexIds, header: bool | None, count: int | None = None,
                  requested: list[str] = ()) -> None:
    """Decide whether the first row of a text table is a header, and name the columns.

    If the rows leave that unclear, these decide:

    - the column names in `requested`, which are numbers without a header;
    - `header` (--header, --no-header);
    - the number of rows, if it is to be `count`.
    """
    if table.names_known or _settle_sizes(table, vertices, header, count):
        return
    is_header = _is_header(table, vertices)

    # look for requested names in the first line
    if is_header is None and requested:
        cells = {cell.strip().lower() for cell in table.first}
        if any(name.lower() in cells for name in requested):
            is_header = True
        elif all(name.isdigit() for name in requested):
            is_header = False
    if is_header is None and header is not None:
        is_header = header

    # without any hint, guess
    if is_header is None:
        is_header = _guess_header(table, vertices, count)
        way = "a header (--no-header: as a row)" if is_header else "a row (--header: as names)"
        table.notes.append(f"{table.where}: line {table.first_line} is read as {way}")

    table.name_columns(is_header)
    if is_header and not all(map(NUMBER.fullmatch, table.first)):
        table.refuse_header_again()


def _settle_sizes(table: Table, vertices: VertexIds, header: bool | None,
                  count: int | None) -> bool:
    """Drop a first row that has the numbers of rows and columns; return whether it has.

    Such a row may also be one of data. The number of vertices decides, or --no-header.
    """
    if table.declared_rows is None or table.declared_rows != table.num_rows or header is False:
        return False
    where = f"{table.where}: line {table.first_line}"
    count = vertices.num_nodes if count is None else count
    if count == table.num_rows:
        table.name_columns(header=False, keep=False)
        table.notes.append(f"{where} is read as the number of rows below it (--no-header: as a "
                           "row)")
        return True
    if len(table.first) > 1 and count != table.num_rows + 1:
        raise DataError(f"{where}: {join_names(table.first)} may be a row, or the numbers of rows "
                        "and columns below it: remove the line, or give --no-header if it is a row")
    return False


def _is_header(table: Table, vertices: VertexIds) -> bool | None:
    """Return whether the first row is a header; None if that is unclear."""
    # words of a split both in the first row and below are data
    cells = [cell.strip() for cell in table.first]
    if any(is_split([cell]) and is_split(column.head())
           for cell, column in zip(cells, table.columns)):
        return False  # e.g. train above val

    # a row that numbers the columns is a header, which pandas writes
    numeric = [bool(NUMBER.fullmatch(cell)) for cell in cells]
    if cells == ["0"]:
        return None  # pandas names a single column 0
    if _is_counter(cells):
        leading = not numeric[0] and (not cells[0] or is_known(cells[0]))
        return True if leading else None

    # names of vertices are data, not a header
    named = vertices.has_names and any(
        cell in vertices.numbers and _are_vertices(column, vertices)
        for cell, column in zip(cells, table.columns))
    if named:
        return False

    # otherwise types and known words decide
    if any(not number and cell.lower() not in UNLABELED and _are_numbers(column.head())
           for cell, column, number in zip(cells, table.columns, numeric)):
        return True  # text above numbers
    if any(numeric):
        return False
    if any(map(is_known, filter(None, cells))) or (not cells[0] and len(cells) > 1):
        return True
    again = any(cell and cell in column.head() for cell, column in zip(cells, table.columns))
    return False if again else None


def _guess_header(table: Table, vertices: VertexIds, count: int) -> bool:
    """Guess whether an unclear first row is a header; DataError if neither is likely."""
    if len(table.first) > 1 and _goes_on(table.first[0], table.columns[0]):
        return False
    if len(table.first) > 1 and vertices.has_names and any(
            _are_vertices(column, vertices) for column in table.columns):
        return True  # no cell of the first row is a vertex
    if count in (table.num_rows, table.num_rows + 1):
        return count == table.num_rows
    if table.first == ["0"] or _is_counter(table.first):
        return len(table.first) > 2
    raise DataError(f"{table.where}: line {table.first_line}: {join_names(table.first)}: is this "
                    "line a header? Give --header or --no-header, or --id-column NAME (1, 2, .. "
                    "without names)")


def _is_counter(cells: list[str]) -> bool:
    """Return whether cells are 0, 1, .., as pandas names columns, maybe after an index cell."""
    first = 0 if cells and cells[0].strip() == "0" else 1
    if first and NUMBER.fullmatch(cells[0].strip()):
        return False
    rest = [cell.strip() for cell in cells[first:]]
    return len(rest) > (first == 0) and rest == [str(k) for k in range(len(rest))]


def _goes_on(cell: str, column: TextColumn | NumberColumn) -> bool:
    """Return whether a first cell 0 and the column below it have 0..n-1 in some order."""
    whole = column.whole_numbers() if cell.strip() == "0" else None
    return whole is not None and np.array_equal(np.sort(whole), np.arange(1, whole.size + 1))


def _are_numbers(head: list[str]) -> bool:
    known = [cell for cell in head if cell.lower() not in UNLABELED]
    return bool(known) and all(map(NUMBER.fullmatch, known))


def _are_vertices(column: TextColumn | NumberColumn, vertices: VertexIds) -> bool:
    head = column.head()
    matched = sum(cell in vertices.numbers for cell in head)
    return bool(head) and 2 * matched > len(head)


def find_ids(table: Table, vertices: VertexIds, flag: str | None,
             taken: list[int] = ()) -> int | None:
    """Return the index of the column of ids, or None if rows have none.

    It is the column that `flag` (--id-column) names. Otherwise it is one with a usual
    name whose values are ids of vertices. Otherwise it is the only one whose values are
    ids, except a column that numbers the rows. A column that is called a label or a
    split must have all ids. Columns in `taken` have other roles. Raises DataError if
    several columns qualify.
    """
    # the flag, or a table of one column, leaves no choice
    columns = table.columns
    if table.in_order:
        return None
    if flag is not None:
        return None if flag == NONE else table.column(flag, "--id-column")
    if len(columns) < 2:
        return None

    # candidates are columns with usual names, or else all columns without another role
    names = [plain(column.name) for column in columns]
    usual = [k for k, name in enumerate(names) if re.fullmatch(ID, name) and k not in taken]
    others = [k for k in range(len(columns)) if k not in usual and k not in taken]
    misnamed = [k for k in others if re.fullmatch(f"{CLASS}|{SPLIT_NAME}|{MASK}", names[k])]
    others = [k for k in others if k not in misnamed]

    # prefer values that are ids of vertices to numbers of rows
    fitting = [k for k in usual if vertices.fit(columns[k], table.num_rows)]
    if len(fitting) == 1 and _counts_rows(columns[fitting[0]]):
        fitting += [k for k in others if re.fullmatch(WEAK_ID, names[k])
                    and vertices.fit(columns[k], table.num_rows)]
    if not fitting:
        fitting = [k for k in others if vertices.fit(columns[k], table.num_rows)]
        counters = [k for k in fitting if re.fullmatch(INDEX, names[k])
                    and _counts_rows(columns[k])]
        if len(fitting) > len(counters):
            fitting = [k for k in fitting if k not in counters]
        elif counters:  # row numbers only if no other column may have the ids
            fitting += [k for k in (*usual, *others) if k not in counters
                        and vertices.fit(columns[k], table.num_rows, HALF)]

    # accept an unusual name if the column has exactly the ids
    if not fitting and not usual:
        fitting = [k for k in misnamed if vertices.fit(columns[k], table.num_rows, 1)]

    # otherwise accept a usual name
    if not fitting:
        fitting = usual or [k for k in others if re.fullmatch(WEAK_ID, names[k])
                            or (k == 0 and re.fullmatch(INDEX, names[0]))]

    # refuse several candidates
    if len(fitting) == 2 == len(columns) and names == ["1", "2"]:
        return 0  # without names, the first column has the ids
    if len(fitting) > 1:
        raise DataError(f"{table.where}: columns {join_names([columns[k].name for k in fitting])}: "
                        "which column has the ids of vertices? Give --id-column NAME")
    if fitting:
        return fitting[0]

    # without a candidate, refuse columns that look like ids of other vertices
    for k in (*others, *misnamed):
        if k in misnamed and not vertices.fit(columns[k], table.num_rows, HALF):
            continue
        if _looks_like_ids(columns[k], k, table) or vertices.fit(columns[k], table.num_rows, HALF):
            raise DataError(
                f"{table.where}: column {table.title(k)} has a different value in each row, but "
                f"not all of them are vertex ids ({vertices.describe()}): give the column of ids "
                f"with --id-column NAME, or --id-column {NONE} if rows are in the order of "
                "vertices")
        if vertices.repeat(columns[k], table.num_rows):
            raise DataError(
                f"{table.where}: column {table.title(k)} has vertex ids, but some occur twice, "
                f"expected one row per id (use --id-column {NONE} if rows are in the order of "
                'vertices; give several labels of a vertex as JSON {"id": ["a", "b"]})')
    return None


def _counts_rows(column: TextColumn | NumberColumn) -> bool:
    """Return whether a column begins with 0, 1, 2, .. in this order."""
    head = column.head()
    return head == [str(k) for k in range(len(head))]


def _looks_like_ids(column: TextColumn | NumberColumn, k: int, table: Table) -> bool:
    """Return whether column k looks like ids.

    All its values differ. It has text, or it is the first column and has integers.
    """
    head = column.head()
    if table.num_rows <= LINES or len(set(head)) < len(head):
        return False
    whole = column.whole_numbers()
    if whole is None:
        return not _are_numbers(head[:FIRST]) and len(set(column.texts())) == table.num_rows
    return k == 0 and len(set(whole.tolist())) == table.num_rows


def named_labels(table: Table, flag: str | None) -> list[int]:
    """Return the indices of the columns that `flag`, the value of --label-column, names."""
    if flag is None:
        return []
    if "*" in flag or ("," in flag and flag not in [column.name for column in table.columns]):
        return find_features(table, None, flag.split(","), flag="--label-column")[0]
    return [table.column(flag, "--label-column")]


def find_label(table: Table, ids: int | None, flag: str | None, taken: list = ()) -> int:
    """Return the index of the column of labels, maybe named by `flag` (--label-column)."""
    if flag is not None:
        return table.column(flag, "--label-column")
    rest = [k for k in range(len(table.columns)) if k != ids and k not in taken]
    names = {k: plain(table.columns[k].name) for k in rest}
    labels = [k for k in rest if re.fullmatch(f"{LABEL}|{MUSAE}", names[k])]
    if not labels:
        labels = [k for k in rest if not re.fullmatch(f"{ID}|{SPLIT_NAME}|{MASK}|{INDEX}", names[k])
                  and (len(rest) == 1 or not is_split(table.columns[k].head()))]
    if len(labels) != 1:
        raise DataError(f"{table.where}: columns {table.list_columns()}: which column is the "
                        "label? Give --label-column NAME, or NAME,NAME,... for multi-label columns "
                        "of 0 and 1")
    return labels[0]


def find_features(table: Table, ids: int | None, patterns: list[str] | None, used: Sequence = (),
                  flag: str = "--feature-columns") -> tuple[list, list]:
    """Return the indices of feature columns, and the names of columns that are not read.

    `patterns` (--feature-columns) are names, in which * and ? stand for any letters.
    `used` are the indices of columns with the labels or the split.
    """
    names = [column.name for column in table.columns]
    if patterns is not None:
        chosen = [k for pattern in patterns for k, name in enumerate(names)
                  if fnmatchcase(name, pattern)]  # in the order of the flag
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise DataError(f"{table.where}: no column is called {truncate(pattern, 40)} "
                                f"({flag}), expected names among {table.list_columns()}")
        return list(dict.fromkeys(chosen)), []
    rest = [k for k in range(len(names)) if k != ids]
    known = f"{CLASS}|{SPLIT_NAME}|{MASK}|{INDEX}" + "|y" * ("x" not in map(plain, names))
    left_out = [k for k in rest if k in used or re.fullmatch(known, plain(names[k]))]
    return [k for k in rest if k not in left_out], [table.title(k) for k in left_out]


def find_split(table: Table, ids: int | None) -> Any:
    """Return the index of the split column, or a dict from part to mask column.

    Parts are "train", "val" and "test".
    """
    # read masks, one column per part
    masks = {}
    for k, column in enumerate(table.columns):
        name = plain(column.name)
        if k != ids and re.fullmatch(MASK, name):
            word = re.sub("^(is|in)|(mask|idx)$", "", name)
            masks[PARTS.get(word, word)] = k
    if "train" in masks:
        return masks

    # otherwise read one column of words or of part numbers
    rest = [k for k in range(len(table.columns)) if k != ids]
    worded = [k for k in rest if is_split(table.columns[k].head())]
    if not worded:
        coded = [k for k in rest if split_codes(table.columns[k].texts()) is not None]
        worded = coded if len(rest) == 1 else [
            k for k in coded if re.fullmatch(SPLIT_NAME, plain(table.columns[k].name))]
    named = [k for k in worded if re.fullmatch(SPLIT_NAME, plain(table.columns[k].name))]
    candidates = worded if len(worded) == 1 else named
    if len(candidates) != 1:
        raise DataError(f"{table.where}: columns {table.list_columns()}: which column has the "
                        f"words train, val and test? Give --split {table.where}:COLUMN")

    return candidates[0]


def split_codes(cells: Collection[str]) -> dict[str, str] | None:
    """Return a dict from each cell to the part of a split that it numbers, or None.

    Three numbers from 0 or from 1 are train, val and test; -1 and empty cells are no
    part.
    """
    numbers = {cell: int(float(cell)) for cell in set(cells) if WHOLE.fullmatch(cell)}
    words = {cell for cell in set(cells) - numbers.keys() if cell.lower() not in UNLABELED}
    present = sorted({number for number in numbers.values() if number >= 0})
    if words or len(present) != 3 or present[-1] - present[0] != 2 or present[0] > 1:
        return None
    return {cell: tuple(PART_NAMES)[number - present[0]] if number >= 0 else ""
            for cell, number in numbers.items()}


def is_split(cells: list[str]) -> bool:
    """Return whether all cells are words for parts of a split, such as train, or empty."""
    known = {cell.lower() for cell in cells} - UNLABELED
    return bool(known) and known <= PARTS.keys()

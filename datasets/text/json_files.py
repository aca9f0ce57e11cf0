"""Parsers of JSON that respect the memory limit, and tables in JSON.

Tables are records, columns, a value for each id, or lists of feature numbers.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.source import first_repeated, need, truncate
from hpgcn.datasets.text.data_table import NumberColumn, Table, TextColumn
from hpgcn.datasets.text.lines import WHOLE, whole_text
from hpgcn.errors import DataError
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import MAX_WIDTH

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

GRAPH_FACTOR, TABLE_FACTOR = 30, 40  # memory per byte of text
FLOAT32_MAX = float(np.finfo(np.float32).max)
SCALARS = (str, int, float, bool, type(None))


class JsonObject(list):
    """The members of a JSON object in their order, as (name, value) pairs."""


def parse_json(source: Source, memory: int, kind: Any, expected: str) -> Any:
    """Return the value in a JSON file, of the type `kind` (list or dict).

    DataError for another type, or if an object has a name twice.
    """
    def unique(pairs: list[tuple]) -> dict[str, Any]:
        if (again := first_repeated(name for name, _ in pairs)) is not None:
            raise DataError(f"{source}: {truncate(again, 40)!r} occurs twice in one object")
        return dict(pairs)

    value = _parsed(whole_text(source, memory, GRAPH_FACTOR).decode(), source, unique)
    if not isinstance(value, kind):
        raise DataError(f"{source}: JSON of a {type(value).__name__}, expected {expected}")
    return value


def read_json(source: Source, memory: int) -> Any:
    """Return the content of a JSON file; its objects become JsonObjects.

    A file of one JSON value a line, like .jsonl, becomes a list.
    """
    text = whole_text(source, memory, TABLE_FACTOR).decode()
    try:
        return _parsed(text, source, JsonObject)
    except DataError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].rstrip()[-1:] in "}]":
            with suppress(DataError):
                return [_parsed(line, source, JsonObject) for line in lines]
        raise


def _parsed(text: str, source: Source, make_object: Callable) -> Any:
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        reason = truncate(error) or "nested too deep"
        raise DataError(f"{source}: broken JSON ({reason})") from error


def json_table(found: Any, where: str, is_known: Callable) -> Table | None:
    """Return the Table of a result of `read_json`; None if it has lists of numbers.

    `is_known(name)` says whether a name is that of a column rather than an id.
    """
    if isinstance(found, JsonObject):
        return _from_object(found, where, is_known)
    if not isinstance(found, list) or not found:
        raise DataError(f"{where}: expected an object or a list of objects")
    if all(isinstance(record, JsonObject) for record in found):
        return records_table([dict(record) for record in found], where)
    if all(isinstance(value, SCALARS) for value in found):
        return Table(where, [_column("value", found)], len(found))
    return None


def _from_object(pairs: JsonObject, where: str, is_known: Callable) -> Table | None:
    names = [name for name, _ in pairs]
    values = [value for _, value in pairs]
    _refuse_repeated(names, where)

    if {"columns", "data"} <= set(names) and set(names) <= {"columns", "data", "index", "schema"}:
        return _from_split(dict(pairs), where)
    if all(isinstance(value, SCALARS) for value in values):
        return _from_columns({"id": names, "value": values}, where)

    if all(isinstance(value, JsonObject) for value in values) and values:
        inner = [name for name, _ in values[0]]
        by_id = all(map(WHOLE.fullmatch, names)) and not all(map(WHOLE.fullmatch, inner))
        if by_id or (any(map(is_known, inner)) and not any(map(is_known, names))):
            return records_table([{"id": name, **dict(value)} for name, value in pairs], where)
        columns = {name: [cell for _, cell in value] for name, value in pairs}
        return _from_columns({"": inner, **columns}, where)

    lists = [value for value in values if isinstance(value, list)]
    if len(lists) == len(values) and any(map(is_known, names)):
        return _from_columns(dict(pairs), where)

    return None


def _from_split(parts: dict[str, Any], where: object) -> Table:
    rows = parts["data"]
    names = parts["columns"]
    if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise DataError(f"{where}: data: expected lists of {len(names)} values")
    columns = {str(name): [row[k] for row in rows] for k, name in enumerate(names)}
    index = parts.get("index")
    return _from_columns(({} if index is None else {"": index}) | columns, where)


def records_table(records: list[dict], where: object) -> Table:
    """Return the Table of dicts, one for each row; a missing value is an empty cell."""
    names = dict.fromkeys(name for record in records for name in record)
    return _from_columns({name: [record.get(name) for record in records] for name in names}, where)


def _from_columns(columns: dict[str, Any], where: object) -> Table:
    sizes = {name: len(cells) for name, cells in columns.items()}
    if len(set(sizes.values())) > 1:
        first, *rest = sizes
        odd = next(name for name in rest if sizes[name] != sizes[first])
        raise DataError(f"{where}: {truncate(first, 40)} has {sizes[first]} values, "
                        f"{truncate(odd, 40)} has {sizes[odd]}, expected equal lengths")
    made = [_column(name, cells) for name, cells in columns.items()]
    return Table(where, made, next(iter(sizes.values()), 0))


def _column(name: str, cells: Iterable) -> NumberColumn | TextColumn:
    """Return cells as a NumberColumn if they are lists of equally many numbers, else as text."""
    cells = list(cells)
    if cells and all(type(cell) is list and len(cell) == len(cells[0])
                     and all(type(number) in (int, float, bool) for number in cell)
                     for cell in cells):
        return NumberColumn(name, np.array(cells, np.float64).reshape(len(cells), len(cells[0])))
    return TextColumn(name, ["" if cell is None else str(cell).replace("\0", "?")
                             for cell in cells])


def _refuse_repeated(names: list[str], where: str) -> None:
    if (name := first_repeated(names)) is not None:
        raise DataError(f"{where}: id {truncate(name, 40)} occurs twice")


def feature_lists(found: Any, where: object, memory: int, dense: bool = False) -> tuple:
    """Return ids (list of str, or None), features (rows, f), and how they were read.

    Lists of whole numbers are the columns of ones, stored in CSR. Lists of one length
    are the features themselves, if `dense` or if their numbers show it.
    """
    pairs = found if isinstance(found, JsonObject) else list(enumerate(found))
    ids = [row for row, _ in pairs] if isinstance(found, JsonObject) else None
    lists = [numbers for _, numbers in pairs if isinstance(numbers, list)]
    even = len({len(numbers) for numbers in lists}) == 1
    if dense or any(type(k) is float for numbers in lists for k in numbers) \
            or (even and _are_values(lists)):
        values = _dense(pairs, where, memory)
        return ids, values, f"lists of {values.shape[1]} features"

    # otherwise a row lists column numbers, each once
    columns = []
    for row, numbers in pairs:
        whole = isinstance(numbers, list) and all(type(k) is int for k in numbers)
        if not whole or any(not 0 <= k < MAX_WIDTH for k in numbers):
            raise DataError(f"{where}: row {truncate(row, 40)}: expected a list of feature "
                            f"numbers, 0..{MAX_WIDTH - 1}; use --feature-columns '*' if they are "
                            "feature values")
        columns.append(np.unique(np.array(numbers, np.int64)))
    need(16 * len(columns), memory, f"{where}: {len(columns)} rows")

    # build a CSR matrix of ones
    indptr = run_offsets([each.size for each in columns])
    indices = np.concatenate([*columns, np.empty(0, np.int64)])
    ones = np.ones(indices.size, np.float32)
    width = int(indices.max(initial=-1)) + 1
    X = sp.csr_array((ones, indices, indptr), shape=(len(columns), width))
    note = f"each row is a list of feature numbers, 0..{width - 1}"
    return ids, X, note + "; use --feature-columns '*' if they are feature values" * even


def _are_values(lists: list[list]) -> bool:
    """Return whether a list has a number twice, and none is negative: -1 may be a filler."""
    whole = all(type(k) is int and k >= 0 for numbers in lists for k in numbers)
    return whole and any(len(set(numbers)) < len(numbers) for numbers in lists)


def _dense(pairs: list[tuple], where: object, memory: int) -> np.ndarray:
    """Return lists of f numbers each as an array (rows, f) float32."""
    width = len(pairs[0][1]) if isinstance(pairs[0][1], list) else 0
    need(12 * width * len(pairs), memory, f"{where}: {len(pairs)} rows")
    for row, numbers in pairs:
        if not isinstance(numbers, list) or len(numbers) != width \
                or not all(type(k) in (int, float) and abs(k) < FLOAT32_MAX for k in numbers):
            raise DataError(f"{where}: row {truncate(row, 40)}: expected a list of {width} finite "
                            "numbers, as in the first")
    return np.array([numbers for _, numbers in pairs], np.float32)


def multi_hot(pairs: JsonObject | list[tuple], where: str, memory: int) -> tuple[np.ndarray, tuple]:
    """Return lists of label names as (rows, t) of 0 and 1, float32, and the sorted names."""
    for row, names in pairs:
        if not isinstance(names, list) or not all(type(name) is str for name in names):
            raise DataError(f"{where}: row {truncate(row, 40)}: {truncate(names, 40)}, expected a "
                            "list of label names")
    found = {name for _, row in pairs for name in row}
    names = tuple(sorted(found, key=int if all(map(str.isdecimal, found)) else None))
    need(8 * len(pairs) * len(names), memory, f"{where}: {len(pairs)} x {len(names)} labels")
    number = {name: k for k, name in enumerate(names)}
    values = np.zeros((len(pairs), len(names)), np.float32)
    for row, (_, labels) in enumerate(pairs):
        values[row, [number[name] for name in labels]] = 1
    return values, names

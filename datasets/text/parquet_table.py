"""Reader of tables in Parquet files."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.source import need, truncate
from hpgcn.datasets.text.data_table import NumberColumn, Table, TextColumn
from hpgcn.errors import DataError, require

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

FACTOR = 3  # memory per byte of a column


def open_parquet(source: Source) -> Any:
    """Return the ParquetFile of a Source; raise MissingError without pyarrow."""
    parquet = require("pyarrow.parquet", "io", "reading Parquet")
    with refusing(source):
        return parquet.ParquetFile(source.path, page_checksum_verification=True)


@contextmanager
def refusing(source: Source) -> Iterator[None]:
    """Context manager: turn pyarrow's errors into a DataError of one line."""
    try:
        yield
    except MemoryError as error:
        raise DataError(f"{source}: does not fit into memory") from error
    except Exception as error:  # e.g. ArrowInvalid or OSError
        reason = truncate(" ".join(str(error).split()) or type(error).__name__)
        raise DataError(f"{source}: broken Parquet data ({reason})") from error


def read_parquet(source: Source, memory: int) -> Table:
    """Return the Table of a Parquet file; raise MissingError without pyarrow."""
    with open_parquet(source) as file:
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        need(FACTOR * size, memory, source)
        names = file.schema_arrow.names
        with refusing(source):
            table = file.read()

    need(FACTOR * table.nbytes, memory, source)
    columns = [_column(name, table.column(k), source) for k, name in enumerate(names)]

    index = "__index_level_0__"  # pandas' name of an index without a name
    for column in columns:
        column.name = "" if column.name == index else column.name

    return Table(str(source), columns, table.num_rows)


def _column(name: str, cells: Any, source: Source) -> NumberColumn | TextColumn:
    kind = cells.type
    with refusing(source):
        cells = cells.combine_chunks()
        types = __import__("pyarrow").types

        if types.is_dictionary(kind):
            cells = cells.dictionary_decode()
            kind = cells.type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            matrix = _matrix(cells)
            if matrix is not None:
                return NumberColumn(name, matrix)

        if types.is_floating(kind) or (
                not cells.null_count and (types.is_integer(kind) or types.is_boolean(kind))):
            return NumberColumn(name, cells.to_numpy(zero_copy_only=False))

        texts = ["" if cell is None else _text(cell) for cell in cells.to_pylist()]

    if any("\0" in text for text in texts):
        raise DataError(f"{source}: column {truncate(name, 40)}: a NUL character, expected text")
    return TextColumn(name, texts)


def _text(cell: Any) -> str:
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def _matrix(cells: Any) -> np.ndarray | None:
    """Return cells that are lists of k numbers as an array (n, k); None for other cells."""
    rows = len(cells)
    values = cells.flatten()
    size = len(values) // rows if rows else 0
    lengths = cells.value_lengths() if hasattr(cells, "value_lengths") else None
    even = lengths is None or set(lengths.unique().to_pylist()) <= {size}
    if cells.null_count or values.null_count or not even or size * rows != len(values):
        return None
    array = values.to_numpy(zero_copy_only=False)
    return array.reshape(rows, size) if array.dtype.kind in "fiub" else None

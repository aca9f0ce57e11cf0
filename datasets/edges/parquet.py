"""Reader of edge lists in Parquet files, whose columns have roles by their names."""
from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.edges import columns
from hpgcn.datasets.edges.edge_stream import SIDE, Stream
from hpgcn.datasets.edges.vertex_names import VertexNames
from hpgcn.datasets.source import need, truncate
from hpgcn.datasets.text.parquet_table import open_parquet, refusing
from hpgcn.datasets.text.parse import INT64_MAX, U, V, W
from hpgcn.errors import DataError, require
from hpgcn.graphs.edge_weights import numbers_of_texts
from hpgcn.runtime.machine import memory_budget

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

BATCH = 1 << 18  # rows per read
INTEGERS = ("int", "uint")
EXACT = 2**53  # above it, float64 cannot hold all whole numbers
NUMBERS = (*INTEGERS, "float", "double", "halffloat")
TEXT = ("string", "large_string", "string_view", "dictionary<values=string",
        "dictionary<values=large_string")


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    with stream(source, None, 1, options, memory=memory) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source: Source, digest: Any, threads: int, options: ConvertOptions, *,
           memory: int | None = None) -> Iterator:
    """Open a Parquet edge list: a context manager that gives its Stream.

    MissingError without pyarrow.
    """
    require("pyarrow.parquet", "io", "reading Parquet")
    if digest is not None:
        with source.open(digest):
            pass  # closing adds all bytes to the digest

    # find columns and limits before reading rows
    with open_parquet(source) as file:
        named, chosen, textual = _columns(file.schema_arrow, options, source)
        if textual:
            options.refuse_for_names(source)
        memory = memory_budget() if memory is None else memory
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).total_byte_size
            need(size, memory, f"{source}: row group {group}")

        # note text that is read as weights; find the range of ids
        notes = [f"{truncate(name)} is text: read as numbers" for name in chosen[2:]
                 if str(file.schema_arrow.field(name).type).startswith(TEXT)]
        names = VertexNames(source, memory, apart=options.bipartite) if textual else None
        base = options.base or 0
        high = SIDE - 1 if options.bipartite else INT64_MAX
        if options.num_nodes is not None:
            high = base + options.num_nodes - 1
        with closing(_parts(file, chosen, (base, high), source, names)) as parts:
            yield Stream(str(source), parts, named, options.num_nodes, base=base,
                         base_known=textual or options.base is not None,
                         notes=[*named.notes, *notes], names=names, compact=options.compact,
                         sides=named.sides if options.bipartite else None)


def _columns(schema: Any, options: ConvertOptions, source: Source) -> tuple:
    """Return the EdgeColumns, the columns to read, and whether ids are text."""
    kinds = [str(column.type) for column in schema]
    if options.columns is not None:
        named = columns.from_flag(options.columns, schema.names, source)
    else:
        textual = [k for k, kind in enumerate(kinds) if not kind.startswith(NUMBERS)]
        fitting = [k for k, kind in enumerate(kinds) if kind.startswith((*INTEGERS, *TEXT))]
        named = columns.from_header(schema.names, source, textual=textual, fitting=fitting,
                                    options=options)

    chosen = []
    ends = [kinds[named.roles.index(role)] for role in (U, V)]
    textual = all(kind.startswith(TEXT) for kind in ends)
    ids = ("text", TEXT) if textual else ("integers", NUMBERS)

    # refuse wrong types, and ends or weights in several columns
    weights = "numbers", (*NUMBERS, "bool", *TEXT)
    for role, (wanted, allowed) in ((U, ids), (V, ids), (W, weights)):
        if role not in named.roles:
            continue
        k = named.roles.index(role)
        name = schema.names[k]
        if not kinds[k].startswith(allowed):
            raise DataError(f"{source}: column {truncate(name)} is {kinds[k]}, expected {wanted}")
        if schema.names.count(name) > 1:
            raise DataError(f"{source}: {schema.names.count(name)} columns are called "
                            f"{truncate(name)}, expected one")
        chosen.append(name)

    return named, chosen, textual


def _parts(file: Any, chosen: list[str], limits: tuple[int, int], source: Source,
           names: VertexNames | None) -> Generator:
    row = 0

    batches = file.iter_batches(BATCH, columns=chosen)
    while True:
        with refusing(source):
            batch = next(batches, None)
        if batch is None:
            return

        w = [_values(batch.column(name), name, row, None, source) for name in chosen[2:]]
        ends = [(batch.column(name), name) for name in chosen[:2]]
        if names is None:
            u, v = (_values(column, name, row, limits, source) for column, name in ends)
        else:
            u, v = _numbers(ends, names, row, source)

        yield u, v, w[0] if w else None
        row += batch.num_rows


def _numbers(ends: list[tuple], names: VertexNames, row: int, source: Source) -> np.ndarray:
    """Return two text columns as numbers of names, (2, k) int64.

    `row` is the number of their first row.
    """
    for column, name in ends:
        _refuse_empty(column, name, row, source)
    (first, name), (second, other) = ends
    with refusing(source):
        pairs = list(zip(first.to_pylist(), second.to_pylist()))
    found = [(names.number(u, f"{source}: row {k}: {truncate(name)}", U),
              names.number(v, f"{source}: row {k}: {truncate(other)}", V))
             for k, (u, v) in enumerate(pairs, row)]
    names.check()
    return np.array(found, np.int64).reshape(-1, 2).T


def _refuse_empty(column: Any, name: str, row: int, source: Source) -> None:
    if column.null_count:
        empty = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
        raise DataError(f"{source}: row {row + empty}: {truncate(name)} is empty, expected a "
                        "number or a name")


def _values(column: Any, name: str, row: int, limits: tuple[int, int] | None,
            source: Source) -> np.ndarray:
    """Return a column as int64 ids within `limits`, or as float64 weights.

    A column without limits (None) has weights. `row` is the number of its first row,
    for errors.
    """
    _refuse_empty(column, name, row, source)
    if limits is None and str(column.type).startswith(TEXT):
        return numbers_of_texts(column.to_pylist(),
                                lambda k: f"{source}: row {row + k}: {truncate(name)}")
    values = column.to_numpy(zero_copy_only=False)

    # find the first value that is not a weight, or not an id
    if limits is None:
        values = values.astype(np.float64)
        wrong = ~np.isfinite(values)
        expected = "a finite number"
    else:
        low, high = limits
        expected = f"{low}..{high}"
        wrong = (values < low) | (values > high)
        if values.dtype.kind == "f":  # pandas writes whole numbers as floats if cells are missing
            odd = (values != np.floor(values)) | (np.abs(values) >= EXACT)
            expected = "an integer" if odd.any() else expected
            wrong = odd if odd.any() else wrong

    if wrong.any():
        k = np.argmax(wrong)
        raise DataError(f"{source}: row {row + k}: {truncate(name)} is {values[k]}, expected "
                        f"{expected}")

    return values if limits is None else values.astype(np.int64)

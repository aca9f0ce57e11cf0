"""Edge lists in Parquet files, by the names of their columns: see hpgcn.datasets.columns."""
from contextlib import closing, contextmanager

import numpy as np

from hpgcn.datasets import columns
from hpgcn.datasets.parse import INT64_MAX, U, V, W
from hpgcn.datasets.source import need, shown
from hpgcn.datasets.stream import Stream
from hpgcn.errors import DataError, require
from hpgcn.runtime.machine import memory_budget

BATCH = 1 << 18  # rows
INTEGERS = ("int", "uint")
NUMBERS = (*INTEGERS, "float", "double", "halffloat")


def read(source, memory, **options):
    with stream(source, None, 1, memory=memory, **options) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, *, names=None, base=None, memory=None):
    """Open an edge list, whose row groups may take `memory` bytes; MissingError without pyarrow.

    Its threads are its own, so that `threads` is not used; `base` is 0 unless it is given.
    """
    parquet = require("pyarrow.parquet", "io", "reading Parquet")
    if digest is not None:
        with source.open(digest):
            pass  # all of its bytes go through the digest as it is closed
    with _refusing(source):
        file = parquet.ParquetFile(source.path, page_checksum_verification=True)
    with file:
        named, chosen = _columns(file.schema_arrow, names, source)
        memory = memory_budget() if memory is None else memory
        for group in range(file.metadata.num_row_groups):
            size = file.metadata.row_group(group).total_byte_size
            need(size, memory, f"{source}: row group {group}")
        with closing(_parts(file, chosen, base or 0, source)) as parts:
            yield Stream(str(source), parts, named, base=base or 0, base_known=base is not None,
                         notes=list(named.notes))


def _columns(schema, flag, source):
    """Return Columns, and the names of the columns of both ids and of the weight, if any."""
    kinds = [str(column.type) for column in schema]
    if flag is not None:
        named = columns.of_flag(flag, schema.names, source)
    else:
        textual = [k for k, kind in enumerate(kinds) if not kind.startswith(NUMBERS)]
        named = columns.of_header(schema.names, source, textual=textual)
    chosen = []
    for role, wanted, allowed in ((U, "integers", INTEGERS), (V, "integers", INTEGERS),
                                  (W, "numbers", NUMBERS)):
        if role not in named.roles:
            continue
        k = named.roles.index(role)
        name = schema.names[k]
        if not kinds[k].startswith(allowed):
            raise DataError(f"{source}: column {shown(name)} is {kinds[k]}, expected {wanted}")
        if schema.names.count(name) > 1:
            raise DataError(f"{source}: {schema.names.count(name)} columns are called "
                            f"{shown(name)}, expected one")
        chosen.append(name)
    return named, chosen


def _parts(file, chosen, base, source):
    row = 0
    batches = file.iter_batches(BATCH, columns=chosen)
    while True:
        with _refusing(source):
            batch = next(batches, None)
        if batch is None:
            return
        u, v, *w = (_values(batch.column(name), name, row, base if k < 2 else None, source)
                    for k, name in enumerate(chosen))
        yield u, v, w[0] if w else None
        row += batch.num_rows


def _values(column, name, row, base, source):
    """Return a column from row `row` on: int64 ids from `base` on, or (None) float64 weights."""
    if column.null_count:
        empty = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
        raise DataError(f"{source}: row {row + empty}: {shown(name)} is empty, expected a number")
    values = column.to_numpy(zero_copy_only=False)
    if base is None:
        values = values.astype(np.float64)
        wrong = ~np.isfinite(values)
        expected = "a finite number"
    else:
        wrong = (values < base) | (values > INT64_MAX)
        expected = f"{base}..{INT64_MAX}"
    if wrong.any():
        k = np.argmax(wrong)
        raise DataError(f"{source}: row {row + k}: {shown(name)} is {values[k]}, expected "
                        f"{expected}")
    return values if base is None else values.astype(np.int64)


@contextmanager
def _refusing(source):
    try:
        yield
    except MemoryError as error:
        raise DataError(f"{source}: does not fit into memory") from error
    except Exception as error:  # what ArrowInvalid and OSError share
        reason = shown(" ".join(str(error).split()) or type(error).__name__)
        raise DataError(f"{source}: broken Parquet data ({reason})") from error

"""Edge lists in Parquet files, by the names of their columns: see hpgcn.datasets.columns."""
from __future__ import annotations

from contextlib import closing, contextmanager

import numpy as np

from hpgcn.datasets import columns
from hpgcn.datasets.parse import U, V, W
from hpgcn.datasets.source import need, shown
from hpgcn.datasets.stream import Stream
from hpgcn.errors import DataError, require
from hpgcn.machine import memory_budget

BATCH = 1 << 18  # rows
INT64_MAX = int(np.iinfo(np.int64).max)
INTEGERS = ("int", "uint")
NUMBERS = (*INTEGERS, "float", "double", "halffloat")


def read(source, memory, **options):
    """Read an edge list; see `stream`.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw
    """
    with stream(source, None, 1, memory=memory, **options) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, *, names=None, base=None, memory=None):
    """Open an edge list: a context that gives a Stream.

    Parameters
    ----------
    digest : hash object or None
        The bytes of the file go through it.
    threads : int
        Not used: pyarrow has its own.
    names : str, optional
        Names of the columns, as --columns takes them; default the file's own.
    base : int, optional
        Id of vertex 0; default 0.
    memory : int, optional
        Bytes that one row group may take.

    Raises
    ------
    DataError
        Not Parquet; names that do not say what the columns are; ids that are no integers, empty or below `base`; a
        weight that is not finite.
    UsageError
        `names` that do not say what the columns are.
    MissingError
        pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "io", "reading Parquet")
    if digest is not None:
        with open(source.path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    with _refusing(source):
        file = parquet.ParquetFile(source.path, page_checksum_verification=True)
    with file:
        found, chosen = _columns(file.schema_arrow, names, source)
        memory = memory_budget() if memory is None else memory
        for group in range(file.metadata.num_row_groups):
            need(file.metadata.row_group(group).total_byte_size, memory, f"{source}: row group {group}")
        with closing(_parts(file, chosen, base or 0, source)) as parts:
            yield Stream(str(source), parts, found, base=base or 0, base_known=base is not None,
                         notes=list(found.notes))


def _columns(schema, flag, source):
    """Return Columns, and the names of the columns of both ids, and of the weight if there is one."""
    kinds = [str(each.type) for each in schema]
    textual = [k for k, kind in enumerate(kinds) if not kind.startswith(NUMBERS)]
    if flag is not None:
        found = columns.of_flag(flag, schema.names, source)
    else:
        found = columns.of_header(schema.names, source, textual=textual)
    chosen = [found.roles.index(role) for role in (U, V, W) if role in found.roles]
    for k, wanted in zip(chosen, ("integers", "integers", "numbers")):
        name = schema.names[k]
        if not kinds[k].startswith(INTEGERS if wanted == "integers" else NUMBERS):
            raise DataError(f"{source}: column {shown(name)} is {kinds[k]}, expected {wanted}")
        if schema.names.count(name) > 1:
            raise DataError(f"{source}: {schema.names.count(name)} columns are called {shown(name)}, expected one")
    return found, [schema.names[k] for k in chosen]


def _parts(file, chosen, base, source):
    row = 0
    batches = file.iter_batches(BATCH, columns=chosen)
    while True:
        with _refusing(source):
            batch = next(batches, None)
        if batch is None:
            return
        ids = [_ids(batch.column(name), name, row, base, source) for name in chosen[:2]]
        weights = None
        if len(chosen) == 3:
            _refuse_empty(batch.column(chosen[2]), chosen[2], row, source)
            weights = batch.column(chosen[2]).to_numpy(zero_copy_only=False).astype(np.float64)
            wrong = np.flatnonzero(~np.isfinite(weights))
            if wrong.size:
                raise DataError(f"{source}: row {row + wrong[0]}: {chosen[2]} is {weights[wrong[0]]}, expected a "
                                "finite number")
        yield *ids, weights
        row += batch.num_rows


def _ids(column, name, row, base, source):
    _refuse_empty(column, name, row, source)
    ids = column.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((ids < base) | (ids > INT64_MAX))
    if wrong.size:
        raise DataError(f"{source}: row {row + wrong[0]}: {shown(name)} is {ids[wrong[0]]}, expected "
                        f"{base}..{INT64_MAX}")
    return ids.astype(np.int64)


def _refuse_empty(column, name, row, source):
    if column.null_count:
        empty = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
        raise DataError(f"{source}: row {row + empty}: {shown(name)} is empty, expected a number")


@contextmanager
def _refusing(source):
    """Turn what pyarrow raises on broken data into one line."""
    try:
        yield
    except MemoryError as error:
        raise DataError(f"{source}: does not fit into memory") from error
    except Exception as error:  # ArrowInvalid, ArrowNotImplementedError, OSError: what they share is Exception
        reason = shown(" ".join(str(error).split()) or type(error).__name__)
        raise DataError(f"{source}: broken Parquet data ({reason})") from error

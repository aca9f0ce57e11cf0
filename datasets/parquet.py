"""Edge lists in Parquet files: columns source, target and maybe weight, or the first two columns of integers."""
from __future__ import annotations

from contextlib import closing, contextmanager

import numpy as np

from hpgcn.datasets.source import need, shown
from hpgcn.datasets.stream import Stream
from hpgcn.errors import DataError, require
from hpgcn.machine import memory_budget

BATCH = 1 << 18  # rows
INT64_MAX = int(np.iinfo(np.int64).max)


def read(source, memory):
    """Read an edge list; the row `u, v` is the entry a[u, v].

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw

    Raises
    ------
    DataError
        Not Parquet; no two columns of integers; an empty or negative id; a weight that is not finite.
    MissingError
        pyarrow is not installed.
    """
    with stream(source, None, 1, memory) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, memory=None):
    """As `read`, block by block: a context that gives a Stream.

    Parameters
    ----------
    digest : hash object or None
        The bytes of the file go through it.
    threads : int
        Not used: pyarrow has its own.
    memory : int, optional
        Bytes that one row group may take.
    """
    parquet = require("pyarrow.parquet", "io", "reading Parquet")
    if digest is not None:
        with open(source.path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    with _refusing(source):
        file = parquet.ParquetFile(source.path, page_checksum_verification=True)
    with file:
        columns = _columns(file.schema_arrow, source)
        memory = memory_budget() if memory is None else memory
        for group in range(file.metadata.num_row_groups):
            need(file.metadata.row_group(group).total_byte_size, memory, f"{source}: row group {group}")
        with closing(_parts(file, columns, source)) as parts:
            yield Stream(str(source), parts, len(columns) == 3)


def _columns(schema, source):
    """Names of the columns of both ids, and of the weight if there is one."""
    kinds = {name: str(schema.field(k).type) for k, name in enumerate(schema.names)}
    known = {name.lower(): name for name in kinds}
    ids = [known[name] for name in ("source", "target") if name in known]
    if len(ids) < 2:
        ids = [name for name, kind in kinds.items() if kind.startswith(("int", "uint"))][:2]
    if len(ids) < 2 or not all(kinds[name].startswith(("int", "uint")) for name in ids):
        listed = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise DataError(f"{source}: columns {shown(listed) or 'none'}, expected source and target, or two columns of "
                        "integers")
    weight = known.get("weight")
    if weight is not None and not kinds[weight].startswith(("int", "uint", "float", "double", "halffloat")):
        raise DataError(f"{source}: column weight is {kinds[weight]}, expected numbers")
    return [*ids, *([] if weight is None else [weight])]


def _parts(file, columns, source):
    row = 0
    batches = file.iter_batches(BATCH, columns=columns)
    while True:
        with _refusing(source):
            batch = next(batches, None)
        if batch is None:
            return
        ids = [_ids(batch.column(name), name, row, source) for name in columns[:2]]
        weights = None
        if len(columns) == 3:
            _refuse_empty(batch.column(columns[2]), columns[2], row, source)
            weights = batch.column(columns[2]).to_numpy(zero_copy_only=False).astype(np.float64)
            wrong = np.flatnonzero(~np.isfinite(weights))
            if wrong.size:
                raise DataError(f"{source}: row {row + wrong[0]}: {columns[2]} is {weights[wrong[0]]}, expected a "
                                "finite number")
        yield *ids, weights
        row += batch.num_rows


def _ids(column, name, row, source):
    _refuse_empty(column, name, row, source)
    ids = column.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((ids < 0) | (ids > INT64_MAX))
    if wrong.size:
        raise DataError(f"{source}: row {row + wrong[0]}: {shown(name)} is {ids[wrong[0]]}, expected 0..{INT64_MAX}")
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

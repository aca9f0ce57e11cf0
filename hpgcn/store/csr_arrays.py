"""Store a CSR matrix as an HDF5 group that both Binsparse and AnnData can open."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs import validation
from hpgcn.graphs.adjacency import row_blocks
from hpgcn.store.manifest import map_blocks

if TYPE_CHECKING:
    from hpgcn.store.reader import Reader
    from hpgcn.store.writer import Writer

# name in AnnData -> name in the binsparse specification
LINKS = {"indptr": "pointers_to_1", "indices": "indices_1", "data": "values"}
PIECE = 1 << 17  # numbers that fit into a processor's cache
VERSION = "0.1.0"  # version of both specifications


def write_csr(writer: Writer, group: str, indptr: Any, indices: Any, values: Any,
              num_columns: int) -> None:
    """Write a CSR matrix, with the metadata that Binsparse and AnnData require.

    `indptr` is (m + 1,) int64, `indices` (nnz,) int32 or int64, `values` (nnz,)
    float32, or None if all are 1. Ones are stored as uint8, and need never be read.
    """
    ones = values is None
    if ones:
        values = np.broadcast_to(np.uint8(1), indices.shape)
    arrays = {"pointers_to_1": indptr, "indices_1": indices, "values": values}

    shape = [int(indptr.shape[0]) - 1, int(num_columns)]
    description = {
        "version": VERSION, "format": "CSR", "shape": shape,
        "number_of_stored_values": int(indices.shape[0]),
        "data_types": {name: np.dtype(array.dtype).name for name, array in arrays.items()}}
    writer.attributes(group, {
        "binsparse": json.dumps({"binsparse": description}), "encoding-type": "csr_matrix",
        "encoding-version": VERSION, "shape": shape, "all_ones": ones})

    for name, array in arrays.items():
        writer.dataset(f"{group}/{name}", array)
    for alias, name in LINKS.items():
        writer.link(f"{group}/{alias}", f"{group}/{name}")


def expect_csr(reader: Reader, group: str, shape: tuple[int, int]) -> tuple[bool, int]:
    """Check dtypes and lengths of a CSR group; return whether all values are 1, and nnz.

    The group is not read.
    """
    stored = reader.field("shape", list, f"/{group}")
    if stored != list(shape):
        raise reader.error(f"/{group}: attribute shape is {stored}, expected {list(shape)}")
    ones = reader.field("all_ones", int, f"/{group}") == 1
    reader.expect(f"{group}/pointers_to_1", (shape[0] + 1,), np.int64)
    nnz = reader.expect(f"{group}/indices_1", (None,), np.int32, np.int64).rows
    reader.expect(f"{group}/values", (nnz,), np.uint8 if ones else np.float32)
    return ones, nnz


def read_csr(reader: Reader, group: str, start: int, stop: int, num_rows: int, num_columns: int,
             ones: bool) -> tuple:
    """Read and validate the rows [start, stop) of a stored CSR matrix (num_rows, num_columns).

    Return indptr (m + 1,) int64 from 0, indices (nnz,), values (nnz,) float32, None for
    `ones`.
    """
    # check the row pointers before they locate entries
    where = f"{reader.path}: {group}"
    nnz = reader.entries[f"{group}/indices_1"].rows
    indptr = reader.read(f"{group}/pointers_to_1", start, stop + 1)
    first = int(indptr[0])
    last = int(indptr[-1])
    end = nnz if stop == num_rows else last
    validation.check_csr(indptr, np.empty(0, np.int32), end, num_columns, where, start)
    refuse_pointers(reader, group, start, stop, first, last)

    # read and check columns and values
    indices = reader.read(f"{group}/indices_1", first, last)
    _check_columns(indptr, indices, num_columns, where, start)
    values = None
    if not ones:
        values = reader.read(f"{group}/values", first, last)
        if not all_finite(values):
            k = validation.first_true(~np.isfinite(values))
            row = start + int(np.searchsorted(indptr, first + k, side="right")) - 1
            raise DataError(f"{where}: the value at ({row}, {indices[k]}) is {values[k]}, expected "
                            "a finite number")
    return indptr - first, indices, values


def _check_columns(indptr: np.ndarray, indices: np.ndarray, num_columns: int, where: str,
                   start: int) -> None:
    """Refuse columns like `validation.check_csr`, on all threads, in blocks of rows.

    A block fits in a cache.
    """
    first = int(indptr[0])

    def check(rows: tuple[int, int]) -> None:
        pointers = indptr[rows[0]:rows[1] + 1]
        low, high = int(pointers[0]), int(pointers[-1])
        validation.check_csr(pointers, indices[low - first:high - first], high, num_columns, where,
                             start + rows[0])

    map_blocks(check, list(row_blocks(indptr, PIECE)))


def all_finite(array: np.ndarray) -> bool:
    """Return whether an array has no NaN and no Inf, a piece at a time."""
    flat = array.reshape(-1)
    return all(np.isfinite(flat[k:k + PIECE]).all() for k in range(0, flat.size, PIECE))


def refuse_pointers(reader: Reader, group: str, start: int, stop: int, first: int,
                    last: int) -> None:
    """Raise an error if the row pointers `first` and `last` leave the stored entries."""
    nnz = reader.entries[f"{group}/indices_1"].rows
    if not 0 <= first <= last <= nnz:
        raise reader.error(f"{group}: row pointers of rows {start}..{stop} run from {first} to "
                           f"{last}, expected within 0..{nnz}")


def reorder_entries(values: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
                    number: np.ndarray) -> np.ndarray:
    """Reorder values of entries, (nnz,) of a CSR matrix (n, n), as `Graph.permuted` does."""
    number = number.astype(indices.dtype, copy=False)
    rows = np.repeat(number, np.diff(indptr))
    shape = (number.size, number.size)
    matrix = sp.coo_array((values, (rows, number[indices])), shape=shape).tocsr()
    matrix.sort_indices()
    return matrix.data

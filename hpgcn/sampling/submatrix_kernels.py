"""Compiled loops that extract the matrix of a batch from the local matrix.

They run on one thread, without the GIL. hpgcn.kernels.cuda.submatrix has their twins for
a GPU.

Rows and columns have local numbers: own ones first, then those of other ranks.
"""
from __future__ import annotations

import numpy as np

from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.orders import sort_row
from hpgcn.sampling.keyed_draws import GOLDEN, fold


@jit()
def by_batch(number: np.ndarray, batches: int) -> tuple:
    """Sort positions by batch.

    Return offsets (batches + 1,) and positions, increasing in each batch. `number`,
    (m,), has the batch of each position; positions with numbers below 0 are left out.
    """
    # count, then place
    offsets = np.zeros(batches + 1, np.int64)
    for i in range(number.size):
        if number[i] >= 0:
            offsets[number[i] + 1] += 1
    for b in range(batches):
        offsets[b + 1] += offsets[b]

    order = np.empty(offsets[batches], np.int64)
    at = offsets[:-1].copy()
    for i in range(number.size):
        b = number[i]
        if b >= 0:
            order[at[b]] = i
            at[b] += 1
    return offsets, order


@jit()
def agreeing(pointers: np.ndarray, witnesses: np.ndarray, rows: np.ndarray,
             out: np.ndarray) -> None:
    """Write the batch of each row to `out`, (s,), if a witness agrees.

    Without a witness in this batch it is -1. `rows`, (s,), has the batch of each row.
    `witnesses` has the batches of the witnesses; those of row s begin at pointers[s].
    """
    for s in range(rows.size):
        out[s] = -1
        for w in range(pointers[s], pointers[s + 1]):
            if witnesses[w] == rows[s]:
                out[s] = rows[s]
                break


@jit()
def induce(begins: np.ndarray, ends: np.ndarray, columns: np.ndarray, values: np.ndarray,
           rows: np.ndarray, row_unit: np.ndarray, column_unit: np.ndarray, number: np.ndarray,
           batch: int, factor: float) -> tuple:
    """Select the entries of some rows whose columns are also in a batch.

    begins, ends: (r,), where the entries of each of `rows` are in `columns` and
    `values`. Entries between vertices of two units are multiplied by `factor`. Return
    row pointers, columns with their old numbers, and values.
    """
    # room for all entries of these rows
    most = np.int64(0)
    for k in range(rows.size):
        most += ends[k] - begins[k]
    pointers = np.zeros(rows.size + 1, np.int64)
    kept = np.empty(most, columns.dtype)
    scaled = np.empty(most, values.dtype)
    filled = np.int64(0)

    # keep entries whose columns are in the batch
    for k in range(rows.size):
        i = rows[k]
        for e in range(begins[k], ends[k]):
            j = columns[e]
            if number[j] == batch:
                kept[filled] = j
                same = row_unit[i] == column_unit[j]
                scaled[filled] = values[e] if same else values[e] * factor
                filled += 1
        pointers[k + 1] = filled
    return pointers, kept[:filled], scaled[:filled]


@jit()
def split_diagonal(indptr: np.ndarray, columns: np.ndarray, values: np.ndarray,
                   diagonal: np.ndarray, present: np.ndarray, kept: np.ndarray,
                   others: np.ndarray) -> np.ndarray:
    """Move the diagonal entries of own rows to `diagonal`, (m,).

    Return row pointers of the other entries. `present`, (m,) bool, becomes True for
    rows with a diagonal entry. `kept` and `others`, (nnz,), are filled with columns and
    values of the other entries.
    """
    pointers = np.zeros(indptr.size, np.int64)
    filled = np.int64(0)

    for i in range(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if columns[e] == i and i < diagonal.size:
                diagonal[i] = values[e]
                present[i] = True
            else:
                kept[filled] = columns[e]
                others[filled] = values[e]
                filled += 1
        pointers[i + 1] = filled
    return pointers


@jit(inner=True)
def _mark(seen: np.ndarray, stamp: np.ndarray, position: int) -> int:
    known = seen[position] == stamp
    seen[position] = stamp
    return known


@jit(inner=True)
def _position_in(positions: np.ndarray, low: int, high: int, wanted: int) -> int:
    """Return the index of `wanted` between `low` and `high`, else -1.

    `positions` increase.
    """
    end = high
    while low < high:
        middle = (low + high) // 2
        if positions[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and positions[low] == wanted else -1


@jit()
def sample_entries(begins: np.ndarray, ends: np.ndarray, columns: np.ndarray, values: np.ndarray,
                   positions: np.ndarray, degrees: np.ndarray, vertex: np.ndarray, rows: np.ndarray,
                   count: int, key: int, longest: int) -> tuple:
    """Draw `count` entries of each row in `rows`, or all if it is -1.

    `key` and the row's vertex key the draws. The entries of rows are those from
    `begins` to `ends`, (r,), in `columns`, `values` and `positions`. Positions among
    all entries of the row are drawn by Floyd's algorithm. `positions`, increasing in
    each row, are those of the entries stored here, empty if rows are stored whole.
    `degrees` are those of whole rows, `longest` the largest. Return row pointers,
    columns, and values times degree / count.
    """
    # room for all entries
    most = np.int64(0)
    for k in range(rows.size):
        stored = ends[k] - begins[k]
        most += stored if count < 0 else min(stored, count)
    pointers = np.zeros(rows.size + 1, np.int64)
    kept = np.empty(most, columns.dtype)
    scaled = np.empty(most, values.dtype)
    seen = np.full(longest + 1, -1, np.int64)
    filled = np.int64(0)

    for k in range(rows.size):
        i = rows[k]
        first, last, degree = begins[k], ends[k], degrees[i]

        # a row that is taken whole
        if count < 0 or degree <= count:
            for e in range(first, last):
                kept[filled] = columns[e]
                scaled[filled] = values[e]
                filled += 1

        # Floyd's algorithm over the whole row, of which this rank may hold a part
        elif last > first:
            factor = values.dtype.type(degree / count)
            own = fold(key, np.uint64(vertex[i]))
            for j in range(degree - count, degree):
                step = own + np.uint64(j + 1) * GOLDEN
                position = np.int64(mix(step) % np.uint64(j + 1))
                if _mark(seen, k, position):
                    position = np.int64(j)
                    seen[position] = k
                e = first + position
                if last - first < degree:
                    e = _position_in(positions, first, last, position)
                    if e < 0:
                        continue
                kept[filled] = columns[e]
                scaled[filled] = values[e] * factor
                filled += 1

        pointers[k + 1] = filled
    return pointers, kept[:filled], scaled[:filled]


@jit()
def renumber(columns: np.ndarray, place: np.ndarray) -> None:
    """Replace each column by its new number, in place."""
    for e in range(columns.size):
        columns[e] = place[columns[e]]


def distinct(numbers: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the distinct numbers, increasing; `seen`, (n,) bool, is False before and after."""
    return np.sort(_first_of_each(numbers, seen))


@jit()
def _first_of_each(numbers: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the distinct numbers in the order in which they first occur."""
    out = np.empty(numbers.size, np.int64)
    at = 0
    for number in numbers:
        if not seen[number]:
            seen[number] = True
            out[at] = number
            at += 1
    for number in out[:at]:
        seen[number] = False
    return out[:at]


@jit()
def with_diagonal(pointers: np.ndarray, columns: np.ndarray, values: np.ndarray, rows: np.ndarray,
                  diagonal: np.ndarray, present: np.ndarray) -> tuple:
    """Insert the diagonal entry of each row that has one before its other entries.

    Row k of the matrix is own row rows[k].
    """
    # room for the diagonal
    extra = np.int64(0)
    for k in range(rows.size):
        extra += present[rows[k]]
    merged = np.zeros(pointers.size, np.int64)
    kept = np.empty(columns.size + extra, columns.dtype)
    scaled = np.empty(columns.size + extra, values.dtype)
    filled = np.int64(0)

    for k in range(pointers.size - 1):
        if k < rows.size and present[rows[k]]:
            kept[filled] = rows[k]
            scaled[filled] = diagonal[rows[k]]
            filled += 1
        for e in range(pointers[k], pointers[k + 1]):
            kept[filled] = columns[e]
            scaled[filled] = values[e]
            filled += 1
        merged[k + 1] = filled
    return merged, kept, scaled


@jit()
def sort_rows(pointers: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    """Sort the entries of each row by column, in place."""
    for k in range(pointers.size - 1):
        first, last = pointers[k], pointers[k + 1]
        if last - first > 64:
            # sort numbers that hold a column and the place of its value
            count = last - first
            keys = np.empty(count, np.int64)
            some_values = np.empty(count, values.dtype)
            for e in range(count):
                keys[e] = np.int64(columns[first + e]) * count + e
                some_values[e] = values[first + e]
            sort_row(keys)
            for e in range(count):
                columns[first + e] = keys[e] // count
                values[first + e] = some_values[keys[e] % count]
            continue
        for e in range(first + 1, last):
            column, value = columns[e], values[e]
            place_of_column = e
            while place_of_column > first and columns[place_of_column - 1] > column:
                columns[place_of_column] = columns[place_of_column - 1]
                values[place_of_column] = values[place_of_column - 1]
                place_of_column -= 1
            columns[place_of_column] = column
            values[place_of_column] = value


@jit()
def take_block(pointers: np.ndarray, columns: np.ndarray, values: np.ndarray, cursor: np.ndarray,
               first: int, low: int, high: int) -> tuple:
    """Extract a block of some rows.

    It has the entries from each row's cursor to column `high` - 1. `cursor`, (r,), has
    positions in the rows from `first` on; they are moved to the end of the block.
    Columns of the block are numbered from `low`. Return row pointers, columns and
    values.
    """
    # find where each row ends
    indptr = np.zeros(cursor.size + 1, np.int64)
    for k in range(cursor.size):
        e = cursor[k]
        last = pointers[first + k + 1]
        while e < last and columns[e] < high:
            e += 1
        indptr[k + 1] = indptr[k] + e - cursor[k]

    # copy
    indices = np.empty(indptr[-1], np.int32)
    data = np.empty(indptr[-1], values.dtype)
    filled = 0
    for k in range(cursor.size):
        begin = cursor[k]
        for e in range(begin, begin + indptr[k + 1] - indptr[k]):
            indices[filled] = columns[e] - low
            data[filled] = values[e]
            filled += 1
        cursor[k] = begin + indptr[k + 1] - indptr[k]
    return indptr, indices, data

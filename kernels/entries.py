"""Check and sum the entries of a stored matrix in one pass; scale the matrix of a rank.

The checksums of `add_up` take very little memory. Hashes of entries are summed modulo
2^64 with a sign, so hashes of equal entries cancel, even on different ranks. If the
entries differ, the sum is not 0, except with a probability of 2^-64.
"""

import numpy as np

from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

HASHED = 16  # scalar operations to check an entry
READ = 8  # scalar operations to copy an entry
WEIGHT_FACTOR = np.uint64(0xD6E8FEB86659FD93)


@jit(inner=True)
def bit_in_word(number):
    """Return the bit of a number in its word of a bitmap, uint64; words have 64 bits."""
    return np.uint64(1) << np.uint64(number & 63)


@jit()
def mix(x):
    """Scramble the bits of a 64-bit number (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@jit(forceinline=True)
def _fingerprints(row, column, number, keyed):
    """Return the two hashes of an entry that `add_fingerprint` adds, uint64.

    Each hash scrambles a sum of the entry's numbers times odd factors. For any two
    entries, at least one of the two hashes differs.
    """
    low, high = np.uint64(row), np.uint64(column)
    if row > column:
        low, high = high, low
    weight = np.uint64(0)
    if number != 0:
        weight = np.uint64(np.float32(number).view(np.uint32)) * WEIGHT_FACTOR
    first, second = keyed[0] | np.uint64(1), keyed[1] | np.uint64(1)
    x = mix(low * first + high * second + weight)
    y = mix(low * second + high * first + weight)
    if row > column:
        return np.uint64(0) - x, np.uint64(0) - y
    return x, y


@jit(inner=True)
def add_fingerprint(row, column, number, keyed, sums):
    """Add the hashes of an entry above the diagonal to `sums`; subtract those below it.

    For a symmetric matrix, `sums` (2,) uint64 end at zero. `keyed` (2,) uint64 are the
    keys of the two hash functions.
    """
    x, y = _fingerprints(row, column, number, keyed)
    sums[0] += x
    sums[1] += y


@jit()
def pair_sum(first, second, key):
    """Return the sum of the hashes of pairs (first[k], second[k]) of integers >= 0, uint64."""
    total = np.uint64(0)
    for k in range(first.size):
        total += mix(mix(key + np.uint64(first[k])) + np.uint64(second[k]))
    return total


@jit(inner=True)
def _bucket(number, key, buckets):
    """Return the bucket of a column number, and a random factor in [1, 2) of the same hash."""
    x = mix(key + np.uint64(number))
    return x % buckets, 1 + np.float64(x >> np.uint64(40)) / 2**24


def add_up(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, first: int,
           degree_row: np.ndarray, degree_column: np.ndarray, degree_loop: np.ndarray,
           symmetric: bool, tolerance: float, keyed: np.ndarray, prints: np.ndarray,
           columns: np.ndarray) -> np.ndarray:
    """Compare the stated degrees with the sums of rows; add up checksums.

    `indptr` (m + 1,) starts at 0, at row `first`. `data` (nnz,) float32 is empty if all
    weights are 1. Degrees are (m,) float64. A sum may differ by `tolerance` times the
    sum of absolute weights.

    If `symmetric` is stated, `prints` (2,) uint64 gets `add_fingerprint` of every
    entry, and sums of rows stand for those of columns. `columns` (b, 2) float64 gets
    two sums in the bucket of each column: its weights less its degree, and the absolute
    weights. Both are multiplied by a factor that depends on the column only.

    Return the first row whose sum is wrong, and the first whose loop is wrong, (2,)
    int64; m for neither. Each chunk of rows has sums of its own, so the number of
    threads changes no sum.
    """
    bounds = by_nonzeros(indptr)
    count = bounds.size - 1
    wrong = np.full((count, 2), indptr.size - 1)
    sums, parts = np.zeros((count, 2), np.uint64), np.zeros((count, *columns.shape))
    _add_up(HASHED * indices.size, bounds, indptr, indices, data, first, degree_row, degree_column,
            degree_loop, symmetric, tolerance, keyed, wrong, sums, parts)
    prints += sums.sum(0, dtype=np.uint64)
    columns += parts.sum(0)
    return wrong.min(0, initial=indptr.size - 1)


@Threaded
def _add_up(counters, bounds, indptr, indices, data, first, degree_row, degree_column,
            degree_loop, symmetric, tolerance, keyed, wrong, prints, columns):
    buckets = np.uint64(columns.shape[1])
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            total, size, loop = 0.0, 0.0, 0.0
            for k in range(indptr[i], indptr[i + 1]):
                # one entry: its row, its bucket, its fingerprint
                column = np.int64(indices[k])
                weight = np.float64(data[k]) if data.size else 1.0
                total += weight
                size += abs(weight)
                if column == first + i:
                    loop = weight
                elif symmetric:
                    x, y = _fingerprints(first + i, column, weight, keyed)
                    prints[chunk, 0] += x
                    prints[chunk, 1] += y
                if not symmetric:
                    bucket, factor = _bucket(column, keyed[0], buckets)
                    columns[chunk, bucket, 0] += factor * weight
                    columns[chunk, bucket, 1] += factor * abs(weight)

            # subtract the degrees: the rest is near 0
            bucket, factor = _bucket(first + i, keyed[0], buckets)
            columns[chunk, bucket, 0] -= factor * degree_column[i]
            if symmetric:
                columns[chunk, bucket, 0] += factor * total
                columns[chunk, bucket, 1] += factor * size

            # note the first row whose degrees do not fit
            if not abs(total - degree_row[i]) <= tolerance * size and i < wrong[chunk, 0]:
                wrong[chunk, 0] = i
            if loop != degree_loop[i] and i < wrong[chunk, 1]:
                wrong[chunk, 1] = i


@jit()
def is_symmetric(indptr, indices, data, cursor):
    """Return whether a CSR matrix equals its transpose; columns increase in each row.

    `data` (nnz,) is empty if all entries are equal. `cursor` (n,) is a copy of
    `indptr[:-1]`, and is changed. Rows are visited in order. So the entries left of a
    row's diagonal are found one after the other, as images of earlier entries.
    """
    for row in range(indptr.size - 1):
        # entries left of the diagonal have all been found as images
        k = cursor[row]
        stop = indptr[row + 1]
        if k < stop and indices[k] < row:
            return False
        k += k < stop and indices[k] == row

        # each entry right of it must have its image next in the row of its column
        while k < stop:
            column = indices[k]
            image = cursor[column]
            if image >= indptr[column + 1] or indices[image] != row:
                return False
            if data.size and data[image] != data[k]:
                return False
            cursor[column] = image + 1
            k += 1
    return True


@jit()
def add_sums(indptr, indices, data, rows, columns):
    """Add the entries of a CSR matrix to sums of `rows` and `columns`, (n,) float64 each.

    All entries are 1 if `data` is empty.
    """
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            weight = data[k] if data.size else 1.0
            rows[row] += weight
            columns[indices[k]] += weight


@jit()
def mark_neighbors(indptr, indices, touched):
    """Set `touched` (n,) bool at both ends of each entry off the diagonal."""
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            if indices[k] != row:
                touched[row] = touched[indices[k]] = True


def missing_loops(indptr: np.ndarray, indices: np.ndarray, first: int) -> np.ndarray:
    """Return which rows have no entry on the diagonal, (m,) bool; they begin at row `first`.

    Columns (nnz,) increase in each row.
    """
    missing = np.empty(indptr.size - 1, bool)
    _missing_loops(READ * missing.size, by_nonzeros(indptr), indptr, indices, first, missing)
    return missing


@Threaded
def _missing_loops(counters, bounds, indptr, indices, first, missing):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            low, high = indptr[i], indptr[i + 1]
            end = high
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < first + i:
                    low = middle + 1
                else:
                    high = middle
            missing[i] = low == end or indices[low] != first + i


def scaled_rows(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None, first: int,
                added: np.ndarray, scales: tuple[np.ndarray, np.ndarray], number: np.ndarray,
                dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Return (indptr, indices, values) of scaled rows with loops; they begin at row `first`.

    Rows in `added`, (m,) bool, get an entry of weight 1 on the diagonal. Each weight is
    multiplied by the factors of its row and of its column in float64, then rounded to
    `dtype`. Entries keep their order.

    Parameters
    ----------
    indptr, indices, data : (m + 1,) int64 from 0, (nnz,), (nnz,) float32
        Rows with increasing columns; `data` is None if all weights are 1.
    scales : (m,) and (c,) float64
        Factors of rows, and of columns by their number in the result.
    number : (n,) integers
        The number of each column in the result; empty: its number less `first`.
    """
    pointers = indptr.copy()
    np.cumsum(added, out=pointers[1:])
    pointers[1:] += indptr[1:]
    columns = np.empty(int(pointers[-1]), number.dtype)
    values = np.empty(columns.size, dtype)
    data = np.empty(0, np.float32) if data is None else data
    _scaled_rows(READ * columns.size, by_nonzeros(indptr), indptr, indices, data, first, added,
                 *scales, number, pointers, columns, values)
    return pointers, columns, values


@Threaded
def _scaled_rows(counters, bounds, indptr, indices, data, first, added, row_scale, column_scale,
                 number, pointers, columns, values):
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            k, waiting = indptr[i], added[i]
            for at in range(pointers[i], pointers[i + 1]):
                # the next entry, or the loop in its place among the columns
                column, weight = first + i, 1.0
                if waiting and (k == indptr[i + 1] or indices[k] > column):
                    waiting = False
                else:
                    column = np.int64(indices[k])
                    weight = np.float64(data[k]) if data.size else 1.0
                    k += 1

                # its number and its value
                local = np.int64(number[column]) if number.size else column - first
                columns[at] = local
                values[at] = weight * (row_scale[i] * column_scale[local])


def split_columns(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray,
                  bounds: np.ndarray) -> list[tuple]:
    """Split a matrix into blocks of columns; return a list of (indptr, indices, data).

    Block b has the columns [bounds[b], bounds[b + 1]), numbered from 0. `bounds`, (b + 1,)
    int64, runs from 0 to the number of columns. In each row the entries of a block
    follow each other, and keep their order.
    """
    count = bounds.size - 1
    rows = by_nonzeros(indptr)
    pointers = np.zeros((count, indptr.size), np.int64)
    _count_in_blocks(READ * indices.size, rows, indptr, indices, bounds, pointers)
    np.cumsum(pointers, axis=1, out=pointers)

    # blocks lie one after another
    begins = np.concatenate([[0], np.cumsum(pointers[:, -1])])
    columns, values = np.empty_like(indices), np.empty_like(data)
    _move_to_blocks(READ * indices.size, rows, indptr, indices, data, bounds, pointers, begins,
                    columns, values)
    return [(pointers[b], columns[begins[b]:begins[b + 1]], values[begins[b]:begins[b + 1]])
            for b in range(count)]


@jit(forceinline=True)
def _block_of(column, block, bounds):
    """Return the block of a column; `block` is that of the last entry, which is likely the same."""
    if column < bounds[block]:
        block = 0
    while column >= bounds[block + 1]:
        block += 1
    return block


@Threaded
def _count_in_blocks(counters, rows, indptr, indices, bounds, counts):
    for chunk in chunks(counters, rows.size - 1):
        for i in range(rows[chunk], rows[chunk + 1]):
            block = 0
            for k in range(indptr[i], indptr[i + 1]):
                block = _block_of(indices[k], block, bounds)
                counts[block, i + 1] += 1


@Threaded
def _move_to_blocks(counters, rows, indptr, indices, data, bounds, pointers, begins, columns,
                    values):
    for chunk in chunks(counters, rows.size - 1):
        for i in range(rows[chunk], rows[chunk + 1]):
            last, at = -1, np.int64(0)
            for k in range(indptr[i], indptr[i + 1]):
                block = _block_of(indices[k], max(last, 0), bounds)
                if block != last:
                    last, at = block, begins[block] + pointers[block, i]
                columns[at] = indices[k] - bounds[block]
                values[at] = data[k]
                at += 1

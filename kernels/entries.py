"""Checks that a matrix has the stated properties, and its sums, in one pass over its
entries.

The checksums of `add_up` take very little memory. Hashes of entries are summed modulo
2^64 with a sign, so that hashes of equal entries cancel, on any ranks. If the entries
differ, the sum is not 0, except with a probability of 2^-64.
"""
import numpy as np

from hpgcn.kernels.jit import jit

ROW, LOOP = range(2)  # positions in the result of add_up


@jit()
def mix(x):
    """Scramble the bits of a 64-bit number (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@jit()
def add_fingerprint(row, column, number, keyed, sums):
    """Add the hashes of an entry above the diagonal to `sums`; subtract those of an
    entry below it.

    For a symmetric matrix, `sums` (2,) uint64 end at zero. `keyed` (2,) uint64 are the
    keys of two hash functions.
    """
    low, high = np.uint64(min(row, column)), np.uint64(max(row, column))
    weight = np.uint64(0) if number == 0 else np.uint64(np.float32(number).view(np.uint32))
    for j in range(2):
        x = mix(mix(mix(keyed[j] + low) + keyed[1 - j] + high) + weight)
        sums[j] += x if row < column else np.uint64(0) - x


@jit()
def pair_sum(first, second, key):
    """Return the sum of the hashes of pairs (first[k], second[k]) of integers >= 0,
    uint64.
    """
    total = np.uint64(0)
    for k in range(first.size):
        total += mix(mix(key + np.uint64(first[k])) + np.uint64(second[k]))
    return total


@jit()
def _bucket(number, key, buckets):
    """Return the bucket of a column number, and a random factor in [1, 2) from the same
    hash.
    """
    x = mix(key + np.uint64(number))
    return x % buckets, 1 + np.float64(x >> np.uint64(40)) / 2**24


@jit()
def add_up(indptr, indices, data, first, degree_row, degree_column, degree_loop, symmetric,
           tolerance, keyed, prints, columns):
    """Compare the stated degrees with the sums of rows, and add up checksums of
    columns.

    `indptr` (m + 1,) starts at 0, at row `first`; `data` (nnz,) float32 is empty for
    all ones; degrees are (m,) float64. A sum may differ by `tolerance` times that of
    the absolute weights. If `symmetric` is said, `prints` (2,) uint64 gets
    `add_fingerprint` of every entry, and row sums stand for column sums. `columns` (b,
    2) float64 gets two sums in the bucket of each column: its weights less its degree,
    and the absolute weights. Both are multiplied by a factor that depends on the column
    only. Returned is the first row whose ROW or LOOP is wrong, m where none is: (2,)
    int64.
    """
    m = indptr.size - 1
    buckets = np.uint64(columns.shape[0])
    wrong = np.full(2, m)
    for i in range(m):
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
                add_fingerprint(first + i, column, weight, keyed, prints)
            if not symmetric:
                bucket, factor = _bucket(column, keyed[0], buckets)
                columns[bucket, 0] += factor * weight
                columns[bucket, 1] += factor * abs(weight)

        # degrees are taken off: what is left is near 0
        bucket, factor = _bucket(first + i, keyed[0], buckets)
        columns[bucket, 0] -= factor * degree_column[i]
        if symmetric:
            columns[bucket, 0] += factor * total
            columns[bucket, 1] += factor * size

        # note the first row whose degrees do not fit
        if not abs(total - degree_row[i]) <= tolerance * size:
            wrong[ROW] = min(wrong[ROW], i)
        if loop != degree_loop[i]:
            wrong[LOOP] = min(wrong[LOOP], i)
    return wrong


@jit()
def is_symmetric(indptr, indices, data, cursor):
    """Return whether a CSR matrix equals its transpose; columns increase in each row.

    `data` (nnz,) is empty if all entries are equal. `cursor` (n,) is a copy of
    `indptr[:-1]`, which is changed. Rows are visited in order. So the entries left of
    the diagonal of a row are met one after the other, as their images are visited.
    """
    for row in range(indptr.size - 1):
        # entries left of the diagonal have all been met as images
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
    """Add the entries of a CSR matrix to the sums of their rows and columns, both (n,)
    float64; all are 1 if `data` is empty.
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

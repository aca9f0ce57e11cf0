"""Loops that cut the matrix of a batch out of a local matrix, on a GPU.

They are the twins of hpgcn.sampling.submatrix_kernels, with the same arguments and the
same bits. Only sizes reach the host. Scans and stable sorts replace the loops, so that
results do not depend on the order of threads.
"""
from __future__ import annotations

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current


def permuted(numbers: Array, n: int, key: np.uint64) -> Array:
    """Return the images of numbers below n under the permutation network of a key, int64."""
    device = current()
    numbers = device.ordered(numbers, np.int64)
    out = device.xp.empty(numbers.size, np.int64)
    bits = max(2, (n - 1).bit_length())
    device.launch("submatrix", "permute", numbers.size, numbers, n, bits, key, out, numbers.size)
    return out


def by_batch(number: Array, batches: int) -> tuple[np.ndarray, Array]:
    """Sort positions by batch; the offsets are on the host."""
    xp = current().xp
    order = xp.argsort(number, kind="stable")
    offsets = xp.searchsorted(number[order], xp.arange(batches + 1, dtype=number.dtype)).get()
    return offsets - offsets[0], order[offsets[0]:offsets[-1]]


def agreeing(pointers: Array, witnesses: Array, rows: Array, out: Array) -> None:
    """Write the batch of each row to `out`, (s,), if a witness agrees, else -1."""
    xp = current().xp
    hits = witnesses == rows[owners(pointers, witnesses.size)]
    out[...] = xp.where(xp.diff(offsets_of(hits)[pointers]) > 0, rows, -1)


def induce(begins: Array, ends: Array, columns: Array, values: Array, rows: Array, row_unit: Array,
           column_unit: Array, number: Array, batch: int, factor: float) -> tuple:
    """Select the entries of some rows whose columns are also in a batch."""
    device = current()
    starts = offsets_of(ends - begins)
    entry = device.xp.empty(int(starts[-1]), np.int64)
    device.launch("submatrix", "entries_in_batch", entry.size, begins, starts, rows.size, columns,
                  number, batch, entry, entry.size, INDEX=columns.dtype)
    pointers, entry = without_gaps(starts, entry)

    kept, chosen = columns[entry], values[entry]
    same = row_unit[rows[owners(pointers, entry.size)]] == column_unit[kept]
    return pointers, kept, device.xp.where(same, chosen, chosen * factor)


def sample_entries(begins: Array, ends: Array, columns: Array, values: Array, positions: Array,
                   degrees: Array, vertex: Array, rows: Array, count: int, key: np.uint64,
                   longest: int) -> tuple:
    """Draw `count` entries of each row in `rows`, or all if it is -1."""
    device = current()
    stored, degree = ends - begins, degrees[rows]
    drawn = (degree > count) & (count >= 0)
    starts = offsets_of(device.xp.where(drawn, count * (stored > 0), stored))
    draws, entry = (device.xp.empty(int(starts[-1]), np.int64) for _ in range(2))
    device.launch("submatrix", "draw", entry.size, starts, rows.size, rows, degrees, vertex, count,
                  key, draws, entry.size)
    device.launch("submatrix", "choose", entry.size, begins, ends, starts, rows.size, rows,
                  degrees, positions if positions.size else None, draws, entry, entry.size)
    pointers, entry = without_gaps(starts, entry) if positions.size else (starts, entry)

    factor = device.xp.where(drawn, degree / abs(count), 1).astype(values.dtype)
    scaled = values[entry] * factor[owners(pointers, entry.size)]
    return pointers, columns[entry], scaled


def renumber(columns: Array, place: Array) -> None:
    """Replace each column by its new number, in place."""
    columns[...] = place[columns]


def distinct(numbers: Array, seen: Array) -> Array:
    """Return the distinct numbers, increasing; `seen` is False before and after."""
    seen[numbers] = True
    found = current().xp.flatnonzero(seen)
    seen[found] = False
    return found


def with_diagonal(pointers: Array, columns: Array, values: Array, rows: Array, diagonal: Array,
                  present: Array) -> tuple:
    """Insert the diagonal entry of each row that has one before its other entries."""
    xp = current().xp
    having = xp.flatnonzero(present[rows])
    added = xp.zeros(pointers.size - 1, np.int64)
    added[having] = 1
    shift = offsets_of(added)
    merged = pointers + shift
    places = xp.arange(columns.size) + shift[1:][owners(pointers, columns.size)]

    kept = xp.empty(columns.size + having.size, columns.dtype)
    scaled = xp.empty(kept.size, values.dtype)
    kept[places], scaled[places] = columns, values
    places, own = merged[having], rows[having]
    kept[places], scaled[places] = own.astype(columns.dtype), diagonal[own]
    return merged, kept, scaled


def sort_rows(pointers: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row by column, in place."""
    keys = (owners(pointers, columns.size) << 32) + columns  # a GPU has fewer columns
    order = current().xp.argsort(keys, kind="stable")
    columns[...], values[...] = columns[order], values[order]


def take_block(pointers: Array, columns: Array, values: Array, cursor: Array, first: int, low: int,
               high: int) -> tuple:
    """Extract the block of columns [low, high) of cursor.size rows from `first` on."""
    xp = current().xp
    whole = cursor.size + 1 == pointers.size
    pointers = pointers[first:first + cursor.size + 1]
    kept = xp.flatnonzero((columns >= low) & (columns < high))
    indptr = xp.searchsorted(kept, pointers)
    if not whole:
        kept, indptr = kept[int(indptr[0]):int(indptr[-1])], indptr - indptr[0]
    return indptr, (columns[kept] - low).astype(np.int32), values[kept]


def positions_of(begins: Array, ends: Array) -> tuple[Array, Array]:
    """Return where runs begin among their entries, and the positions of all entries."""
    pointers = offsets_of(ends - begins)
    places = current().xp.arange(int(pointers[-1]))
    owner = owners(pointers, places.size)
    return pointers, places + (begins - pointers[:-1])[owner]


def flipped(indptr: Array, indices: Array, num_columns: int) -> tuple:
    """Return row pointers and columns of the transpose, and which entry each of its entries is."""
    xp = current().xp
    order = xp.argsort(indices, kind="stable")
    pointers = xp.searchsorted(indices[order], xp.arange(num_columns + 1, dtype=indices.dtype))
    rows = xp.searchsorted(indptr[1:], order, side="right")
    return pointers.astype(np.int64, copy=False), rows, order


def offsets_of(counts: Array) -> Array:
    """Return where runs of these lengths begin, and the end of the last, int64."""
    xp = current().xp
    return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts, dtype=np.int64)])


def owners(pointers: Array, size: int) -> Array:
    """Return the row of each of `size` entries, whose rows begin at `pointers`."""
    xp = current().xp
    return xp.searchsorted(pointers[1:], xp.arange(size), side="right")


def without_gaps(starts: Array, entry: Array) -> tuple[Array, Array]:
    """Return row pointers and entries of the slots that have an entry, which is not -1."""
    kept = current().xp.flatnonzero(entry >= 0)
    return current().xp.searchsorted(kept, starts), entry[kept]

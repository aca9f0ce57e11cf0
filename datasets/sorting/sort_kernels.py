"""Compiled loops of the external sort: entries to runs, to keys, to CSR rows.

An entry stores its row, and its column times 2, plus 1 if it is the mirror image of an
entry of the input (--symmetrize). It may store a weight and its number in the input. A
key is (row - first row) << bits | stored column: keys increase like CSR entries.
"""

import numpy as np

from hpgcn.kernels.entries import add_fingerprint
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.orders import sort_row

KEPT, ZEROS, LOOPS, LOOP_ENTRY, LOOP_ID, NOT_ONE = range(6)  # indices of the tally of `append`
# Indices of the tally of `emit`. LOST counts negative weights without an image, for which
# max(A, A^T) is 0. UNEQUAL counts entries whose image has another weight.
MERGED, CANCELLED, STORED, VALUED, DIAGONAL, INFINITE, OVERFLOW, LOST, UNEQUAL = range(9)
ONE = np.uint64(1)


@jit()
def append(u: np.ndarray, v: np.ndarray, w: np.ndarray, mirror: bool, rows: np.ndarray,
           columns: np.ndarray, weights: np.ndarray, numbers: np.ndarray, at: int,
           tally: np.ndarray) -> int:
    """Write the entries (u, v, w) of a block to a run, from `at` on; return the end.

    Their mirror images follow if `mirror` is true. Entries of weight 0 are dropped.
    `weights` and `numbers` are written unless they are empty.
    """
    for k in range(u.size):
        # drop zeros; count weights other than 1
        if w.size:
            if w[k] == 0:
                tally[ZEROS] += 1
                continue
            tally[NOT_ONE] += w[k] != 1

        # count loops, and note the first for an error
        if u[k] == v[k]:
            if tally[LOOPS] == 0:
                tally[LOOP_ENTRY] = tally[KEPT]
                tally[LOOP_ID] = u[k]
            tally[LOOPS] += 1

        # write the entry, then its image
        for image in range(2 if mirror and u[k] != v[k] else 1):
            row, column = (v[k], u[k]) if image else (u[k], v[k])
            rows[at] = np.uint64(row)
            columns[at] = (np.uint64(column) << ONE) | np.uint64(image)
            if weights.size:
                weights[at] = w[k]
            if numbers.size:
                numbers[at] = tally[KEPT]
            at += 1
        tally[KEPT] += 1
    return at


@jit()
def count(rows: np.ndarray, shift: np.uint64, index: np.ndarray) -> None:
    """Add the number of rows with row >> shift == b to index[b + 1], for every b."""
    for k in range(rows.size):
        index[(rows[k] >> shift) + ONE] += 1


@jit()
def place(rows: np.ndarray, shift: np.uint64, position: np.ndarray, order: np.ndarray) -> None:
    """Sort stably by counting: order[k] becomes the k-th entry by row >> shift.

    position[b] is the next free place of bucket b; it is advanced.
    """
    for k in range(rows.size):
        bucket = rows[k] >> shift
        order[position[bucket]] = k
        position[bucket] += 1


@jit()
def join(rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, numbers: np.ndarray,
         first: np.uint64, bits: np.uint64, low: np.uint64, high: np.uint64, keys: np.ndarray,
         key_weights: np.ndarray, key_numbers: np.ndarray, at: int) -> int:
    """Append those keys of a run's piece to a buffer that lie in [low, high].

    Return the end position in the buffer.
    """
    for k in range(rows.size):
        key = ((np.uint64(rows[k]) - first) << bits) | np.uint64(columns[k])
        if low <= key <= high:
            keys[at] = key
            if key_weights.size:
                key_weights[at] = weights[k]
            if key_numbers.size:
                key_numbers[at] = numbers[k]
            at += 1
    return at


@jit()
def unique(keys: np.ndarray) -> int:
    """Drop duplicates of sorted keys in place; return the number of keys left."""
    end = 0
    for k in range(keys.size):
        if k == 0 or keys[k] != keys[end - 1]:
            keys[end] = keys[k]
            end += 1
    return end


@jit()
def combine(keys: np.ndarray, weights: np.ndarray, numbers: np.ndarray, order: np.ndarray,
            merged: np.ndarray, sums: np.ndarray, last_loops: bool, bits: np.uint64,
            first: np.uint64) -> tuple:
    """Sum the weights of equal keys, in the order in which the keys lie in the buffer.

    `order` sorts the keys, equal ones in any order, and is changed; `merged` and `sums`
    are written. With `last_loops` only the last weight of a self loop counts. Keys of
    `bits` begin at row `first`. Return the number of distinct keys. Return also the
    least number of an entry of the input, no mirror image, that repeats another, or -1.
    """
    end = 0
    again = np.int64(-1)
    start = 0
    while start < order.size:
        # find the run of equal keys
        key = keys[order[start]]
        stop = start + 1
        while stop < order.size and keys[order[stop]] == key:
            stop += 1

        # sort the run by position in the input; note the first repetition
        if stop > start + 1:
            sort_row(order[start:stop])
            if numbers.size and not key & ONE:
                number = numbers[order[start + 1]]
                if again < 0 or number < again:
                    again = number

        # sum the weights in this order
        merged[end] = key
        if weights.size:
            total = weights[order[start]]
            for k in range(start + 1, stop):
                total += weights[order[k]]
            column = (key & ((ONE << bits) - ONE)) >> ONE
            if last_loops and (key >> bits) + first == column:
                total = weights[order[stop - 1]]
            sums[end] = total
        end += 1
        start = stop
    return end, again


@jit()
def emit(keys: np.ndarray, weights: np.ndarray, bits: np.uint64, first: int, mirror: bool,
         refused: np.ndarray, columns: np.ndarray, values: np.ndarray, counts: np.ndarray,
         degree_row: np.ndarray, degree_loop: np.ndarray, degree_column: np.ndarray,
         touched: np.ndarray, tally: np.ndarray, hash_keys: np.ndarray,
         fingerprint: np.ndarray) -> int:
    """Turn increasing, distinct keys into entries of the CSR; return their number.

    `weights` (k,) float64 are empty for all ones. With `mirror` the larger of an entry
    and its image is stored; a missing one counts as 0. `columns` and `values` (k,) of
    the stored entries are written. `refused` (2,) gets two sums of weights, both -1
    before:

    - the first that is not finite, at merged entry tally[INFINITE];
    - the first that does not fit float32, at stored entry tally[OVERFLOW].

    All other arrays are added to. Those of rows begin at row `first`, those of columns
    have all columns (n,). `fingerprint` grows with `hash_keys`, as by
    `add_fingerprint`.
    """
    end = 0
    k = 0
    while k < keys.size:
        # take the larger of an entry and its image, which are adjacent
        pair = keys[k] >> ONE
        row = np.int64(keys[k] >> bits)
        column = np.int64(pair & ((ONE << (bits - ONE)) - ONE))
        forward = 0.0
        own = not keys[k] & ONE
        if own:
            forward = weights[k] if weights.size else 1.0
            k += 1
        value = forward
        if mirror and k < keys.size and keys[k] >> ONE == pair:
            image = weights[k] if weights.size else 1.0
            value = max(forward, image)
            tally[UNEQUAL] += own and forward != image and min(abs(forward), abs(image)) > 0
            k += 1
        elif mirror and first + row != column:
            value = max(forward, 0.0)

        # count entries of the input, and note the first infinite sum
        if own:
            if not np.isfinite(forward) and tally[INFINITE] < 0:
                tally[INFINITE] = tally[MERGED]
                refused[0] = forward
            tally[MERGED] += 1
            tally[CANCELLED] += forward == 0
            tally[LOST] += forward < 0 and value == 0
        if value == 0:
            continue

        # store as float32; note the first overflow
        number = np.float32(value)
        if not np.isfinite(number) and tally[OVERFLOW] < 0:
            tally[OVERFLOW] = tally[STORED]
            refused[1] = value

        # write the entry
        columns[end] = column
        if values.size:
            values[end] = number
        end += 1

        # add it to degrees and fingerprint
        tally[STORED] += 1
        tally[VALUED] += number != 1
        counts[row] += 1
        degree_row[row] += np.float64(number)
        degree_column[column] += np.float64(number)
        if first + row == column:
            tally[DIAGONAL] += 1
            degree_loop[row] += np.float64(number)
        else:
            touched[first + row] = touched[column] = True
            if not mirror:
                add_fingerprint(first + row, column, number, hash_keys, fingerprint)
    return end

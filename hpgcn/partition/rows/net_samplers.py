"""Choose the mini-batch of each entry of a matrix, by the sampler of the batches.

A `choose(columns, batches, draws)` prepares one round of draws. `columns` is a sorted
csc_array (n, n), `batches` the number of batches, `draws` a keyed numpy.random.Philox.
The result is a function of (entries, column, pins): numbers of entries, their columns
and their rows. That function returns the batch of each entry, int64, or -1 for an entry
in no batch.
"""
import numpy as np


def by_vertices(columns, batches, draws):
    """Deal each entry to a batch at random: batches draw their vertices one by one."""
    return lambda entries, column, pins: _drawn_batches(draws, pins.size, batches)


def by_parts(part, number):
    """Return the `choose` of batches that unite some of `number` parts; `part` is (n,)."""
    def choose(columns, batches, draws):
        order = np.argsort(draws.random_raw(number), kind="stable")
        group = np.empty(number, np.int64)
        group[order] = np.arange(number) * batches // number
        batch = group[part]
        return lambda entries, column, pins: np.where(
            batch[pins] == batch[column], batch[pins], -1)

    return choose


def by_neighbors(fanout):
    """Return the `choose` of batches whose rows read `fanout` random neighbors each, or all."""
    def choose(columns, batches, draws):
        # order the entries of each row by a random key, the diagonal last
        rows = columns.indices
        n = columns.shape[1]
        column = np.repeat(np.arange(n), np.diff(columns.indptr))
        order = np.lexsort((draws.random_raw(rows.size), rows == column, rows))
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))[:-1]

        # keep the first of each row
        drawn = np.zeros(rows.size, bool)
        drawn[order] = np.arange(rows.size) - starts[rows[order]] < fanout
        batch = _drawn_batches(draws, n, batches)
        return lambda entries, column, pins: np.where(drawn[entries], batch[pins], -1)

    return choose


def _drawn_batches(draws, size, batches):
    upper_bits = draws.random_raw(size) >> np.uint64(32)
    return (upper_bits * np.uint64(batches) >> np.uint64(32)).astype(np.int64)

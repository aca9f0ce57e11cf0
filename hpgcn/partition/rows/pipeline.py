"""Parts for strategy `mop`: each part has a piece of every batch of consecutive rows.

All ranks then send, aggregate and update rows of the same batch at a time, and batches
follow the order. With bandwidth b the first of S batches reads rows only up to n / S + b
(mixgcn, Proposition 3.5).
"""
import numpy as np

from hpgcn.parallel.layout import split
from hpgcn.partition.partition_request import Parts


def dealt_parts(rows, order, k, num_batches):
    """Return Parts that each have a piece of every batch, with statistics.

    `rows`: csr_array, the pattern of A + I. `order`: (n,) new -> old.
    """
    counted = {"pipeline_batches": num_batches,
               "first_batches": count_first(rows, order, k, num_batches)}
    return Parts(deal_batches(order, k, num_batches), statistics=counted)


def batch_bounds(n, k, num_batches):
    """Return sizes (S, k) of the pieces of batches, and bounds (S + 1,) of the batches."""
    sizes = np.diff(split(n, k)).tolist()
    counts = np.transpose([np.diff(split(size, num_batches)) for size in sizes])
    return counts, np.concatenate([[0], np.cumsum(counts.sum(1))])


def deal_batches(order, k, num_batches):
    """Assign n vertices to k parts, piece p of each batch to part p; return parts, (n,) int32.

    `order` is (n,) new -> old. Parts, and their pieces, are as even as those of
    `split`.
    """
    counts, _ = batch_bounds(order.size, k, num_batches)
    part = np.empty(order.size, np.int32)
    part[order] = np.repeat(np.tile(np.arange(k), num_batches), counts.ravel())
    return part


def count_first(rows, order, k, num_batches):
    """Return the number of batches that the first aggregation waits for.

    Parameters are those of `dealt_parts`.
    """
    _, bounds = batch_bounds(order.size, k, num_batches)
    position = np.empty(order.size, np.int64)
    position[order] = np.arange(order.size)
    last = position[rows[order[:bounds[1]]].indices].max(initial=0)
    return int(np.searchsorted(bounds[:-1], last, side="right"))

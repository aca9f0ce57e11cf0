"""Count the bytes that mini-batches read from arrays in files, and their memory.

The rows of a batch come by direct reads of their pages (hpgcn.kernels.disk.gathers). All
other arrays of batches are in memory.
"""
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hpgcn.graphs.partition import positions_of, run_offsets
from hpgcn.kernels.disk.c_library import PAGE
from hpgcn.kernels.disk.gathers import GAP, READS
from hpgcn.parallel.transfers import OwnRowsPlan
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.batch_traffic import counted_batches
from hpgcn.planning.counts.footprint import RankFootprint
from hpgcn.planning.counts.shaped_step import LevelSizes
from hpgcn.strategies.plan import INDEX, POINTER

# bytes in memory of an own row and of a ghost: numbers, units, batches, a row pointer, a label
TABLE_ROW, TABLE_GHOST = 80, 48
COPIES = 2  # times that entries of a batch are stored while its blocks are cut


@dataclass(frozen=True, eq=False)
class BatchReads:
    """Mini-batches of a run whose arrays are in files."""

    footprint: RankFootprint  # memory of the run, whose training steps have the rows of a batch
    steps: int  # batches of an epoch
    read: np.ndarray  # (P,) bytes that they read in an epoch
    memory: int  # bytes in memory, over all ranks
    copies: np.ndarray  # (P,) bytes of the matrix that batches are cut out of


def span_bytes(places, nbytes):
    """Return the bytes that `gather` reads, an int.

    Rows have `nbytes` bytes at `places`, (r,) int64 increasing. One of READS threads
    reads each share of the rows.
    """
    if not places.size:
        return 0
    first = places // PAGE * PAGE
    last = -(-(places + nbytes) // PAGE) * PAGE
    share = np.arange(places.size) // -(-places.size // READS)
    cut = np.flatnonzero((first[1:] > last[:-1] + GAP) | (share[1:] > share[:-1]))
    return int(last[-1] - first[0] - (first[1:][cut] - last[cut]).sum())


def batch_reads(footprint, batches, feature_entries=None):
    """Return the BatchReads of a RankFootprint of all rows, and of its BatchPlans.

    `feature_entries`, (n,), has the number of sparse features in each row.
    """
    spec, sampler, plan = footprint.spec, batches.sampler, batches.plan
    offsets, pattern = plan.rank_grid.layout.offsets, plan.pattern

    # the arrays that rows of a batch are read from
    whole = isinstance(plan.traffic.left, OwnRowsPlan)  # each rank stores its rows
    owner = plan.rank_grid.layout.row_blocks
    holder = owner[pattern.rows] if whole else pattern.holders
    features = _features(offsets, spec, feature_entries)
    matrix = _matrix(pattern, owner, holder, spec.itemsize, induced=sampler.induced,
                     positions=not (whole or sampler.induced))
    degrees = np.diff(pattern.indptr).astype(np.int64)

    # the batches that are counted
    counted = counted_batches(sampler.batches)
    read, rows, entries, buffers = np.zeros(offsets.size - 1, np.int64), 0, 0, 0
    for number in counted:
        levels, plans = batches.step(1, number)
        drawn = levels[1:2] if sampler.induced else levels[1:]  # products may share a matrix
        read += _read(levels[0], features)
        read += sum(_read(level, matrix) for level in drawn)
        entries = max(entries, sum(int(degrees[level].sum()) for level in drawn))
        rows = np.maximum(rows, [[np.count_nonzero(level[first:last])
                                  for first, last in pairwise(offsets.tolist())]
                                 for level in levels])
        buffers = max(buffers, *(int(plan.buffer_bytes(footprint.widest, spec.row_itemsize).sum())
                                 for plan in plans))
    read = read * sampler.batches // len(counted)

    # once per epoch: units of the rows that each rank computes with
    ghosts = np.broadcast_to(np.ravel(
        plan.traffic.right.buffer_rows + plan.traffic.left.buffer_rows), read.shape)
    remote = sum(np.bincount(owner[lines[owner[lines] != holder]], minlength=read.size)
                 for lines in (pattern.rows, pattern.indices))
    witnesses = POINTER * remote * sampler.induced
    read += witnesses + 2 * POINTER * (footprint.rows + ghosts) * sampler.induced

    # the run with steps of such batches
    shares = 0 if feature_entries is None else int(np.mean(feature_entries)) + 1
    sizes = LevelSizes(list(rows), [False] * len(rows), rows.sum(1).tolist(),
                       rows[[0, -1]] * shares)
    footprint = replace(footprint, train=sizes)
    step = replace(footprint, evaluated=sizes)
    memory = sum(step.parts[name].sum() for name in ("activations", "parameters"))
    memory += int((step.train.rows[0] * spec.widths[0]).sum()) * spec.row_itemsize
    memory += entries * (COPIES * (2 * INDEX + spec.itemsize) + POINTER) + buffers
    memory += int(footprint.rows.sum()) * TABLE_ROW + int(ghosts.sum()) * TABLE_GHOST

    copies = witnesses + [sum(pointers[-1] * itemsize for pointers, itemsize in arrays)
                          for _, arrays in matrix]
    if not sampler.induced:  # the matrix, and a copy in another order
        copies = copies + np.bincount(holder, minlength=read.size) * (INDEX + spec.itemsize)
    return BatchReads(footprint, sampler.batches, read, int(memory), copies)


def _features(offsets, spec, feature_entries):
    """Return the rows that each rank stores of the features, and their arrays: a list of pairs.

    An array is a pair: offsets of its rows, and bytes of an element.
    """
    found = []
    for first, last in pairwise(offsets.tolist()):
        numbers = np.arange(last - first + 1)
        arrays = [(numbers, spec.widths[0] * spec.row_itemsize)]
        if feature_entries is not None:
            pointers = run_offsets(feature_entries[first:last])
            arrays = [(numbers, POINTER)] * 2 + [(pointers, INDEX), (pointers, spec.itemsize)]
        found.append((first + numbers[:-1], arrays))
    return found


def _matrix(pattern, owner, holder, itemsize, *, induced, positions):
    """Return the rows that each rank stores of the matrix, and their arrays, as `_features`.

    Own rows precede those of other ranks. `holder`: (nnz,) ranks that store the entries.
    The diagonal is kept apart unless batches are `induced`. With `positions` the rank also
    stores the position of each entry in its whole row.
    """
    rows, n = pattern.rows, pattern.num_rows
    keys = (2 * holder.astype(np.int64) + (owner[rows] != holder)) * n + rows
    lines, counts = np.unique(keys if induced else keys[rows != pattern.indices],
                              return_counts=True)
    cuts = np.searchsorted(lines, 2 * n * np.arange(owner.max(initial=0) + 2))
    found = []
    for first, last in pairwise(cuts.tolist()):
        pointers = run_offsets(counts[first:last])
        arrays = [(pointers, INDEX), (pointers, itemsize)] + [(pointers, POINTER)] * positions
        found.append((lines[first:last] % n, arrays))
    return found


def _read(level, stored):
    """Return the bytes that each rank reads of marked rows, (P,).

    `level`, (n,) bool, marks the rows. `stored` is as from `_features`. Small arrays
    are in memory.
    """
    found = np.zeros(len(stored), np.int64)
    for rank, (rows, arrays) in enumerate(stored):
        chosen = np.flatnonzero(level[rows])
        for pointers, itemsize in arrays:
            if pointers[-1] * itemsize >= touches.LEAST:
                _, places = positions_of(pointers[chosen], pointers[chosen + 1])
                found[rank] += span_bytes(places * itemsize, itemsize)
    return found

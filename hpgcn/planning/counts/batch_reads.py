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
    read: np.ndarray | None  # (P,) bytes that they read in an epoch; None: not counted
    memory: int  # bytes in memory, over all ranks
    copies: np.ndarray  # (P,) bytes of the matrix that batches are cut out of


def span_bytes(places, nbytes):
    """Return the bytes that `gather` reads for rows of `nbytes` bytes at `places`, (r,) int64
    increasing, an int.

    One of READS threads reads each share of the rows.
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

    `feature_entries`: (n,), of sparse features in each row.
    """
    spec, sampler, plan = footprint.spec, batches.sampler, batches.plan
    offsets, pattern = plan.rank_grid.layout.offsets, plan.pattern

    # the arrays that rows of a batch are read from: offsets of rows, bytes of an element
    numbers = np.arange(pattern.num_rows + 1)
    features = [(numbers, spec.widths[0] * spec.row_itemsize)]
    if feature_entries is not None:
        pointers = run_offsets(feature_entries)
        features = [(numbers, POINTER)] * 2 + [(pointers, INDEX), (pointers, spec.itemsize)]
    degrees = np.diff(pattern.indptr).astype(np.int64)
    if not sampler.induced:  # the diagonal is kept apart
        degrees -= np.bincount(pattern.rows[pattern.rows == pattern.indices],
                               minlength=degrees.size)
    pointers = run_offsets(degrees)
    matrix = [(pointers, INDEX), (pointers, spec.itemsize)]

    # the batches that are counted
    counted = counted_batches(sampler.batches)
    read, rows, entries, buffers = np.zeros(offsets.size - 1, np.int64), 0, 0, 0
    for number in counted:
        levels, plans = batches.step(1, number)
        drawn = levels[1:2] if sampler.induced else levels[1:]  # products may share a matrix
        read += _read(levels[0], features, offsets)
        read += sum(_read(level, matrix, offsets) for level in drawn)
        entries = max(entries, sum(int(degrees[level].sum()) for level in drawn))
        rows = np.maximum(rows, [[np.count_nonzero(level[first:last])
                                  for first, last in pairwise(offsets.tolist())]
                                 for level in levels])
        buffers = max(buffers, *(int(plan.buffer_bytes(footprint.widest, spec.row_itemsize).sum())
                                 for plan in plans))
    read = read * sampler.batches // len(counted)

    # once per epoch: units of the rows that each rank computes with
    ghosts = np.broadcast_to(np.ravel(plan.traffic.right.buffer_rows), read.shape)
    owner = plan.rank_grid.layout.row_blocks
    remote = np.bincount(owner[pattern.rows[owner[pattern.rows] != owner[pattern.indices]]],
                         minlength=read.size)
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

    whole = isinstance(plan.traffic.left, OwnRowsPlan)  # each rank stores its rows
    stored = np.array([degrees[first:last].sum() for first, last in pairwise(offsets.tolist())])
    copies = stored * (INDEX + spec.itemsize) * (1 if sampler.induced else 2) + witnesses
    return BatchReads(footprint, sampler.batches, read if whole else None, int(memory), copies)


def _read(level, arrays, offsets):
    """Return the bytes that each rank reads, (P,), of the rows marked in `level`, (n,) bool.

    `arrays`: of each array the offsets of its rows, (n + 1,), and the bytes of an
    element. Small arrays are in memory.
    """
    found = np.zeros(offsets.size - 1, np.int64)
    for rank, (first, last) in enumerate(pairwise(offsets.tolist())):
        rows = first + np.flatnonzero(level[first:last])
        for pointers, itemsize in arrays:
            if (pointers[last] - pointers[first]) * itemsize >= touches.LEAST:
                _, places = positions_of(*(pointers[each] - pointers[first]
                                           for each in (rows, rows + 1)))
                found[rank] += span_bytes(places * itemsize, itemsize)
    return found

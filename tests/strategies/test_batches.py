"""Row batches of strategy mop: assignment, order, dependencies and shared buffers."""
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.graphs import reordering
from hpgcn.parallel.csr import in_order
from hpgcn.strategies.mixture.row_batches import (
    MAX_STAGES,
    TILES,
    PackedBatches,
    RowBatches,
    default_num_batches,
)


def test_what_returns_overwrites_only_what_has_gone():
    for m, out, into, stages, rank in itertools.product(range(0, 13, 3), range(13), range(13),
                                                        (1, 2, 5, 7), (0, 1)):
        if max(out, into) <= m:
            flat = np.arange(2 * m)
            ends = (into, flat[2 * (m - into):]), (out, flat[:2 * out])
            going, coming = (PackedBatches(RowBatches.of(np.arange(3) * size, stages), rank, room,
                                           np.arange(3)) for size, room in ends)
            for batch in range(1, stages):
                later = np.concatenate(going.parts[batch:])
                earlier = np.concatenate(coming.parts[:batch])
                assert earlier.max(initial=-1) < later.min(initial=2 * m)


def test_batches_by_hand():
    # rows 0-4, none, 5-6, 7-9 in two batches: the second and the last rank deal theirs from the end
    batches = RowBatches.of(np.array([0, 5, 5, 7, 10]), 2)
    assert batches.order.tolist() == [0, 1, 2, 5, 9, 3, 4, 6, 7, 8]
    assert batches.bounds.tolist() == [0, 5, 10]
    assert batches.counts.tolist() == [[3, 0, 1, 1], [2, 0, 1, 2]]
    assert batches.starts[:, [0, 2, 3]].tolist() == [[0, 5, 9], [3, 6, 7]]
    # in that order, rows of the first batch read columns 0 and 4 alone, the second batch column 9
    indptr = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3])
    assert batches.read(indptr, np.array([0, 4, 9]), batches).tolist() == [1, 2]
    assert batches.read(indptr, np.array([0, 5, 1]), batches).tolist() == [2, 2]
    assert batches.read(np.zeros(11, np.int64), np.empty(0, np.int32), batches).tolist() == [1, 2]


@pytest.mark.parametrize("P", [2, 3, 4, 7])
@pytest.mark.parametrize("m, b", [(40, 0), (40, 6), (40, 19), (40, 30), (33, 5)])
def test_the_first_batch_does_not_wait_for_the_last(P, m, b):
    n = m * P
    near = sp.csr_array(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= b)
    assert reordering.bandwidth(near) == b
    stages = reordering.pipeline_stages(m, b)
    batches = RowBatches.of(np.arange(P + 1) * m, stages)
    assert sorted(batches.order.tolist()) == list(range(n))
    place = batches.positions(np.arange(n))
    moved = in_order(near, place, place)
    moved.sort_indices()
    assert (moved != near[batches.order][:, batches.order]).nnz == 0
    found = batches.read(moved.indptr, moved.indices, batches)
    assert found[0] < stages
    batch_of = np.repeat(np.arange(stages), np.diff(batches.bounds))
    highest = [batch_of[moved[batch_of == batch].indices].max() + 1 for batch in range(stages)]
    assert found.tolist() == np.maximum.accumulate(highest).tolist()


def test_default_stages():
    even = np.arange(5) * 100_000  # four ranks
    assert default_num_batches(even, 0) == 2 and default_num_batches(even, 50_000) == 4
    assert default_num_batches(even, 60_000) == 5
    assert default_num_batches(even, 99_000) == MAX_STAGES
    assert default_num_batches(even, 100_000) == default_num_batches(even, 399_999) == TILES
    assert default_num_batches(np.arange(5) * 3000, 11_000) == 2  # batches of at least 1024 rows
    for offsets, band in ((np.arange(5) * 10, 3), ([0, 100_000], 50_000), ([0, 0, 0], 0)):
        assert default_num_batches(np.array(offsets), band) == 1


def test_batches_that_are_read_may_be_others():
    # two ranks, three batches: of five columns 0 | 1, 4 | 2, 3; of a single row, two of them empty
    columns = RowBatches.of(np.array([0, 3, 5]), 3)
    rows = RowBatches.of(np.array([0, 1, 1]), 3)
    assert columns.order.tolist() == [0, 1, 4, 2, 3]
    assert columns.positions(np.array([4, 0])).tolist() == [2, 0]
    assert (columns.bounds.tolist(), rows.bounds.tolist()) == ([0, 1, 3, 5], [0, 1, 1, 1])
    assert columns.read(np.array([0, 1]), np.array([0]), rows).tolist() == [1, 2, 3]
    assert columns.read(np.array([0, 2]), np.array([0, 2]), rows).tolist() == [2, 2, 3]
    assert rows.read(np.array([0, 0, 1, 1, 1, 1]), np.array([0]), columns).tolist() == [1, 2, 3]
    nothing = RowBatches.of(np.array([0, 0, 0]), 3)
    assert nothing.read(np.zeros(2, np.int64), np.empty(0, np.int32), rows).tolist() == [1, 2, 3]
    assert columns.read(np.zeros(1, np.int64), np.empty(0, np.int32), nothing).tolist() == [1, 2, 3]


def test_some_rows_in_the_new_order():
    batches = RowBatches.of(np.array([0, 5, 5, 7, 10]), 2)  # order 0, 1, 2, 5, 9, 3, 4, 6, 7, 8
    found, numbers = batches.kept(np.isin(np.arange(10), [1, 4, 5, 8]))
    assert np.flatnonzero(found).tolist() == [1, 3, 6, 9]
    assert numbers.tolist() == [0, 2, 1, 3]

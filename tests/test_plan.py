"""Plans of all ranks in one process: what is sent is what is needed, no more; volumes by brute force."""
import numpy as np
import pytest
from graphs import make

from hpgcn import plan
from hpgcn.layout import RowPartition
from hpgcn.partition import Partition


def plans_of(k, *, directed=True, seed=0, empty=()):
    graph = make(directed=directed)
    part = np.random.default_rng(seed).integers(0, k, graph.num_rows)
    part[np.isin(part, empty)] = (max(empty, default=0) + 1) % k
    partition = Partition.from_parts(part, k)
    moved = graph.permuted(partition.perm)
    return moved, partition.offsets, plan.build_all(moved.indptr, moved.indices, partition.offsets)


@pytest.mark.parametrize("k, empty", [(1, ()), (2, ()), (3, (1,)), (7, ()), (12, (0, 5))])
def test_sends_match_receives(k, empty):
    graph, offsets, plans = plans_of(k, empty=empty)
    A = graph.adjacency
    for p, mine in enumerate(plans):
        block = A[offsets[p]:offsets[p + 1]]
        needed = np.unique(block.indices)
        expected = needed[(needed < offsets[p]) | (needed >= offsets[p + 1])]
        np.testing.assert_array_equal(mine.ghosts, expected)
        for q, theirs in enumerate(plans):
            received = mine.ghosts[mine.recv_offsets[q]:mine.recv_offsets[q + 1]]
            sent = theirs.send_rows[theirs.send_offsets[p]:theirs.send_offsets[p + 1]] + offsets[q]
            np.testing.assert_array_equal(received, sent)
            assert (q in mine.sources) == (p in theirs.destinations) == bool(received.size)


@pytest.mark.parametrize("directed", [False, True])
def test_volume_is_connectivity_minus_one(directed):
    graph, offsets, plans = plans_of(5, directed=directed)
    part = np.repeat(np.arange(5), np.diff(offsets))
    volume = 0
    for column in range(graph.num_rows):
        readers = set(part[graph.adjacency.tocsc()[:, [column]].tocoo().coords[0]]) | {part[column]}
        volume += len(readers) - 1
    assert sum(p.send_rows.size for p in plans) == sum(p.ghosts.size for p in plans) == volume


def test_owner_skips_empty_blocks():
    layout = RowPartition(np.array([0, 3, 3, 5]), 0)
    assert layout.owner(np.arange(5)).tolist() == [0, 0, 0, 2, 2]
    assert (layout.size, layout.start, layout.stop, layout.num_rows) == (3, 0, 3, 3)

"""Partitions for strategy mop: parts of contiguous row batches, in the order of the matrix."""
import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused
from graphs import make

from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.reordering import pipeline_stages
from hpgcn.partition import make_partition
from hpgcn.partition.rows.pipeline import count_first, deal_batches
from hpgcn.store import write_graph
from hpgcn.strategies.mixture.row_batches import RowBatches


def band(n, b):
    """Return a banded graph: entries are at most b columns from the diagonal."""
    offsets = [1, *range(b % 60 or 60, b + 1, 60)]
    return Graph.from_scipy(sp.diags_array([1.0] * len(offsets), offsets=offsets, shape=(n, n)),
                            symmetrize=True)


def test_deal():
    # 7 vertices: parts of 4 and 3, batches of 2 + 2 and 2 + 1
    assert deal_batches(np.arange(7), 2, 2).tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert deal_batches(np.arange(7)[::-1], 2, 2).tolist() == [1, 0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.8, 0.9])  # as in Table 4 of mixgcn
@pytest.mark.parametrize("k", [1, 4])
def test_first_batch_does_not_wait_for_the_last(share, k):
    n = 2000
    b = int(share * n)
    batches = pipeline_stages(n, b)
    graph = band(n, b)
    made = make_partition(graph, k, method="block", rcm=False, pipeline_batches=batches)
    first = made.statistics["first_batches"]
    assert made.statistics["pipeline_batches"] == batches and first <= batches - 1
    assert made.statistics["bandwidth"] == b

    # rows in the order of ranks are dealt into the same batches
    moved = graph.permuted(made.perm, made.offsets)
    found = RowBatches.best(made.offsets, batches, moved.indptr, moved.indices)
    assert found.waits(moved.indptr, moved.indices)[0] == first
    if k > 1:
        assert found.in_order
        np.testing.assert_array_equal(made.perm[found.order], np.arange(n))
        # contiguous parts wait for all batches, for any number of batches
        plain = RowBatches.best(made.offsets, batches, graph.indptr, graph.indices)
        assert plain.waits(graph.indptr, graph.indices)[0] == batches


def test_rcm_orders_all_rows():
    graph = make(200, degree=3)
    made = make_partition(graph, 3, method="block", pipeline_batches=4)
    order = np.argsort(make_partition(graph, 1, method="block").iperm)
    assert [*np.sort(made.perm)] == [*range(200)]
    found = RowBatches.of(made.offsets, 4, in_order=True)
    np.testing.assert_array_equal(made.perm[found.order], order)
    assert np.ptp(np.bincount(made.part)) <= 1


def test_count_first_of_no_entries():
    rows = sp.csr_array((5, 5), dtype=bool)
    assert count_first(rows, np.arange(5), 2, 3) == 1


def test_refused_for_given_parts(tmp_path):
    write_graph(tmp_path / "g.h5", make(60))
    np.savetxt(tmp_path / "parts.txt", np.arange(60) % 2, "%d")
    asked = "-k", 2, "--parts", tmp_path / "parts.txt", "--pipeline-batches", 3
    assert "does not apply to --parts" in refused(2, "partition", tmp_path / "g.h5", *asked)


@pytest.mark.parametrize("options, text", [
    ({"method": "random"}, "pipeline_batches = 3: does not apply to method random, expected block"),
    ({"method": "block", "nested": True}, "excludes nested"),
    ({"method": "block", "balance_train": True}, "excludes nested, nodes and balance_train")])
def test_refused(options, text):
    with pytest.raises(UsageError, match=text):
        make_partition(make(60), 4, pipeline_batches=3, **options)

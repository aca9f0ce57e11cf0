"""Parts for ranks on several nodes: rows between nodes, balance, files and refusals."""
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import grid

from hpgcn import store
from hpgcn.errors import DataError, UsageError
from hpgcn.partition import METHODS, given_partition, make_partition
from hpgcn.partition.rows import row_methods
from hpgcn.partition.rows.node_parts import group_parts
from hpgcn.partition.rows.partition_model import pattern
from hpgcn.partition.rows.refine import refine


def volumes(graph, partition, holder=None):
    """Count rows and sums between nodes and within them, by sets."""
    node = np.repeat(np.arange(len(partition.node_sizes)), partition.node_sizes)
    part, rows = partition.part, pattern(graph)
    number = np.repeat(np.arange(part.size), np.diff(rows.indptr))
    holder = part[number] if holder is None else holder
    between = within = 0
    for line in (rows.indices, number):
        pairs = {(j, p) for j, p in zip(line, holder) if p != part[j]}
        to_nodes = {(j, node[p]) for j, p in pairs if node[p] != node[part[j]]}
        between += len(to_nodes)
        within += len(pairs) - len(to_nodes)
    return between, within


@pytest.mark.parametrize("method", ["stream", "block", "random", "vertex-cut"])
def test_volumes_are_those_of_a_count_by_sets(method):
    graph = grid(16)
    made = make_partition(graph, 8, method=method, nodes=4)
    holder = None
    if made.edge_part is not None:
        rows = pattern(graph)
        number = np.repeat(np.arange(256), np.diff(rows.indptr))
        holder = made.part[number]
        holder[number != rows.indices] = made.edge_part
    found = tuple(made.statistics[f"volume_{where}"] for where in ("between", "within"))
    assert found == volumes(graph, made, holder)
    assert made.node_sizes == (2, 2, 2, 2)


@pytest.mark.parametrize("method", [
    "stream", *(pytest.param(name, marks=pytest.mark.long) for name in METHODS
                if name not in ("stream", "stochastic"))])
def test_parts_of_nodes_are_balanced_and_reproducible(method):
    for engine in ("mtkahypar", "pymetis"):
        pytest.importorskip(engine)
    graph = grid(24)
    made, again = (make_partition(graph, 8, method=method, nodes=2, threads=threads, epsilon=0.1)
                   for threads in (1, 2))
    np.testing.assert_array_equal(made.part, again.part)
    plain = make_partition(graph, 8, method=method, epsilon=0.1)
    assert made.statistics["imbalance_nnz"] <= max(0.1, plain.statistics["imbalance_nnz"])
    numbered = given_partition(graph, plain.part, 8, nodes=2)
    if plain.edge_part is None:
        assert made.statistics["volume_between"] <= numbered.statistics["volume_between"]


@pytest.mark.parametrize("method", ["hypergraph", "best"])
def test_engines_divide_only_clusters_of_a_large_graph(monkeypatch, method):
    """Engines divide clusters into nodes and into parts of nodes, never all vertices."""
    def divided(rows):
        raise AssertionError("an engine gets all columns")

    monkeypatch.setattr(row_methods, "COARSE", 1)
    monkeypatch.setattr(row_methods, "column_nets", divided)
    graph = grid(24)
    made = make_partition(graph, 4, method=method, nodes=2, epsilon=0.1)
    whole = make_partition(graph, 2, method=method, epsilon=0.1)
    assert made.statistics["imbalance_nnz"] <= 0.1
    assert made.statistics["volume_between"] <= 1.5 * whole.statistics["volume"]


def test_uneven_nodes_have_their_share():
    graph = grid(16)
    made = make_partition(graph, 8, method="stream", nodes=(4, 2, 2), epsilon=0.2)
    assert made.statistics["imbalance_nnz"] <= 0.2 and made.node_sizes == (4, 2, 2)
    assert volumes(graph, made)[0] == made.statistics["volume_between"]


def test_parts_that_share_nets_are_grouped():
    # parts 0 and 3 share two nets, 1 and 2 one
    lines = sp.csr_array(np.array([[1, 1, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0],
                                   [1, 1, 0, 0, 0]], bool))
    assert group_parts(lines, (2, 2)).tolist() == [0, 2, 3, 1]
    assert group_parts(lines, (1, 3)).tolist() == [0, 1, 2, 3]  # as good as any


def test_refinement_keeps_rows_between_nodes():
    graph = grid(16)
    rows, weights = pattern(graph), np.ones(256, np.int64)
    part = np.random.default_rng(1).permutation(256).astype(np.int32) % 4
    refined = refine(rows, part, 4, weights, 0.3, group=[0, 0, 1, 1])
    np.testing.assert_array_equal(refined // 2, part // 2)
    before, after = (given_partition(graph, each, 4, nodes=2).statistics
                     for each in (part, refined))
    assert after["volume_between"] == before["volume_between"]
    assert after["volume_within"] < before["volume_within"]


def test_one_node_and_one_part_a_node_are_plain_parts():
    graph = grid(12)
    plain = make_partition(graph, 4, method="stream", epsilon=0.1)
    alone = make_partition(graph, 4, method="stream", epsilon=0.1, nodes=4)
    np.testing.assert_array_equal(plain.part, alone.part)
    together = make_partition(graph, 4, method="stream", epsilon=0.1, nodes=1)
    assert together.statistics["volume_between"] == 0
    assert alone.statistics["volume_within"] == 0


@pytest.mark.parametrize("nodes, words", [
    (3, "nodes = 3: does not divide 8 parts"), (16, "nodes = 16: expected 1 to 8"),
    (0, "nodes = 0: expected 1 to 8"), ((4, 5), "their sum is 9, but there are 8 parts"),
    ((8, 0), "expected whole numbers"), ("8", "expected whole numbers")])
def test_nodes_that_do_not_fit_are_refused(nodes, words):
    with pytest.raises(UsageError, match=words):
        make_partition(grid(6), 8, method="block", nodes=nodes)
    with pytest.raises(UsageError, match=words):
        given_partition(grid(6), np.zeros(36, int), 8, nodes=nodes)


def test_nodes_exclude_nested_parts_and_batches_of_rows():
    with pytest.raises(UsageError, match="nodes: excludes nested"):
        make_partition(grid(6), 4, method="block", nodes=2, nested=True)
    with pytest.raises(UsageError, match="excludes nested, nodes and"):
        make_partition(grid(6), 4, method="block", nodes=2, pipeline_batches=2)


@pytest.mark.parametrize("nodes", [None, 2, (3, 1)])
def test_files_name_the_nodes(tmp_path, nodes):
    graph = grid(6)
    made = make_partition(graph, 4, method="block", nodes=nodes)
    path = tmp_path / "parts.h5"
    store.write_partitioned(path, graph, made)
    with store.load(path) as stored:
        found = stored.vertex_partition
        assert found.node_sizes == made.node_sizes
        assert found.statistics == made.statistics
    with h5py.File(path) as file:  # files of parts without nodes are as they were
        assert ("nodes" in file["partition"].attrs) == (nodes is not None)
        assert ("ranks_per_node" in file["partition"].attrs) == (nodes == (3, 1))


@pytest.mark.parametrize("attributes, words", [
    ({"nodes": 3}, "nodes is 3, expected a divisor of the 4 parts"),
    ({"nodes": 2, "ranks_per_node": "3,2"}, "expected 2 numbers from 1 with sum 4"),
    ({"nodes": 2, "ranks_per_node": "4,x"}, "expected 2 numbers from 1 with sum 4")])
def test_files_with_nodes_that_do_not_fit_are_refused(tmp_path, attributes, words):
    graph = grid(6)
    path = tmp_path / "parts.h5"
    store.write_partitioned(path, graph, make_partition(graph, 4, method="block"))
    with h5py.File(path, "r+") as file:
        file["partition"].attrs.update(attributes)
    with pytest.raises(DataError, match=words), store.load(path, verify=False) as stored:
        stored.vertex_partition  # noqa: B018

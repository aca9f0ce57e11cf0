"""GraphSource gives the same answers for a graph in memory and for one in a file."""
import inspect
from dataclasses import replace

import numpy as np
import pytest
from graphs import make
from stored_graphs import assert_same

import hpgcn
from hpgcn import store
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph_source import DIGESTS, OF_RUNS, AdjacencySource, GraphSource
from hpgcn.partition import make_partition
from hpgcn.store import StoredGraph

N = 60


@pytest.fixture(scope="module", params=["plain", "parts", "nonzeros"])
def sources(request, tmp_path_factory):
    """Return a graph, maybe with 3 parts or parts of entries, in memory and in a file."""
    path = tmp_path_factory.mktemp("sources") / "g.h5"
    graph = make(N, 5, 3)
    if request.param == "plain":
        store.write_graph(path, graph)
    else:
        method = {"parts": "random", "nonzeros": "cover"}[request.param]
        made = make_partition(graph, 3, method=method)
        store.write_partitioned(path, graph, made)
        graph = replace(graph, edge_parts=made.edge_part).permuted(made.perm, made.offsets)
    with hpgcn.load(path) as stored:
        yield graph, stored


def test_both_have_all_of_the_interface():
    public = [name for kind in (AdjacencySource, GraphSource) for name in vars(kind)
              if not name.startswith("_")]
    assert not GraphSource.__abstractmethods__ - {*public}
    for kind in (hpgcn.Graph, StoredGraph):
        assert not inspect.isabstract(kind)
        assert all(inspect.getdoc(getattr(kind, name)) for name in public if name != "path")


def test_dir_lists_what_users_need(sources):
    shown = [name for name in dir(hpgcn.Graph) if not name.startswith("_")]
    assert shown == [
        "adjacency", "class_names", "close", "edge_features", "feature_names", "from_edge_index",
        "from_scipy", "ids", "in_original_order", "links", "num_rows", "offsets", "original_ids",
        "path", "read", "target_names", "targets", "to_scipy", "vertex_partition"]
    for source in sources:
        assert OF_RUNS.isdisjoint(dir(source)) and "features" in dir(source)
    assert all(hasattr(hpgcn.Graph, name) or hasattr(StoredGraph, name) for name in OF_RUNS)


def test_rows_are_the_same(sources):
    graph, stored = sources
    assert (graph.path, graph.where) == (None, graph.header.name)
    assert stored.where == stored.path
    for start, stop in [(0, N), (0, 0), (13, 41), (N, N)]:
        assert_same(stored.slab(start, stop), graph.slab(start, stop))
        for name in ("vertices", "edge_part"):
            found, expected = (getattr(each, name)(start, stop) for each in (stored, graph))
            np.testing.assert_array_equal(found, expected)
        found, expected = (np.diff(each.pointers(start, stop)) for each in (stored, graph))
        np.testing.assert_array_equal(found, expected)
    for source in sources:
        with pytest.raises(DataError, match="rows"):
            source.vertices(0, N + 1)


def test_the_whole_is_the_same(sources):
    graph, stored = sources
    assert_same(stored.read(), graph.read())
    assert_same(stored.in_original_order(), graph.in_original_order())
    found, expected = stored.pattern(), graph.pattern()
    assert found.data is found.features is found.labels is found.masks is None
    for name in ("indptr", "indices", "vertex", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for key, mask in graph.split_masks(0).items():
        np.testing.assert_array_equal(stored.split_masks(0)[key], mask)
    for key, degree in graph.degrees().items():
        np.testing.assert_array_equal(stored.degrees()[key], degree)
    assert list(stored.digests()) == list(graph.digests()) == list(DIGESTS)
    assert graph.digests() == graph.in_original_order().digests()


def test_parts_are_the_same(sources):
    graph, stored = sources
    if graph.offsets is None:
        assert graph.vertex_partition is stored.vertex_partition is None
        assert not graph.merges and not stored.merges
        return
    for name in ("part", "perm", "iperm", "offsets"):
        np.testing.assert_array_equal(getattr(graph.vertex_partition, name),
                                      getattr(stored.vertex_partition, name))
    one, other = graph.merged(1), stored.merged(1)
    assert one.offsets.tolist() == other.offsets.tolist() == [0, N]
    np.testing.assert_array_equal(one.edge_part(0, N), other.edge_part(0, N))
    with pytest.raises(UsageError, match="a graph in memory can only be merged to 1 part"):
        graph.merged(2)


def test_order_is_checked(sources):
    for source in sources:
        total = source.order_sums(0, 17) + source.order_sums(17, N)
        source.check_order(total)
        source.reserve(1, "one byte")

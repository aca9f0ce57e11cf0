"""Levels of rows against a search on the graph by hand, and where rows of one level lie in the one below."""
import numpy as np
import pytest
from graphs import make

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost import Step
from hpgcn.graph import Graph
from hpgcn.reach import levels
from hpgcn.rows import Rows


def reached(graph, start, hops):
    """Vertices read within so many hops, in plain Python."""
    A, found = graph.adjacency, [set(start)]
    for _ in range(hops):
        found.append(found[-1] | {int(v) for u in found[-1] for v in A.indices[A.indptr[u]:A.indptr[u + 1]]})
    return found


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_levels_are_the_vertices_within_so_many_hops(directed, given):
    graph = make(n=600, degree=1.5, directed=directed, train=4)
    found = levels(graph, [graph.masks["train"]], 3, SerialComm(), given=given)
    expected = reached(graph, np.flatnonzero(graph.masks["train"]).tolist(), 3)
    if given:  # the first layer's products are there: it reads what it computes
        expected[3] = expected[2]
    assert [set(np.flatnonzero(level).tolist()) for level in found] == expected[::-1]


def test_of_more_than_half_of_the_rows_all_are_taken():
    path = np.diag(np.ones(9), 1)  # row i reads i + 1
    graph = Graph.from_scipy(path, np.eye(10), np.arange(10) % 2, ([0], [1], [2]))
    every = graph.masks.values()
    found = levels(graph, [np.any(list(every), axis=0)], 4, SerialComm())
    assert [None if level is None else int(level.sum()) for level in found] == [None, None, 5, 4, 3]
    found = levels(graph, [np.any(list(every), axis=0)], 2, SerialComm())  # 5 of 10, and no product makes the features
    assert [int(level.sum()) for level in found] == [5, 4, 3]
    path = np.diag(np.ones(3), 1)
    graph = Graph.from_scipy(path, np.eye(4), np.arange(4) % 2, ([0], [1], []))
    found = levels(graph, [np.any(list(graph.masks.values()), axis=0)], 1, SerialComm())
    assert [int(level.sum()) for level in found] == [3, 2]


@pytest.mark.parametrize("model, aggregator", [("gcn", "mean"), ("sage", "mean"), ("gin", "mean")])
def test_rows_lie_within_those_of_the_level_below(model, aggregator):
    graph = make(n=600, degree=1.5, train=4)
    config = Config(model=model, aggregator=aggregator, layers=3)
    rows = Rows(graph, config, SerialComm(), Step([13, 16, 16, 5], model=config.architecture))
    reach = rows.train
    assert reach.sizes[3] == 4
    assert reach.sizes == [one.size for one in reach.rows] == [int(count.sum()) for count in reach.counts]
    for layer in range(3):
        np.testing.assert_array_equal(reach.rows[layer][reach.within[layer]], reach.rows[layer + 1])
        H = np.random.default_rng(0).standard_normal((graph.num_rows, 3)).astype(np.float32)
        whole = rows.strategy.forward(H, layer=0)
        part = reach.maps[layer].forward(reach.take(layer, H), layer=0)
        np.testing.assert_allclose(part, reach.take(layer + 1, whole), atol=1e-6)
    rows.close()

"""Levels of needed rows equal a plain Python search; positions of rows in the level below."""
import numpy as np
import pytest
from graphs import make
from training import SETTINGS, start

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.model import MODELS
from hpgcn.parallel.receptive_field import find_levels


def reached(graph, first, hops):
    """Return the sets of vertices that `first` reads within 0 to `hops` hops, in plain Python."""
    A = graph.adjacency
    sets = [set(first)]
    for _ in range(hops):
        sets.append(sets[-1].union(*(A.indices[A.indptr[u]:A.indptr[u + 1]].tolist()
                                     for u in sets[-1])))
    return sets


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("precomputed", [False, True])
def test_levels_are_the_vertices_within_so_many_hops(directed, precomputed):
    graph = make(n=600, degree=1.5, directed=directed, train=4)
    levels = find_levels(graph, [graph.masks["train"]], 3, SerialComm(), precomputed=precomputed)
    expected = reached(graph, np.flatnonzero(graph.masks["train"]).tolist(), 3)
    if precomputed:  # the first layer's products are there: it reads what it computes
        expected[3] = expected[2]
    assert [set(np.flatnonzero(level).tolist()) for level in levels] == expected[::-1]


@pytest.mark.parametrize("n, masks, hops, expected", [
    (10, ([0], [1], [2]), 4, [None, None, 5, 4, 3]),
    (10, ([0], [1], [2]), 2, [5, 4, 3]),  # 5 of 10, and no product makes the features
    (4, ([0], [1], []), 1, [3, 2])])
def test_of_more_than_half_of_the_rows_all_are_taken(n, masks, hops, expected):
    path = np.diag(np.ones(n - 1), 1)  # row i reads i + 1
    graph = Graph.from_scipy(path, np.eye(n), np.arange(n) % 2, masks)
    levels = find_levels(graph, list(graph.masks.values()), hops, SerialComm())
    assert [None if level is None else int(level.sum()) for level in levels] == expected


@pytest.mark.parametrize("model", [name for name in SETTINGS if not MODELS[name].default_hops])
def test_rows_lie_within_those_of_the_level_below(model):
    graph = make(n=600, degree=1.5, train=4)
    shard = start(graph, Config(layers=3, **SETTINGS[model])).shard
    field = shard.train
    assert field.sizes[3] == 4
    assert field.sizes == field.totals == [rows.size for rows in field.rows]
    for layer, hop in enumerate(field.hops):
        below, above = field.rows[layer:layer + 2]
        np.testing.assert_array_equal(below if hop.self_rows is None else below[hop.self_rows],
                                      above)
        assert hop.rows == field.sizes[layer:layer + 2]
        assert hop.narrows == (below.size > above.size)
        H = np.random.default_rng(0).standard_normal((graph.num_rows, 3)).astype(np.float32)
        whole = shard.strategy.forward(H)
        part = hop.maps[0].forward(field.select(layer, H))
        np.testing.assert_allclose(part, field.select(layer + 1, whole), atol=1e-6)
    shard.close()

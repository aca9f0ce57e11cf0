"""Synthetic graphs: sizes, keyed random numbers, and the same edges written as text."""
import math

import numpy as np
import pytest
from arrays import are_equal, assert_all, assert_differ, assert_none
from inputs import put, rows

from hpgcn.datasets.convert import read
from hpgcn.datasets.generators import edge_draws, keyed_sampling
from hpgcn.datasets.generators.generate import generate, write_edge_list
from hpgcn.errors import OutputError, UsageError
from hpgcn.graphs.validation import check_csr

KINDS = ("rmat", "sbm", "grid")


@pytest.mark.parametrize("kind", KINDS)
def test_undirected_without_loops_or_duplicates(kind):
    graph = generate(kind, scale=11, features=5, classes=7, seed=3)
    check_csr(graph.indptr, graph.indices, graph.indices.size, 2048, kind)
    A = graph.adjacency
    assert A.shape == (2048, 2048) and (A != A.T).nnz == 0
    assert_none(A.diagonal())
    header = graph.header
    assert (header.num_nodes, header.num_edges) == (2048, A.nnz)
    assert (header.num_features, header.num_classes) == (5, 7)
    assert not header.directed and header.all_ones
    assert header.num_splits == 1 and header.split == "random:60/20/20:3"
    np.testing.assert_array_equal(graph.degree_row, A.sum(axis=1))
    np.testing.assert_array_equal(graph.degree_column, A.sum(axis=0))
    assert graph.indices.dtype == np.int32 and graph.features.dtype == np.float32
    assert np.bincount(graph.labels, minlength=7).min() >= 2048 // 7
    assert abs(int(graph.masks["train"].sum()) - 0.6 * 2048) < 7


def edges(graph):
    return graph.indptr.tolist(), graph.indices.tolist()


def arrays(graph):
    return [graph.indptr, graph.indices, graph.features, graph.labels, *graph.masks.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits(kind, monkeypatch):
    first = generate(kind, scale=10, features=3, seed=5)
    other = generate(kind, scale=10, features=3, seed=6)
    monkeypatch.setattr(edge_draws, "CHUNK", 1 << 10)
    chunked = generate(kind, scale=10, features=3, seed=5)
    for a, b in zip(arrays(first), arrays(chunked)):
        np.testing.assert_array_equal(a, b)
    assert kind == "grid" or not are_equal(other.indices, first.indices)
    assert_differ(other.features, first.features)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale, edge_factor", [(1, 1), (9, 2), (10, 16)])
def test_text_is_the_same_adjacency(tmp_path, kind, scale, edge_factor):
    graph = generate(kind, scale=scale, edge_factor=edge_factor, features=0, classes=2, seed=1)
    path = tmp_path / "g.txt"
    size = write_edge_list(kind, path, scale=scale, edge_factor=edge_factor, classes=2, seed=1)
    pairs = np.array(path.read_text().partition("\n")[2].split(), int).reshape(-1, 2)
    assert size == len(pairs) == graph.indices.size // 2
    assert_all(pairs[:, 0] < pairs[:, 1])
    if size:
        assert edges(read(path, symmetrize=True, strict=True)[0]) == edges(graph)


def test_text_is_not_overwritten(tmp_path):
    path = put(tmp_path / "g.txt", "mine")
    with pytest.raises(OutputError):
        write_edge_list("grid", path, scale=2)
    assert path.read_text() == "mine"
    assert write_edge_list("grid", path, scale=2, overwrite=True) == 4


def test_grid_is_a_lattice():
    graph = generate("grid", scale=3, features=0, classes=2)  # 4 rows of 2
    expected = np.zeros((8, 8))
    for u, v in ((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)):
        expected[u, v] = expected[v, u] = 1
    assert rows(graph) == expected.tolist()
    assert graph.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_rmat_has_a_heavy_tail_and_no_favored_numbers():
    graph = generate("rmat", scale=14, edge_factor=16, features=0)
    degree = np.diff(graph.indptr)
    assert 0.75 * 16 < degree.mean() / 2 < 16
    assert degree.max() > 50 * degree.mean() and np.median(degree) < degree.mean() / 2
    assert 0.1 < np.mean(degree == 0) < 0.5
    halves = degree[:1 << 13].sum() / degree.sum()
    assert 0.4 < halves < 0.6


def test_rmat_quadrants():
    """R-MAT edges fall into the four quadrants with the probabilities 0.57, 0.19, 0.19 and 0.05."""
    u, v = keyed_sampling.rmat(np.uint64(9), 0, 200_000, 20, 0)
    top = np.bincount(2 * (u >> 19) + (v >> 19), minlength=4) / u.size
    low = np.bincount(2 * (u & 1) + (v & 1), minlength=4) / u.size
    np.testing.assert_allclose(top, [0.57, 0.19, 0.19, 0.05], rtol=1e-5, atol=0.005)
    np.testing.assert_allclose(low, top, rtol=1e-5, atol=0.01)


def test_sbm_blocks():
    graph = generate("sbm", scale=12, edge_factor=10, features=0, classes=4)
    rows = np.repeat(graph.labels, np.diff(graph.indptr))
    inside = np.mean(rows == graph.labels[graph.indices])
    assert abs(inside - (0.8 + 0.2 / 4)) < 0.01
    degree = np.diff(graph.indptr)
    assert abs(degree.mean() - 20) < 0.5 and degree.std() < 6


def test_features_tell_classes_apart_better_with_neighbors():
    graph = generate("sbm", scale=11, features=16, classes=4)
    smooth = graph.adjacency @ graph.features

    def accuracy(X):
        train, test = graph.masks["train"], graph.masks["test"]
        center = np.stack([X[train & (graph.labels == c)].mean(axis=0) for c in range(4)])
        distance = ((X[test][:, None] - center) ** 2).sum(axis=2)
        return np.mean(distance.argmin(axis=1) == graph.labels[test])

    assert 0.4 < accuracy(graph.features) < 0.95 < accuracy(smooth)


def test_separation_is_the_distance_of_class_means():
    graph, none = (generate("sbm", scale=13, features=16, classes=4, separation=far)
                   for far in (6, 0))
    shift = (graph.features - none.features).astype(float)
    means = np.stack([shift[graph.labels == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(shift, means[graph.labels], rtol=1e-5, atol=1e-5)
    assert 3 < np.linalg.norm(means, axis=1).mean() < 9


def test_no_features_no_classes():
    graph = generate("rmat", scale=5, features=0, classes=0)
    assert graph.features is None and graph.labels is None and graph.masks is None
    assert not graph.header.num_splits


@pytest.mark.parametrize("kind, options, message", [
    ("tree", {}, "rmat, sbm, grid, bter"), ("rmat", {"scale": 0}, "scale is 0"),
    ("rmat", {"scale": 64}, "scale is 64"), ("rmat", {"edge_factor": 0}, "edge-factor"),
    *(("sbm", {"separation": x}, "separation is") for x in (-1.0, math.nan, math.inf)),
    ("rmat", {"features": -1}, "features"), ("rmat", {"seed": -1}, "seed"),
    ("sbm", {"scale": 2}, "8 classes, but only 4 vertices"), ("sbm", {"classes": 0},
                                                              "sbm needs classes"),
    ("rmat", {"scale": 40}, "bytes of memory")])
def test_refused(kind, options, message):
    with pytest.raises(UsageError, match=message):
        generate(kind, **options)

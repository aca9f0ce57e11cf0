"""The example graphs that are part of the package."""
import numpy as np
import pytest
from arrays import assert_none
from scipy.sparse.csgraph import shortest_path

from hpgcn.datasets.convert import read
from hpgcn.errors import MissingError


def test_karate():
    graph, _ = read("karate")
    A = graph.adjacency.toarray()
    assert A.shape == (34, 34) and A.sum() == 2 * 78
    np.testing.assert_array_equal(A, A.T)
    assert_none(A.diagonal())
    degree = A.sum(axis=1).astype(int)
    assert degree[[33, 0, 32, 2, 1]].tolist() == [17, 16, 12, 10, 9]
    assert np.bincount(degree).tolist() == [0, 1, 11, 6, 6, 3, 2, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1]
    assert np.trace(A @ A @ A) == 6 * 45  # triangles
    assert shortest_path(A, unweighted=True).max() == 5
    assert np.bincount(graph.labels).tolist() == [17, 17] and graph.labels[0] != graph.labels[33]
    across = (graph.labels[:, None] != graph.labels) & (A > 0)
    assert across.sum() == 2 * 11
    assert graph.features.tolist() == np.eye(34).tolist()
    sizes = {key: int(mask.sum()) for key, mask in graph.masks.items()}
    assert sizes == {"train": 4, "val": 8, "test": 22}


def test_digits():
    sklearn = pytest.importorskip("sklearn.datasets")
    graph, _ = read("digits")
    images = sklearn.load_digits()
    header = graph.header
    assert (header.num_nodes, header.num_edges) == (1797, 24678)
    assert (header.num_features, header.num_classes) == (64, 10)
    np.testing.assert_array_equal(graph.features, (images.data / 16).astype(np.float32))
    np.testing.assert_array_equal(graph.labels, images.target)
    A = graph.adjacency.tocsr()
    assert (A != A.T).nnz == 0
    assert_none(A.diagonal())
    for u in (0, 5, 1796):  # the ten nearest by distance and then number
        distance = ((images.data - images.data[u]) ** 2).sum(axis=1)
        distance[u] = np.inf
        nearest = sorted(range(1797), key=lambda v, distance=distance: (distance[v], v))[:10]
        assert set(nearest) <= set(A[[u]].indices.tolist())
    assert np.bincount(graph.labels[graph.masks["train"]]).tolist() == [20] * 10
    assert int(graph.masks["val"].sum()) == 500 and int(graph.masks["test"].sum()) == 1000


def test_same_bytes_same_hash():
    first, second = read("karate")[0].header, read("karate", split="random:50/25/25")[0].header
    assert len(first.source_sha256) == 64 and first.source_sha256 == second.source_sha256


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(MissingError, match="pip install 'scikit-learn>="):
        read("digits")

"""MatrixMarket files are read like scipy.io.mmread reads them."""
import gzip

import numpy as np
import pytest
import scipy.io
from inputs import put, rows

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError

BANNER = "%%MatrixMarket matrix coordinate"


@pytest.mark.parametrize("text, expected", [
    (f"{BANNER} pattern general\n3 3 2\n1 2\n3 1\n", [[0, 1, 0], [0, 0, 0], [1, 0, 0]]),
    (f"{BANNER} pattern symmetric\n%c\n\n3 3 3\n2 1\n3 1\n3 3\n",
     [[0, 1, 1], [1, 0, 0], [1, 0, 1]]),
    (f"{BANNER} real general\n2 2 2\n1 2 0.25\n2 2 -1e1\n", [[0, 0.25], [0, -10]]),
    (f"{BANNER} integer symmetric\n2 2 2\n2 1 3\n2 2 -4\n", [[0, 3], [3, -4]]),
    (f"{BANNER} real skew-symmetric\n2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
    (f"{BANNER} real symmetric\n1 1 0\n", [[0]]),
    (f"{BANNER.upper()} Pattern General\r\n2 2 1\r\n1 2\r\n\r\n", [[0, 1], [0, 0]]),
    (f"\ufeff{BANNER} pattern general\n2 2 1\n1 2", [[0, 1], [0, 0]])])
def test_literal(tmp_path, text, expected):
    for name, content in (("g.mtx", text.encode()), ("g.mtx.gz", gzip.compress(text.encode())),
                          ("g", text.encode())):
        graph, _ = read(put(tmp_path / name, content))
        assert rows(graph) == expected
        assert graph.header.name == "g"


@pytest.mark.parametrize("field, symmetry", [
    ("real", "general"), ("real", "symmetric"), ("integer", "skew-symmetric"),
    ("pattern", "symmetric")])
def test_random_against_scipy(tmp_path, field, symmetry):
    rng = np.random.default_rng(1)
    A = np.where(rng.random((40, 40)) < 0.1,
                 rng.integers(1, 100, (40, 40)) / (1 if field == "integer" else 7), 0)
    if symmetry == "symmetric":
        A = A + A.T
    if symmetry == "skew-symmetric":
        A = A - A.T
    path = tmp_path / "g.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_array(A), field=field, symmetry=symmetry)
    graph, _ = read(path)
    expected = scipy.io.mmread(path).toarray().astype(np.float32)
    np.testing.assert_array_equal(graph.adjacency.toarray(), expected)


def test_usroads(data_dir):
    path = data_dir / "mtx" / "usroads.mtx"
    graph, notes = read(path)
    expected = scipy.io.mmread(path).tocsr()
    assert abs(graph.adjacency - expected).nnz == 0
    assert (graph.header.num_nodes, graph.header.num_edges) == (129164, 330870)
    assert not graph.header.directed
    assert "undirected" in notes[0]


def test_a_dense_matrix(tmp_path):
    A = np.array([[0, 2, 0], [0, 0, 0.5], [3, 0, 0]])
    scipy.io.mmwrite(tmp_path / "g.mtx", A)
    assert read(tmp_path / "g.mtx")[0].adjacency.toarray().tolist() == A.tolist()
    scipy.io.mmwrite(tmp_path / "g.mtx", A[:2])
    with pytest.raises(DataError, match=r"has shape \(2, 3\), expected a square matrix"):
        read(tmp_path / "g.mtx")

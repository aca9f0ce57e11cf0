"""Edge lists: small tables by hand, and real files compared with NumPy."""
import gzip
import io
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put

from hpgcn import Graph
from hpgcn.datasets.convert import convert, read
from hpgcn.datasets.text.lines import Grammar, TextLines
from hpgcn.datasets.text.parse import U, V, W
from hpgcn.errors import DataWarning


def dense(tmp_path, content, name="g.txt", **options):
    graph, _ = read(put(tmp_path / name, content), **options)
    return graph.adjacency.toarray().tolist()


PLAIN = [[0, 1, 0], [0, 0, 2.5], [0, 0, 0]]


@pytest.mark.parametrize("content, name", [
    (b"0 1 1\n1 2 2.5\n", "g.txt"), (b"0 1 1\n1 2 2.5", "g.txt"),
    (b"\xef\xbb\xbf0 1 1\r\n1 2 2.5\r\n", "g.txt"),
    (b"# comment\n% another\n\n0\t1\t1.0\n  1   2  25e-1  \n# last\n\n", "g.txt"),
    (b"0,1,1\n1,2,2.5\n", "g.csv"), (b"0.0,1,1\n1,2,2.5\n", "g.txt"),
    (b"target,source,weight\n0,1,1\n1,2,2.5\n", "g.csv"),
    (b'\xef\xbb\xbf"target";"source";"weight"\r\n0 ; 1 ; 1\r\n1;2;+2.5\r\n', "g.csv"),
    (b"sep=;\r\ntarget;source;weight\r\n0;1;1\r\n1;2;2.5\r\n", "g.csv"),
    (b"0,1,1,\n1,2,2.5,\n", "g.csv"), (b"target;source;weight\n0;1;1;\n1;2;2.5;\n", "g.csv"),
    (b"target,source,weight,\n0,1,1,\n1,2,2.5,\n", "g.csv"),
    (b"# made by hand\nu v w\n0 1 1\n1 2 2.5\n", "g.csv"),
    (gzip.compress(b"0 1 1\n1 2 2.5\n"), "g.txt.gz"),
    (gzip.compress(b"0,1,1\n1,2,2.5\n"), "named_otherwise")])
def test_same_graph(tmp_path, content, name):
    assert dense(tmp_path, content, name) == PLAIN


def test_weights_that_float32_holds_as_zero(tmp_path):
    graph, notes = read(put(tmp_path / "g.txt", "0 1 1e-60\n1 0 0.5\n"))
    assert graph.header.num_edges == 1 and any("1 entries of weight 0" in note for note in notes)


def test_two_columns_have_weight_one(tmp_path):
    assert dense(tmp_path, b"0 1\n1 0\n1 2\n") == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("options, expected", [
    ({}, [[0, 3, 0], [1, 0, 0], [0, 0.5, 0]]),
    ({"reverse": True}, [[0, 1, 0], [3, 0, 0.5], [0, 0, 0]]),
    ({"symmetrize": True}, [[0, 3, 0], [3, 0, 0.5], [0, 0.5, 0]]),
    ({"unweighted": True}, [[0, 1, 0], [1, 0, 0], [0, 1, 0]]),
    ({"unweighted": True, "symmetrize": True}, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])])
def test_options(tmp_path, options, expected):
    assert dense(tmp_path, b"0 1 3\n1 0 1\n2 1 .5\n", **options) == expected


@pytest.mark.parametrize("content, expected", [
    (b"0 1\n0 1\n1 1\n", [[0, 1], [0, 1]]),  # 0/1: a duplicate is the same edge
    (b"0 1 1\n0 1 1\n1 0 0\n", [[0, 1], [0, 0]]),  # still 0/1, an entry of weight 0 is no edge
    (b"0 1 2\n0 1 3\n1 0 -1\n", [[0, 5], [-1, 0]]),  # valued: summed
    (b"0 1 2\n0 1 -2\n1 0 1\n", [[0, 0], [1, 0]])])
def test_duplicates(tmp_path, content, expected):
    flag = "u,v,w" if content.count(b" ") > 2 * content.count(b"\n") - 1 else "u,v"
    assert dense(tmp_path, content, columns=flag) == expected


@pytest.mark.parametrize("ids, kept", [
    ([0, 1, 2, 1029], True),  # 4 ids: below 2 x 4 + 1024
    ([0, 1, 2, 1031], True), ([0, 1, 2, 1032], False), ([0, 10**15], False),
    ([5, 2**63 - 1], False)])
def test_ids(tmp_path, ids, kept):
    graph, notes = read(put(tmp_path / "g.txt", "".join(f"{u} {v}\n" for u, v in pairwise(ids))))
    if kept:
        assert graph.header.num_nodes == max(ids) + 1 and graph.original_ids is None
    else:
        assert graph.header.num_nodes == len(ids)
        assert graph.original_ids.tolist() == ids
        assert "relabeled" in "\n".join(notes)
        row, column = graph.adjacency.nonzero()
        assert graph.original_ids[row].tolist() == ids[:-1]
        assert graph.original_ids[column].tolist() == ids[1:]


def test_numbers_are_rounded_as_python_does():
    rng = np.random.default_rng(5)
    words = ["0", "-0.0", ".5", "5.", "1e22", "1e23", "9007199254740993",
             "123456789012345678901234567890", "1e-400", "2.2250738585072014e-308", "4.9e-324",
             "0.1", "00012.50", "1E+2", "-1.7976931348623157e308"]
    for _ in range(3000):
        digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, 25))))
        point = rng.integers(0, len(digits) + 1)
        words.append(f"{digits[:point]}.{digits[point:]}e{rng.integers(-40, 40)}")
    words += [repr(x) for x in rng.standard_normal(1000).tolist()]
    text = "".join(f"0 0 {word}\n" for word in words).encode()
    _, _, values = TextLines(io.BytesIO(text), "f").columns(Grammar((U, V, W)))
    expected = np.array([float(word) for word in words])
    np.testing.assert_array_equal(values.view(np.int64), expected.view(np.int64))


@pytest.mark.long
@pytest.mark.parametrize("name, directed, loops", [
    ("email-Enron", False, 0), ("soc-Slashdot0902", True, None)])
def test_real_files(data_dir, name, directed, loops):
    path = data_dir / "snap" / f"{name}.txt.gz"
    with gzip.open(path) as file:
        edges = np.loadtxt(file, dtype=np.int64, comments="#")
    n = edges.max() + 1
    expected = sp.coo_array((np.ones(len(edges)), edges.T), shape=(n, n)).tocsr()
    graph, _ = read(path)
    assert graph.header.name == name and graph.header.directed is directed and graph.header.all_ones
    assert graph.header.num_edges == len(edges)
    assert abs(graph.adjacency - expected).nnz == 0
    if loops is not None:
        assert np.count_nonzero(graph.degree_loop) == loops


@pytest.mark.parametrize("delimiter", [" ", ",", "\t"])
def test_integers_of_all_lengths_are_exact(delimiter):
    """Numbers of 1 to 19 digits, also as the last bytes of the text, equal Python's."""
    numbers = [int("9876543210987654321"[-k:]) for k in range(1, 19)] + [10**k for k in range(19)]
    lines = [f"{u}{delimiter}{v}" for u in numbers for v in numbers]
    u, v, _ = parsed("\n".join(lines).encode(), delimiter)
    assert u.tolist() == [int(line.split(delimiter)[0]) for line in lines]
    assert v.tolist() == [int(line.split(delimiter)[1]) for line in lines]
    assert parsed(b"1 2", " ")[1].tolist() == [2]  # fewer than 8 bytes


def parsed(text, delimiter):
    table = TextLines(io.BytesIO(text), "text")
    return table.columns(Grammar((U, V), delimiter.encode(), comments=False))


def test_unequal_weights_of_two_directions_are_counted(tmp_path):
    path = put(tmp_path / "g.csv", "u,v,w\n0,1,2\n1,0,3\n1,2,5\n2,1,5\n2,3,1\n3,3,7\n0,4,-1\n4,0,1")
    said = ("2 edges have different weights in their two directions: max(A, A^T) keeps the larger")
    graph, notes = read(path, symmetrize=True)
    assert said in notes and graph.adjacency[0, 1] == graph.adjacency[1, 0] == 3
    assert said in convert(path, tmp_path / "g.h5", symmetrize=True, memory=1 << 20)
    for options in ({}, {"symmetrize": True, "unweighted": True}):
        assert "different weights" not in " ".join(read(path, **options)[1])
    with pytest.warns(DataWarning, match="2 edges have different weights in their two"):
        Graph.from_scipy(read(path)[0].adjacency, symmetrize=True)

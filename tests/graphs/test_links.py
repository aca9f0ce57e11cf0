"""Links of a graph in memory: checked, and renumbered with the vertices."""
import warnings

import numpy as np
import pytest

from hpgcn import Graph
from hpgcn.errors import DataError, DataWarning
from hpgcn.graphs.links import LinkSet, Renumbered, find_entries, permuted_links

RING = np.roll(np.eye(5), 1, axis=1) + np.roll(np.eye(5), -1, axis=1)


def make(**links):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Graph.from_scipy(RING, links=links)


def test_a_set_keeps_its_arrays():
    graph = make(train=[[0, 1], [2, 1]], val=LinkSet([[2, 4]], negative=[[0, 2], [1, 3]]),
                 test=LinkSet([[3, 0]], negative_targets=[[1, 3, 1]], weight=[.5]))
    assert list(graph.links) == ["train", "val", "test"]
    assert graph.links["train"].positive.dtype == np.int64
    assert repr(graph.links["val"]) == "LinkSet(1 links, 2 negatives)"
    assert graph.links["test"].describe() == "1 links, 3 negative targets of each"
    assert graph.links["test"].weight.dtype == np.float32
    assert graph.slab(1, 3).links is graph.links
    assert graph.pattern().links is None
    assert Graph.from_scipy(RING).links is None


def test_links_follow_their_vertices():
    graph = make(train=LinkSet([[0, 1]], negative=[[4, 2]], weight=[2]),
                 test=LinkSet([[3, 0], [4, 1]], negative_targets=[[1], [2]]))
    perm = np.array([3, 1, 4, 0, 2])  # new -> old
    moved = graph.permuted(perm)
    for key, links in graph.links.items():
        for name, array in links.arrays().items():
            found = moved.links[key].arrays()[name]
            np.testing.assert_array_equal(found if name == "weight" else perm[found], array)
    again = moved.in_original_order()
    np.testing.assert_array_equal(again.links["test"].positive, graph.links["test"].positive)
    assert moved.digests() == graph.digests() != Graph.from_scipy(RING).digests()
    assert permuted_links(None, perm) is None
    assert Renumbered(np.array([[0, 1], [2, 0]]), perm)[1:2].tolist() == [[4, 3]]


@pytest.mark.parametrize("links, message", [
    ([[0, 1]], "links: expected a dict under train, val, test"),
    ({}, "expected a dict"),
    ({"dev": [[0, 1]]}, "expected a dict under train, val, test"),
    ({"val": [[0., 1]]}, "links of val: positive has dtype float64, expected integers"),
    ({"val": [0, 1]}, r"links of val: positive has shape \(2,\), expected \(any, 2\)"),
    ({"val": [[0, 1], [2, 5]]}, r"positive\[1\] has a vertex outside 0..4: \[2, 5\]"),
    ({"val": LinkSet([[0, 1]], negative=[[0, -1]])}, r"negative\[0\] has a vertex outside 0..4"),
    ({"val": LinkSet([[0, 1]], [[0, 2]], [[0]])}, "have negative and negative_targets"),
    ({"val": LinkSet([[0, 1]], negative_targets=[[0], [1]])},
     r"negative_targets has shape \(2, 1\), expected \(1, any\)"),
    ({"val": LinkSet([[0, 1]], weight=[1, 2])}, r"weight has shape \(2,\), expected \(1,\)"),
    ({"val": LinkSet([[0, 1]], weight=[np.nan])}, r"weight\[0\] is not a finite number: nan"),
])
def test_wrong_links_are_refused(links, message):
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(RING, links=links)


def test_self_loops_are_left_out():
    links = LinkSet([[2, 2], [0, 2]], negative_targets=[[1], [3]], weight=[5, 6])
    with pytest.warns(DataWarning, match="links of val: 1 of 2 are self loops, which are no links"):
        found = Graph.from_scipy(RING, links={"val": links}).links["val"]
    assert {name: array.tolist() for name, array in found.arrays().items()} == {
        "positive": [[0, 2]], "negative_targets": [[3]], "weight": [6]}


def test_repeated_links_are_counted():
    with pytest.warns(DataWarning, match="links of train: 1 of 3 occur before"):
        Graph.from_scipy(RING, links={"train": [[0, 1], [1, 0], [1, 2]]})
    directed = np.triu(RING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph.from_scipy(directed, links={"train": [[0, 1], [1, 0], [1, 2]]})


def test_links_of_validation_and_test_are_no_edges():
    leaky = {"train": [[0, 1]], "test": [[0, 2], [1, 0], [3, 4]]}
    message = r"links of test: 2 of 3 are edges of the graph, the first \[1, 0\]"
    with pytest.raises(DataError, match=f"{message}.*allow_leakage=True allows it"):
        Graph.from_scipy(RING, links=leaky)
    with pytest.warns(DataWarning, match=message):
        Graph.from_scipy(RING, links=leaky, allow_leakage=True)
    directed = np.zeros((3, 3))
    directed[2, 0] = 1  # the edge 0 -> 2
    assert Graph.from_scipy(directed, links={"test": [[2, 0]]}).links
    with pytest.raises(DataError, match="1 of 1 are edges"):
        Graph.from_scipy(directed, links={"test": [[0, 2]]})


def test_links_of_training_are_no_others():
    sets = {"train": [[0, 1], [2, 0]], "val": [[4, 1]], "test": [[0, 2]]}
    message = r"links of test: 1 of 1 are links of train, the first \[0, 2\]"
    with pytest.raises(DataError, match=f"{message}.*allow_leakage=True allows it"):
        Graph.from_scipy(RING, links=sets)
    with pytest.warns(DataWarning, match=message):
        Graph.from_scipy(RING, links=sets, allow_leakage=True)
    with pytest.warns(DataWarning, match="links of test: 1 of 2 are links of val"):
        Graph.from_scipy(RING, links={**sets, "test": [[1, 4], [1, 3]]})


@pytest.mark.parametrize("negatives, first", [
    ({"negative": [[4, 2], [2, 1], [4, 1]]}, "2, 1"), ({"negative_targets": [[1, 0, 4]]}, "3, 0")])
def test_negatives_that_are_links_are_counted(negatives, first):
    sets = {"val": [[1, 4]], "test": LinkSet([[3, 0]], **negatives)}
    with pytest.warns(DataWarning, match="links of test: 2 of 3 negatives are edges or links, "
                                         rf"the first \[{first}\]$"):
        Graph.from_scipy(RING, links=sets)


def test_entries_are_found():
    rng = np.random.default_rng(0)
    dense = rng.random((30, 30)) < .2
    dense[[0, 7, 29]] = False
    graph = Graph.from_scipy(dense.astype(float))
    rows, columns = rng.integers(0, 30, (2, 500))
    np.testing.assert_array_equal(find_entries(graph.indptr, graph.indices, rows, columns),
                                  dense[rows, columns])
    empty = np.zeros(0, np.int32)
    assert True not in find_entries(np.zeros(31, np.int64), empty, rows, columns)

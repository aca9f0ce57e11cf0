"""Links of a conversion: drawn from the edges by their ids, or read from files."""
import numpy as np
import pytest

import hpgcn
from hpgcn.__main__ import main
from hpgcn.datasets.convert import convert, read
from hpgcn.datasets.held_out_links import parse_links
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.links import pair_keys

N = 60
RNG = np.random.default_rng(0)
PAIRS = np.unique(np.sort(RNG.integers(0, N, (400, 2)), axis=1), axis=0)
EDGES = PAIRS[PAIRS[:, 0] < PAIRS[:, 1]]


def write(path, pairs, header="", *columns):
    rows = np.column_stack([np.asarray(pairs), *columns]).tolist() if len(pairs) else []
    path.write_text("\n".join([header] * bool(header) + [",".join(map(str, r)) for r in rows]))
    return str(path)


def keys(pairs, directed=False):
    return set(pair_keys(pairs, N, directed).tolist())


def named(graph):
    """Return the links of each set as sets of two ids."""
    return {key: {frozenset(map(str, graph.ids()[pair])) for pair in each.positive}
            for key, each in graph.links.items()}


@pytest.fixture
def edges(tmp_path):
    return write(tmp_path / "edges.csv", EDGES)


def test_a_share_of_the_edges_is_held_out(edges):
    graph, notes = read(edges, symmetrize=True, num_nodes=N, links=["80/10/10"])
    sets = {key: keys(each.positive) for key, each in graph.links.items()}
    count = round(len(EDGES) / 10)
    assert [len(each) for each in sets.values()] == [len(EDGES) - 2 * count, count, count]
    assert set.union(*sets.values()) == keys(EDGES)
    np.testing.assert_array_less(*graph.links["val"].positive.T)
    rows, columns = graph.adjacency.nonzero()
    assert keys(np.stack([rows, columns], axis=1)) == sets["train"]
    assert rows.size == 2 * len(sets["train"]) and not graph.header.directed
    assert f"links: {len(sets['train'])} train, {count} val, {count} test" in "\n".join(notes)
    other, _ = read(edges, symmetrize=True, num_nodes=N, links=["80/10/10:1"])
    assert keys(other.links["test"].positive) != sets["test"]


@pytest.mark.parametrize("names", [False, True])
def test_the_order_of_edges_changes_nothing(tmp_path, names):
    form = np.array([f"v{k}" for k in range(N)]) if names else np.arange(N) * 3 + 5
    found = []
    for order in (np.arange(len(EDGES)), RNG.permutation(len(EDGES))):
        path = write(tmp_path / "edges.csv", form[EDGES[order]])
        found.append(named(read(path, symmetrize=True, links=["70/20/10:4"])[0]))
    assert found[0] == found[1] and all(found[0].values())


def test_no_vertex_loses_its_last_edge(tmp_path):
    star = [(0, k) for k in range(1, 20)]
    ring = [(k, k + 1) for k in range(20, 40)] + [(40, 20)]
    path = write(tmp_path / "edges.csv", star + ring)
    graph, notes = read(path, symmetrize=True, links=["50/25/25"])
    np.testing.assert_array_less(0, np.diff(graph.indptr))
    assert 0 not in graph.links["test"].positive
    text = "\n".join(notes)
    assert "edges stay in training because a vertex would lose its last one" in text
    graph, notes = read(path, symmetrize=True, links=["50/25/25"], allow_isolated=True)
    assert 0 in np.diff(graph.indptr)
    assert [len(each) for each in graph.links.values()] == [20, 10, 10]
    assert "would lose" not in "\n".join(notes)
    assert "10 links fewer than asked for" in "\n".join(
        read(write(tmp_path / "star.csv", star[:10]), symmetrize=True, links=["0.1/49.9/50"])[1])


def test_directions_of_an_edge_stay_together(tmp_path):
    both = EDGES[::2]
    directed = np.concatenate([EDGES, both[:, ::-1], [[3, 3]]])
    path = write(tmp_path / "edges.csv", directed, "source,target")
    graph, _ = read(path, num_nodes=N, links=["60/20/20"])
    assert graph.header.directed and graph.degree_loop[3] == 1
    sets = {key: keys(each.positive, True) for key, each in graph.links.items()}
    assert set.union(*sets.values()) == keys(directed[:-1], True)
    for name, found in sets.items():
        pairs = np.array([divmod(each, N) for each in found])
        twice = [pair for pair in pairs.tolist() if keys(np.array([sorted(pair)])) & keys(both)]
        assert twice and all(pair[1] * N + pair[0] in found for pair in twice), name
    dense = graph.adjacency.toarray()
    for key in ("val", "test"):
        source, target = graph.links[key].positive.T
        np.testing.assert_array_equal(dense[target, source] + dense[source, target], 0)


def test_weights_are_kept(tmp_path):
    weights = np.arange(len(EDGES)) % 7 + .5
    path = write(tmp_path / "edges.csv", EDGES, "source,target,weight", weights)
    graph, notes = read(path, symmetrize=True, num_nodes=N, links=["80/10/10"])
    known = dict(zip(pair_keys(EDGES, N, False).tolist(), weights))
    for each in graph.links.values():
        np.testing.assert_array_equal(each.weight, [
            known[key] for key in pair_keys(each.positive, N, False).tolist()])
    assert "weights of validation and test links are stored with them" in notes


def test_features_of_held_out_edges_are_not_stored(tmp_path):
    path = write(tmp_path / "edges.csv", EDGES, "source,target,length,speed", EDGES % 9)
    graph, notes = read(path, symmetrize=True, num_nodes=N, edge_features="length,speed",
                        links=["80/10/10"])
    assert len(graph.edge_features) == graph.header.num_edges
    assert "features of validation and test edges are not stored" in notes


def test_orders_and_partitions_keep_the_ids(tmp_path, edges):
    convert(edges, tmp_path / "g.h5", symmetrize=True, num_nodes=N, links=["80/10/10"],
            order="degree")
    with hpgcn.load(tmp_path / "g.h5") as stored:
        expected = named(stored.read())
        assert stored.ordered
    assert main(["partition", str(tmp_path / "g.h5"), "-k", "3", "-o", str(tmp_path / "p.h5")]) == 0
    with hpgcn.load(tmp_path / "p.h5") as stored:
        assert named(stored.in_original_order()) == expected
        graph = stored.slab(0, N)
        ids = stored.vertices(0, N)
        assert {frozenset(map(str, ids[pair])) for pair in
                graph.links["test"].read().positive} == expected["test"]


def test_files_of_pairs(tmp_path):
    names = np.array([f"v{k}" for k in range(N)])
    graph_edges = write(tmp_path / "edges.csv", names[EDGES[:-20]])
    val = write(tmp_path / "val.csv", names[EDGES[-20:-10]])
    pairs = np.concatenate([EDGES[-10:], EDGES[-10:]])
    pairs[10:, 1] = (pairs[10:, 0] + 31) % N
    pairs[10:] = pairs[10:][::-1]
    test = write(tmp_path / "test.csv", names[pairs], "source,target,label", np.repeat([1, 0], 10))
    graph, notes = read(graph_edges, symmetrize=True, allow_leakage=True,
                        links=[f"val={val}", f"test={test}"])
    ids = graph.ids()
    np.testing.assert_array_equal(ids[graph.links["val"].positive], names[EDGES[-20:-10]])
    np.testing.assert_array_equal(ids[graph.links["test"].positive], names[EDGES[-10:]])
    np.testing.assert_array_equal(ids[graph.links["test"].negative], names[pairs[10:]])
    assert len(graph.links["train"]) == len(EDGES) - 20
    assert any(note.startswith("links of test: 10 links, 10 negatives in") for note in notes)


@pytest.mark.parametrize("names", [np.arange(4), np.array(["a", "b", "c", "d"])])
def test_a_header_of_edges_is_not_expected_of_links(tmp_path, names):
    path = write(tmp_path / "edges.csv", names[[[0, 1], [1, 2], [2, 3]]], "source,target")
    test = write(tmp_path / "test.csv", names[[[0, 2], [1, 3]]])
    graph, _ = read(path, header=True, links=[f"test={test}"])
    assert graph.ids()[graph.links["test"].positive].tolist() == names[[[0, 2], [1, 3]]].tolist()


@pytest.mark.parametrize("header, swapped", [("", True), ("u,v", True), ("source,target", False)])
def test_directions_of_pairs_are_those_of_edges(tmp_path, header, swapped):
    path = write(tmp_path / "edges.csv", [(0, 1), (1, 2), (2, 3)])
    test = write(tmp_path / "test.csv", [(0, 2)], header)
    graph, _ = read(path, columns="u,v", links=[f"test={test}"])
    assert graph.links["test"].positive.tolist() == [[2, 0] if swapped else [0, 2]]
    assert graph.links["train"].positive.tolist() == [[1, 0], [2, 1], [3, 2]]


def test_leakage_is_refused(tmp_path, capsys):
    path = write(tmp_path / "edges.csv", EDGES)
    test = write(tmp_path / "test.csv", EDGES[:3, ::-1])
    arguments = ["convert", path, str(tmp_path / "g.h5"), "--symmetrize", "--num-nodes", str(N),
                 "--links", f"test={test}"]
    assert main(arguments) == 65
    text = capsys.readouterr().err
    assert "links of test: 3 of 3 are edges of the graph, the first" in text
    assert "--allow-leakage allows it" in text and not (tmp_path / "g.h5").exists()
    assert main([*arguments, "--allow-leakage"]) == 0
    assert "3 of 3 are edges of the graph" in capsys.readouterr().out


@pytest.mark.parametrize("text, message", [
    ("0,77\n", "line 1: '77' is no id of the graph, whose ids are 0..59"),
    ("head,relation,tail\n0,1,2\n", "relations of several types"),
    ("source,target,relation\n0,1,2\n", r"relations of several types \(relation\)"),
    ("0\n1\n", "expected two with ids"),
    ("a,b\n", "has no ids of the graph's kind, which are 0..59"),
    ("0,5,1,7\n", "expected two of ids, and one called label"),
    ("0,5,2\n", "column 3 is '2', expected 0 or 1"),
    ("0,5,0\n", "column 3: no 1, expected links"),
    ("source,target\n", "test.csv: no links"),
    ("source,target,label\n0,5,yes\n", "label is 'yes', expected a number: 0 or 1, or true or"),
])
def test_wrong_files_are_refused(tmp_path, edges, text, message):
    (tmp_path / "test.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read(edges, num_nodes=N, symmetrize=True, links=[f"test={tmp_path / 'test.csv'}"])


def test_self_loops_are_no_links(tmp_path):
    path = write(tmp_path / "edges.csv", [*EDGES, (4, 4)])
    test = write(tmp_path / "test.csv", [(0, 5), (7, 7)])
    graph, notes = read(path, symmetrize=True, links=[f"test={test}"], allow_leakage=True)
    assert graph.links["test"].positive.tolist() == [[0, 5]]
    assert "links of test: 1 of 2 are self loops, which are no links: left out" in notes
    graph, notes = read(path, symmetrize=True, links=["80/10/10"])
    assert "1 self loops are no links, and stay in the graph" in notes
    assert graph.adjacency[4, 4] == 1


@pytest.mark.parametrize("texts", [["80/10"], ["80/10/20"], ["0/50/50"], ["dev=a.csv"],
                                   ["80/10/10", "val=a.csv"], ["a.csv"],
                                   ["val=a.csv", "val=b.csv"]])
def test_wrong_words_are_refused(texts):
    with pytest.raises(UsageError, match=r"--links .*(expected percentages|is given before)"):
        parse_links(texts)


def test_flags_that_exclude_each_other(tmp_path, edges):
    with pytest.raises(UsageError, match="--links and --largest-component"):
        read(edges, links=["80/10/10"], largest_component=True)
    with pytest.raises(UsageError, match="--reverse: not for links of files"):
        read(edges, links=[f"test={edges}"], reverse=True)
    with pytest.raises(DataError, match="no edges between two vertices"):
        read(write(tmp_path / "loops.csv", [(1, 1), (2, 2)]), links=["80/10/10"])


def test_one_way_links_of_two_kinds_have_a_note(tmp_path):
    path = write(tmp_path / "edges.csv", [["c0", "p0"], ["c0", "p1"], ["c1", "p0"], ["c1", "p1"]])
    options = {"links": ["80/10/10"], "header": False}
    for symmetrize, noted in ((False, True), (True, False)):
        notes = "\n".join(read(path, symmetrize=symmetrize, **options)[1])
        assert ("no vertex is both a source and a target" in notes) == noted


def test_classes_need_labels(edges):
    with pytest.raises(UsageError, match=r"--classes: .*edges\.csv has no labels"):
        read(edges, classes=True)

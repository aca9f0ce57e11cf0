"""Planetoid sets: real ones with their published counts, and a small one written here."""
import hashlib
import pickle
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all, assert_none
from inputs import refused, rows

from hpgcn.datasets.convert import read
from hpgcn.errors import InputNotFoundError


def write_set(folder, protocol=2, **changes):
    """Write a Planetoid set of 7 vertices.

    Vertices 0 to 2 are in allx; 5, 3 and 6 are for testing; 4 is in no list.
    """
    parts = {
        "x": sp.csr_matrix([[1.0, 0]], dtype=np.float32), "y": np.array([[0, 1]]),
        "allx": sp.csr_matrix([[1.0, 0], [2, 2], [0, 4]], dtype=np.float32),
        "ally": np.array([[0, 1], [1, 0], [1, 0]]),
        "tx": sp.csr_matrix([[0, 5.0], [3, 0], [6, 0]], dtype=np.float32),
        "ty": np.array([[1, 0], [0, 1], [0, 1]]),
        "graph": defaultdict(list, {0: [1, 5], 1: [0, 1], 2: [], 4: [6, 6], 3: [2]}),
    }
    parts.update(changes)
    index = parts.pop("index", b"5\n3\n6\n")
    for part, content in parts.items():
        data = content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol)
        (folder / f"ind.tiny.{part}").write_bytes(data)
    (folder / "ind.tiny.test.index").write_bytes(index)
    return folder / "ind.tiny.graph"


@pytest.mark.parametrize("protocol, part", [(2, "graph"), (3, "test.index"), (4, "x"), (2, "ally")])
def test_literal(tmp_path, protocol, part):
    write_set(tmp_path, protocol)
    graph, _ = read(tmp_path / f"ind.tiny.{part}", row_normalize=False)
    expected = np.zeros((7, 7))
    for u, v in ((0, 1), (0, 5), (1, 1), (4, 6), (3, 2)):
        expected[u, v] = expected[v, u] = 1
    assert rows(graph) == expected.tolist()
    X = [[1, 0], [2, 2], [0, 4], [3, 0], [0, 0], [0, 5], [6, 0]]
    assert graph.features.toarray().tolist() == X
    assert graph.labels.tolist() == [1, 0, 0, 1, -1, 0, 1]
    assert {key: np.flatnonzero(mask).tolist() for key, mask in graph.masks.items()} == {
        "train": [0], "val": [1, 2], "test": [3, 5, 6]}
    assert (graph.header.name, graph.header.split) == ("tiny", "planetoid")
    assert not graph.header.directed


def test_features_are_row_normalized_by_default(tmp_path):
    graph, _ = read(write_set(tmp_path))
    X = [[1, 0], [0.5, 0.5], [0, 1], [1, 0], [0, 0], [0, 1], [1, 0]]
    assert graph.features.toarray().tolist() == X


def test_sha256_is_over_all_files_in_name_order(tmp_path):
    path = write_set(tmp_path)
    contents = [each.read_bytes() for each in sorted(tmp_path.iterdir())]
    expected = hashlib.sha256(b"".join(contents)).hexdigest()
    assert len(contents) == 8 and read(path)[0].header.source_sha256 == expected


@pytest.mark.parametrize("name, n, arcs, loops, isolated, f, c, unlabeled, train", [
    ("cora", 2708, 10556, 0, 0, 1433, 7, 0, 140),
    ("citeseer", 3327, 9228, 124, 48, 3703, 6, 15, 120)])
def test_real_sets(data_dir, name, n, arcs, loops, isolated, f, c, unlabeled, train):
    folder = data_dir / "planetoid"
    graph, notes = read(folder / f"ind.{name}.ally")
    header = graph.header
    assert (header.num_nodes, header.num_edges) == (n, arcs)
    assert (header.num_features, header.num_classes) == (f, c)
    assert np.count_nonzero(graph.degree_loop) == loops
    assert f"{isolated} isolated vertices" in notes[1]
    unknown = np.flatnonzero(graph.labels < 0)
    assert unknown.size == unlabeled
    assert_all(graph.degree_row[unknown] > 0)
    assert graph.features[unknown].nnz == 0
    assert np.flatnonzero(graph.masks["train"]).tolist() == list(range(train))
    assert np.flatnonzero(graph.masks["val"]).tolist() == list(range(train, train + 500))
    test = np.sort(np.loadtxt(folder / f"ind.{name}.test.index", dtype=int))
    assert np.flatnonzero(graph.masks["test"]).tolist() == test.tolist()
    sums = graph.features.sum(axis=1)
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")
def test_cora_against_plain_unpickling(data_dir):
    """Cora's features, labels and edges equal those that Python's pickle reads."""
    folder = data_dir / "planetoid"
    load = {part: pickle.loads((folder / f"ind.cora.{part}").read_bytes(), encoding="latin1")
            for part in ("allx", "tx", "ally", "ty", "graph")}
    test = np.loadtxt(folder / "ind.cora.test.index", dtype=int)
    X = np.zeros((2708, 1433))
    X[:1708], X[test] = load["allx"].toarray(), load["tx"].toarray()
    y = np.zeros((2708, 7))
    y[:1708], y[test] = load["ally"], load["ty"]
    graph, _ = read(folder / "ind.cora.graph", row_normalize=False)
    np.testing.assert_array_equal(graph.features.toarray(), X)
    np.testing.assert_array_equal(graph.labels, y.argmax(axis=1))
    arcs = {(u, v) for u, row in load["graph"].items() for v in row}
    arcs |= {(v, u) for u, v in arcs}
    assert set(zip(*(ids.tolist() for ids in graph.adjacency.nonzero()))) == arcs


@pytest.mark.parametrize("data", [
    b"cos\nsystem\n(S'true'\ntR.", b"\x80\x02c__builtin__\neval\nX\x01\x00\x00\x001\x85R.",
    b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.", b"\x80\x02cnumpy\nload\n.",
    b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
    b"\x80\x02ccopyreg\n_reconstructor\n.", b"\x80\x02c_codecs\ndecode\n."])
def test_forbidden_globals(tmp_path, data):
    refused("forbidden global", write_set(tmp_path, allx=data))


GRAPH = pickle.dumps(defaultdict(list, {0: [1], 1: [0]}), protocol=2)
MATRIX = pickle.dumps(np.eye(2), protocol=2)


@pytest.mark.long
@pytest.mark.parametrize("part, data", [
    *(("graph", GRAPH[:k]) for k in range(0, len(GRAPH), 2)),
    *(("ally", MATRIX[:k]) for k in range(0, len(MATRIX), 3)),
    ("graph", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R."),
    ("graph", b"\x80\x02}r\xff\xff\xff\x7f."), ("graph", b"I1\n."),
    ("graph", pickle.dumps({0: (1,)}, 2)),
    ("graph", pickle.dumps({0: [1.5]}, 2)), ("graph", pickle.dumps({0: [10**30]}, 2)),
    ("graph", pickle.dumps({"0": [1]}, 2)),
    ("ally", pickle.dumps(np.array([[None, 1], [1, 0], [1, 0]]), 2)),
    ("ally", pickle.dumps(np.eye(3)[:2], 2)),
    ("allx", MATRIX.replace(b"f8", b"O8")), ("allx", MATRIX.replace(b"f8", b"M8")), ("allx", b"N."),
])
def test_broken_pickles(tmp_path, part, data):
    refused(rf"ind\.tiny\.{part}: ", write_set(tmp_path, **{part: data}))


@pytest.mark.parametrize("changes, message", [
    ({"index": b"5\nx\n6\n"}, r"test\.index: line 2: vertex is 'x'"),
    ({"index": b"5\n-3\n6\n"}, r"test\.index: line 2"),
    ({"index": b"5\n3\n5\n"},
     r"test\.index: vertex 5 is listed twice, the second time as number 3"),
    ({"index": b"5\n2\n6\n"}, r"test\.index: line 2: vertex is '2', expected 3 or more"),
    ({"index": b"5\n3\n"}, r"test\.index: 2 lines, but ty has 3 rows"),
    ({"index": b"5\n3\n999999999999999\n"}, r"test\.index: 1000000000000000 vertices: needs"),
    ({"graph": {0: [1], 1: [77]}}, r"graph: vertex 1 has the neighbor 77, expected 0\.\.6"),
    ({"graph": {0: [1], 70: [7]}}, r"graph: vertex 70, expected 0\.\.6"),
    ({"ally": np.array([[1, 1], [1, 0], [1, 0]])}, r"ally: row 0 has 2 classes"),
    ({"tx": sp.csr_matrix(np.ones((3, 5)))}, r"tx: 5 features, but 2")])
def test_parts_that_do_not_fit(tmp_path, changes, message):
    refused(message, write_set(tmp_path, **changes))


def test_csr_with_wild_columns_is_refused(tmp_path):
    X = sp.csr_matrix([[1.0, 0], [2, 2], [0, 4]], dtype=np.float32)
    X.indices[-1] = 10**6
    refused(r"allx indices: entry 3 is 1000000, expected 0\.\.1", write_set(tmp_path, allx=X))


def test_sets_without_features_or_test_vertices(tmp_path):
    empty = sp.csr_matrix((3, 2), dtype=np.float32)
    none = sp.csr_matrix((0, 2), dtype=np.float32)
    changes = {"allx": empty, "tx": none, "ty": np.empty((0, 2), int), "index": b"",
               "graph": {0: [1], 2: []}}
    graph, _ = read(write_set(tmp_path, protocol=4, **changes))
    assert graph.header.num_nodes == 3 and graph.features.nnz == 0
    assert_none(graph.masks["test"])


def test_missing_part(tmp_path):
    path = write_set(tmp_path)
    (tmp_path / "ind.tiny.ty").unlink()
    with pytest.raises(InputNotFoundError, match=r"ind\.tiny\.ty"):
        read(path)


def test_last_vertex_known_only_to_the_graph(tmp_path):
    graph, _ = read(write_set(tmp_path, graph={u: [7 - u] for u in range(8)}))
    assert graph.header.num_nodes == 8 and graph.labels[7] == -1

"""Edge features from columns of edge lists, from arrays beside the edges, and from files."""
import gzip
import io

import numpy as np
import pytest
from inputs import put, refused

import hpgcn
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import DataError, UsageError

EDGES = [(0, 1, .5, 3), (1, 2, 1.5, 4), (2, 0, 2.5, 5)]
HEADER = "source,target,dist,speed\n"
LIST = HEADER + "".join(",".join(map(str, edge)) + "\n" for edge in EDGES)
F = np.array([edge[2:] for edge in EDGES])


def by_edge(graph):
    """Return a dict from (source, target) to the features of that edge."""
    targets = np.repeat(np.arange(graph.num_rows), np.diff(graph.indptr))
    return {(int(u), int(v)): row.tolist()
            for u, v, row in zip(graph.indices, targets, graph.edge_features)}


EXPECTED = {edge[:2]: list(map(float, edge[2:])) for edge in EDGES}


@pytest.mark.parametrize("name, text, options", [
    ("e.csv", LIST, {"edge_features": "dist,speed"}),
    ("e.csv", LIST, {"edge_features": "d*,speed"}),
    ("e.csv.gz", gzip.compress(LIST.encode()), {"edge_features": "dist,speed"}),
    ("e.tsv", LIST.replace(",", "\t"), {"edge_features": "dist,speed"}),
    ("e.txt", "# comment\n" + LIST.replace(HEADER, "").replace(",", " "),
     {"columns": "source,target,-,-", "edge_features": "3,4"}),
    ("e.csv", "age,dist,speed,dst,src\n9,.5,3,1,0\n9,1.5,4,2,1\n9,2.5,5,0,2\n",
     {"edge_features": "dist,speed"})])
def test_columns_of_an_edge_list(tmp_path, name, text, options):
    convert(put(tmp_path / name, text), tmp_path / "g.h5", **options)
    graph = hpgcn.load(tmp_path / "g.h5").read()
    assert by_edge(graph) == EXPECTED and graph.data is None
    notes = read(tmp_path / name, **options)[1]
    assert any("2 edge features" in note and "model gine reads" in note for note in notes)


def as_text(array):
    text = io.StringIO()
    np.savetxt(text, array, delimiter=",")
    return text.getvalue()


@pytest.mark.parametrize("name, content", [
    ("f.csv", as_text(F)), ("f.csv", "d,s\n" + as_text(F)), ("f.txt", as_text(F).replace(",", " ")),
    ("f.csv.gz", gzip.compress(as_text(F).encode())), ("f.npy", F),
    ("f.json", '[{"a": 0.5, "b": 3}, {"a": 1.5, "b": 4}, {"a": 2.5, "b": 5}]')])
def test_files_with_a_row_for_each_edge(tmp_path, name, content):
    edges = put(tmp_path / "e.txt", "0 1\n1 2\n2 0\n")
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        put(path, content)
    options = {"columns": "source,target"}
    for asked in (str(path), name):  # a name means a file beside the edges
        graph, _ = read(edges, edge_features=asked, **options)
        assert by_edge(graph) == EXPECTED
    assert by_edge(read(edges, edge_features=name, reverse=True, **options)[0]) == {
        edge[::-1]: row for edge, row in EXPECTED.items()}
    both = by_edge(read(edges, edge_features=name, symmetrize=True, **options)[0])
    assert both == EXPECTED | {edge[::-1]: row for edge, row in EXPECTED.items()}


def test_vertices_that_are_renumbered_or_added(tmp_path):
    edges = put(tmp_path / "e.csv", "source,target,d\n5,90000,1\n90000,700000,2\n")
    table = put(tmp_path / "y.csv", "id,label\n800000,1\n5,0\n6,0\n")
    graph, _ = read(edges, labels=table, edge_features="d")
    assert graph.original_ids.tolist() == [5, 6, 90000, 700000, 800000]
    assert by_edge(graph) == {(0, 2): [1], (2, 3): [2]}
    put(edges, "source,target,d\nb,a,1\na,c,2\n")
    assert by_edge(read(edges, edge_features="d")[0]) == {(0, 1): [1], (1, 2): [2]}


def test_arrays_and_sets(tmp_path):
    index = np.array([edge[:2] for edge in EDGES]).T
    np.savez(tmp_path / "g.npz", edge_index=index, edge_attr=F)
    assert by_edge(read(tmp_path / "g.npz", edge_features="edge_attr")[0]) == EXPECTED
    refused("no array x", tmp_path / "g.npz", edge_features="x")
    notes = read(tmp_path / "g.npz")[1]
    assert any("edge_attr" in note and "edge_features='edge_attr'" in note for note in notes)

    raw = tmp_path / "ogbn_x" / "raw"
    raw.mkdir(parents=True)
    for name, text in (("edge", "0,1\n1,2\n2,0\n"), ("num-node-list", "3\n"),
                       ("edge-feat", as_text(F))):
        put(raw / f"{name}.csv.gz", gzip.compress(text.encode()))
    graph, _ = read(raw.parent, edge_features="edge-feat.csv.gz")
    assert by_edge(graph) == EXPECTED
    assert any("--edge-features edge-feat.csv.gz" in note for note in read(raw.parent)[1])
    assert graph.header.source_sha256 != read(raw.parent)[0].header.source_sha256


@pytest.mark.long
def test_edge_attr_of_pyg(tmp_path):
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    index = torch.tensor([edge[:2] for edge in EDGES]).T.contiguous()
    data = pyg.Data(edge_index=index, edge_attr=torch.tensor(F), num_nodes=3)
    torch.save(data, tmp_path / "g.pt")
    assert by_edge(read(tmp_path / "g.pt", edge_features="edge_attr")[0]) == EXPECTED


@pytest.mark.parametrize("text, asked, message", [
    (LIST, "nope", r"no column is called nope \(--edge-features\)|not a known name"),
    (LIST + "0,1,9,9\n", "dist,speed", "the edge 0 -> 1 is listed twice"),
    (LIST.replace("1.5", "x"), "dist,speed", "line 3: column dist is 'x', expected a number"),
    (LIST.replace("1.5", ""), "dist,speed", "line 3: column dist is empty")])
def test_refused(tmp_path, text, asked, message):
    refused(message, put(tmp_path / "e.csv", text), edge_features=asked)


def test_files_that_do_not_fit(tmp_path):
    edges = put(tmp_path / "e.txt", "0 1\n1 2\n2 0\n")
    with pytest.raises(DataError, match="2 rows of edge features, but the input has 3 edges"):
        read(edges, edge_features=str(put(tmp_path / "f.csv", "1.5,2\n3,4\n")))
    with pytest.raises(DataError, match="name the ends of edges"):
        read(edges, edge_features=str(put(tmp_path / "f.csv", LIST)))
    with pytest.raises(UsageError, match="--largest-component: expected only one"):
        read(edges, edge_features="f.csv", largest_component=True)
    with pytest.raises(UsageError, match="no such file; names are of columns"):
        read(put(tmp_path / "g.graph", "2 1\n2\n1\n"), edge_features="d")

"""Vertex ids keep the numbers of the input; headers of SNAP and KONECT files are understood."""
import numpy as np
import pytest
import scipy.io
from inputs import put, refused, rows

import hpgcn
from hpgcn.datasets.convert import read
from hpgcn.errors import DataError, DataWarning, UsageError

GAPS = "0\t1\n1\t5\n5\t7\n"  # four ids


def graph_of(tmp_path, text, name="g.txt", **options):
    return read(put(tmp_path / name, text), **options)


def test_ids_from_one(tmp_path):
    graph, notes = graph_of(tmp_path, "1 2\n2 3\n")
    assert graph.header.num_nodes == 4
    assert "ids begin at 1, and vertex 0 is in no edge: use --base 1 to drop it" in notes
    graph, notes = graph_of(tmp_path, "1 2\n2 3\n", base=1)
    assert rows(graph) == [[0, 1, 0], [0, 0, 1], [0, 0, 0]] and graph.original_ids is None
    for text, options in (("1 2\n2 3\n", {"base": 0}), ("1 2\n2 3\n", {"base": 1}), ("0 1\n", {}),
                          ("2 3\n", {}),
                          ("1 99999\n", {}), ("# hpgcn rmat: vertices 3, edges 1\n1 2\n", {})):
        assert "begin at 1" not in " ".join(graph_of(tmp_path, text, **options)[1])


@pytest.mark.parametrize("text, message", [
    ("1 2\n0 3\n", "line 2: first id is '0', expected 1 or more"),
    ("# hpgcn rmat: vertices 3, edges 1\n1 4\n", r"line 2: second id is '4', expected 1\.\.3"),
])
def test_ids_below_and_above_a_base_of_one(tmp_path, text, message):
    refused(message, put(tmp_path / "g.txt", text), base=1)
    with pytest.raises(UsageError, match="--base 2: expected 0 or 1"):
        graph_of(tmp_path, text, base=2)


def test_rows_of_features_and_labels_that_fit_base_one(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(3))
    for name in ("labels", "features"):
        refused(rf"{name} have shape \(3,\), expected 4 rows; ids begin at 1: use --base 1",
                put(tmp_path / "g.txt", "1 2\n2 3\n"), **{name: tmp_path / "y.npy"})
    graph, _ = graph_of(tmp_path, "1 2\n2 3\n", base=1, labels=tmp_path / "y.npy")
    assert graph.labels.tolist() == [0, 1, 2]
    refused("expected 2 rows; use --num-nodes 3 to add .* or --add-vertices",
            put(tmp_path / "g.txt", "0 1\n"), labels=tmp_path / "y.npy")


def test_header_that_counts_the_distinct_ids(tmp_path):
    graph, notes = graph_of(tmp_path, "# Nodes: 4 Edges: 3\n" + GAPS)
    assert graph.original_ids.tolist() == [0, 1, 5, 7] and graph.header.num_edges == 3
    assert "ids 0..7 relabeled 0..3 in increasing order" in notes
    said = ("the header counts 4 vertices, which is the number of ids in edges: only these ids are "
            "numbered")
    assert said in notes
    for count, said in ((8, False), (3, True), (5, True)):
        graph, notes = graph_of(tmp_path, f"# Nodes: {count} Edges: 3\n" + GAPS)
        assert graph.original_ids is None and graph.header.num_nodes == 8
        line = f"the header counts {count} vertices, but 4 are in an edge: use --num-nodes N for a"
        assert (line in " ".join(notes)) == said
    graph, notes = graph_of(tmp_path, "# Nodes: 2 Edges: 1\n0 1\n")
    assert graph.original_ids is None and not any("header" in note for note in notes)
    graph, notes = graph_of(tmp_path, "# Nodes: 9 Edges: 1\n0 100000\n")
    assert graph.original_ids.tolist() == [0, 100000]
    said = "the header counts 9 vertices, but 2 are in an edge: use --num-nodes 100001 to keep all"
    assert said in " ".join(notes)


@pytest.mark.parametrize("base", [0, 1])
def test_labels_by_id_where_ids_are_relabeled(tmp_path, base):
    lines = [f"{u + base} {v + base}\n" for u, v in ((0, 1), (1, 5), (5, 7))]
    text = "# Nodes: 4 Edges: 3\n" + "".join(lines)
    np.save(tmp_path / "y.npy", np.arange(8))
    np.save(tmp_path / "x.npy", np.arange(4))
    graph, notes = graph_of(tmp_path, text, base=base, labels=tmp_path / "y.npy")
    assert graph.labels.tolist() == [0, 1, 5, 7]
    assert (graph.original_ids - base).tolist() == [0, 1, 5, 7]
    assert f"labels have one row per id {base}..{7 + base}" in " ".join(notes)
    refused(r"4 rows without ids.*--ids FILE, .* \(or give 8 rows, one for each id",
            tmp_path / "g.txt", base=base, labels=tmp_path / "x.npy")


@pytest.mark.parametrize("header", ["# Undirected graph: g.txt", "% undirected network"])
@pytest.mark.parametrize("lines, edges, added", [
    ("0 1\n1 2\n", 4, True), ("0 1\n1 0\n1 2\n2 1\n", 4, False), ("0 1\n1 1\n1 2\n1 0\n", 5, True)])
def test_undirected_lists(tmp_path, header, lines, edges, added):
    graph, notes = graph_of(tmp_path, f"{header}\n{lines}")
    assert not graph.header.directed and graph.header.num_edges == edges
    assert ("edges added to make the adjacency symmetric" in " ".join(notes)) == added
    assert graph_of(tmp_path, "# Directed graph\n0 1\n1 2\n")[0].header.directed


def test_undirected_list_with_weights(tmp_path):
    text = "# Undirected graph\n0 1 2.5\n"
    assert rows(graph_of(tmp_path, text)[0]) == [[0, 2.5], [2.5, 0]]
    refused("is declared undirected, but has a negative weight",
            put(tmp_path / "g.txt", "# Undirected graph\n0 1 -2.5\n"))


@pytest.mark.parametrize("text, expected, said", [
    ("% sym unweighted\n1 2\n2 3\n", [[0, 1, 0], [1, 0, 1], [0, 1, 0]],
     "undirected, each edge listed once; ids begin"),
    ("% asym unweighted\n% 2 3 3\n1 2 \n2 3 \n", [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
     "directed; ids begin at 1"),
    ("% asym positive\n1\t2\t3\t1082040961\n1 2 1 1082040962\n", [[0, 4], [0, 0]],
     "and their weights are summed unless all"),
    ("% sym positive\n1 2 2\n2 1 1\n1 1 5\n", [[5, 3], [3, 0]], "parallel edges are merged"),
    ("% sym signed\n1 2 -1\n2 3 1\n", [[0, -1, 0], [-1, 0, 1], [0, 1, 0]], "undirected"),
    ("% asym dynamic\n1 2 1 5\n1 2 -1 6\n2 1 1 7\n", [[0, 0], [1, 0]], "directed")])
def test_konect(tmp_path, text, expected, said):
    graph, notes = graph_of(tmp_path, text, "out.made-up")
    assert rows(graph) == expected and graph.original_ids is None
    assert graph.header.directed == ("asym" in text)
    konect, = [note for note in notes if "KONECT" in note]
    assert "row u aggregates v" in notes and said in konect


@pytest.mark.parametrize("text, message", [
    ("% bip unweighted\n1 1\n2 0\n", "line 3: second id is '0', expected 1.."),
    ("% sym unweighted\n0 1\n", "line 2: first id is '0', expected 1 or more"),
    ("% sym unweighted\n1 2 3 4 5\n", "line 2: 5 field")])
def test_konect_refused(tmp_path, text, message):
    refused(message, put(tmp_path / "g.txt", text))


def test_konect_from_zero_if_the_user_says_so(tmp_path):
    graph, notes = graph_of(tmp_path, "% sym unweighted\n0 1\n", base=0)
    assert graph.header.num_nodes == 2 and not any("ids begin" in note for note in notes)


def test_ogb_sets_that_list_each_edge_once_are_told(tmp_path):
    raw = tmp_path / "ogbn_products" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "data.npz", edge_index=[[0], [1]], num_nodes_list=[2])
    assert "ogbn_products lists each edge once" in " ".join(read(raw / "data.npz")[1])


def written(tmp_path, suffix, edges, **arrays):
    path = tmp_path / f"g.{suffix}"
    if suffix == "npz":
        np.savez(path, edge_index=edges, **arrays)
    elif suffix == "mat":
        scipy.io.savemat(path, {"edge_index": edges, **arrays})
    else:
        torch = pytest.importorskip("torch")
        Data = pytest.importorskip("torch_geometric.data").Data
        tensors = {key: torch.tensor(array) for key, array in arrays.items()}
        torch.save(Data(edge_index=torch.tensor(edges), **tensors), path)
    return path


@pytest.mark.parametrize("suffix", ["npz", "mat", pytest.param("pt", marks=pytest.mark.long)])
def test_arrays_of_edges_are_numbered_as_text_is(tmp_path, suffix):
    edges = np.array([[1, 2], [2, 3]])
    path = written(tmp_path, suffix, edges)
    graph, notes = read(path)
    assert graph.header.num_nodes == 4
    assert "ids begin at 1, and vertex 0 is in no edge: use --base 1 to drop it" in notes
    graph, notes = read(path, base=1)
    assert rows(graph) == [[0, 0, 0], [1, 0, 0], [0, 1, 0]] and "begin" not in " ".join(notes)
    assert read(path, num_nodes=7)[0].header.num_nodes == 7
    gaps = written(tmp_path, suffix, np.array([[0, 5], [5, 9]]))
    assert "use --compact to drop them" in " ".join(read(gaps)[1])
    assert read(gaps, compact=True)[0].original_ids.tolist() == [0, 5, 9]
    whole = written(tmp_path, suffix, edges, x=np.eye(3))
    refused(r"edge_index row 1: entry 1 is 3, expected 0\.\.2; ids begin at 1: use --base 1", whole)
    assert read(whole, base=1)[0].header.num_nodes == 3
    with pytest.raises(UsageError, match=r"--num-nodes: other arrays of .* give the number"):
        read(whole, num_nodes=7)


def test_edges_in_python_that_begin_at_1_are_told():
    with pytest.warns(DataWarning, match="ids begin at 1, and vertex 0 is in no edge: pass"):
        assert hpgcn.Graph.from_edge_index([[1, 2], [2, 3]]).header.num_nodes == 4
    with pytest.raises(DataError, match=r"expected 0\.\.2; ids begin at 1: pass edge_index - 1"):
        hpgcn.Graph.from_edge_index([[1, 2], [2, 3]], np.ones(2), np.eye(3))
    hpgcn.Graph.from_edge_index([[1, 2], [2, 3]], num_nodes=4)


@pytest.mark.long
def test_edges_of_pyg_that_begin_at_1_are_told():
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.tensor([[1], [2]]))
    with pytest.warns(DataWarning, match="ids begin at 1"):
        assert hpgcn.from_pyg(data).header.num_nodes == 3
    data.num_nodes = 3
    hpgcn.from_pyg(data)


SIZES = [  # content, options, vertices, edges, what the note says; an empty note: an edge
    ("4 3\n0 1\n1 2\n2 3\n", {}, 4, 3, "line 1 (4 3) is read as the numbers of vertices and edges"),
    ("4,3\n1,2\n\n2,3\n# c\n3,4\n", {}, 4, 3, "line 1 (4 3)"),
    ("3 4\n0 1\n1 2\n2 3\n", {}, 4, 3, "line 1 (3 4) is read as the numbers of edges and vertices"),
    ("# c\n4 3\n\n0 1 .5\n1 2 .5\n2 3 1\n", {}, 4, 3, "line 2 (4 3)"),
    ("4 3\n0 1\n1 0\n1 2\n2 1\n2 3\n3 2\n", {}, 4, 6, "line 1 (4 3)"),
    ("9 2\n0 1\n1 2\n", {}, 9, 2, "line 1 (9 2)"),
    ("4 4 3\n1 2\n2 3\n3 4\n", {}, 4, 3, "the numbers of rows, columns and edges"),
    ("4\n3\n0 1\n1 2\n2 3\n", {}, 4, 3, "lines 1 and 2 (4 3) are read as the numbers"),
    ("3\n0 1 0\n1 2 1\n2 0 1\n", {"columns": "u,v,-"}, 3, 3, "line 1 (3) is read as the number of"),
    ("4\n0 1\n1 2\n", {}, 4, 2, "line 1 (4) is read as the number of vertices"),
    ("3 2\nann bob\nbob cem\n", {}, 3, 2, "line 1 (3 2)"),
    ('"4","3"\n"0","1"\n"1","2"\n"2","3"\n', {}, 4, 3, "line 1 (4 3)"),
    ("% c\n4 3\n% d\n0 1\n1 2\n2 3\n", {}, 4, 3, "line 2 (4 3)"),
    ("4 3 1\n0 1 5\n1 2 7\n2 3 9\n", {"columns": "u,v,w"}, 4, 3, "and edges, and a flag"),
    ("4 3\n0 1\n1 2\n2 3\n", {"header": False}, 5, 4, ""),
    ("4 2\n0 1\n1 2\n2 3\n", {}, 5, 4, ""), ("3 3\n0 1\n1 2\n2 3\n", {}, 4, 4, ""),
    ("2 9\n0 1\n1 2\n", {}, 10, 3, ""), ("1 3\n2 3\n", {}, 4, 2, ""),
    ("1 2\n2 1\n", {}, 3, 2, ""), ("0 1\n1 2\n", {}, 3, 2, "")]


@pytest.mark.parametrize("text, options, vertices, edges, said", SIZES)
def test_counts_above_an_edge_list(tmp_path, text, options, vertices, edges, said):
    graph, notes = graph_of(tmp_path, text, **options)
    assert (graph.header.num_nodes, graph.header.num_edges) == (vertices, edges)
    assert (said or "is read as the number") in " ".join(notes) or not said
    assert bool(said) == any("read as the number" in note for note in notes)


@pytest.mark.parametrize("more", [0, 1])
def test_counts_above_a_long_list_must_be_those_of_all_lines(tmp_path, more):
    lines = "".join(f"{k} {k + 1}\n" for k in range(30_000))
    graph, notes = graph_of(tmp_path, f"30001 {30_000 + more}\n{lines}")
    assert graph.header.num_edges == 30_000 + more
    assert any("read as the numbers" in note for note in notes) != more

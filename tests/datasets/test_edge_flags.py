"""Edge lists: headers that may be edges, lines that look like comments, and ids of vertices."""
import gzip
import re

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.cli.parser import parser
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import DataError, UsageError


def edges_of(graph):
    """Return the sorted pairs of original ids of all entries."""
    ids = graph.original_ids
    ends = np.stack(graph.adjacency.nonzero(), 1)
    return sorted(map(tuple, (ends if ids is None else ids[ends]).tolist()))


HEADERS = [  # content, options, edges as (row, column) or the expected message
    ("alice,bob\nbob,carol\n", {}, [("alice", "bob"), ("bob", "carol")]),
    ("alice,bob\ncarol,dave\n", {},
     r"line 1: alice, bob: is this line a header, or an edge between names\?"),
    ("alice,bob\ncarol,dave\n", {"header": False}, [("alice", "bob"), ("carol", "dave")]),
    ("alice,bob\ncarol,dave\n", {"columns": "u,v"},
     "Give --header for a header, or --no-header for an edge$"),
    ("alice,bob\ncarol,dave\n", {"columns": "u,v", "header": True}, [("carol", "dave")]),
    ("alice,bob\ncarol,dave\n", {"header": True}, "which two columns are the ends of an edge"),
    ("alice,bob\nbob,carol\n", {"columns": "source,target"}, [("bob", "alice"), ("carol", "bob")]),
    ("alice\tbob\ncarol\tdave\n", {}, "line 1: alice, bob: is this line a header, or an edge"),
    ("alice bob\n", {}, "line 1: alice, bob: is this line a header"),
    ("alice bob\n", {"header": False}, [("alice", "bob")]),
    ("name,friend\na,b\n", {"columns": "u,v"}, "is this line a header, or an edge between names"),
    ("who,whom,when\na,b,3\n", {"columns": "u,v,-"}, [("a", "b")]),
    ("who,whom,when\na,b,3\nb,c,y\n", {"columns": "u,v,-"},
     "line 1: who, whom, when: is this line"),
    ("alice,bob,\ncarol,dave,\n", {"columns": "u,v,-"},
     "line 1: alice, bob, : is this line a header"),
    ("Lee, A;Bo\nBo;Lee, A\n", {}, [("Bo", "Lee, A"), ("Lee, A", "Bo")]),
    ("An\tBo\t\nBo\tCy\t\n", {}, [("An", "Bo"), ("Bo", "Cy")]),
    ("12\tBo\t\nBo\tCy\t\n", {}, [("12", "Bo"), ("Bo", "Cy")]),
    ("An\tBo\nBo\tCy\t\nCy\tAn\n", {}, [("An", "Bo"), ("Bo", "Cy"), ("Cy", "An")]),
    ("source\ttarget\tname\nAn\tBo\t\nBo\tCy\tx\nCy\tBo\t\n", {},
     [("Bo", "An"), ("Bo", "Cy"), ("Cy", "Bo")]),
    ("source\ttarget\tname\nAn\tBo\t\n\tCy\tx\n", {}, "line 3: id is ''"),
    ('"source" "target"\n"1" "a b" c\n"2" c "d"\n', {}, [("c", "a b"), ("d", "c")]),
    ('"source","target"\n"1",7,8\n"2",8,"9"\n', {}, [(8, 7), (9, 8)]),
    ('"7" 8\n8 "9"\n', {}, [(7, 8), (8, 9)]),
    ("alice,bob,\nbob,carol,\n", {}, [("alice", "bob"), ("bob", "carol")]),
    ("u,v\na,b\nu,v\nb,c\n", {"header": True}, "line 3: repeats the header"),
    ("who,whom\n1,2\n2,3\n", {"columns": "u,v"}, [(1, 2), (2, 3)]),
    ("u v\nv w\nw u\n", {}, "line 1: u, v: is this line a header, or an edge"),
    ("u v\nv w\nw u\n", {"header": False}, [("u", "v"), ("v", "w"), ("w", "u")]),
    ("u v\na b\n", {}, [("a", "b")]),
    ("user1,user2\nuser3,user4\n", {}, "line 1: user1, user2: is this line a header"),
    ("node_a,node_b\nnode_c,node_d\n", {},
     "line 1: node_a, node_b: is this line a header, or an edge"),
    ("node1,node2\nx,y\n", {}, [("x", "y")]),
    ("head\trelation\ttail\na\tknows\tb\n", {}, "in --columns source,-,target$"),
    ("head\trelation\ttail\na\tr\tb\n", {"columns": "source,-,target"}, [("b", "a")]),
    ("s,p,o\ns,knows,b\n", {"columns": "source,-,target"},
     "is this line a header, or an edge between names"),
    ("1 2\n2 3\n", {"header": True, "columns": "u,v"}, [(2, 3)]),
    ("a,knows,b\n", {}, "--no-header --columns source,-,target for an edge"),
    ("a,knows,b\nc,likes,d\n", {}, "--header --columns source,-,target for a header"),
    ("a,knows,b\nb,likes,d\n", {}, r"third column holds text \('b'\)"),
    ("a,knows,b\nb,likes,d\n", {"columns": "source,-,target"}, [("b", "a"), ("d", "b")]),
    ("a\tknows\tb\nb\tlikes\td\n", {"columns": "source,-,target"}, [("b", "a"), ("d", "b")]),
    ("# " + "a long comment\n# " * 400 + "\na b\nb c\n", {}, [("a", "b"), ("b", "c")])]


@pytest.mark.parametrize("content, options, expected", HEADERS)
def test_headers(tmp_path, content, options, expected):
    path = put(tmp_path / "g.txt", content)
    if isinstance(expected, str):
        refused(expected, path, **options)
        return
    graph, notes = read(path, **options)
    weak = content.startswith(("u v\na", "node1"))
    assert ("the first line is read as a header: use --no-header to read an edge" in notes) == weak
    if graph.original_ids is None:
        assert edges_of(graph) == expected
    else:
        assert edges_of(graph) == sorted(expected)


@pytest.mark.parametrize("content, expected, said", [
    ("a b\n#x b\n%y #x\n", [("#x", "b"), ("%y", "#x"), ("a", "b")], "2 lines below the first edge"),
    ("source,target\n#x,#y\n#y,z\n", [("#y", "#x"), ("z", "#y")], "they are read as edges"),
    ("source,target\n#x,#y\n#y,#z\n", [("#y", "#x"), ("#z", "#y")], "2 lines below"),
    ('"#x" "#y"\n"#y" "#z"\n', [("#x", "#y"), ("#y", "#z")], "names"),
    ("#x #y\n# made by hand\na #x\n#x a\n", [("#x", "a"), ("a", "#x")],
     "1 lines above the first edge begin with # or % and are read as comments: quote them"),
    ("a b\nnan b\nb None\n", [("a", "b"), ("b", "None"), ("nan", "b")],
     "nan and None read as a vertex name: if it stands for an empty cell, remove its"),
    ("007 7\n7 08\n", [(7, 7), (7, 8)], "leading zeros are read as numbers: 007 becomes 7"),
    ("0 1\n# 1 2\n%\n1 0\n", [(0, 1), (1, 0)], "2 lines below the first edge begin with # or %: "
                                               "they are skipped as comments")])
def test_lines_that_look_like_comments(tmp_path, content, expected, said):
    graph, notes = read(put(tmp_path / "g.txt", content))
    assert edges_of(graph) == expected and said in "\n".join(notes)


def test_only_lines_that_look_like_comments(tmp_path):
    refused("no edges in 2 lines.*lines above the first edge that begin with # or % are comments, "
            "unless quoted", put(tmp_path / "g.txt", "#x #y\n#y #z\n"))
    refused(r"line 3: 3 field\(s\), expected 2; comments are allowed only above", put(
        tmp_path / "g.txt", "a b\nb c\n# the end\n"))


COUNTS = [  # content, options, number of vertices, original ids, a note
    ("# Nodes: 5 Edges: 2\n0 1\n1 2\n", {}, 5, None, "counts 5 vertices: 2 of them are in no"),
    ("# Nodes: 5 Edges: 2\n1 2\n2 5\n", {}, 5, [1, 2, 3, 4, 5], "counts 5 vertices: 2 of them"),
    ("# Nodes: 5 Edges: 2\n1 2\n2 5\n", {"base": 1}, 5, None, "counts 5 vertices: 2 of them"),
    ("# Nodes: 5 Edges: 2\n1 2\n2 5\n", {"base": 0}, 6, None, "5 vertices, but 3 are in an edge"),
    ("# vertices=5, edges=2\n0 1\n1 2\n", {}, 5, None, "counts 5 vertices: 2 of them are in no"),
    ("# 1,234 nodes: 1,234\n0 1\n", {}, 2, None, ""),
    ("# Nodes: 5 Edges: 2\n0 1\n1 5\n", {}, 6, None, "counts 5 vertices, but 3 are in an"),
    ("# Nodes: 90000 Edges: 1\n3 70000\n", {}, 90000, None, "89998 of them are in no edge"),
    ("# Nodes: 7000 Edges: 1\n3 7000\n", {}, 7000, list(range(1, 7001)), "6998 of them"),
    ("% asym unweighted\n% 1 9 9\n1 2\n", {}, 9, None, "header counts 9 vertices: 7 of them are"),
    ("0 1\n", {"num_nodes": 4}, 4, None, ""), ("1 4\n", {"num_nodes": 4, "base": 1}, 4, None, ""),
    ("# Nodes: 3\n0 1\n", {"num_nodes": 9}, 9, None, ""),
    ("0 5\n", {}, 6, None, "4 ids below the largest are in no edge, and are isolated vertices: "
                           "use --compact to drop them"),
    ("0 5\n", {"compact": True}, 2, [0, 5], "relabeled"),
    ("# hpgcn rmat: vertices 9, edges 1\n0 5\n", {"compact": True}, 2, [0, 5], "relabeled"),
    ("1 5\n", {"compact": True}, 2, [1, 5], "ids 1..5 relabeled"),
    ("1 5\n", {"compact": True, "base": 1}, 2, [1, 5], "ids 1..5 relabeled"),
    ("0 1\n1 2\n", {"compact": True}, 3, None, ""), ("a b\n", {"compact": True, "header": False},
                                                   2, ["a", "b"], "names"),
    ("# Nodes: 9\n0 5\n", {"compact": True}, 2, [0, 5], "header counts 9 vertices, but 2 are in")]


@pytest.mark.parametrize("content, options, n, ids, said", COUNTS)
def test_which_ids_are_vertices(tmp_path, content, options, n, ids, said):
    graph, notes = read(put(tmp_path / "g.txt", content), **options)
    assert graph.header.num_nodes == n and said in "\n".join(notes)
    assert (None if graph.original_ids is None else graph.original_ids.tolist()) == ids
    gaps = "--compact" in said or options == {"base": 0} or (content.endswith("1 5\n") and not ids)
    assert ("--compact" in "\n".join(notes)) == gaps


def test_flags_that_exclude_each_other_or_do_not_fit(tmp_path):
    path = put(tmp_path / "g.txt", "0 1\n1 4\n")
    refused(r"line 2: second id is '4', expected 0\.\.3", path, num_nodes=4)
    for options, message in (({"num_nodes": 0}, "--num-nodes 0: expected a number of vertices"),
                             ({"num_nodes": 9, "compact": True}, "--num-nodes and --compact"),
                             ({"num_nodes": 9, "bipartite": True}, "--num-nodes and --bipartite")):
        with pytest.raises(UsageError, match=message):
            read(path, **options)
    with pytest.raises(UsageError, match=r"--num-nodes 9: the ids of .* are names"):
        read(put(tmp_path / "g.txt", "a b\nb a\n"), num_nodes=9)


BIPARTITE = [  # file, options, original ids, entries above the diagonal
    ("0 0\n2 0\n0 1\n", {}, ["u:0", "u:2", "v:0", "v:1"], {(0, 2): 1, (1, 2): 1, (0, 3): 1}),
    ("userId,movieId,rating\n7,7,2\n5,7,3\n", {"columns": "source,target,w"},
     ["userId:5", "userId:7", "movieId:7"], {(0, 2): 3, (1, 2): 2}),
    ("userId,movieId,rating,timestamp\n7,7,2,0\n5,7,3,0\n", {"weights": "rating"},
     ["userId:5", "userId:7", "movieId:7"], {(0, 2): 3, (1, 2): 2}),
    ("user,date,item\n7,2001,7\n5,2002,7\n", {},
     ["user:5", "user:7", "item:7"], {(0, 2): 1, (1, 2): 1}),
    ("a,a\n3,4\n", {"columns": "u,v"}, ["u:3", "v:4"], {(0, 1): 1}),
    ("# hpgcn rmat: vertices 9, edges 1\n3,4\n", {}, ["u:3", "v:4"], {(0, 1): 1}),
    ("source;target\nbob;x\nann;bob\nbob;bob\n", {},
     ["source:bob", "source:ann", "target:x", "target:bob"],
     {(0, 2): 1, (0, 3): 1, (1, 3): 1}),
    ("% bip weighted\n% 2 2 1\n1 1 2\n2 1 4\n", {"bipartite": False}, ["u:1", "u:2", "v:1"],
     {(0, 2): 2, (1, 2): 4}),
    ("1 1\n1 2\n1 1\n", {"base": 1}, ["u:1", "v:1", "v:2"], {(0, 1): 1, (0, 2): 1}),
    (":START_ID(Person),:END_ID(Film)\n1,1\n", {}, [":START_ID(Person):1", ":END_ID(Film):1"],
     {(0, 1): 1})]


@pytest.mark.parametrize("content, options, ids, entries", BIPARTITE)
def test_bipartite(tmp_path, content, options, ids, entries):
    graph, notes = read(put(tmp_path / "g.csv", content), **{"bipartite": True, **options})
    assert graph.original_ids.tolist() == ids and not graph.header.directed
    A = graph.adjacency.toarray()
    assert {(u, v): A[u, v] for u, v in zip(*np.nonzero(np.triu(A)))} == entries
    np.testing.assert_array_equal(A, A.T)
    assert "two kinds of ids, " in "\n".join(notes)
    assert "ids of the first column are numbered first, then those of the second" in notes


@pytest.mark.parametrize("kind", [int, str])
def test_parquet_takes_the_same_flags(tmp_path, kind):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"user": [kind(9), kind(2)], "item": [kind(2), kind(2)], "stars": [4, 5]}
    parquet.write_table(arrow.table(columns), tmp_path / "g.parquet")
    graph, _ = read(tmp_path / "g.parquet", columns="source,target,w", bipartite=True)
    users = ["user:2", "user:9"] if kind is int else ["user:9", "user:2"]
    assert graph.original_ids.tolist() == [*users, "item:2"]
    named = {"source": [5, 1], "target": [1, 2], "weight": [8, 9], "stars": [4, 5]}
    parquet.write_table(arrow.table(named), tmp_path / "g.parquet")
    graph, _ = read(tmp_path / "g.parquet", weights="stars", compact=True)
    assert graph.original_ids.tolist() == [1, 2, 5]
    assert rows(graph) == [[0, 0, 4], [5, 0, 0], [0, 0, 0]]
    assert read(tmp_path / "g.parquet", weights="stars", num_nodes=9)[0].header.num_nodes == 9
    named["weight"] = [True, False]
    parquet.write_table(arrow.table(named), tmp_path / "b.parquet")
    assert "1 entries of weight 0" in str(read(tmp_path / "b.parquet", weights="weight")[1])
    refused(r"row 0: source is 5, expected 0\.\.4", tmp_path / "g.parquet", weights="stars",
            num_nodes=5)


def test_a_value_of_columns_may_begin_with_a_dash():
    for words in (["--columns", "-,source,target"], ["--columns=-,source,target"]):
        arguments = parser().parse_args(["convert", "g.csv", "g.h5", *words])
        assert arguments.columns == "-,source,target"


OLD_MAC = [  # name, content whose lines end in carriage returns alone
    ("g.txt", "0 1\r1 2\r"), ("g.txt", "# Nodes: 4\r0 1\r"), ("g.csv", "source,target\r0,1\r1,2\r"),
    ("g.txt", "a b\rb c"), ("g.adjlist", "0 1\r1 2\r"), ("g.graph", "3 2\r2\r1 3\r2\r"),
    ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\r2 2 1\r1 2\r"),
    ("g.net", "*Vertices 2\r*Edges\r1 2"),
    ("g.gml", "graph [\rnode [ id 0 ]\rnode [ id 1 ]\redge [ source 0 target 1 ]\r]\r")]


@pytest.mark.parametrize("packed", [False, True])
def test_lines_that_end_in_carriage_returns(tmp_path, packed):
    for name, content in OLD_MAC:
        graphs = []
        for text in (content, content.replace("\r", "\n")):
            text = gzip.compress(text.encode()) if packed else text
            graphs.append(read(put(tmp_path / f"{name}{'.gz' * packed}", text)))
        (one, notes), (other, said) = graphs
        assert rows(one) == rows(other) and notes == said and one.header.num_edges
    np.save(tmp_path / "y.npy", np.array([13, 0, 7]))  # bytes that are not text stay unchanged
    path = put(tmp_path / "g.txt", "0 1\r1 2\r1 x\r")
    refused("line 3: second id is 'x'", path, labels=tmp_path / "y.npy")
    path = put(tmp_path / "g.txt", "0 1\r1 2\r" * 3000)
    convert(path, tmp_path / "g.h5", memory=200_000)
    assert read(put(path, "0 1\r1 2\r"), labels=tmp_path / "y.npy")[0].labels.tolist() == [13, 0, 7]


ADJACENCY_LISTS = [  # content, edges of original ids, a note
    ("# c\n0 1 2\n1 2\n2\n", [(0, 1), (0, 2), (1, 2)], "edges read in both directions"),
    ("x #a b#c\n#a y\n", [("x", "#a"), ("x", "b#c"), ("#a", "y")], "1 lines below .* as vertices"),
    ("#a b\nx #a\n", [("x", "#a")], "1 lines above the first edge"),
    ("0 1\n# 1 2\n1 0\n", [(0, 1)], "1 lines below the first edge .* skipped as comments"),
    ("0 2 1 2\n1 1 0\n2 1 0\n", [(0, 1), (0, 2)], "the second number of each line is its number"),
    ("3\n0 2 1 2\n1 1 0\n2 1 0\n", [(0, 1), (0, 2)], "is its number of neighbors"),
    ("7 0\n9 1 7\n8 2 7 9\n", [(7, 9), (7, 8), (8, 9)], "is its number of neighbors"),
    ("0 1 5\n", [(0, 1), (0, 5)], "both directions"), ("1 1\n", [(1, 1)], "both directions"),
    ("a 1 b\nb 1 a\n", [("a", "b")], "is its number of neighbors"),
    ("0 1 2\n1 0\n2 0\n", [(0, 1), (0, 2)], "both directions$"),
    ("3\n0 1 2\n1 0\n2 0\n", [(0, 1), (0, 2)], "the first line is the number of vertices"),
    ("0,1,2\n1,0\n2\n", [(0, 1), (0, 2)], "',' divides the words of a line"),
    ("0; 1; 2\n1; 0\n", [(0, 1), (0, 2)], "';' divides the words of a line"),
    ("0: 1 2\n1: 0\n2:\n", [(0, 1), (0, 2)], "a colon follows the vertex of each line"),
    ("0:1,2\n1:0\n", [(0, 1), (0, 2)], "a colon follows"),
    ("0 1,2\n1 0\n2\n", [(0, 1), (0, 2)], "',' divides the neighbors of a line"),
    ("An : Bo, Cy\nBo : An\n", [("An", "Bo"), ("An", "Cy")], "a colon follows")]


@pytest.mark.parametrize("content, edges, said", ADJACENCY_LISTS)
def test_adjacency_lists(tmp_path, content, edges, said):
    graph, notes = read(put(tmp_path / "g.adjlist", content))
    assert re.search(said, "\n".join(notes))
    assert edges_of(graph) == sorted({*edges, *(edge[::-1] for edge in edges)})


OTHER_FORMS = [  # content that is no adjacency list, and the message
    ("2 1 2\n1 0\n2 0 1\n", r"begins with the number of words after it.*awk '\{for \(k = 2"),
    ("3 1 2 4\n2 0 5\n1 7\n4 0 1 2 3\n", "begins with the number of words after it"),
    ("0 1 1 0\n1 0 0 0\n1 0 0 1\n0 0 1 0\n", r"4 columns of numbers: for a matrix \(n, n\)"),
    ("0 1 0\n1 1 0\n", "3 columns of numbers"), ("0,1,0\n1,1,0\n", "3 columns of numbers"),
    ("0 .5 2\n.5 0 0\n0 0 1\n", "3 columns of numbers"), ("0 1 .5\n1 2\n", r"\.5 is no id"),
    ("0 1 -1\n1 -1\n", "-1 is no id of a vertex"), ("0 -> 1\n1 -> 2\n", "'->' is no id of a "),
    ("0 [1, 2]\n1 [0]\n", r"'\[1' is no id"), ("Lee, A Bo\nBo, A\n", "',' divides some words"),
    ("The quick brown fox jumps\nover the lazy dog. It ran\n", "2 of 11 names begin a line: is "),
    ("*Node data\nID\na\n", "is VNA"), ("# a\nb 1\nc 2\n# b\nc 1\n", "is LGL"),
    ("nodedef>name VARCHAR\na\n", "is GDF"), ("*Other\na b\n", r"'\*Other' begins a section"),
    ("source,target\n0,1\n1,2\n", "'source target', looks like a header"),
    ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", "a MatrixMarket file"),
    ("3 3\n1 2\n0 2\n0 1\n", "counts vertices and edges.*METIS")]


@pytest.mark.parametrize("content, message", OTHER_FORMS)
def test_other_forms_are_no_adjacency_lists(tmp_path, content, message):
    path = put(tmp_path / "g.txt", content)
    refused(message, path, "adjlist")
    try:
        read(path)
    except DataError as error:
        assert "--format adjlist" not in str(error)


def test_flags_are_advised_only_for_files_that_they_read(tmp_path):
    path = put(tmp_path / "g.csv", "name1,name2,weight\na,b,.5\nb,c,2\n")
    assert read(path)[0].data.tolist() == [0.5, 2]
    for text, said in (("who,whom,weight\na,b,.5\nb,c,2\n", "as in --columns source,target,w$"),
                       ("when,who,whom\n.5,a,b\n", "--columns=-,source,target .w: weights, -: s"),
                       ("lat,lon,speed\n1.5,2.5,3\n", "ends of an edge. No two of them have ids$"),
                       ("1.5 2.5 3.5 4\n1 2 3 4\n", "4 columns without a header$"),
                       ("0: 1 2\n1: 0\n", "colon follows the first word of each line: use --for")):
        refused(said, put(tmp_path / "g.txt", text))
    numbers = " ".join(f"{k / 7:.25f}" for k in range(600))
    refused(r"600 columns of numbers: for a matrix \(n, n\), A = .*graph\.npz$",
            put(tmp_path / "g.txt", f"{numbers}\n" * 600))


def test_adjacency_lists_of_other_names(tmp_path):
    path = put(tmp_path / "g.txt", "0 2 1 2\n1 1 0\n2 0\n3 3 0 1 2\n")
    refused("line 1: lines of 4 and of other numbers of fields: use --format adjlist", path)
    assert read(path, "adjlist")[0].header.num_edges == 10
    path = put(tmp_path / "g.txt", "0 2 1 2\n1 2 0 2\n2 2 0 1\n")
    refused(r"line 1: 4 columns without a header: .* \(w.*\); use --format adjlist for", path)
    assert read(path, "adjlist")[0].header.num_edges == 6


@pytest.mark.parametrize("ids", ["0 1 2", "a b c"])
def test_adjacency_lists_of_two_kinds(tmp_path, ids):
    a, b, c = ids.split()
    path = put(tmp_path / "train.txt", f"{a} {a} {b} {c}\n{b} {c}\n{c}\n")
    graph, notes = read(path, "adjlist", bipartite=True)
    ends = [(f"u:{u}", f"v:{v}") for u, v in ((a, a), (a, b), (a, c), (b, c))]
    assert edges_of(graph) == sorted([*ends, *(end[::-1] for end in ends)])
    assert "two kinds of ids, u:ID and v:ID: edges are read in both directions" in notes
    assert read(path, "adjlist")[0].header.num_nodes == 3


def test_edges_of_weight_0_are_counted(tmp_path):
    path = put(tmp_path / "g.csv", "u,v,w\n0,1,0\n1,0,2\n1,2,0\n")
    for options in ({}, {"unweighted": True}):
        for memory in (None, 1 << 20):
            notes = convert(path, tmp_path / "g.h5", overwrite=True, memory=memory, **options)
            assert "2 entries of weight 0 dropped (as float32), also" in "\n".join(notes)
    assert read(path, columns="u,v,-")[0].header.num_edges == 3


def test_header_in_a_file_of_its_own(tmp_path):
    path = put(tmp_path / "acted.csv", "1,KNOWS,2,5\n2,KNOWS,0,7\n")
    refused("line 1: 4 columns without a header", path)
    put(tmp_path / "acted-header.csv", ":START_ID,:TYPE,:END_ID,weight:int\n")
    graph, notes = read(path)
    assert rows(graph) == [[0, 0, 7], [0, 0, 0], [0, 5, 0]] and "row target aggregates sou" in str(
        notes)
    assert "the header is read from acted-header.csv" in notes
    assert read(path, columns="u,-,v,-")[0].adjacency[1, 2] == 1
    names = put(tmp_path / "acted.csv", "a,KNOWS,b,5\nc,KNOWS,d,7\n")
    assert read(names)[0].original_ids.tolist() == ["a", "b", "c", "d"]
    put(tmp_path / "acted_header.csv", "0,1\n")
    put(tmp_path / "acted-header.csv", "source,target\n")
    refused(r"4 field\(s\), but acted-header.csv in the same folder names 2: use --no-header", path)


def test_no_header_that_tables_need_leaves_a_header_above_integers(tmp_path):
    path = put(tmp_path / "g.csv", "source,target\n0,1\n1,2\n")
    assert read(path, header=False)[0].header.num_edges == 2
    _, notes = read(put(path, "source,target\na,b\n"), header=False)
    assert "source, target is read as an edge because of --no-header" in notes

"""Columns of edge lists, chosen by name, by --columns or by position, give the same matrix."""
import gzip

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import read
from hpgcn.datasets.edges import columns
from hpgcn.datasets.raw_graph import ROW_FIRST, TARGET_FIRST
from hpgcn.datasets.text.parse import PASSED, U, V, W
from hpgcn.errors import DataError, UsageError

ROLES = {"u": U, "v": V, "w": W, "-": PASSED}
EDGES = [(0, 1, 1.0), (0, 2, 2.5), (3, 1, 4.0), (2, 2, 0.5)]  # source, target, weight
TARGET_ROWS = [[0, 0, 0, 0], [1, 0, 0, 4], [2.5, 0, 0.5, 0], [0, 0, 0, 0]]


TARGET_NAMES = {
    "source,target": "uv", "target,source": "vu", "id,source,target": "-uv",
    "Source,Target,Type,Id,Label,timeset,Weight": "uv----w", ",from,to,value": "-uvw",
    "Unnamed: 0,src,dst,edge_weight": "-uvw", "w,dst_id,src_id": "wvu",
    "source_node,target_node,timestamp": "uv-", "FromNodeId,ToNodeId": "uv",
    ":START_ID,:END_ID,:TYPE": "uv-",
    ":TYPE,weight:double,:END_ID(P),id:START_ID(P)": "-wvu",
    "sender,receiver,created_at,capacity": "uv-w"}
ROW_NAMES = {"u,v,w": "uvw", "V,U": "vu", "id_1,id_2": "uv", "txId1,txId2": "uv",
             "node1,node2,date": "uv-", "row,col,val": "uvw", "i,j": "uv"}


@pytest.mark.parametrize("header, roles, reads", [
    *((*each, TARGET_FIRST) for each in TARGET_NAMES.items()),
    *((*each, ROW_FIRST) for each in ROW_NAMES.items())])
def test_names(header, roles, reads):
    found = columns.from_header(header.split(","), "g.csv: line 1")
    assert found.roles == tuple(ROLES[role] for role in roles) and found.reads == reads
    assert bool(found.notes) == (header not in ("source,target", "target,source", "V,U"))


@pytest.mark.parametrize("header, message", [
    ("id,target", "labels of vertices, not edges: give the edges as the source"),
    ("node,class", "labels of vertices"), ("label,node_id", "labels of vertices"),
    ("name,size",
     "which two columns are the ends of an edge\\? Name each column, as in --columns source,targ"),
    ("a,b", "--columns source,target$"), ("head,relation,tail", "--columns source,-,target$"),
    ("Subject,Object,Predicate", "--columns source,target,-$"),
    ("r,h,t", "--columns=-,source,target$"), ("id,head,tail,rel", "--columns=-,source,target,-$"),
    ("from,relation,to", "relation is not a known name: use --columns source,-,target to skip"),
    ("userId,movieId,rating,timestamp",
     "Use --bipartite for ids of two kinds. Name each .* --columns source,target,-,-$"),
    ("graph_id,source,target", "graph_id numbers several graphs, .*keep only the rows "
     "of one graph; if .* one graph, use --columns=-,source,target to skip the column$"),
    ("u,v,component", "component numbers several graphs"),
    (":START_ID(Person),:TYPE,:END_ID(Movie)",
     "ids of two kinds: --bipartite numbers them separately"),
    ("x", "which two columns are the ends"),
    (",".join(f"f{k}" for k in range(2000)), r"--columns source,target(,-){14},\.\.\.$"),
    ("source,src,target",
     "source and src mean the same: name only one, as in --columns source,-,target"),
    ("source,target,start,end",
     "source and start mean the same: name only one, as in --columns source,target,-,-"),
    ("u,v,weight,value", "weight and value mean the same: name only one, as in --columns u,v,w,-"),
    ("u,v,source,target", "which two columns are the ends"),
    ("source,target,rating",
     "rating is not a known name: use --columns source,target,- to skip the column, "
     "--columns source,target,w or "),
    ("source,target,w,rating",
     "rating is not a known name: use --columns source,target,w,- to skip the column; --edge"),
    ("source,target,row", "row is not a known name"),
    ("source\x1b[2J,target,x\ny", "columns source\\?\\[2J, target, x\\?y: ")])
def test_unclear_names(header, message):
    with pytest.raises(DataError, match=message) as error:
        columns.from_header(header.split(","), "g.csv: line 1")
    line = str(error.value)
    assert line.isprintable() and len(line) < 400 and line.startswith("g.csv: line 1: columns ")


def write_all(folder):
    """Write one graph in every format with named columns; yield files and options."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    source, target, weight = (np.array(each) for each in zip(*EDGES))
    lines = [f"{u},{v},{w}" for u, v, w in EDGES]
    quoted = ["source,target,weight", *lines[:2], lines[2] + "e0", lines[3]]
    text = {
        "a.csv": ["source,target,weight", *lines],
        "b.csv": ["weight;Target;Source", *(";".join(line.split(",")[::-1]) for line in lines)],
        "c.csv": ["id,source,target,weight", *(f"{9 - k},{line}" for k, line in enumerate(lines))],
        "d.csv": ['"name","source","target","weight"', *(f'"a, ""b"" c",{line}' for line in lines)],
        "e.tsv": [line.replace(",", "\t") + "\r" for line in (
            "label,source,target,weight", *(f"x y,{line}" for line in lines[1:]), f",{lines[0]}")],
        "f.txt": ["# source target weight", *(line.replace(",", " ") for line in lines)],
        "fq.csv": [",".join(f'"{word}"' for word in line.split(",")) for line in quoted],
        "g.csv.gz": ["src,dst,w", *lines], "h.csv": lines,
        "i.csv": ["size,where,whence,x", *(f"{w},{v},{u},?" for u, v, w in EDGES)]}
    options = {"h.csv": {"columns": "source,target,weight"}, "i.csv": {"columns": "w,u,v,-"}}
    for name, each in text.items():
        content = "\n".join(each).encode()
        put(folder / name, gzip.compress(content) if name.endswith("gz") else content)
        yield folder / name, options.get(name, {})
    columns = {"id": [4, 5, 6, 7], "weight": weight, "target": target, "source": source}
    parquet.write_table(arrow.table({**columns, "note on it": list("abcd")}), folder / "j.parquet")
    yield folder / "j.parquet", {}


def test_same_matrix_in_every_format(tmp_path):
    for path, options in write_all(tmp_path):
        graph, notes = read(path, **options)
        assert rows(graph) == TARGET_ROWS, path
        named_by_flag = options.get("columns") == "w,u,v,-"
        assert ("row u aggregates v" if named_by_flag else "row target aggregates source") in notes
        swapped, notes = read(path, reverse=True, **options)
        assert swapped.adjacency.toarray().T.tolist() == TARGET_ROWS
        assert ("row v aggregates u" if named_by_flag else "row source aggregates target") in notes
    graph, notes = read(put(tmp_path / "bare.txt", "\n".join(f"{u} {v} {w}" for u, v, w in EDGES)))
    assert graph.adjacency.toarray().T.tolist() == TARGET_ROWS and "row u aggregates v" in notes
    assert "the third column is read as weights; use --columns u,v,- to skip it" in " ".join(notes)


def test_same_pattern_from_npz_and_ogb(tmp_path):
    pattern = (np.array(TARGET_ROWS) != 0).astype(float).tolist()
    index = np.array([each[:2] for each in EDGES]).T
    raw = tmp_path / "set" / "raw"
    raw.mkdir(parents=True)
    np.savez(tmp_path / "g.npz", edge_index=index)
    for name, text in (("edge", "".join(f"{u},{v}\n" for u, v, _ in EDGES)),
                       ("num-node-list", "4\n")):
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    np.savez(raw / "data.npz", edge_index=index, num_nodes_list=[4])
    for path in (tmp_path / "g.npz", raw / "edge.csv.gz", raw / "data.npz"):
        graph, notes = read(path)
        assert rows(graph) == pattern, path
        assert "row target aggregates source" in notes


def test_a_column_that_says_undirected_is_heard(tmp_path):
    graph, notes = read(put(tmp_path / "g.csv", "Source,Target,Type,Id\n0,1,Undirected,7\n"))
    said, = [note for note in notes if "declared undirected" in note]
    assert graph.header.directed and "--symmetrize" in said


def test_header_of_snap_keeps_the_meaning_of_a_bare_list(tmp_path):
    graph, notes = read(put(tmp_path / "g.txt", "# FromNodeId\tToNodeId\n0\t1\n"))
    assert rows(graph) == [[0, 1], [0, 0]]
    assert {"row u aggregates v", "columns: FromNodeId is u, ToNodeId is v"} <= set(notes)
    graph, notes = read(put(tmp_path / "g.txt", "# FromNodeId ToNodeId Timestamp\n0 1 7\n"))
    assert graph.header.all_ones
    assert "columns: FromNodeId is u, ToNodeId is v; not read: Timestamp" in notes
    path = put(tmp_path / "g.txt", "# FromNodeId ToNodeId Sign\n0 1 -1\n")
    refused(r"line 2: comment above it: columns .*Sign is not a known name: use --columns s", path)
    refused("labels of vertices", put(tmp_path / "g.txt", "# node label\n0 1\n"))


NO_WEIGHTS = [  # a third column without a name, and the expected message
    ([1082040961.5, 1082155839.25], r"looks like times \(1082040961\.5\.\..*: use --columns u,v,-"),
    ([20040415, 20040416], r"holds whole numbers \(20040415\.\.20040416\), which may be weights, "),
    ([1, 0, 1], r"holds whole numbers \(0\.\.1\)"), ([-1, 1], "holds whole"),
    ([2, 2], "holds whole"), (["3.0", "1e0"], "holds whole"), ([0, 0], "holds whole"),
    ([1082040961, 5], "holds whole"),
    (["likes", "hates"], r"holds text \('likes'\): use --columns source,-,target to read"),
    (["True", "False"], "holds text"), (["00260881", "00260622"], r"holds text \('00260881'\)")]


@pytest.mark.parametrize("ends", ["0 1", "alice bob", "00260881 _hypernym", "alice 5", "5 alice"])
def test_third_columns_that_are_no_weights(tmp_path, ends):
    u, v = ends.split()
    for third, said in NO_WEIGHTS:
        lines = [f"{a} {b} {number}\n" for number in third for a, b in ((u, v), (v, u))]
        path = put(tmp_path / "g.txt", "".join(lines))
        line = refused(rf"no header, and the third column {said}", path)
        whole = not any(isinstance(number, float) and number % 1 for number in third)
        assert ("--columns source,-,target to read triples" in line) == whole
        assert "--columns u,v,- to skip it" in line
        assert ("--columns u,v,w to read it as weights" in line) == ("text" not in said)
        assert read(path, columns="u,v,-")[0].header.num_edges == 2
        if third[0] == "likes":
            names = read(path, columns="source,-,target")[0].original_ids
            assert set(names) == {u, v, *third}
        if "text" not in said:
            read(path, columns="u,v,w")


@pytest.mark.parametrize("third", [[1] * 9, ["1.0"] * 9, [0.5, 1, 2], [1, 1999.25]])
def test_third_columns_that_are_weights(tmp_path, third):
    lines = [f"{k % 7} {k % 5} {number}\n" for k, number in enumerate(third)]
    graph, notes = read(put(tmp_path / "g.txt", "".join(lines)))
    assert graph.header.all_ones == (len(third) == 9)
    assert "the third column is read as weights; use --columns u,v,- to skip it" in " ".join(notes)


def test_weights_by_name(tmp_path):
    for name, text in (("g.csv", "Source,Target,Trust Score,weight\n0,1,3,9\n1,0,2,9\n"),
                       ("g.txt", "# source target TrustScore w\n0 1 3 9\n1 0 2 9\n")):
        path = put(tmp_path / name, text)
        graph, notes = read(path, weights="trust_score")
        assert rows(graph) == [[0, 2], [3, 0]] and "is weight; not read: w" in " ".join(notes)
        refused("expected one column called rating", path, weights="rating")
    with pytest.raises(UsageError, match="--columns and --weights: expected only one of them"):
        read(path, weights="TrustScore", columns="u,v,w,-")
    with pytest.raises(UsageError, match="line 1 has no header with column names: use"):
        read(put(tmp_path / "g.txt", "0 1 3\n"), weights="w")


@pytest.mark.parametrize("flag", [
    "", "u", "u,u", "u,w", "source,v", "u,v,w,weight", "u,v,foo", "id,label", "1,2", "u;v"])
def test_flag_that_says_too_little(tmp_path, flag):
    put(tmp_path / "g.txt", "0 1\n")
    with pytest.raises(UsageError, match=r"--columns .*: expected a word for each column"):
        read(tmp_path / "g.txt", columns=flag)


def test_flag_against_the_file(tmp_path):
    path = put(tmp_path / "g.csv", "x,y,z\n0,1,2\n")
    refused(r"g\.csv: line 1: 3 column\(s\), but --columns u,v names 2", path, columns="u,v")
    assert "columns: x is u, y is v; not read: z" in read(path, columns="u,v,-")[1]
    for options, flag in (({"columns": "u,v"}, "--columns"), ({"base": 1}, "--base"),
                          ({"bipartite": True}, "--bipartite"), ({"compact": True}, "--compact")):
        with pytest.raises(UsageError, match=rf"^{flag}: only for edges in .*, not for karate"):
            read("karate", **options)
    np.savez(tmp_path / "g.npz", edge_index=[[0], [1]])
    with pytest.raises(UsageError, match=r"--bipartite: only for edges in .*, not for npz"):
        read(tmp_path / "g.npz", bipartite=True)


@pytest.mark.parametrize("content, message", [
    (b"id,source,target\n7,0\n", r"line 2: 2 field\(s\), expected 3"),
    (b"source,id,target\n0,,x\n0,,1\n", r"line 2: second id is 'x'"),
    (b"source,id,target\n0,\"1,2\n", r"line 2: 2 field\(s\), expected 3"),
    (b"source,target,label\n0,1,a,b\n", r"line 2: more than 3 fields"),
    (b'source,target\n"0,1\n', r"line 2: first id is '\"0'"),
    (b'source,target\n"0"1,1\n1,2\n', r"line 2: first id is '\"0\"1'"),
    (b'source,target\n"0 ",1\n', r"line 2: first id is '\"0'"),
    (b"weight,source,target\nnan,0,1\n", r"line 2: weight is 'nan'"),
    (b"weight,source,target\n1,0,-1\n", r"line 2: second id is '-1'")])
def test_lines_under_a_header(tmp_path, content, message):
    refused(message, put(tmp_path / "g.csv", content))

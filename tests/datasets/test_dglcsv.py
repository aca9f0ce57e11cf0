"""Folders of DGL's CSVDataset with one graph, compared with Python's csv module."""
import csv

import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import read

META = ("dataset_name: mini\nedge_data:\n- file_name: edges.csv\n"
        "node_data:\n- file_name: nodes.csv\n")
NODES = ("node_id,label,train_mask,val_mask,test_mask,feat,age\n"
         '7,1,True,False,False,"0.5,1,-2",30\n3,0,False,True,False,"1,0,0",31\n'
         '5,1,False,False,True,"0,0,1e3",32\n')
EDGES = 'src_id,dst_id,label,feat\n7,3,1,"1,2"\n3,5,0,"3,4"\n5,5,0,"5,6"\n'
FULL = """---
# about
dataset_name: 'mini'
version: 1.0.0
separator: ';'   # of fields
node_data:
  - ntype: paper
    file_name: "nodes.csv"
edge_data:
  - etype: [paper, cites, paper]
    file_name: edges.csv
"""


def write_set(folder, meta=META, nodes=NODES, edges=EDGES):
    put(folder / "nodes.csv", nodes)
    put(folder / "edges.csv", edges)
    return put(folder / "meta.yaml", meta)


def by_hand(nodes, edges, separator=","):
    rows = sorted(csv.DictReader(nodes.splitlines(), delimiter=separator),
                  key=lambda row: int(row["node_id"]))
    place = {row["node_id"]: k for k, row in enumerate(rows)}
    A = np.zeros((len(rows), len(rows)))
    for row in csv.DictReader(edges.splitlines(), delimiter=separator):
        A[place[row["dst_id"]], place[row["src_id"]]] = float(row.get("Weight", 1))
    return A, rows


@pytest.mark.parametrize("given", ["", "meta.yaml", "nodes.csv", "edges.csv"])
@pytest.mark.parametrize("separator, meta, weighted", [(",", META, False), (",", META, True),
                                                       (";", FULL, False)])
def test_one_graph(tmp_path, given, separator, meta, weighted):
    edges = EDGES.replace("label", "Weight") if weighted else EDGES
    nodes = NODES
    if separator == ";":
        nodes = nodes.replace(",", ";").replace("0.5;1;-2", "0.5,1,-2").replace(
            "1;0;0", "1,0,0").replace("0;0;1e3", "0,0,1e3")
        edges = edges.replace(",", ";")
    write_set(tmp_path, meta, nodes, edges)
    graph, notes = read(tmp_path / given)
    A, rows = by_hand(nodes, edges, separator)
    assert graph.adjacency.toarray().tolist() == A.tolist()
    assert graph.original_ids.tolist() == [3, 5, 7]
    assert graph.labels.tolist() == [int(row["label"]) for row in rows]
    X = [list(map(float, row["feat"].split(","))) for row in rows]
    assert graph.features.tolist() == X
    for key, mask in graph.masks.items():
        assert mask.tolist() == [row[f"{key}_mask"] == "True" for row in rows]
    assert {"row target aggregates source", "columns of nodes.csv are not read: age"} <= {*notes}
    unread = "feat" if weighted else "label, feat"
    assert f"columns of edges.csv are not read: {unread}" in notes


def test_names_multi_label_and_asked_weights(tmp_path):
    nodes = 'node_id,label\nb,"1,0"\na,"1,1"\n'
    edges = "src_id,dst_id,year,graph_id\nb,a,1999,0\n"
    graph, notes = read(write_set(tmp_path, nodes=nodes, edges=edges), weights="year")
    assert graph.original_ids.tolist() == ["b", "a"]
    assert graph.labels.tolist() == [[1, 0], [1, 1]] and graph.features is None
    assert graph.adjacency.toarray().tolist() == [[0, 0], [1999, 0]]
    assert "weights read from year (--unweighted sets them to 1)" in notes


def test_other_folders_with_a_meta_yaml(tmp_path):
    put(tmp_path / "meta.yaml", "package:\n  name: x\n")
    assert read(put(tmp_path / "edges.csv", "0,1\n"))[0].header.num_edges == 1
    write_set(tmp_path)
    assert read(put(tmp_path / "other.csv", "0,1\n"))[0].header.num_edges == 1


TWO = "- file_name: edges.csv\n- file_name: more.csv\n"


@pytest.mark.parametrize("changes, message", [
    ({"meta": META.replace("- file_name: edges.csv\n", TWO)},
     r"2 tables in edge_data, expected one type .*hpgcn\.from_dgl.*to_homogeneous"),
    ({"meta": "edge_data:\n- file_name: edges.csv\n"}, "no list node_data"),
    ({"meta": META.replace("edges.csv", "../edges.csv")}, "edge_data lacks file_name"),
    ({"meta": META + "x: 1\n"}, "meta.yaml: line 6: 'x: 1', expected `key: value` of dataset_name"),
    ({"meta": META + "version: &a 1\n"}, "meta.yaml: line 6"),
    ({"meta": META + "version: [a\n"}, "meta.yaml: line 6"),
    ({"meta": META + "separator: ab\n"}, "separator is 'ab', expected one character"),
    ({"meta": META.replace("- file_name: edges.csv", "- file_name: edges.csv\n  etype:\n  - a")},
     "meta.yaml: line 4: 'etype:'"),
    ({"meta": META + "#" * (1 << 16)}, "more than 65536 bytes"),
    ({"nodes": "id,label\n1,2\n"}, "nodes.csv: line 1: columns id, label, expected node_id"),
    ({"nodes": "node_id\n1\n1\n"}, "nodes.csv: id '1' occurs twice"),
    ({"nodes": "node_id,x\n1\n"}, r"nodes.csv: line 2: 1 field\(s\), expected 2"),
    ({"nodes": "node_id,x,x\n1,2,3\n"}, "expected distinct names"),
    ({"nodes": 'node_id,feat\n1,"1,2"\n2,"1"\n'}, "nodes.csv: feat: line 3: 1 numbers, expected 2"),
    ({"nodes": 'node_id,feat\n1,"1,x"\n'}, "nodes.csv: feat: line 2: could not convert"),
    ({"nodes": NODES.replace("True", "yes")}, "train_mask: line 2: 'yes', expected True or False"),
    ({"nodes": "graph_id,node_id\n0,1\n1,1\n"}, r"nodes.csv: 2 graphs \(graph_id\), expected one"),
    ({"nodes": b"node_id\n\xff\n"}, "nodes.csv: broken CSV"),
    ({"edges": "src_id,dst_id\n7,9\n"}, "edges.csv: dst_id: line 2: '9' is not a node_id of nodes"),
    ({"edges": "src,dst\n7,3\n"}, "edges.csv: line 1: columns src, dst, expected src_id"),
    ({"edges": "src_id,dst_id,weight\n7,3,nan\n"}, "weight at 0 is nan"),
    ({"edges": 'src_id,dst_id,weight\n7,3,"1,2"\n'}, r"weight: shape \(1, 2\), expected one"),
    ({"edges": "src_id,dst_id,w,value\n7,3,1,2\n"}, "w, value all look like edge weights")])
def test_refused(tmp_path, changes, message):
    refused(message, write_set(tmp_path, **changes))


def test_missing_tables_are_named_at_once_and_memory_is_asked_for(tmp_path):
    path = write_set(tmp_path)
    refused("needs .* bytes of memory", path, memory=500)
    (tmp_path / "nodes.csv").unlink()
    (tmp_path / "edges.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"edges\.csv, .*nodes\.csv: No such file"):
        read(path)

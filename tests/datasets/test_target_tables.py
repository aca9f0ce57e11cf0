"""Targets in tables and arrays: by column names, with missing cells, ids and splits."""
import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import convert, read
from hpgcn.errors import COMMAND_LINE, UsageError
from hpgcn.store import load

EDGES = "source,target\n0,1\n1,2\n2,3\n3,4\n"
NODES = """id,age,price,rate,note
4,1.5,40,NA,e
0,2.5,,0.5,a
1,3.5,10.25,0.25,b
3,4.5,30,,d
"""


@pytest.fixture
def graph(tmp_path):
    return put(tmp_path / "g.csv", EDGES)


@pytest.fixture
def nodes(tmp_path):
    return put(tmp_path / "nodes.csv", NODES)


def misused(message, source, **options):
    """Expect a UsageError in one line."""
    with pytest.raises(UsageError, match=message):
        read(source, **options)


def columns(found):
    return [[None if np.isnan(value) else value for value in column] for column in found.targets.T]


def test_columns_of_a_table(graph, nodes):
    found, notes = read(graph, targets=f"{nodes}:price,rate")
    assert columns(found) == [[None, 10.25, None, 30, 40], [0.5, 0.25, None, None, None]]
    assert found.target_names == ("price", "rate") and found.labels is None
    assert any("4 rows of targets matched by column id, 1 vertex without a target" in note
               for note in notes)
    assert read(graph, targets=f"{nodes}:r*")[0].target_names == ("rate",)


def test_names_are_columns_of_the_table_of_features(tmp_path, graph):
    whole = put(tmp_path / "nodes.csv", NODES.replace("3,4.5", "2,9.5,7,8,c\n3,4.5"))
    found, notes = read(graph, features=whole, targets="price,rate", feature_columns=("age",))
    assert found.target_names == ("price", "rate") and found.feature_names == ("age",)
    assert found.features.ravel().tolist() == [2.5, 3.5, 9.5, 4.5, 1.5]
    assert any("targets: price, rate" in note for note in notes)
    numbers = "id,a,b,y\n0,1,2,.5\n1,3,4,\n2,5,6,1.5\n3,7,8,2\n4,9,1,3\n"
    numbers = put(tmp_path / "numbers.csv", numbers)
    found, _ = read(graph, features=numbers, targets="y")
    assert found.feature_names == ("a", "b") and columns(found) == [[0.5, None, 1.5, 2, 3]]


def test_files_of_targets_alone(tmp_path, graph):
    table = put(tmp_path / "y.csv", "id,y\n0,1.5\n1,2.5\n2,\n3,4.5\n4,5.5\n")
    found, _ = read(graph, targets=table)
    assert columns(found) == [[1.5, 2.5, None, 4.5, 5.5]] and found.target_names == ("y",)
    np.save(tmp_path / "y.npy", np.arange(10.0).reshape(5, 2))
    found, _ = read(graph, targets=tmp_path / "y.npy")
    assert found.targets.tolist() == np.arange(10.0).reshape(5, 2).tolist()
    assert found.target_names is None


def test_arrays_of_npz(tmp_path):
    y, z = np.array([0.5, np.nan, 2]), np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "g.npz", edge_index=[[0, 1], [1, 2]], x=np.eye(3), y=y, z=z,
             labels=[0, 1, 0])
    found, notes = read(tmp_path / "g.npz", targets="y")
    assert columns(found) == [[0.5, None, 2]] and found.target_names == ("y",)
    assert found.labels is None and "targets: y" in notes
    assert "labels of the source are left out, because targets are given" in notes
    found, _ = read(tmp_path / "g.npz", targets="y,z")
    assert found.header.num_targets == 3 and found.target_names is None
    misused("--targets q: no such file, and no arrays of .*; expected FILE, FILE:COLUMN,... or "
            "names of columns in the table of --features", tmp_path / "g.npz", targets="q")


def test_splits_are_of_vertices_with_a_target(tmp_path, graph, nodes):
    found, _ = read(graph, targets=f"{nodes}:price,rate", split="all")
    assert found.masks["train"].tolist() == [True, True, False, True, True]
    found, _ = read(graph, targets=f"{nodes}:price,rate", split="random:50/25/25:3")
    assert sum(mask.sum() for mask in found.masks.values()) == 4
    split = put(tmp_path / "s.csv", "id,part\n0,train\n1,train\n2,val\n3,val\n4,test\n")
    found, notes = read(graph, targets=f"{nodes}:price", split=f"{split}:part")
    assert found.masks["val"].tolist() == [False, False, False, True, False]
    assert any("2 vertices without a target left out of the split" in note for note in notes)
    misused("split per-class: only for classes, but vertices have targets", graph,
            targets=f"{nodes}:price", split="per-class")


def test_largest_component(tmp_path):
    graph = put(tmp_path / "g.txt", "0 1\n1 2\n3 4\n")
    np.save(tmp_path / "y.npy", np.arange(5.0))
    found, _ = read(graph, targets=tmp_path / "y.npy", largest_component=True)
    assert found.targets.ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize("targets, message", [
    ("{nodes}:nope", r"no column is called nope \(--targets\), expected names among id, age"),
    ("{nodes}:note", "line 2: column note is 'e', expected a number; name the columns of targets"),
    ("{nodes}", "column note is 'e', expected a number; name the columns of targets, --targets")])
def test_refused(graph, nodes, targets, message):
    refused(message, graph, targets=targets.format(nodes=nodes))


def test_other_refusals(tmp_path, graph, nodes):
    misused("--labels and --targets: expected only one of them", graph,
            targets=f"{nodes}:price", labels=f"{nodes}:note")
    misused("is the file of --features too: name the columns", graph, features=nodes,
            targets=str(nodes))
    infinite = put(tmp_path / "y.csv", "id,y\n0,1\n1,inf\n2,0\n3,1\n4,1\n")
    refused("y.csv: line 3: column y is infinite, expected a number, or an empty cell", graph,
            targets=infinite)


def test_labels_that_are_values_name_the_flag(graph, nodes):
    token = COMMAND_LINE.set(True)
    try:
        for column in ("price", "rate"):
            refused("give them with --targets FILE|COLUMNS", graph, labels=f"{nodes}:{column}")
    finally:
        COMMAND_LINE.reset(token)


def test_edges_that_are_sorted_on_disk(tmp_path):
    ends = np.random.default_rng(0).integers(0, 5000, (60_000, 2))
    np.savetxt(tmp_path / "g.txt", ends, "%d")
    np.save(tmp_path / "y.npy", np.arange(5000) / 7)
    for name, memory in (("small.h5", 4 << 20), ("large.h5", None)):
        convert(tmp_path / "g.txt", tmp_path / name, targets=tmp_path / "y.npy", memory=memory,
                num_nodes=5000)
        with load(tmp_path / name) as stored:
            np.testing.assert_array_equal(stored.in_original_order().targets[:, 0],
                                          np.arange(5000) / 7)

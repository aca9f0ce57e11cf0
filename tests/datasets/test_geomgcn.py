"""Data sets of Geom-GCN are read by the rules of their authors' loader."""
import numpy as np
import pytest
from arrays import assert_all
from inputs import put, refused

from hpgcn.datasets.convert import read

EDGES = "node_id\tnode_id\n0\t1\n1\t2\n2\t2\n2\t0\n"
DENSE = "node_id\tfeature\tlabel\n1\t0,1,0,1\t3\n0\t0,0,0,0\t0\n2\t1,1,0,0\t1\n"
LISTS = "node_id\tfeature\tlabel\n1\t5,0\t3\n0\t7\t0\n2\t1,2,3\t1\n"
EVEN_LISTS = "node_id\tfeature\tlabel\n1\t5,0\t3\n0\t7,3\t0\n2\t1,2\t1\n"


def write_set(folder, table=DENSE, edges=EDGES, name="texas", splits=10, split_folder=None):
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / "out1_graph_edges.txt", edges)
    put(folder / "out1_node_feature_label.txt", table)
    split_folder = split_folder or folder
    split_folder.mkdir(exist_ok=True)
    for k in range(splits):
        masks = {key: (np.arange(3) + k) % 3 == j
                 for j, key in enumerate(("train_mask", "val_mask", "test_mask"))}
        np.savez(split_folder / f"{name}_split_0.6_0.2_{k}.npz",
                 **{key: mask.astype(np.uint8) for key, mask in masks.items()})
    return folder / "out1_graph_edges.txt"


def by_hand(table, width):
    """Return features and labels in order of the ids.

    `width` is given if features are lists of columns.
    """
    lines = sorted(line.split("\t") for line in table.splitlines()[1:])
    if width is None:
        X = np.array([line[1].split(",") for line in lines], float)
    else:
        X = np.zeros((len(lines), width))
        for row, line in zip(X, lines):
            row[[int(k) for k in line[1].split(",")]] = 1
    return X, [int(line[2]) for line in lines]


@pytest.mark.parametrize("given", ["out1_graph_edges.txt", "out1_node_feature_label.txt", "",
                                   "texas_split_0.6_0.2_3.npz"])
@pytest.mark.parametrize("table, width", [(DENSE, None), (LISTS, 8), (EVEN_LISTS, 8)])
def test_a_set(tmp_path, given, table, width):
    write_set(tmp_path / "raw", table)
    graph, notes = read(tmp_path / "raw" / given if given else tmp_path)
    A = np.zeros((3, 3))
    for u, v in ((0, 1), (1, 2), (2, 2), (2, 0)):
        A[v, u] = 1
    assert graph.adjacency.toarray().tolist() == A.tolist()
    X, labels = by_hand(table, width)
    assert graph.features.toarray().tolist() == X.tolist() and graph.labels.tolist() == labels
    assert graph.header.name == "texas" and graph.header.num_splits == 10
    for k in range(10):
        with np.load(tmp_path / "raw" / f"texas_split_0.6_0.2_{k}.npz") as masks:
            for key in ("train", "val", "test"):
                assert_all(graph.masks[key][:, k] == masks[f"{key}_mask"])
    assert "row target aggregates source" in notes
    assert any(note.startswith("features: ") for note in notes)


def test_splits_in_a_folder_of_their_own_and_film(tmp_path):
    (tmp_path / "splits").mkdir()
    write_set(tmp_path / "new_data" / "film", EVEN_LISTS, name="film", splits=2,
              split_folder=tmp_path / "splits")
    write_set(tmp_path / "other", name="texas", splits=1, split_folder=tmp_path / "splits")
    graph, _ = read(tmp_path / "new_data" / "film")
    assert graph.features.toarray().tolist() == by_hand(EVEN_LISTS, 932)[0].tolist()
    assert (graph.header.name, graph.header.num_splits) == ("film", 2)


@pytest.mark.parametrize("name", ["film", "texas"])
def test_a_feature_that_a_list_names_twice(tmp_path, name):
    """As PyG reads the published film, a feature that is named twice is a 1."""
    table = "node_id\tfeature\tlabel\n1\t4,2,4,2\t0\n0\t3,0\t1\n2\t7\t1\n"
    graph, notes = read(write_set(tmp_path, table, name=name))
    X = graph.features.toarray()
    assert [np.flatnonzero(row).tolist() for row in X] == [[0, 3], [2, 4], [7]] and X.max() == 1
    assert any("1 list has a number twice, which is a 1" in note for note in notes)


def test_rows_of_numbers_of_one_length(tmp_path):
    table = "node_id\tfeature\tlabel\n1\t4,2,4\t0\n0\t3,0,1\t1\n2\t7,0,0\t1\n"
    graph, _ = read(write_set(tmp_path, table))
    assert graph.features.toarray().tolist() == [[3, 0, 1], [4, 2, 4], [7, 0, 0]]


@pytest.mark.parametrize("edges, ids", [(EDGES, None),
                                        (EDGES.replace("0", "70").replace("1", "50"), [2, 50, 70])])
def test_without_splits_and_with_other_ids(tmp_path, edges, ids):
    table = DENSE if ids is None else DENSE.replace("\n1\t", "\n50\t").replace("\n0\t", "\n70\t")
    graph, _ = read(write_set(tmp_path, table, edges, splits=0))
    assert graph.masks is None and graph.header.num_edges == 4
    assert (graph.original_ids is None) if ids is None else graph.original_ids.tolist() == ids
    assert graph.header.name == tmp_path.name


@pytest.mark.parametrize("table, edges, message", [
    (DENSE, "node_id\tnode_id\n0\t9\n", "edges.txt: line 2: node '9' is not in out1_node"),
    (DENSE, "node_id\tnode_id\n0\n", r"edges.txt: line 2: 1 field\(s\), expected two nodes"),
    (DENSE + "0\t1,1,1,1\t2\n", EDGES, "label.txt: id '0' occurs twice"),
    (DENSE + "3\t1,1\n", EDGES, r"label.txt: line 5: 2 field\(s\), expected node_id, feature"),
    (DENSE + "3\t1,x\t0\n", EDGES, "label.txt: line 5: could not convert"),
    (DENSE + "3\t1,nan\t0\n", EDGES, "label.txt: line 5: feature at 1 is nan"),
    (DENSE + "3\t1,1\t0\n", EDGES, "label.txt: line 2: features are neither rows of 0 and 1"),
    (DENSE + "3\t0.5,1\t0\n", EDGES, "label.txt: .*features are neither"),
    (DENSE + "3\t1,1,0,1\tx\n", EDGES, "label.txt: label: line 5: label 'x'"),
    ("node_id\tfeature\tlabel\n", EDGES, "label.txt: no vertices")])
def test_refused(tmp_path, table, edges, message):
    refused(message, write_set(tmp_path, table, edges))


def test_splits_that_are_refused(tmp_path):
    path = write_set(tmp_path, splits=2)
    split = tmp_path / "texas_split_0.6_0.2_1.npz"
    for arrays, message in (
            ({"train_mask": [1, 0, 0]}, "no array val_mask"),
            ({key: [1, 0] for key in ("train_mask", "val_mask", "test_mask")}, r"shape \(2,\)")):
        np.savez(split, **arrays)
        refused(rf"texas_split_0\.6_0\.2_1\.npz.*{message}", path)
    np.savez(tmp_path / "film_split_0.6_0.2_0.npz", train_mask=[1, 0, 0])
    refused("splits of film, texas, expected those of one data set", path)


def test_missing_tables_are_named(tmp_path):
    path = write_set(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"out1_graph_edges\.txt: No such file"):
        read(tmp_path)

"""Data sets of GraphSAINT and Reddit (DGL, PyG), compared with SciPy, NumPy and json."""
import json

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put, refused

from hpgcn.datasets.collections.graphsaint import INDUCTIVE
from hpgcn.datasets.convert import read

A = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
X = np.array([[0.5, 2], [100, -3], [0, 0], [7, 8]])
CLASSES = {"0": 2, "1": 0, "3": 1, "2": 2}
LISTS = {"0": [0, 1, 1], "1": [0, 0, 0], "2": [1, 0, 0], "3": [1, 1, 1]}
ROLES = {"tr": [0, 3], "va": [1], "te": [2]}


def saint(folder, **changes):
    """Write a GraphSAINT set of 4 vertices; `changes` replace its JSON files or features."""
    sp.save_npz(folder / "adj_full.npz", sp.csr_matrix(A.astype(bool)))
    sp.save_npz(folder / "adj_train.npz", sp.csr_matrix(A.astype(bool) & False))
    np.save(folder / "feats.npy", changes.pop("feats", X))
    for name, value in {"class_map": CLASSES, "role": ROLES, **changes}.items():
        put(folder / f"{name}.json", value if isinstance(value, str) else json.dumps(value))
    return folder / "adj_full.npz"


@pytest.mark.parametrize("given", ["", "adj_full.npz", "adj_train.npz", "role.json", "feats.npy",
                                   "class_map.json"])
@pytest.mark.parametrize("classes", [CLASSES, LISTS])
def test_a_folder_of_graphsaint(tmp_path, given, classes):
    saint(tmp_path, class_map=classes)
    graph, notes = read(tmp_path / given)
    np.testing.assert_array_equal(graph.adjacency.toarray(),
                                  sp.load_npz(tmp_path / "adj_full.npz").toarray())
    np.testing.assert_array_equal(graph.features, np.load(tmp_path / "feats.npy"))
    expected = [json.loads((tmp_path / "class_map.json").read_text())[str(k)] for k in range(4)]
    assert graph.labels.tolist() == expected
    masks = {key: mask.nonzero()[0].tolist() for key, mask in graph.masks.items()}
    assert masks == {"train": [0, 3], "val": [1], "test": [2]}
    assert graph.header.name == tmp_path.name
    assert any("standardizes" in note for note in notes)
    assert INDUCTIVE in notes


def test_weights_of_graphsaint_are_1_and_a_class_may_be_missing(tmp_path):
    path = saint(tmp_path, class_map={"0": 1, "1": 0, "3": 1}, role={**ROLES, "te": []})
    np.savez(path, data=A[A != 0] * 2.5, indices=sp.csr_array(A).indices,
             indptr=sp.csr_array(A).indptr, shape=A.shape)
    graph, notes = read(path, split="random:50/25/25")
    assert graph.adjacency.toarray().tolist() == A.tolist()
    assert graph.labels.tolist() == [1, 0, -1, 1]
    assert {"weights set to 1, like in GraphSAINT's own loader",
            "1 vertex without a class in class_map.json: unlabeled"} <= {*notes}


def test_files_that_are_missing_are_named(tmp_path):
    path = saint(tmp_path)
    (tmp_path / "feats.npy").unlink()
    graph, notes = read(path)
    assert graph.features is None and graph.labels.tolist() == [2, 0, 2, 1] and graph.masks
    assert "no feats.npy beside adj_full.npz" in notes
    (tmp_path / "role.json").unlink()
    graph, notes = read(tmp_path)
    assert graph.masks is None and "no feats.npy, role.json beside adj_full.npz" in notes
    (tmp_path / "class_map.json").unlink()
    assert read(path)[0].labels is None


@pytest.mark.parametrize("changes, message", [
    ({"class_map": '{"0": 1, "0": 2}'}, "class_map.json: '0' occurs twice in one object"),
    ({"class_map": {"4": 1}}, r"class_map.json: vertex '4', expected 0\.\.3"),
    ({"class_map": {"x": 1}}, "class_map.json: vertex 'x'"),
    ({"class_map": {"0": 0.5}}, "class_map.json: vertex 0: 0.5, expected a class number"),
    ({"class_map": {**CLASSES, "1": [1]}}, r"class_map.json: vertex 0: 2, expected 1 numbers 0"),
    ({"class_map": {**LISTS, "1": [1]}}, r"class_map.json: vertex 1: \[1\], expected 3 numbers"),
    ({"class_map": {**LISTS, "1": [1, 2, 0]}}, r"vertex 1: \[1, 2, 0\], expected 3 numbers"),
    ({"class_map": {key: LISTS[key] for key in "013"}}, "vertex 2 is missing, expected classes"),
    ({"class_map": '{"0": Infinity}'}, "class_map.json: vertex 0: inf"),
    ({"class_map": "[1"}, "class_map.json: broken JSON"),
    ({"class_map": "[1]"}, "class_map.json: JSON of a list, expected"),
    ({"role": {"tr": [0]}}, 'role.json: no list "va", expected tr, va and te'),
    ({"role": {**ROLES, "va": [1.5]}}, r"role.json: va: vertex 1\.5, expected 0\.\.3"),
    ({"role": {**ROLES, "va": [0]}}, "vertex 0 is in both the train and the val mask"),
    ({"feats": X[:3]}, r"features have shape \(3, 2\)")])
def test_refused(tmp_path, changes, message):
    refused(message, saint(tmp_path, **changes))


def reddit(folder, **changes):
    directed = np.triu(A)
    sp.save_npz(folder / "reddit_graph.npz", sp.coo_matrix(directed))
    arrays = {"feature": X, "label": np.array([2, 0, 2, 1]), "node_types": np.array([1, 2, 3, 1]),
              "node_ids": np.arange(4), **changes}
    np.savez(folder / "reddit_data.npz", **{k: v for k, v in arrays.items() if v is not None})
    return directed


@pytest.mark.parametrize("given", ["", "reddit_data.npz", "reddit_graph.npz"])
def test_reddit(tmp_path, given):
    directed = reddit(tmp_path)
    graph, notes = read(tmp_path / given)
    np.testing.assert_array_equal(graph.adjacency.toarray(), directed.T)
    assert graph.features.tolist() == X.tolist() and graph.labels.tolist() == [2, 0, 2, 1]
    masks = {key: mask.nonzero()[0].tolist() for key, mask in graph.masks.items()}
    assert masks == {"train": [0, 3], "val": [1], "test": [2]}
    assert {"row target aggregates source", "arrays not read: node_ids", INDUCTIVE} <= {*notes}


def test_reddit_in_the_dtypes_of_the_published_files(tmp_path):
    directed = reddit(tmp_path, feature=X.astype(np.float64), label=np.int32([2, 0, 2, 1]),
                      node_types=np.int32([[1], [2], [3], [1]]))
    sp.save_npz(tmp_path / "reddit_graph.npz", sp.coo_matrix(directed.astype(np.float64)))
    graph, _ = read(tmp_path)
    assert graph.data is None and graph.features.dtype == np.float32
    assert graph.labels.tolist() == [2, 0, 2, 1] and graph.masks["val"].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("changes, message", [
    ({"node_types": np.array([1, 2, 3, 9])}, "node_types: entry 3 is 9, expected 1 .train"),
    ({"node_types": np.array([1, 2, 3])}, r"node_types: shape \(3,\), expected \(4,\)"),
    ({"label": None}, "no array label, expected feature, label, node_types")])
def test_reddit_refused(tmp_path, changes, message):
    reddit(tmp_path, **changes)
    refused(message, tmp_path)


def test_reddit_needs_its_graph(tmp_path):
    reddit(tmp_path)
    (tmp_path / "reddit_graph.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"reddit_graph\.npz: No such file"):
        read(tmp_path)

"""Links of PyG's RandomLinkSplit and of OGB, from memory and from files."""
import gzip

import numpy as np
import pytest

import hpgcn
from hpgcn.datasets.convert import read
from hpgcn.errors import DataError, DataWarning
from hpgcn.graphs.links import pair_keys

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.data")
N = 40


def undirected():
    pairs = np.random.default_rng(0).integers(0, N, (150, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return pyg.Data(edge_index=torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy()),
                    x=torch.eye(N))


def split(**options):
    from torch_geometric.transforms import RandomLinkSplit

    torch.manual_seed(0)
    return RandomLinkSplit(num_val=.1, num_test=.2, **{"is_undirected": True, **options})(
        undirected())


def check(graph, parts):
    """Compare a graph with the three Data of RandomLinkSplit."""
    assert not graph.header.directed
    assert graph.header.num_edges == parts[0].edge_index.shape[1]
    for key, part in zip(("train", "val", "test"), parts):
        links = graph.links[key]
        pairs, label = part.edge_label_index.numpy().T, part.edge_label.numpy()
        np.testing.assert_array_equal(links.positive, pairs[label == 1])
        if (label == 0).any():
            np.testing.assert_array_equal(links.negative, pairs[label == 0])
        else:
            assert links.negative is None


@pytest.mark.parametrize("options", [{}, {"add_negative_train_samples": False},
                                     {"disjoint_train_ratio": .3}])
def test_random_link_split(tmp_path, options):
    parts = split(**options)
    check(hpgcn.from_pyg(parts), parts)
    torch.save(parts, tmp_path / "parts.pt")
    graph, notes = read(tmp_path / "parts.pt")
    check(graph, parts)
    assert not any("not read" in note for note in notes)
    torch.save(list(parts), tmp_path / "parts.pt")
    check(read(tmp_path / "parts.pt")[0], parts)


def test_directions_in_different_sets_are_counted():
    """RandomLinkSplit takes both directions of an edge apart unless is_undirected is true."""
    with pytest.warns(DataWarning, match=r"links of test: \d+ of 54 are edges in the other"):
        assert hpgcn.from_pyg(split(is_undirected=False)).header.directed


def test_a_single_part_has_no_links(tmp_path):
    torch.save(split()[0], tmp_path / "part.pt")
    graph, notes = read(tmp_path / "part.pt")
    assert graph.links is None
    assert any(note.startswith("edge_label_index is not read: links are read of all three")
               for note in notes)


def test_separate_labels():
    parts = split(split_labels=True)
    graph = hpgcn.from_pyg(parts)
    np.testing.assert_array_equal(graph.links["test"].positive,
                                  parts[2].pos_edge_label_index.numpy().T)
    np.testing.assert_array_equal(graph.links["test"].negative,
                                  parts[2].neg_edge_label_index.numpy().T)


def test_wrong_splits_are_refused():
    parts = [*split()]
    leaky = (undirected(), *parts[1:])
    leaky[0].edge_label_index = parts[0].edge_label_index
    with pytest.raises(DataError, match=r"links of val: .* are edges of the graph"):
        hpgcn.from_pyg(leaky)
    assert hpgcn.from_pyg(leaky, allow_leakage=True).links
    with pytest.raises(DataError, match=r"a list of 2 objects, expected one .* or the three of"):
        hpgcn.from_pyg(parts[:2])
    with pytest.raises(DataError, match="a Data of train_test_split_edges, expected the three"):
        hpgcn.from_pyg(pyg.Data(x=torch.eye(N), train_pos_edge_index=parts[0].edge_index))
    parts[1].edge_label[3] = 2
    with pytest.raises(DataError, match=r"val: edge_label\[3\] is 2, expected 1 for links and 0"):
        hpgcn.from_pyg(parts)
    parts[1].edge_label = parts[1].edge_label[1:]
    with pytest.raises(DataError, match=r"val: edge_label has shape \(\d+,\), expected \(\d+,\)"):
        hpgcn.from_pyg(parts)
    parts = split()
    parts[1].edge_type = torch.zeros(3)
    with pytest.raises(DataError, match="edge_type: links of several types"):
        hpgcn.from_pyg(parts)


def ogb(tmp_path, sets, name="ogbl_toy", scheme="time"):
    """Write an OGB set whose graph is a path, with the dicts `sets` by split; return its folder."""
    folder = tmp_path / name
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / scheme).mkdir(parents=True)
    for file, text in (("edge.csv.gz", "0,1\n1,2\n2,3\n"), ("num-node-list.csv.gz", "6\n"),
                       ("num-edge-list.csv.gz", "3\n")):
        (folder / "raw" / file).write_bytes(gzip.compress(text.encode()))
    for key, arrays in sets.items():
        torch.save(arrays, folder / "split" / scheme / f"{key}.pt")
    return folder


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_pairs_of_ogb(tmp_path, make):
    folder = ogb(tmp_path, {
        "train": {"edge": make([[0, 1], [1, 2], [2, 3]]), "weight": make([1., 2., 3.])},
        "valid": {"edge": make([[0, 3]]), "edge_neg": make([[0, 5], [1, 5]])},
        "test": {"edge": make([[4, 5], [0, 4]]), "edge_neg": make([[3, 5]])}})
    graph, notes = read(folder, symmetrize=True)
    assert "not read of links: weight" in notes
    assert graph.header.num_nodes == 6 and not graph.header.directed
    assert graph.links["train"].positive.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert graph.links["val"].negative.tolist() == [[0, 5], [1, 5]]
    assert graph.links["test"].positive.tolist() == [[4, 5], [0, 4]]


def test_targets_of_ogb(tmp_path):
    sets = {key: {"source_node": np.array([0, 1]), "target_node": np.array([4, 5]),
                  "target_node_neg": np.array([[1, 2, 3], [0, 2, 4]])} for key in ("valid", "test")}
    sets["train"] = {"source_node": np.array([0]), "target_node": np.array([1])}
    folder = ogb(tmp_path, sets)
    graph, _ = read(folder)
    assert graph.links["test"].negative_targets.tolist() == [[1, 2, 3], [0, 2, 4]]
    assert graph.links["train"].negative_targets is None
    # row of a target, column of a source: the edge 0 -> 1 is a[1, 0]
    assert graph.adjacency[1, 0] == 1
    assert pair_keys(graph.links["val"].positive, 6, True).tolist() == [4, 11]


@pytest.mark.parametrize("arrays, message", [
    ({"head": np.array([0]), "relation": np.array([1]), "tail": np.array([2])},
     "relation, head, tail: links of several types"),
    ({"other": np.array([0])}, "has other, expected edge, or source_node and target_node"),
    (np.array([0]), "a ndarray, expected a dict of arrays"),
    ({"edge": np.array([[0, 9]])}, r"links of train: positive\[0\] has a vertex outside 0..5"),
])
def test_wrong_sets_are_refused(tmp_path, arrays, message):
    folder = ogb(tmp_path, dict.fromkeys(("train", "valid", "test"), arrays))
    with pytest.raises(DataError, match=message):
        read(folder)

"""Class names are checked, and kept from the input to the predictions."""
import numpy as np
import pytest
import scipy.sparse as sp

import hpgcn
from hpgcn.datasets import convert
from hpgcn.errors import DataError, DataWarning
from hpgcn.graphs.graph import Graph

NAMES = ("chat", "chien", "été, hiver", "=1+1")
CYCLE = sp.csr_array(np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1))
LABELS = [0, 1, 2, -1, 1, 0]  # no vertex has the last class


def named(y=LABELS, names=NAMES, **options):
    masks = {"train": [0, 1], "val": [2], "test": [4, 5]}
    return Graph.from_scipy(CYCLE, np.eye(6), y, masks, class_names=names, **options)


@pytest.mark.parametrize("names, message", [
    (["a", "b"], "class_names: 2 names, but the labels have 3 to 65536 classes"),
    (["a", "b", "a"], r"class_names\[2\] is 'a', the same as class_names\[0\]"),
    (["a", "", "c"], r"class_names\[1\] is '' of 0 bytes, expected 1 to 1000 without NUL"),
    (["a", "b", "é" * 501], r"class_names\[2\] is 'é+ of 1002 bytes"),
    (["a", "b", "c\0"], r"class_names\[2\] is 'c\\x00' of 2 bytes"),
    (["a", "b", "\ud800"], r"class_names\[2\]: '\\ud800' is not valid text"),
    (["a", "b", 3], r"class_names\[2\] is 3, expected text"),
    ("abc", "class_names are a str, expected a list of text"), (3, "class_names are a int")])
def test_names_that_cannot_be_kept(names, message):
    with pytest.raises(DataError, match=message):
        named(names=names, name="g")
    with pytest.raises(DataError, match="class_names, but no labels"):
        named(y=None, names=names)


def test_names_of_multi_label_data_are_as_many_as_columns():
    y = np.eye(6)[:, :3]
    assert named(y, ["a", "b", "c"]).class_names == ("a", "b", "c")
    with pytest.raises(DataError, match="4 names, but the labels have 3 classes"):
        named(y)


def test_names_stay_with_a_graph_and_its_files(tmp_path):
    graph = named(names=np.array(NAMES))
    assert graph.class_names == NAMES and graph.header.num_classes == 4
    perm = np.array([3, 1, 4, 0, 5, 2])
    for other in (graph.slab(1, 4), graph.permuted(perm), graph.of_split(0),
                  graph.permuted(perm).in_original_order()):
        assert other.class_names == NAMES
    hpgcn.save(graph, tmp_path / "g.h5")
    with hpgcn.load(tmp_path / "g.h5") as stored:
        assert stored.class_names == stored.read().class_names == NAMES
        assert stored.slab(2, 2).class_names == NAMES and stored.header.num_classes == 4
    hpgcn.save(named(names=None), tmp_path / "bare.h5")
    with hpgcn.load(tmp_path / "bare.h5") as stored:
        assert stored.class_names is None and stored.header.num_classes == 3
    assert Graph.from_scipy(CYCLE, y=[-1] * 6, class_names=[]).class_names is None


def test_a_reader_may_name_classes(tmp_path, monkeypatch):
    """Class names that a file reader returns are stored, with edges sorted in memory or on disk."""
    def read(*arguments):
        raw, *rest = read_file(*arguments)
        raw.labels, raw.class_names = np.array([0, 2, 1, -1]), NAMES
        return raw, *rest

    (tmp_path / "g.txt").write_text("0 1\n1 2\n2 3\n")
    np.save(tmp_path / "y.npy", [1, 0, 0, 1])
    read_file = convert._read
    monkeypatch.setattr(convert, "_read", read)
    out = tmp_path / "g.h5"
    for on_disk in (False, True):
        monkeypatch.setattr(convert, "EDGE_BYTES", on_disk << 60)
        for kept, options in ((NAMES, {}), (None, {"labels": tmp_path / "y.npy"})):
            convert.convert(tmp_path / "g.txt", out, overwrite=True, **options)
            with hpgcn.load(out) as stored:
                assert stored.class_names == kept
                assert stored.header.num_classes == (len(kept) if kept else 2)


def test_an_archive_may_name_classes(tmp_path):
    """Class names in an .npz file are read if they are text, and ignored if they are pickled."""
    for names, kept in ((np.array(NAMES), NAMES), (np.array(NAMES, object), None)):
        np.savez(tmp_path / "g.npz", edges=np.array([[0, 1], [1, 2]]), labels=[0, 1, 2],
                 class_names=names)
        graph, notes = convert.read(tmp_path / "g.npz")
        assert graph.class_names == kept
        assert any("neither read" in note and "class_names" in note for note in notes) == (not kept)


def test_networkx_holds_names():
    networkx = pytest.importorskip("networkx")
    G = hpgcn.to_networkx(named())
    assert G.graph["class_names"] == list(NAMES)
    assert hpgcn.from_networkx(G, "features", "label").class_names == NAMES
    networkx.set_node_attributes(G, dict(enumerate(["b", "a", "?", "b", "a", "a"])), "color")
    with pytest.warns(DataWarning, match=r"attribute color: 1 label \? is unlabeled"):
        graph = hpgcn.from_networkx(G, "features", "color", masks=([0], [1], [3]))
    assert graph.labels.tolist() == [1, 0, -1, 1, 0, 0] and graph.class_names == ("a", "b")
    networkx.set_node_attributes(G, dict(enumerate(["10.0", "2.0", "2", "-1", "2", "10"])), "year")
    with pytest.warns(DataWarning, match="1 label -1 is unlabeled"):
        graph = hpgcn.from_networkx(G, "features", "year", masks=([0], [1], [2]))
    assert graph.labels.tolist() == [10, 2, 2, -1, 2, 10] and graph.class_names is None
    G.nodes[4]["year"] = "x"
    with pytest.raises(DataError, match="attribute year: node 4: label 'x', expected"):
        hpgcn.from_networkx(G, None, "year")


@pytest.mark.long
def test_pyg_holds_names(tmp_path):
    pytest.importorskip("torch_geometric")
    data = hpgcn.to_pyg(named())
    assert data.num_nodes == 6 and hpgcn.from_pyg(data).class_names == NAMES
    pytest.importorskip("torch").save(data, tmp_path / "data.pt")
    graph, notes = convert.read(tmp_path / "data.pt")
    assert graph.class_names == NAMES and graph.masks["train"].sum() == 2
    assert not any("not read" in note for note in notes)
    assert hpgcn.from_pyg(data, labels=[0] * 6).class_names is None
    assert hpgcn.to_pyg(named(names=None)).get("class_names") is None

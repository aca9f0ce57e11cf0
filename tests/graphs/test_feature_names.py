"""Names of feature columns are kept from the input to the model, and compared there."""
import logging

import numpy as np
import pytest
import scipy.sparse as sp

import hpgcn
from hpgcn.datasets import convert
from hpgcn.errors import ConfigError, DataError
from hpgcn.graphs.graph import Graph

NAMES = ("age", "size", "été, hiver")
CYCLE = sp.csr_array(np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1))
X = np.arange(18.0).reshape(6, 3) % 7
MASKS = {"train": [0, 1, 2], "val": [3], "test": [4, 5]}
CONFIG = hpgcn.Config(hidden=4, epochs=3, dropout=0.0)


def named(order=(0, 1, 2), names=NAMES, kind=np.asarray, **options):
    """Return a graph whose columns of X and their names are in `order`."""
    names = names and [names[k] for k in order]
    return Graph.from_scipy(CYCLE, kind(X[:, order]), [0, 1, 2, 0, 1, 2], MASKS,
                            feature_names=names, **options)


@pytest.mark.parametrize("names, message", [
    (["a", "b"], "feature_names: 2 names, but there are 3 features"),
    (["a", "b", "a"], r"feature_names\[2\] is 'a', the same as feature_names\[0\]"),
    (["a", "b", 3], r"feature_names\[2\] is 3, expected text"), ("abc", "feature_names are a str")])
def test_names_that_cannot_be_kept(names, message):
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(CYCLE, X, feature_names=names)


def test_names_stay_with_a_graph_and_its_files(tmp_path):
    graph = named()
    perm = np.array([3, 1, 4, 0, 5, 2])
    for other in (graph, graph.slab(1, 4), graph.permuted(perm).in_original_order()):
        assert other.feature_names == NAMES
    hpgcn.save(graph, tmp_path / "g.h5")
    hpgcn.save(named(names=None), tmp_path / "bare.h5")
    with hpgcn.load(tmp_path / "g.h5") as stored:
        assert stored.feature_names == stored.read().feature_names == NAMES
    with hpgcn.load(tmp_path / "bare.h5") as stored:
        assert stored.feature_names is None
    assert graph.digests() != named(names=("a", "b", "c")).digests()


def test_a_data_frame_brings_its_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "tall": [True, False], "size": [.5, 1.5]})
    graph = Graph.from_scipy(np.ones((2, 2)), frame)
    assert graph.feature_names == ("age", "tall", "size")
    assert graph.features.tolist() == [[1, 1, .5], [2, 0, 1.5]]
    graph = Graph.from_edge_index([[0], [1]], features=frame, feature_names=["a", "b", "c"])
    assert graph.feature_names == ("a", "b", "c")
    assert Graph.from_scipy(np.ones((2, 2)), pandas.DataFrame(np.eye(2))).feature_names is None
    frame["name"] = ["x", "y"]
    with pytest.raises(DataError, match="columns of the DataFrame are not all numbers"):
        Graph.from_scipy(np.ones((2, 2)), frame)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stored", [False, True])
def test_a_model_puts_columns_into_its_order(tmp_path, kind, ranks, stored, caplog):
    result = hpgcn.train(named(kind=kind), CONFIG)
    assert result.feature_names == NAMES
    expected = hpgcn.predict(named(kind=kind), result)["logits"]
    graph = named((2, 0, 1), kind=kind)
    if stored:
        hpgcn.save(graph, tmp_path / "g.h5")
        graph = tmp_path / "g.h5"
    with caplog.at_level(logging.WARNING):
        found = hpgcn.predict(graph, result, ranks=ranks)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert caplog.text.count("put into the order of the model, by their names") == 1


def test_other_names_are_refused(tmp_path, caplog):
    run = tmp_path / "run"
    hpgcn.train(named(), CONFIG.replace(out=str(run)))
    message = "missing: age; 1 unexpected: weight"
    with pytest.raises(DataError, match=message):
        hpgcn.predict(named(names=("weight", *NAMES[1:])), run)
    with pytest.raises(DataError, match="1 missing: size"):
        hpgcn.predict(Graph.from_scipy(CYCLE, X[:, [0, 2]], feature_names=NAMES[::2]), run)
    with caplog.at_level(logging.WARNING):
        hpgcn.predict(named(names=None), run / "model.h5")
    assert "features have no names, but those of" in caplog.text


def test_a_run_resumes_with_its_own_columns(tmp_path):
    run = tmp_path / "run"
    hpgcn.train(named(), CONFIG.replace(out=str(run), checkpoint_every=1))
    for other in (named((2, 0, 1)), named(names=("a", "b", "c"))):
        message = rf"other data .*; its feature 0 is .*, that of the run '{NAMES[0]}'"
        with pytest.raises(ConfigError, match=message):
            hpgcn.train(other, CONFIG.replace(out=str(run), checkpoint_every=1, epochs=4),
                        resume=run)


TABLES = [
    ("x.csv", "id,b,a\n1,7,6\n0,1,0\n2,5,4\n", ("b", "a")),
    ("x.csv", "id,b,a,label\n1,7,6,0\n0,1,0,0\n2,5,4,1\n", ("b", "a")),
    ("x.csv", "# id b a\n1,7,6\n0,1,0\n2,5,4\n", ("b", "a")),
    ("x.csv", "id,0,1\n1,7,6\n0,1,0\n2,5,4\n", None), ("x.csv", "1,7,6\n0,1,0\n2,5,4\n", None),
    ("x.csv", "id,a,a\n1,7,6\n0,1,0\n2,5,4\n", None),
    ("x.json", '[{"id": 1, "b": 7, "a": 6}, {"id": 0, "b": 1, "a": 0}, {"id": 2, "b": 5, "a": 4}]',
     ("b", "a")),
    ("x.json", '[{"id": 1, "x": [7, 6]}, {"id": 0, "x": [1, 0]}, {"id": 2, "x": [5, 4]}]',
     ("x[0]", "x[1]"))]


@pytest.mark.parametrize("name, text, names", TABLES)
def test_names_in_tables(tmp_path, name, text, names):
    (tmp_path / "g.txt").write_text("0 1\n1 2\n")
    (tmp_path / name).write_text(text)
    graph, notes = convert.read(tmp_path / "g.txt", features=tmp_path / name)
    assert graph.features.tolist() == [[1, 0], [7, 6], [5, 4]] and graph.feature_names == names
    assert any("names of features are not kept" in note for note in notes) == (",a,a" in text)


def test_names_in_archives_and_networkx(tmp_path):
    np.savez(tmp_path / "g.npz", edges=np.array([[0, 1], [1, 2]]), node_features=np.eye(3),
             feature_names=np.array(NAMES))
    assert convert.read(tmp_path / "g.npz")[0].feature_names == NAMES
    pytest.importorskip("networkx")
    G = hpgcn.to_networkx(named())
    assert hpgcn.from_networkx(G, "features", "label").feature_names == NAMES


@pytest.mark.long
def test_names_in_pyg(tmp_path):
    pytest.importorskip("torch_geometric")
    data = hpgcn.to_pyg(named())
    assert hpgcn.from_pyg(data).feature_names == NAMES
    assert hpgcn.from_pyg(data, features=np.eye(6)).feature_names is None
    pytest.importorskip("torch").save(data, tmp_path / "data.pt")
    assert convert.read(tmp_path / "data.pt")[0].feature_names == NAMES

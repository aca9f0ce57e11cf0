"""Models and predictions, and what `describe` says about all files."""
import re

import h5py
import numpy as np
import pytest
from stored_graphs import make_graph, make_partition, restamp

from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import DataError, OutputError, StorageError


def test_model_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"layer1/W": rng.standard_normal((7, 16)).astype(np.float32), "layer1/b": np.zeros(16, np.float32),
               "layer2.W": np.asfortranarray(rng.standard_normal((16, 4))), "eps": np.float64(0.5),
               "none": np.zeros((0, 3))}
    given = {"strategy": "p2p", "test_acc": 0.815, "best_val_acc": None, "widths": [7, 16, 4], "resumed": True,
             "seed": 2**63 - 1, "source_name": "caf\u00e9", "empty": "", "loss": float("nan")}
    toml = Config(hidden=99).to_toml()
    store.write_model(tmp_path / "m.h5", weights, config_toml=toml, epoch=17, attributes=given)
    found, attributes = store.read_model(tmp_path / "m.h5")
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
    assert (attributes["config_toml"], attributes["epoch"]) == (toml, 17)
    assert {name: attributes[name] for name in given.keys() & attributes.keys() - {"loss"}} == {
        "strategy": "p2p", "test_acc": 0.815, "widths": [7, 16, 4], "resumed": 1, "seed": 2**63 - 1,
        "source_name": "caf\u00e9", "empty": ""}
    assert np.isnan(attributes["loss"])
    with pytest.raises(OutputError, match="exists"):
        store.write_model(tmp_path / "m.h5", weights, config_toml=toml, epoch=18)
    with pytest.raises(ValueError, match="epoch"):
        store.write_model(tmp_path / "m2.h5", weights, config_toml=toml, epoch=18, attributes={"epoch": 3})
    with pytest.raises(TypeError, match="attribute 'x'"):
        store.write_model(tmp_path / "m2.h5", weights, config_toml=toml, epoch=18, attributes={"x": {}})
    assert [path.name for path in tmp_path.iterdir()] == ["m.h5"]


def test_damaged_models(tmp_path, graph_file):
    path = tmp_path / "m.h5"
    store.write_model(path, {"W": np.ones((3, 2), np.float32)}, config_toml="", epoch=1)
    with h5py.File(path, "r+") as file:
        file["weights/W"][2, 1] = np.nan
    with pytest.raises(StorageError, match="weights/W: the checksum of block 0"):
        store.read_model(path)
    restamp(path)
    with pytest.raises(DataError, match=r"weights/W\[2, 1\] is nan"):
        store.read_model(path)
    with h5py.File(path, "r+") as file:
        del file.attrs["config_toml"]
    with pytest.raises(DataError, match="config_toml is missing"):
        store.read_model(path)
    with pytest.raises(DataError, match="format is 'hpgcn-graph', expected hpgcn-model"):
        store.read_model(graph_file)
    with pytest.raises(DataError, match="format is 'hpgcn-model', expected hpgcn-graph or hpgcn-partitioned-graph"):
        store.load(path)


def test_predictions_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"logits": rng.standard_normal((5, 3)).astype(np.float32), "label": np.array([0, 2, 1, 1, 0]),
              "embedding": rng.standard_normal((5, 16)), "original_ids": np.array([10, 20, 30, 40, 50])}
    store.write_predictions(tmp_path / "p.h5", arrays, attributes={"model": "run-1"})
    found, attributes = store.read_predictions(tmp_path / "p.h5")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert attributes["model"] == "run-1"
    least = {"logits": arrays["logits"], "label": arrays["label"]}
    store.write_predictions(tmp_path / "q.h5", {**least, "original_ids": None})
    assert store.read_predictions(tmp_path / "q.h5")[0].keys() == {"logits", "label"}
    several = {"logits": arrays["logits"], "label": (arrays["logits"] > 0).astype(np.uint8)}
    store.write_predictions(tmp_path / "m.h5", several)
    assert store.read_predictions(tmp_path / "m.h5")[0]["label"].tolist() == several["label"].tolist()
    for bad, message in [({"label": arrays["label"]}, "logits is missing"),
                         ({**several, "label": several["label"][:, :2]}, r"label has shape \(5, 2\), expected 0 or 1"),
                         ({**several, "label": several["label"] * 2}, r"label has shape \(5, 3\), expected 0 or 1"),
                         ({**arrays, "label": np.zeros(4, int)}, r"label has dtype int64 and shape \(4,\)"),
                         ({**arrays, "logits": np.zeros(5)}, r"expected floating point \(5, any\)"),
                         ({**arrays, "loss": np.zeros(5)}, "array loss is unknown")]:
        with pytest.raises(DataError, match=message):
            store.write_predictions(tmp_path / "r.h5", bad)
        assert not (tmp_path / "r.h5").exists()


def words(path, **options):
    """The description as a dict of label -> text."""
    lines = store.describe(path, **options).splitlines()
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines if not line.startswith(" "))


def test_describe_graph(tmp_path):
    """4 vertices: 0 -> 1, a loop on 2, 3 alone; counted by hand."""
    from hpgcn.graph import Graph

    A = np.zeros((4, 4))
    A[0, 1] = A[2, 2] = 1
    graph = Graph.from_scipy(A, np.eye(4, 6), [0, 1, 1, -1], ([0], [1], [2]), name="four", original_ids=np.arange(4))
    store.write_graph(tmp_path / "g.h5", graph)
    found = words(tmp_path / "g.h5", verify=True)
    assert found["kind"] == "graph"
    assert found["vertices"] == "4"
    assert found["edges"] == "2 stored entries, directed, weights all 1"
    assert found["degrees"] == "mean 0.50, max 1; 2 vertices isolated, 1 with a loop"
    assert found["features"] == "6 wide, dense float32"
    assert found["labels"] == "2 classes of 1, 2 vertices, 1 unknown"
    assert found["split"] == "train 1, val 1, test 1 (file)"
    assert found["checksums"].startswith("all match: 12 datasets")
    assert "--verify" in words(tmp_path / "g.h5")["checksums"]


def test_describe_partitioned(tmp_path):
    graph, partition = make_graph(features="sparse", labels="multi"), make_partition()
    store.write_partitioned(tmp_path / "p.h5", graph, partition, compress="gzip")
    text = store.describe(tmp_path / "p.h5")
    rows, nonzeros = np.bincount(partition.part), np.bincount(partition.part, np.diff(graph.indptr)).astype(int)
    assert "3 parts, method random by numpy 2, seed 1, epsilon 0.25" in text
    assert f"rows per part min {rows.min()}, mean 20.0, max {rows.max()}" in text
    assert f"entries per part min {nonzeros.min()}, mean 120.0, max {nonzeros.max()}" in text
    assert "volume 123,456,789,012" in text
    assert f"11 wide, sparse, {graph.features.nnz} stored (20.00%)" in text
    assert "(shuffle, gzip)" in text
    assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize("options", [{"features": "none", "labels": "none", "masks": False}, {"n": 1, "density": 0.0}])
def test_describe_the_least(tmp_path, options):
    store.write_graph(tmp_path / "g.h5", make_graph(**options))
    assert words(tmp_path / "g.h5", verify=True)["vertices"] == str(options.get("n", 60))


def test_describe_model_and_predictions(tmp_path):
    store.write_model(tmp_path / "m.h5", {"W": np.ones((3, 2), np.float32)}, config_toml=Config().to_toml(), epoch=41)
    found = words(tmp_path / "m.h5", verify=True)
    assert (found["kind"], found["weights"]) == ("model", "6 numbers (float32): W 3 x 2")
    assert found["best epoch"] == "41, whose weights these are"
    assert found["model"] == "gcn, layers 2, hidden 16, dropout 0.5"
    assert found["settings"] == "all else as by default"
    store.write_predictions(tmp_path / "p.h5", {"logits": np.ones((9, 2)), "label": np.zeros(9, int)})
    found = words(tmp_path / "p.h5", verify=True)
    assert (found["kind"], found["vertices"]) == ("predictions", "9, in their original order")
    assert found["logits"] == "a score of each class, 9 x 2 float64"
    assert found["label"] == "the label that is predicted, 9 int64"
    store.write_model(tmp_path / "n.h5", {}, config_toml="hiden = 3", epoch=1)
    assert "cannot be read: config_toml: key 'hiden'" in words(tmp_path / "n.h5")["settings"]

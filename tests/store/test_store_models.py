"""Files of models and predictions, and the output of `describe` for all kinds of files."""
import re

import numpy as np
import pytest
from damages import attribute, change
from stored_graphs import edit, make_graph, make_partition, restamp

from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.config import Config
from hpgcn.errors import DataError, OutputError, StorageError
from hpgcn.graphs.graph import Graph

ONES = {"W": np.ones((3, 2), np.float32)}


def check_equal(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_model_round_trip(tmp_path):
    path = tmp_path / "m.h5"
    rng = np.random.default_rng(0)
    weights = {"layer1/W": rng.standard_normal((7, 16)).astype(np.float32),
               "layer1/b": np.zeros(16, np.float32), "eps": np.float64(0.5),
               "layer2.W": np.asfortranarray(rng.standard_normal((16, 4))), "n": np.zeros((0, 3))}
    given = {"strategy": "p2p", "test_acc": 0.815, "best_val_acc": None, "widths": [7, 16, 4],
             "resumed": True, "seed": 2**63 - 1, "source_name": "caf\u00e9", "empty": "",
             "loss": float("nan")}
    toml = Config(hidden=99).to_toml()
    store.write_model(path, weights, config_toml=toml, epoch=17, attributes=given)
    arrays, attributes = store.read_model(path)
    check_equal(arrays, weights)
    assert np.isnan(attributes.pop("loss"))
    assert attributes.keys() - given.keys() == {"config_toml", "epoch", "creator", "created_utc"}
    expected = {**given, "resumed": 1, "config_toml": toml, "epoch": 17}
    for name in attributes.keys() - {"creator", "created_utc"}:
        assert attributes[name] == expected[name]
    for error, message, options in (
            (OutputError, "exists", {}), (ValueError, "epoch", {"attributes": {"epoch": 3}}),
            (TypeError, "attribute 'x'", {"attributes": {"x": {}}})):
        with pytest.raises(error, match=message):
            store.write_model(path, weights, config_toml=toml, epoch=18,
                              overwrite=bool(options), **options)
    assert store.read_model(path)[1]["epoch"] == 17
    assert [path.name for path in tmp_path.iterdir()] == ["m.h5"]


def test_damaged_models(tmp_path, graph_file):
    path = tmp_path / "m.h5"
    store.write_model(path, ONES, config_toml="", epoch=1)
    edit(path, change("weights/W", (2, 1), np.nan), stamp=False)
    with pytest.raises(StorageError, match="weights/W: the checksum of block 0"):
        store.read_model(path)
    restamp(path)
    with pytest.raises(DataError, match=r"weights/W\[2, 1\] is nan"):
        store.read_model(path)
    edit(path, attribute("config_toml", None), stamp=False)
    with pytest.raises(DataError, match="config_toml is missing"):
        store.read_model(path)
    with pytest.raises(DataError, match="format is 'hpgcn-graph', expected hpgcn-model"):
        store.read_model(graph_file)
    graphs = "expected hpgcn-graph or hpgcn-partitioned-graph"
    with pytest.raises(DataError, match=f"format is 'hpgcn-model', {graphs}"):
        store.load(path)


LOGITS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
LABEL = np.array([0, 2, 1, 1, 0])
SEVERAL = (LOGITS > 0).astype(np.uint8)
PREDICTIONS = {"logits": LOGITS, "label": LABEL, "embedding": np.zeros((5, 16)),
               "original_ids": np.array([10, 20, 30, 40, 50])}


@pytest.mark.parametrize("arrays", [
    PREDICTIONS, {"logits": LOGITS, "label": LABEL, "original_ids": None},
    {"logits": LOGITS, "label": SEVERAL}], ids=["all", "least", "multi-label"])
def test_predictions_round_trip(tmp_path, arrays):
    store.write_predictions(tmp_path / "p.h5", arrays, attributes={"model": "run-1"})
    stored, attributes = store.read_predictions(tmp_path / "p.h5")
    check_equal(stored, {name: array for name, array in arrays.items() if array is not None})
    assert attributes["model"] == "run-1"


@pytest.mark.parametrize("changes, message", [
    ({"logits": None}, "logits is missing"),
    ({"label": SEVERAL[:, :2]}, r"label has shape \(5, 2\), expected 0 or 1"),
    ({"label": SEVERAL * 2}, r"label has shape \(5, 3\), expected 0 or 1"),
    ({"label": np.zeros(4, int)}, r"label has dtype int64 and shape \(4,\)"),
    ({"logits": np.zeros(5)}, r"expected floating point \(5, any\)"),
    ({"loss": np.zeros(5)}, "array loss is unknown")])
def test_predictions_of_another_kind_are_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        store.write_predictions(tmp_path / "p.h5", {**PREDICTIONS, **changes})
    assert not list(tmp_path.iterdir())


def words(path, **options):
    """Return the output of `describe` as a dict of label -> text."""
    lines = describe_file(path, **options).splitlines()
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines if not line.startswith(" "))


def test_describe_graph(tmp_path):
    """`describe` prints the edges, degrees and loops of a graph with four vertices."""
    A = np.zeros((4, 4))
    A[0, 1] = A[2, 2] = 1
    graph = Graph.from_scipy(A, np.eye(4, 6), [0, 1, 1, -1], ([0], [1], [2]), name="four",
                             original_ids=np.arange(4))
    store.write_graph(tmp_path / "g.h5", graph)
    text = words(tmp_path / "g.h5", verify=True)
    assert text["checksums"].startswith("all match: 12 datasets")
    assert text.items() >= {
        "kind": "graph", "vertices": "4", "edges": "2 stored entries, directed, weights all 1",
        "degrees": "mean 0.50, max 1; 2 vertices isolated, 1 with a loop",
        "features": "6 wide, dense float32", "labels": "2 classes of 1, 2 vertices, 1 unknown",
        "split": "train 1, val 1, test 1 (file)"}.items()
    assert "--verify" in words(tmp_path / "g.h5")["checksums"]


def test_describe_partitioned(tmp_path):
    graph, partition = make_graph(features="sparse", labels="multi"), make_partition()
    store.write_partitioned(tmp_path / "p.h5", graph, partition, compress="gzip")
    text = describe_file(tmp_path / "p.h5")
    rows = np.bincount(partition.part)
    entries = np.bincount(partition.part, np.diff(graph.indptr)).astype(int)
    for said in ("3 parts, method random by numpy 2, seed 1, epsilon 0.25",
                 f"rows per part min {rows.min()}, mean 20.0, max {rows.max()}",
                 f"entries per part min {entries.min()}, mean 120.0, max {entries.max()}",
                 "volume 123,456,789,012", "(shuffle, gzip)",
                 f"11 wide, sparse, {graph.features.nnz} stored (20.00%)"):
        assert said in text
    assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize("options", [{"features": "none", "labels": "none", "masks": False},
                                     {"n": 1, "density": 0.0}])
def test_describe_the_least(tmp_path, options):
    store.write_graph(tmp_path / "g.h5", make_graph(**options))
    assert words(tmp_path / "g.h5", verify=True)["vertices"] == str(options.get("n", 60))


def test_describe_model_and_predictions(tmp_path):
    store.write_model(tmp_path / "m.h5", ONES, config_toml=Config().to_toml(), epoch=41)
    store.write_model(tmp_path / "n.h5", {}, config_toml="hiden = 3", epoch=1)
    arrays = {"logits": np.ones((9, 2)), "label": np.zeros(9, int)}
    store.write_predictions(tmp_path / "p.h5", arrays)
    for name, expected in {
            "m.h5": {"kind": "model", "weights": "6 numbers (float32): W 3 x 2",
                     "best epoch": "41, which has the stored weights",
                     "model": "gcn, layers 2, hidden 16, dropout 0.5",
                     "settings": "all other settings have their defaults"},
            "p.h5": {"kind": "predictions", "vertices": "9, in their original order",
                     "logits": "one score per class, 9 x 2 float64",
                     "label": "the predicted label, 9 int64"}}.items():
        assert expected.items() <= words(tmp_path / name, verify=True).items()
    assert "cannot be read: config_toml: key 'hiden'" in words(tmp_path / "n.h5")["settings"]

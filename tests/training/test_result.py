"""Training in Python: results with weights and history, callbacks, saved graphs and reprs."""
import json
import pickle

import numpy as np
import pytest
from arrays import are_equal
from graphs import make

import hpgcn
from hpgcn.errors import DataError, OutputError, UsageError
from hpgcn.training.files.run_directory import read_run


def history_of(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def equal(arrays, others):
    return arrays.keys() == others.keys() and all(
        are_equal(array, others[name]) for name, array in arrays.items())


def test_a_result_is_what_a_run_directory_holds(tmp_path):
    graph, out = make(), tmp_path / "run"
    result = hpgcn.train(graph, hpgcn.Config(out=str(out), epochs=8, hidden=6))
    assert json.loads(json.dumps(result)) == json.loads((out / "summary.json").read_text())
    assert result.history == history_of(out)
    again = hpgcn.train(graph, resume=out)  # the run is finished, so no epoch is trained
    for found in (result, again, pickle.loads(pickle.dumps(result))):
        assert isinstance(found, hpgcn.Result) and found == result
        assert found.history == result.history and found.config == result.config
        assert equal(found.weights, read_run(out)[0])


def test_weights_and_history_go_on_from_a_checkpoint(tmp_path):
    out, config = tmp_path / "run", hpgcn.Config(epochs=9, hidden=6, checkpoint_every=3)
    whole = hpgcn.train(make(), config.replace(checkpoint_every=0))
    hpgcn.train(make(), config.replace(out=str(out), epochs=3))
    result = hpgcn.train(make(), config.replace(out=str(out)), resume=out)
    assert [line["loss"] for line in result.history] == [line["loss"] for line in whole.history]
    assert equal(result.weights, whole.weights)


@pytest.mark.parametrize("changes", [
    {"model": "gin", "layer_norm": True, "dtype": "float64"}, {"layers": 1}], ids=str)
def test_predict_takes_a_result(tmp_path, changes):
    graph, out = make(), tmp_path / "run"
    result = hpgcn.train(graph, hpgcn.Config(out=str(out), epochs=5, hidden=6, **changes))
    found = hpgcn.predict(graph, result)
    assert equal(found, hpgcn.predict(graph, out))
    right = (found["label"] == graph.labels)[graph.masks["test"]]
    assert right.mean() == pytest.approx(result["test_acc"])


@pytest.mark.parametrize("wrong", [{"test_acc": 0.5}, None, 3])
def test_predict_names_what_it_takes(wrong):
    with pytest.raises(UsageError, match=r"expected a run directory, its model\.h5, or what train"):
        hpgcn.predict(make(), wrong)


@pytest.mark.long
@pytest.mark.parametrize("answer, epochs, eval_every", [
    (True, 3, 1), (True, 3, 2), (True, 3, 0), (np.True_, 3, 1), (False, 7, 1), (1, 7, 1),
    ("stop", 7, 0)], ids=repr)
def test_a_callback_stops_by_true(tmp_path, answer, epochs, eval_every):
    seen = []
    out = tmp_path / "run"
    config = hpgcn.Config(epochs=7, hidden=4, eval_every=eval_every, out=str(out))

    def tell(metrics):
        seen.append(metrics["epoch"])
        metrics.clear()  # a copy
        return answer if seen[-1] == 3 else None

    result = hpgcn.train(make(), config, callbacks=[tell, lambda metrics: False])
    assert seen == list(range(1, epochs + 1))
    assert result["epochs"] == len(result.history) == epochs
    assert result.history[-1]["val_acc"] is not None and result.history == history_of(out)
    assert result["test_acc"] == result.history[result["best_epoch"] - 1]["test_acc"]
    assert equal(result.weights, read_run(out)[0])


def test_a_run_that_a_callback_stopped_goes_on(tmp_path):
    graph = make()
    config = hpgcn.Config(epochs=7, hidden=4, out=str(tmp_path / "run"), checkpoint_every=50)
    hpgcn.train(graph, config, callbacks=[lambda metrics: metrics["epoch"] == 2])
    result = hpgcn.train(graph, config, resume=tmp_path / "run")
    assert [line["epoch"] for line in result.history] == list(range(1, 8))
    whole = hpgcn.train(graph, config.replace(out="", checkpoint_every=0))
    assert equal(result.weights, whole.weights)


def test_what_a_callback_raises_is_seen():
    with pytest.raises(ZeroDivisionError):
        hpgcn.train(make(), hpgcn.Config(epochs=2), callbacks=[lambda metrics: 1 / 0])
    for callbacks, message in (([print, 3], "3 cannot be called"),
                               (print, "expected a list of functions, not a builtin_function")):
        with pytest.raises(UsageError, match=f"callbacks: {message}"):
            hpgcn.train(make(), hpgcn.Config(epochs=2), callbacks=callbacks)


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_graph_is_saved_in_its_original_order(tmp_path, partitioned):
    graph = make(weighted=True, sparse=True)
    order = np.random.default_rng(1).permutation(203)
    saved = graph.permuted(order, np.array([0, 100, 203])) if partitioned else graph
    hpgcn.save(saved, tmp_path / "g.h5")
    found = hpgcn.load(tmp_path / "g.h5").read()
    assert found.checksum() == graph.checksum() and found.header == graph.header
    with pytest.raises(OutputError, match="exists"):
        hpgcn.save(saved, tmp_path / "g.h5")
    hpgcn.save(make(n=50), tmp_path / "g.h5", overwrite=True)
    assert hpgcn.load(tmp_path / "g.h5").header.num_nodes == 50
    with pytest.raises(DataError, match=r"only rows 3\.\.9 are in memory"):
        hpgcn.save(saved.slab(3, 9), tmp_path / "part.h5")
    assert not (tmp_path / "part.h5").exists()


def test_a_repr_is_one_line(tmp_path):
    graph = make()
    hpgcn.save(graph, tmp_path / "g.h5")
    result = hpgcn.train(graph, hpgcn.Config(epochs=2))
    text = (f"'made', 203 vertices, {graph.header.num_edges:,} stored entries, undirected, "
            "13 features, 5 classes, split")
    assert repr(graph) == f"Graph({text})"
    assert repr(graph.slab(3, 9)) == f"Graph({text}, rows 3 to 9)"
    assert repr(hpgcn.load(tmp_path / "g.h5")) == f"StoredGraph('{tmp_path / 'g.h5'}', {text})"
    assert repr(hpgcn.Config()) == "Config()"
    assert repr(hpgcn.Config(hidden=64, out="a\nb")) == "Config(out='a\\nb', hidden=64)"
    assert repr(result).startswith("Result(graph='made', epochs=2, best_epoch=")
    bare = hpgcn.Graph.from_scipy(np.eye(3), name="a\nb")
    assert repr(bare) == "Graph('a\\nb', 3 vertices, 3 stored entries, undirected)"
    assert "\n" not in repr(result)

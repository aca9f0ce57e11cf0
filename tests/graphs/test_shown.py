"""Tables that notebooks show for graphs and runs, and runs read back as arrays."""
import numpy as np
import pytest
from graphs import make, several_labels

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError, InputNotFoundError


@pytest.fixture
def run(tmp_path):
    graph = make()
    config = Config(epochs=4, hidden=8, eval_every=2, out=str(tmp_path / "run"))
    return graph, hpgcn.train(graph, config)


def test_graphs_are_shown_as_tables(tmp_path):
    graph = make(directed=True, weighted=True, sparse=True)
    shown = graph._repr_html_()
    for words in ("<caption>graph made</caption>", "<th style=\"text-align:left\">vertices</th>",
                  ">203<", ">directed<", ">float32<", ">13, sparse<", ">5<", "vertices to train"):
        assert words in shown
    assert "rows held" not in shown
    assert ">10 to 30<" in graph.slab(10, 30)._repr_html_()
    assert "labels a vertex" in several_labels(make())._repr_html_()
    hpgcn.save(graph, tmp_path / "g.h5")
    assert ">203<" in hpgcn.load(tmp_path / "g.h5")._repr_html_()


def test_names_are_escaped():
    graph = hpgcn.Graph.from_scipy(np.eye(3), name="<b>&\x1b")
    assert "<caption>graph &lt;b&gt;&amp;\\x1b</caption>" in graph._repr_html_()


def test_results_are_shown_as_tables(run):
    _, result = run
    for shown in (result._repr_html_(), hpgcn.read_run(result["out"])._repr_html_()):
        for words in ("test accuracy", f"{100 * result['test_acc']:.2f}%", ">p2p<", "epochs",
                      "0 (0 predicted)", result["out"], ">gcn<"):
            assert words in shown


def test_a_run_is_read_back_as_arrays(run, tmp_path):
    _, result = run
    found = hpgcn.read_run(result["out"])
    assert repr(found) == f"Run({result['out']!r}, 4 epochs)"
    assert found.metrics["epoch"].tolist() == [1, 2, 3, 4]
    assert found.metrics["loss"].tolist() == [each["loss"] for each in result.history]
    assert np.isnan(found.metrics["val_acc"]).tolist() == [
        each["val_acc"] is None for each in result.history]
    assert found.summary["test_acc"] == result["test_acc"]
    pandas = pytest.importorskip("pandas")
    assert isinstance(found.frame, pandas.DataFrame)
    assert found.frame.index.tolist() == [1, 2, 3, 4]
    (tmp_path / "run" / "summary.json").unlink()
    unfinished = hpgcn.read_run(result["out"])
    assert unfinished.summary == {} and "unfinished" in repr(unfinished)
    assert "unfinished" not in unfinished._repr_html_() and ">4<" in unfinished._repr_html_()
    with pytest.raises(InputNotFoundError, match="nowhere"):
        hpgcn.read_run(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file"):
        hpgcn.read_run(tmp_path / "file")

"""A step on array shapes allocates the arrays of a real step; ranks use the predicted memory."""
from dataclasses import replace

import pytest
from graphs import make, several_labels
from held import check_held, footprint_of, run_two_epochs
from training import PLAIN

import hpgcn
from hpgcn import store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.planning.counts.plan_input import PlanInput

# in tests/ranks the arrays of gat are those that are planned in every run
EACH = [pytest.param(name, marks=[pytest.mark.long] * (name == "gat")) for name in PLAIN]


def check_run(source, config, inputs=None):
    inputs = inputs or PlanInput(source, config)
    trainer, _ = run_two_epochs(source, config, SerialComm())
    check_held(footprint_of(source, config, SerialComm(), inputs), trainer)


def settings_of(model):
    model, _, aggregator = model.partition("-")
    return {"model": model, **({"aggregator": aggregator} if aggregator else {})}


@pytest.mark.parametrize("train", [8, None], ids=["pruned", "all rows"])
@pytest.mark.parametrize("drops", [False, True], ids=["keeps T", "drops T"])
@pytest.mark.parametrize("model", EACH)
def test_every_model(model, drops, train, monkeypatch):
    graph = make(n=400, c=40, degree=1.5, train=train)
    config = Config(**settings_of(model), layers=3, hidden=20)
    inputs = PlanInput(graph, config)
    inputs.spec = replace(inputs.spec, drop_AX=drops)
    monkeypatch.setattr("hpgcn.training.setup.run_plan.drops_AX", lambda *_: drops)
    check_run(graph, config, inputs)


@pytest.mark.parametrize("kind, settings", [
    ({}, {"input_dropout": 0.0}), ({}, {"layers": 1}), ({"sparse": True}, {"layers": 1}),
    ({"directed": True, "weighted": True}, {"layers": 3, "dtype": "float64"}),
    ({"sparse": True}, {"layer_norm": True, "dtype": "float64"}),
    ({"sparse": True}, {"dtype": "float64"})], ids=str)
@pytest.mark.parametrize("model", EACH)
def test_other_graphs_and_steps(tmp_path, model, kind, settings):
    store.write_graph(tmp_path / "graph.h5", make(n=400, c=6, degree=1.5, train=8, **kind))
    config = Config(**settings_of(model), hidden=16 if "mean" in model else 5, **settings)
    check_run(hpgcn.load(tmp_path / "graph.h5"), config, PlanInput(tmp_path / "graph.h5", config))


@pytest.mark.parametrize("model", EACH)
def test_several_labels(model):
    config = Config(**settings_of(model), prune=False, dtype="float64")
    check_run(several_labels(make(), 3), config)

"""Learned rows of vertices: results of ranks, traffic, memory, checkpoints."""
import numpy as np
import pytest
from graphs import make, scattered, with_edges
from held import check_held, footprint_of, run_two_epochs
from training import (
    WIDE,
    alone,
    assert_same_curves,
    assert_same_on_one_rank,
    loss_and_gradient,
    on_ranks,
    run,
    served,
    settings_of,
    start,
)

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.model import make_spec
from hpgcn.model.embedding import initial_rows
from hpgcn.model.keyed_values import keyed_uniform
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES


def settings(strategy, model, **changes):
    return Config(**{"strategy": strategy, "layers": 2, "hidden": 12, "dropout": 0.4, "seed": 1,
                     "dtype": "float64", "embedding": 7, **WIDE[model], **changes})


@served(ranks=(1, 2, 3, 5), rare="long")
def test_ranks_equal_one(comm, strategy, model):
    heads = {}
    if "heads" in WIDE[model]:
        heads = {"heads": comm.size, "output_heads": comm.size, "hidden": 4 * comm.size}
    graph = make(n=150, directed=True, weighted=True)
    source = scattered(graph, comm) if STRATEGIES[strategy].requires_partition else graph
    config = settings(strategy, model, **heads)
    assert_same_curves(run(source, config, comm)[0], alone(graph, config)[0], 1e-10)


CASES = {
    "alone": ({"f": 0}, {}), "sparse": ({"sparse": True}, {"input_dropout": 0.0}),
    "pruned": ({"train": 9, "degree": 2}, {"layers": 3}),
    "training graph": ({"train": 40}, {"training_graph": "train+val"}),
    "clipped": ({}, {"clip_norm": 0.01}), "adamw": ({}, {"optimizer": "adamw", "warmup": 2}),
    "stack": ({}, {"input_layer": True, "output_layer": True, "norm": "layer", "ffn": True,
                   "residual": True}),
    "residual": ({}, {"residual": True, "norm": "batch", "activation": "gelu"}),
    "one layer": ({}, {"layers": 1}), "wide": ({}, {"embedding": 40, "hidden": 50}),
    "sgd": ({}, {"optimizer": "sgd", "norm_adj": "row"})}


def of_case(kind):
    graph = make(**{"n": 150, **{key: value for key, value in kind.items() if key != "f"}})
    if "f" in kind:
        A, _, y, masks = graph.to_scipy()
        graph = Graph.from_scipy(A, None, y, masks, name="made", classes=True)
    return graph


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "2d", "3d", "mop"])
@on_ranks(1, 2, 3, 5)
def test_other_settings(comm, strategy, case):
    kind, changes = CASES[case]
    config = settings(strategy, "gcn", **changes)
    graph = of_case(kind)
    source = scattered(graph, comm)
    history, _ = run(source, config, comm)
    assert_same_curves(history, alone(graph, config)[0], 1e-10)


@pytest.mark.parametrize("strategy", ["p2p", "vertex-cut", "1.5d"])
@on_ranks(2, 3)
def test_edge_features(comm, strategy):
    graph = with_edges(n=150)
    config = settings(strategy, "gcn").replace(model="gine", hidden=9)
    assert_same_curves(run(scattered(graph, comm), config, comm)[0], alone(graph, config)[0], 1e-10)


@pytest.mark.parametrize("model", ["gcn", "sage-mean", "gin", "gat", "sgc", "appnp", "gine"])
@pytest.mark.parametrize("changes", [{}, {"hidden": 20}, {"residual": True, "hidden": 12}], ids=str)
def test_finite_differences(model, changes):
    if model == "appnp" and changes.get("residual"):
        pytest.skip("appnp has no residual")
    graph = with_edges(n=24, f=5, c=3, directed=True)
    heads = {"heads": 1, "output_heads": 1} if model == "gat" else {}
    config = settings("p2p", "gcn", **{"hidden": 4, **changes}).replace(
        **settings_of(model) | heads)
    with start(graph, config) as trainer:
        rows, scale = trainer.parameters.rows, 1e-6
        gradient = loss_and_gradient(trainer)[1][-rows.size:].reshape(rows.shape).copy()
        for place in ((0, 0), (7, 3), (20, 6), (12, 2)):
            losses = []
            for step in (scale, -scale):
                before = rows[place]
                rows[place] += step
                losses.append(loss_and_gradient(trainer)[0])
                rows[place] = before
            found = (losses[0] - losses[1]) / (2 * scale)
            np.testing.assert_allclose(gradient[place], found, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("batch", ["vertices:40", "neighbors:2,3:25", "neighbors:-1:40"])
@pytest.mark.parametrize("strategy, masks", [("p2p", "all"), ("cover", "train"),
                                             ("vertex-cut", "train+val")])
@on_ranks(1, 2, 3)
def test_batches(comm, strategy, batch, masks):
    graph = make(n=150, directed=True)
    config = settings(strategy, "sage-mean", batch=batch, training_graph=masks)
    assert_same_on_one_rank(graph, scattered(graph, comm), config, comm)


@pytest.mark.parametrize("case", ["alone", "sparse", "pruned", "training graph", "wide"])
@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "1d", "1.5d", "2d", "3d",
                                      "mop"])
@on_ranks(1, 2, 5)
def test_memory_and_traffic_are_planned(comm, strategy, case):
    kind, changes = CASES[case]
    graph = scattered(of_case(kind), comm)
    config = settings(strategy, "gcn", **changes)
    footprint = footprint_of(graph, config, comm, PlanInput(graph, config))
    trainer, metrics = run_two_epochs(graph, config, comm)
    total = footprint.prediction.total_bytes(), footprint.prediction.total_messages()
    assert all((one["sent_bytes"], one["sent_messages"]) == total for one in metrics)
    check_held(footprint, trainer, comm.rank)
    trainer.close()


def of_one_run(graph, config, ranks, **changes):
    result = hpgcn.train(graph, config.replace(**changes), ranks=ranks,
                         resume=changes["out"] if changes["epochs"] == 4 else None)
    return {name: array.tobytes() for name, array in result.weights.items()}


@pytest.mark.parametrize("strategy", ["p2p", "vertex-cut", "2d"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_resumed_run_has_the_same_bits(tmp_path, ranks, strategy):
    graph = make(n=150)
    config = settings(strategy, "gcn", checkpoint_every=1)
    out = str(tmp_path / "whole")
    whole = hpgcn.train(graph, config.replace(epochs=4, out=out), ranks=ranks)
    out = str(tmp_path / "resumed")
    of_one_run(graph, config, ranks, epochs=2, out=out)
    resumed = of_one_run(graph, config, ranks, epochs=4, out=out)
    assert resumed == {name: array.tobytes() for name, array in whole.weights.items()}


def test_a_run_resumes_on_other_ranks_and_predicts(tmp_path):
    graph = make(n=150)
    config = settings("auto", "gcn", checkpoint_every=1)
    out = str(tmp_path / "run")
    expected = hpgcn.train(graph, config.replace(epochs=6, checkpoint_every=0)).weights
    for ranks, strategy, epochs in ((3, "2d", 2), (2, "p2p", 4), (1, "auto", 6)):
        result = hpgcn.train(graph, config.replace(strategy=strategy, epochs=epochs, out=out),
                             ranks=ranks, resume=out if epochs > 2 else None)
    np.testing.assert_allclose(result.weights["embedding"], expected["embedding"], rtol=1e-8)
    np.testing.assert_array_equal(result.vertex_ids, np.arange(150))
    logits = [hpgcn.predict(graph, run, ranks=ranks)["logits"]
              for run, ranks in ((out, 1), (out, 3), (result, 2))]
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-9)
    np.testing.assert_allclose(logits[0], logits[2], rtol=1e-9)


def named(graph, names):
    A, X, y, masks = graph.to_scipy()
    return Graph.from_scipy(A, X, y, masks, original_ids=np.array(names), name="named",
                            classes=True)


def test_rows_are_those_of_the_ids(tmp_path):
    graph = make(n=30)
    names = [f"v{number}" for number in range(30)]
    config = settings("p2p", "gcn", epochs=3, out=str(tmp_path / "run"))
    hpgcn.train(named(graph, names), config, ranks=2)
    expected = hpgcn.predict(named(graph, names), config.out)

    # the same graph with its vertices in another order
    order = np.random.default_rng(1).permutation(30)
    A, X, y, masks = graph.to_scipy()
    moved = Graph.from_scipy(A[order][:, order], X[order], y[order],
                             {name: mask[order] for name, mask in masks.items()},
                             original_ids=np.array(names)[order], classes=True)
    found = hpgcn.predict(moved, config.out, ranks=3)
    np.testing.assert_allclose(found["logits"], expected["logits"][order], rtol=1e-10)

    # vertices that are new
    others = [*names[:28], "new", "newer"]
    with pytest.raises(DataError, match=r"named: 2 of 30 vertices have no learned row in .*run, "
                                        r"first 'new'; predict for the vertices of the training"):
        hpgcn.predict(named(graph, others), config.out)
    with pytest.raises(DataError, match="30 of 30 vertices have no learned row"):
        hpgcn.predict(graph, config.out, ranks=2)


@pytest.mark.parametrize("changes, message", [
    ({"strategy": "vertex-cut", "delay": "2"}, "excludes delay=.2.*remove delay"),
    ({"dtype": "bf16"}, "embedding.* does not support bf16")], ids=str)
def test_what_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(make(n=30), settings("p2p", "gcn").replace(**changes))


def test_first_rows_are_keyed_by_vertices():
    spec = make_spec(make(n=30).header, settings("p2p", "gcn"))
    vertex = np.array([70_000, 3, 16_384, 0])
    rows = initial_rows(spec, vertex, slice(2, 6))
    every = keyed_uniform(spec.seed, "embedding", 70_001 * 7).reshape(-1, 7)
    np.testing.assert_array_equal(rows, (2 * every[vertex, 2:6] - 1) * np.sqrt(3 / 7))

"""Strategy auto-per-layer: exact results, predicted traffic, and a choice for each layer."""
import numpy as np
import pytest
from graphs import make, scattered
from held import check_held, footprint_of, run_two_epochs
from once import once
from training import alone, on_ranks, run

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.partition import make_partition
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES, strategy_by_name
from hpgcn.strategies.per_layer import PerLayer

SETTINGS = {"dtype": "float64", "hidden": 10, "layers": 3, "seed": 3}
NAMES = ["mop+p2p+cover", "p2p+mop+mop", "1d+vertex-cut+1.5d", "cover+1d+mop"]
FEW = {"n": 500, "degree": 1.5, "train": 6}
DIRECTED = {"directed": True, "weighted": True}
KINDS = [{}, DIRECTED, FEW, {**FEW, **DIRECTED}]
DENSE = {"n": 120, "degree": 60}
ATTENTION = {"model": "gat", "heads": 12, "output_heads": 4, "hidden": 36, "epochs": 3,
             "dtype": "float64", "attention_dropout": 0.2}


@pytest.mark.parametrize("changed", [{}, {"input_dropout": 0.0}], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_as_one_rank_does(comm, name, kind, changed):
    config = Config(strategy=name, **{**SETTINGS, **changed})
    graph = make(**kind)
    one, expected = alone(graph, config)
    ours, weights = run(scattered(graph, comm), config, comm)  # which sends what was predicted
    for key in ("loss", "val_loss"):
        curves = ([entry[key] for entry in history] for history in (ours, one))
        np.testing.assert_allclose(*curves, rtol=1e-12)
    np.testing.assert_allclose(weights, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("changed", [{}, {"input_dropout": 0.0, "hidden": 20}], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_each_layer_sends_what_its_own_strategy_does(comm, name, kind, changed):
    graph = scattered(make(**kind), comm)
    config = Config(strategy=name, **{**SETTINGS, **changed})
    inputs = PlanInput(graph, config)
    footprint = footprint_of(graph, config, comm, inputs)
    alone = {}
    for each in name.split("+"):
        strategy = STRATEGIES[each]
        shape = strategy.default_shape(comm.size)
        alone[each] = count(inputs.ordered, inputs, strategy, shape, graph.offsets)

    trainer, metrics = run_two_epochs(graph, config, comm)
    itemsize = footprint.spec.row_itemsize
    plans = [alone[each].train_plans[hop] for hop, each in enumerate(name.split("+"))]
    sent = sum(plans[each.layer].traffic.counts(each, itemsize)
               for each in footprint.products)
    total = footprint.prediction
    assert total.total_bytes() == sent[0].sum() + total.non_aggregation_total("bytes")
    assert total.total_messages() == sent[1].sum() + total.non_aggregation_total("messages")
    for one in metrics:
        assert (one["sent_bytes"], one["sent_messages"]) == (total.total_bytes(),
                                                             total.total_messages())

    check_held(footprint, trainer, comm.rank)
    buffers = sum(each.plan.buffer_bytes(footprint.widest, itemsize) for each in alone.values())
    np.testing.assert_array_equal(footprint.parts["buffers"], buffers)
    maps = [type(each).name for each in trainer.shard.train.maps if each]
    assert maps == name.split("+")[-len(maps):]
    trainer.close()


def partitioned(graph, comm, folder):
    """Write the graph with one random part for each rank; return the file's path."""
    path = comm.bcast(folder / "parts.h5")
    if comm.rank == 0:
        store.write_partitioned(path, graph, make_partition(graph, comm.size, method="random"))
    comm.barrier()
    return path


@once
def history_of_one_rank(graph, config):
    return hpgcn.train(graph, config).history


@pytest.mark.long
@on_ranks(1, 3)
def test_a_layer_of_heads_that_ranks_cannot_share_takes_another(comm, tmp_path):
    """A layer whose attention heads cannot be divided among the ranks gets another strategy."""
    path = partitioned(make(**DENSE), comm, tmp_path)
    config = Config(strategy="auto-per-layer", **ATTENTION)
    chosen = hpgcn.train(path, config, comm)
    for ours, theirs in zip(chosen.history, history_of_one_rank(make(**DENSE), config),
                            strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-12)
    for kind in ("bytes", "messages"):
        assert chosen[f"sent_{kind}_per_epoch"] == chosen[f"predicted_{kind}_per_epoch"]
    if comm.size == 1:
        assert chosen["strategy"] == "p2p" and not chosen["strategy_choice"]
        return
    rows = hpgcn.train(path, config.replace(strategy="p2p", epochs=1), comm)
    first, last = chosen["strategy"].split("+")
    assert first == "mop" != last
    assert chosen["strategy_choice"].startswith(f"{comm.size} ranks, mop+")
    assert chosen["sent_bytes_per_epoch"] < 0.8 * rows["sent_bytes_per_epoch"]


@on_ranks(1, 3)
def test_the_plan_lists_what_layers_take(comm, tmp_path):
    path = partitioned(make(**DENSE), comm, tmp_path)
    config = Config(prune=False, **{**ATTENTION, "attention_dropout": 0.0, "epochs": 1})
    if comm.size > 1:
        rows = None
        if comm.rank == 0:
            rows = forecast(path, Options(ranks=(comm.size,), config=config))["rows"]
        listed = {row["strategy"]: row for row in comm.bcast(rows)}
        name = next(each for each in listed if "+" in each)
        run_of = hpgcn.train(path, config.replace(strategy=name), comm)
        assert listed[name]["bytes"]["total"] == run_of["sent_bytes_per_epoch"]
        assert listed[name]["messages"]["total"] == run_of["sent_messages_per_epoch"]
    if comm.rank == 0:
        one_layer = forecast(path, Options(ranks=(comm.size,), config=config.replace(layers=1)))
        assert not any("+" in row["strategy"] for row in one_layer["rows"])
    comm.barrier()


@pytest.mark.long
@on_ranks(1, 3)
def test_a_run_is_resumed_and_predicts(comm, tmp_path):
    graph = scattered(make(directed=True), comm)
    out = comm.bcast(str(tmp_path / "run"))
    config = Config(strategy="mop+p2p+cover", **SETTINGS, epochs=4, checkpoint_every=2)
    expected = hpgcn.train(graph, config.replace(checkpoint_every=0), comm)
    hpgcn.train(graph, config.replace(out=out, epochs=2), comm)
    comm.barrier()
    resumed = hpgcn.train(graph, config.replace(out=out), comm, resume=out)
    comm.barrier()
    assert resumed["strategy"] == "mop+p2p+cover"
    assert resumed["final_loss"] == expected["final_loss"]
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], array)
    ours = hpgcn.predict(graph, out, comm)
    theirs = hpgcn.predict(make(directed=True), resumed)
    if comm.rank == 0:
        np.testing.assert_allclose(ours["logits"], theirs["logits"], rtol=1e-9, atol=1e-12)
    comm.barrier()


@on_ranks(1, 3)
@pytest.mark.parametrize("name, settings, message", [
    ("mop+p2p", {"layers": 3}, "names strategies for 2 products with A, but the model has 3"),
    ("mop+2d", {}, "'2d' divides rows, expected strategies that keep rows whole: p2p, cover"),
    ("mop+p3p", {}, "'p3p' is unknown; did you mean p2p"),
    ("mop+p2p", {"replication": 1}, "replication = 1: only for strategy 1.5d"),
    ("mop+p2p", {"delay": "5"}, "delay = '5': only for strategy vertex-cut"),
    ("mop+p2p", {"batch": "vertices:20"}, r"mop.p2p supports only full batches")], ids=str)
def test_what_cannot_be_is_refused(comm, name, settings, message):
    with pytest.raises(hpgcn.HpgcnError, match=message):
        hpgcn.train(scattered(make(), comm), Config(strategy=name, **settings), comm)


@on_ranks(1, 3)
def test_a_product_alone_takes_one_strategy(comm):
    with pytest.raises(UsageError, match="2 products with A, but the model has 1"):
        hpgcn.propagation(make(), comm, strategy="mop+p2p")


def test_strategies_of_one_name_share_a_map():
    strategy = strategy_by_name("mop+p2p+mop")
    assert issubclass(strategy, PerLayer) and strategy is strategy_by_name("mop+p2p+mop")
    assert strategy.requires_partition and not strategy_by_name("mop+1d").requires_partition

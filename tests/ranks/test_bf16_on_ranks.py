"""Training with bf16 rows: same losses on any number of ranks, half the bytes, predicted memory.

A sum in another order may round to a neighboring bf16 number. That happens to one
number in thousands and changes losses by 1e-6 to 1e-5 in ten epochs. Losses with
float64 rows differ by 1e-4. The mean of two bf16 numbers is often halfway between two
others, so the order decides. Losses of sage therefore differ by up to 2e-4, and by 6e-4
from float64. Rounding only sent rows, or partial sums, would make ranks differ by as
much.
"""
import tempfile
from pathlib import Path

import numpy as np
import pytest
from graphs import make, scattered, several_labels
from training import alone, metrics_of, on_ranks, run, start

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import HpgcnError, UsageError
from hpgcn.planning.answers.dry_run import forecast
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.placement import assign_rows

HALVING = [name for name, each in STRATEGIES.items() if each.supports_bf16]
CURVE, SHARE = 1e-4, 0.3  # how far losses differ at most; in the mean, of what wide rows do
OF_MEANS = 1e-3, 0.7  # the same of models that take means
MODELS = {"gcn": {}, "sage-mean": {"model": "sage"}, "sgc": {"model": "sgc"},
          "mlp first": {"input_layer": True, "output_layer": True},
          "A X once": {"input_dropout": 0}, "sage, A X once": {"model": "sage", "input_dropout": 0},
          "sage-gcn": {"model": "sage", "aggregator": "gcn"}, "several labels": {},
          "A first": {"hidden": 20},
          "all rows": {"prune": False}}

pytestmark = pytest.mark.long  # kernels of 16 bits take long to compile


def settings(**changes):
    return Config(**{"strategy": "p2p", "layers": 3, "hidden": 10, "dropout": 0.4, "seed": 3,
                     "dtype": "bf16", **changes})


def losses(history):
    return np.array([[entry["loss"], entry["val_loss"]] for entry in history])


def assert_the_same_curve(graph, source, config, comm):
    """Compare losses with those of one rank, and require that rounding changes both alike."""
    ours, one, wide = map(losses, (
        run(source, config, comm)[0], alone(graph, config)[0],
        alone(graph, config.replace(dtype="float64"))[0]))
    bound, share = OF_MEANS if config.model == "sage" else (CURVE, SHARE)
    np.testing.assert_allclose(ours, one, rtol=bound)
    away = np.abs(one - wide).mean()
    assert 0 < away < 0.02 * wide.mean()  # rounding changes the losses, but little
    assert np.abs(ours - one).mean() <= share * away


@pytest.mark.parametrize("directed, sparse", [(False, False), (True, True)])
@pytest.mark.parametrize("strategy", HALVING)
def test_any_strategy_has_the_curve_of_one_rank(comm, strategy, directed, sparse):
    graph = make(directed=directed, weighted=directed, sparse=sparse)
    assert_the_same_curve(graph, scattered(graph, comm), settings(strategy=strategy), comm)


@on_ranks(1, 3, 5)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_any_model_has_the_curve_of_one_rank(comm, model, directed):
    graph = make(directed=directed)
    if model == "several labels":
        graph = several_labels(graph)
    assert_the_same_curve(graph, scattered(graph, comm), settings(**MODELS[model]), comm)


@on_ranks(1, 4)
@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("strategy", ["p2p", "1d"])
def test_messages_are_exactly_half(comm, strategy, prune):
    source = scattered(make(), comm)
    found = {}
    for dtype in ("float32", "bf16"):
        before = dict(comm.counters.bytes)
        trainer = start(source, settings(strategy=strategy, dtype=dtype, prune=prune), comm)
        with trainer:
            metrics_of(trainer, 1)
        found[dtype] = comm.sum([comm.counters.bytes.get(key, 0) - before.get(key, 0)
                                 for key in (("train", "aggregation"), ("train", "weights"),
                                             ("eval", "aggregation"))])
    rows, weights, evaluated = found["bf16"]
    np.testing.assert_array_equal(found["float32"], (2 * rows, weights, 2 * evaluated))
    assert comm.size == 1 or rows > 0


@on_ranks(2, 4)
def test_sums_over_replicas_stay_as_they_are(comm):
    source = scattered(make(), comm)
    counts = {}
    for dtype in ("float32", "bf16"):
        trainer = start(source, settings(strategy="1.5d", dtype=dtype), comm)
        with trainer:
            metrics_of(trainer, 1)
            step = trainer.plan.steps.full_step
            counts[dtype] = sum(step.bytes["aggregation", phase].sum()
                                for phase in ("forward", "backward"))
            replicas = trainer.shard.strategy.replication
    # n (c - 1) rows are gathered, n (P/c - 1) pass in stages, n (c - 1) return as sums
    moved = 2 * (replicas - 1) + comm.size // replicas - 1
    assert counts["bf16"] * 2 * moved == counts["float32"] * (moved + replicas - 1)


@on_ranks(3)
def test_sums_that_return_stay_as_they_are(comm):
    """With bf16, the rows that p2p sends forward need half the bytes.

    Backward partial sums stay float32.
    """
    source = scattered(make(directed=True), comm)
    planned = {}
    for dtype in ("float32", "bf16"):
        trainer = start(source, settings(dtype=dtype), comm)
        with trainer:
            metrics_of(trainer, 1)
            step = trainer.plan.steps.full_step
        planned[dtype] = [step.bytes["aggregation", phase].sum()
                          for phase in ("forward", "backward")]
    assert planned["float32"][0] == 2 * planned["bf16"][0]
    assert planned["float32"][1] == planned["bf16"][1]


@on_ranks(1, 3, 5)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("strategy", HALVING)
@pytest.mark.parametrize("model", ["gcn", "sage-mean", "A X once"])
def test_a_dry_run_says_what_is_held(comm, strategy, directed, model):
    graph = make(directed=directed)
    config = settings(strategy=strategy, **MODELS[model])
    said = forecast(assign_rows(scattered(graph, comm), comm, config), config, comm)
    trainer = start(scattered(graph, comm), config, comm)
    with trainer:
        trainer.train_epoch(1)
        trainer.evaluate_epoch({"epoch": 1, "loss": 0})
        memory = said["memory"][comm.rank]
        workspace = trainer.training.model.workspace
        dropped = workspace.arrays["X"].nbytes if "X" in workspace.arrays else 0
        assert workspace.nbytes - dropped == memory["activations"]
        assert trainer.shard.strategy.buffer_bytes == memory["buffers"]
        features = {id(array): array.nbytes for view in (trainer.training, trainer.evaluation)
                    for array in view.features.arrays()}
        assert sum(features.values()) + dropped == memory["features"]
    for name in ("bytes", "messages"):
        key = f"predicted_{name}_per_epoch"
        assert said[key] == getattr(trainer.run_info, key)


@on_ranks(1, 4)
@pytest.mark.parametrize("batch", ["vertices:40", "neighbors:4,3,2:20"])
@pytest.mark.parametrize("directed", [False, True])
def test_batches_have_the_curve_of_one_rank(comm, batch, directed):
    graph = make(directed=directed)
    config = settings(batch=batch)
    if directed and batch.startswith("vertices"):
        config = config.replace(model="sage")
    found = []
    for source, ranks in ((scattered(graph, comm), comm), (graph, SerialComm())):
        trainer = start(source, config, ranks)
        with trainer:
            found.append([trainer.train_epoch(epoch)["loss"] for epoch in (1, 2)])
    np.testing.assert_allclose(*found, rtol=OF_MEANS[0] if config.model == "sage" else CURVE)


@on_ranks(3)
def test_a_run_that_goes_on_has_the_bits_of_an_undisturbed_one(comm):
    source = scattered(make(), comm)
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))

    def train(name, epochs, **resume):
        config = settings(out=str(folder / name), epochs=epochs, checkpoint_every=2)
        return hpgcn.train(source, config, comm.mpi, **resume)

    whole = train("whole", 4)
    train("cut", 2)
    found = train("cut", 4, resume=folder / "cut")
    assert [one["loss"] for one in whole.history] == [one["loss"] for one in found.history]
    for name, array in whole.weights.items():
        assert array.dtype == np.float32
        assert array.tobytes() == found.weights[name].tobytes()
    comm.barrier()


@on_ranks(1, 4)
def test_predictions_are_float32_and_those_of_one_rank(comm):
    graph = make()
    result = hpgcn.train(scattered(graph, comm), settings(epochs=2), comm.mpi)
    ours = hpgcn.predict(scattered(graph, comm), result, comm.mpi)
    if comm.rank == 0:
        alone = hpgcn.predict(graph, result)
        for name in ("logits", "embedding"):
            assert ours[name].dtype == np.float32
            np.testing.assert_allclose(ours[name], alone[name], rtol=2e-2, atol=2e-2)
            assert np.abs(ours[name] - alone[name]).mean() < 1e-4
        assert (ours["label"] == alone["label"]).mean() > 0.99


@on_ranks(1, 4)
@pytest.mark.parametrize("changes, message", [
    ({"model": "gat"}, "model gat does not support bf16; expected one of gcn, "),
    ({"activation": "gelu"}, "activation gelu does not support bf16; expected relu"),
    ({"norm": "layer"}, "norm = 'layer' does not support bf16; expected none"),
    ({"residual": True}, "residual = True does not support bf16"),
    ({"jump": "cat", "output_layer": True}, "jump = 'cat' does not support bf16"),
    ({"strategy": "2d"}, "strategy = '2d': it does not support dtype bf16; expected p2p"),
    ({"strategy": "vertex-cut", "delay": "2"}, "vertex-cut' with a delay: it does not support")])
def test_what_takes_no_such_rows_is_refused_on_all_ranks(comm, changes, message):
    with pytest.raises(UsageError) as refused:
        hpgcn.train(scattered(make(), comm), settings(**changes), comm.mpi)
    assert message in str(refused.value)
    assert isinstance(refused.value, HpgcnError)


@on_ranks(3)
def test_auto_chooses_what_takes_them(comm):
    config = settings(strategy="auto", epochs=1)
    result = hpgcn.train(scattered(make(), comm), config, comm.mpi)
    assert result["strategy"] in HALVING

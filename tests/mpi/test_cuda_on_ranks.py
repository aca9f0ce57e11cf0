"""Training on GPUs with several ranks has the losses, metrics and traffic of training on CPUs."""
import fake_cupy
import numpy as np
import pytest
from cuda_ranks import held_bytes, real_or_fake
from graphs import make, scattered, several_labels
from mpi4py import MPI
from training import LATER, SETTINGS, assert_same_curves, run, start

import hpgcn
from hpgcn.comm import as_comm
from hpgcn.config import Config
from hpgcn.planning.answers.dry_run import forecast
from hpgcn.runtime.device import choose
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.placement import assign_rows

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def cuda():
    """Provide a fake GPU that delays all work as long as possible; None if a real GPU exists."""
    late = ("all", "kernels")[MPI.COMM_WORLD.Get_size() % 2]
    with real_or_fake(late=late) as device:
        yield device


@pytest.fixture
def gpus(cuda, comm):
    gpus = as_comm(comm.mpi, timeout=60)
    gpus.use(choose("cuda", gpus))
    yield gpus
    gpus.device.synchronize()
    fake_cupy.Stream.alive.clear()


def check(graph, config, comm, gpus, **options):
    source = scattered(graph, comm)
    expected, flat = run(source, config, comm, 3)
    history, weights = run(source, config.replace(**options), gpus, 3)
    assert_same_curves(history, expected, 1e-12)
    assert np.linalg.norm(weights - flat) <= 1e-11 * np.linalg.norm(flat)


def settings(model, **options):
    options = {"hidden": 7, "layers": 3, "dropout": 0.4, "seed": 3, "dtype": "float64", **options}
    return Config(**SETTINGS[model], **options)


KINDS = [("gcn", {"directed": True, "sparse": True, "train": 9, "degree": 3}, {}),
         ("sage-mean", {"directed": True, "degree": 8}, {"input_dropout": 0.0, "hidden": 20}),
         ("gin", {"directed": False, "train": 9, "degree": 3}, {"layer_norm": True})]


def cases():
    """Yield (strategy, model, graph, options): one model for each strategy, the others for release.

    test_trainer_cuda.py trains all models on one rank.
    """
    for turn, strategy in enumerate(STRATEGIES):
        for number, kind in enumerate(KINDS):
            marks = [pytest.mark.long] * (strategy in LATER)
            marks += [pytest.mark.release] * (number != turn % len(KINDS))
            yield pytest.param(strategy, *kind, marks=marks)


@pytest.mark.parametrize("strategy, model, graph, options", cases())
def test_every_strategy_and_model(comm, gpus, strategy, model, graph, options):
    graph = make(weighted=True, **graph)
    if model == "sage-mean":
        graph = several_labels(graph, 3)
    check(graph, settings(model, strategy=strategy, **options), comm, gpus)


@pytest.mark.parametrize("model", ["gcn", pytest.param("gat", marks=pytest.mark.long)])
@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name in LATER)) for name in STRATEGIES])
def test_repeated_steps(comm, gpus, strategy, model):
    P = gpus.size
    heads = {"hidden": 2 * P, "heads": P, "output_heads": P} if model == "gat" else {}
    config = settings(model, strategy=strategy).replace(**heads)
    source = scattered(make(directed=True, weighted=True), comm)
    found = []
    for replay in ("auto", "never"):
        trainer = start(source, config.replace(replay=replay), gpus)
        before = gpus.counters.total("train")
        losses = [trainer.train_epoch(number)["loss"] for number in range(1, 7)]
        sent = [now - was for now, was in zip(gpus.counters.total("train"), before)]
        found.append((losses, gpus.device.get(trainer.parameters.flat).tobytes(), sent))
        assert replay == "never" or trainer.training.replay.replay is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name in LATER))
    for name, each in STRATEGIES.items() if each.supports_nodes])
def test_rows_cross_to_each_node_once(comm, gpus, strategy):
    for ranks in (comm, gpus):
        ranks.nodes = np.minimum(np.arange(comm.size), 1)  # rank 0, and all others
    graph = make(directed=True, weighted=True, train=9, degree=8)
    check(graph, settings("gcn", strategy=strategy, node_aware="always"), comm, gpus)


@pytest.mark.parametrize("batch", ["vertices:60", "neighbors:3,2,2:25"])
@pytest.mark.parametrize("strategy, model", [
    pytest.param(name, model, marks=[pytest.mark.long] * (turn > 0))
    for turn, (name, model) in enumerate(zip(
        [name for name, each in STRATEGIES.items() if each.supports_minibatches],
        ["gcn", "gat", "sage-mean"]))])
def test_batches(comm, gpus, batch, strategy, model):
    source = scattered(make(directed=True, weighted=True, sparse=model == "sage-mean"), comm)
    config = settings(model, strategy=strategy, batch=batch)
    found = []
    for ranks in (comm, gpus):
        with start(source, config, ranks) as trainer:
            epochs = [trainer.train_epoch(epoch) for epoch in (1, 2)]
            found.append([[epoch[name] for name in ("loss", "sent_bytes", "sent_messages",
                                                    "asked_bytes")] for epoch in epochs])
    np.testing.assert_allclose(*found, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("model, graph, options", [
    ("gcn", {"directed": True, "train": 9, "degree": 3}, {"pipeline_batches": 3}),
    ("gin", {"directed": False, "degree": 8}, {"pipeline_batches": 1}),
    ("sage-mean", {"directed": True, "degree": 8}, {"pipeline_batches": 3, "layer_norm": True})])
def test_aggregation_on_the_host(comm, gpus, model, graph, options):
    config = settings(model, strategy="mop", **options)
    check(make(weighted=True, **graph), config, comm, gpus, aggregate_on="cpu", update_on="cuda")


@pytest.mark.long
@pytest.mark.parametrize("strategy", [
    name for name, each in STRATEGIES.items() if each.supports_bf16])
def test_rows_of_16_bits(comm, gpus, strategy):
    config = settings("gcn", strategy=strategy, dtype="bf16")
    source = scattered(make(directed=True, weighted=True), comm)
    (mine, _), (theirs, _) = (run(source, config, ranks, 3) for ranks in (comm, gpus))
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose([entry[key] for entry in mine],
                                   [entry[key] for entry in theirs], rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("delay, sparse", [("none", True), ("1", False), ("2", True)])
def test_delayed_sums(comm, gpus, delay, sparse):
    config = settings("gcn", strategy="vertex-cut", delay=delay)
    source = scattered(make(directed=True, weighted=True, sparse=sparse), comm)
    losses = []
    for ranks in (comm, gpus):
        trainer = start(source, config, ranks)
        losses.append([])
        for epoch in range(1, 8):
            found = trainer.train_epoch(epoch)
            trainer.evaluate_epoch(found)
            losses[-1].append([found[name] for name in ("loss", "val_loss", "sent_bytes")])
        trainer.close()
    np.testing.assert_allclose(*losses, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("strategy, options", [
    ("vertex-cut", {"delay": "2"}),
    ("mop", {"aggregate_on": "cpu", "update_on": "cuda", "pipeline_batches": 3}),
    *((strategy, {}) for strategy in STRATEGIES)])
def test_memory_is_what_was_told(comm, cuda, gpus, strategy, options):
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    fake_cupy.Stream.alive.clear()
    before = held_bytes()
    config = Config(strategy=strategy, device="cuda", hidden=24, layers=3, dtype="float64",
                    **options)
    source = scattered(make(n=2000, f=40, directed=True), comm)
    told = forecast(assign_rows(source, gpus, config), config, gpus)
    predicted = told["gpu_memory"][comm.rank]
    trainer = start(source, config, gpus)
    for epoch in (1, 2):
        trainer.evaluate_epoch(trainer.train_epoch(epoch))
    fake_cupy.Stream.alive.clear()
    held = held_bytes() - before
    trainer.close()
    assert held <= predicted["total"]
    assert predicted["total"] - predicted["kernels"] <= 1.15 * held


@pytest.mark.parametrize("strategy", ["2d", pytest.param("mop", marks=pytest.mark.long)])
def test_trained_on_gpus_and_predicted_on_cpus(comm, cuda, tmp_path, strategy):
    out = comm.bcast(str(tmp_path / "run"))
    source = scattered(make(directed=True), comm)
    config = Config(strategy=strategy, out=out, epochs=3, hidden=6, device="cuda",
                    dtype="float64")
    assert hpgcn.train(source, config, comm)["device"] == "cuda"
    comm.barrier()  # other ranks may finish before rank 0 has written the model
    one, other = (hpgcn.predict(source, out, comm, device=name) for name in ("cpu", "cuda"))
    if comm.rank == 0:
        for key in ("logits", "embedding"):
            np.testing.assert_allclose(one[key], other[key], atol=1e-12)
    comm.barrier()

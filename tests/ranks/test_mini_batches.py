"""Mini-batches, losses and weights are the same for any number of ranks and any strategy."""
import numpy as np
import pytest
from graphs import make, scattered, several_labels
from once import once
from training import SETTINGS, assert_same_curves, on_ranks

from hpgcn import store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.partition import Partition, make_partition
from hpgcn.planning.answers.batch_report import WHOLE_STEPS, batches_of
from hpgcn.planning.counts.batch_traffic import COUNTED
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.sampling import parse
from hpgcn.strategies import STRATEGIES
from hpgcn.training.run import train
from hpgcn.training.trainer import make_trainer

SAMPLING = [name for name, each in STRATEGIES.items() if each.supports_minibatches]
BATCHES = ["vertices:60", "parts:3:10", "neighbors:3:25", "neighbors:-1:40"]
EPOCHS = 2
# every shape of heads is compiled
HEADS = {"gat": {"heads": 4, "output_heads": 4, "hidden": 12}}


def settings(model, **changes):
    return Config(**{"hidden": 12, "dtype": "float64", "seed": 3, **changes, **SETTINGS[model],
                     **HEADS.get(model, {})})


def in_parts(graph, comm, tmp_path, kind="scattered"):
    """Return the graph partitioned for these ranks.

    It is a stored file unless `kind` is "scattered".
    """
    if kind == "scattered":
        return scattered(graph, comm)
    path = comm.bcast(tmp_path / f"{kind}.h5")
    if comm.rank == 0:
        store.write_partitioned(path, graph, make_partition(graph, comm.size, method=kind))
    comm.barrier()
    return store.load(path)


def curves(source, config, comm):
    """Train two epochs; return their metrics, the parameters, and the run's forecast."""
    trainer = make_trainer(source, config, comm, warm=False)
    with trainer:
        history = []
        for epoch in range(1, EPOCHS + 1):
            history.append(trainer.train_epoch(epoch))
            trainer.evaluate_epoch(history[-1])
        return history, trainer.parameters.flat.copy(), trainer.run_info


@once
def of_one_rank(graph, config):
    return curves(graph, config.replace(strategy="p2p"), SerialComm())[:2]


def batch_of(batch, graph, tmp_path, comm):
    """Return the setting `batch`; for "parts", write a file of parts and return parts:3:FILE."""
    if not batch.startswith("parts"):
        return batch
    path = comm.bcast(tmp_path / "batches.h5")
    if comm.rank == 0 and not path.exists():
        part = np.random.default_rng(3).integers(0, 10, graph.num_rows)
        store.write_partitioned(path, graph, Partition.from_parts(part, 10))
    comm.barrier()
    return f"parts:3:{path}"


@pytest.mark.parametrize("strategy, turn", [(name, turn % 2) for turn, name in enumerate(SAMPLING)])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", SETTINGS)
def test_batches_equal_those_of_one_rank(comm, tmp_path, strategy, turn, batch, model):
    directed = (turn + BATCHES.index(batch) + list(SETTINGS).index(model)) % 2 > 0
    graph = make(directed=directed, weighted=directed, sparse=model == "sgc")
    config = settings(model, strategy=strategy, layers=2, dropout=0.3,
                      batch=batch_of(batch, graph, tmp_path, comm))
    alone, weights = of_one_rank(graph, config)
    reads_holders = STRATEGIES[strategy].accepts_nonzero_owners
    source = in_parts(graph, comm, tmp_path, "vertex-cut" if reads_holders else "scattered")
    found, found_weights, _ = curves(source, config, comm)
    assert_same_curves(found, alone, 1e-9)
    np.testing.assert_allclose(found_weights, weights, rtol=1e-6, atol=1e-9)
    if model == "gcn":
        again, same_weights, _ = curves(source, config, comm)
        assert [line["loss"] for line in again] == [line["loss"] for line in found]
        np.testing.assert_array_equal(same_weights, found_weights)
    comm.barrier()


@on_ranks(1, 3, 4, 5)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("strategy", SAMPLING)
@pytest.mark.parametrize("batch, effort", [
    ("vertices:60", "auto"), ("parts:2:6", "auto"), ("parts:2:4", "best"), ("parts:1:4", "fast"),
    ("neighbors:3:25", "auto")])
def test_batches_of_a_graph_without_parts_equal_those_of_one_rank(comm, tmp_path, strategy, stored,
                                                                  batch, effort):
    """Parts of ranks, made by another method or effort and kept, are not those of batches."""
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    graph = source = make(directed=True)
    if stored:
        path = comm.bcast(tmp_path / "g.h5")
        if comm.rank == 0:
            store.write_graph(path, graph)
        comm.barrier()
        source = store.load(path)
    config = settings("gcn", strategy=strategy, dropout=0.0, batch=batch, effort=effort)
    alone, weights = of_one_rank(graph, config)
    found, found_weights, _ = curves(source, config, comm)
    assert_same_curves(found, alone, 1e-9)
    np.testing.assert_allclose(found_weights, weights, rtol=1e-6, atol=1e-9)
    comm.barrier()


@pytest.mark.long
@on_ranks(1, 3, 5)
@pytest.mark.parametrize("batch", ["vertices:60", "neighbors:3:25"])
@pytest.mark.parametrize("options", [
    {"norm": "batch"}, {"norm": "layer", "residual": True}, {"jump": "cat", "output_layer": True},
    {"jump": "max", "output_layer": True}, {"ffn": True, "input_layer": True, "output_layer": True},
    {"class_weight": "balanced", "label_smoothing": 0.1}, {"labels": 4},
    {"model": "appnp", "hops": 3, "norm": "batch"}], ids=str)
def test_stacks_and_losses_equal_those_of_one_rank(comm, batch, options):
    options = dict(options)
    graph = make(sparse=True)
    if options.pop("labels", None):
        graph = several_labels(graph)
    config = Config(strategy="cover", hidden=10, dropout=0.3, dtype="float64", seed=3,
                    **{"layers": 3, "batch": batch, **options})
    alone, _ = of_one_rank(graph, config)
    found, *_ = curves(scattered(graph, comm), config, comm)
    assert_same_curves(found, alone, 1e-8)


@pytest.mark.long
@on_ranks(3, 5)
def test_a_batch_of_everything_is_the_full_batch(comm):
    graph = make()
    source = scattered(graph, comm)
    config = Config(strategy="cover", hidden=10, dtype="float64", layers=3)
    full, *_ = curves(source, config, comm)
    for batch in ("vertices:1000", "neighbors:-1:1000", "neighbors:500,500,500:100000"):
        found, *_ = curves(source, config.replace(batch=batch), comm)
        assert_same_curves(found, full, 1e-10)


@pytest.mark.long
@on_ranks(3, 5)
@pytest.mark.parametrize("strategy", SAMPLING)
@pytest.mark.parametrize("batch", BATCHES[:3])
@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize("directed", [False, True])
def test_counters_equal_the_plans_of_batches(comm, tmp_path, strategy, batch, model, directed):
    graph = make(directed=directed)
    config = settings(model, strategy=strategy, layers=3,
                      batch=batch_of(batch, graph, tmp_path, comm))
    source = in_parts(graph, comm, tmp_path, "vertex-cut")
    history, _, info = curves(source, config, comm)
    if comm.rank == 0:
        kind = STRATEGIES[strategy]
        planned = config.replace(**WHOLE_STEPS)
        inputs = PlanInput(source.path, planned)
        batches = batches_of(inputs.ordered, inputs, kind, kind.default_shape(comm.size),
                             inputs.offsets, parse(config.batch))
        for line in history:
            steps = [batches.predict(line["epoch"], number) for number in range(line["steps"])]
            for name in ("bytes", "messages"):
                expected = sum(step.summary(name)["total"] for step in steps)
                assert line[f"sent_{name}"] == expected, (line["epoch"], name)
                if line["epoch"] == 1 and len(steps) <= COUNTED:  # all of them are counted
                    assert getattr(info, f"predicted_{name}_per_epoch") == expected
    comm.barrier()


@pytest.mark.long
@on_ranks(3)
@pytest.mark.parametrize("strategy, directed", [
    pytest.param(name, turn % 2 > 0, marks=[pytest.mark.release] * (turn != 1))
    for turn, name in enumerate(SAMPLING)])
@pytest.mark.parametrize("batch", ["vertices:150", "parts:3:10", "neighbors:3:60"])
def test_a_run_knows_what_its_epochs_will_send(comm, tmp_path, strategy, batch, directed):
    """The predicted bytes and messages of an epoch are within 5% of the mean of the sent ones."""
    graph = make(n=1000, directed=directed)
    config = Config(strategy=strategy, hidden=10, epochs=6, eval_every=0, seed=1, dtype="float64",
                    batch=batch_of(batch, graph, tmp_path, comm))
    found = train(in_parts(graph, comm, tmp_path, "vertex-cut"), config, comm.mpi)
    for name in ("bytes", "messages"):
        mean = np.mean([line[f"sent_{name}"] for line in found.history])
        assert mean == pytest.approx(found[f"predicted_{name}_per_epoch"], rel=0.05), name
    comm.barrier()

"""Rows that nobody reads are left out: losses and metrics stay, bytes shrink, and are those predicted."""
import numpy as np
import pytest
from graphs import make

from hpgcn.comm import as_comm
from hpgcn.config import Config
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi


def run(source, config, comm, epochs):
    trainer = Trainer(source, config, comm, warm=False)
    metrics = [trainer.step(epoch) | trainer.evaluate() for epoch in range(1, epochs + 1)]
    sizes = comm.sum(trainer.rows.train.sizes)
    trainer.rows.close()
    return metrics, trainer.predicted, sizes


def parted(graph, comm):
    partition = Partition.from_parts(np.random.default_rng(0).integers(0, comm.size, graph.num_rows), comm.size)
    return graph.permuted(partition.perm, partition.offsets)


def same(comm, graph, config, *, smaller):
    """Train with and without the rows that nobody reads."""
    source = parted(graph, comm)
    pruned, predicted, sizes = run(source, config, comm, 8)
    whole, _, _ = run(source, config.replace(prune=False), comm, 8)
    bound = 1e-5 if config.dtype == "float32" else 1e-10
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose([m[key] for m in pruned], [m[key] for m in whole], rtol=bound)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [m[key] for m in pruned] == [m[key] for m in whole]
    for entry in pruned:
        assert (entry["sent_bytes"], entry["sent_messages"]) == (predicted.bytes, predicted.messages)
    if comm.size > 1 and smaller:
        assert pruned[0]["sent_bytes"] < whole[0]["sent_bytes"]
    return sizes


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("directed, sparse, input_dropout", [(False, False, 0), (True, False, 0.3), (False, True, 0.3)])
def test_the_loss_curve_is_unchanged(comm, strategy, directed, sparse, input_dropout):
    graph = make(n=500, degree=1.5, directed=directed, weighted=directed, sparse=sparse, train=6)
    config = Config(strategy=strategy, layers=3, hidden=10, input_dropout=input_dropout, dtype="float64", seed=1)
    sizes = same(comm, graph, config, smaller=True)
    assert np.all(np.diff(sizes) <= 0)


@pytest.mark.parametrize("strategy", ["p2p", "1.5d", "2d", "mop"])
@pytest.mark.parametrize("model, aggregator", [("sage", "mean"), ("sage", "gcn"), ("gin", "mean")])
@pytest.mark.parametrize("hidden, sparse, input_dropout", [(40, False, 0), (20, False, 0.5), (6, True, 0.5)])
def test_of_other_models_too(comm, strategy, model, aggregator, hidden, sparse, input_dropout):
    graph = make(n=500, degree=1.5, directed=hidden == 20, sparse=sparse, train=6)
    config = Config(strategy=strategy, model=model, aggregator=aggregator, layers=3, hidden=hidden, dtype="float64",
                    input_dropout=input_dropout, layer_norm=hidden == 20)
    same(comm, graph, config, smaller=False)


def test_float32_and_four_layers(comm):
    graph = make(n=3000, degree=1.2, train=5)
    same(comm, graph, Config(layers=4, hidden=16), smaller=True)


def test_one_training_vertex_of_all(comm):
    """Most ranks compute nothing in the last layer."""
    graph = make(n=400, degree=1.5, train=1)
    same(comm, graph, Config(layers=2, hidden=16, dtype="float64"), smaller=False)


def test_ranks_of_one_process():
    """The rule holds on one rank without MPI, too."""
    same(as_comm(None), make(n=500, degree=1.5, train=6), Config(layers=3, hidden=10, dtype="float64"), smaller=False)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_without_T_what_is_sent_is_predicted(comm, strategy, model, monkeypatch):
    """Widths rise, so each layer multiplies by A first; if T is not kept the backward takes the wider way."""
    graph = make(n=300, f=4, c=19, degree=2, train=9)
    config = Config(strategy=strategy, model=model, layers=3, hidden=11, input_dropout=0, dtype="float64", prune=False)
    curves, sent = [], []
    for lean in (False, True):
        monkeypatch.setattr("hpgcn.trainer.choose_lean", lambda *_, lean=lean: lean)
        metrics, predicted, _ = run(graph if strategy != "p2p" else parted(graph, comm), config, comm, 4)
        curves.append([m["loss"] for m in metrics])
        sent.append(metrics[-1]["sent_bytes"])
        assert (sent[-1], metrics[-1]["sent_messages"]) == (predicted.bytes, predicted.messages)
    np.testing.assert_allclose(*curves, rtol=1e-10)
    assert sent[0] < sent[1] or comm.size == 1 or model == "gin"  # whose inner width does not rise

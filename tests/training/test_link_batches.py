"""Batches of links: exact steps, the same curves on any ranks, and traffic as planned."""
import numpy as np
import oracle
import pytest
from cuda_ranks import cuda, gpu
from graphs import make, with_links
from training import start

import hpgcn
from hpgcn import store
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.partition import make_partition
from hpgcn.planning.answers.batch_report import WHOLE_STEPS, batches_of
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.sampling import parse
from hpgcn.strategies import STRATEGIES
from hpgcn.training.steps.training_step import loss_and_gradient

__all__ = ["cuda", "gpu"]
GRAPH, DIRECTED = (with_links(make(n=90, directed=directed)) for directed in (False, True))
CONFIG = Config(task="links", epochs=2, hidden=8, output_width=6, lr=0.05, dropout=0.4, seed=3,
                dtype="float64", batch="links:70")
KINDS = [{}, {"decoder": "distmult", "negatives": "shared:9", "model": "sage", "embedding": 3},
         {"batch": "links:3,4:99", "negatives": "uniform:2", "strict_negatives": True},
         {"model": "appnp", "hops": 2, "decoder": "hadamard:2", "message_edges": "train+val"}]
TAKERS = [name for name, kind in STRATEGIES.items() if kind.supports_minibatches]


def trained(graph, config, ranks, comm=None):
    """Train and evaluate; return the history, and the parameters by name."""
    def train(comm):
        with start(graph, config, comm) as trainer:
            history = []
            for epoch in range(1, config.epochs + 1):
                history.append(trainer.train_epoch(epoch))
                trainer.evaluate_epoch(history[-1])
            return history, trainer.arrays_by_name(trainer.parameters.flat)

    if ranks == 1:
        return train(comm or SerialComm())
    return run_on_ranks(lambda mpi: train(as_comm(mpi)), ranks)[0]


def assert_same(found, expected, rtol=1e-10):
    for name, array in expected[1].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-8, atol=1e-12, err_msg=name)
    for ours, theirs in zip(found[0], expected[0], strict=True):
        for name in ("loss", "val_loss", "val_auc", "test_ap"):
            assert ours[name] == pytest.approx(theirs[name], rel=rtol), name


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("strategy", TAKERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("graph", [GRAPH, DIRECTED], ids=["undirected", "directed"])
def test_the_same_curve_on_any_ranks(graph, kind, strategy, ranks):
    config = CONFIG.replace(strategy=strategy, **kind)
    found = trained(graph, config, ranks)
    assert_same(found, trained(graph, config, 1))
    size = parse(config.batch).size
    assert found[0][0]["steps"] == -(-len(graph.links["train"]) // size) > 1
    assert found[0][0]["asked_bytes"] > 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_batches_on_a_gpu(gpu, kind):
    comm = SerialComm()
    comm.use(gpu)
    config = CONFIG.replace(strategy="p2p", **kind)
    assert_same(trained(GRAPH, config, 1, comm), trained(GRAPH, config, 1))


@pytest.mark.parametrize("kind", [{}, {"negatives": "shared:9"}], ids=str)
def test_a_batch_of_all_links_is_the_full_batch(kind):
    config = CONFIG.replace(strategy="p2p", **kind)
    found, full = (trained(GRAPH, config.replace(batch=batch), 3)
                   for batch in ("links:100000", "full"))
    assert_same(found, full)
    for ours, theirs in zip(found[0], full[0]):  # but only the rows that the pairs read
        assert ours["sent_bytes"] <= theirs["sent_bytes"]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("model, matrix", [("gcn", "gcn"), ("sage", "sage-mean")])
def test_a_step_is_exact(monkeypatch, model, matrix, ranks):
    """Loss and gradient equal those of dense NumPy on the whole graph, for the same pairs."""
    config = CONFIG.replace(model=model, strategy="p2p")

    def ours(mpi):
        comm = as_comm(mpi)
        with start(GRAPH, config, comm) as trainer:
            view = trainer.batches.view(2)
            loss, gradient = loss_and_gradient(view, 2, comm.clock, lambda *given: None)
            trainer.shard.columns.reduce(gradient)
            share = view.loss.pairs.share
            weights = {name: array.copy() for name, array in trainer.parameters.arrays.items()}
            return comm.sum([loss])[0] / share, gradient.arrays, weights, share

    loss, gradient, weights, share = run_on_ranks(ours, ranks)[0]

    # the pairs of the second step, as vertices
    with start(GRAPH, config) as trainer:
        links, sampler = trainer.plan.links, trainer.plan.steps.builder.sampler
        sources, targets, _ = links.draws.in_batch(sampler, 1, 1).pairs(2)
    count = int(sampler.sizes()[1])
    assert sources.size == 2 * count and share == pytest.approx(count / links.num_links)

    def loss_of_links(Z, y, train, config):
        scores = (Z[sources] * Z[targets]).sum(1)
        sign = np.where(np.arange(sources.size) < count, 1, -1)
        slopes = (-sign / (1 + np.exp(sign * scores)) / count)[:, None]
        G = np.zeros_like(Z)
        np.add.at(G, sources, slopes * Z[targets])
        np.add.at(G, targets, slopes * Z[sources])
        return np.logaddexp(0, -sign * scores).sum() / count, G

    monkeypatch.setattr(oracle, "loss_and_slope", loss_of_links)
    norm, loops = oracle.MATRIX[matrix]
    expected, slopes = oracle.loss_and_gradient(
        matrix, oracle.normalized(GRAPH, norm, loops), oracle.features(GRAPH), None, None, weights,
        drops=[config.first_dropout, config.dropout], config=config, epoch=2)
    assert loss == pytest.approx(expected, rel=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(gradient[name], slope, rtol=1e-9, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("strategy", TAKERS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_counters_equal_the_plans_of_batches(tmp_path, strategy, kind):
    config = CONFIG.replace(strategy=strategy, **kind)
    path = tmp_path / "parts.h5"
    store.write_partitioned(path, GRAPH, make_partition(GRAPH, 3, method="vertex-cut"))
    result = hpgcn.train(path, config, ranks=3)
    kind = STRATEGIES[strategy]
    inputs = PlanInput(path, config.replace(**WHOLE_STEPS))
    batches = batches_of(inputs.ordered, inputs, kind, kind.default_shape(3), inputs.offsets,
                         parse(config.batch))
    for line in result.history:
        steps = [batches.predict(line["epoch"], number) for number in range(line["steps"])]
        for name in ("bytes", "messages"):
            expected = sum(step.summary(name)["total"] for step in steps)
            assert line[f"sent_{name}"] == expected > 0, (line["epoch"], name)
            if line["epoch"] == 1:  # all batches of the first epoch are counted
                assert result[f"predicted_{name}_per_epoch"] == expected

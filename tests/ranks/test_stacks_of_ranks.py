"""Models composed by flags on several ranks: the losses of one rank and the planned traffic."""
import numpy as np
import pytest
from graphs import make, scattered
from held import check_held, footprint_of
from once import once
from stacks import KINDS, STACKS
from training import RANKS, RARE, assert_same_curves, loss_and_gradient, metrics_of, on_ranks, start

import hpgcn
from hpgcn.config import Config
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES
from hpgcn.training.saved.checkpoint_state import agree

CASES = [*(("gcn", name) for name in STACKS), ("sage-mean", "platonov"), ("sage-mean", "cat"),
         ("sgc", "batch norm"), ("appnp", "batch norm"), ("gat", "residual")]
GRAPHS = [(True, False), (False, True), (True, True)]  # directed, sparse


def settings(kind, stack, **changes):
    return Config(**{"dtype": "float64", "hidden": 10, "dropout": 0.4, "seed": 3, **KINDS[kind],
                     **STACKS[stack], **changes})


def served(strategies, ranks=RANKS):
    """Run a test on `ranks` with all stacks and strategies.

    Attention that a strategy lacks is left out.
    """
    cases = [pytest.param(P, strategy, *case, marks=[pytest.mark.release] * (P in RARE))
             for P in ranks for strategy in strategies for case in CASES
             if not STRATEGIES[strategy].unsupported_reason([4 * (case[0] == "gat")], P)]
    return pytest.mark.parametrize("comm, strategy, kind, stack", cases, indirect=["comm"])


def three_epochs(source, config, comm=None):
    """Return loss and gradient of a step, metrics of three epochs, and the final parameters."""
    trainer = start(source, config, comm)
    loss, gradient = loss_and_gradient(trainer)
    gradient = gradient.copy()
    with trainer:
        return loss, gradient, metrics_of(trainer, 3), trainer.parameters.flat.copy()


@once
def of_one_rank(graph, config):
    return three_epochs(graph, config.replace(strategy="p2p"))


@pytest.mark.long
@pytest.mark.parametrize("directed, sparse", GRAPHS)
@served(["p2p", "1.5d", "2d", "3d", "mop"])  # whole rows, replicas, and shared rows
def test_equals_one_rank_and_the_prediction(comm, strategy, kind, stack, directed, sparse):
    graph = make(directed=directed, weighted=True, sparse=sparse)
    config = settings(kind, stack, strategy=strategy)
    expected, slope, one, _ = of_one_rank(graph, config)
    loss, gradient, many, flat = three_epochs(scattered(graph, comm), config, comm)
    assert comm.sum([loss])[0] == pytest.approx(expected, rel=1e-12)
    assert np.linalg.norm(gradient - slope) < 1e-12 * np.linalg.norm(slope)
    assert_same_curves(many, one, 1e-10)
    agree(comm, {"weights": flat})


@pytest.mark.long
@pytest.mark.parametrize("train", [None, 8])
@served(["p2p", "2d", "mop"], ranks=(2, 3, 5))
def test_what_ranks_hold_is_known_before(comm, strategy, kind, stack, train):
    graph = scattered(make(n=400, degree=1.5, train=train), comm)
    config = settings(kind, stack, strategy=strategy, layers=2)
    trainer = start(graph, config, comm)
    for number in (1, 2):
        trainer.train_epoch(number)
        hpgcn.training.steps.training_step.evaluate(trainer.evaluation)
    footprint = footprint_of(graph, config, comm, PlanInput(graph, config))
    check_held(footprint, trainer, comm.rank)
    agree(comm, {"weights": trainer.parameters.flat})
    trainer.close()


@pytest.mark.long
@on_ranks(3)
@pytest.mark.parametrize("strategy, kind, stack", [
    ("p2p", "gcn", "platonov, batch norm, elu"), ("2d", "gcn", "platonov, batch norm, elu"),
    ("2d", "gcn", "cat"), ("p2p", "appnp", "batch norm"), ("p2p", "gat", "residual")])
def test_a_run_is_resumed_and_predicts_on_other_ranks(comm, tmp_path, strategy, kind, stack):
    graph = make(directed=True)
    source = scattered(graph, comm)
    out = comm.bcast(str(tmp_path / "run"))
    config = settings(kind, stack, strategy=strategy, epochs=4, checkpoint_every=2)
    expected = hpgcn.train(source, config.replace(checkpoint_every=0), comm)
    hpgcn.train(source, config.replace(out=out, epochs=2), comm)
    comm.barrier()
    resumed = hpgcn.train(source, config.replace(out=out), comm, resume=out)
    comm.barrier()
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], array)
    found = hpgcn.predict(source, out, comm)
    if comm.rank == 0:
        alone = hpgcn.predict(graph, out)
        for key in ("logits", "embedding"):
            np.testing.assert_allclose(found[key], alone[key], atol=1e-10)
    comm.barrier()

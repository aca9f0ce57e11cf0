"""Models that flags put together, on several ranks: the serial losses, and what is planned."""
import numpy as np
import pytest
from graphs import make, scattered
from held import check_held, footprint_of
from stacks import KINDS, STACKS
from training import assert_same_curves, loss_and_gradient, run, skip_refused, start

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.planning.survey import Survey
from hpgcn.strategies import STRATEGIES
from hpgcn.training.state import agree

CASES = [*(("gcn", name) for name in STACKS), ("sage-mean", "platonov"), ("sage-mean", "cat"),
         ("sgc", "batch norm"), ("appnp", "batch norm"), ("gat", "platonov"), ("gat", "residual")]


def settings(kind, stack, **changes):
    return Config(**{"dtype": "float64", "hidden": 7, "dropout": 0.4, "seed": 3, **KINDS[kind],
                     **STACKS[stack], **changes})


GRAPHS = [(True, False), (False, True), (True, True)]  # directed, sparse: in turns


@pytest.mark.parametrize("kind, stack, directed, sparse", [
    (*case, *GRAPHS[number % 3]) for number, case in enumerate(CASES)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_one_rank_and_the_prediction(comm, strategy, kind, stack, directed, sparse):
    graph = make(directed=directed, weighted=True, sparse=sparse)
    config = settings(kind, stack, strategy=strategy)
    serial = start(graph, config.replace(strategy="p2p"))
    expected, slope = loss_and_gradient(serial)
    trainer = start(scattered(graph, comm), config, comm)
    loss, gradient = loss_and_gradient(trainer)
    assert comm.sum([loss])[0] == pytest.approx(expected, rel=1e-12)
    assert np.linalg.norm(gradient - slope) < 1e-12 * np.linalg.norm(slope)
    trainer.shard.close()

    alone, _ = run(graph, config.replace(strategy="p2p"), SerialComm())
    many, flat = run(scattered(graph, comm), config, comm)  # holds what is sent against the plan
    again, same = run(scattered(graph, comm), config, comm)
    assert_same_curves(many, alone, 1e-10)
    assert flat.tobytes() == same.tobytes()
    assert [m["loss"] for m in many] == [m["loss"] for m in again]


@pytest.mark.parametrize("kind, stack", CASES)
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
def test_what_ranks_hold_is_known_before(comm, strategy, kind, stack):
    graph = scattered(make(n=400, degree=1.5, train=8), comm)
    config = settings(kind, stack, strategy=strategy, layers=2)
    trainer = start(graph, config, comm)
    for number in (1, 2):
        trainer.epoch(number)
        hpgcn.training.step.evaluate(trainer.evaluation)
    footprint = footprint_of(graph, config, comm, Survey(graph, config))
    check_held(footprint, trainer, comm.rank)
    agree(comm, {"weights": trainer.parameters.flat})
    trainer.shard.close()


@pytest.mark.parametrize("strategy", ["p2p", "2d"])
@pytest.mark.parametrize("kind, stack", [("gcn", "platonov, batch norm, elu"), ("gcn", "cat"),
                                         ("appnp", "batch norm"), ("gat", "cat")])
def test_a_run_is_resumed_and_predicts_on_other_ranks(comm, tmp_path, strategy, kind, stack):
    graph = make(directed=True)
    source = scattered(graph, comm)
    out = comm.bcast(str(tmp_path / "run"))
    config = settings(kind, stack, strategy=strategy, epochs=6, checkpoint_every=2)
    skip_refused(graph, config, comm)
    expected = hpgcn.train(source, config.replace(checkpoint_every=0), comm)
    hpgcn.train(source, config.replace(out=out, epochs=4), comm)
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

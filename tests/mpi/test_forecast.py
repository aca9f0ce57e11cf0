"""What a forecast says of a run on these ranks is what the run sends, and what its arrays hold."""
import numpy as np
import pytest
from graphs import make
from held import check_held

from hpgcn.config import Config
from hpgcn.forecast.cases import arrangements, case, count
from hpgcn.forecast.survey import Survey
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi
MODELS = [("gcn", "mean"), ("sage", "mean"), ("sage", "gcn"), ("gin", "mean")]


def parted(graph, comm):
    parts = np.random.default_rng(0).integers(0, comm.size, graph.num_rows)
    partition = Partition.from_parts(parts, comm.size)
    return graph.permuted(partition.perm, partition.offsets)


def forecast(source, config, comm):
    survey, strategy = Survey(source, config), config.strategy
    grid = arrangements(config, (comm.size,))[strategy, comm.size]
    if strategy in ("p2p", "1d"):
        return survey.step, count(survey, strategy, "given", grid, source.offsets)
    return survey.step, case(survey, strategy, "stored", comm.size, grid, stages=config.stages)


def check(comm, graph, config):
    source = parted(graph, comm)
    step, found = forecast(source, config, comm)
    trainer = Trainer(source, config, comm, warm=False)
    metrics = [trainer.step(epoch) for epoch in (1, 2)]
    trainer.evaluate()
    traffic = found.prediction.traffic()
    assert traffic == trainer.predicted
    assert all((one["sent_bytes"], one["sent_messages"]) == (traffic.bytes, traffic.messages) for one in metrics)
    assert found.prediction.max_bytes() == pytest.approx(trainer.max_sent, abs=1)
    check_held(step, found.share, trainer, comm.rank)
    trainer.rows.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model, aggregator", MODELS)
@pytest.mark.parametrize("directed, sparse, input_dropout, hidden, train", [
    (False, False, -1, 10, 6), (True, False, 0, 20, 6), (False, True, -1, 7, 6), (True, False, -1, 20, None)])
def test_runs_send_and_hold_what_is_forecast(comm, strategy, model, aggregator, directed, sparse, input_dropout, hidden,
                                             train):
    graph = make(n=500, degree=1.5, directed=directed, weighted=directed, sparse=sparse, train=train)
    check(comm, graph, Config(strategy=strategy, model=model, aggregator=aggregator, layers=3, hidden=hidden,
                              input_dropout=input_dropout, dtype="float64" if hidden == 10 else "float32",
                              layer_norm=hidden == 20))


@pytest.mark.parametrize("stages, n", [(0, 9000), (3, 500)])
def test_batches_of_mop(comm, stages, n):
    graph = make(n=n, degree=1.5, train=n // 100)
    check(comm, graph, Config(strategy="mop", stages=stages, hidden=6))


@pytest.mark.parametrize("strategy", ["p2p", "2d"])
def test_all_rows(comm, strategy):
    check(comm, make(n=500, degree=1.5, train=6), Config(strategy=strategy, prune=False))

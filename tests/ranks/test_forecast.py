"""A forecast predicts exactly the bytes that ranks send and the sizes of their arrays."""
import pytest
from graphs import make, scattered
from held import check_held, footprint_of, run_two_epochs
from training import WIDE, served

from hpgcn.config import Config
from hpgcn.planning.counts.plan_input import PlanInput


def check(comm, graph, config):
    source = scattered(graph, comm)
    footprint = footprint_of(source, config, comm, PlanInput(source, config))
    trainer, metrics = run_two_epochs(source, config, comm)
    prediction = footprint.prediction
    total = prediction.total_bytes(), prediction.total_messages()
    info = trainer.run_info
    assert total == (info.predicted_bytes_per_epoch, info.predicted_messages_per_epoch)
    assert all((one["sent_bytes"], one["sent_messages"]) == total for one in metrics)
    assert prediction.max_bytes() == pytest.approx(trainer.state.max_sent_bytes, abs=1)
    check_held(footprint, trainer, comm.rank)
    trainer.close()


@pytest.mark.long
@pytest.mark.parametrize("kind, settings", [
    ({"train": 6}, {"hidden": 12, "dtype": "float64"}),
    ({"train": 6, "directed": True, "weighted": True}, {"input_dropout": 0, "hidden": 20}),
    ({"train": 6, "sparse": True}, {"hidden": 8}),
    ({"train": 6}, {"hidden": 8, "prune": False}),
    ({"directed": True, "weighted": True}, {"hidden": 20, "layer_norm": True})], ids=str)
@served()
def test_runs_send_and_hold_what_is_forecast(comm, strategy, model, kind, settings):
    config = Config(strategy=strategy, **WIDE[model], layers=3, **settings)
    check(comm, make(n=300, degree=1.5, **kind), config)


@pytest.mark.parametrize("comm", [2, 3], indirect=True)
@pytest.mark.parametrize("stages, n", [(0, 9000), (3, 300)])
def test_batches_of_mop(comm, stages, n):
    graph = make(n=n, degree=1.5, train=n // 100)
    check(comm, graph, Config(strategy="mop", pipeline_batches=stages, hidden=6))

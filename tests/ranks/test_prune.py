"""Skipped rows change no loss and no metric, and save the predicted bytes."""
import numpy as np
import pytest
from arrays import assert_all
from graphs import make, scattered
from training import WIDE, alone, assert_same_curves, metrics_of, run, served, start

from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES

CASES = {  # graphs of `make`, settings
    "A X formed once": ({}, {"hidden": 40, "input_dropout": 0}),
    "A first": ({"directed": True, "weighted": True}, {"hidden": 20, "layer_norm": True}),
    "sparse X": ({"sparse": True}, {"hidden": 8}),
    "four layers": ({"directed": True}, {"layers": 4, "hidden": 8, "dtype": "float32"}),
    "one training vertex": ({"train": 1}, {"layers": 2, "hidden": 16})}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@served()
def test_the_loss_curve_is_that_of_all_rows_on_one_rank(comm, strategy, model, case):
    kind, changes = CASES[case]
    graph = make(**{"n": 300, "degree": 1.5, "train": 6, **kind})
    config = Config(**{"strategy": strategy, "layers": 3, "dtype": "float64", "seed": 1,
                       **WIDE[model], **changes})
    trainer = start(scattered(graph, comm), config, comm)
    with trainer:
        pruned = metrics_of(trainer, 3)
        totals = trainer.shard.train.totals
    whole, _ = alone(graph, config.replace(prune=False))
    assert_same_curves(pruned, whole, 1e-5 if config.dtype == "float32" else 1e-10)
    assert_all(np.diff(totals) <= 0)


@pytest.mark.long
@served(["gcn"])
def test_fewer_rows_and_fewer_bytes(comm, strategy, model):
    graph = scattered(make(n=300, degree=1.5, train=6), comm)
    sent = []
    for prune in (True, False):
        trainer = start(graph, Config(strategy=strategy, layers=3, hidden=8, prune=prune), comm)
        sent.append(trainer.run_info.predicted_bytes_per_epoch)
        totals = trainer.shard.train.totals
        assert (totals[-1] == 6 and totals[0] < 300) == prune
        trainer.close()
    assert sent[0] < sent[1] or comm.size == 1


@pytest.mark.long
@pytest.mark.parametrize("comm", [2, 5], indirect=True)
@pytest.mark.parametrize("strategy", ["p2p", "vertex-cut", "2d", "mop"])
@pytest.mark.parametrize("model", ["gcn", "sage-mean", "gin"])
def test_without_A_H_what_is_sent_is_predicted(comm, strategy, model, monkeypatch):
    """If layers do not store A H, the backward sends more, as predicted.

    The losses are equal.
    """
    graph = make(n=100, f=4, c=19, degree=2, train=9)
    config = Config(strategy=strategy, layers=3, hidden=11, input_dropout=0, dtype="float64",
                    prune=False, **WIDE[model])
    source = scattered(graph, comm) if STRATEGIES[strategy].requires_partition else graph
    histories = []
    for drops in (False, True):
        comm.barrier()  # no rank is in the other run
        monkeypatch.setattr("hpgcn.training.setup.run_plan.drops_AX", lambda *_, drops=drops: drops)
        histories.append(run(source, config, comm, 2)[0])
    assert_same_curves(*histories, 1e-10)
    kept, dropped = (history[-1]["sent_bytes"] for history in histories)
    assert kept < dropped or model == "gin"  # the inner width of gin does not rise

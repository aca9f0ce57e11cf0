"""Bytes that ranks move in an epoch: counted in runs, and a footprint to plan them."""
import numpy as np

from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.training.trainer import Trainer


def count_before_epochs(monkeypatch, ranks, read, first=0):
    """Return a list to which rank `first` of `ranks` adds `read()`, an array, before each epoch.

    The warm-up has another number of ranks.
    """
    counts, train_epoch = [], Trainer.train_epoch

    def count(trainer, *given):
        if (trainer.comm.size, trainer.comm.rank) == (ranks, first):
            counts.append(np.array(read()))
        return train_epoch(trainer, *given)

    monkeypatch.setattr(Trainer, "train_epoch", count)
    return counts


def footprint_of(path, config, ranks):
    """Return the RankFootprint of a run on a partitioned file."""
    inputs = PlanInput(path, config)
    candidate, = (each for each in candidates(inputs, (ranks,))
                  if each.strategy == config.strategy.split(":")[0])
    return count_candidate(inputs, candidate)

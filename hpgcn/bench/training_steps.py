"""Train on a small generated graph, and compare its steps with their forecasts, by strategy.

The quotients contain what the rates of kernels and messages leave out. This is CPU time of
messages, sharing of cores by ranks, and waits of ranks for each other.
"""
import time
from dataclasses import replace

import numpy as np

from hpgcn.config import Config
from hpgcn.datasets.generators.generate import generate
from hpgcn.kernels.host.threads import num_threads
from hpgcn.partition import make_partition
from hpgcn.planning.answers.automatic import METHOD
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.answers.exchange_rule import exchange_setting
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import factor_name, step_seconds
from hpgcn.runtime.clock import DENSE
from hpgcn.runtime.progress_bar import bar
from hpgcn.strategies import strategy_by_name
from hpgcn.training.run import train

SCALE = 15  # an R-MAT graph with 2^SCALE vertices
WIDTH = 128  # features and hidden columns
CLASSES = 16
EPOCHS = 10
LEAST = 3  # epochs of a run that takes more than ENOUGH seconds
ENOUGH = 2.0
TURNS = 2  # runs of each strategy: a slow minute of the machine does not fall on one of them
COMPUTING = ("spmm", *DENSE)  # parts of an epoch that are no messages and no waits
PARTITIONING = 600.0  # seconds that ranks wait for the parts, beyond their timeout


def measure(machine, comm, seed=0):
    """Return measured seconds of steps over those that `machine` forecasts.

    The dict has {"computing", "messages"} by `factor_name`. All ranks call this
    together. Both are medians over the epochs of all turns without the first of each.
    Computing is the mean over ranks, and the rest of the epoch are messages. `machine`
    is that of rank 0.
    """
    graph = _graph(comm, seed)
    cases = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            config = Config(hidden=WIDTH, epochs=EPOCHS, eval_every=0, threads=num_threads())
            cases = [(own, name, step_seconds(machine, footprint)) for own, name, _, footprint
                     in count_strategies(graph, config, machine, comm.size)]
    cases = comm.bcast(cases)

    found = {}
    runs = [(graph, config) for config, _, _ in cases]
    for (_, name, forecast), epochs in zip(cases, train_in_turns(runs, comm, TURNS, LEAST, ENOUGH)):
        measured = median_seconds(epochs)
        found[name] = {key: float(seconds / max(forecast, 1e-12)) for key, seconds, forecast in
                       zip(("computing", "messages"), measured, forecast)}
    return found


def _graph(comm, seed):
    """Return the generated graph in one part for each rank."""
    graph = generate("rmat", scale=SCALE, features=WIDTH, classes=CLASSES, seed=seed)
    partition = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            partition = make_partition(graph, comm.size, method=METHOD, effort="fast", seed=seed)
    partition = comm.bcast(partition)
    graph = replace(graph, edge_parts=partition.edge_part)
    return graph.permuted(partition.perm, partition.offsets)


def count_strategies(source, config, machine, ranks):
    """Yield each strategy on the parts of a graph.

    It is yielded as Config, `factor_name`, Candidate and RankFootprint. If ranks share
    nodes, strategies that support it are counted twice: with direct messages, and
    node-aware.
    """
    nodes = machine.nodes(ranks)
    for node_aware in ("never", "always") if nodes is not None else ("never",):
        own = config.replace(node_aware=node_aware)
        inputs = PlanInput(source, own)
        for candidate in candidates(inputs, (ranks,)):
            strategy = strategy_by_name(candidate.strategy)
            aware = exchange_setting(strategy, nodes, node_aware, own).aware
            if aware == (node_aware == "always"):
                yield (own.replace(strategy=strategy.name), factor_name(strategy.name, aware),
                       candidate, count_candidate(inputs, candidate, nodes=nodes))


def train_in_turns(runs, comm, turns, least, seconds):
    """Train each of `runs` once in every turn.

    `runs` are pairs (graph, Config), trained as by `brief_history`. Return a list of
    epochs for each run, without the first of a turn, which touches memory.
    """
    epochs = [[] for _ in runs]
    for number, run in bar(turns * list(enumerate(runs)), desc="training steps", unit="run",
                           leave=False, shown=comm.rank == 0):
        epochs[number] += brief_history(*run, comm, least, seconds)[1:]
    return epochs


def brief_history(graph, config, comm, least, seconds):
    """Return the epochs of a run that ends after some seconds, with at least `least` of them."""
    start = time.monotonic()

    def enough(metrics):
        return metrics["epoch"] >= least and time.monotonic() - start > seconds

    return train(graph, config, comm, callbacks=[enough]).history


def median_seconds(epochs):
    """Return the medians (computing, messages) in seconds over epochs, a list of metrics."""
    computing = np.median([sum(epoch[f"mean_{part}_s"] for part in COMPUTING) for epoch in epochs])
    return computing, max(0.0, np.median([epoch["epoch_s"] for epoch in epochs]) - computing)

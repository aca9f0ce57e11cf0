"""Choose a strategy, and the exchange between nodes, for a run.

The choice is that of `hpgcn plan` for the run's ranks and parts.
"""
import logging
from dataclasses import replace

import numpy as np

from hpgcn.planning.answers.automatic import (
    BY_HOLDERS,
    BY_ROWS,
    faster_case,
    first_fitting,
    is_searched,
    sparing_cases,
)
from hpgcn.planning.answers.candidates import Candidate, candidates, count_fastest
from hpgcn.planning.answers.dry_run import COUNTING
from hpgcn.planning.answers.exchange_rule import unsupported_exchange
from hpgcn.planning.answers.options import Options, read_machine
from hpgcn.planning.answers.report import choose, named, row
from hpgcn.planning.answers.strategy_per_layer import of_layers
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.runtime.machine import return_freed_memory, size
from hpgcn.sampling import parse
from hpgcn.strategies import AUTO_PER_LAYER, STRATEGIES, strategy_by_name, variant

log = logging.getLogger("hpgcn")
ASSUMED_MACHINE = "an assumed server with InfiniBand"  # the default Machine


def choose_strategy(source, config, comm):
    """Choose the strategy of a run among those that the graph and config.memory allow.

    The strategy with the least forecast seconds is chosen, if its products send no more
    rows than the parts require. That is the smaller number of rows sent with owners of
    rows, and with owners of nonzeros if there are any. With config.machine it is the
    larger one. AUTO_PER_LAYER also compares
    strategies for each layer, with the same limit for each. Rank 0 reads the pattern of
    the whole adjacency, as `hpgcn.planning.answers.dry_run.forecast`; all ranks call
    this together.

    Returns
    -------
    (type, str, str)
        The Strategy, the setting `node_aware` that decides its exchange, and the sentence
        that says why.
    """
    def choose_first():
        return _choose(PlanInput(source, config), comm.size, comm.nodes)

    name, node_aware, text = _on_first_rank(choose_first, comm)
    if comm.rank == 0:
        log.info("strategy %s: %s", config.strategy, text)
    return strategy_by_name(name), node_aware, text


def choose_exchange(source, config, strategy, shape, comm):
    """Return the setting `node_aware` of a run whose settings name the strategy.

    All ranks call this together. If it is auto, and config.machine is given, the
    exchange with fewer forecast seconds is chosen. Without a machine file it stays
    auto.
    """
    shared = comm.nodes.max() and np.bincount(comm.nodes).max() > 1
    if config.node_aware != "auto" or not config.machine or not shared:
        return config.node_aware
    if unsupported_exchange(strategy, config):
        return config.node_aware

    def choose_first():
        inputs = PlanInput(source, config)
        parts = inputs.stored_parts if inputs.part_counts else "stored"
        footprint = count_fastest(inputs, Candidate(strategy.name, parts, comm.size, shape),
                                  run_machine(config, comm.nodes))
        return exchange_name(footprint)

    node_aware = _on_first_rank(choose_first, comm)
    if comm.rank == 0:
        log.info("exchange of strategy %s: node_aware = %s, by the seconds of %s", strategy.name,
                 node_aware, config.machine)
    return node_aware


def check_machine(config, comm):
    """Refuse an invalid config.machine on all ranks, also where nothing is chosen by it."""
    with comm.collective_errors():
        if config.machine and comm.rank == 0:
            read_machine(config.machine)


def _on_first_rank(function, comm):
    """Return the result of `function` on rank 0 on all ranks."""
    result = None
    with comm.extended_timeout(COUNTING), comm.collective_errors():
        if comm.rank == 0:
            result = function()
    return_freed_memory()
    return comm.bcast(result)


def exchange_name(footprint):
    """Return the setting `node_aware` by which a run has the exchange of a footprint."""
    return "always" if footprint.node_aware else "never"


def run_machine(config, nodes):
    """Return the Machine of a run: that of config.machine, or the default one.

    `nodes`, (P,), are the nodes that MPI reports, or None.
    """
    machine = read_machine(config.machine)[0] if config.machine else Machine()
    layout = ()
    if nodes is not None and (nodes.max() or machine.within):
        layout = tuple(nodes.tolist())
    return replace(machine, layout=layout, ranks_per_node=0,
                   shared_memory=config.device != "cuda")


def _choose(inputs, ranks, nodes=None):
    config = inputs.config
    memory = size(config.memory) if config.memory else None
    machine = run_machine(config, nodes)
    options = Options((ranks,), memory=memory, config=config, machine=machine)

    # count every candidate that can train
    rows = []
    exchanges = {}
    full_batch = parse(config.batch) is None
    mixes = config.strategy == AUTO_PER_LAYER
    footprints = {}  # on parts
    for candidate in _supporting(inputs, ranks, machine.nodes(ranks)):
        if not (full_batch or STRATEGIES[candidate.strategy].supports_minibatches):
            continue
        if not (mixes or is_searched(candidate.strategy, rows, config.epochs)):
            continue
        footprint = count_fastest(inputs, candidate, machine)
        rows.append(row(candidate, footprint, options))
        exchanges[rows[-1]["strategy"]] = exchange_name(footprint)
        if STRATEGIES[candidate.strategy].requires_partition:
            footprints[candidate] = footprint

    allowed = sparing_cases(rows, measured=bool(config.machine))

    # mix strategies, if the settings allow it
    if mixes and machine.nodes(ranks) is None:
        mixture = of_layers(inputs, footprints, options.machine, (BY_ROWS, BY_HOLDERS))
        if mixture:
            allowed.append(row(*mixture, options))
            rows.append(allowed[-1])

    allowed = first_fitting(allowed, rows)
    choice = choose(allowed)
    case = allowed[choice["index"]]
    rates = f"by the rates of {config.machine}" if config.machine else f"on {ASSUMED_MACHINE}"
    text = f"{named(case)}: {case['seconds']['epoch']:.3g} s per epoch {rates}"
    text += faster_case(rows, case)
    if mixes and nodes is not None and nodes.max():
        text += "; on several nodes no mixtures are compared"
    node_aware = config.node_aware
    if node_aware == "auto":
        node_aware = exchanges.get(choice["strategy"], "never")
    if exchanges.get(choice["strategy"]) == "always":
        text += "; rows are sent to each node once"
    return choice["strategy"], node_aware, text


def _supporting(inputs, ranks, nodes):
    """Return the Candidates of a run on these nodes.

    With node_aware = always they are those that support it, if any do.
    """
    config = inputs.config
    listed = candidates(inputs, (ranks,))
    if config.node_aware != "always" or nodes is None or not nodes.max():
        return listed
    return [each for each in listed if not unsupported_exchange(
        variant(strategy_by_name(each.strategy), config), config)] or listed

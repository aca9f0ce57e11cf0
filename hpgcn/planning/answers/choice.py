"""Strategy auto: choose a strategy like `hpgcn plan` for the ranks and the parts of a
run.
"""
import logging

from hpgcn.planning.answers.automatic import BY_HOLDERS, BY_ROWS, fitting, passed_over, sparing
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.answers.dry_run import COUNTING
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import choose, row
from hpgcn.planning.answers.strategy_per_layer import of_layers
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.runtime.machine import return_freed_memory, size
from hpgcn.sampling import parse
from hpgcn.strategies import AUTO_PER_LAYER, STRATEGIES, strategy_by_name

log = logging.getLogger("hpgcn")


def choose_strategy(source, config, comm):
    """Choose the strategy of a run among those that the graph and config.memory allow.

    The strategy with the least forecast seconds is chosen, if its products send no more
    rows than the parts require. That is the smaller number of rows sent with owners of
    rows, and with owners of nonzeros if there are any. AUTO_PER_LAYER also compares
    strategies for each layer, with the same limit for each. Rank 0 reads the pattern of
    the whole adjacency, as `hpgcn.planning.answers.dry_run.forecast`; all ranks call
    this together.

    Returns
    -------
    (type, str)
        The Strategy, and the sentence that says why.
    """
    chosen = None
    with comm.extended_timeout(COUNTING), comm.collective_errors():
        if comm.rank == 0:
            chosen = _choose(PlanInput(source, config), comm.size, comm.nodes)
    return_freed_memory()
    name, text = comm.bcast(chosen)
    if comm.rank == 0:
        log.info("strategy %s: %s", config.strategy, text)
    return strategy_by_name(name), text


def _choose(inputs, ranks, nodes=None):
    config = inputs.config
    memory = size(config.memory) if config.memory else None
    known_nodes = () if nodes is None or not nodes.max() else tuple(nodes.tolist())
    machine = Machine(layout=known_nodes, shared_memory=config.device != "cuda")
    options = Options((ranks,), memory=memory, config=config, machine=machine)

    # count every candidate that can train
    rows = []
    whole = parse(config.batch) is None
    known = {}  # on parts
    for candidate in candidates(inputs, (ranks,)):
        if not (whole or STRATEGIES[candidate.strategy].supports_minibatches):
            continue
        footprint = count_candidate(inputs, candidate, nodes=options.machine.nodes(ranks))
        rows.append(row(candidate, footprint, options))
        if STRATEGIES[candidate.strategy].requires_partition:
            known[candidate] = footprint

    allowed = sparing(rows)

    # mix strategies, if the settings allow it
    if config.strategy == AUTO_PER_LAYER and not known_nodes:
        mixture = of_layers(inputs, known, options.machine, (BY_ROWS, BY_HOLDERS))
        if mixture:
            allowed.append(row(*mixture, options))
            rows.append(allowed[-1])

    allowed = fitting(allowed, rows)
    choice = choose(allowed)
    text = choice["text"] + passed_over(rows, allowed[choice["index"]])
    return choice["strategy"], text

"""Strategies auto: what `hpgcn plan` would choose for the ranks and the parts that a run has."""
from __future__ import annotations

import logging

from hpgcn.config import size
from hpgcn.planning.candidates import candidates, count_candidate
from hpgcn.planning.dry_run import COUNTING
from hpgcn.planning.options import Options
from hpgcn.planning.per_layer import of_layers
from hpgcn.planning.report import choose, row
from hpgcn.planning.survey import Survey
from hpgcn.runtime.machine import return_freed_memory
from hpgcn.sampling import parse
from hpgcn.strategies import AUTO_PER_LAYER, STRATEGIES, Product, named

log = logging.getLogger("hpgcn")
BY_ROWS = next(each for each in STRATEGIES.values() if each.needs_parts)
BY_HOLDERS = next(each for each in STRATEGIES.values() if each.takes_holders)
METHOD = BY_HOLDERS.method  # by which a graph without parts is partitioned: it moves least


def choose_strategy(source, config, comm):
    """Choose among the strategies that a source and config.memory allow on these ranks.

    Taken is the one with the least forecast of seconds among those that move no more rows in a
    product than the parts promise: rows by their owners, or nonzeros by their holders, if they have
    any. AUTO_PER_LAYER also asks what each layer alone would take, among those that send no more
    for this layer than either of the two. Rank 0 reads the pattern of the whole adjacency, as
    `hpgcn.planning.dry_run.forecast`; all ranks call this together.

    Returns
    -------
    (type, str)
        The Strategy, and the sentence that says why.
    """
    chosen = None
    with comm.extended_timeout(COUNTING), comm.collective_errors():
        if comm.rank == 0:
            chosen = _choose(source, config, comm.size)
    return_freed_memory()
    name, text = comm.bcast(chosen)
    if comm.rank == 0:
        log.info("strategy %s: %s", config.strategy, text)
    return named(name), text


def _choose(source, config, ranks):
    survey = Survey(source, config)
    memory = size(config.memory) if config.memory else None
    options = Options((ranks,), memory=memory, config=config)
    rows = []
    moved = []
    whole = parse(config.batch) is None
    known = {}  # on parts
    for each in candidates(survey, config, (ranks,)):
        if not (whole or STRATEGIES[each.strategy].samples):
            continue
        footprint = count_candidate(survey, each, config)
        rows.append(row(each, footprint, options))
        moved.append(_rows_moved(footprint.plan))
        if STRATEGIES[each.strategy].needs_parts:
            known[each] = footprint
    limit = min(volume for entry, volume in zip(rows, moved)
                if entry["strategy"] in (BY_ROWS.name, BY_HOLDERS.name))
    sparing = [entry for entry, volume in zip(rows, moved) if volume <= limit]
    if config.strategy == AUTO_PER_LAYER:
        found = of_layers(survey, known, config, options.machine, (BY_ROWS, BY_HOLDERS))
        if found:
            sparing.append(row(*found, options))
            rows.append(sparing[-1])
    for some in (sparing, rows):
        if any(entry["fits"] for entry in some):
            break
    else:  # the run will say so, or keep less
        some = [{**entry, "fits": True} for entry in rows]
    choice = choose(some)
    return choice["strategy"], choice["text"]


def _rows_moved(plan):
    """Rows that ranks send in a product with A: its bytes, of items of one byte, a column."""
    sent, _ = plan.counts(Product(layer=0, width=plan.slices), itemsize=1)
    return sent.sum() / plan.slices

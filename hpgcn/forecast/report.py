"""Forecast every case, choose one, and write the numbers as a table."""
from __future__ import annotations

import dataclasses

import numpy as np

from hpgcn.bar import bar
from hpgcn.config import COSTS, Config
from hpgcn.cost import KINDS, PHASES
from hpgcn.cost.memory import footprint, peak, setup
from hpgcn.cost.seconds import Machine, step_seconds
from hpgcn.errors import ConfigError, setting
from hpgcn.forecast.cases import OWN_PARTS, case, plans
from hpgcn.forecast.options import MAX_RANKS, QUICK
from hpgcn.forecast.survey import Survey
from hpgcn.machine import available_memory

ENOUGH = 1.1  # fewer ranks are chosen if they take at most so much longer than the fastest


def forecast(path, options, *, progress=False):
    """Predict what one training step costs in every case.

    Parameters
    ----------
    path : str or path-like
        Graph or partitioned graph (.h5).
    options : hpgcn.forecast.Options
    progress : bool
        Show a progress bar on a terminal or in a notebook.

    Returns
    -------
    dict
        graph, step, settings, rows_per_level, machine, memory_limit_bytes; rows, a dict for each case (strategy,
        parts, ranks, grid, runs, fits, bytes, messages, memory, seconds); choice, the row to take with a text, or
        None; notes, lines of text. See docs/plan.md.

    Raises
    ------
    ConfigError
        No case that can be run fits options.memory; the least number of ranks that would is named.
    HpgcnError
        As `Survey` and `plans`.
    """
    config = options.config
    survey = Survey(path, config, options.widths)
    rows = []
    with bar(plans(survey, config, options.ranks, options.methods), unit="case", leave=False,
             shown=progress) as cases:
        for plan in cases:
            cases.set_description("{} on {} parts, {} ranks".format(*plan))
            rows.append(row(survey.step, case(survey, *plan, stages=config.stages), options))
    header = survey.header
    can_run = [entry for entry in rows if entry["runs"]]
    if can_run and not any(entry["fits"] for entry in can_run):
        _refuse(survey, can_run, options)
    return {
        "graph": {"path": str(path), "name": header.name, "num_nodes": header.num_nodes, "num_edges": header.num_edges,
                  "directed": header.directed, "multiplied_nonzeros": int(survey.whole.pattern.nnz),
                  "parts": None if survey.offsets is None else survey.offsets.size - 1},
        "step": dataclasses.asdict(survey.step), "settings": {name: getattr(config, name) for name in COSTS},
        "rows_per_level": {"train": list(survey.step.rows), "evaluated": list(survey.totals(survey.evaluated))},
        "machine": {**vars(options.machine), "network_from_file": options.network},
        "memory_limit_bytes": options.memory, "rows": rows, "choice": choose(rows),
        "notes": left_out(survey, rows, options) + notes(options, rows)}


def row(step, found, options):
    """The numbers of one case, as they go into the JSON object."""
    compute, communication = step_seconds(options.machine, step, found.share, found.prediction)
    held, most = peak(step, found.share), footprint(step, found.share)
    largest = int(np.argmax(held))
    limit = options.memory
    return {
        "strategy": found.strategy, "parts": found.parts, "ranks": found.ranks, "grid": list(found.grid),
        "runs": found.strategy in available(), "fits": limit is None or int(held[largest]) <= limit,
        "bytes": _by_kind(found.prediction.bytes), "messages": _by_kind(found.prediction.messages),
        "memory": {"max_bytes": int(held[largest]), "rank": largest, "setup": int(setup(step, found.share)[largest]),
                   **{name: int(sizes[largest]) for name, sizes in most.items()}},
        "seconds": {"epoch": compute + communication, "compute": compute, "communication": communication}}


def available():
    """Strategies that `hpgcn train` takes."""
    return next(entry for entry in dataclasses.fields(Config) if entry.name == "strategy").metadata["choices"]


def choose(rows):
    """Choose a row that can be run and fits: the fewest ranks that come near the fastest.

    Returns
    -------
    dict
        strategy, parts, ranks, grid, index (in rows) and text, a sentence on what speaks for it; None if nothing can
        be run.
    """
    good = [entry for entry in rows if entry["runs"] and entry["fits"]]
    if not good:
        return None
    fastest = min(_epoch(entry) for entry in good)
    best = min((entry for entry in good if _epoch(entry) <= ENOUGH * fastest),
               key=lambda entry: (entry["ranks"], _epoch(entry)))
    text = f"{_named(best)}: {_epoch(best):.3g} s per epoch"
    if best["bytes"]["total"]:
        text += f", of which {best['seconds']['communication']:.2g} s communication"
    others = [entry for entry in rows if entry["ranks"] == best["ranks"] and entry["strategy"] != best["strategy"]]
    if others and best["bytes"]["total"]:
        other = min(others, key=_epoch)
        ratio = other["bytes"]["total"] / best["bytes"]["total"]
        text += (f"; {_named(other, ranks=False)} would take {_epoch(other):.3g} s and send {ratio:.2f}x as much"
                 + ("" if other["runs"] else " (forecast only)"))
    elif len({entry["ranks"] for entry in good}) > 1 and best["ranks"] == 1:
        other = min((entry for entry in good if entry["ranks"] > 1), key=_epoch)
        text += f"; {_named(other)} would take {_epoch(other):.3g} s"
    return {"index": rows.index(best), **{key: best[key] for key in ("strategy", "parts", "ranks", "grid")},
            "text": text}


def left_out(survey, rows, options):
    """Which strategies are missing for some numbers of ranks, why, and how to see them: lines of text."""
    asked, config = sorted({entry["ranks"] for entry in rows}), options.config
    found = []
    if survey.offsets is not None:
        own = survey.offsets.size - 1
        others = [k for k in asked if k not in (1, own)]  # on one rank all strategies are one
        if others:
            found.append(f"{' and '.join(OWN_PARTS)} keep to the {own} part{'s' * (own > 1)} of this file and are left "
                         f"out for {_listed(others)} ranks: `hpgcn partition -k {others[0]}` of the graph it was made "
                         "from makes a file for them")
    if config.grid:
        name = "3d" if config.grid.count("x") == 2 else "2d"
        found.append(f"{name} is shown on the grid {config.grid} alone: leave out {setting('grid')} for others")
    if config.replication:
        others = [k for k in asked if k % config.replication]
        if others:
            found.append(f"1.5d is left out for {_listed(others)} ranks, which "
                         f"{setting('replication', config.replication)} does not divide")
    return found


def _listed(numbers):
    return ", ".join(map(str, numbers[:-1])) + " and " * (len(numbers) > 1) + str(numbers[-1])


def notes(options, rows):
    """What a reader should know beside the numbers."""
    found = []
    if not options.network:
        found.append(f"network assumed: {options.machine.latency_s * 1e6:g} us, "
                     f"{options.machine.network_bytes_per_s / 1e9:g} GB/s a rank")
    if options.machine == Machine():
        found.append("machine assumed: one rank per node of two sockets; measure yours: `hpgcn bench machine --json` "
                     "and --machine FILE")
    free = available_memory()
    large = sum(entry["memory"]["max_bytes"] > free for entry in rows)
    if options.memory is None and large:
        found.append(f"{large} of {len(rows)} cases need more memory per rank than the {free / 1e9:.3g} GB free here; "
                     "--memory BYTES keeps such out of the choice")
    missing = sorted({entry["strategy"] for entry in rows if not entry["runs"]})
    if missing:
        found.append(f"* forecast only, `hpgcn train` does not take it yet: {', '.join(missing)}")
    return found


def table(report):
    """Lines for people: the choice and the notes, then a row a case. No line feed at the end."""
    graph, widths = report["graph"], ",".join(map(str, report["step"]["widths"]))
    title = (f"{graph['name']}: {graph['num_nodes']:,} vertices, {graph['multiplied_nonzeros']:,} nonzeros with loops, "
             f"widths {widths}; a training step of {report['step']['model']}")
    levels = report["rows_per_level"]["train"]
    if min(levels) < graph["num_nodes"]:
        title += f" on {', '.join(f'{rows:,}' for rows in levels)} rows"
    marks = ["! more than --memory"] if not all(entry["fits"] for entry in report["rows"]) else []
    choice = report["choice"]["text"] if report["choice"] else "none: no case here can be run by `hpgcn train`"
    return "\n".join([title, "choice: " + choice, *report["notes"], *marks, "", *_cases(report)])


def _cases(report):
    """Aligned lines: a heading, and a row for each case; the chosen one is pointed at."""
    head = ("strategy", "parts", "ranks", "grid", "MB sent", "max/rank", "messages", "max/rank", "GB/rank", "s/epoch",
            "compute", "communication")
    lines = [head]
    for entry in report["rows"]:
        seconds = entry["seconds"]
        lines.append((
            entry["strategy"] + ("" if entry["runs"] else " *"), entry["parts"], str(entry["ranks"]),
            "x".join(map(str, entry["grid"])), f"{entry['bytes']['total'] / 1e6:,.2f}",
            f"{entry['bytes']['max'] / 1e6:,.2f}", f"{entry['messages']['total']:,}", f"{entry['messages']['max']:,}",
            f"{entry['memory']['max_bytes'] / 1e9:.3g}" + ("" if entry["fits"] else " !"), f"{seconds['epoch']:.3g}",
            f"{seconds['compute']:.3g}", f"{seconds['communication']:.3g}"))
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join(cell.ljust(width) if number < 2 else cell.rjust(width)
                      for number, (cell, width) in enumerate(zip(line, widths))) for line in lines]
    if report["choice"]:
        text[1 + report["choice"]["index"]] += "  <- choice"
    return text


def _by_kind(counts):
    by_rank = sum(counts.values())
    return {"total": int(by_rank.sum()), "max": int(by_rank.max()),
            **{kind: {phase: int(counts[kind, phase].sum()) for phase in PHASES} for kind in KINDS}}


def _epoch(entry):
    return entry["seconds"]["epoch"]


def _named(entry, ranks=True):
    parts = "" if entry["ranks"] == 1 else f" on {entry['parts']} parts" if entry["parts"] != "stored" else ""
    return (f"{entry['ranks']} rank{'s' * (entry['ranks'] > 1)}, " if ranks else "") + entry["strategy"] + parts


def _refuse(survey, rows, options):
    """Say which power of two is the least number of ranks on which p2p fits, on parts that need no engine."""
    tried, memory = sorted({entry["ranks"] for entry in rows}), options.memory
    least, most = min(entry["memory"]["max_bytes"] for entry in rows), min(survey.header.num_nodes, MAX_RANKS)
    said = (f"{survey.name}: --memory is {memory:,} bytes per rank, but at least {least:,} are needed on "
            f"{', '.join(map(str, tried))} rank{'s' * (tried != [1])}")
    ranks = 1 << tried[-1].bit_length()
    while ranks <= most:
        for parts in QUICK:
            need = int(peak(survey.step, case(survey, "p2p", parts, ranks, (ranks,)).share).max())
            if need <= memory:
                raise ConfigError(f"{said}; {ranks} ranks would do (p2p on {parts} parts: {need:,} bytes)")
            least = min(least, need)
        ranks *= 2
    raise ConfigError(f"{said}; no power of two up to {most} would do: the least found is {least:,} bytes")

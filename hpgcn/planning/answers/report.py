"""Compare the ways to train a graph, choose one, and write the results as a table."""
import dataclasses
import math
import time
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

import numpy as np

from hpgcn.config import COST_FIELDS
from hpgcn.errors import ConfigError, setting
from hpgcn.partition.rows.row_methods import QUICK
from hpgcn.planning.answers import batch_report
from hpgcn.planning.answers.automatic import (
    difference,
    places_by_ranks,
    prepare,
    rows_moved,
    shown,
)
from hpgcn.planning.answers.candidates import (
    Candidate,
    candidates,
    count_candidate,
    count_fastest,
    default_ranks,
    grid_owner,
)
from hpgcn.planning.answers.goals import MAX_RANKS, epoch_seconds
from hpgcn.planning.answers.node_report import node_notes, tiers_of
from hpgcn.planning.answers.open_cases import best_case, could_be_chosen, next_place
from hpgcn.planning.answers.strategy_per_layer import of_layers
from hpgcn.planning.counts.plan_input import title_of
from hpgcn.planning.counts.sized_input import make_input
from hpgcn.planning.seconds.step_seconds import Machine, step_seconds
from hpgcn.runtime.machine import available_memory
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.text_table import table as aligned
from hpgcn.sampling import parse
from hpgcn.strategies import STRATEGIES, read_options, strategy_by_name, variant

SHOWN = 2.0  # seconds after which progress is shown
# the text in each column of a table, by the row of a case
CELLS = {
    "strategy": "{strategy}".format_map,
    "parts": "{parts}".format_map,
    "ranks": "{ranks}".format_map,
    "grid": lambda entry: "x".join(map(str, entry["grid"])),
    "s/epoch": "{seconds[epoch]:.3g}".format_map,
    "compute": "{seconds[compute]:.3g}".format_map,
    "communication": "{seconds[communication]:.3g}".format_map,
    "MB sent": lambda entry: megabytes(entry["bytes"]["total"]),
    "max MB": lambda entry: megabytes(entry["bytes"]["max"]),
    "messages": "{messages[total]:,}".format_map,
    "max messages": "{messages[max]:,}".format_map,
    "GB/rank": lambda entry: (f"{entry['memory']['max_bytes'] / 1e9:.3g}"
                              + " !" * (not entry["fits"])),
    "MB between": lambda entry: megabytes(entry["bytes_between_nodes"]),
    "s between": "{seconds[between_nodes]:.3g}".format_map,
    "MB within": lambda entry: megabytes(entry["bytes_within_nodes"]),
    "s within": "{seconds[within_nodes]:.3g}".format_map}
OF_NODES = ("MB between", "s between", "MB within", "s within")


def forecast(path, options, *, progress=False):
    """Forecast a training step on a graph (.h5) in every case of the Options.

    Return the JSON object of docs/plan.md, a dict. Its `rows` have a dict for each
    case, and `choice` is the case to take. A ConfigError if no case fits
    options.memory: it names the least number of ranks that would; other errors as
    `PlanInput` and `candidates`. For batches the object is another:
    `hpgcn.planning.answers.batch_report.forecast`.
    """
    # plans of batches have a report of their own
    config = options.config
    if request := parse(config.batch):
        return batch_report.forecast(path, options, request, progress=progress)

    # count each case, and choose one
    inputs = make_input(path, options)
    if not (inputs.part_counts or options.methods or inputs.sized):
        inputs.prepared = prepare(inputs, options.ranks or default_ranks(inputs))
    rows = compare(inputs, options, progress)
    if not any(entry["fits"] for entry in rows):
        _refuse(inputs, rows, options)
    choice = choose(rows)
    places = places_by_ranks(inputs, rows, choose).values()
    for place, entry in enumerate(rows):
        entry["train"] = place in places

    return {
        "graph": inputs.describe(path), "step": step_of(inputs),
        "settings": {name: getattr(config, name) for name in COST_FIELDS},
        "rows_per_level": {"train": inputs.totals(inputs.ordered.train),
                           "evaluated": inputs.totals(inputs.ordered.evaluated)},
        "machine": machine_of(options),
        "memory_limit_bytes": options.memory, "rows": rows, "choice": choice,
        "goal": options.goal and options.goal.answer(rows, named),
        "training": training_of(rows[choice["index"]], options),
        "notes": [*inputs.notes, *left_out(inputs, rows, options), *notes(options, rows),
                  *difference(inputs, rows, choice, choose, options)]}


def compare(inputs, options, progress=False, each_ranks=False):
    """Forecast every case of the Options; return a list of dicts.

    Errors are those of `candidates`. Cases that cannot be chosen may have lower bounds
    only; their `counted` is false. If `each_ranks`, none of them is the fastest on its
    number of ranks.
    """
    ranks = options.ranks
    if ranks is None and options.goal and not inputs.part_counts:
        ranks = options.goal.numbers(inputs.header.num_nodes)
    listed = candidates(inputs, ranks, options.methods)

    # count cases on the same parts together, so that a mixture can reuse them
    rows = {}
    layered = []
    open_mixtures = {}
    begin = time.monotonic()
    by_place = attrgetter("place")
    with bar(total=len(listed), unit="case", leave=False, shown=progress, delay=SHOWN) as cases:
        for place, group in groupby(sorted(listed, key=by_place), key=by_place):
            counted = {}
            for candidate in group:
                _show(cases, candidate, begin)
                runs = place[0] in inputs.prepared and not inputs.is_large
                footprint = count_fastest(inputs, candidate, options.machine,
                                          floor=not (options.goal or runs))
                rows[candidate] = row(candidate, footprint, options)
                if STRATEGIES[candidate.strategy].requires_partition:
                    counted[candidate] = footprint
                cases.update(rows[candidate]["counted"])
            mixes = counted and options.machine.nodes(place[0]) is None and not inputs.sized
            mixture = mixes and of_layers(inputs, counted, options.machine, floor=not options.goal)
            if isinstance(mixture, float):
                open_mixtures[place] = mixture, tuple(counted)
            elif mixture:
                layered.append(row(*mixture, options))
            del counted, footprint, mixture  # free their patterns

        # count those with lower bounds that could be chosen, those of the same parts together
        later = {}

        def is_open(seconds, ranks):
            every = [*rows.values(), *layered, *later.values()]
            return could_be_chosen(seconds, ranks, every, each_ranks)

        while place := next_place(rows, open_mixtures, is_open):
            for candidate in listed:
                if candidate.place != place:
                    continue
                entry = rows[candidate]
                if not entry["counted"] and is_open(epoch_seconds(entry), candidate.ranks):
                    _show(cases, candidate, begin)
                    exact = count_fastest(inputs, candidate, options.machine)
                    rows[candidate] = row(candidate, exact, options)
                    del exact  # free its pattern
                    cases.update()
            seconds, counted = open_mixtures.get(place, (math.inf, ()))
            if counted and is_open(seconds, counted[0].ranks):
                del open_mixtures[place]
                counted = {candidate: count_candidate(inputs, candidate) for candidate in counted}
                mixture = of_layers(inputs, counted, options.machine)
                if mixture:
                    later[place] = row(*mixture, options)
                del counted, mixture
        cases.update(cases.total - cases.n)

    layered += [entry for _, entry in sorted(later.items(), key=lambda each: each[0])]
    rows = [*(rows[candidate] for candidate in listed), *layered]
    return sorted(rows, key=lambda entry: entry["ranks"])  # rows of equal ranks stay in this order


def _show(cases, candidate, begin):
    """Show which case is counted next, once SHOWN seconds have passed since `begin`."""
    text = f"{candidate.strategy} on {candidate.parts} parts, {candidate.ranks} ranks"
    cases.set_description(text, refresh=time.monotonic() >= begin + SHOWN)


def step_of(inputs):
    """Return the description of the trained model for the JSON object."""
    spec = inputs.spec
    return {"widths": list(spec.widths), "itemsize": spec.row_itemsize,
            "sparse_features": spec.sparse_features, "constant": spec.precomputed,
            "directed": inputs.header.directed, "model": spec.architecture,
            "multilabel": spec.multilabel, "norm": spec.norm,
            "rows": inputs.totals(inputs.ordered.train), "drop_AX": spec.drop_AX}


def machine_of(options):
    """Return the machine as a dict for JSON.

    Kernel rates are listed by their numbers of ranks only.
    """
    numbers = asdict(dataclasses.replace(options.machine, rates=()))
    return {**numbers, "rates": [each.ranks for each in options.machine.rates],
            "network_from_file": options.network}


def row(candidate, footprint, options):
    """Return the forecast for one Candidate, a dict for the JSON object."""
    compute, communication = step_seconds(options.machine, footprint)
    memory = memory_of(footprint)
    prediction = footprint.prediction
    strategy = variant(strategy_by_name(candidate.strategy), options.config)

    tiers, volumes = tiers_of(candidate.ranks, footprint, options.machine)

    return {
        "strategy": strategy.title(read_options(options.config)),
        "parts": candidate.parts, "ranks": candidate.ranks,
        "grid": list(candidate.shape),
        "counted": not footprint.plan.is_floor,
        "first_batches": footprint.plan.first_batches,
        "fits": options.memory is None or memory["max_bytes"] <= options.memory,
        "rows_moved": rows_moved(strategy, footprint.plan),
        "bytes": prediction.summary("bytes"),
        "messages": prediction.summary("messages"),
        "memory": memory,
        "seconds": {"epoch": compute + communication, "compute": compute,
                    "communication": communication, **tiers},
        **volumes}


def memory_of(footprint):
    """Return the bytes of the rank that needs most memory, a dict.

    They are means over ranks if the plan has lower bounds.
    """
    peak = footprint.peak
    rank = int(np.argmax(peak))

    def size(sizes):
        return int(sizes.mean() if footprint.plan.is_floor else sizes[rank])

    return {"max_bytes": size(peak), "rank": rank, "setup": size(footprint.setup),
            **{name: size(sizes) for name, sizes in footprint.parts.items()}}


def choose(rows):
    """Choose a case that fits: fewest ranks whose time is near the fastest.

    The entry `text` gives the reason.
    """
    counted = [entry for entry in rows if entry["counted"]]
    fitting = [entry for entry in counted if entry["fits"]]
    best = best_case(fitting)

    # its costs, for the text
    text = f"{named(best)}: {epoch_seconds(best):.3g} s per epoch"
    if best["bytes"]["total"]:
        text += f", of which {best['seconds']['communication']:.2g} s communication"

    # compare it with another strategy, or with more ranks
    others = [entry for entry in rows
              if entry["ranks"] == best["ranks"] and entry["strategy"] != best["strategy"]]
    if others and best["bytes"]["total"]:
        other = min(others, key=epoch_seconds)
        ratio = other["bytes"]["total"] / best["bytes"]["total"]
        least = "" if other["counted"] else "at least "
        text += (f"; {named(other, ranks=False)} would take {least}{epoch_seconds(other):.3g} s "
                 f"and send {least}{ratio:.2f}x as much")
    elif len({entry["ranks"] for entry in fitting}) > 1 and best["ranks"] == 1:
        other = min((entry for entry in fitting if entry["ranks"] > 1), key=epoch_seconds)
        text += f"; {named(other)} would take {epoch_seconds(other):.3g} s"

    names = {key: best[key] for key in ("strategy", "parts", "ranks", "grid")}
    return {"index": rows.index(best), **names, "text": text}


def left_out(inputs, rows, options):
    """Return a line for each strategy that some numbers of ranks lack.

    The line has the reason and a remedy.
    """
    numbers = sorted({entry["ranks"] for entry in rows})
    config = options.config
    lines = []
    if inputs.part_counts:
        parts = inputs.part_counts[0]
        # on one rank all strategies are one
        others = [k for k in numbers if k not in (1, *inputs.part_counts)]
        if others:
            names = [name for name, strategy in STRATEGIES.items() if strategy.accepts_partition]
            lines.append(f"{_listed(names)} keep to the {parts} part{'s' * (parts > 1)} of this "
                         f"file and are left out for {_listed(others)} ranks: `hpgcn partition -k "
                         f"{others[0]}` of the graph it was made from makes a file for them")
    words = read_options(config)
    if words.grid:
        name = grid_owner(words.grid.split("x"))
        lines.append(f"{name} is shown only on the grid {words.grid}: omit it in "
                     f"{setting('strategy')} for other grids")
    if words.replication:
        others = [k for k in numbers if k % words.replication]
        if others:
            names = [name for name, strategy in STRATEGIES.items()
                     if "replication" in strategy.options]
            lines.append(f"{_listed(names)} is left out for {_listed(others)} ranks, which "
                         f"{words.replication} copies of rows do not divide")
    return lines


def _listed(things):
    return ", ".join(map(str, things[:-1])) + " and " * (len(things) > 1) + str(things[-1])


def notes(options, rows):
    """Return notes that explain the forecast, a list of str."""
    found = [options.calibrated] if options.calibrated else []
    if not options.network:
        found.append(f"network assumed: {options.machine.latency_s * 1e6:g} us, "
                     f"{options.machine.network_bytes_per_s / 1e9:g} GB/s per rank")
    if options.machine == Machine():
        found.append("machine assumed: one rank per node of two sockets; measure yours: "
                     "`hpgcn bench machine --json` and --machine FILE")
    found += node_notes(options, max((entry["ranks"] for entry in rows), default=1))
    bounded = [entry for entry in rows if not entry["counted"]]
    if bounded:
        found.append(f"at least: lower bounds of {len(bounded)} of {len(rows)} cases, which are "
                     "not counted because they cannot be chosen")
    free = available_memory()
    large = sum(entry["memory"]["max_bytes"] > free for entry in rows)
    if options.memory is None and large:
        found.append(f"{large} of {len(rows)} cases need more memory per rank than the "
                     f"{free / 1e9:.3g} GB free here; use --memory BYTES to exclude them")
    return found


def training_of(entry, options):
    """Return epochs, hours and node-hours of a training in the case of a row, a dict.

    Without nodes in the machine each rank is on a node of its own.
    """
    epochs = options.config.epochs
    hours = epochs * epoch_seconds(entry) / 3600
    nodes = entry.get("nodes", entry["ranks"])
    return {"epochs": epochs, "hours": hours, "nodes": nodes, "node_hours": hours * nodes}


def table(report, *, every=False):
    """Return the forecast as text: the choice, notes, then a row per case.

    Rows of `hpgcn train` come first. Without `every`, slower rows are left out.
    No line feed at the end.
    """
    if "batch" in report:
        return batch_report.table(report)

    # the title names the graph, the model and the rows of each layer
    graph = report["graph"]
    title = (f"{title_of(graph)}, widths {','.join(map(str, report['step']['widths']))}; a "
             f"training step of {report['step']['model']}")
    levels = report["rows_per_level"]["train"]
    if min(levels) < graph["num_nodes"]:
        title += f" on {', '.join(f'{rows:,}' for rows in levels)} rows"

    # the choice, the goal and the notes
    choice = report["choice"]
    goal = report["goal"]
    lines = [title, "choice: " + choice["text"]]
    training = report["training"]
    lines.append(f"training: {training['epochs']:,} epochs of the choice take "
                 f"{training['hours']:.2g} h, {training['node_hours']:.2g} node-hours on "
                 f"{training['nodes']:,} node{'s' * (training['nodes'] > 1)}")
    if goal:
        lines.append(f"{goal['asked']}: {goal['text']}")
    lines += report["notes"]
    lines += _pipelines(report["rows"])
    if not all(entry["fits"] for entry in report["rows"]):
        lines.append("! more than --memory")

    # a row for each case
    tiers = any("bytes_between_nodes" in entry for entry in report["rows"])
    columns = [name for name in CELLS if tiers or name not in OF_NODES]
    places = shown(report, every)
    cases = [columns, *([CELLS[name](report["rows"][place]) for name in columns]
                        for place in places)]

    # mark the cases with lower bounds, and those that are recommended
    marks = {}
    for line, place in enumerate(places, 1):
        entry = report["rows"][place]
        names = [name for name, applies in (
            ("hpgcn train", entry["train"]), ("choice", place == choice["index"]),
            (goal and goal["asked"], goal and place == goal["index"])) if applies]
        if names or not entry["counted"]:
            marks[line] = f"<- {', '.join(names)}" if names else "at least"
    if len(places) < len(report["rows"]):
        lines.append(f"{len(places)} of {len(report['rows'])} cases; --all prints all of them")
    return "\n".join([*lines, "", aligned(cases, left=(0, 1), marks=marks, keys=3)])


def megabytes(size):
    """Return bytes as a text in units of 10^6 bytes."""
    return f"{size / 1e6:,.2f}"


def _pipelines(rows):
    """Return a list with a line on the batches that first products wait for.

    The list is empty if no case has batches.
    """
    found = [f"{entry['first_batches'][0]} of {entry['first_batches'][1]} on {entry['ranks']} ranks"
             for entry in rows if entry["first_batches"]]
    return [f"batches of rows that the first product waits for: {', '.join(found)}"] * bool(found)


def named(entry, ranks=True):
    """Return the strategy, the ranks and the parts of a row in words."""
    text = entry["strategy"]
    if ranks:
        text = f"{entry['ranks']} rank{'s' * (entry['ranks'] > 1)}, {text}"
    if entry["ranks"] > 1 and entry["parts"] != "stored":
        text += f" on {entry['parts']} parts"
    return text


def _refuse(inputs, rows, options):
    """Raise the error that names the smallest number of ranks that fits.

    It is a power of two, with block or random parts.
    """
    tried = sorted({entry["ranks"] for entry in rows})

    memory = options.memory
    least = min(entry["memory"]["max_bytes"] for entry in rows)
    most = min(inputs.header.num_nodes, MAX_RANKS)
    text = (f"{inputs.name}: --memory is {memory:,} bytes per rank, but at least {least:,} are "
            f"needed on {', '.join(map(str, tried))} rank{'s' * (tried != [1])}")

    # try more ranks, each of which stores less
    kind = next(strategy for strategy in STRATEGIES.values() if strategy.requires_partition)
    ranks = 1 << tried[-1].bit_length()
    while ranks <= most:
        for parts in QUICK:
            candidate = Candidate(kind.name, parts, ranks, kind.default_shape(ranks))
            need = int(count_candidate(inputs, candidate).peak.max())
            if need <= memory:
                raise ConfigError(f"{text}; {ranks} ranks are enough ({kind.name} on {parts} "
                                  f"parts: {need:,} bytes)")
            least = min(least, need)
        ranks *= 2

    raise ConfigError(f"{text}; no power of two up to {most} is enough: the least memory found is "
                      f"{least:,} bytes")

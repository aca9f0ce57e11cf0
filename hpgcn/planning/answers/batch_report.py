"""`hpgcn plan --batch`: what steps and epochs of a way to train send, as JSON and as a table."""
import numpy as np

from hpgcn.config import COST_FIELDS
from hpgcn.errors import DataError, UsageError, setting
from hpgcn.model import products_of
from hpgcn.partition.batch_parts import parts_of
from hpgcn.planning.answers.candidates import arranged, candidates, count
from hpgcn.planning.counts.batch_traffic import InducedTraffic, NeighbourTraffic, decreasing_levels
from hpgcn.planning.counts.survey import Survey
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.text_table import table as aligned
from hpgcn.sampling import SAMPLERS
from hpgcn.strategies import STRATEGIES, Strategy, variant

RISK = 0.05  # chance that an epoch's bytes lie outside of the stated interval
REPLAYED = 1  # the epoch that is counted


def forecast(path, options, request, *, progress=False):
    """Predict what batches send in every case of the Options that trains on them.

    Return the JSON object of docs/plan.md, a dict; errors as `report.forecast`, and
    as `sampler_of`; a UsageError if no strategy among the cases takes batches.
    """
    # refuse questions that plans of batches do not answer
    if options.memory is not None:
        raise UsageError(f"{setting('memory')} needs {setting('batch', 'full')}: the memory of "
                         "mini-batches is not forecast")
    if options.goal is not None:
        raise UsageError(f"--goal {options.goal.text}: the seconds of mini-batches are not "
                         "forecast")

    # find the strategies that train on batches
    config = settings_of(options.config)
    survey = Survey(path, config, options.widths)
    listed = candidates(survey, options.ranks, options.methods)
    able = [each for each in listed
            if variant(STRATEGIES[each.strategy], config.delay).supports_minibatches]
    others = dict.fromkeys(each.strategy for each in listed if each not in able)

    # count each case
    rows = []
    with bar(able, unit="case", leave=False, shown=progress) as cases:
        for each in cases:
            cases.set_description(f"{each.strategy} on {each.parts} parts, {each.ranks} ranks")
            rows.append(row(survey, each, request))
    if not rows:
        raise UsageError(f"{setting('batch', options.config.batch)}: none of the strategies "
                         f"supports mini-batches, expected one of {', '.join(takers())}")

    spec = survey.spec
    return {
        "graph": survey.describe(path),
        "step": {"widths": list(spec.widths), "itemsize": spec.row_itemsize,
                 "model": spec.architecture},
        "settings": {name: getattr(options.config, name) for name in COST_FIELDS},
        "batch": options.config.batch, "seed": config.seed, "rows": rows,
        "notes": [*survey.notes, *notes(others, request)]}


def takers():
    """Return the names of the strategies that train on batches."""
    return [name for name, each in STRATEGIES.items() if each.supports_minibatches]


def notes(others, request):
    """Return the notes for a reader of the numbers."""
    found = ["expected bytes are exact expectations, messages take rows as independent"]
    if not SAMPLERS[request.name].induced:
        found = ["bytes and messages are estimates: draws are taken as independent"]
    found.append("seconds and memory are not forecast for mini-batches")
    if others:
        found.append(f"{', '.join(others)}: left out, batches go with {', '.join(takers())}")
    return found


def row(survey, candidate, request):
    """Return the numbers of one case, for the JSON object."""
    strategy = variant(STRATEGIES[candidate.strategy], survey.config.delay)
    reading, offsets = arranged(survey, candidate, strategy)
    batches = batches_of(reading, survey, strategy, candidate.shape, offsets, request)
    mean = batches.expected()
    steps = batches.sampler.batches

    found = {
        "strategy": strategy.title(survey.strategy_options), "parts": candidate.parts,
        "ranks": candidate.ranks, "grid": list(candidate.shape), "steps": steps,
        "step": {"bytes": mean.summary(mean.bytes, steps),
                 "messages": mean.summary(mean.messages, steps)},
        "epoch": {"bytes": mean.summary(mean.bytes), "messages": mean.summary(mean.messages)},
        "replayed": None, "interval": None}

    # what one epoch sends, batch by batch, if its batches are known beforehand
    if isinstance(batches, InducedTraffic):
        counted = batches.replay(REPLAYED)
        found["replayed"] = {
            "epoch": REPLAYED, **{
                name: {**counted.summary(counts), "mean_of_max": counted.busiest(counts)}
                for name, counts in (("bytes", counted.bytes), ("messages", counted.messages))}}
        total, off = float(mean.epoch(mean.bytes).sum()), batches.deviation(RISK)
        found["interval"] = {"chance": 1 - RISK, "bytes": [max(0.0, total - off), total + off]}

    return found


def settings_of(config):
    """Return the settings that a Survey of batches takes.

    Nothing is formed once, and no row is left out because no loss ever reads it.
    """
    return config.replace(precompute=False, prune=False)


def batches_of(reading, survey, strategy, shape, offsets, request):
    """Return the BatchTraffic of a strategy on row blocks.

    As `hpgcn.planning.answers.candidates.count`.

    The survey was made by `settings_of`.
    """
    footprint = count(reading, survey, strategy, shape, offsets)
    sampler, unit = sampler_of(survey, reading, request, survey.config.seed)
    spec = survey.spec
    levels = footprint.levels
    if not sampler.induced:
        levels = (decreasing_levels(sum(products_of(spec))),) * 2
    given = (footprint.plan, footprint.prediction, footprint.steps.products(spec, levels),
             spec.row_itemsize, sampler)
    if sampler.induced:
        return InducedTraffic(*given, unit=unit)
    return NeighbourTraffic(*given, seeds=reading.labelled)


def sampler_of(survey, reading, request, seed):
    """Return the Sampler of a request, and the unit of each row of a Reading, (n,), or None.

    Errors as `hpgcn.partition.batch_parts.parts_of`, and `BatchRequest.fan_outs_for`; a
    DataError without training vertices.
    """
    kind = SAMPLERS[request.name]

    # samplers that draw neighbors deal training vertices
    if not kind.induced:
        if reading.labelled is None or not reading.labelled.any():
            raise DataError(f"{survey.name}: no training vertices")
        fan_outs = request.fan_outs_for(sum(products_of(survey.spec)))
        seeds = int(np.count_nonzero(reading.labelled))
        return kind(seeds, request.size, seed, fan_outs), None

    # others deal vertices, or parts of them
    n = survey.header.num_nodes
    if not kind.samples_parts:
        return kind(n, request.size, seed), reading.vertex

    own = None
    if survey.offsets is not None:
        own = _by_vertex(survey.reading.vertex, survey.offsets)
    part, number = parts_of(request, survey.name, n, own, lambda k: _scattered(
        survey.partition(Strategy.method, k).part, survey.reading.vertex))
    return kind(number, request.size, seed), part[reading.vertex].astype(np.int64)


def _by_vertex(vertex, offsets):
    """Return the part of each ORIGINAL vertex, of rows cut at offsets; and the number of parts."""
    sizes = np.diff(offsets)
    return _scattered(np.repeat(np.arange(sizes.size), sizes), vertex), sizes.size


def _scattered(values, vertex):
    found = np.empty_like(values)
    found[vertex] = values
    return found


def table(report):
    """Return lines of text: the notes, then a row a case. No line feed at the end."""
    # the title and the heading
    graph = report["graph"]
    title = (f"{graph['name']}: {graph['num_nodes']:,} vertices, "
             f"{graph['multiplied_nonzeros']:,} nonzeros with loops, widths "
             f"{','.join(map(str, report['step']['widths']))}; batches {report['batch']} of "
             f"{report['step']['model']}")
    heading = ("strategy", "parts", "ranks", "steps", "MB a step", "max MB", "mean of max",
               "messages", "MB an epoch", "+-", f"epoch {REPLAYED}", "max MB an epoch",
               "messages an epoch", "counted")

    # a row for each case; columns of the replayed epoch may be empty
    cases = [heading]
    for entry in report["rows"]:
        step, epoch, replayed = entry["step"], entry["epoch"], entry["replayed"]
        counted, off = ("-",) * 3, "-"
        if replayed:
            off = _megabytes(entry["interval"]["bytes"][1] - epoch["bytes"]["total"])
            counted = (_megabytes(replayed["bytes"]["mean_of_max"]),
                       _megabytes(replayed["bytes"]["total"]),
                       f"{replayed['messages']['total']:,}")
        cases.append((
            entry["strategy"], entry["parts"], str(entry["ranks"]), f"{entry['steps']:,}",
            _megabytes(step["bytes"]["total"]), _megabytes(step["bytes"]["max"]), counted[0],
            f"{step['messages']['total']:,.1f}", _megabytes(epoch["bytes"]["total"]), off,
            counted[1], _megabytes(epoch["bytes"]["max"]), f"{epoch['messages']['total']:,.0f}",
            counted[2]))

    return "\n".join([title, *report["notes"], "", aligned(cases, left=(0, 1), keys=3)])


def _megabytes(value):
    return f"{value / 1e6:,.3f}"

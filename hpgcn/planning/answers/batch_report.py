"""`hpgcn plan --batch`: forecast bytes and messages of mini-batch steps and epochs.

The forecast is written as JSON and as a table.
"""
import numpy as np

from hpgcn.config import COST_FIELDS
from hpgcn.errors import DataError, UsageError, setting
from hpgcn.model import products_of
from hpgcn.partition.batch_parts import METHOD, parts_of
from hpgcn.planning.answers.candidates import arranged, candidates, count
from hpgcn.planning.counts.batch_traffic import BatchPlans, counted_batches, decreasing_levels
from hpgcn.planning.counts.plan_input import PlanInput, title_of
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.text_table import table as aligned
from hpgcn.sampling import SAMPLERS
from hpgcn.strategies import STRATEGIES, variant

# settings for the PlanInput of mini-batches: no product in advance, no rows are pruned
WHOLE_STEPS = {"precompute": False, "prune": False}


def forecast(path, options, request, *, progress=False):
    """Forecast the bytes that mini-batches send, for each case of the Options.

    Return the JSON object of docs/plan.md, a dict. Cases that do not support
    mini-batches are left out. Errors as `report.forecast` and `sampler_of`; UsageError
    if no strategy among the cases supports mini-batches.
    """
    # refuse questions that plans of batches do not answer
    if options.memory is not None:
        raise UsageError(f"{setting('memory')} needs {setting('batch', 'full')}: the memory of "
                         "mini-batches is not forecast")
    if options.goal is not None:
        raise UsageError(f"--goal {options.goal.text}: the seconds of mini-batches are not "
                         "forecast")

    # find the strategies that train on batches
    config = options.config.replace(**WHOLE_STEPS)
    inputs = PlanInput(path, config, options.widths)
    listed = candidates(inputs, options.ranks, options.methods)
    able = [case for case in listed
            if variant(STRATEGIES[case.strategy], config).supports_minibatches]
    others = dict.fromkeys(case.strategy for case in listed if case not in able)

    # count each case
    rows = []
    with bar(able, unit="case", leave=False, shown=progress) as cases:
        for case in cases:
            cases.set_description(f"{case.strategy} on {case.parts} parts, {case.ranks} ranks")
            rows.append(row(inputs, case, request))
    if not rows:
        raise UsageError(f"{setting('batch', options.config.batch)}: none of the strategies "
                         f"supports mini-batches, expected one of {', '.join(takers())}")

    spec = inputs.spec
    return {
        "graph": inputs.describe(path),
        "step": {"widths": list(spec.widths), "itemsize": spec.row_itemsize,
                 "model": spec.architecture},
        "settings": {name: getattr(options.config, name) for name in COST_FIELDS},
        "batch": options.config.batch, "seed": config.seed, "rows": rows,
        "notes": [*inputs.notes, *notes(others, rows)]}


def takers():
    """Return the names of the strategies that support mini-batches."""
    return [name for name, each in STRATEGIES.items() if each.supports_minibatches]


def notes(others, rows):
    """Return notes that explain the forecast, a list of str."""
    estimated = any(each["counted"] < each["steps"] for each in rows)
    found = [f"counted in {rows[0]['counted']} batches of epoch 1" if estimated else
             "all batches of epoch 1 are counted", "seconds and memory are not forecast for "
             "mini-batches"]
    if others:
        found.append(f"{', '.join(others)}: left out, because only {', '.join(takers())} support "
                     "mini-batches")
    return found


def row(inputs, candidate, request):
    """Return the forecast for one Candidate, a dict for the JSON object."""
    strategy = variant(STRATEGIES[candidate.strategy], inputs.config)
    ordered, offsets = arranged(inputs, candidate, strategy)
    batches = batches_of(ordered, inputs, strategy, candidate.shape, offsets, request)
    steps = batches.sampler.batches
    counted = [batches.predict(1, number) for number in counted_batches(steps)]

    numbers = {"strategy": strategy.title(inputs.strategy_options), "parts": candidate.parts,
               "ranks": candidate.ranks, "grid": list(candidate.shape), "steps": steps,
               "counted": len(counted), "step": {}, "epoch": {}}
    for name in ("bytes", "messages"):
        sent = [prediction.summary(name) for prediction in counted]
        totals = [summary["total"] for summary in sent]
        numbers["step"][name] = {**_mean(sent), "std": float(np.std(totals))}
        numbers["epoch"][name] = round(steps * float(np.mean(totals)))
    return numbers


def _mean(tables):
    """Return the element-wise mean of nested dicts of numbers, a dict."""
    return {name: _mean([each[name] for each in tables]) if isinstance(value, dict)
            else float(np.mean([each[name] for each in tables]))
            for name, value in tables[0].items()}


def batches_of(ordered, inputs, strategy, shape, offsets, request):
    """Return the BatchPlans of a strategy for rows that are divided into blocks.

    Parameters as `hpgcn.planning.answers.candidates.count`. `inputs` must have the
    settings WHOLE_STEPS.
    """
    footprint = count(ordered, inputs, strategy, shape, offsets)
    return plans_of(footprint, ordered, inputs, request)


def plans_of(footprint, ordered, inputs, request):
    """Return the BatchPlans of a RankFootprint of all OrderedRows; errors as `sampler_of`."""
    ordered = ordered.of_training
    sampler, unit = sampler_of(inputs, ordered, request, inputs.config.seed)
    spec = inputs.spec
    levels = footprint.levels
    if not sampler.induced:
        levels = (decreasing_levels(sum(products_of(spec))),) * 2
    products = footprint.steps.products(spec, levels)
    return BatchPlans(footprint.training, footprint.prediction, products, spec, sampler, unit,
                      ordered.vertex, inputs.links.draws if sampler.samples_links else None)


def sampler_of(inputs, ordered, request, seed):
    """Return the Sampler of a request, and the unit of each row, None if units are links.

    Units are (n,), -1 for no unit. The rows are OrderedRows. Errors as
    `hpgcn.partition.batch_parts.parts_of`, and `BatchRequest.fan_outs_for`; a DataError
    without training vertices.
    """
    kind = SAMPLERS[request.name]

    # samplers that draw neighbors deal training vertices, or links
    if not kind.induced:
        fan_outs = request.fan_outs_for(sum(products_of(inputs.spec)))
        if kind.samples_links:
            return kind(len(inputs.links.draws.numbers), request.size, seed, fan_outs), None
        if ordered.labeled is None or not ordered.labeled.any():
            raise DataError(f"{inputs.name}: no training vertices")
        seeds = ordered.vertex[ordered.labeled]
        unit = np.full(ordered.vertex.size, -1)
        unit[ordered.labeled] = np.searchsorted(np.sort(seeds), seeds)
        return kind(seeds.size, request.size, seed, fan_outs), unit

    # others deal vertices, or parts of them
    n = inputs.header.num_nodes
    if not kind.samples_parts:
        unit = np.searchsorted(np.sort(ordered.vertex), ordered.vertex)
        return kind(unit.size, request.size, seed), unit

    stored_parts = None
    if inputs.offsets is not None:
        stored_parts = _by_vertex(inputs.ordered.vertex, inputs.offsets)
    part, number = parts_of(request, inputs.name, n, stored_parts, lambda k: _scattered(
        inputs.partition(METHOD, k).part, inputs.ordered.vertex))
    return kind(number, request.size, seed), part[ordered.vertex].astype(np.int64)


def _by_vertex(vertex, offsets):
    """Return the part of each ORIGINAL vertex, and the number of parts.

    Rows are divided into parts at `offsets`.
    """
    sizes = np.diff(offsets)
    return _scattered(np.repeat(np.arange(sizes.size), sizes), vertex), sizes.size


def _scattered(values, vertex):
    found = np.empty_like(values)
    found[vertex] = values
    return found


def table(report):
    """Return the forecast as text: notes, then one row per case.

    It has no line feed at the end.
    """
    # the title and the heading
    graph = report["graph"]
    title = (f"{title_of(graph)}, widths {','.join(map(str, report['step']['widths']))}; batches "
             f"{report['batch']} of {report['step']['model']}")
    cases = [("strategy", "parts", "ranks", "steps", "counted", "MB per step", "+-", "max MB",
              "messages", "MB per epoch", "messages per epoch")]

    # a row for each case
    for entry in report["rows"]:
        sent, messages, epoch = entry["step"]["bytes"], entry["step"]["messages"], entry["epoch"]
        cases.append((
            entry["strategy"], entry["parts"], str(entry["ranks"]), f"{entry['steps']:,}",
            f"{entry['counted']:,}", *(_megabytes(sent[name]) for name in ("total", "std", "max")),
            f"{messages['total']:,.1f}", _megabytes(epoch["bytes"]), f"{epoch['messages']:,}"))

    return "\n".join([title, *report["notes"], "", aligned(cases, left=(0, 1), keys=3)])


def _megabytes(value):
    return f"{value / 1e6:,.3f}"

"""`hpgcn plan --from RUN`: correct forecasts by the measured seconds of a run."""
import dataclasses

import numpy as np

from hpgcn.config import COST_FIELDS, Config
from hpgcn.errors import DataError, printable
from hpgcn.planning.answers.candidates import Candidate, count_candidate
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import step_seconds
from hpgcn.sampling import parse
from hpgcn.setting_words import WORDS
from hpgcn.strategies import read_options, strategy_by_name

FIELDS = (*COST_FIELDS, "hidden", "layers")  # fields of a run that a plan uses


def settings_of(run):
    """Return the settings of an hpgcn.Run that a plan needs.

    They are `graph` (a path) and the FIELDS. Raise DataError if the run is not
    finished, or used mini-batches, whose seconds are not forecast.
    """
    path = run.path
    missing = {"graph", *FIELDS} - {"shortcuts"} - run.settings.keys()  # older runs have none
    if missing or not run.summary or not run.epochs:
        raise DataError(f"{printable(path)}: not a finished run, expected summary.json, "
                        "config.toml and a line of metrics.jsonl")
    if parse(run.settings["batch"]):
        raise DataError(f"{printable(path)}: was trained on mini-batches "
                        f"({run.settings['batch']}), whose seconds are not forecast")
    return _plan_settings(run)


def _plan_settings(run):
    return {name: run.settings[name] for name in ("graph", *FIELDS, *WORDS)
            if name in run.settings}


def calibrate(run, options):
    """Return Options whose forecast matches a measured Run.

    The rates of the machine are scaled by factors. These are medians of measured over
    forecast seconds of training steps, for computing and for communication. The first
    step is left out if there are others, because it touches memory for the first time.
    The run's graph is read again. Errors as `PlanInput`; DataError if the graph has
    other parts now.
    """
    # read the graph of the run again
    config = Config(**_plan_settings(run))
    ranks = run.summary["ranks"]
    strategy = strategy_by_name(read_options(config).strategy)
    inputs = PlanInput(config.graph, config)

    # find the case of the run
    shape = tuple(int(axis) for axis in run.summary["grid"].split("x"))
    parts = "stored"
    if ranks == 1:
        parts = "whole"
    elif strategy.accepts_partition and inputs.part_counts:
        if ranks not in inputs.part_counts:
            raise DataError(f"{printable(config.graph)}: {inputs.part_counts[0]} parts, but "
                            f"{printable(run.path)} had {ranks} ranks")
        parts = inputs.stored_parts
    elif strategy.requires_partition:
        parts = strategy.method

    exchange = {True: "always", False: "never"}.get(run.summary.get("node_aware"))
    footprint = count_candidate(inputs, Candidate(strategy.name, parts, ranks, shape),
                                nodes=options.machine.nodes(ranks), node_aware=exchange)
    expected = step_seconds(options.machine, footprint)

    # leave out the first step if there are others
    later = slice(1, None) if run.epochs > 1 else slice(None)
    metrics = {name: column[later] for name, column in run.metrics.items()}
    waited = metrics["comm_s"] + metrics["wait_s"] if ranks > 1 else 0 * metrics["epoch_s"]
    # on ranks that do not wait longest, these may be seconds of the same moment
    computed = np.maximum(metrics["epoch_s"] - waited, metrics["spmm_s"] + metrics["dense_s"])
    measured = [float(np.median(each)) for each in (computed, waited)]
    compute, communication = (seconds / forecast if seconds > 0 and forecast > 0 else 1.0
                              for seconds, forecast in zip(measured, expected))

    # scale the rates by measured over predicted seconds
    note = f"calibrated by {printable(run.path)}: computing takes {compute:.3g}"
    if communication != 1:
        note += f", communication {communication:.3g}"
    machine = dataclasses.replace(options.machine, compute_factor=compute,
                                  communication_factor=communication)
    return dataclasses.replace(options, machine=machine,
                               calibrated=f"{note} times the forecast by the machine's rates")

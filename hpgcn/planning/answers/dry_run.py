"""Forecast a run on the given ranks: `hpgcn train --dry-run` and `--memory`."""
from dataclasses import replace

import numpy as np

from hpgcn.errors import ConfigError, setting
from hpgcn.model import check_strategy, products_of
from hpgcn.parallel.receptive_field import layer_bounds
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.counts.footprint import LINKS, ON_GPU, PARTS
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine, step_seconds
from hpgcn.runtime.machine import process_bytes, size
from hpgcn.runtime.text_table import label_list
from hpgcn.runtime.text_table import table as table_of

COUNTING = 3600.0  # seconds that ranks wait, beyond their timeout, for the one that reads


def forecast(placed, config, comm):
    """Return the traffic and memory of a run whose Placement is known.

    All ranks call this together.

    Rank 0 reads the pattern of the whole adjacency, and which rows are in the masks; no
    values and no features. The dict, equal on all ranks, is the JSON object of
    docs/plan.md.

    - memory holds for each rank the bytes of the PARTS of hpgcn.planning.counts.footprint, setup
      and peak.
    - gpu_memory holds those of ON_GPU and their total; None without a GPU.
    - drop_AX is true if A H is not kept.
    - seconds are on an assumed machine.

    A ConfigError is raised on all ranks if one needs more than config.memory, even
    without A H.
    """
    report = None
    with comm.extended_timeout(COUNTING), comm.collective_errors():
        if comm.rank == 0:
            report = _count(placed, PlanInput(placed.source, config))
    return comm.bcast(report)


def forecast_process(placed, config, comm):
    """Return a `forecast` that also counts the memory of Python and libraries.

    All ranks call this together. The entries of memory are `process`, measured on this
    machine, and `total`.
    """
    # before the pattern is read; ranks that are threads share one process
    process = comm.allgather(process_bytes() // comm.process_ranks)
    report = forecast(placed, config, comm)
    for each, own in zip(report["memory"], process):
        each |= {"process": own, "total": own + each["peak"]}
    return report


def drops_AX(placed, config, comm):
    """Return whether A H is recomputed because it exceeds the memory.

    The result is that of hpgcn.model.ModelSpec.drop_AX. Parameters and errors as
    `forecast`. Nothing is read unless config.memory is set. With config.scratch A H is
    stored on the disk.
    """
    return bool(config.memory and not config.scratch) and forecast(placed, config, comm)["drop_AX"]


def _count(placed, inputs):
    # count the bytes of each rank
    config = inputs.config
    shape = placed.rank_grid.shape
    grid = placed.rank_grid
    check_strategy(placed.strategy, inputs.spec, placed.layout.size)
    footprint = count(inputs.ordered, inputs, placed.strategy, shape, placed.layout.offsets,
                      nodes=grid.nodes)

    # recompute AX in each step if it does not fit otherwise
    limit = size(config.memory) if config.memory else None
    peak = footprint.peak
    if limit is not None and peak.max() > limit:
        kept = peak
        footprint = replace(footprint, spec=replace(footprint.spec, drop_AX=True))
        peak = footprint.peak
        if peak.max() > limit:
            peak = min(kept, peak, key=np.max)
            rank = int(peak.argmax())
            raise ConfigError(f"{inputs.name}: rank {rank} of {peak.size} needs "
                              f"{int(peak[rank]):,} bytes, but {setting('memory')} is {limit:,}; "
                              f"`hpgcn plan --memory {limit}` finds how many ranks are enough")

    spec = footprint.spec
    prediction = footprint.prediction
    compute, communication = step_seconds(Machine(), footprint)

    def by_rank(sizes):
        return [{name: int(each[rank]) for name, each in sizes.items()}
                for rank in range(prediction.ranks)]

    return {
        "graph": inputs.header.name, "strategy": placed.strategy.title(inputs.strategy_options),
        "grid": "x".join(map(str, shape)), "ranks": prediction.ranks,
        "model": spec.architecture, "widths": list(spec.widths),
        "rows_per_level": [footprint.train.totals[place]
                           for place in layer_bounds(products_of(spec))],
        "predicted_bytes_per_epoch": prediction.total_bytes(),
        "predicted_messages_per_epoch": prediction.total_messages(),
        "max_rank_bytes_per_epoch": prediction.max_bytes(),
        **(prediction.per_epoch_between() if grid.nodes.numbers is not None else {}),
        "memory": by_rank({**footprint.parts, "setup": footprint.setup, "peak": peak}),
        "gpu_memory": by_rank(footprint.on_gpu) if config.updates_on == "cuda" else None,
        "memory_limit_bytes": limit, "drop_AX": spec.drop_AX,
        "first_batches": footprint.plan.first_batches,
        "seconds": {"epoch": compute + communication, "compute": compute,
                    "communication": communication},
        "notes": inputs.notes}


def table(report):
    """Return a forecast as text, without a line feed at the end."""
    seconds = report["seconds"]
    lines = [
        ("graph", f"{report['graph']}, {report['model']} of widths "
         f"{', '.join(map(str, report['widths']))}"),
        ("ranks", f"{report['ranks']}, strategy {report['strategy']} ({report['grid']})"),
        ("rows per level", ", ".join(f"{rows:,}" for rows in report["rows_per_level"])),
        ("bytes per epoch", f"{report['predicted_bytes_per_epoch']:,}, at most by one rank: "
                            f"{report['max_rank_bytes_per_epoch']:,}"),
        ("messages per epoch", f"{report['predicted_messages_per_epoch']:,}"),
        *([("between nodes", f"{report['predicted_bytes_between_nodes_per_epoch']:,} bytes, "
            f"{report['predicted_messages_between_nodes_per_epoch']:,} messages")]
          if "predicted_bytes_between_nodes_per_epoch" in report else []),
        ("seconds per epoch", f"{seconds['epoch']:.3g} (compute {seconds['compute']:.3g}, "
         f"communication {seconds['communication']:.3g}) on the machine that "
         "`hpgcn plan` assumes")]

    if report["first_batches"]:
        lines.append(("pipeline", first_batches(report["first_batches"])))
    if report["drop_AX"]:
        lines.append(("T = A H",
                      "not stored, because it does not fit: the backward pass multiplies by A at "
                      "the larger width"))
    lines += [("note", note) for note in report["notes"]]

    # memory of all ranks, by kind
    text = [label_list(lines, width=19), ""]
    names = (*PARTS, LINKS, "setup", "peak", "process", "total")
    text += [_memory("MB of memory", report["memory"], "peak",
                     [name for name in names if name in report["memory"][0]])]
    if report["gpu_memory"]:
        names = (*ON_GPU[:-1], LINKS, "total", "staging")
        text += ["", _memory("MB of GPU memory", report["gpu_memory"], "total",
                             [name for name in names if name in report["gpu_memory"][0]])]

    return "\n".join(text)


def first_batches(counts):
    """Return a sentence on the batches that the first product waits for: `Plan.first_batches`."""
    first, batches = counts
    return f"the first product begins after {first} of {batches} batches of rows"


def _memory(heading, ranks, decisive, names):
    """Return a table of memory by purpose.

    It has a column for the rank that needs most, and one for all ranks.
    """
    most = int(np.argmax([rank[decisive] for rank in ranks]))
    rows = [(heading, f"rank {most}", "all ranks")]
    for name in names:
        label = "pinned on the host" if name == "staging" else name
        total = sum(rank[name] for rank in ranks)
        rows.append((label, f"{ranks[most][name] / 1e6:,.3f}", f"{total / 1e6:,.3f}"))
    return table_of(rows, widths=(19, 11, 11))

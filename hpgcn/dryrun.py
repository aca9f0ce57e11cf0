"""What a run on these ranks will send and hold, told before it starts: `hpgcn train --dry-run` and `--memory`."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpgcn.config import size
from hpgcn.cost.gpu import ON_GPU, gpu_footprint, gpu_total
from hpgcn.cost.memory import PARTS, footprint, peak, setup
from hpgcn.cost.seconds import Machine, step_seconds
from hpgcn.errors import ConfigError, setting
from hpgcn.place import place, same_everywhere


def forecast(source, config, comm):
    """Do what a run does up to knowing who owns what, and say what it will send and hold; all ranks call this together.

    Rank 0 reads the pattern of the whole adjacency, and which rows are in the masks; no values and no features. A graph
    that the run would partition first is partitioned, and kept, as by the run.

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or hpgcn.store.StoredGraph
    config : hpgcn.Config
    comm : hpgcn.comm.SerialComm or MpiComm

    Returns
    -------
    dict
        Equal on all ranks: graph, strategy, grid, ranks, model, widths, rows_per_level (of a training step),
        predicted_bytes_per_epoch, predicted_messages_per_epoch, max_rank_bytes_per_epoch, memory (a dict for each rank:
        the PARTS of hpgcn.cost.memory, setup and peak, bytes), gpu_memory (of --device cuda, a dict for each rank:
        ON_GPU of hpgcn.cost.gpu and their total, bytes; else None), memory_limit_bytes, lean (as hpgcn.cost.Step),
        seconds (epoch, compute, communication; on an assumed machine).

    Raises
    ------
    ConfigError
        On all ranks: as hpgcn.place.place; a rank needs more than config.memory, even if nothing is kept that need not
        be.
    """
    same_everywhere(source, config, comm)
    source, grid, axes = place(source, comm, config)
    found = None
    with comm.together():
        if comm.rank == 0:
            found = _count(source, config, grid.offsets, axes)
    return comm.bcast(found)


def choose_lean(source, config, comm):
    """Whether T = A H does not fit, and is not kept for its gradient: hpgcn.cost.Step.lean.

    All ranks call this together and get the same answer. Without config.memory it is False, and nothing is read.

    Raises
    ------
    ConfigError
        As `forecast`.
    """
    return bool(config.memory) and forecast(source, config, comm)["lean"]


def _count(source, config, offsets, axes):
    from hpgcn.forecast.cases import count  # late: runs without --memory need no forecast
    from hpgcn.forecast.survey import Survey

    survey, limit = Survey(source, config), size(config.memory) if config.memory else None

    def counted(lean):
        survey.step = replace(survey.step, lean=lean)
        found = count(survey, config.strategy, "given", axes, offsets, stages=config.stages)
        return found, peak(survey.step, found.share)

    found, held = counted(lean=False)
    if limit is not None and held.max() > limit:
        kept, (found, held) = held, counted(lean=True)
        if held.max() > limit:
            held = min(kept, held, key=np.max)
            rank = int(held.argmax())
            raise ConfigError(f"{survey.name}: rank {rank} of {held.size} needs {int(held[rank]):,} bytes, but "
                              f"{setting('memory')} is {limit:,}; `hpgcn plan --memory {limit}` says how many ranks "
                              "would do")
    step, sent = survey.step, found.prediction
    sizes = {**footprint(step, found.share), "setup": setup(step, found.share), "peak": held}
    compute, communication = step_seconds(Machine(), step, found.share, sent)
    return {
        "graph": survey.header.name, "strategy": found.strategy, "grid": "x".join(map(str, axes)), "ranks": found.ranks,
        "model": step.model, "widths": list(step.widths), "rows_per_level": list(step.rows),
        "predicted_bytes_per_epoch": sent.total_bytes(), "predicted_messages_per_epoch": sent.total_messages(),
        "max_rank_bytes_per_epoch": sent.max_bytes(),
        "memory": [{name: int(each[rank]) for name, each in sizes.items()} for rank in range(found.ranks)],
        "gpu_memory": _on_gpu(step, found.share, config) if config.updates_on == "cuda" else None,
        "memory_limit_bytes": limit, "lean": step.lean,
        "seconds": {"epoch": compute + communication, "compute": compute, "communication": communication}}


def _on_gpu(step, share, config):
    found = gpu_footprint(step, share, config.aggregates_on_host)
    found["total"] = gpu_total(found)
    return [{name: int(each[rank]) for name, each in found.items()} for rank in range(share.rows.size)]


def table(report):
    """Lines for people. No line feed at the end."""
    held = report["memory"]
    most = int(np.argmax([each["peak"] for each in held]))
    seconds, rows = report["seconds"], report["rows_per_level"]
    kept = [("T = A H", "not kept, it does not fit: its backward takes the wider product")] if report["lean"] else []
    lines = [
        ("graph", f"{report['graph']}, {report['model']} of widths {', '.join(map(str, report['widths']))}"),
        ("ranks", f"{report['ranks']}, strategy {report['strategy']} ({report['grid']})"),
        ("rows per level", ", ".join(f"{each:,}" for each in rows)),
        ("bytes per epoch", f"{report['predicted_bytes_per_epoch']:,}, by one rank at most "
                            f"{report['max_rank_bytes_per_epoch']:,}"),
        ("messages per epoch", f"{report['predicted_messages_per_epoch']:,}"),
        ("seconds per epoch", f"{seconds['epoch']:.3g} (compute {seconds['compute']:.3g}, communication "
                              f"{seconds['communication']:.3g}) on the machine that `hpgcn plan` assumes"), *kept]
    text = [f"{name:<20} {value}" for name, value in lines]
    text += ["", f"{'MB of memory':<20} {f'rank {most}':>12} {'all ranks':>12}"]
    for name in (*PARTS, "setup", "peak"):
        total = sum(each[name] for each in held)
        text.append(f"{name:<20} {held[most][name] / 1e6:>12,.3f} {total / 1e6:>12,.3f}")
    if report["gpu_memory"]:
        held = report["gpu_memory"]
        most = int(np.argmax([each["total"] for each in held]))
        text += ["", f"{'MB of GPU memory':<20} {f'rank {most}':>12} {'all ranks':>12}"]
        for name in (*ON_GPU[:-1], "total", "staging"):
            label, total = "pinned on the host" if name == "staging" else name, sum(each[name] for each in held)
            text.append(f"{label:<20} {held[most][name] / 1e6:>12,.3f} {total / 1e6:>12,.3f}")
    return "\n".join(text)

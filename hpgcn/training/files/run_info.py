"""Properties of a run that are known after set-up, and the summary of the run."""
from __future__ import annotations

import logging
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm import slow_network
from hpgcn.sampling import FULL
from hpgcn.strategies import read_options
from hpgcn.training.files.records import TARGET_FIELDS, link_fields
from hpgcn.training.files.run_directory import versions

if TYPE_CHECKING:
    from datetime import datetime

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.training.setup.run_plan import RunPlan
    from hpgcn.training.steps.loop_state import LoopState

log = logging.getLogger("hpgcn")
# fields that are in summary.json only in some cases, or not at all
UNTOLD = ("processes", "nodes", "node_aware", "predicted_between", "period", "graph_checksum")


@dataclass(frozen=True)
class RunInfo:
    """Properties of a run that are known after set-up and then constant.

    They are equal on all ranks. Most of them have their name in summary.json.
    """

    started_utc: str  # ISO 8601
    hosts: tuple[str, ...]
    graph: str  # its name
    strategy: str  # its title
    strategy_choice: str  # why it was chosen; "" if the settings name it
    grid: str  # ROWSxCOLUMNS
    replication: int
    ranks: int
    processes: int  # several ranks share one if it is less than `ranks`
    threads: int  # per rank
    device: str
    metric: str
    setup_s: float
    setup_bytes: int  # sent by all ranks
    predicted_bytes_per_epoch: int
    predicted_messages_per_epoch: int
    nodes: int  # number of nodes that the ranks are on
    node_aware: bool  # whether a row is sent to each node once
    predicted_between: dict  # predicted bytes and messages between nodes, if they are known
    period: int  # epochs after which traffic repeats
    out: str  # run directory, "" for none
    graph_checksum: str  # `GraphSource.checksum` of the graph of the command; "" without files

    def summary(self, state: LoopState) -> dict[str, Any]:
        """Return the content of summary.json.

        `state` is the LoopState after the last epoch.
        """
        # bytes and messages of an epoch, the mean over a period
        history, best = state.history, state.best
        final = history[-1]
        last_period = history[-self.period:]  # epochs of one period send different amounts
        sent = {f"sent_{unit}_per_epoch":
                sum(metrics[f"sent_{unit}"] for metrics in last_period) // len(last_period)
                for unit in ("bytes", "messages")}
        max_sent = state.max_sent_bytes

        # the part of it between nodes
        between = {}
        if self.nodes > 1:
            between = {"nodes": self.nodes, "node_aware": self.node_aware}
            between |= {f"{name}_per_epoch":
                        sum(metrics.get(name, 0) for metrics in last_period) // len(last_period)
                        for name in ("bytes_between_nodes", "messages_between_nodes")}
            between |= self.predicted_between

        known = {name: value for name, value in vars(self).items() if name not in UNTOLD}
        return {
            **known, "hosts": list(self.hosts),
            **({"in_process": True} if self.processes < self.ranks else {}),
            **({"processes": self.processes} if 1 < self.processes < self.ranks else {}),
            **({"graph_checksum": self.graph_checksum} if self.graph_checksum else {}),
            "epochs": final["epoch"], "final_loss": final["loss"], "best_epoch": best.epoch,
            "best_val_acc": best.metrics["val_acc"], "test_acc": best.metrics["test_acc"],
            **{name: best.metrics[name] for name in (*TARGET_FIELDS, *link_fields(best.metrics))
               if name in best.metrics},
            "epoch_s_median": float(np.median([metrics["epoch_s"] for metrics in history])),
            **sent, "masked_additions_per_epoch": final.get("masked_additions", 0), **between,
            "max_rank_sent_bytes_per_epoch":
                int(max_sent) if max_sent.is_integer() else max_sent,
            **({"network_delay": delay} if (delay := slow_network.requested()) else {}),
            "peak_rss_bytes": max(metrics["peak_rss_bytes"] for metrics in history),
            "versions": versions()}


def make_run_info(plan: RunPlan, source: GraphSource, comm: SerialComm, threads: int,
                  started: datetime, begin: float) -> RunInfo:
    """Return the RunInfo for a RunPlan at the end of set-up.

    All ranks call this together. `source` is the graph. `started` is a datetime, `begin` the
    time.perf_counter() of this rank at the same time.
    """
    # costs of set-up, over all ranks
    forecast, strategy = plan.steps.forecast, plan.shard.strategy
    full_batch = plan.config.batch == FULL
    setup_bytes = round(comm.sum([comm.counters.total("setup")[0]])[0])
    setup_seconds = float(comm.max([time.perf_counter() - begin])[0])

    return RunInfo(
        started_utc=started.isoformat(timespec="seconds"),
        hosts=tuple(dict.fromkeys(comm.allgather(platform.node()))),
        graph=plan.header.name,
        strategy=strategy.title(read_options(plan.config)),
        strategy_choice=plan.strategy_choice,
        grid="x".join(map(str, plan.grid_shape)),
        replication=strategy.replication,
        ranks=comm.size,
        processes=comm.size // comm.process_ranks,
        threads=threads,
        device=plan.device,
        metric=plan.metric,
        setup_s=setup_seconds,
        setup_bytes=setup_bytes,
        predicted_bytes_per_epoch=forecast.bytes,
        predicted_messages_per_epoch=forecast.messages,
        nodes=int(comm.nodes.max()) + 1,
        node_aware=plan.node_aware,
        predicted_between=plan.steps.full_step.per_epoch_between() if full_batch else {},
        period=plan.steps.full_step.period,
        out=plan.config.out,
        graph_checksum=str(source.checksum()) if plan.config.out else "")


def log_setup(run_info: RunInfo, comm: SerialComm) -> None:
    """Log the seconds of a set-up and of its parts, the maxima over ranks.

    All ranks call this together.
    """
    seconds = comm.clock.setup.seconds
    most = comm.max([*seconds.values()]).tolist()
    if comm.rank == 0:
        parts = ", ".join(f"{part} {each:.2f}" for part, each in zip(seconds, most))
        log.debug("set-up took %.2f s: %s", run_info.setup_s, parts)

"""The one training loop: any number of ranks, any strategy, a graph in memory or in a file."""
from __future__ import annotations

import logging
import os
import platform
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from hpgcn.comm import MpiComm, SerialComm
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Header
from hpgcn.model import (
    Parameters,
    check_strategy,
    find_targets,
    make_spec,
    metric_of,
)
from hpgcn.parallel.workspace import Workspace
from hpgcn.planning.answers.dry_run import drops_AX
from hpgcn.runtime import faults, signals
from hpgcn.runtime.gpu_limits import check_memory
from hpgcn.runtime.machine import map_large_arrays, return_freed_memory
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.progress_log import set_activity
from hpgcn.sampling import FULL
from hpgcn.strategies import find_strategy
from hpgcn.training.loop.divergence import check_evaluation
from hpgcn.training.loop.exact_loss import log_drift, measure_exact_loss, progress_postfix
from hpgcn.training.loop.optimizers import OPTIMIZERS, SGD
from hpgcn.training.loop.progress import Best, is_finished, raise_if_stop_requested, run_callbacks
from hpgcn.training.loop.schedules import learning_rate
from hpgcn.training.loop.state import restore
from hpgcn.training.loop.step_views import FullBatch, make_batches
from hpgcn.training.loop.training_epoch import EpochSums, take_step
from hpgcn.training.loop.training_step import StepView, evaluate, make_views
from hpgcn.training.runs.result import Result
from hpgcn.training.runs.run_directory import versions
from hpgcn.training.runs.trace import Trace, write_traffic
from hpgcn.training.setup.placement import assign_rows
from hpgcn.training.setup.shard import GraphShard
from hpgcn.training.setup.warmup import set_threads, warm_up

log = logging.getLogger("hpgcn")


def check(header, split=0, where=None):
    """Refuse a graph that cannot be trained on with a DataError: no features, labels or split.

    A ConfigError if it has others, but not the one of this number.
    """
    if not header.num_features:
        raise DataError(f"{header.name}: no features; give them to `hpgcn convert` with --features "
                        "FILE, or let it make some: --features identity or --features degree; or "
                        "give them to Graph.from_scipy")
    if not header.num_classes:
        raise DataError(f"{header.name}: no labels; give them to `hpgcn convert` with --labels "
                        "FILE, or to Graph.from_scipy")
    if not header.num_splits:
        raise DataError(f"{header.name}: no train, validation and test masks; give `hpgcn convert` "
                        "a --split, e.g. --split random:60/20/20, or masks to Graph.from_scipy")
    header.check_split(split, where)


def make_trainer(source, config, comm, *, warm=True):
    """Read this rank's part of a graph, and make all that training needs: a Trainer.

    All ranks call this together. `warm`: load all compiled kernels before the first epoch.
    """
    begin = time.perf_counter()
    started = comm.bcast(datetime.now(UTC))
    threads = set_threads(config)
    map_large_arrays()
    comm.counters.phase = "setup"
    spec = make_spec(source.header, config)
    check_strategy(find_strategy(config), spec, comm.size)
    if warm:
        warm_up(make_trainer, comm, source.header, config)
    faults.begin(comm.rank, 0)
    faults.point("setup")

    # the part of the graph, and the maps that multiply by A
    metric = metric_of(spec, config.metric)
    targets = find_targets(config, source, comm)
    set_activity("finding out who owns which rows")
    placed = assign_rows(source, comm, config)  # it may partition
    config = config.replace(strategy=placed.strategy.name)
    drop_AX = drops_AX(placed, config, comm)
    spec = replace(spec, drop_AX=drop_AX)
    shard = GraphShard(placed, config, comm, spec)
    check_memory(comm, shard.placed_last)

    # the model, and what moves its parameters
    parameters = Parameters.initial(spec).on(comm.device)
    set_activity("multiplying the features by the adjacency" if spec.precomputed else
                 "making a model")
    workspace = Workspace(spec.row_dtype, comm.device)
    training, evaluation = make_views(shard, parameters, workspace, targets)
    set_activity("making the first step ready")
    step = shard.predict_traffic()
    batches = make_batches(config, source, shard, training, step)
    shard.users.append(batches)
    return_freed_memory()
    if warm and config.batch == FULL:
        workspace.reserve(shard.work_arrays())
    optimizer = OPTIMIZERS[config.optimizer](
        parameters.flat, rate=partial(learning_rate, config=config, steps=batches.steps),
        decay=config.weight_decay,
        decayed=parameters.decayed(config.decay_layers), clip_norm=config.clip_norm)

    predicted = batches.forecast()
    about = {"started_utc": started.isoformat(timespec="seconds"),
             "strategy_choice": placed.choice, "metric": metric,
             "setup_bytes": round(comm.sum([comm.counters.total("setup")[0]])[0]),
             "setup_s": float(comm.max([time.perf_counter() - begin])[0]),
             "period": step.period, "predicted_bytes_per_epoch": predicted.bytes,
             "predicted_messages_per_epoch": predicted.messages,
             "interval": predicted.interval}
    return Trainer(source.header, config, comm, shard, training, batches, evaluation, parameters,
                   optimizer, threads, about)


@dataclass(eq=False)
class Trainer:
    """Data, model and optimiser of one run on this rank; `run` is the loop."""

    header: Header
    config: Config
    comm: SerialComm | MpiComm
    shard: GraphShard
    training: StepView  # of all rows
    batches: FullBatch  # or Batches: the StepView of each step
    evaluation: StepView
    parameters: Parameters
    optimizer: SGD  # or what derives from it
    threads: int
    about: dict  # what summary.json says of setting up
    steps: int = 0  # training steps taken, those before the run was resumed among them
    max_sent: float = 0.0  # bytes that a rank sent at most in a step, summed over the last epoch
    begun: EpochSums | None = None  # of the epoch that a run goes on in
    asked: int = 0  # signal that came to some rank before the end of the last step

    def run(self, record=None, progress=False, checkpoints=None, saved=None, callbacks=()):
        """Train to the last epoch, or until patience ends or a callback says so; return a Result.

        A run that leaves files has a RunDirectory on rank 0, and Checkpoints on
        all ranks. It goes on from `saved`, a State. The callbacks of rank 0 count.
        """
        config = self.config
        comm = self.comm
        best = Best()
        history = []
        epoch = before = saved.epoch if saved else 0
        called = comm.bcast(bool(callbacks))
        if saved:
            restore(self, saved, best)
            history = comm.bcast(record and record.history)
        raise_if_stop_requested(epoch + 1, config, comm)
        if self.shard.strategy.num_monitored_steps and config.prune and comm.rank == 0:
            log.info("%s: all rows are computed, also those that nobody reads", self.title)

        def within(sums):
            shown.set_postfix(step=f"{sums.steps}/{self.batches.steps}", refresh=False)
            shown.update(0)
            if checkpoints:
                checkpoints.keep(self, record, history[-1] if history else {}, best, sums=sums)

        trace = Trace(comm) if config.out and config.trace else None
        quiet = np.errstate(all="ignore")  # a loss that overflows is reported once, as such
        interruptible = signals.record_signal(signal.SIGINT) if checkpoints else nullcontext()
        shown = bar(total=config.epochs, initial=epoch, unit="epoch", shown=progress)
        with quiet, interruptible, shown:
            ended = is_finished(config, epoch, best.epoch)
            while not ended:
                epoch += 1
                metrics = self.epoch(epoch, within)
                last = epoch == config.epochs
                evaluated = last or (config.eval_every and epoch % config.eval_every == 0)
                if evaluated:
                    self.evaluate_epoch(metrics, best)
                stopped = called and run_callbacks(callbacks, metrics, comm)
                if stopped and not evaluated:
                    self.evaluate_epoch(metrics, best)
                history.append(metrics)
                if record:
                    record.append(metrics)
                shown.set_postfix(**progress_postfix(metrics), refresh=False)
                shown.update()
                ended = stopped or is_finished(config, epoch, best.epoch)
                if checkpoints:
                    checkpoints.keep(self, record, metrics, best, ended=ended)

        if comm.rank == 0:
            log_drift(self.title, history)
        summary = self.summary(history, best)
        if trace:
            trace.write(os.path.join(config.out, "trace.json"))
        if config.out and epoch > before:
            write_traffic(config.out, comm, epoch - before)
        weights = self.arrays_by_name(best.weights)
        with comm.collective_errors():  # who returns first finds the run directory whole
            if record:
                record.finish(summary, weights, best.epoch, multilabel=self.header.multilabel,
                              class_names=self.shard.class_names)
        return Result(summary, config, weights, history, self.shard.class_names)

    def epoch(self, epoch, after_step=None):
        """Train for one epoch; return its metrics, equal on all ranks.

        after_step: called with the EpochSums after each step but the last.
        """
        comm = self.comm
        faults.begin(comm.rank, epoch)
        drift = measure_exact_loss(self, epoch)
        sums, self.begun = self.begun or EpochSums(), None
        with comm.clock.span("epoch", epoch):
            while sums.steps < self.batches.steps:
                comm.counters.phase = "train"
                self.asked = take_step(self, epoch, sums)
                if after_step and sums.steps < self.batches.steps:
                    after_step(sums)
        self.max_sent = sums.max_sent
        metrics = sums.metrics(epoch, self.training.loss.norm)
        return metrics | self.batches.batch_metrics(sums) | drift

    def evaluate_epoch(self, metrics, best):
        """Evaluate after an epoch, add that to its metrics, and offer the weights to `best`."""
        comm = self.comm
        with comm.clock.span("evaluate", metrics["epoch"]):
            comm.counters.phase = "eval"
            faults.point("evaluate")
            begin = time.perf_counter()
            metrics |= evaluate(self.evaluation, self.about["metric"])
            metrics["eval_s"] = float(comm.max([time.perf_counter() - begin])[0])
        check_evaluation(metrics["epoch"], metrics, self.config.lr)
        best.update_if_better(metrics["epoch"], metrics, self.parameters.flat)

    def arrays_by_name(self, flat):
        """An array like the parameters, as a dict by name (copies)."""
        parameters = Parameters.zeros(self.shard.spec)
        parameters.flat[:] = self.comm.device.get(flat)
        return parameters.arrays

    @property
    def title(self):
        """What files call the strategy."""
        return self.shard.strategy.title(self.config)

    def summary(self, history, best):
        """The contents of summary.json."""
        final = history[-1]
        config = self.config
        about = self.about
        hosts = list(dict.fromkeys(self.comm.allgather(platform.node())))
        largest = int(self.max_sent) if self.max_sent.is_integer() else self.max_sent
        lately = history[-self.about["period"]:]  # steps that send different things
        sent = {f"sent_{what}_per_epoch": sum(one[f"sent_{what}"] for one in lately) // len(lately)
                for what in ("bytes", "messages")}
        return {
            "started_utc": about["started_utc"], "hosts": hosts, "graph": self.header.name,
            "strategy": self.title, "strategy_choice": about["strategy_choice"],
            "grid": "x".join(map(str, self.shard.arrangement.shape)),
            "replication": self.shard.strategy.replication, "ranks": self.comm.size,
            "threads": self.threads, "device": self.shard.devices, "epochs": final["epoch"],
            "final_loss": final["loss"], "best_epoch": best.epoch,
            "best_val_acc": best.metrics["val_acc"], "test_acc": best.metrics["test_acc"],
            "metric": about["metric"],
            "epoch_s_median": float(np.median([metrics["epoch_s"] for metrics in history])),
            "setup_s": about["setup_s"], "setup_bytes": about["setup_bytes"],
            **sent,
            "predicted_bytes_per_epoch": about["predicted_bytes_per_epoch"],
            "predicted_messages_per_epoch": about["predicted_messages_per_epoch"],
            "interval_bytes_per_epoch": about["interval"],
            "max_rank_sent_bytes_per_epoch": largest,
            "peak_rss_bytes": max(metrics["peak_rss_bytes"] for metrics in history),
            "out": config.out, "versions": versions()}

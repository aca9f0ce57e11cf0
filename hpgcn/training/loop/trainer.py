"""The one training loop: any number of ranks, any strategy, a graph in memory or in a file."""
from __future__ import annotations

import logging
import os
import platform
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
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
from hpgcn.training.loop.loop_state import LoopState
from hpgcn.training.loop.optimizers import OPTIMIZERS, SGD
from hpgcn.training.loop.schedules import learning_rate
from hpgcn.training.loop.step_views import FullBatch, make_batches
from hpgcn.training.loop.stopping import is_finished, raise_if_stop_requested, run_callbacks
from hpgcn.training.loop.training_epoch import take_step
from hpgcn.training.loop.training_step import StepView, evaluate, make_views
from hpgcn.training.runs.result import Result
from hpgcn.training.runs.resume import restore
from hpgcn.training.runs.run_info import RunInfo
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

    # what a summary says of setting up
    predicted = batches.forecast()
    setup_bytes = round(comm.sum([comm.counters.total("setup")[0]])[0])
    run_info = RunInfo(
        started_utc=started.isoformat(timespec="seconds"),
        setup_bytes=setup_bytes,
        setup_s=float(comm.max([time.perf_counter() - begin])[0]),
        hosts=tuple(dict.fromkeys(comm.allgather(platform.node()))),
        graph=source.header.name,
        strategy=shard.strategy.title(config),
        strategy_choice=placed.choice,
        grid="x".join(map(str, shard.arrangement.shape)),
        replication=shard.strategy.replication,
        ranks=comm.size,
        threads=threads,
        device=shard.devices,
        metric=metric,
        predicted_bytes_per_epoch=predicted.bytes,
        predicted_messages_per_epoch=predicted.messages,
        interval_bytes_per_epoch=predicted.interval,
        period=step.period,
        out=config.out)
    return Trainer(source.header, config, comm, shard, training, batches, evaluation, parameters,
                   optimizer, run_info)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Data, model and optimizer of a run on this rank; `run` is the loop, `state` its progress."""

    header: Header
    config: Config
    comm: SerialComm | MpiComm
    shard: GraphShard
    training: StepView  # of all rows
    batches: FullBatch  # or Batches: the StepView of each step
    evaluation: StepView
    parameters: Parameters
    optimizer: SGD  # or a subclass
    run_info: RunInfo
    state: LoopState = field(default_factory=LoopState)

    def run(self, record=None, progress=False, checkpoints=None, saved=None, callbacks=()):
        """Train to the last epoch, or until patience or a callback ends the run; return a Result.

        A run that leaves files has a RunDirectory on rank 0, and Checkpoints on all ranks. It
        resumes from `saved`, a CheckpointState. Only the callbacks of rank 0 are called.
        """
        config, comm, state = self.config, self.comm, self.state

        # start, or resume after the newest checkpoint
        has_callbacks = comm.bcast(bool(callbacks))
        if saved:
            restore(self, saved, comm.bcast(record and record.history))
        first = state.epoch + 1
        raise_if_stop_requested(first, config.graph, config.out, comm)
        if self.shard.strategy.num_monitored_steps and config.prune and comm.rank == 0:
            log.info("%s: all rows are computed, also those that nobody reads",
                     self.run_info.strategy)

        # whatever observes the loop: timeline, signals, progress
        trace = Trace(comm) if config.out and config.trace else None
        quiet = np.errstate(all="ignore")  # a loss that overflows is reported once, as such
        interruptible = signals.record_signal(signal.SIGINT) if checkpoints else nullcontext()
        progress_bar = bar(total=config.epochs, initial=state.epoch, unit="epoch", shown=progress)

        def after_step():
            steps = f"{state.sums.steps}/{self.batches.steps}"
            progress_bar.set_postfix(step=steps, refresh=False)
            progress_bar.update(0)
            if checkpoints:
                checkpoints.keep(self, record)

        # the epochs
        with quiet, interruptible, progress_bar:
            ended = self.is_finished()
            while not ended:
                epoch = state.epoch + 1
                metrics = self.train_epoch(epoch, after_step)

                # evaluate, if it is time to, or a callback makes this epoch the last
                last = epoch == config.epochs
                evaluated = last or (config.eval_every and epoch % config.eval_every == 0)
                if evaluated:
                    self.evaluate_epoch(metrics)
                stopped = has_callbacks and run_callbacks(callbacks, metrics, comm)
                if stopped and not evaluated:
                    self.evaluate_epoch(metrics)
                ended = stopped or self.is_finished()

                # record the epoch
                if record:
                    record.append(metrics)
                progress_bar.set_postfix(**progress_postfix(metrics), refresh=False)
                progress_bar.update()
                if checkpoints:
                    checkpoints.keep(self, record, ended=ended)

        # the result, and files of it
        if comm.rank == 0:
            log_drift(self.run_info.strategy, state.history)
        summary = self.run_info.summary(state)
        if trace:
            trace.write(os.path.join(config.out, "trace.json"))
        if config.out and state.epoch >= first:
            write_traffic(config.out, comm, state.epoch - first + 1)
        weights = self.arrays_by_name(state.best.weights)
        class_names = self.shard.class_names
        with comm.collective_errors():  # no rank returns before the run directory is complete
            if record:
                record.finish(summary, weights, state.best.epoch,
                              multilabel=self.header.multilabel, class_names=class_names)
        return Result(summary, config, weights, state.history, class_names)

    def train_epoch(self, epoch, after_step=None):
        """Take all steps of an epoch that are left; return its metrics, equal on all ranks.

        `after_step` is called after each step but the last.
        """
        comm, state = self.comm, self.state
        faults.begin(comm.rank, epoch)
        drift = measure_exact_loss(self, epoch)

        # the steps
        with comm.clock.span("epoch", epoch):
            while state.sums.steps < self.batches.steps:
                comm.counters.phase = "train"
                take_step(self, epoch)
                if after_step and state.sums.steps < self.batches.steps:
                    after_step()

        # what they add up to
        metrics = state.sums.metrics(epoch, self.training.loss.norm)
        metrics |= self.batches.batch_metrics(state.sums) | drift
        state.complete_epoch(metrics)
        return metrics

    def evaluate_epoch(self, metrics):
        """Evaluate after an epoch; add the result to its metrics, and update the best epoch."""
        comm, epoch = self.comm, metrics["epoch"]
        with comm.clock.span("evaluate", epoch):
            comm.counters.phase = "eval"
            faults.point("evaluate")
            begin = time.perf_counter()
            metrics |= evaluate(self.evaluation, self.run_info.metric)
            metrics["eval_s"] = float(comm.max([time.perf_counter() - begin])[0])
        check_evaluation(epoch, metrics, self.config.lr)
        self.state.best.update_if_better(epoch, metrics, self.parameters.flat)

    def is_finished(self):
        """Return whether the last complete epoch ends the run, by its number or by patience."""
        return is_finished(self.state.epoch, self.state.best.epoch, epochs=self.config.epochs,
                           patience=self.config.patience)

    def arrays_by_name(self, flat):
        """Return copies of the parts of an array like the parameters, a dict by name."""
        parameters = Parameters.zeros(self.shard.spec)
        parameters.flat[:] = self.comm.device.get(flat)
        return parameters.arrays

"""The training loop.

It serves any number of ranks, any strategy, and graphs in memory or in files.
"""
from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm import MpiComm, SerialComm
from hpgcn.comm.collective_errors import CollectiveClose
from hpgcn.model import Parameters, check_strategy, make_spec, metric_of
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.runtime import faults, signals
from hpgcn.runtime.machine import map_large_arrays
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.progress_log import set_activity
from hpgcn.store import SCALE
from hpgcn.strategies import find_strategy, read_options
from hpgcn.training.compile.warmup import set_threads, warm_up
from hpgcn.training.files.result import Result
from hpgcn.training.files.run_info import RunInfo, log_setup, make_run_info
from hpgcn.training.files.trace import Trace, write_traffic
from hpgcn.training.saved.learned_rows import gather_rows
from hpgcn.training.saved.resume import restore
from hpgcn.training.setup.run_plan import RunPlan, check_sets, make_run_plan
from hpgcn.training.steps.divergence import check_evaluation
from hpgcn.training.steps.exact_loss import log_drift, measure_exact_loss, progress_postfix
from hpgcn.training.steps.loop_state import LoopState
from hpgcn.training.steps.optimizers import SGD
from hpgcn.training.steps.step_views import FullBatch, make_parts
from hpgcn.training.steps.stopping import is_finished, raise_if_stop_requested, run_callbacks
from hpgcn.training.steps.training_epoch import take_step
from hpgcn.training.steps.training_step import StepView, evaluate

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.kernels import Array
    from hpgcn.training.files.run_directory import RunDirectory
    from hpgcn.training.saved.checkpoint import Checkpoints
    from hpgcn.training.saved.checkpoint_state import CheckpointState
    from hpgcn.training.setup.shard import GraphShard

log = logging.getLogger("hpgcn")


def make_trainer(source: GraphSource, config: Config, comm: SerialComm, *,
                 warm: bool = True) -> Trainer:
    """Plan a run and set up its training.

    Return a Trainer. All ranks call this together. With `warm` the kernels of an epoch
    are compiled or loaded first.
    """
    begin = time.perf_counter()
    started = comm.bcast(datetime.now(UTC))
    threads = set_threads(config.threads)
    map_large_arrays()
    comm.counters.phase = "setup"

    # the kernels, unless the run would be refused
    spec = make_spec(source.header, config)
    check_strategy(find_strategy(read_options(config)), spec, comm.size)
    metric_of(spec, config.metric)
    comm.clock.setup.begin("kernels")
    if warm:
        warm_up(comm, source.header, config, spec)
    faults.begin(comm.rank, 0)
    faults.point("setup")

    # every decision, and the rows of this rank
    comm.clock.setup.begin("planning")
    plan = make_run_plan(source, config, spec, comm)
    shard, spec = plan.shard, plan.spec
    check_sets(shard, config, plan.header)

    # the model on these rows
    comm.clock.setup.begin("memory")
    set_activity("multiplying the features by the adjacency" if spec.precomputed else
                 "initializing the model")
    training = make_parts(plan)

    comm.clock.setup.begin()
    run_info = make_run_info(plan, source, comm, threads, started, begin)
    log_setup(run_info, comm)
    return Trainer(plan, comm, *training, run_info=run_info)


@dataclass(frozen=True, eq=False)
class Trainer(CollectiveClose):
    """Data, model and optimizer of a run on this rank.

    `run` is the training loop, `state` its progress.
    """

    plan: RunPlan
    comm: SerialComm | MpiComm
    training: StepView  # view of all rows
    batches: FullBatch  # or MiniBatches: the StepView of each step
    evaluation: StepView
    parameters: Parameters
    optimizer: SGD  # or a subclass
    run_info: RunInfo
    state: LoopState = field(default_factory=LoopState)

    @property
    def config(self) -> Config:
        """Settings of the run."""
        return self.plan.config

    @property
    def shard(self) -> GraphShard:
        """Rows of this rank, and the maps that multiply them by A."""
        return self.plan.shard

    def close(self) -> None:
        self.batches.close()
        self.shard.close()

    def run(self, record: RunDirectory | None = None, progress: bool = False,
            checkpoints: Checkpoints | None = None, saved: CheckpointState | None = None,
            callbacks: Sequence = ()) -> Result:
        """Train until the last epoch, or until patience or a callback ends the run.

        Return a Result. A run that writes files has a RunDirectory, `record`, on rank
        0, and Checkpoints on all ranks. It resumes from `saved`, a CheckpointState.
        Only the callbacks of rank 0 are called.
        """
        config, comm, state = self.config, self.comm, self.state

        # start, or resume after the newest checkpoint
        has_callbacks = comm.bcast(bool(callbacks))
        if saved:
            restore(self, saved, comm.bcast(record and record.history))
        first = state.epoch + 1
        raise_if_stop_requested(first, config.graph, config.out, comm)
        if self.shard.strategy.num_monitored_steps and config.prune and comm.rank == 0:
            log.info("%s: all rows are computed, including rows that are not read",
                     self.run_info.strategy)

        # observers of the loop: timeline, signals, progress
        trace = Trace(comm) if config.out and config.trace else None
        quiet = np.errstate(all="ignore")  # an overflow is reported once, as a diverged loss
        interruptible = signals.record_signals(signal.SIGINT) if checkpoints else nullcontext()
        progress_bar = bar(total=config.epochs, initial=state.epoch, unit="epoch", shown=progress)

        def after_step() -> None:
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
        if self.training.replay:
            summary["steps"] = self.training.replay.told()
        summary |= comm.device.arithmetic() | comm.told()
        if trace:
            trace.write(os.path.join(config.out, "trace.json"))
        if config.out and state.epoch >= first:
            write_traffic(config.out, comm, state.epoch - first + 1)
        weights = self.arrays_by_name(state.best.weights)
        with comm.collective_errors():  # no rank returns before the run directory is complete
            if record:
                record.finish(summary, weights, state.best.epoch, **self.model_attributes())
        return Result(summary, config, weights, state.history, **self.shard.names,
                      **self.target_scale(), vertex_ids=self.shard.vertex_ids)

    def train_epoch(self, epoch: int,
                    after_step: Callable | None = None) -> dict[str, float | None]:
        """Take the remaining steps of an epoch; return its metrics.

        They are equal on all ranks. `after_step` is called after each step except the
        last one.
        """
        comm, state = self.comm, self.state
        faults.begin(comm.rank, epoch)
        drift = measure_exact_loss(self, epoch)

        # the steps
        with comm.clock.span("epoch", epoch), self.batches.memory():
            while state.sums.steps < self.batches.steps:
                comm.counters.phase = "train"
                take_step(self, epoch)
                if after_step and state.sums.steps < self.batches.steps:
                    after_step()

        # the sums of these steps
        metrics = state.sums.metrics(epoch, self.training.loss.norm)
        metrics |= self.batches.batch_metrics(state.sums) | drift
        state.complete_epoch(metrics)
        return metrics

    def evaluate_epoch(self, metrics: dict[str, Any]) -> None:
        """Evaluate the model after an epoch.

        The results are added to its metrics, and the best epoch is updated.
        """
        comm, epoch = self.comm, metrics["epoch"]
        with comm.clock.span("evaluate", epoch):
            comm.counters.phase = "eval"
            faults.point("evaluate")
            begin = time.perf_counter()
            metrics |= evaluate(self.evaluation, self.run_info.metric)
            metrics["eval_s"] = float(comm.max([time.perf_counter() - begin])[0])
        check_evaluation(epoch, metrics, self.config.lr)
        self.state.best.update_if_better(epoch, metrics, self.parameters.flat,
                                         self.run_info.metric)

    def is_finished(self) -> bool:
        """Return whether the last complete epoch ends the run, by its number or by patience."""
        return is_finished(self.state.epoch, self.state.best.epoch, epochs=self.config.epochs,
                           patience=self.config.patience)

    def model_attributes(self) -> dict:
        """Return the contents of model.h5 besides weights: names, ids, attributes, scale."""
        return {"names": self.shard.names, "vertex_ids": self.shard.vertex_ids,
                "strategy": self.run_info.strategy, "multilabel": self.plan.header.multilabel,
                **self.target_scale()}

    def target_scale(self) -> dict[str, Any]:
        """Return mean and deviation of the targets by the names of SCALE; {} without targets."""
        if not self.plan.spec.target_loss:
            return {}
        return {name: getattr(self.plan.targets, name.removeprefix("target_")) for name in SCALE}

    def arrays_by_name(self, flat: Array) -> dict[str, np.ndarray]:
        """Split a flat array like the parameters into copies by name, a dict.

        All ranks call this together. Only that of rank 0 has the learned rows, (n, d).
        """
        parameters = Parameters.zeros(self.plan.spec, rows=self.parameters.rows.shape)
        parameters.flat[:] = self.comm.device.get(flat)
        arrays = dict(parameters.arrays)
        if self.plan.spec.embedding:
            learned = gather_rows(self.shard, parameters.rows)
            if learned is not None:
                arrays[EMBEDDING] = learned
        return arrays

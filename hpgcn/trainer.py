"""The one training loop: any number of ranks, any strategy, a graph in memory or in a file."""
from __future__ import annotations

import math
import os
import platform
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from hpgcn import cost, dense, faults, signals
from hpgcn.bar import bar
from hpgcn.capacity import check_memory, explained
from hpgcn.checkpoint import Checkpoints
from hpgcn.comm import as_comm
from hpgcn.config import Config, settings_of_run
from hpgcn.cost.step import make_step
from hpgcn.device import choose
from hpgcn.divergence import check_evaluation, diverged
from hpgcn.dryrun import choose_lean
from hpgcn.errors import DataError, UsageError, setting
from hpgcn.machine import map_large_arrays, peak_rss, return_freed_memory
from hpgcn.model import Buffers, Model, Parameters
from hpgcn.optim import OPTIMIZERS
from hpgcn.place import as_source, place, same_everywhere
from hpgcn.progress import Best, check_callbacks, finished, stop_before, to_go_on, told_to_stop
from hpgcn.result import Result
from hpgcn.rows import Rows
from hpgcn.rundir import RunDirectory, refuse_existing_run, versions
from hpgcn.state import restore
from hpgcn.trace import Trace, write_traffic
from hpgcn.warmup import compiling, set_threads, warm_up


def train(source, config=None, comm=None, *, progress=False, overwrite=False, resume=None, callbacks=()):
    """Train a model; every rank of `comm` calls this together.

    Parameters
    ----------
    source : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        `hpgcn.load(path)` or the path itself, or a graph in memory (then equal on all ranks).
    config : hpgcn.Config, optional
        Files are written only if its `out` names a run directory.
    comm : mpi4py communicator, optional
        None: this process alone; no MPI is needed.
    progress : bool
        Show progress bars on rank 0, on a terminal or in a notebook.
    overwrite : bool
        Replace an existing run directory.
    resume : path, optional
        A run directory to go on in after its newest checkpoint, by its own settings if `config` is None. Without a
        checkpoint the run starts there at epoch 1; if it is finished its result is returned.
    callbacks : sequence of callable
        Called on rank 0 after each epoch with its metrics, a dict as in metrics.jsonl. If one of them returns True, the
        run ends with this epoch on all ranks, as when patience is over; what one of them raises ends all ranks.

    Returns
    -------
    hpgcn.Result
        A dict of what summary.json holds, with the weights of the best epoch and the history, on every rank.

    Raises
    ------
    DataError, ConfigError, DivergedError, OutputError, StorageError, StoppedError, CancelledError, UsageError
        On all ranks together: no labels, features or split; ranks against parts, or a checkpoint of other data or
        settings; NaN or Inf; the run directory exists; a checkpoint cannot be written, or none of them read; SIGUSR1,
        or SIGINT (a KeyboardInterrupt), asked to stop; checkpoints without a run directory.
    MissingError
        On all ranks: a GPU is asked for, and one of them finds none.
    DeviceMemoryError
        A GPU has less memory than is needed.
    """
    if not isinstance(config, Config | None):
        raise UsageError(f"config is of type {type(config).__name__}, expected hpgcn.Config")
    if resume and not isinstance(resume, str | os.PathLike):
        raise UsageError(f"resume is of type {type(resume).__name__}, expected the path of a run directory")
    if resume:
        config = (config or Config(**settings_of_run(resume, {}))).replace(out=os.fspath(resume))
    config = config or Config()
    comm = as_comm(comm, config.comm_timeout)
    with comm.together():
        source = as_source(source)
    same_everywhere(source, config, comm)
    comm.use(choose(config.updates_on, comm))
    with comm.together():
        check(source.header)
        if config.checkpoint_every and not config.out:
            raise UsageError(f"checkpoint_every = {config.checkpoint_every}: needs a run directory, set "
                             f"{setting('out')}")
        check_callbacks(callbacks)
        if config.out and comm.rank == 0:
            refuse_existing_run(config.out, overwrite or bool(resume))
    checkpoints = Checkpoints(config.out, source) if config.out else None
    saved, summary = to_go_on(checkpoints, config, comm) if resume else (None, None)
    if summary:
        return summary
    with signals.noting(signal.SIGUSR1) if config.out else nullcontext(), explained(comm):
        stop_before(saved.epoch + 1 if saved else 1, config, comm)
        with compiling(progress, comm.rank):
            trainer = Trainer(source, config, comm)
        with trainer.rows:
            with comm.together():  # only now: a run that cannot start leaves nothing behind
                record = RunDirectory(config, overwrite=overwrite or bool(resume), after=saved and saved.metrics) \
                    if config.out and comm.rank == 0 else None
            with record or nullcontext():
                return trainer.run(record, progress and comm.rank == 0, checkpoints, saved, callbacks)


def check(header):
    """Refuse a graph that cannot be trained on.

    Raises
    ------
    DataError
        No features, labels or split.
    """
    if not header.num_features:
        raise DataError(f"{header.name}: no features; give them to `hpgcn convert` with --features FILE, or let it "
                        "make some: --features identity or --features degree; or give them to Graph.from_scipy")
    if not header.num_classes:
        raise DataError(f"{header.name}: no labels; give them to `hpgcn convert` with --labels FILE, "
                        "or to Graph.from_scipy")
    if not header.has_split:
        raise DataError(f"{header.name}: no train, validation and test masks; "
                        "give `hpgcn convert` a --split, e.g. --split random:60/20/20, or masks to Graph.from_scipy")


class View(NamedTuple):
    """What a training step, or an evaluation, reads: rows of the graph that matter for it."""

    model: Model
    loss: dense.Loss | dense.MultiLabelLoss
    X: object


class Trainer:
    """Data, model and optimiser of one run; `run` is the loop.

    Parameters
    ----------
    source : hpgcn.Graph or hpgcn.store.StoredGraph
    config : hpgcn.Config
    comm : SerialComm or MpiComm
    warm : bool
        Load all compiled kernels before the first epoch.
    """

    def __init__(self, source, config, comm, *, warm=True):
        begin = time.perf_counter()
        self.started = datetime.now(UTC)
        self.config, self.comm, self.header = config, comm, source.header
        self.threads = set_threads(config)
        map_large_arrays()
        comm.counters.phase = "setup"
        if warm:
            warm_up(type(self), comm, self.header, config)
        faults.begin(comm.rank, 0)
        faults.point("setup")
        if config.memory:
            source, _, _ = place(source, comm, config)  # once: it may partition
        step = replace(make_step(self.header.name, self.header, config), lean=choose_lean(source, config, comm))
        self.widths, self.rows = step.widths, Rows(source, config, comm, step)
        rows = self.rows
        if step.constant:  # layer 1 then needs neither a product with A nor an exchange in any epoch
            rows.aggregate()
        steps = [replace(step, rows=reach.totals) for reach in (rows.train, rows.evaluated)]
        check_memory(comm, rows.placed_last(steps[0]))
        kind = config.architecture, config.layer_norm
        self.parameters = Parameters.initial(self.widths, rows.dtype, config.seed, *kind).on(comm.device)
        self.buffers = Buffers(rows.dtype, comm.device)
        self.training, self.evaluation = map(self._view, (rows.train, rows.evaluated), steps)
        rows.X = rows.placed = None  # each view has the rows that it reads
        return_freed_memory()
        self.optimizer = OPTIMIZERS[config.optimizer](self.parameters.flat, lr=config.lr, decay=config.weight_decay,
                                                      decayed=self.parameters.decayed(config.decay_layers))
        self.predicted = self._predict(steps[0])
        self.setup_bytes = round(comm.sum([comm.counters.total("setup")[0]])[0])
        self.stopped = False
        self.setup_s = float(comm.max([time.perf_counter() - begin])[0])

    def _view(self, reach, step):
        """The model on the rows of `reach`."""
        rows, config = self.rows, self.config
        model = Model(step, self.parameters, reach, rows.columns, self.buffers, rows.key, seed=config.seed,
                      first_dropout=config.first_dropout, dropout=config.dropout)
        loss = dense.MultiLabelLoss if self.header.multilabel else dense.Loss
        masks = {key: reach.take(-1, mask) for key, mask in rows.masks.items()}
        loss = loss(reach.take(-1, rows.labels), masks, rows.columns, self.widths[-1])
        return View(model, loss, rows.features(reach))

    def _predict(self, step):
        """What all ranks together send in a training step; a hpgcn.cost.Traffic."""
        reach, axes = self.rows.train, self.rows.axes
        maps = [each and each.costs() for each in reach.maps]
        counts = [count.reshape(cost.cube(self.config.strategy, axes)[:2]) for count in reach.counts]
        return cost.predict_step(self.config.strategy, step, axes, maps, counts).traffic()

    def run(self, record=None, progress=False, checkpoints=None, saved=None, callbacks=()):
        """Train to the last epoch, or until patience ends or a callback says so; return a Result.

        Parameters
        ----------
        record : RunDirectory
            On rank 0, of a run that leaves files.
        progress : bool
        checkpoints : hpgcn.checkpoint.Checkpoints
            On all ranks of such a run.
        saved : hpgcn.checkpoint.State
            Go on from there.
        callbacks : sequence of callable
            Those of rank 0 count.
        """
        config, best, history = self.config, Best(), []
        called = self.comm.bcast(bool(callbacks))
        if saved:
            restore(self, saved, best)
            history = self.comm.bcast(record and record.history)
        epoch = before = saved.epoch if saved else 0
        stop_before(epoch + 1, config, self.comm)
        clock, trace = self.comm.clock, Trace(self.comm) if config.out and config.trace else None
        quiet = np.errstate(all="ignore")  # a loss that overflows is reported once, as such
        interruptible = signals.noting(signal.SIGINT) if checkpoints else nullcontext()
        with quiet, interruptible, bar(total=config.epochs, initial=epoch, unit="epoch", shown=progress) as shown:
            while not (self.stopped or finished(config, epoch, best.epoch)):
                epoch += 1
                with clock.span("epoch", epoch):
                    metrics = self.step(epoch)
                evaluated = epoch == config.epochs or (config.eval_every and epoch % config.eval_every == 0)
                if evaluated:
                    self.judge(metrics, best)
                self.stopped = called and told_to_stop(callbacks, metrics, self.comm)
                if self.stopped and not evaluated:
                    self.judge(metrics, best)
                history.append(metrics)
                if record:
                    record.append(metrics)
                shown.set_postfix(loss=f"{metrics['loss']:.4f}", val_acc=metrics["val_acc"], refresh=False)
                shown.update()
                if checkpoints:
                    checkpoints.keep(self, record, metrics, best)
        summary = self.summary(history, best)
        if trace:
            trace.write(os.path.join(config.out, "trace.json"))
        if config.out and epoch > before:
            write_traffic(os.path.join(config.out, "traffic.npy"), self.comm, epoch - before)
        weights = self.named(best.weights)
        if record:
            record.finish(summary, weights, best.epoch, multilabel=self.header.multilabel)
        return Result(summary, config, weights, history)

    def judge(self, metrics, best):
        """Evaluate after an epoch, add what is found to its metrics, and offer the weights to `best`."""
        with self.comm.clock.span("evaluate", metrics["epoch"]):
            metrics |= self.evaluate()
        check_evaluation(metrics["epoch"], metrics, self.config.lr)
        best.offer(metrics["epoch"], metrics, self.parameters.flat)

    def named(self, flat):
        """An array like the parameters, as a dict by name (copies)."""
        parameters = Parameters.zeros(self.widths, self.rows.dtype, self.config.architecture, self.config.layer_norm)
        parameters.flat[:] = self.comm.device.get(flat)
        return parameters.named()

    def step(self, epoch):
        """One training step: forward, backward, update. Return the epoch's metrics, equal on all ranks."""
        comm, clock = self.comm, self.comm.clock
        comm.counters.phase = "train"
        faults.begin(comm.rank, epoch)
        clock.reset()
        before, begin = comm.counters.total("train"), time.perf_counter()
        faults.point("forward")
        logits, backward = self.training.model.forward(self.training.X, epoch)
        clock.detail = "loss"
        if faults.point("loss"):
            logits[...] = math.nan
        with clock("dense"):
            loss, G = self.training.loss.gradient(logits, self.buffers.take("even", *logits.shape))
        if faults.point("backward"):
            G[...] = math.nan
        gradient = backward(G)
        clock.detail = "update"
        faults.point("update")
        self.rows.columns.reduce(gradient)
        with clock("dense"):
            self.optimizer.step(gradient.flat)
        comm.device.synchronize()
        seconds = time.perf_counter() - begin
        sent = [after - earlier for after, earlier in zip(comm.counters.total("train"), before)]
        finite = np.isfinite(gradient.flat).all() & np.isfinite(self.parameters.flat).all()
        loss, finite = comm.device.numbers([loss, finite])
        sums = comm.sum([loss, *sent, not finite])
        times = clock.seconds
        highest = comm.max([seconds, times["spmm"], times["dense"], times["comm"], times["wait"], peak_rss(), sent[0],
                            signals.asked()])
        self.max_sent, self.asked = float(highest[6]), int(highest[7])
        loss = float(sums[0] / self.training.loss.count["train"])
        if sums[3] or not math.isfinite(loss):
            raise diverged(epoch, loss, self.training.model, gradient, self.parameters, comm, self.config.lr)
        names = ("epoch_s", "eval_s", "spmm_s", "dense_s", "comm_s", "wait_s")
        return {"epoch": epoch, "loss": loss, "train_acc": None, "val_acc": None, "test_acc": None, "val_loss": None,
                **dict(zip(names, map(float, (highest[0], 0, *highest[1:5])))), "sent_bytes": round(sums[1]),
                "sent_messages": round(sums[2]), "peak_rss_bytes": int(highest[5])}

    def evaluate(self):
        """Accuracies and validation loss of the present weights, without dropout, over all ranks."""
        self.comm.counters.phase = "eval"
        faults.point("evaluate")
        begin = time.perf_counter()
        view = self.evaluation
        metrics = view.loss.evaluate(view.model.infer(view.X)[0])
        metrics["eval_s"] = float(self.comm.max([time.perf_counter() - begin])[0])
        return metrics

    def summary(self, history, best):
        """What summary.json holds."""
        final, size = history[-1], self.comm.size
        hosts = list(dict.fromkeys(self.comm.allgather(platform.node())))
        largest = int(self.max_sent) if self.max_sent.is_integer() else self.max_sent
        return {
            "started_utc": self.started.isoformat(timespec="seconds"), "hosts": hosts,
            "graph": self.header.name, "strategy": self.config.strategy, "grid": "x".join(map(str, self.rows.axes)),
            "replication": self.rows.axes[1] if self.config.strategy == "1.5d" else 1,
            "ranks": size, "threads": self.threads, "device": self.rows.devices, "epochs": final["epoch"],
            "final_loss": final["loss"], "best_epoch": best.epoch, "best_val_acc": best.metrics["val_acc"],
            "test_acc": best.metrics["test_acc"], "epoch_s_median": float(np.median([m["epoch_s"] for m in history])),
            "setup_s": self.setup_s, "setup_bytes": self.setup_bytes, "sent_bytes_per_epoch": final["sent_bytes"],
            "sent_messages_per_epoch": final["sent_messages"], "predicted_bytes_per_epoch": self.predicted.bytes,
            "predicted_messages_per_epoch": self.predicted.messages, "max_rank_sent_bytes_per_epoch": largest,
            "peak_rss_bytes": max(m["peak_rss_bytes"] for m in history), "out": self.config.out, "versions": versions()}

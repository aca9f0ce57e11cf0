"""The one training loop: any number of ranks, any strategy, a graph in memory or in a file."""
from __future__ import annotations

import math
import os
import resource
import time
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from hpgcn import cost, dense
from hpgcn.capacity import check_memory, explained
from hpgcn.comm import SerialComm, as_comm
from hpgcn.config import Config
from hpgcn.cost.step import make_step
from hpgcn.device import choose
from hpgcn.dryrun import choose_lean
from hpgcn.errors import DataError, DivergedError
from hpgcn.graph import Graph
from hpgcn.kernels import backend
from hpgcn.kernels.jit import threshold
from hpgcn.machine import default_threads, return_freed_memory
from hpgcn.model import Buffers, Model, Parameters
from hpgcn.optim import OPTIMIZERS
from hpgcn.place import place
from hpgcn.rows import Rows
from hpgcn.rundir import RunDirectory, refuse_existing_run, versions
from hpgcn.trace import Trace, write_traffic


def train(source, config=None, comm=None, *, progress=False, overwrite=False):
    """Train a model; every rank of `comm` calls this together.

    Parameters
    ----------
    source : hpgcn.Graph or hpgcn.store.StoredGraph
        `hpgcn.load(path)`, or a graph in memory (then equal on all ranks).
    config : hpgcn.Config, optional
        Files are written only if its `out` names a run directory.
    comm : mpi4py communicator, optional
        None: this process alone; no MPI is needed.
    progress : bool
        Show a progress bar on rank 0.
    overwrite : bool
        Replace an existing run directory.

    Returns
    -------
    dict
        What summary.json holds, on every rank.

    Raises
    ------
    DataError, ConfigError, DivergedError, OutputError
        On all ranks together: no labels, features or split; ranks against parts; NaN or Inf; the run directory exists.
    MissingError
        On all ranks: a GPU is asked for, and one of them finds none.
    DeviceMemoryError
        A GPU has less memory than is needed.
    """
    config = config or Config()
    comm = as_comm(comm, config.comm_timeout)
    comm.use(choose(config.updates_on, comm))
    comm.same((config.replace(threads=0), source.header), "configuration or graph")
    with comm.together():
        check(source.header)
        if config.out and comm.rank == 0:
            refuse_existing_run(config.out, overwrite)
    with explained(comm):
        trainer = Trainer(source, config, comm)
        with closing(trainer.rows):
            with comm.together():  # only now: a run that cannot start leaves nothing behind
                record = RunDirectory(config, overwrite=overwrite) if config.out and comm.rank == 0 else None
            return trainer.run(record, progress and comm.rank == 0)


def check(header):
    """Refuse a graph that cannot be trained on.

    Raises
    ------
    DataError
        No features, labels or split.
    """
    if not header.num_features:
        raise DataError(f"{header.name}: no features; give them to `hpgcn convert` with --features FILE")
    if not header.num_classes:
        raise DataError(f"{header.name}: no labels; give them to `hpgcn convert` with --labels FILE")
    if not header.has_split:
        raise DataError(f"{header.name}: no train, validation and test masks; "
                        "give `hpgcn convert` a --split, e.g. --split random:60/20/20")


class Best:
    """The best epoch so far: highest validation accuracy, then lowest validation loss, then earliest."""

    def __init__(self):
        self.epoch, self.metrics, self.weights, self.key = 0, {}, None, None

    def offer(self, epoch, metrics, flat):
        """Keep the weights if they are better; without validation vertices the latest are."""
        key = None if metrics["val_acc"] is None else (metrics["val_acc"], -metrics["val_loss"])
        if self.key is None or key is None or key > self.key:
            self.epoch, self.metrics, self.weights, self.key = epoch, metrics, flat.copy(), key


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
        self.config, self.comm, self.header = config, comm, source.header
        self.threads = set_threads(config)
        comm.counters.phase = "setup"
        if warm:
            self._warm()
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

    def run(self, record=None, progress=False):
        """Train to the last epoch, or until patience ends; return the summary."""
        config, best, history = self.config, Best(), []
        clock, trace = self.comm.clock, Trace(self.comm) if config.out and config.trace else None
        quiet = np.errstate(all="ignore")  # a loss that overflows is reported once, as such
        with quiet, tqdm(total=config.epochs, unit="epoch", disable=None if progress else True) as bar:
            for epoch in range(1, config.epochs + 1):
                with clock.span("epoch", epoch):
                    metrics = self.step(epoch)
                last = epoch == config.epochs
                if last or (config.eval_every and epoch % config.eval_every == 0):
                    with clock.span("evaluate", epoch):
                        metrics |= self.evaluate()
                    best.offer(epoch, metrics, self.parameters.flat)
                history.append(metrics)
                if record:
                    record.append(metrics)
                bar.set_postfix(loss=f"{metrics['loss']:.4f}", val_acc=metrics["val_acc"], refresh=False)
                bar.update()
                if config.patience and best.epoch and epoch - best.epoch >= config.patience:
                    break
        summary = self.summary(history, best)
        if trace:
            trace.write(os.path.join(config.out, "trace.json"))
        if config.out:
            write_traffic(os.path.join(config.out, "traffic.npy"), self.comm, len(history))
        if record:
            weights = Parameters.zeros(self.widths, self.rows.dtype, config.architecture, config.layer_norm)
            weights.flat[:] = self.comm.device.get(best.weights)
            record.finish(summary, weights.named(), best.epoch)
        return summary

    def step(self, epoch):
        """One training step: forward, backward, update. Return the epoch's metrics, equal on all ranks."""
        comm, clock = self.comm, self.comm.clock
        comm.counters.phase = "train"
        clock.reset()
        before, begin = comm.counters.total("train"), time.perf_counter()
        logits, backward = self.training.model.forward(self.training.X, epoch)
        clock.detail = "loss"
        with clock("dense"):
            loss, G = self.training.loss.gradient(logits, self.buffers.take("even", *logits.shape))
        gradient = backward(G)
        clock.detail = "update"
        self.rows.columns.reduce(gradient)
        with clock("dense"):
            self.optimizer.step(gradient.flat)
        comm.device.synchronize()
        seconds = time.perf_counter() - begin
        sent = [after - earlier for after, earlier in zip(comm.counters.total("train"), before)]
        sums = comm.sum([float(loss), *sent])
        times = clock.seconds
        highest = comm.max([seconds, times["spmm"], times["dense"], times["comm"], times["wait"], peak_rss(), sent[0]])
        self.max_sent = float(highest[6])
        loss = float(sums[0] / self.training.loss.count["train"])
        if not math.isfinite(loss):
            error = DivergedError(f"epoch {epoch}: the training loss is {loss}; "
                                  f"try a lower --lr than {self.config.lr:g}")
            error.collective = True  # the loss is the same sum on every rank
            raise error
        names = ("epoch_s", "eval_s", "spmm_s", "dense_s", "comm_s", "wait_s")
        return {"epoch": epoch, "loss": loss, "train_acc": None, "val_acc": None, "test_acc": None, "val_loss": None,
                **dict(zip(names, map(float, (highest[0], 0, *highest[1:5])))), "sent_bytes": round(sums[1]),
                "sent_messages": round(sums[2]), "peak_rss_bytes": int(highest[5])}

    def evaluate(self):
        """Accuracies and validation loss of the present weights, without dropout, over all ranks."""
        self.comm.counters.phase = "eval"
        begin = time.perf_counter()
        view = self.evaluation
        metrics = view.loss.evaluate(view.model.infer(view.X)[0])
        metrics["eval_s"] = float(self.comm.max([time.perf_counter() - begin])[0])
        return metrics

    def summary(self, history, best):
        """What summary.json holds."""
        final, size = history[-1], self.comm.size
        largest = int(self.max_sent) if self.max_sent.is_integer() else self.max_sent
        return {
            "graph": self.header.name, "strategy": self.config.strategy, "grid": "x".join(map(str, self.rows.axes)),
            "replication": self.rows.axes[1] if self.config.strategy == "1.5d" else 1,
            "ranks": size, "threads": self.threads, "device": self.rows.devices, "epochs": final["epoch"],
            "final_loss": final["loss"], "best_epoch": best.epoch, "best_val_acc": best.metrics["val_acc"],
            "test_acc": best.metrics["test_acc"], "epoch_s_median": float(np.median([m["epoch_s"] for m in history])),
            "setup_s": self.setup_s, "setup_bytes": self.setup_bytes, "sent_bytes_per_epoch": final["sent_bytes"],
            "sent_messages_per_epoch": final["sent_messages"], "predicted_bytes_per_epoch": self.predicted.bytes,
            "predicted_messages_per_epoch": self.predicted.messages, "max_rank_sent_bytes_per_epoch": largest,
            "peak_rss_bytes": max(m["peak_rss_bytes"] for m in history), "out": self.config.out, "versions": versions()}

    def _warm(self):
        """Compile or load the kernels: one rank of each node first, the others then find them in the cache."""
        for turn in (True, False):
            if (self.comm.local_rank == 0) == turn:
                warm(self.header, self.config, self.comm.device)
            self.comm.barrier()


def warm(header, config, device):
    """Run an epoch on a graph of three vertices, like the real one in kind, for one thread and for all."""
    A = np.array([[0, 1, 0], [1, 0, 1], [0, 0 if header.directed else 1, 0]], np.float32)
    X = np.eye(3, max(1, min(header.num_features, 3)), dtype=np.float32)
    if header.sparse_features:
        import scipy.sparse as sp

        X = sp.csr_array(X)
    y = np.eye(3) if header.multilabel else np.arange(3)
    tiny = Graph.from_scipy(A, X, y, ([0], [1], [2]), name="warm-up")
    few = config.replace(out="", epochs=1, grid="", replication=0, memory="")
    rows, numbers, mask = map(device.put, (np.ones((2, 1), config.dtype), np.arange(2), np.zeros((2, 1), np.uint8)))
    ops, alone = backend(rows), SerialComm()
    alone.use(device)
    for work in (0, math.inf):
        with threshold(work):
            Trainer(tiny, few, alone, warm=False).run()
            ops.scatter_add(ops.gather(rows, numbers), numbers, rows)
            ops.apply_mask(rows, mask)


def set_threads(config):
    """Use config.threads threads per rank, or cores / ranks on the node; return the number in use."""
    import numba

    numba.set_num_threads(min(config.threads or default_threads(), numba.config.NUMBA_NUM_THREADS))
    return numba.get_num_threads()


def peak_rss():
    """Peak resident set of this process so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

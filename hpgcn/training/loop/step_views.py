"""Make the StepViews of training steps: one for all steps, or one for each mini-batch.

A thread builds the next mini-batch while the current one trains. It reads what the rank stores.
If neighbours are drawn, it exchanges rows with other ranks over a communicator of its own.
"""
from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from hpgcn.errors import UsageError, setting
from hpgcn.kernels.pools import start_pool
from hpgcn.model import MODELS, Model, products_of
from hpgcn.planning.counts.batch_traffic import expected_step, falling
from hpgcn.sampling import SAMPLERS, Drawn, Held, Induced, parse
from hpgcn.sampling.expectation import deviation, permutation_ranges
from hpgcn.sampling.forecast import Expected, changes, of_drawn, of_induced
from hpgcn.strategies import STRATEGIES
from hpgcn.training.loop.training_step import StepView
from hpgcn.training.setup.batch_partition import parts_of

RISK = 0.05  # that the bytes of an epoch lie outside of the interval that is told


class Forecast(NamedTuple):
    """What all ranks send in an epoch: of full batches exact, of batches expected."""

    bytes: int
    messages: int
    interval: list | None = None  # that bytes lie in with a chance of 95%; None if not known


class FullBatch:
    """One step an epoch, of all training vertices.

    Attributes
    ----------
    steps : int
        Of an epoch.
    request_bytes : int
        Bytes that this rank sent to make the last StepView.
    """

    steps = 1
    request_bytes = 0

    def __init__(self, view, step):
        self.full_view = view
        self.full_step = step  # Prediction of a step of all training vertices

    def view(self, number):
        """Return the StepView of a training step, from 1; all ranks call this in order."""
        return self.full_view

    def forecast(self):
        """Return the Forecast of an epoch; all ranks call this together."""
        full = self.full_step
        return Forecast(full.total_bytes(), full.total_messages())

    def batch_metrics(self, sums):
        """Return the mini-batch fields of one metrics.jsonl line; `sums` are the EpochSums."""
        return {}

    def close(self):
        """Nothing is held."""


class Batches(FullBatch):
    """A step for each batch of a sampler.

    Parameters
    ----------
    builder : hpgcn.sampling.Induced or Drawn
    view, step : StepView, hpgcn.planning.counts.traffic.Prediction
        Of all rows.
    shard : hpgcn.training.setup.shard.GraphShard
    last : int
        Epochs; nothing is made ready for later ones.
    comm : hpgcn.comm.SerialComm or MpiComm
        That the builder uses; closed here.
    threaded : bool
        Batches are made by another thread.
    """

    def __init__(self, builder, view, step, shard, last, comm, *, threaded):
        super().__init__(view, step)
        self.builder = builder
        self.shard = shard
        self.steps = builder.sampler.batches
        self.last = last * self.steps
        self.comm = comm
        self.thread = start_pool(1, "batches")[0] if threaded else None
        self.prefetched = None  # (number of a step, Future)
        self.field = None  # of the last StepView

    def view(self, number):
        """See `FullBatch`; that of the step before is closed."""
        if self.field is not None:
            self.field.close()
        base = self.full_view.model
        clock, counters = self.shard.comm.clock, self.shard.comm.counters
        phase, counters.phase = counters.phase, "batches"
        with clock("wait", "batch") if self.prefetched else nullcontext():
            made = self._take(number)
        if self.thread and number < self.last:
            self.prefetched = number + 1, self.thread.submit(self._make, number + 1)
        batch, self.field, features, labels, train = made
        self.request_bytes = batch.request_bytes
        model = Model(base.spec, base.parameters, self.field, base.columns, base.workspace,
                      self.shard.key)
        counters.phase = phase
        loss = self.full_view.loss.part(labels, train, batch.share)
        return StepView(model, loss, features)

    def _take(self, number):
        """Return what was made for a step; another than was expected is made now."""
        prefetched, self.prefetched = self.prefetched, None
        if prefetched is None:
            return self._make(number)
        expected, future = prefetched
        made = future.result()
        return made if expected == number else self._make(number)

    def _make(self, number):
        epoch, batch = divmod(number - 1, self.steps)
        batch = self.builder.batch(epoch + 1, batch)
        device = self.full_view.model.columns.device
        features = self.full_view.features.take(device.put(batch.rows[0]), device)
        rows = batch.rows[-1]
        train = np.flatnonzero(self.shard.masks["train"][rows])
        products = products_of(self.shard.spec)
        field = batch.field(self.shard.strategy, products, device)
        return batch, field, features, self.shard.labels[rows], train

    def forecast(self):
        """See `FullBatch`; the interval is by Azuma's inequality, as in `hpgcn plan`."""
        builder, comm = self.builder, self.shard.comm
        induced = builder.sampler.induced
        sent = self._sent((of_induced if induced else of_drawn)(builder, comm))
        mean, messages = (self.steps * (each + self.full_step.besides(kind))
                          for each, kind in zip(sent, ("bytes", "messages")))
        interval = None
        if induced:
            weights = [self._sent([Expected(*each, 0, 0, 0)] * builder.products)[0]
                       for each in ((1, 0), (0, 1))]
            moved = sum(weight * each for weight, each in zip(weights, changes(builder, comm)))
            off = deviation(permutation_ranges(moved), RISK)
            interval = [max(0, round(mean - off)), round(mean + off)]
        return Forecast(round(mean), round(messages), interval)

    def _sent(self, means):
        """Bytes and messages of a step's products with A; all ranks call this together."""
        induced, shard = self.builder.sampler.induced, self.shard
        levels = shard.sizes() if induced else (falling(len(means)),) * 2
        products = shard.steps.products(shard.spec, levels)
        symmetric = induced and shard.strategy.symmetric
        return expected_step(shard.strategy.traffic(), means, products, shard.spec.row_itemsize,
                             symmetric)

    def batch_metrics(self, sums):
        """See `FullBatch`."""
        return {"steps": sums.steps, "asked_bytes": sums.asked_bytes}

    def close(self):
        """Wait for what is under way, which all ranks do alike; free what MPI holds."""
        if self.prefetched:
            self.prefetched[1].result()
        if self.thread:
            self.thread.shutdown()
        if self.field is not None:
            self.field.close()
        if self.comm is not self.shard.comm:
            self.comm.close()


def check_batch(config, strategy):
    """Refuse a batch that is none, or goes not with a Strategy or a setting; a UsageError."""
    if parse(config.batch) is None:
        return
    if config.memory:
        raise UsageError(f"{setting('memory', config.memory)} goes with "
                         f"{setting('batch', 'full')}: what batches hold is not counted before")
    if not strategy.samples:
        serving = ", ".join(each.name for each in STRATEGIES.values() if each.samples)
        raise UsageError(f"{setting('batch', config.batch)}: strategy {strategy.title(config)} "
                         f"trains on all vertices, expected one of {serving}")


def make_batches(config, source, shard, view, step):
    """Return the FullBatch or Batches of a run; all ranks call this together.

    source: the graph as it was given. view: of all rows, step: the Prediction of one. Raised on all
    ranks: a UsageError if products with A are not as many as numbers of neighbours; as `parts_of`.
    """
    request = parse(config.batch)
    if request is None:
        return FullBatch(view, step)
    comm, spec, strategy = shard.comm, shard.spec, shard.strategy
    hops = sum(products_of(spec))
    held = Held.of(strategy, shard.vertex, comm)
    kind = SAMPLERS[request.name]
    if not kind.induced:
        with comm.collective_errors():
            fan_outs = request.drawn(hops)
        seeds = np.flatnonzero(shard.masks["train"])
        every = np.sort(np.concatenate(comm.allgather(shard.vertex[seeds])))
        sampler = kind(every.size, request.size, spec.seed, fan_outs)
        threaded = comm.threads
        other = comm.duplicate() if threaded else comm
        builder = Drawn(held, sampler, seeds, np.searchsorted(every, shard.vertex[seeds]), other,
                      nested=MODELS[spec.architecture].prunes)
        if threaded:  # what was sent to set up belongs to the run, with and without a thread
            comm.counters.include(other.counters)
        return Batches(builder, view, step, shard, config.epochs, other, threaded=threaded)

    units, unit_of, weights = source.header.num_nodes, np.asarray, None
    if kind.takes_parts:
        part, units = parts_of(request, source, comm, strategy.method, config.out)
        unit_of, weights = part.__getitem__, np.bincount(part, minlength=units)
    sampler = kind(units, request.size, spec.seed)
    builder = Induced(held, sampler, unit_of, weights, hops, comm)
    return Batches(builder, view, step, shard, config.epochs, comm, threaded=comm.device.in_tiles)

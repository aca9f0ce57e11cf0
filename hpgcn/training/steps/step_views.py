"""Provide the StepView of each training step: one for all, or one per mini-batch or epoch.

A thread builds the next mini-batch while the current one trains, from data that the
rank stores. If neighbors are sampled, the thread also exchanges rows with other ranks,
over a separate communicator. On a GPU, batches are cut by its kernels between steps.
"""
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.pools import start_pool
from hpgcn.model import Model, Parameters, products_of
from hpgcn.model.embedding import initial_rows, own_columns
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.links.link_loss import LinkLoss
from hpgcn.parallel.workspace import Workspace
from hpgcn.runtime.device import HOST
from hpgcn.runtime.machine import return_freed_memory
from hpgcn.training.steps.optimizers import OPTIMIZERS
from hpgcn.training.steps.pass_arrays import plan_passes
from hpgcn.training.steps.step_replay import StepReplay, may_replay
from hpgcn.training.steps.training_step import StepView, make_views

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model import BatchLoss
    from hpgcn.sampling.batch import Batch
    from hpgcn.training.setup.rank_links import RankLinks
    from hpgcn.training.setup.run_plan import RunPlan
    from hpgcn.training.setup.shard import GraphShard
    from hpgcn.training.setup.step_plan import StepPlan
    from hpgcn.training.steps.loop_state import EpochSums


class FullBatch:
    """Training with one step per epoch, on all training vertices.

    Attributes
    ----------
    steps : int
        Number of steps of an epoch.
    request_bytes : int
        Bytes that this rank sent to make the last StepView.
    """

    steps = 1
    request_bytes = 0

    def __init__(self, view: StepView) -> None:
        self.full_view = view

    def view(self, number: int) -> StepView:
        """Return the StepView of training step `number`, from 1.

        All ranks call this in the order of steps.
        """
        return self.full_view

    def memory(self) -> AbstractContextManager:
        """Return the context manager of the training steps of an epoch."""
        return nullcontext()

    def batch_metrics(self, sums: EpochSums) -> dict:
        """Return the mini-batch fields of one metrics.jsonl line; `sums` are the EpochSums."""
        return {}

    def close(self) -> None:
        """Do nothing, because a full batch has no resources."""


class LinkBatches(FullBatch):
    """Training with one step per epoch, on all links and the negatives of the epoch.

    Its messages depend on the negatives. Recorded steps compute the loss by Python.
    """

    def __init__(self, view: StepView, links: RankLinks) -> None:
        super().__init__(view)
        self.links = links
        self.pairs = None  # those of the last StepView

    def view(self, number: int) -> StepView:
        self._free()
        counters = self.links.comm.counters
        phase, counters.phase = counters.phase, "batches"
        before = counters.total("batches")[0]
        self.pairs = self.links.training_pairs(number)
        self.request_bytes = counters.total("batches")[0] - before
        counters.phase = phase
        self.full_view.loss.pairs = self.pairs
        return self.full_view

    def _free(self) -> None:
        """Free the messages of the last step."""
        if self.pairs is not None:
            self.pairs.pulled.close()
        self.pairs = self.full_view.loss.pairs = None

    def batch_metrics(self, sums: EpochSums) -> dict[str, int]:
        return {"asked_bytes": sums.asked_bytes}

    def close(self) -> None:
        self._free()
        self.links.close()


class MiniBatches(FullBatch):
    """Training with one step for each batch of a sampler.

    Parameters
    ----------
    plan : hpgcn.training.setup.step_plan.StepPlan
        The plan of the steps. `close` frees its communicator.
    view : StepView
        The view of all rows.
    shard : hpgcn.training.setup.shard.GraphShard
    epochs : int
        The last epoch; no batch is prefetched for later ones.
    """

    def __init__(self, plan: StepPlan, view: StepView, shard: GraphShard, epochs: int) -> None:
        super().__init__(view)
        self.builder = plan.builder
        self.shard = shard
        device = shard.comm.device

        # arrays of batches are in memory; so are labels and numbers of all rows
        self.workspace = view.model.workspace
        if device.in_files:
            self.workspace = Workspace(self.workspace.dtype, device)
        self.vertex = device.keep(shard.key)
        self._keep_labels()
        self.own = device.put(shard.train.rows[0])  # rows of the training graph, if it has fewer

        # batches ahead of their steps
        self.steps = plan.per_epoch
        self.last = epochs * plan.per_epoch
        self.comm = plan.comm
        self.thread = start_pool(1, "batches")[0] if plan.threaded else None
        self.prefetched = None  # (number of a step, Future)
        self.field = None  # field of the last StepView

    def _keep_labels(self) -> None:
        """Keep labels and the training mask of all rows."""
        device, shard = self.shard.comm.device, self.shard
        self.train = device.put(device.keep(shard.masks["train"]))
        labels = shard.labels if shard.labels.ndim > 1 else device.keep(shard.labels)
        self.labels = device.put(labels)

    def _loss(self, batch: Batch, rows: Array) -> LinkLoss | BatchLoss:
        """Return the loss of a batch that computes the logits of `rows`."""
        train = np.flatnonzero(self.train[rows])
        return self.full_view.loss.part(HOST.take(self.labels, rows), train, batch.share)

    def view(self, number: int) -> StepView:
        self._free()
        base = self.full_view.model
        clock, counters = self.shard.comm.clock, self.shard.comm.counters

        # this batch, and the next one in the background
        phase, counters.phase = counters.phase, "batches"
        with clock("wait", "batch") if self.prefetched else nullcontext():
            made = self._take(number)
        if self.thread and number < self.last:
            self.prefetched = number + 1, self.thread.submit(self._make, number + 1)

        # the model and the loss on its rows
        batch, self.field, features, loss = made
        self.request_bytes = batch.request_bytes
        model = Model(base.spec, base.parameters, self.field, base.columns, self.workspace,
                      self.vertex)
        counters.phase = phase
        return StepView(model, loss, features)

    def _free(self) -> None:
        """Close the StepView of the step before."""
        if self.field is not None:
            self.field.close()

    def _take(self, number: int) -> tuple:
        """Return the StepView of step `number`.

        If another step was prefetched, build it now.
        """
        prefetched, self.prefetched = self.prefetched, None
        if prefetched is None:
            return self._make(number)
        expected, future = prefetched
        made = future.result()
        return made if expected == number else self._make(number)

    def _make(self, number: int) -> tuple:
        epoch, batch = divmod(number - 1, self.steps)
        found: Any = self.builder.batch(epoch + 1, batch)
        device = self.full_view.model.columns.device
        features = self.full_view.features.select(device.put(found.rows[0]), device)
        products = products_of(self.shard.spec)
        field = found.field(self.shard.training_strategy, products, device)
        if self.own is not None:
            field = replace(field, rows=[self.own[rows] for rows in field.rows])
        return found, field, features, self._loss(found, field.rows[-1])

    def memory(self) -> AbstractContextManager:
        return self.shard.comm.device.in_memory()

    def batch_metrics(self, sums: EpochSums) -> dict[str, int]:
        return {"steps": sums.steps, "asked_bytes": sums.asked_bytes}

    def close(self) -> None:
        """Wait for the prefetched batch and free the MPI objects; all ranks call this together."""
        if self.prefetched:
            self.prefetched[1].exception()  # no step takes the batch, so its error counts no more
        if self.thread:
            self.thread.shutdown()
        self._free()
        if self.comm is not self.shard.comm:
            self.comm.close()


class LinkMiniBatches(MiniBatches):
    """Training with one step for each batch of links."""

    pairs = None  # those of the last StepView

    def _keep_labels(self) -> None:
        """Keep nothing: a batch has its pairs."""

    def _loss(self, batch: Batch, rows: Array) -> LinkLoss:
        self.pairs = batch.pairs
        return self.full_view.loss.of_pairs(batch.pairs)

    def _free(self) -> None:
        super()._free()
        if self.pairs is not None:
            self.pairs.pulled.close()

    def close(self) -> None:
        super().close()
        self.builder.links.close()


def make_parts(plan: RunPlan) -> tuple:
    """Set up the training of a RunPlan; all ranks call this together.

    Return the fields of a Trainer from `training` to `optimizer`, a tuple.
    """
    config, spec, shard = plan.config, plan.spec, plan.shard
    device = shard.comm.device

    # the model on the rows of this rank
    placed = device.in_memory if plan.steps.builder else nullcontext  # for each of many steps
    with placed():
        own = own_columns(spec, shard.columns.of(spec.widths[0]))
        learned = initial_rows(spec, shard.vertex, own)
        parameters = Parameters.initial(spec).with_rows(learned).on(device)
    workspace = Workspace(spec.row_dtype, device)
    link_loss = None
    if plan.links:
        decoder = DECODERS[spec.decoder](spec, parameters.arrays)
        rows = Workspace(spec.dtype, device)
        rows.reserve({name: (int(sizes[shard.comm.rank]), spec.dtype)
                       for name, sizes in plan.links.sizes.arrays(spec.widths[-1]).items()})
        link_loss = LinkLoss(decoder, shard.comm, plan.metric, plan.links.evaluated, rows,
                             plan.links.ranked)
    training, evaluation = make_views(shard, parameters, workspace, plan.targets, link_loss)
    before = None
    if link_loss and shard.training_strategy is not shard.strategy:
        evaluation = evaluation._replace(loss=link_loss.of_set("test"))
        before = training._replace(loss=link_loss.of_set("val"))
    if config.replay == "auto" and not plan.steps.builder and may_replay(shard.comm):
        evaluation = evaluation._replace(replay=StepReplay(workspace, shard.comm))
        before = before and before._replace(replay=StepReplay(workspace, shard.comm))
        training = training._replace(replay=StepReplay(workspace, shard.comm))
    evaluation = evaluation._replace(before=before)
    if plan.steps.builder:
        kind = LinkMiniBatches if plan.links else MiniBatches
        batches = kind(plan.steps, training, shard, config.epochs)
    else:
        batches = LinkBatches(training, plan.links) if plan.links else FullBatch(training)
    return_freed_memory()
    workspace.reserve(plan.work_arrays)
    plan_passes(shard, None if plan.steps.builder else training, evaluation)

    # the optimizer of its parameters
    with placed():
        optimizer = OPTIMIZERS[config.optimizer](
            parameters.flat, rate=plan.learning_rate, decay=config.weight_decay,
            decayed=parameters.decayed(config.decay_layers), clip_norm=config.clip_norm,
            own=learned.size, comm=shard.comm if spec.embedding else None)
    return training, batches, evaluation, parameters, optimizer

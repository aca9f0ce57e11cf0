"""Plan the training steps of an epoch, and predict their traffic."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.comm import MpiComm, SerialComm
from hpgcn.errors import UsageError, setting
from hpgcn.model import MODELS, products_of
from hpgcn.planning.counts.batch_traffic import counted_batches, decreasing_levels
from hpgcn.planning.counts.traffic import Prediction, link_calls
from hpgcn.sampling import (
    SAMPLERS,
    InducedBatchBuilder,
    LocalMatrix,
    NeighborBatchBuilder,
    NeighborSampler,
    parse,
)
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.link_batch_builder import LinkBatchBuilder
from hpgcn.training.setup.run_partition import parts_of

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.sampling.batch_request import BatchRequest
    from hpgcn.strategies.strategy import Strategy
    from hpgcn.training.setup.rank_links import RankLinks
    from hpgcn.training.setup.shard import GraphShard


class Forecast(NamedTuple):
    """Predicted traffic of all ranks in an epoch.

    The numbers are exact for full batches, else estimated from some batches.
    """

    bytes: int
    messages: int


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The plan of the training steps in an epoch.

    Attributes
    ----------
    per_epoch : int
        Number of steps.
    full_step : hpgcn.planning.counts.traffic.Prediction
        Traffic of a step of all training vertices.
    forecast : Forecast
    builder : hpgcn.sampling.InducedBatchBuilder, NeighborBatchBuilder or LinkBatchBuilder, or None
        The builder of mini-batches; None: every step trains on all training vertices or links.
    comm : hpgcn.comm.SerialComm or MpiComm
        The communicator of the builder; it may be that of the run.
    threaded : bool
        Whether another thread makes mini-batches.
    """

    per_epoch: int
    full_step: Prediction
    forecast: Forecast
    builder: InducedBatchBuilder | NeighborBatchBuilder | LinkBatchBuilder | None = None
    comm: SerialComm | MpiComm | None = None
    threaded: bool = False


def check_batch(config: Config, strategy: type[Strategy], title: str) -> None:
    """Raise UsageError if the setting `batch` is malformed or excludes other settings.

    These settings are `memory` without `scratch`, and the strategy, whose name is
    `title`.
    """
    batch = config.batch
    if parse(batch) is None:
        return
    if config.memory and not config.scratch:
        raise UsageError(f"{setting('memory', config.memory)} needs {setting('batch', 'full')} or "
                         f"{setting('scratch')}: mini-batches have no products to recompute")
    if not strategy.supports_minibatches:
        serving = ", ".join(each.name for each in STRATEGIES.values() if each.supports_minibatches)
        raise UsageError(f"{setting('batch', batch)}: strategy {title} supports only full batches, "
                         f"expected one of {serving}")


def plan_steps(batch: str, source: GraphSource, shard: GraphShard, full_step: Prediction,
               out: str = "", links: RankLinks | None = None) -> StepPlan:
    """Return the StepPlan for the setting `batch`; all ranks call this together.

    `source` is the graph of the caller, `full_step` the Prediction of a step on all
    rows. A model of links has `links`. The run directory `out` may store parts. UsageError on
    all ranks unless there is one number of neighbors for each product with A; other errors as
    `parts_of`.
    """
    request = parse(batch)
    if request is None:
        total = Forecast(full_step.total_bytes(), full_step.total_messages())
        return StepPlan(1, full_step, total)

    # the builder of batches
    vertex = shard.train.select(0, shard.vertex)
    local = LocalMatrix.of(shard.training_strategy, vertex, shard.comm).in_tables()
    comm, threaded = shard.comm, False
    if SAMPLERS[request.name].induced:
        builder = _induced_builder(request, source, shard, local, out)
        device = shard.comm.device
        threaded = device.in_tiles and not device.in_files
    elif links:
        builder = _link_builder(request, shard, local, links)
    else:
        builder = _neighbor_builder(request, shard, local)
        comm, threaded = builder.comm, shard.comm.threads

    # traffic of set-up belongs to the run, with and without a thread
    with shard.comm.device.in_memory():
        forecast = _forecast(builder, shard, full_step)
    if comm is not shard.comm:
        shard.comm.counters.include(comm.counters)
    return StepPlan(builder.sampler.batches, full_step, forecast, builder, comm, threaded)


def _induced_builder(request: BatchRequest, source: GraphSource, shard: GraphShard,
                     local: LocalMatrix, out: str) -> InducedBatchBuilder:
    """Return the builder of batches that sampled vertices or parts induce.

    All ranks call this together.
    """
    kind = SAMPLERS[request.name]
    units, unit_of, weights = source.header.num_nodes, np.asarray, None
    own = shard.train.select(0, shard.vertex)
    if kind.samples_parts:
        part, units = parts_of(request, source, shard.comm, out)
        unit_of = part.__getitem__
        weights = shard.comm.sum(np.bincount(part[own], minlength=units)).astype(np.int64)
    elif shard.within is not None:
        every = np.sort(np.concatenate(shard.comm.allgather(own)))
        units, unit_of = every.size, every.searchsorted
    sampler = kind(units, request.size, shard.spec.seed)
    hops = sum(products_of(shard.spec))
    return InducedBatchBuilder(local, sampler, unit_of, weights, hops, shard.comm)


def _neighbor_builder(request: BatchRequest, shard: GraphShard,
                       local: LocalMatrix) -> NeighborBatchBuilder:
    """Return the builder of batches of sampled neighbors; all ranks call this together.

    If a thread builds the batches, it gets a communicator of its own.
    """
    comm = shard.comm
    seeds = np.flatnonzero(shard.train.select(0, shard.masks["train"]))
    vertex = local.row_vertex[seeds]
    every = np.sort(np.concatenate(comm.allgather(vertex)))
    sampler = _neighbor_sampler(request, every.size, shard)
    numbers = np.searchsorted(every, vertex)
    other = comm.duplicate() if comm.threads else comm
    nested = MODELS[shard.spec.architecture].supports_pruning
    return NeighborBatchBuilder(local, sampler, seeds, numbers, other, nested=nested)


def _link_builder(request: BatchRequest, shard: GraphShard, local: LocalMatrix,
                  links: RankLinks) -> LinkBatchBuilder:
    """Return the builder of batches of links; all ranks call this together."""
    sampler = _neighbor_sampler(request, links.num_links, shard)
    neighbors = NeighborBatchBuilder(local, sampler, *np.empty((2, 0), np.int64), shard.comm,
                                     nested=MODELS[shard.spec.architecture].supports_pruning)
    return LinkBatchBuilder(neighbors, links)


def _neighbor_sampler(request: BatchRequest, units: int, shard: GraphShard) -> NeighborSampler:
    """Return the sampler of a request that draws neighbors; a UsageError on all ranks."""
    with shard.comm.collective_errors():
        fan_outs = request.fan_outs_for(sum(products_of(shard.spec)))
    return SAMPLERS[request.name](units, request.size, shard.spec.seed, fan_outs)


def _forecast(builder: Any, shard: GraphShard, full_step: Prediction) -> Forecast:
    """Return the Forecast of an epoch.

    It is the mean of some batches, times the number of batches. All ranks call this
    together.
    """
    sampler, spec = builder.sampler, shard.spec
    levels = shard.sizes() if sampler.induced else (decreasing_levels(sum(products_of(spec))),) * 2
    products = shard.steps.products(spec, levels)

    # traffic of products with A in these batches
    numbers = counted_batches(sampler.batches)
    sent = np.zeros(2, np.int64)
    for number in numbers:
        batch = builder.batch(1, number)
        maps = batch.maps
        traffics = {part: part.traffic() for part in maps}
        calls = [call for product in products
                 for call in traffics[maps[product.layer]].calls(product, spec.row_itemsize)]
        if batch.pairs:
            calls += [call for _, call in link_calls(spec, batch.pairs.pulled.table())]
        for call in calls:
            sent += [np.sum(amount) for amount in call[:2]]
        for part in traffics:
            part.close()

    # all else is as in a full step
    total_bytes, messages = (
        round(sampler.batches * (amount / len(numbers) + full_step.non_aggregation_total(name)))
        for amount, name in zip(sent.tolist(), ("bytes", "messages")))
    return Forecast(total_bytes, messages)

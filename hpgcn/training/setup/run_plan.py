"""The plan of a run: all decisions and predictions, made before training starts.

Set-up has one direction: settings and graph --make_run_plan--> RunPlan
--make_trainer--> Trainer.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError, agreed, setting
from hpgcn.graphs.added_edges import adds_edges
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.graph import Header
from hpgcn.model import ModelSpec, Targets, TargetScale, find_targets, masked_layers, metric_of
from hpgcn.planning.answers.dry_run import drops_AX
from hpgcn.planning.counts.footprint import DenseFootprint
from hpgcn.planning.counts.traffic import add_links, predict_step
from hpgcn.runtime.gpu_limits import check_memory
from hpgcn.runtime.progress_log import set_activity
from hpgcn.sampling import FULL
from hpgcn.setting_words import parse_schedule
from hpgcn.strategies import read_options, strategy_setting
from hpgcn.training.setup.placement import assign_rows
from hpgcn.training.setup.rank_links import RankLinks
from hpgcn.training.setup.shard import GraphShard
from hpgcn.training.setup.step_plan import StepPlan, plan_steps
from hpgcn.training.steps.schedules import LearningRate

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.planning.counts.traffic import Prediction

log = logging.getLogger("hpgcn")


@dataclass(frozen=True, eq=False)
class RunPlan:
    """All decisions of a run, with its predicted traffic and memory.

    It never changes. It is equal on all ranks except for `shard` and `work_arrays`.

    Attributes
    ----------
    config : hpgcn.Config
        The settings as in config.toml, where `strategy` names the chosen strategy. `out`
        is the run directory.
    header : hpgcn.graphs.graph.Header
    grid_shape : tuple of int
        The grid of ranks.
    strategy_choice : str
        Why the strategy was chosen; empty if the settings name it.
    spec : hpgcn.model.ModelSpec
        The model, including which products the layers recompute (`drop_AX`) or compute
        once before training (`precomputed`).
    metric : str
        The metric of accuracies and of the best epoch.
    targets : hpgcn.model.Targets or hpgcn.model.TargetScale
        Label smoothing and class weights, or the scale of targets.
    learning_rate : LearningRate
    shard : GraphShard
        The rows of this rank, and the maps that multiply by A.
    links : RankLinks or None
        The links of this rank, if the model predicts links.
    steps : StepPlan
        The training steps of an epoch and their predicted traffic.
    work_arrays : dict
        Predicted memory: size and dtype, by name, of the work arrays of this rank.
        Empty for mini-batches.
    device : str
        The devices of a rank in words.
    node_aware : bool
        Whether rows are sent to each node once.
    """

    config: Config
    header: Header
    grid_shape: tuple[int, ...]
    strategy_choice: str
    spec: ModelSpec
    metric: str
    targets: Targets | TargetScale
    learning_rate: LearningRate
    shard: GraphShard
    links: RankLinks | None
    steps: StepPlan
    work_arrays: dict
    device: str
    node_aware: bool


def make_run_plan(source: GraphSource, config: Config, spec: ModelSpec,
                  comm: SerialComm) -> RunPlan:
    """Return the RunPlan for a graph, settings and a model.

    All ranks call this together. `source` is a Graph or StoredGraph, which may be
    partitioned here; this may write a file. `spec` is the ModelSpec from `make_spec`.
    Errors on all ranks as `hpgcn.train`.
    """
    metric = metric_of(spec, config.metric)
    targets = find_targets(source, comm, config.class_weight, config.label_smoothing)

    # which rank owns which rows, and which strategy multiplies by A
    set_activity("assigning rows to ranks")
    with assign_rows(source, comm, config) as placement:
        # which products are recomputed instead of stored
        spec = replace(spec, drop_AX=drops_AX(placement, config, comm))

        # which products dropout masks
        on_gpu = comm.device.name != "cpu" and not config.aggregates_on_host
        slices = placement.strategy.mask_slices(placement.rank_grid.shape)
        spec = replace(spec, masked=masked_layers(
            spec, config.masked_products, slices, source.header.row_entries, on_gpu=on_gpu))

        # the rows of this rank, and the maps that multiply by A
        full_batch = config.batch == FULL
        shard = GraphShard(placement, spec, comm, split=config.split_index, prune=config.prune,
                           full_batch=full_batch, training_graph=config.training_graph,
                           added_edges=adds_edges(config, placement.source))
        links = RankLinks(placement.source, shard, config) if spec.decoder else None
    if spec.target_loss:
        targets = shard.scale_targets(standardize=config.standardize)
    comm.clock.setup.begin("planning")
    check_memory(comm, lambda: device_bytes(shard, links), config.dtype)

    # the vertices, the traffic and the memory of a step
    set_activity("preparing the first step")
    traffic = predict_traffic(shard)
    if links and full_batch:
        add_links(traffic, spec, links.table(config.epochs), placement.rank_grid.nodes.numbers)
    steps = plan_steps(config.batch, source, shard, traffic, config.out, links)
    schedule, every, factor = parse_schedule(config.schedule)
    learning_rate = LearningRate(config.lr, schedule, config.warmup, config.epochs, every, factor,
                                 steps.per_epoch)
    chosen = strategy_setting(placement.strategy.name, read_options(config))
    device = comm.device.name
    if config.aggregates_on_host and device != "cpu":
        device += ", aggregation on cpu"

    return RunPlan(
        config=config.replace(strategy=chosen), header=source.header,
        grid_shape=placement.rank_grid.shape, strategy_choice=placement.choice, spec=spec,
        metric=metric, targets=targets, learning_rate=learning_rate, shard=shard, links=links,
        steps=steps,
        work_arrays=work_arrays(shard) if full_batch else {}, device=device,
        node_aware=placement.rank_grid.nodes.aware)


def predict_traffic(shard: GraphShard) -> Prediction:
    """Return the Prediction of all ranks' traffic in a full-batch training step.

    All ranks call this together.
    """
    traffics = [each and each.traffic() for each in shard.train.maps]
    return predict_step(shard.spec, traffics, shard.level_sizes(), shard.layout, shard.steps)


def work_arrays(shard: GraphShard) -> dict[str, tuple]:
    """Return size and dtype of the work arrays of this rank's steps, by name."""
    return shard.rank_step().reserved


def check_sets(shard: GraphShard, config: Config, header: Header) -> None:
    """Refuse patience without validation vertices, and name classes that cannot be learned.

    Links are checked by `check_links`. All ranks call this together. Raise a UsageError on
    all ranks; log a warning on rank 0 if classes have no training vertex.
    """
    if shard.spec.decoder:
        return
    columns, labels = shard.columns, shard.labels
    own = columns.row.rank == 0  # one of the ranks that share a row counts it
    known = shard.masks["val"]
    if header.num_targets:
        known = known & ~np.isnan(labels).all(axis=1)
    validation = columns.comm.sum([own * np.count_nonzero(known)])[0]
    if config.patience and not validation:
        raise agreed(UsageError(
            f"{setting('patience', config.patience)}: {header.name} has no validation "
            "vertices, which say when to stop; remove it, or add some with `hpgcn convert "
            "--split`"))

    # classes of training vertices
    if header.num_targets:
        return
    chosen = labels[shard.masks["train"]]
    counts = (np.bincount(chosen, minlength=header.num_classes) if labels.ndim == 1
              else chosen.sum(0, np.float64))
    absent = np.flatnonzero(columns.comm.sum(own * counts) == 0)
    if absent.size and shard.comm.rank == 0:
        names = shard.names["class_names"] or [*map(str, range(counts.size))]
        log.warning("%s: %s no training vertex, so that the model cannot learn %s: %s",
                    header.name,
                    f"{absent.size} classes have" if absent.size > 1 else "1 class has",
                    "them" if absent.size > 1 else "it", join_names([names[k] for k in absent]))


def device_bytes(shard: GraphShard, links: RankLinks | None = None) -> int:
    """Return the bytes that this rank will allocate on its device after the matrix."""
    train, evaluated = shard.sizes()
    footprint = DenseFootprint(shard.spec, shard.layout, train, evaluated, shard.steps)
    placed = footprint.placed_last + (links.sizes.nbytes(shard.spec) if links else 0)
    return int(placed[shard.comm.rank])


def check_trainable(header: Header, split: int = 0, where: str | None = None, *,
                    embedding: int = 0, task: str = "vertices") -> None:
    """Raise a DataError if a graph lacks features, labels or splits.

    Learned rows of width `embedding` stand for features, and links for labels and splits if
    they are the task: see `hpgcn.training.setup.rank_links.check_links`. Raise a ConfigError
    if the graph has splits, but none with this number.
    """
    if not header.num_features + embedding:
        raise DataError(f"{header.name}: no features; add them in Graph.from_scipy or with `hpgcn "
                        "convert` and --features FILE, --features identity or --features degree; "
                        f"or learn a row for each vertex, with {setting('embedding', 64)}")
    if task == "links":
        return
    if not header.num_outputs:
        raise DataError(f"{header.name}: no labels; add them in Graph.from_scipy or with `hpgcn "
                        "convert` and --labels FILE; or values to predict, with targets= or "
                        f"--targets FILE; or learn its links, with {setting('task', 'links')}")
    if not header.num_splits:
        raise DataError(f"{header.name}: no train, validation and test masks; add them in "
                        "Graph.from_scipy, with `hpgcn convert` and --split, for example --split "
                        "random:60/20/20, or before from_pyg with "
                        "torch_geometric.transforms.RandomNodeSplit()(data)")
    header.check_split(split, where)

"""The rows of a graph on one rank, and the maps that multiply by its matrix."""
from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.comm.collective_errors import CollectiveClose
from hpgcn.errors import DataError, agreed
from hpgcn.graphs.added_edges import AddedEdges
from hpgcn.graphs.contents import NAMED, in_order, title_targets
from hpgcn.graphs.induced_graph import InducedGraph, training_rows
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.model import (
    MODELS,
    Features,
    TargetScale,
    norm_of,
    products_of,
    reads_X,
    supports_pruning,
)
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.layout import split
from hpgcn.parallel.receptive_field import ReceptiveField, find_levels, on_all_ranks, self_rows
from hpgcn.parallel.shared_rows import SharedRows
from hpgcn.planning.counts.shaped_step import LevelSizes, RankStep, Steps
from hpgcn.runtime.progress_log import set_activity
from hpgcn.training.setup.placement import read_slab

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import AdjacencySource
    from hpgcn.graphs.header import Header
    from hpgcn.model.layers.layer import Layer
    from hpgcn.model.spec import ModelSpec
    from hpgcn.strategies.plan import RankGrid
    from hpgcn.strategies.strategy import Strategy
    from hpgcn.training.setup.placement import Placement

log = logging.getLogger("hpgcn")


class GraphShard(CollectiveClose):
    """The rows of a graph on this rank.

    They have features, labels, and the maps that multiply by A. `train` and `evaluated`
    are the ReceptiveFields of a training step and of an evaluation, of all rows unless
    `prune`. Mini-batches (not `full_batch`) derive their own receptive fields from it.
    With another `training_graph` than "all", training steps have a strategy of their own
    for the graph that the rows `within`, (n,) bool, induce. So they have if evaluation has
    `added_edges`: see `hpgcn.graphs.added_edges.AddedEdges`.
    With learned rows, `vertex_ids` on rank 0 are those of all vertices in ORIGINAL order.
    `feature_order` (f,) is that of the columns, if the file has another. The slab that
    was read is released once the maps exist, because it would double the memory of the
    adjacency.
    """

    def __init__(self, placed: Placement, spec: ModelSpec, comm: SerialComm, *, split: int = 0,
                 prune: bool = False, full_batch: bool = True, training_graph: str = "all",
                 feature_order: np.ndarray | None = None, added_edges: bool = False) -> None:
        source = placed.source
        layout = placed.layout
        self.spec = spec
        self.comm = comm

        # the rows of this rank
        set_activity(f"reading {source.where}")
        slab = read_slab(placed, comm, split)
        comm.clock.setup.begin("matrix")
        if slab.masks is not None and not spec.decoder:
            train = comm.sum([np.count_nonzero(slab.masks["train"])])[0]
            if not train:
                which = f" of split {split}" * (source.header.num_splits > 1)
                raise agreed(DataError(f"{slab.header.name}: the train mask{which} is empty"))
        self.columns = SharedRows(layout, comm, spec.dtype)

        # the maps that multiply by A
        layer = MODELS[spec.architecture]
        self.steps = Steps()
        self.width = self.steps.widest(spec, placed.strategy.Plan.Traffic)
        adjacency = self._adjacency(source, slab)
        self.strategy = self._build(placed.strategy, adjacency, placed.rank_grid)
        self.layout = self.strategy.layout
        warn_of_degrees(slab, adjacency, comm, layout.column == 0)
        if comm.rank == 0:
            note_unread(source.header, layer, spec.architecture)

        # those of the graph that training vertices induce
        self.training_strategy, self.within = self.strategy, None
        own = training_rows(slab.masks, training_graph)
        if own is not None:
            n = source.header.num_nodes
            self.within = on_all_ranks(layout.rows.start + np.flatnonzero(own), n, comm)
            induced = InducedGraph(source, self.within, slab, self._add_up)
            if comm.rank == 0:
                log.info("training graph (%s): %s", training_graph, induced)
            grid = replace(placed.rank_grid, layout=layout.restricted(self.within))
            self.training_strategy = self._build(placed.strategy, self._adjacency(induced), grid)
            del induced
        if added_edges:
            with comm.collective_errors():
                added = AddedEdges(source, slab)
            if comm.rank == 0:
                log.info("graph of evaluation: %s", added)
            self.strategy = self._build(placed.strategy, self._adjacency(added), placed.rank_grid)
            del added

        # the data of the rows that the strategy stores
        slab = self.strategy.replicate_slab(slab)
        # (m,); (m, t) of many labels, or of targets
        self.labels = slab.labels if slab.targets is None else slab.targets
        self.masks = slab.masks  # dict of (m,) bool, or None
        self.vertex = slab.vertex  # (m,) int64 ORIGINAL numbers
        self.key = comm.device.put(slab.vertex)
        self.original_ids = slab.original_ids  # (m,) or None
        self.names = {field: getattr(slab, field) for field in NAMED}
        if spec.decoder:
            self.names["class_names"] = None  # the model has no classes
        self.vertex_ids = self._gathered_ids(slab.ids()) if spec.embedding else None
        self._features = self._input_of(slab, feature_order, in_place=source.path is not None)

        # which rows each layer computes, and the maps between them
        products = products_of(spec)
        self.levels = [[rows] * (sum(products) + 1) for rows in (self.within, None)]
        if prune and not spec.decoder and self.strategy.supports_pruning and supports_pruning(spec):
            train = [slab.masks["train"]] if full_batch else None
            set_activity("finding the rows that the loss reads")
            masks = train, list(slab.masks.values())
            self.levels = [
                level if read is None else
                find_levels(slab, read, sum(products), comm, precomputed=spec.precomputed,
                            within=within)
                for level, read, within in zip(self.levels, masks, (self.within, None))]
        del slab, adjacency
        self.train = ReceptiveField.of(
            self.training_strategy, self.levels[0], products, precomputed=spec.precomputed,
            whole=self._training_map, layout=self.layout, within=self.within)
        self.evaluated = ReceptiveField.of(self.strategy, self.levels[1], products,
                                           precomputed=spec.precomputed)
        self.feature_entries = [self._count_features(field)
                                for field in (self.train, self.evaluated)]

    def scale_targets(self, *, standardize: bool) -> TargetScale:
        """Put `labels`, which are targets, into the units of the model; return their scale.

        All ranks call this together. A DataError on all ranks as `TargetScale.of`.
        """
        names = title_targets(self.names["target_names"], self.labels.shape[1])
        scale = TargetScale.of(self.labels, self.masks, self.columns, names,
                               standardize=standardize)
        self.labels = scale.standardized(self.labels)
        return scale

    def _gathered_ids(self, ids: np.ndarray) -> np.ndarray | None:
        """Return the ids of all vertices in ORIGINAL order on rank 0; None elsewhere.

        `ids` are those of the rows of this rank.
        """
        own = slice(None if self.columns.layout.column == 0 else 0)  # the others have the same rows
        vertex, ids = (self.comm.gather_rows(each[own]) for each in (self.vertex, ids))
        if self.comm.rank:
            return None
        found = np.empty_like(ids)
        found[vertex] = ids
        return found

    def _input_of(self, slab: Graph, feature_order: np.ndarray | None, *, in_place: bool) -> Any:
        """Return this rank's columns of the features, with room for learned rows behind them."""
        spec = self.spec
        own = self.columns.of(spec.widths[0])
        if not spec.embedding:
            X = in_order(slab.features, feature_order, in_place=in_place)
            X = X[:, own].astype(spec.dtype, copy=False)
            return X if spec.sparse_features else stored(X, spec.row_dtype)
        whole = np.zeros((slab.num_rows, own.stop - own.start), spec.dtype)
        if slab.features is not None:
            X = in_order(slab.features, feature_order, in_place=in_place)[:, own]
            whole[:, :X.shape[1]] = X.toarray() if slab.header.sparse_features else X
        return whole

    def _adjacency(self, source: AdjacencySource, slab: Graph | None = None) -> NormalizedAdjacency:
        """Return the matrix by which the layers multiply."""
        layer, spec = MODELS[self.spec.architecture], self.spec
        return NormalizedAdjacency(source, norm=norm_of(spec), self_loops=layer.self_loops,
                                   dtype=spec.dtype, slab=slab, row_dtype=spec.row_dtype,
                                   numbered=layer.uses_edge_features)

    def _build(self, kind: type[Strategy], adjacency: NormalizedAdjacency,
               rank_grid: RankGrid) -> Strategy:
        """Build a strategy for all rows of a matrix; all ranks call this together."""
        set_activity("planning the messages between ranks")
        strategy = kind.build(adjacency, rank_grid, self.comm, width=self.width)
        if adjacency.numbered:
            set_activity("reading the edge features")
            with self.comm.collective_errors():
                strategy.read_edge_features(adjacency.source, self.spec.dtype)
        return strategy

    def _add_up(self, sums: np.ndarray) -> None:
        """Sum an array over ranks, in place; one of the ranks that share rows counts them."""
        if self.columns.layout.column:
            sums[:] = 0
        self.comm.allreduce(sums, "plan")

    def _training_map(self, hop: int) -> Strategy:
        """Return the map for product `hop` with A in training steps without pruned rows."""
        products = self.steps.products(self.spec, self.level_sizes())
        widths = {each.backward: each.width for each in products if each.layer == hop}
        return self.training_strategy.map_for_product(hop).training_map(
            *(widths[back] for back in sorted(widths)))

    def _count_features(self, field: ReceptiveField) -> list[int]:
        """Count sparse feature entries in this rank's rows of the first two levels."""
        if not self.spec.sparse_features:
            return [0, 0]
        counts = np.diff(self._features.indptr)
        return [int(field.select(place, counts).sum()) for place in (0, 1)]

    def release_features(self) -> list[Features]:
        """Return the Features that training and evaluation read, on the device.

        All ranks call this together, only once. Fields of all rows share one copy.
        """
        X = self._features
        self._features = None
        device = self.comm.device
        rows = [self.train.rows[0], self.evaluated.rows[0]]

        # those of the training graph, whose rows are a part of all
        found = []
        if self.within is not None:
            own = np.flatnonzero(self.within[self.layout.rows.start:self.layout.rows.stop])
            given = self._features_of(X[own], self.training_strategy)
            found.append(given.select(self_rows(own, rows.pop(0)), device))

        given = self._features_of(X, self.strategy)
        whole = None
        for numbers in rows:
            if numbers is not None:
                found.append(given.select(numbers, device))
            else:
                whole = whole or given.select(None, device)
                found.append(whole)
        return found

    def _features_of(self, X: Any, strategy: Strategy) -> Features:
        """Return the Features X of the rows of a strategy, with A X if layer 1 reads it.

        Layer 1 then needs neither products with A nor messages in any epoch. A X is
        computed in slices of columns that fit the buffers.
        """
        if self.spec.sparse_features:
            return Features(Csr.of(X))
        if not self.spec.precomputed:
            return Features(X)

        device = self.comm.device
        AX = np.empty_like(X)
        slices = -(-self.spec.widths[0] // self.width)  # on every rank alike
        for first, last in pairwise(split(AX.shape[1], slices).tolist()):
            part = device.put(np.ascontiguousarray(X[:, first:last]))
            AX[:, first:last] = device.get(strategy.map_for_product(0).forward(part))
        return Features(X if reads_X(self.spec) else None, AX)

    def sizes(self) -> list[LevelSizes]:
        """Return the LevelSizes of training and evaluation, with feature entries.

        The entries are those of this rank.
        """
        views = self.level_sizes()
        for view, entries in zip(views, self.feature_entries):
            view.feature_entries[:] = np.array(entries)[:, None]
        return views

    def rank_step(self) -> RankStep:
        """Return the work, memory and messages of this rank in a training step."""
        homes = tuple(each.attention_home if each else "" for each in self.train.maps)
        return self.steps.of(self.spec, self.sizes(), self.comm.rank, self.layout.columns, homes)

    def level_sizes(self) -> list[LevelSizes]:
        """Return the LevelSizes of training and evaluation, without feature entries."""
        return [LevelSizes.of(levels, self.layout) for levels in self.levels]

    def persistent_arrays(self) -> list:
        """Return the arrays that one training step leaves to later ones, a list."""
        return [array for each in self.train.maps if each for array in each.persistent_arrays()]

    def resume_at_step(self, steps: int) -> None:
        """Resume at a step; see `Strategy.resume_at_step`."""
        for each in filter(None, self.train.maps):
            each.resume_at_step(steps)

    def close(self) -> None:
        for each in (self.train, self.evaluated):
            each.close()
        for each in dict.fromkeys((self.training_strategy, self.strategy)):
            each.close()
        self.columns.close()


def stored(X: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Return dense features, (m, f_j), in C order, in the dtype of stored rows."""
    X = np.ascontiguousarray(X)
    if X.dtype == dtype:
        return X
    return kernels.backend(X).convert(X, np.empty(X.shape, dtype))


def note_unread(header: Header, layer: type[Layer], name: str) -> None:
    """Log which data of edges the layers of the model `name` do not read."""
    reader = "attention" if layer.uses_attention else f"model {name}"
    if (layer.uses_attention or layer.uses_edge_features) and not header.all_ones:
        log.warning("%s: has edge weights (%s), which %s ignores", header.name, header.weights,
                    reader)
    if header.num_edge_features and not layer.uses_edge_features:
        log.info("%s: has %d edge features, which model %s does not read", header.name,
                 header.num_edge_features, name)


def warn_of_degrees(slab: Graph, matrix: NormalizedAdjacency, comm: SerialComm,
                    counted: bool) -> None:
    """Log how many vertices have a degree that cannot normalize A, such as 0.

    All ranks call this. `counted` is true on one of the ranks that share the same rows.
    """
    if matrix.norm == "none":
        return

    added = (slab.degree_loop == 0) & matrix.self_loops
    wrong = slab.degree_row + added <= 0
    if matrix.norm == "sym":
        wrong |= slab.degree_column + added <= 0
    wrong &= counted

    cancelled = wrong & ((np.diff(slab.indptr) > 0) | matrix.self_loops)
    found = comm.sum([np.count_nonzero(wrong), np.count_nonzero(cancelled)])
    count, by_weights = found.astype(int).tolist()

    if count and comm.rank == 0:
        weights = f", {by_weights} because weights cancel or are negative" if by_weights else ""
        log.warning("%s: %d of %d vertices %s a degree of 0 or less%s: their normalization factor "
                    "is 0 (docs/models.md)", slab.header.name, count,
                    slab.header.num_nodes, "has" if count == 1 else "have", weights)

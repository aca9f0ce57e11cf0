"""The part of a graph on one rank, and the strategy that multiplies by its matrix."""
from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hpgcn import dense
from hpgcn.cost.gpu import placed_last
from hpgcn.cost.shares import Levels
from hpgcn.device import HOST
from hpgcn.errors import DataError
from hpgcn.layout import split
from hpgcn.model import MODELS
from hpgcn.place import check_slabs, place
from hpgcn.reach import Reach, levels
from hpgcn.strategies import STRATEGIES

log = logging.getLogger("hpgcn")


class Rows:
    """The part of a graph on this rank: features in the run's dtype, labels, and the strategy that multiplies by A-hat.

    The slab itself is let go once the strategy is made: it would double the adjacency.

    Parameters
    ----------
    source : hpgcn.graph.Graph or hpgcn.store.StoredGraph
    config : hpgcn.Config
    comm : hpgcn.comm.SerialComm or MpiComm
    step : hpgcn.cost.Step

    Attributes
    ----------
    train, evaluated : hpgcn.reach.Reach
        Rows that a training step computes, and those that an evaluation does; all rows unless config.prune.
    X : array, SparseRows or a pair
        All rows of the features, on the host.
    devices : str
        The device, and where else rows are aggregated.
    vertex : (m,) int64
        ORIGINAL numbers of the rows, on the host; `key` are they on the device.
    """

    def __init__(self, source, config, comm, step):
        self.dtype, self.device = np.dtype(config.dtype), comm.device
        source, grid, self.axes = place(source, comm, config)
        with comm.together():
            slab = source.slab(grid.rows.start, grid.rows.stop)
        check_slabs(source, slab, comm, grid.column == 0)
        if slab.masks is not None:
            train = comm.sum([np.count_nonzero(slab.masks["train"])])[0]
            with comm.together():
                if not train:
                    raise DataError(f"{source.header.name}: the train mask is empty")
        self.columns = dense.Columns(grid, comm)
        X = slab.features[:, self.columns.of(step.widths[0])].astype(self.dtype, copy=False)
        self.X = dense.SparseRows(X) if source.header.sparse_features else np.ascontiguousarray(X)
        self.num_features, self.labels, self.masks = step.widths[0], slab.labels, slab.masks
        self.vertex, self.original_ids = slab.vertex, slab.original_ids
        self.key, self.placed = self.device.put(slab.vertex), None
        every = replace(step, constant=False)  # A X is formed by the strategy, too
        self.max_width = max(product.width for product in every.forward + every.backward)
        self.kind = kind = MODELS[config.architecture]
        batches, self.devices = {}, self.device.name
        if config.strategy == "mop":
            home = HOST if config.aggregates_on_host else self.device
            batches = {"stages": config.stages, "home": home}
            if home is not self.device:
                self.devices += ", aggregation on cpu"
        self.strategy = STRATEGIES[config.strategy](source, grid, comm, norm=kind.norm, self_loops=kind.self_loops,
                                                    dtype=self.dtype, max_width=self.max_width, slab=slab,
                                                    axes=self.axes, **batches)
        self._warn_of_degrees(slab, comm, source.header)
        every = [None] * len(step.widths)
        found = [every, every]
        if config.prune:
            masks = [slab.masks["train"]], list(slab.masks.values())
            found = [levels(slab, read, config.layers, comm, given=step.constant) for read in masks]
            del slab
        self.train, self.evaluated = (Reach.of(self.strategy, each, given=step.constant) for each in found)

    def _warn_of_degrees(self, slab, comm, header):
        """Say how many vertices have a degree that nothing can be divided by; all ranks call this together."""
        if self.kind.norm == "none":
            return
        added = (slab.degree_loop == 0) & self.kind.self_loops
        wrong = slab.degree_row + added <= 0
        if self.kind.norm == "sym":
            wrong |= slab.degree_column + added <= 0
        wrong &= self.columns.grid.column == 0  # others hold the same rows
        cancelled = wrong & ((np.diff(slab.indptr) > 0) | self.kind.self_loops)
        count, by_weights = comm.sum([np.count_nonzero(wrong), np.count_nonzero(cancelled)]).astype(int).tolist()
        if count and comm.rank == 0:
            log.warning("%s: %d of %d vertices %s a degree of 0 or less%s: the factor of their normalisation is 0 "
                        "(docs/models.md)", header.name, count, header.num_nodes, "has" if count == 1 else "have",
                        f", {by_weights} by weights that cancel or are negative" if by_weights else "")

    def aggregate(self):
        """Replace X by A X or (X, A X), in slices of columns that the strategy's buffers hold, on every rank alike."""
        T, (put, get) = np.empty_like(self.X), (self.device.put, self.device.get)
        for first, last in pairwise(split(T.shape[1], -(-self.num_features // self.max_width)).tolist()):
            T[:, first:last] = get(self.strategy.forward(put(np.ascontiguousarray(self.X[:, first:last])), layer=0))
        self.X = (self.X, T) if self.kind.layer.reads_own else T

    def placed_last(self, step):
        """Bytes that are put on the device once the matrix is there: see hpgcn.cost.gpu. `step`: of training."""
        both = [self._levels(reach) for reach in (self.train, self.evaluated)]
        return int(placed_last(step, *both, lambda width: np.array([self.columns.width(width)]),
                               self.columns.row.size, np.array([self.vertex.size]))[0])

    def _levels(self, reach):
        """The rows of this rank alone, as hpgcn.cost counts them."""
        entries = [np.zeros(1, np.int64)] * 2
        if isinstance(self.X, dense.SparseRows):
            counts = np.diff(self.X.indptr)
            entries = [np.array([reach.take(level, counts).sum()]) for level in (0, 1)]
        return Levels([np.array([size]) for size in reach.sizes], [rows is None for rows in reach.rows], reach.totals,
                      [], entries)

    def features(self, reach):
        """Rows of the features that the first layer of a reach reads, on the device; all of them are put there once."""
        if reach.rows[0] is not None:
            return dense.on(self.device, dense.take_rows(self.X, reach.rows[0]))
        if self.placed is None:
            self.placed = dense.on(self.device, self.X)
        return self.placed

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """Close, unless this rank fails alone: messages are under way then, and others do not come to free groups."""
        if error is None or self.columns.comm.size == 1 or getattr(error, "collective", False):
            self.close()

    def close(self):
        """Free what MPI holds; all ranks call this together, with no message under way."""
        for reach in (self.train, self.evaluated):
            reach.close()
        self.strategy.close()
        self.columns.close()

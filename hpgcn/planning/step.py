"""One training step, run on shapes alone: its products with A, what it takes, what ranks that share rows send."""
from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hpgcn.model import MODELS, Features, MaskedRows, Model, Parameters, make_loss
from hpgcn.parallel.columns import Columns
from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.receptive_field import Hop, ReceptiveField, layer_bounds
from hpgcn.parallel.workspace import Workspace
from hpgcn.planning.shapes import ShapeComm, ShapeCsr, Shapes, Work
from hpgcn.strategies import Product

PHASES = ("forward", "backward")


def products_of(spec):
    """Products with A of each layer, list of L int."""
    return [MODELS[spec.architecture].products] * spec.num_layers


@dataclass(frozen=True, eq=False)
class LevelSizes:
    """Rows of each rank at each level of a receptive field, one level more than products with A.

    Attributes
    ----------
    rows : list of (P,) int64
    every : list of bool
        The level is all rows.
    totals : list of int
        Rows over all ranks, each counted once.
    feature_entries : (2, P) int64
        Stored entries of sparse features in the rows of the first level, and in those that the first layer
        computes; 0 if they are dense.
    """

    rows: list
    every: list
    totals: list
    feature_entries: np.ndarray

    @staticmethod
    def of(levels, layout, feature_pointers=None, products=1):
        """Count the rows of levels, list of (n,) bool or None for all, that ranks own by a layout.

        Parameters
        ----------
        feature_pointers : (n + 1,) int64, optional
            Of sparse features; their columns are taken to hold alike many.
        products : int
            Of the first layer with A.
        """
        ranks = layout.size
        layouts = [layout if level is None else layout.restricted(level) for level in levels]
        rows = [np.repeat(np.diff(each.offsets), layout.columns) for each in layouts]
        entries = np.zeros((2, ranks), np.int64)
        if feature_pointers is not None:
            for place, level in enumerate((levels[0], levels[products])):
                counts = np.diff(feature_pointers) * (True if level is None else level)
                before = np.concatenate([[0], np.cumsum(counts)])[layout.offsets]
                entries[place] = -(-np.repeat(np.diff(before), layout.columns) // layout.columns)
        return LevelSizes(rows, [level is None for level in levels],
                          [int(each.offsets[-1]) for each in layouts], entries)

    def of_rank(self, rank):
        """The sizes of one rank alone: (rows of levels, entries), tuples of int."""
        return tuple(int(rows[rank]) for rows in self.rows), tuple(self.feature_entries[:, rank].tolist())

    def narrows(self, first, last):
        """Whether a layer between two levels computes fewer rows than it reads, on each rank: (P,) bool."""
        if self.every[last]:
            return np.zeros(self.rows[0].shape, bool)
        if self.every[first]:
            return np.ones(self.rows[0].shape, bool)
        return self.rows[first] != self.rows[last]


@dataclass(frozen=True, eq=False)
class RankStep:
    """What one rank takes and sends in a training step and an evaluation, products with A aside.

    Attributes
    ----------
    products : list of Product
        With A and A^T, of the columns of this rank, in order.
    arrays : dict of int
        Bytes of its work arrays by name.
    dense : dict of (bytes, messages) by phase
        Sent to the ranks that share its rows, sums over them aside.
    reductions : dict of list of int by phase
        Bytes of each sum over the ranks that share its rows.
    work : hpgcn.planning.shapes.Work
        Of the training step.
    part_bytes : int
        Of rows of sparse features that layers have cut out and keep.
    """

    products: list
    arrays: dict
    dense: dict
    reductions: dict
    work: Work
    part_bytes: int

    @property
    def nbytes(self):
        """Bytes of its work arrays."""
        return sum(self.arrays.values())


class ShapeMap:
    """Stands for the map of a product with A, and notes what it multiplies."""

    def __init__(self, hop, products):
        self.hop = hop
        self.products = products

    def forward(self, H, *, mask=None, out=None):
        """See hpgcn.strategies.Strategy."""
        self.products.append(Product(self.hop, H.shape[1], mask is not None))
        return out

    def backward(self, G, *, mask=None, out=None):
        """See hpgcn.strategies.Strategy."""
        self.products.append(Product(self.hop, G.shape[1], mask is not None, backward=True))
        return out


def run_rank(spec, levels, rank, columns):
    """Run a training step and an evaluation of one rank on shapes.

    Parameters
    ----------
    spec : hpgcn.model.ModelSpec
    levels : pair of LevelSizes
        Of a training step, and of an evaluation.
    rank : int
        Whose rows they are.
    columns : int
        Ranks that share them (C): this one has the columns of block rank mod C.

    Returns
    -------
    RankStep
    """
    device = Shapes()
    column = rank % columns
    comm = ShapeComm(device, column, columns)
    layout = BlockLayout(np.array([0, 1]), columns, column)  # a single row block: its ranks share rows
    split_columns = Columns(layout, comm, spec.dtype)
    workspace = Workspace(spec.dtype, device)
    parameters = Parameters.zeros(spec, device)
    products = []

    def model(view):
        sizes, entries = view.of_rank(rank)
        field = shape_field(spec, view, rank, products, device)
        vertex = device.empty(int(view.rows[0][rank]), np.int64)
        model = Model(spec, parameters, field, split_columns, workspace, vertex)
        return model, features_of(spec, sizes, entries, split_columns, device)

    training, X = model(levels[0])
    counters = comm.counters
    counters.phase = "forward"
    logits, backward = training.forward(X, 1)
    keys = ("train", "val", "test")
    masked = MaskedRows(dict.fromkeys(keys, device.empty(0, np.int64)), dict.fromkeys(keys, 1))
    labels = device.empty((logits.shape[0], spec.widths[-1]), np.float32)
    loss = make_loss(spec, labels, masked, split_columns)
    _, G = loss.gradient(logits, workspace.take("even", *logits.shape))
    counters.phase = "backward"
    backward(G)
    step = list(products)
    work = device.kernels.work
    dense = {phase: counters.total(phase) for phase in PHASES}

    counters.phase = "evaluation"
    device.kernels.work = Work(0, [], 0)
    evaluation, X = model(levels[1])
    evaluation.infer(X)
    arrays = {name: each.nbytes for space in (workspace, split_columns.workspace)
              for name, each in space.arrays.items()}
    return RankStep(step, arrays, dense, comm.reductions, work, device.part_bytes)


def shape_field(spec, view, rank, products, device):
    """The ReceptiveField of one rank on shapes; `products`: list that its maps note products in."""
    bounds = layer_bounds(products_of(spec))
    rows = [int(each[rank]) for each in view.rows]
    numbers = [None if every else device.empty(size, np.int64) for every, size in zip(view.every, rows)]
    hops = []
    for first, last in pairwise(bounds):
        maps = [None if spec.precomputed and hop == 0 else ShapeMap(hop, products) for hop in range(first, last)]
        own = device.empty(rows[last], np.int64) if view.narrows(first, last)[rank] else None
        hops.append(Hop(maps, rows[first:last + 1], own, view.totals[last] < view.totals[first]))
    return ReceptiveField(None, [numbers[place] for place in bounds], [view.totals[place] for place in bounds],
                          [rows[place] for place in bounds], hops)


def features_of(spec, rows, entries, columns, device):
    """The Features of some rows on shapes."""
    width = columns.width(spec.widths[0])
    if spec.sparse_features:
        return Features(ShapeCsr(device, rows[0], width, entries[0], spec.dtype, entries[1]))
    X = device.empty((rows[0], width), spec.dtype)
    if not spec.precomputed:
        return Features(X)
    return Features(X if MODELS[spec.architecture].reads_self else None, X)


def owned_width(width, columns, rank):
    """Columns that a rank owns of a matrix of some width, where `columns` ranks share its rows."""
    quotient, remainder = divmod(width, columns)
    return quotient + (rank % columns < remainder)


class Steps:
    """Steps of ranks on shapes, each run once: ranks whose sizes are equal, under any strategy, take the same."""

    def __init__(self):
        self._known = {}

    def of(self, spec, levels, rank, columns):
        """Return the RankStep; parameters as `run_rank`."""
        layer = MODELS[spec.architecture]
        widths = {*spec.widths, *(layer.inner_width(spec.widths, number) for number in range(spec.num_layers))}
        own = tuple(owned_width(width, columns, rank) for width in sorted(widths))
        key = (spec, columns, own, *(
            (view.of_rank(rank), tuple(view.every), tuple(view.totals)) for view in levels))
        if key not in self._known:
            self._known[key] = run_rank(spec, levels, rank, columns)
        return self._known[key]

    def products(self, spec, levels):
        """Products with A and A^T of a training step, at their full widths; list of Product."""
        return self.of(spec, levels, 0, 1).products

    def widest(self, spec):
        """Columns of the widest product that may be taken, A X that is formed once among them.

        Of a model without restrictions: buffers of messages are made for it.
        """
        hops = sum(products_of(spec)) + 1
        one = np.ones(1, np.int64)
        levels = LevelSizes([one] * hops, [True] * hops, [1] * hops, np.ones((2, 1), np.int64))
        products = self.products(replace(spec, precomputed=False), (levels, levels))
        return max(product.width for product in products)

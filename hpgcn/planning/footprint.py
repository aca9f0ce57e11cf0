"""Bytes that each rank holds in a training run, on the host and on a GPU, by what they are for (pure).

Arrays alone are counted. The interpreter, its libraries and MPI come on top: about 0.2 GB a rank.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpgcn.model import MODELS, ModelSpec, num_parameters
from hpgcn.parallel.receptive_field import layer_bounds
from hpgcn.planning.step import LevelSizes, Steps, owned_width, products_of
from hpgcn.planning.traffic import predict_step
from hpgcn.strategies import Plan
from hpgcn.strategies.plan import INDEX, POINTER, WEIGHT

VERTEX = 8 + 8 + 3 + 2 * 8  # bytes of a row: its original number, label, three masks, its place in one, twice
LEVEL_ROW = 4 * 8  # of a row of a level: its number, original number, label, its place in the level below
SLAB_ROW = 3 * 8 + 8  # more while it is read: three degrees, a row pointer
COPIES = 6  # of the parameters: themselves, gradient, Adam's two moments, the best, the best on their way out
PARTS = ("matrix", "features", "vertices", "activations", "buffers", "plan", "parameters")

ON_GPU = (*PARTS, "kernels", "staging")
NUMBER = 8  # bytes of a row number, a label, a float64
PIECE_BYTES, PIECE = 40, 512  # bytes of a piece of a row that a product is cut in, nonzeros of one
CHUNKS = 1024  # partial sums of a sum over rows, as hpgcn.kernels.cuda takes them
LOAD = 16  # bytes that a thread loads at a time: rows that are no multiple are copied to longer ones


@dataclass(frozen=True, eq=False)
class RankFootprint:
    """What ranks hold of a graph, and do with it.

    Attributes
    ----------
    spec : hpgcn.model.ModelSpec
    plan : hpgcn.strategies.Plan
        Of all rows.
    train, evaluated : LevelSizes
        Of a training step, and of an evaluation.
    train_plans, evaluated_plans : list of Plan
        Of each product with A; None for one that was formed once.
    entries : (P,) int64
        Entries of A in the rows of each rank, as stored: those that it reads first.
    steps : hpgcn.planning.step.Steps
    """

    spec: ModelSpec
    plan: Plan
    train: LevelSizes
    evaluated: LevelSizes
    train_plans: list
    evaluated_plans: list
    entries: np.ndarray
    steps: Steps

    @property
    def layout(self):
        """Who owns what, of all rows."""
        return self.plan.layout

    @property
    def levels(self):
        """Both views."""
        return self.train, self.evaluated

    @cached_property
    def rows(self):
        """All rows that each rank owns, (P,)."""
        return self.plan.rows()

    @cached_property
    def rank_steps(self):
        """The RankStep of each rank, list of P."""
        columns = self.layout.columns
        return [self.steps.of(self.spec, self.levels, rank, columns) for rank in range(self.rows.size)]

    @cached_property
    def prediction(self):
        """hpgcn.planning.traffic.Prediction."""
        return predict_step(self.spec, self.train_plans, self.levels, self.layout, self.steps)

    @cached_property
    def widest(self):
        """Columns that buffers of messages are made for."""
        return self.steps.widest(self.spec)

    @cached_property
    def operands(self):
        """All that is kept of A: the whole of it, and each layer's own map, of training and of evaluation."""
        plans = [self.plan, *(each for each in self.train_plans + self.evaluated_plans
                              if each is not None and each is not self.plan)]
        return [operand for plan in plans for operand in plan.held]

    def owned(self, width):
        """Columns that each rank owns of a matrix of some width, (P,)."""
        return owned_width(width, self.layout.columns, np.arange(self.rows.size))

    @cached_property
    def parts(self):
        """Bytes that each rank holds from the first epoch on: dict of (P,) int64 under PARTS.

        Matrix, with its transpose where A is not symmetric and the maps of layers that leave rows out;
        features, of training and of evaluation; vertices (labels, masks, numbers); activations that the
        backward needs, and work arrays; buffers of messages and partial results; plan (row numbers);
        parameters, with gradient and Adam's moments.
        """
        spec = self.spec
        levels = [rows for view in self.levels for rows, every in self._layer_levels(view) if not every]
        arrays = np.array([step.nbytes for step in self.rank_steps], np.int64)
        dropped = np.array([step.arrays.get("X", 0) for step in self.rank_steps], np.int64)
        return {
            "matrix": sum(operand.nbytes(spec.itemsize) for operand in self.operands),
            "features": self.feature_bytes + dropped,
            "vertices": self.rows * VERTEX + sum(levels, np.zeros_like(self.rows)) * LEVEL_ROW,
            "activations": arrays - dropped,
            "buffers": self.plan.buffer_bytes(self.widest, spec.itemsize),
            "plan": sum(operand.listed for operand in self.operands) * POINTER,
            "parameters": np.full(self.rows.size, COPIES * num_parameters(spec) * spec.itemsize)}

    def _layer_levels(self, view):
        """(rows, whether these are all) of the levels between layers."""
        bounds = layer_bounds(products_of(self.spec))
        return [(view.rows[place], view.every[place]) for place in bounds]

    def _narrows(self, view):
        """Whether each layer computes fewer rows than it reads, and the rows it computes: pairs of (P,)."""
        bounds = layer_bounds(products_of(self.spec))
        return [(view.narrows(first, last), view.rows[last]) for first, last in itertools.pairwise(bounds)]

    @cached_property
    def feature_bytes(self):
        """X of training and of evaluation, one array where both have all rows."""
        spec = self.spec
        itemsize = spec.itemsize
        layer = MODELS[spec.architecture]
        width = self.owned(spec.widths[0])
        views = list(self.levels)
        if all(view.every[0] for view in views):
            views.pop()
        if not spec.sparse_features:
            copies = 2 if spec.precomputed and layer.reads_self else 1
            return width * itemsize * sum(view.rows[0] for view in views) * copies
        # CSR and its transpose, which knows the place of each entry; parts that layers have cut out; values
        # dropped, and in the order of the transpose
        pattern = 2 * INDEX + POINTER
        held = sum(view.feature_entries[0] * (pattern + itemsize) + (view.rows[0] + width + 2) * POINTER
                   for view in views)
        held += np.array([step.part_bytes for step in self.rank_steps], np.int64)
        return held + 2 * self.train.feature_entries[0] * itemsize

    @property
    def total(self):
        """Sum of `parts`, (P,)."""
        return sum(self.parts.values())

    @cached_property
    def setup(self):
        """Bytes that each rank holds at most before the first epoch; (P,) int64.

        The larger of two moments: its rows as read and what is made of them; the maps of layers that leave
        rows out, being cut from the whole one.
        """
        spec = self.spec
        weight = WEIGHT * self.plan.pattern.weighted
        slab = self.rows * (VERTEX + SLAB_ROW) + self.entries * (INDEX + weight) + self._read_features()
        most = slab + self.plan.reading_bytes(spec.itemsize)
        if len(self.operands) > len(self.plan.held):
            kept = sum(self.parts[name] for name in PARTS if name not in ("activations", "parameters"))
            most = np.maximum(most, kept + self.plan.cutting_bytes(spec.itemsize))
        return most.astype(np.int64)

    def _read_features(self):
        """Features as they are read, and as they are held."""
        spec = self.spec
        if spec.sparse_features:
            return self.train.feature_entries[0] * 2 * (2 * INDEX + POINTER + spec.itemsize)
        read = self.rows * spec.widths[0] * 4
        held = self.owned(spec.widths[0]) * self.rows * spec.itemsize
        return read + held * (self.layout.columns > 1 or spec.itemsize == 8 or spec.precomputed)

    @property
    def peak(self):
        """The larger of `setup` and `total`, (P,) int64."""
        return np.maximum(self.setup, self.total)

    @cached_property
    def on_gpu(self):
        """Bytes of each rank on a GPU from the first epoch on; a dict of (P,) int64 under ON_GPU, and "total".

        As `parts`, but for masks, which stay on the host, and with two more: what kernels take besides
        (pieces that rows are cut in, where degrees are skewed; copies of operands whose rows are no multiple
        of 16 bytes), and "staging", pinned memory of the HOST that messages pass through, which is not in
        the sum. An upper bound: how skewed degrees are is not known before.
        """
        sizes = dict(self.parts)
        sizes["vertices"] = sum(vertex_bytes(self, view) for view in self.levels) + self.rows * NUMBER
        cuts = sum(_cut_bytes(operand) for operand in self.operands)
        sizes["kernels"] = cuts + work_bytes(self)
        sizes["staging"] = np.zeros_like(self.rows) if self.rows.size == 1 else sizes["buffers"]
        packed = self.plan.packed_bytes(self.widest, self.spec.itemsize)
        if packed is not None:  # aggregated on the host: rows on their way alone are on the GPU
            sizes |= {"matrix": 0 * packed, "plan": 0 * packed, "buffers": packed, "staging": packed,
                      "kernels": sizes["kernels"] - cuts}
        sizes["total"] = sum(size for name, size in sizes.items() if name != "staging")
        return sizes


def _cut_bytes(operand):
    """Of the rows of a matrix in pieces; and row pointers of blocks that come from others."""
    rows = operand.pointers + operand.copied_pointers
    entries = np.where(operand.copied_pointers > 0, operand.multiplied, operand.entries)
    return PIECE_BYTES * (rows + entries // PIECE) + operand.copied_pointers * POINTER


def placed_last(footprint):
    """Bytes of all that a rank puts on its GPU once the matrix is there; (P,) int64."""
    arrays = np.array([step.nbytes for step in footprint.rank_steps], np.int64)
    parameters = COPIES * num_parameters(footprint.spec) * footprint.spec.itemsize
    vertices = sum(vertex_bytes(footprint, view) for view in footprint.levels) + footprint.rows * NUMBER
    return arrays + parameters + footprint.feature_bytes + vertices + work_bytes(footprint)


def vertex_bytes(footprint, view):
    """Of a level that leaves rows out its numbers; labels, and places in masks; places of rows in the level below."""
    total = sum(rows * NUMBER for rows, every in footprint._layer_levels(view) if not every)
    total = total + view.rows[-1] * 2 * NUMBER
    for narrows, rows in footprint._narrows(view):
        total = total + narrows * rows * 2 * NUMBER
    return total


def work_bytes(footprint):
    """At once: the longest copy of an operand to rows of a multiple of LOAD bytes, or sums in float64."""
    spec = footprint.spec
    layer = MODELS[spec.architecture]
    most = np.zeros_like(footprint.rows)
    for view in footprint.levels:
        for number, ((rows, _), fans) in enumerate(zip(footprint._layer_levels(view), spec.layers)):
            for width in (*fans, layer.inner_width(spec.widths, number)):
                row_bytes = -(-footprint.owned(width) * spec.itemsize // LOAD) * LOAD
                most = np.maximum(most, rows * row_bytes)
    return most + 4 * NUMBER * footprint.train.rows[-1] + 2 * CHUNKS * max(spec.widths[1:]) * NUMBER

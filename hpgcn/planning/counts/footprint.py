"""Count the bytes of memory of each rank in a training run, by purpose.

Memory of the host and of a GPU are counted. Only arrays count. For what the
interpreter, its libraries and MPI take in addition see
`hpgcn.runtime.machine.process_bytes`. All numbers are (P,) int64.
"""
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hpgcn.model import (
    ModelSpec,
    heads_of,
    inner_widths,
    num_parameters,
    products_of,
    reads_X,
)
from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.receptive_field import layer_bounds
from hpgcn.parallel.shared_rows import PACKED
from hpgcn.planning.counts.link_sizes import LinkSizes
from hpgcn.planning.counts.locality import Locality
from hpgcn.planning.counts.shaped_step import LevelSizes, Steps, learned_width, owned_width
from hpgcn.planning.counts.traffic import add_links, predict_step
from hpgcn.strategies import Plan
from hpgcn.strategies.plan import INDEX, POINTER, WEIGHT

ENTRY_NUMBER = 8  # bytes of the number by which features of an edge are found
INDUCED_ROW = 5 * 8  # bytes of a row of the graph of training: number, entries, three degrees
ADDED_ENTRY = 2 * 8 + 4  # bytes of an edge that evaluation adds: row, column, weight
READ_EDGE = 32  # more of an entry while its features are read: numbers, sorted and distinct
VERTEX = 8 + 8 + 3 + 2 * 8  # bytes of a row: original number, label, three masks, two positions
# bytes of a row of a level: number, original number, label, place in the level below
LEVEL_ROW = 4 * 8
SLAB_ROW = 3 * 8 + 8  # more while it is read: three degrees, a row pointer
# copies of the parameters: they, gradient, Adam's two moments, the best, the best on
# their way
COPIES = 6
PARTS = ("matrix", "features", "vertices", "activations", "buffers", "plan", "parameters",
         "reductions")
LINKS = "links"  # one more part, if the model predicts links
ON_GPU = (*PARTS, "kernels", "staging")
UNMADE = "activations", "parameters"  # parts that are made after the set-up
READ = 4  # bytes of a number of dense features as they are read
NUMBER = 8  # bytes of a row number, a label, a float64
PIECE_BYTES, PIECE = 40, 512  # bytes of a piece of a row that a product is cut in, nonzeros of one
CHUNKS = 1024  # partial sums of a sum over rows, as hpgcn.kernels.cuda takes them
UNPACKED = 1 << 26  # bytes of bf16 rows and their product that are unpacked to float32 at a time
LOAD = 16  # bytes that a thread loads at a time: other rows are copied to longer ones


@dataclass(frozen=True, eq=False)
class DenseFootprint:
    """Memory of ranks for the model and its rows.

    RankFootprint adds the matrix A and messages.
    """

    spec: ModelSpec
    layout: BlockLayout  # layout of all rows
    train: LevelSizes  # levels of a training step
    evaluated: LevelSizes  # levels of an evaluation
    steps: Steps

    attention_homes = ()  # `Strategy.attention_home` of each product with A

    @property
    def levels(self):
        return self.train, self.evaluated

    @cached_property
    def rows(self):
        """Number of rows that each rank owns, (P,)."""
        return np.repeat(np.diff(self.layout.offsets), self.layout.columns)

    @cached_property
    def rank_steps(self):
        """The RankStep of each rank, a list of P."""
        columns = self.layout.columns
        return [self.steps.of(self.spec, self.levels, rank, columns, self.attention_homes)
                for rank in range(self.rows.size)]

    def _of_steps(self, value):
        return np.array([value(step) for step in self.rank_steps], np.int64)

    def _owned(self, width):
        """Return how many of `width` matrix columns each rank owns."""
        return owned_width(width, self.layout.columns, np.arange(self.rows.size))

    @cached_property
    def _bounds(self):
        return layer_bounds(products_of(self.spec))

    def _pruned_rows(self, view):
        """Return the rows of each rank in all pruned levels between layers, summed."""
        return sum((view.rows[place] for place in self._bounds if not view.every[place]),
                   np.zeros_like(self.rows))

    @property
    def _parameter_bytes(self):
        return COPIES * sum(self.one_copy)

    @property
    def one_copy(self):
        """Bytes of the parameters that all ranks have, and of learned rows of each, (P,)."""
        learned = learned_width(self.spec, self.layout.columns, np.arange(self.rows.size))
        return (num_parameters(self.spec) * self.spec.itemsize,
                self.rows * learned * self.spec.itemsize)

    @cached_property
    def feature_bytes(self):
        """Bytes of X for training and for evaluation.

        They share one array if both read all rows.
        """
        spec = self.spec
        itemsize = spec.itemsize
        width = self._owned(spec.widths[0])
        views = list(self.levels)
        if all(view.every[0] for view in views):
            views.pop()
        if not spec.sparse_features:
            copies = 2 if spec.precomputed and reads_X(spec) else 1
            return width * spec.row_itemsize * sum(view.rows[0] for view in views) * copies
        # CSR and its transpose, with the position of each entry; parts that layers have
        # cut out; values dropped, and in the order of the transpose
        entry = 2 * INDEX + POINTER + itemsize
        held = sum(view.feature_entries[0] * entry + (view.rows[0] + width + 2) * POINTER
                   for view in views)
        held += self._of_steps(lambda step: step.part_bytes)
        return held + 2 * self.train.feature_entries[0] * itemsize

    @property
    def placed_last(self):
        """Bytes that a rank allocates on its GPU after the matrix."""
        return (self._of_steps(lambda step: step.nbytes) + self._parameter_bytes
                + self.feature_bytes + self._vertices_on_gpu + self._work_bytes)

    @property
    def _vertices_on_gpu(self):
        """Bytes of row numbers on a GPU.

        They are ORIGINAL numbers, and those of pruned levels. Labels, positions in
        masks, and positions of rows in the level below count as well.
        """
        total = self.rows
        for view in self.levels:
            total = total + self._pruned_rows(view) + 2 * view.rows[-1]
            for first, last in pairwise(self._bounds):
                total = total + 2 * view.narrows(first, last) * view.rows[last]
        return total * NUMBER

    @cached_property
    def _work_bytes(self):
        """Bytes of temporary arrays: the largest copy of operands, and float64 sums.

        An operand is copied to longer rows, and rows of bf16 to float32.
        """
        spec = self.spec
        most = np.zeros_like(self.rows)
        for view in self.levels:
            for number, (fans, inner) in enumerate(zip(spec.layers, inner_widths(spec))):
                rows = view.rows[self._bounds[number]]
                row_bytes = [self._owned(width) * spec.itemsize for width in (*fans, inner)]
                for size in row_bytes:
                    most = np.maximum(most, rows * (-(-size // LOAD) * LOAD))
                if spec.halved:
                    unpacked = np.minimum(rows * sum(row_bytes), UNPACKED)
                    most = np.maximum(most, unpacked + 2 * max(fans) * inner * spec.itemsize)
        return most + NUMBER * (4 * self.train.rows[-1] + 2 * CHUNKS * max(spec.widths[1:]))


@dataclass(frozen=True, eq=False)
class RankFootprint(DenseFootprint):
    """Memory and work of all ranks for a graph, with the matrix A and messages."""

    plan: Plan  # plan of all rows
    training: Plan  # that of the graph of training steps: `plan`, unless it has fewer rows
    train_plans: list  # plan of each product with A; None for one that was formed once
    evaluated_plans: list
    entries: np.ndarray  # (P,) stored entries of A in the rows of each rank, as read from the file
    locality: Locality | None = None  # reuse of the rows that products read; None: not computed
    strategy: str = ""  # its name
    links: LinkSizes | None = None  # links and pairs of each rank, if the model predicts links
    pulled: np.ndarray | None = None  # (P, P) rows that pairs of links pull; see `add_links`

    @property
    def node_aware(self):
        """Whether a row is sent to each node once."""
        return self.plan.rank_grid.nodes.aware

    @property
    def attention_homes(self):
        return tuple(plan.attention_home if plan else "" for plan in self.train_plans)

    @property
    def products(self):
        """Products with A and A^T in a training step, a list of Product."""
        return self.steps.products(self.spec, self.levels)

    @cached_property
    def prediction(self):
        traffics = [plan and plan.traffic for plan in self.train_plans]
        prediction = predict_step(self.spec, traffics, self.levels, self.layout, self.steps)
        if self.pulled is not None:
            add_links(prediction, self.spec, self.pulled, self.plan.rank_grid.nodes.numbers)
        return prediction

    @cached_property
    def widest(self):
        """Number of columns for which message buffers are allocated."""
        return self.steps.widest(self.spec, self.plan.traffic)

    @property
    def roots(self):
        """The plans of all rows of a graph, one of which may be that of training; a list."""
        return list(dict.fromkeys((self.plan, self.training)))

    @cached_property
    def operands(self):
        """All stored matrices, a list.

        They are A itself and the submatrices of pruned layers, for training and
        evaluation.
        """
        plans = [*self.roots, *filter(None, self.train_plans + self.evaluated_plans)]
        return list(dict.fromkeys(operand for plan in plans for operand in plan.stored_operands))

    @property
    def _vertex(self):
        """Bytes of the data of a vertex, with its targets."""
        return VERTEX + NUMBER * self.spec.widths[-1] * bool(self.spec.target_loss)

    @cached_property
    def parts(self):
        """Bytes of memory of each rank from the first epoch on, a dict under PARTS.

        The parts are:

        - matrix, with its transpose if A is not symmetric and the maps of layers that leave rows
          out;
        - features, of training and of evaluation, and those of edges;
        - vertices (labels, masks, numbers);
        - activations that the backward needs, and work arrays;
        - buffers of messages and partial results;
        - plan (row numbers);
        - parameters, with gradient and Adam's moments;
        - reductions, which MPI copies;
        - links, only of a model that predicts them: pairs, rows of other ranks, a block of scores.
        """
        itemsize = self.spec.row_itemsize
        # dropout makes another X: it is counted with the features
        dropped = self._of_steps(lambda step: step.arrays.get("X", 0))
        return {
            "matrix": sum(operand.nbytes(itemsize) for operand in self.operands),
            "features": self.feature_bytes + dropped + self.edge_bytes,
            "vertices": (self.rows * self._vertex
                         + sum(map(self._pruned_rows, self.levels)) * LEVEL_ROW),
            "activations": self._of_steps(lambda step: step.nbytes) - dropped,
            "buffers": (sum(plan.buffer_bytes(self.widest, itemsize) for plan in self.roots)
                        + self._persistent_bytes + self._early_bytes),
            "plan": sum(operand.index_entries for operand in self.operands) * POINTER,
            "parameters": self._parameter_bytes,
            "reductions": self.plan.reduced_bytes(self.widest, itemsize),
            **({} if self.links is None else {LINKS: self.links.nbytes(self.spec)})}

    @cached_property
    def edge_bytes(self):
        """Bytes of the edge features that each rank stores, (P,)."""
        # each strategy has a matrix and its transpose, and the features of an entry once
        entries = sum(operand.entries for plan in self.roots for operand in plan.stored_operands)
        return entries // 2 * self.spec.edge_width * self.spec.itemsize

    @property
    def _persistent_bytes(self):
        """Return the bytes that products store between steps.

        They include rows that evaluation fetches once.
        """
        total = self._of_steps(lambda step: step.host_columns)
        for product in self.steps.products(self.spec, self.levels):
            plans = [self.train_plans[product.layer]]
            if product.kept:
                plans.append(self.evaluated_plans[product.layer])
            for plan in dict.fromkeys(plans):
                total = total + plan.persistent_bytes(product, self.spec.row_itemsize)
        if any(heads_of(self.spec)):
            for plan in dict.fromkeys(filter(None, self.train_plans + self.evaluated_plans)):
                total = total + plan.attention_bytes
        return total

    @cached_property
    def _begins_early(self):
        """Number of a product that begins before the last one is complete, or None."""
        for first, second in self.rank_steps[0].borders:
            if self.train_plans[first].begins_early(self.train_plans[second]):
                return second
        return None

    @property
    def message_buffers(self):
        """Bytes of `parts` for messages, which ranks with a Spool do not need, (P,)."""
        sizes = self.widest, self.spec.row_itemsize
        return (self._early_bytes + self._of_steps(lambda step: step.arrays.get(PACKED, 0))
                + sum(plan.buffer_bytes(*sizes) - plan.sums_held(*sizes) for plan in self.roots))

    @property
    def spooled_total(self):
        """Bytes of `parts` of ranks with a Spool, (P,)."""
        return self.total - self.message_buffers

    @property
    def _early_bytes(self):
        """Bytes of the second buffers for a product that begins early, (P,)."""
        if self._begins_early is None:
            return np.zeros_like(self.rows)
        plan = self.training.plan_for_product(self._begins_early)
        return plan.early_bytes(self.widest, self.spec.row_itemsize)

    @property
    def total(self):
        """Total bytes of `parts` for each rank."""
        return sum(self.parts.values())

    @cached_property
    def setup(self):
        """Peak bytes of memory of each rank before the first epoch.

        It is the larger of two moments. At the first, a rank stores its rows as read
        and the results of reading. At the second, the submatrices of pruned layers are
        cut from the whole matrix.
        """
        itemsize = self.spec.row_itemsize
        entry = INDEX + WEIGHT * self.plan.pattern.weighted
        slab = self.rows * (self._vertex + SLAB_ROW) + self.entries * entry + self._read_features()
        read = max(itemsize, ENTRY_NUMBER * bool(self.spec.edge_width))
        most = slab + self.plan.read_peak_bytes(read)
        if self.training is not self.plan:  # its matrix is made beside the other
            most = np.maximum(most, slab + sum(self.plan.kept_bytes(itemsize))
                              + self.training.pattern.num_rows * INDUCED_ROW
                              + self._added_entries * ADDED_ENTRY
                              + self.entries * entry + self.training.read_peak_bytes(read))
        if self.spec.edge_width:  # edge features, as they are read by numbers of entries
            kept = sum(self.plan.kept_bytes(ENTRY_NUMBER)) + READ_EDGE * self.operands[0].entries
            most = np.maximum(most, slab + kept + self.edge_bytes * READ // self.spec.itemsize
                              + self.edge_bytes * (self.spec.itemsize != READ))
        if len(self.operands) > sum(len(plan.stored_operands) for plan in self.roots):
            kept = sum(self.parts[name] for name in PARTS if name not in UNMADE)
            most = np.maximum(most, kept + np.max(
                [plan.restrict_bytes(itemsize) for plan in self.roots], axis=0))
        if self.links is not None:  # links are read beside the matrix and the features
            kept = sum(self.parts[name] for name in PARTS if name not in UNMADE)
            most = np.maximum(most, kept + self.links.stored_bytes(self.spec)
                              + self.links.set_up_bytes)
        return most.astype(np.int64)

    @property
    def _added_entries(self):
        """Entries that evaluation adds to the graph of training: each rank reads them all."""
        whole, training = self.plan.pattern, self.training.pattern
        return (whole.num_rows == training.num_rows) * int(whole.indptr[-1] - training.indptr[-1])

    def _read_features(self):
        """Return the bytes of the features as read plus those of their stored copy."""
        spec = self.spec
        if spec.sparse_features:
            entry = 2 * INDEX + POINTER + spec.itemsize
            return self.train.feature_entries[0] * 2 * entry
        read = self.rows * spec.num_features * READ
        held = self._owned(spec.widths[0]) * self.rows * spec.row_itemsize
        copied = self.layout.columns > 1 or spec.row_itemsize != READ or spec.precomputed
        return read + held * copied

    @property
    def peak(self):
        """Maximum of `setup` and `total`, in bytes."""
        return np.maximum(self.setup, self.total)

    @cached_property
    def on_gpu(self):
        """Bytes of each rank on its GPU from the first epoch on.

        They are a dict under ON_GPU and "total". They are the `parts` without masks,
        which stay on the host, and two more. One is the memory of kernels: pieces of
        rows if degrees are skewed, and copies of operands whose rows are not multiples
        of 16 bytes. The other is "staging", pinned memory of the HOST for messages,
        which the total excludes. It is an upper bound, because the skew of degrees is
        not known in advance.
        """
        sizes = dict(self.parts)
        cuts = sum(_cut_bytes(operand) for operand in self.operands)
        sizes["vertices"] = self._vertices_on_gpu
        sizes["reductions"] = np.zeros_like(self.rows)  # on the host
        sizes["kernels"] = cuts + self._work_bytes
        sizes["staging"] = np.zeros_like(self.rows) if self.rows.size == 1 else sizes["buffers"]
        packed = self.plan.packed_bytes(self.widest, self.spec.row_itemsize)
        if packed is not None and self.training is not self.plan:
            packed = packed + self.training.packed_bytes(self.widest, self.spec.row_itemsize)
        if packed is not None:  # aggregated on the host: only rows under way are on the GPU
            packed = packed * (1 if self._begins_early is None else 2)
            nothing = 0 * packed
            sizes |= {"matrix": nothing, "plan": nothing, "buffers": packed, "staging": packed,
                      "kernels": self._work_bytes}
        sizes["total"] = sum(size for name, size in sizes.items() if name != "staging")
        return sizes


def _cut_bytes(operand):
    """Return the bytes of row pieces, and of pointers of received blocks."""
    copied = operand.copied_pointers
    entries = np.where(copied > 0, operand.entries_read, operand.entries)
    pieces = operand.pointers + copied + entries // PIECE
    return PIECE_BYTES * pieces + copied * POINTER

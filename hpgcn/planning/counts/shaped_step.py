"""Run a training step on arrays without contents.

Products, memory and messages of the step are recorded.
"""
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from hpgcn.comm import SerialComm
from hpgcn.comm.pending import Pending
from hpgcn.graphs.validation import SPLIT
from hpgcn.kernels.bits16 import BF16
from hpgcn.model import (
    Features,
    MaskedRows,
    Model,
    Parameters,
    TargetScale,
    heads_of,
    inner_widths,
    make_loss,
    products_of,
    reads_X,
)
from hpgcn.model.embedding import own_columns
from hpgcn.parallel.layout import BlockLayout, split
from hpgcn.parallel.receptive_field import Hop, ReceptiveField, layer_bounds
from hpgcn.parallel.shared_rows import PACKED, SharedRows
from hpgcn.parallel.workspace import Workspace
from hpgcn.planning.counts.shaped_columns import ShapeColumns
from hpgcn.planning.counts.shapes import ShapeCsr, Shapes, Work
from hpgcn.planning.counts.touches import pass_turns
from hpgcn.runtime.clock import Clock
from hpgcn.strategies import Product, Traffic
from hpgcn.strategies.attention import Attention
from hpgcn.strategies.rows import SUMS

PHASES = ("forward", "backward")


@dataclass(frozen=True, eq=False)
class LevelSizes:
    """Number of rows of each rank at each level of a receptive field.

    There is a level before and after each product with A. `feature_entries`, (2, P)
    int64, are stored entries of sparse features: in the rows of the first level, and in
    those that the first layer computes. They are 0 for dense features.
    """

    rows: list  # arrays of (P,) int64
    every: list  # bool each: the level is all rows
    totals: list  # int each: rows over all ranks, each counted once
    feature_entries: np.ndarray

    @staticmethod
    def of(levels, layout, feature_pointers=None, products=1):
        """Count the rows of each level that each rank owns.

        Levels are (n,) bool, or None for all rows. `feature_pointers`, (n + 1,), are
        row pointers of sparse features, whose columns are assumed to have equally many
        entries. The first layer has `products` products with A.
        """
        layouts = [layout if level is None else layout.restricted(level) for level in levels]
        rows = [np.repeat(np.diff(each.offsets), layout.columns) for each in layouts]
        entries = np.zeros((2, layout.size), np.int64)
        if feature_pointers is not None:
            for place, level in enumerate((levels[0], levels[products])):
                counts = np.diff(feature_pointers) * (True if level is None else level)
                before = np.concatenate([[0], np.cumsum(counts)])[layout.offsets]
                entries[place] = -(-np.repeat(np.diff(before), layout.columns) // layout.columns)
        return LevelSizes(rows, [level is None for level in levels],
                          [int(each.offsets[-1]) for each in layouts], entries)

    def of_rank(self, rank):
        """Return the numbers of rows by level, and of feature entries, of one rank.

        Both are tuples of int.
        """
        entries = self.feature_entries[:, rank]
        return tuple(int(rows[rank]) for rows in self.rows), tuple(entries.tolist())

    def narrows(self, first, last):
        """Return for each rank whether a layer computes fewer rows than it reads.

        The result is (P,) bool. The layer lies between two levels.
        """
        if self.every[last]:
            return np.zeros(self.rows[0].shape, bool)
        if self.every[first]:
            return np.ones(self.rows[0].shape, bool)
        return self.rows[first] != self.rows[last]


@dataclass(frozen=True, eq=False)
class RankStep:
    """Work, memory and messages of one rank in a training step.

    Work and messages of products with A are left out.
    """

    products: list  # with A and A^T, of the columns of this rank, in order
    arrays: dict  # bytes of its work arrays by name
    reserved: dict  # size and dtype of those that ranks do not share, by name
    dense: dict  # (bytes, messages) by phase, to ranks that share its rows, sums over them aside
    reductions: dict  # by phase the bytes of each sum over the ranks that share its rows, a list
    column_reductions: dict  # over those that share its columns
    work: Work  # work of the training step
    host_columns: int  # bytes of work arrays of attention that are on the host, beside a GPU
    part_bytes: int  # bytes of rows of sparse features that layers have cut out and keep
    touches: tuple  # Touches of the training step, and of the evaluation
    names: dict  # names by id of the arrays that stay, or None: see `pass_turns`
    borders: list  # numbers of two products each, of which the second may begin early
    _turns: dict = field(default_factory=dict)

    @property
    def nbytes(self):
        """Bytes of the work arrays."""
        return sum(self.arrays.values())

    def turns(self, strategy, *, finds_all):
        """Return the PassTurns of the training step and of the evaluation.

        `strategy` is a subclass of hpgcn.strategies.strategy.Strategy, whose messages pass
        through a Spool. For `finds_all` see `Touches.segments`.
        """
        key = strategy, finds_all
        if key not in self._turns:
            found = pass_turns(self.touches, self.names, strategy.waits, finds_all=finds_all,
                               sends_own_rows=strategy.sends_own_rows)
            # products with W are formed in messages
            self._turns[key] = [each.without(PACKED) for each in found]
        return self._turns[key]


class ShapeWorkspace(Workspace):
    """A Workspace whose arrays grow in place, because a run makes them at their full size."""

    def flat(self, name, size, dtype=None):
        flat = super().flat(name, 0, dtype).base
        flat.shape = (max(size, flat.size),)
        return flat[:size]


class ShapeMap:
    """A substitute for the map that multiplies by A.

    It records the products and computes nothing. `columns` are the arguments of ShapeColumns
    if it attends by columns.
    """

    returns_batches = False  # work and arrays are the same with and without batches

    def __init__(self, hop, products, device, float32_sums, columns=None):
        self.hop = hop
        self.products = products
        self.device = device
        self.float32_sums = float32_sums
        self.columns = columns

    def note(self, product, rows, out, read_on=(), between=lambda: None):
        """Record a Product, the amount of other work before it, and its arrays.

        `between` as in `Touches.product`.
        """
        work = self.device.kernels.work
        work.marks.append((len(work.dense), work.moved))
        sums = out
        if getattr(out, "dtype", None) == BF16:  # added up in float32, and rounded at the end
            sums = self.float32_sums.buffer(SUMS, *out.shape)
        work.touches.product(product, rows, sums, read_on, between)
        if sums is not out:
            work.touches.call((sums,), out)
        self.products.append(product)

    def forward(self, H, *, mask=None, out=None):
        self.note(Product(self.hop, H.shape[1], mask is not None), (H,), out, (mask,))
        return out

    def backward(self, G, *, mask=None, out=None):
        product = Product(self.hop, G.shape[1], mask is not None, backward=True)
        self.note(product, (G,), out, (mask,))
        return out

    def attention(self, heads):
        return ShapeColumns(self, heads, *self.columns) if self.columns else (
            ShapeAttention(self, heads))

    def messages(self, dtype):
        return ShapeMessages(self)


class ShapeAttention(Attention):
    """A substitute for the attention on a rank.

    It records the products and computes nothing.
    """

    def __init__(self, owner, heads):
        super().__init__(heads.vertex_in.device, Clock(), heads)
        self.owner = owner

    def attend(self, rows, l, state, drawn, spread, W):  # noqa: E741
        width, kept = rows[0].shape[1], 0 if W is None else W.shape[0]
        product = Product(self.owner.hop, width, heads=self.heads.count, kept=kept)
        read_on = (l,) if W is None else (l, W)
        self.owner.note(product, rows, tuple(state), read_on)

    def return_(self, pulled, rows, gradients, drawn):
        product = Product(self.owner.hop, rows[0].shape[1], heads=self.heads.count, backward=True)
        self.owner.note(product, (pulled,), tuple(gradients), rows)


class ShapeMessages:
    """A substitute for the messages on a rank.

    It records the products and computes nothing.
    """

    def __init__(self, owner):
        self.owner = owner

    def forward(self, H, W, b, out, *, keep=False):
        """Record the product; return `out`, and the backward, which does the same."""
        made = partial(Product, self.owner.hop, H.shape[1], edge_width=W.shape[0])

        def backward(G, out):
            self.owner.note(made(backward=True), (G,), out, (W, b, *(H,) * keep))
            empty = self.owner.device.empty
            return out, *(empty(each.shape, np.float64) for each in (W, b))

        self.owner.note(made(), (H,), out, (W, b))
        return out, backward


class ShapeComm(SerialComm):
    """A communicator that counts the messages of one rank without sending them.

    See hpgcn.comm.MpiComm.
    """

    def __init__(self, device, rank=0, size=1, counters=None):
        super().__init__()
        self.device = device
        self.rank = rank
        self.size = size
        self.ranks = tuple(range(size))
        self.counters = counters or self.counters
        self.reductions = {}

    def group(self, ranks):
        """Return the communicator of a subset of these ranks."""
        group = ShapeComm(self.device, ranks.index(self.rank), len(ranks), self.counters)
        group.reductions = self.reductions
        return group

    def start_allreduce(self, array, kind, op="sum"):
        """Record the bytes of an allreduce under the current phase, and return at once."""
        if kind is not None and self.size > 1:
            self.reductions.setdefault(self.counters.phase, []).append(array.nbytes)
        return Pending(self)

    def allreduce(self, array, kind, op="sum"):
        """Record that the rank waits for a sum."""
        super().allreduce(array, kind, op)
        if self.size > 1:
            self._touches.sum()

    def start_allgather(self, own, out, counts, kind):
        pending = super().start_allgather(own, out, counts, kind)
        sizes = np.array(counts) * own.dtype.itemsize
        return self._noted(pending, own, out, sizes, once=True)

    def start_reduce_scatter(self, packed, out, counts, kind, work=None):
        pending = super().start_reduce_scatter(packed, out, counts, kind, work)
        sizes = np.full(self.size, out.nbytes)
        return self._noted(pending, packed, out, sizes, once=False)

    @property
    def _touches(self):
        return self.device.kernels.work.touches

    def _noted(self, pending, read, out, sizes, *, once):
        """Record that a call reads an array, and that a wait for it ends in `out`.

        For `sizes` and `once` see `Touches.messages`.
        """
        self._touches.call((read,))
        self._touches.messages(sizes, once=once)

        def finish():
            self._touches.sum()
            self._touches.call((), out)

        pending.finish = finish
        return pending

    def _own(self, *call, **named):
        return Pending(self)

    def _exchange(self, outgoing, incoming, kind, finish=None, lane=0):
        self._count_blocks(kind, outgoing)
        return Pending(self)


def run_rank(spec, levels, rank, columns, attention_homes=()):
    """Run a training step and an evaluation of one rank; return a RankStep.

    Arrays have no contents. `levels` are the LevelSizes of the step and of the
    evaluation. `columns` (C) ranks share the rows of this rank, which owns column block
    rank mod C. `attention_homes` has `Strategy.attention_home` of each product with A; "" by
    default.
    """
    # a device whose arrays have shapes but no contents
    device = Shapes()
    column = rank % columns
    comm = ShapeComm(device, column, columns)
    layout = BlockLayout(np.array([0, 1]), columns, column)  # one row block: its ranks share rows
    shared = SharedRows(layout, comm, spec.dtype)
    shared.workspace = ShapeWorkspace(spec.dtype, device)
    blocks = levels[0].rows[0].size // columns
    shared.column = ShapeComm(device, 0, min(blocks, 2), comm.counters)  # it records its sums

    workspace = ShapeWorkspace(spec.row_dtype, device)
    own = own_columns(spec, shared.of(spec.widths[0]))
    most = max(view.of_rank(rank)[0][0] for view in levels)
    parameters = Parameters.zeros(spec, device, (most, own.stop - own.start))
    products = []
    float32_sums = ShapeWorkspace(np.float32, device)
    on_host = ShapeWorkspace(spec.row_dtype, device)

    def columns_of(hop, view):
        """Return arguments of ShapeColumns if a product attends by columns."""
        home = attention_homes[hop] if hop < len(attention_homes) else ""
        sizes = rank, view.rows[hop].size, view.totals[hop:hop + 2]
        return (*sizes, on_host if home == "host" else None) if home else None

    def model(view):
        (rows, *_), entries = view.of_rank(rank)
        field = shape_field(spec, view, rank, device, partial(
            ShapeMap, products=products, device=device, float32_sums=float32_sums), columns_of)
        vertex = device.empty(rows, np.int64)
        model = Model(spec, parameters, field, shared, workspace, vertex)
        return model, features_of(spec, rows, entries, shared, device)

    # a training step
    training, X = model(levels[0])
    counters = comm.counters
    counters.phase = "forward"
    logits, backward = training.forward(X, 1)
    masked = MaskedRows(dict.fromkeys(SPLIT, device.empty(0, np.int64)), dict.fromkeys(SPLIT, 1))
    kind, targets = np.float32, ()
    if spec.target_loss:
        kind, targets = np.float64, (TargetScale.unit(spec.widths[-1]),)
    labels = device.empty((logits.shape[0], spec.widths[-1]), kind)
    loss = make_loss(spec, labels, masked, shared, *targets)
    _, G = loss.gradient(logits, workspace.buffer("ping", *logits.shape))
    counters.phase = "backward"
    backward(G)
    step = list(products)
    work = device.kernels.work
    work.touches.finish()
    dense = {phase: counters.total(phase) for phase in PHASES}

    # an evaluation
    counters.phase = "evaluation"
    device.kernels.work = Work()
    evaluation, evaluated = model(levels[1])
    device.kernels.work.touches.finish(evaluation.infer(evaluated)[0])

    # the work arrays of both
    arrays = {name: array.nbytes for space in (workspace, shared.workspace)
              for name, array in space.arrays.items()}
    reserved = {name: (array.size, array.dtype) for name, array in workspace.arrays.items()}
    names = {id(labels): None}
    names |= {id(array): name for space in (workspace, shared.workspace, float32_sums)
              for name, array in space.arrays.items()}
    names |= {id(array): name for each in (training, evaluation)
              for name, array in each.constant_arrays().items()}
    names |= {id(array): (which, place) for which, read in enumerate((X, evaluated))
              for place, array in enumerate(read.dense_arrays())}
    touches = work.touches, device.kernels.work.touches
    borders = [(one.hop, other.hop) for one, other in training.borders]
    return RankStep(step, arrays, reserved, dense, comm.reductions, shared.column.reductions, work,
                    sum(array.nbytes for array in on_host.arrays.values()), device.part_bytes,
                    touches, names, borders)


def shape_field(spec, view, rank, device, make_map, columns_of=lambda hop, view: None):
    """Return the ReceptiveField of one rank without contents.

    `make_map(hop, columns=...)` returns a ShapeMap, with what `columns_of(hop, view)` returns.
    """
    bounds = layer_bounds(products_of(spec))
    rows = [int(each[rank]) for each in view.rows]
    numbers = [None if every else device.empty(size, np.int64)
               for every, size in zip(view.every, rows)]
    hops = []
    for first, last in pairwise(bounds):
        maps = [None if spec.precomputed and hop == 0
                else make_map(hop, columns=columns_of(hop, view)) for hop in range(first, last)]
        own = device.empty(rows[last], np.int64) if view.narrows(first, last)[rank] else None
        hops.append(Hop(maps, rows[first:last + 1], own, view.totals[last] < view.totals[first]))
    levels = ([each[place] for place in bounds] for each in (numbers, view.totals, rows))
    return ReceptiveField(None, *levels, hops)


def features_of(spec, rows, entries, columns, device):
    """Return Features that have shapes but no contents."""
    width = columns.width(spec.widths[0])
    if spec.sparse_features:
        return Features(ShapeCsr(device, rows, width, entries[0], spec.dtype, entries[1]))
    X = device.empty((rows, width), spec.row_dtype)
    if not spec.precomputed:
        return Features(X)
    return Features(X if reads_X(spec) else None, device.empty(X.shape, X.dtype))


def owned_width(width, columns, rank):
    """Return how many of `width` columns a rank owns.

    `rank` is an int or an array; `columns` ranks share a row.
    """
    quotient, remainder = divmod(width, columns)
    return quotient + (rank % columns < remainder)


def learned_width(spec, columns, rank):
    """Return how many columns of learned rows a rank owns; see `owned_width`."""
    bounds = np.maximum(split(spec.widths[0], columns), spec.num_features)
    return np.diff(bounds)[rank % columns]


class Steps:
    """A cache of RankSteps, because ranks of equal sizes do the same work."""

    def __init__(self):
        self._known = {}

    def of(self, spec, levels, rank, columns, attention_homes=()):
        """Return the RankStep of a rank; parameters as `run_rank`."""
        widths = sorted({*spec.widths, *inner_widths(spec)})
        own = tuple(owned_width(width, columns, rank) for width in widths)
        own += (learned_width(spec, columns, rank),)
        sizes = ((view.of_rank(rank), tuple(view.every), tuple(view.totals)) for view in levels)
        blocks = levels[0].rows[0].size // columns
        homes = attention_homes if any(heads_of(spec)) else ()
        key = (spec, columns, blocks > 1, own, homes, any(homes) and blocks, *sizes)
        if key not in self._known:
            self._known[key] = run_rank(spec, levels, rank, columns, homes)
        return self._known[key]

    def products(self, spec, levels):
        """Return the products with A and A^T in a training step, a list of Product.

        They have all columns.
        """
        return self.of(spec, levels, 0, 1).products

    def widest(self, spec, traffic=Traffic):
        """Return the largest number of columns in any message.

        It counts A X, which may be computed in advance. Pruning does not reduce it,
        because it is the size of message buffers.
        """
        hops = sum(products_of(spec)) + 1
        one = np.ones(1, np.int64)
        levels = LevelSizes([one] * hops, [True] * hops, [1] * hops, np.ones((2, 1), np.int64))
        products = self.products(replace(spec, precomputed=False), (levels, levels))
        return max(map(traffic.columns, products))

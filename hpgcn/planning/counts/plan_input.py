"""The input of planning: the pattern of a graph without values, and the rows that a model needs."""
import dataclasses
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from hpgcn import store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import DataError, setting
from hpgcn.graphs.added_edges import AddedEdges, adds_edges, check_added
from hpgcn.graphs.graph_source import GraphSource
from hpgcn.graphs.induced_graph import training_rows
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import rcm_within_parts
from hpgcn.model import (
    MODELS,
    make_spec,
    metric_of,
    norm_of,
    products_of,
    supports_pruning,
)
from hpgcn.parallel.csr import bool_matrix
from hpgcn.parallel.pattern import BlockPattern, Pattern, permuted
from hpgcn.parallel.pattern_counts import with_loops
from hpgcn.parallel.receptive_field import compressed, find_levels, layer_bounds
from hpgcn.partition import NONZERO_METHODS, make_partition
from hpgcn.partition.effort import column_sizes
from hpgcn.partition.rows.row_methods import QUICK, quick_parts
from hpgcn.planning.counts.link_sizes import PlannedLinks
from hpgcn.planning.counts.locality import Locality
from hpgcn.planning.counts.shaped_step import Steps
from hpgcn.runtime.disk import page_cache
from hpgcn.sampling import FULL
from hpgcn.sampling.negatives import check_link_settings
from hpgcn.store.csr_arrays import reorder_entries
from hpgcn.strategies import read_options

ASSUMED = {"features": 128, "classes": 40}  # widths for a graph without features or labels
LARGE = 1 << 22  # entries from which rows are ordered, and covers counted, only if it matters
REFINED = 50_000  # entries up to which nonzeros are refined: some seconds for each number of ranks


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """The rows of a graph in the order of a partition or of the file.

    Only properties of rows that planning reads are stored.
    """

    pattern: Pattern  # pattern of the multiplied matrix
    train: list  # (n,) bool each, or None for all rows, as in `find_levels`
    evaluated: list
    stored: np.ndarray  # (n,) int64, stored entries of A in each row
    feature_entries: np.ndarray | None  # (n,) int64, of sparse features
    vertex: np.ndarray  # (n,) int64, ORIGINAL number of each row
    labeled: np.ndarray | None  # (n,) bool, rows to train on; None without a split
    within: np.ndarray | None = None  # (n,) bool, rows of the graph of training; None for all
    evaluation: Pattern | None = None  # that of evaluation, if its graph has more edges

    def stored_before(self, offsets):
        """Return the stored entries before each of these rows."""
        return np.concatenate([[0], np.cumsum(self.stored)])[offsets]

    def with_holders(self, graph, edge_part):
        """Return these rows with the given owners of nonzeros, `edge_part` (nnz,) or None."""
        if edge_part is None:
            return self
        return dataclasses.replace(self, pattern=self.pattern.with_holders(graph, edge_part))

    def merged(self, size):
        """Return these rows with merged parts of entries.

        Groups of `size` consecutive parts become one part.
        """
        if self.pattern.holders is None:
            return self
        pattern, evaluation = (each and each.assign_holders(each.holders // size)
                               for each in (self.pattern, self.evaluation))
        return dataclasses.replace(self, pattern=pattern, evaluation=evaluation)

    def in_order(self):
        """Return these rows in their order, if they are only divided into blocks."""
        if not isinstance(self.pattern, BlockPattern):
            return self
        return self.permuted(self.pattern.run_order, self.pattern.ordered)

    def permuted(self, order, pattern=None):
        """Return these rows in another order: new row i is row order[i].

        `pattern` is the Pattern in that order, if it is known.
        """

        def move(array):
            return None if array is None else array[order]

        levels = [[move(level) if level is not self.within else level for level in view]
                  for view in (self.train, self.evaluated)]
        pattern = pattern or permuted(self.pattern, order)
        within = move(self.within)
        train, evaluated = ([within if level is self.within else level for level in view]
                            for view in levels)
        return OrderedRows(pattern, train, evaluated, move(self.stored),
                           move(self.feature_entries), self.vertex[order], move(self.labeled),
                           within, self.evaluation and permuted(self.evaluation, order))

    @property
    def of_training(self):
        """These rows, or those of the graph of training, numbered without gaps."""
        within = self.within
        if within is None:
            return self
        pattern = self.pattern
        matrix = pattern.matrix[within][:, within]
        entries = self.feature_entries
        return OrderedRows(
            Pattern(matrix, pattern.symmetric, pattern.weighted), compressed(self.train, within),
            [None] * len(self.evaluated), self.stored[within],
            None if entries is None else entries[within], self.vertex[within],
            self.labeled[within])


class ModelInput:
    """The sizes of a graph, and the model and settings of a plan.

    `widths` as in `make_spec`. `name` is the path of the file, or the name of the graph.
    `notes` say which widths were assumed. `prepared` has the method and effort of runs by
    number of ranks, if they are to be compared. `offsets` (k + 1,) are the parts of a
    partitioned graph, else None. `method` is how they were made; `part_counts` are k and
    the numbers that nested parts merge to. `edge_parts` is true if entries have parts of
    their own.
    """

    sized = False  # whether only sizes of the graph are known
    links = None  # the PlannedLinks, if the model predicts links
    offsets = method = None
    part_counts = ()
    edge_parts = False

    def __init__(self, name, header, config, widths):
        self.name, self.header, self.config = name, header, config
        check_link_settings(config)
        header, self.notes = (header, []) if widths else assume_widths(header, config)
        self.spec = make_spec(header, config, widths)
        metric_of(self.spec, config.metric)
        self.steps = Steps()
        self.prepared = {}

    @property
    def strategy_options(self):
        """Settings that strategies read."""
        return read_options(self.config)

    @property
    def is_large(self):
        """Whether rows are ordered, and covers counted, only if a result depends on it."""
        return self.header.num_edges >= LARGE

    @property
    def symmetric(self):
        """Whether the matrix that the model multiplies by is symmetric, values included."""
        return (not self.header.directed and norm_of(self.spec) != "row"
                and not MODELS[self.spec.architecture].uses_edge_features)

    def describe(self, path):
        """Return the object `graph` of a plan's JSON, a dict.

        `path` is the path of the graph file.
        """
        header = self.header
        return {"path": str(path), "name": header.name, "num_nodes": header.num_nodes,
                "num_edges": header.num_edges, "directed": header.directed,
                "multiplied_nonzeros": int(self.ordered.pattern.indptr[-1]),
                "parts": None if self.offsets is None else self.offsets.size - 1}

    @property
    def stored_parts(self):
        """Name in tables of the parts of a partitioned graph."""
        return self.method or "given"

    def totals(self, levels):
        """Return how many rows each layer reads, and the last one computes.

        The list has L + 1 numbers.
        """
        read = [levels[place] for place in layer_bounds(products_of(self.spec))]
        return [self.header.num_nodes if rows is None else int(np.count_nonzero(rows))
                for rows in read]


def title_of(graph):
    """Return the first words of a plan on a graph, the object `graph` of its JSON."""
    return (f"{graph['name']}: {graph['num_nodes']:,} vertices, "
            f"{graph['multiplied_nonzeros']:,} nonzeros with loops")


class PlanInput(ModelInput):
    """The pattern of a graph, and the rows that a model needs.

    `source` is a GraphSource of all rows, or the path of a file. Errors as
    `hpgcn.store.load` and `make_spec`; a DataError if there are no vertices. Inputs of
    one source share the partitions that they make in the dict `partitions`.
    """

    def __init__(self, source, config=None, widths=None, partitions=None):
        # read the graph once
        config = config or Config()
        opened = isinstance(source, GraphSource)
        with (page_cache.bypassed(config.memory),
              nullcontext(source) if opened else store.load(source) as found):
            masks, feature_pointers, edge_parts = self._read(found, config.split_index)
            links = {}
            if config.task == "links":
                links = {key: each.read() for key, each in (found.links or {}).items()}
            self.evaluated = None  # its graph, if it has more edges, and places and rows of these
            check_added(config, found)
            if adds_edges(config, found):
                added, n = AddedEdges(found, self.graph), found.header.num_nodes
                self.evaluated = added.slab(0, n), added.places(0, n)[1], added.rows
        if not found.header.num_nodes:
            raise DataError(f"{found.where}: no vertices")
        super().__init__(found.where, found.header, config, widths)

        # the matrix that the model multiplies by
        looped = with_loops(self.graph.indptr, self.graph.indices)
        self.pointers = looped[0]  # by which row blocks are balanced
        matrix = self._multiplied(self.graph, looped)

        # the rows that each layer computes, in training and in evaluation
        hops = sum(products_of(self.spec))
        if masks is None and config.training_graph != "all":
            raise DataError(f"{self.name}: {setting('training_graph', config.training_graph)} "
                            "needs a split; add one with `hpgcn convert --split`")
        within = training_rows(masks, config.training_graph)
        views = [[rows] * (hops + 1) for rows in (within, None)]
        if (config.prune and supports_pruning(self.spec) and masks is not None
                and not self.spec.decoder):
            views = [
                find_levels(self.graph, read, hops, SerialComm(), within=rows,
                            precomputed=self.spec.precomputed)
                for read, rows in (([masks["train"]], within), (list(masks.values()), None))]

        # everything that plans read
        entries = np.diff(feature_pointers) if self.spec.sparse_features else None
        whole = Pattern(matrix, self.symmetric, weighted=not self.header.all_ones)
        self.edge_parts = edge_parts is not None
        ordered = OrderedRows(whole, *views, np.diff(self.graph.indptr), entries,
                              self.graph.vertex, masks and masks["train"], within)
        if self.evaluated:
            graph = self.evaluated[0]
            whole = Pattern(self._multiplied(graph), self.symmetric,
                            weighted=not graph.header.all_ones)
            ordered = dataclasses.replace(ordered, evaluation=whole)
        part = None
        if edge_parts is not None:
            part = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        self.ordered = self._with_holders(ordered, edge_parts, part)

        # pairs of epochs and evaluations, if links are predicted
        if self.spec.decoder:
            self.links = PlannedLinks(links, self.graph, self.header, config, self.name)
            if config.batch == FULL:
                self.notes.append("bytes and messages are those of the last epoch's negatives; "
                                  "memory has room for the largest epoch")

        # results that are computed once and kept
        self.locality = Locality(matrix)
        self._partitions = {} if partitions is None else partitions
        self._last = None, None  # the parts that rows were divided into last, and these rows

    def _read(self, source, split):
        """Read the pattern and the parts.

        Return the masks of a split, feature row pointers, and the parts of entries.
        """
        source.header.check_split(split, source.where)
        self.offsets = source.offsets
        partition = source.vertex_partition
        self.method = partition and partition.method
        self.part_counts = (partition.k, *partition.merges) if partition else ()
        edge_parts = source.edge_part(0, source.header.num_nodes)
        self.graph = source.pattern()
        self.sizes = column_sizes(source)
        feature_pointers = source.feature_pointers()
        return source.split_masks(split), feature_pointers, edge_parts

    def _multiplied(self, graph, looped=None):
        """Return the pattern of the matrix of a graph, with loops if the model adds them."""
        if not MODELS[self.spec.architecture].self_loops:
            return bool_matrix(graph.indptr, graph.indices)
        return bool_matrix(*(looped or with_loops(graph.indptr, graph.indices)))

    def _with_holders(self, ordered, edge_part, part):
        """Return OrderedRows with the parts of entries, `edge_part`, (nnz,) or None.

        Edges that evaluation adds have those of their rows, `part` (n,).
        """
        if ordered.evaluation is None or edge_part is None:
            return ordered.with_holders(self.graph, edge_part)
        graph, places, rows = self.evaluated
        evaluation = ordered.evaluation.with_holders(
            graph, np.insert(edge_part, places, part[rows]))
        return dataclasses.replace(ordered.with_holders(self.graph, edge_part),
                                   evaluation=evaluation)

    def row_offsets(self, strategy, shape):
        """Return the offsets of the blocks into which a strategy cuts the stored order."""
        return strategy.row_offsets(shape, self.pointers)

    def partition(self, method, k):
        """Return the hpgcn.partition.Partition of the rows by a method.

        All strategies share it. It is computed from the graph in its ORIGINAL order, as
        in runs.
        """
        if (method, k) not in self._partitions:
            quick = method not in NONZERO_METHODS or self.header.num_edges <= REFINED
            original = self.graph if self.offsets is not None else self.graph.in_original_order()
            run = self.prepared.get(k)
            work = {"effort": run.effort} if run and run.method == method else {"refine": quick}
            partition = make_partition(original, k, method=method, **work)
            if original is not self.graph:
                partition = _of_rows(partition, original, self.graph.vertex)
            self._partitions[method, k] = partition
        return self._partitions[method, k]

    def divided(self, method, k):
        """Return the OrderedRows in the parts of a method, and the offsets.

        Offsets of the parts are (k + 1,). Parts of a large graph that need no engine
        have a BlockPattern. The last result is stored for the next call.
        """
        if self._last[0] != (method, k):
            self._last = None, None  # free the rows before others are made
            compute = self._divide
            if self.is_large and method in QUICK:
                compute = self._divide_quickly
            self._last = (method, k), compute(method, k)
        return self._last[1]

    def _divide(self, method, k):
        partition = self.partition(method, k)
        ordered = self._with_holders(self.ordered, partition.edge_part, partition.part)
        return ordered.permuted(partition.perm), partition.offsets

    def _divide_quickly(self, method, k):
        # parts are those of the graph in its ORIGINAL order
        weights = np.diff(self.pointers)
        if self.offsets is None:
            vertex = self.graph.vertex
            weights[vertex] = weights.copy()
            part = quick_parts(method, weights, k)[vertex]
        else:
            part = quick_parts(method, weights, k)

        # the rows part by part; entries stay where they are
        part = part.astype(np.int16)
        order = np.argsort(part, kind="stable")  # a radix sort
        offsets = run_offsets(np.bincount(part, minlength=k))
        pattern = BlockPattern(self.ordered.pattern, part, order, offsets,
                               lambda: self._order_within(part, k))
        return self.ordered.permuted(order, pattern), offsets

    def _order_within(self, part, k):
        """Return the rows of each part (n,) in the order of runs, part after part."""
        return rcm_within_parts(self.graph, part, k, original_ties=self.offsets is None)


def assume_widths(header, config):
    """Return the Header with ASSUMED widths where they lack, and notes.

    Widths are the numbers of features and classes. Learned rows of a Config stand for
    features, and its links for classes.
    """
    known = {"features": header.num_features + config.embedding,
             "classes": header.num_outputs or config.task == "links"}
    missing = {what: width for what, width in ASSUMED.items() if not known[what]}
    notes = [f"no {'labels' if what == 'classes' else what} in the graph: {width} {what} assumed; "
             "`hpgcn plan --widths` takes other widths" for what, width in missing.items()]
    widths = {f"num_{what}": width for what, width in missing.items()}
    return dataclasses.replace(header, **widths), notes


def _of_rows(partition, original, vertex):
    """Convert a partition of ORIGINAL vertices to one of the file's rows.

    `vertex`, (n,), has the ORIGINAL number of each row of the file.
    """
    row = np.empty_like(vertex)
    row[vertex] = np.arange(vertex.size)
    edge_part = partition.edge_part
    if edge_part is not None:
        edge_part = reorder_entries(edge_part, original.indptr, original.indices, row)
    return dataclasses.replace(partition, part=partition.part[vertex], perm=row[partition.perm],
                               iperm=partition.iperm[vertex], edge_part=edge_part)

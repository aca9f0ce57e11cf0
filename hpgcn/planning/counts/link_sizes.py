"""Count the links, pairs and rows of each rank in a run that predicts links, and their memory.

A plan counts them for any division of rows, and a run for its own; both count alike.
"""
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpgcn.graphs.links import check_training
from hpgcn.graphs.validation import index_dtype
from hpgcn.model.links.all_targets import SHARE, TARGETS
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.links.link_loss import BLOCK
from hpgcn.parallel.pulled_rows import largest_table, pulled_table
from hpgcn.parallel.transfers import StagedPlan
from hpgcn.sampling.negatives import (
    DRAWN,
    DrawnLinks,
    KnownLinks,
    UniformTargets,
    parse_evaluation,
    parse_negatives,
    turned,
)

SCORED = 1 << 20  # pairs of an evaluation whose rows a rank pulls at a time
NUMBER = 8  # bytes of an int64 or float64
DRAWN_BYTES = 96  # bytes of a pair while it is drawn
PAIR_BYTES = 64  # more of a pair while it is scored: float64 losses and slopes
METRIC_BYTES = 128  # bytes of an evaluated pair in a metric: sorted scores, counts, messages
READ_BYTES = 48, 72  # bytes of a link while a single rank reads it, and one of several
RANKED_BYTES = 32  # more of a score among all vertices: comparisons, places of near ties
EXCLUDED_BYTES = 84  # bytes of a pair that is no negative while it is read
KNOWN_BYTES = 20, 36  # likewise of a known link while negatives of evaluations are drawn


@dataclass(frozen=True, eq=False)
class LinkSizes:
    """Numbers of each of P ranks, (P,) int64 if not stated; tables are (P, P), as ExchangeSizes.

    Attributes
    ----------
    index : int
        Bytes of the number of a row or a link.
    rows : own rows
    count, shared : int
        Negatives of each link, and negatives that all links share; one of them is 0.
    links : links to train on
    distinct : their distinct sources, if negatives are shared
    known : links that strict negatives do not draw
    every : links of all sets
    avoided : links that negatives of evaluations do not draw, in both directions if undirected
    sets : list
        Positives and negatives of each evaluated set.
    excluded : pairs that are no negatives, if links are ranked among all vertices; else 0
    largest : table
        Bound of the rows that are pulled for the pairs of an epoch.
    blocks : list of tables
        Rows that are pulled for each block of an evaluation.
    moved : bool
        Rows have another order than ORIGINAL vertices.
    """

    index: int
    rows: np.ndarray
    count: int
    shared: int
    links: np.ndarray
    distinct: np.ndarray
    known: np.ndarray
    every: np.ndarray
    avoided: np.ndarray
    sets: list
    excluded: np.ndarray
    largest: np.ndarray
    blocks: list
    moved: bool

    @property
    def pairs(self):
        """Pairs of an epoch, without shared negatives."""
        return self.links * (1 + self.count)

    @property
    def most_sent(self):
        """Rows that a rank sends at a time, at most."""
        return np.max([table.sum(0) for table in (self.largest, *self.blocks)], axis=0)

    @property
    def most_pulled(self):
        """Rows that a rank pulls at a time, at most."""
        return np.max([table.sum(1) for table in (self.largest, *self.blocks)], axis=0)

    def arrays(self, width):
        """Return the sizes of the work arrays of rows of `width` numbers, {name: (P,)}."""
        if self.rows.size == 1:
            return {}
        return {"rows": (self.rows + self.most_pulled) * width,
                "sums": (self.rows + self.largest.sum(1)) * width}

    def stored_bytes(self, spec):
        """Return the bytes that a rank stores between and in steps, but not in a block.

        These are links and pairs, the rows of other ranks and messages, and the decoder's
        gradients.
        """
        width = spec.widths[-1]
        scored = sum(sum(each) for each in self.sets)
        numbers = (3 * self.links + 2 * (self.pairs + scored) + self.rows.sum() * self.moved
                   + self.distinct + self.shared * (self.links > 0))
        exchanged = sum(table.sum(0) + table.sum(1) for table in (self.largest, *self.blocks))
        floats = sum(self.arrays(width).values()) + self.most_sent * width + (
            self.most_pulled * width)
        if self.excluded.any():
            floats = floats + self._staged_rows * width
            exchanged = exchanged + self.excluded + sum(positive for positive, _ in self.sets)
        decoder = sum(map(np.prod, DECODERS[spec.decoder].shapes(spec).values()))
        return (numbers * self.index + NUMBER * (self.known + self.distinct + exchanged)
                + (floats + int(decoder)) * spec.itemsize)

    @property
    def _staged_rows(self):
        """Rows of the buffers in which ranks receive the rows of all vertices."""
        return StagedPlan(self.rows[:, None]).buffer_rows[:, 0]

    def block_bytes(self, spec):
        """Return the bytes of the largest moment of an epoch.

        Pairs are drawn, a block of them is scored, or a set is evaluated.
        """
        width, itemsize = spec.widths[-1], spec.itemsize
        most = max(1, BLOCK // width)
        layers = 0 if DECODERS[spec.decoder].linear else spec.decoder_layers
        scored = [sum(each) for each in self.sets]
        block = np.minimum(np.max([self.links * max(self.count, 1), *scored], axis=0), most)
        found = [np.minimum(self.pairs, DRAWN) * DRAWN_BYTES,
                 block * ((5 + layers) * width * itemsize + PAIR_BYTES)]
        if self.shared:
            inner = self.shared * (1 if not layers else width)
            block = np.minimum(self.distinct, max(1, BLOCK // inner))
            found.append(block * self.shared * (PAIR_BYTES + itemsize * (
                width * (3 + layers) if layers else 3))
                + 3 * self.shared * width * itemsize)
        found += [each * METRIC_BYTES for each in scored]
        if self.excluded.any():
            targets = min(TARGETS, int(self.rows.max()))
            positives = np.max([positive for positive, _ in self.sets], axis=0)
            scores = targets * np.minimum(
                positives, max(1, BLOCK // (TARGETS * (width if layers else SHARE))))
            near = np.minimum(scores, most) * (3 + layers)
            found.append(scores * (RANKED_BYTES + 3 * itemsize) + width * itemsize * np.maximum(
                near, scores * (3 + layers) * (layers > 0)))
        return np.max(found, axis=0)

    def nbytes(self, spec):
        """Return the bytes of links from the first epoch on."""
        return self.stored_bytes(spec) + self.block_bytes(spec)

    @property
    def set_up_bytes(self):
        """Bytes of links while they are read, besides those stored."""
        several = int(self.rows.size > 1)
        return np.maximum(self.every * READ_BYTES[several], self.avoided * KNOWN_BYTES[several]) + (
            self.rows.sum() * (NUMBER + self.index)) + self.excluded * EXCLUDED_BYTES


class PlannedLinks:
    """The links of a graph and their pairs, for the plan of any division of rows.

    Parameters
    ----------
    sets : dict of hpgcn.graphs.links.LinkSet
        In memory.
    graph : hpgcn.graphs.graph.Graph
        The pattern of all rows.
    header : hpgcn.graphs.header.Header
    config : hpgcn.Config
    where : str
        The graph, for errors.
    """

    def __init__(self, sets, graph, header, config, where):
        vertex = graph.vertex
        check_training(sets.get("train", ()), where)
        self.n, self.seed, self.config = header.num_nodes, config.seed, config
        self.directed = header.directed
        self.given = {key: [array if array is None else vertex[array] for array in
                            (each.negative, each.negative_targets)] for key, each in sets.items()}
        self.graph = graph
        self.kind, self.each = parse_evaluation(config.evaluation_negatives)
        kind, count = parse_negatives(config.negatives)
        self.sampler = kind(count, self.n, self.seed, config.strict_negatives)

        # sources and targets, as vertices; see RankLinks
        self.links = {}
        for key, each in sets.items():
            pairs = vertex[each.positive]
            if not self.directed and each.negative_targets is None:
                pairs = turned(pairs, np.arange(len(pairs)), self.seed)
            self.links[key] = pairs

    def known(self, *keys):
        """Return the KnownLinks of some sets."""
        tables = [self.links[key] for key in keys]
        return KnownLinks(self.n, *tables, *([] if self.directed else
                                             [each[:, ::-1] for each in tables]))

    @cached_property
    def draws(self):
        """The DrawnLinks of all ranks."""
        train = self.links["train"]
        known = self.known(*["train"] * self.sampler.strict)
        return DrawnLinks(train, np.arange(len(train)), self.sampler, known)

    @cached_property
    def last(self):
        """The `DrawnLinks.pairs` of the last epoch."""
        return self.draws.pairs(self.config.epochs)

    @property
    def drawn(self):
        """Evaluated sets whose negatives need the known links, a list."""
        return [key for key in ("val", "test") if key in self.links
                and (self.kind != "auto" or all(each is None for each in self.given[key]))]

    @cached_property
    def excluded(self):
        """Sources of pairs that are no negatives among all vertices; empty if not ranked."""
        if self.kind != "all":
            return np.empty(0, np.int64)
        every, edges = np.arange(self.n), self.graph
        rows = np.repeat(every, np.diff(edges.indptr))
        keys = edges.vertex[edges.indices] * np.int64(self.n) + edges.vertex[rows]
        keys = [keys, self.known(*self.links).keys, every * np.int64(self.n + 1)]
        return np.unique(np.concatenate(keys)) // self.n

    def _given(self, key):
        """Return the given negatives of a set, and those of each link; None if not taken."""
        return self.given[key] if self.kind in ("auto", "all") else (None, None)

    @cached_property
    def evaluated(self):
        """Sources and targets of positives and of negatives of each evaluated set, a list."""
        found = []
        every = self.known(*self.links) if self.drawn else None
        for key in ("val", "test"):
            if key not in self.links:
                continue
            positive = self.links[key]
            negative, targets = self._given(key)
            numbers = np.arange(len(positive))
            if self.kind == "targets":
                sampler = UniformTargets(self.each, self.n, self.seed, strict=True)
                targets = sampler.targets(positive[:, 0], numbers, every, 1, key)
            if targets is not None:
                others = np.repeat(positive[:, 0], targets.shape[1]), targets.ravel()
            elif negative is not None:
                others = negative.T
            else:
                sampler = UniformTargets(1, self.n, self.seed, strict=True)
                numbers = np.arange(len(positive) * self.each)
                sources = sampler.draw(numbers, 0, key)
                others = sources, sampler.targets(sources, numbers, every, 1, key)[:, 0]
            found.append((tuple(positive.T), tuple(others)))
        return found

    def _counts(self):
        """Return the sets of LinkSizes on a single rank, without drawing negatives."""
        found = []
        for key in ("val", "test"):
            if key in self.links:
                negative, targets = self._given(key)
                count = len(self.links[key]) * self.each if negative is None else len(negative)
                found.append([[len(self.links[key])], [
                    count if targets is None else targets.size]])
        return np.array(found, np.int64).reshape(-1, 2, 1)

    def sizes(self, vertex, offsets):
        """Return the LinkSizes of ranks that own the rows between `offsets`, (P + 1,).

        `vertex`, (n,), are the ORIGINAL numbers of rows.
        """
        row = np.empty_like(vertex)
        row[vertex] = np.arange(vertex.size)
        ranks = offsets.size - 1

        def per_rank(vertices):
            owner = np.searchsorted(offsets, row[vertices], "right") - 1
            return np.bincount(owner, minlength=ranks)

        def both_ways(keys):
            ends = [0] if self.directed else [0, 1]
            return sum((per_rank(self.links[key][:, end]) for key in keys for end in ends),
                       np.zeros(ranks, np.int64))

        train, sampler = self.links["train"], self.sampler
        links = per_rank(train[:, 0])
        count, shared = (0, sampler.count) if sampler.shared else (sampler.count, 0)
        table = self.table(row, offsets, *train.T)
        index = index_dtype(max(self.n, *map(len, self.links.values()))).itemsize
        sets, blocks = self._counts(), []
        if ranks > 1:
            sets = [[per_rank(kind[0]) for kind in pairs] for pairs in self.evaluated]
            blocks = [each for pairs in self.evaluated for kind in pairs
                      for each in self._blocks(row, offsets, *kind)]
        return LinkSizes(
            index, np.diff(offsets), count, shared, links,
            per_rank(np.unique(train[:, 0])) * bool(shared), both_ways(["train"] * sampler.strict),
            sum(per_rank(each[:, 0]) for each in self.links.values()),
            both_ways(self.links if self.drawn else []), sets, per_rank(self.excluded),
            largest_table(table, links * count + (links > 0) * shared, offsets), blocks,
            bool((row != np.arange(row.size)).any()))

    def last_table(self, vertex, offsets):
        """Return the rows that are pulled in the last epoch, (P, P)."""
        row = np.empty_like(vertex)
        row[vertex] = np.arange(vertex.size)
        return self.table(row, offsets, *(self.last if offsets.size > 2 else ([], [], [])))

    @staticmethod
    def table(row, offsets, sources, targets, shared=()):
        """Return the `pulled_table` of pairs of vertices; zeros for a single rank."""
        if offsets.size == 2:
            return np.zeros((1, 1), np.int64)
        return pulled_table(row[sources], row[targets], row[np.asarray(shared, np.int64)], offsets)

    def _blocks(self, row, offsets, sources, targets):
        """Return the tables of blocks of SCORED pairs of each rank."""
        owner = np.searchsorted(offsets, row[sources], "right") - 1
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=offsets.size - 1)
        place = np.empty_like(order)
        place[order] = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
        return [self.table(row, offsets, sources[chosen], targets[chosen])
                for first in range(0, int(counts.max(initial=0)), SCORED)
                for chosen in [place // SCORED == first // SCORED]]

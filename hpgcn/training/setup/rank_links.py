"""The links of a graph on this rank: pairs to train on and to evaluate, and their negatives."""
from __future__ import annotations

import logging
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import UsageError, setting
from hpgcn.graphs.added_edges import check_added
from hpgcn.graphs.links import check_training
from hpgcn.graphs.validation import index_dtype
from hpgcn.model.links.all_targets import AllTargets
from hpgcn.model.links.link_loss import ScoredPairs, TrainingPairs
from hpgcn.parallel.layout import split
from hpgcn.parallel.pulled_rows import PulledRows, largest_table, table_of
from hpgcn.parallel.sizes import gather_tables
from hpgcn.parallel.workspace import HaloBuffers, Workspace
from hpgcn.planning.counts.link_sizes import SCORED, LinkSizes
from hpgcn.sampling.negatives import (
    DRAWN,
    DrawnLinks,
    KnownLinks,
    UniformTargets,
    parse_evaluation,
    parse_negatives,
    turned,
)

log = logging.getLogger("hpgcn")

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.links import LinkSet
    from hpgcn.training.setup.shard import GraphShard


def check_links(source: GraphSource, config: Config) -> None:
    """Raise a DataError if a graph lacks the links of the task; UsageError for its settings."""
    if config.task != "links":
        return
    links = source.links or {}
    check_training(links.get("train", ()), source.where)
    check_added(config, source)
    if config.patience and not len(links.get("val", ())):
        raise UsageError(f"{setting('patience', config.patience)}: {source.header.name} has no "
                         "links of validation, which say when to stop; remove it, or add some")


class RankLinks:
    """The links whose sources are rows of this rank.

    All ranks make it together. A link of an undirected graph has one of its ends as its
    source; see `hpgcn.sampling.negatives.turned`. Each rank stores the row of each vertex, if
    rows have another order than vertices.
    """

    def __init__(self, source: GraphSource, shard: GraphShard, config: Config) -> None:
        self.comm = shard.comm
        self.layout = shard.layout.rows
        self.n = source.header.num_nodes
        self.directed = source.header.directed
        self.seed = config.seed
        self.buffers = HaloBuffers(self.comm.device, self.comm.stager, shard.spec.dtype)
        self.index = index_dtype(max(self.n, *map(len, source.links.values())))

        # the row of each vertex
        vertex = np.concatenate(self.comm.allgather(shard.vertex)).astype(self.index)
        self.row_of = None
        if (vertex != np.arange(self.n)).any():
            self.row_of = np.empty(self.n, self.index)
            self.row_of[vertex] = np.arange(self.n)

        # the links of each set, as vertices: source, target, number, given targets
        found = {key: self._received(links, vertex) for key, links in source.links.items()}

        # the draws of training
        if source.links["train"].has_negatives and not self.comm.rank:
            log.info("%s: negatives given for training are not read; --negatives draws others",
                     source.where)
        kind, count = parse_negatives(config.negatives)
        train = found["train"]
        sampler = kind(count, self.n, self.seed, config.strict_negatives)
        known = self._known(train) if sampler.strict else KnownLinks(self.n)
        self.draws = DrawnLinks(train[:, :2], train[:, 2], sampler, known)
        self.num_links = len(source.links["train"])

        # the pairs of evaluations
        evaluated = [key for key in ("val", "test") if key in found]
        self.negatives = parse_evaluation(config.evaluation_negatives)
        drawn = self.negatives[0] != "auto" or any(
            not source.links[key].has_negatives for key in evaluated)
        every = self._known(*found.values()) if drawn else KnownLinks(self.n)
        self.evaluated = {key: self._evaluated(key, source.links[key], found[key], vertex, every)
                          for key in evaluated}

        # all vertices as targets, without edges, links of all sets, and the sources
        self.ranked: dict[str, AllTargets] = {}
        if self.negatives[0] == "all":
            own = np.arange(self.layout.start, self.layout.stop)
            links = np.stack(np.divmod(every.keys, self.n), axis=1)
            excluded = np.concatenate([np.stack([own, own], axis=1), self._rows(links),
                                       self._rows(self._edges(source, vertex))])
            targets = AllTargets(excluded - [self.layout.start, 0], self.layout, self.comm,
                                 Workspace(shard.spec.dtype, self.comm.device))
            self.ranked = {key: targets.of(self._rows(found[key][:, 0]) - self.layout.start)
                           for key in self.evaluated}
        left_out = next((each.keys.size for each in self.ranked.values()), 0)

        # their memory
        self.sizes = self._count(found, len(known.keys), len(every.keys), left_out)
        width = shard.spec.widths[-1]
        self.buffers.reserve(*(int(rows[self.comm.rank]) * width for rows in (
            self.sizes.most_sent, self.sizes.most_pulled)))

    def _known(self, *tables: np.ndarray) -> KnownLinks:
        """Return the links of own sources among those that ranks received; collective."""
        pairs = [each[:, :2] for each in tables]
        if not self.directed:
            pairs += [self._sent(each[:, ::-1]) for each in pairs]
        return KnownLinks(self.n, *pairs)

    def _count(self, found: dict, known: int, avoided: int, excluded: int) -> LinkSizes:
        """Return the sizes of the links on all ranks; collective."""
        sampler, train = self.draws.sampler, self.draws.positive
        evaluated = self.evaluated.values()
        distinct = np.unique(train[:, 0]).size if sampler.shared else 0
        own = [self.layout.num_rows, len(train), distinct, known, sum(map(len, found.values())),
               avoided, excluded, *(math.prod(each.shape) for pairs in evaluated for each in pairs)]
        counts = np.array(self.comm.allgather(own)).T
        rows, links, distinct, strict, every, others, left_out, *sets = counts
        count, shared = (0, sampler.count) if sampler.shared else (sampler.count, 0)
        draws = links * count + (links > 0) * shared
        table = table_of(self._rows(train[:, 1]), self.layout, self.comm)
        plans = [block[0].plan for pairs in evaluated for each in pairs for block in each.blocks]
        return LinkSizes(
            self.index.itemsize, rows, count, shared, links, distinct, strict, every, others,
            [*zip(sets[::2], sets[1::2])], left_out,
            largest_table(table, draws, self.layout.offsets),
            [*gather_tables(self.comm, *plans)[:, 0]] if plans else [], self.row_of is not None)

    def _received(self, links: LinkSet, vertex: np.ndarray) -> np.ndarray:
        """Return the links of a set whose sources this rank owns, (k, 3 + q) of `index`."""
        start, stop = split(len(links), self.comm.size)[self.comm.rank:][:2].tolist()
        with self.comm.collective_errors():
            pairs = vertex[links.positive[start:stop]]
            numbers = np.arange(start, stop, dtype=self.index)
            targets = links.negative_targets
            if targets is not None:
                given = vertex[targets[start:stop]]
            elif not self.directed:
                pairs = turned(pairs, numbers, self.seed)
        columns = [pairs, numbers[:, None]]
        return self._sent(np.concatenate(columns if targets is None else [*columns, given], axis=1))

    def _sent(self, table: np.ndarray) -> np.ndarray:
        """Send each row of a table of integers to the owner of its first vertex; collective."""
        if self.comm.size == 1:
            return table
        owner = np.searchsorted(self.layout.offsets, self._rows(table[:, 0]), "right") - 1
        order = np.argsort(owner, kind="stable")
        cuts = np.searchsorted(owner[order], np.arange(self.comm.size + 1))
        parts = self.comm.alltoallv([table[order[first:last]].ravel()
                                     for first, last in pairwise(cuts.tolist())])
        return np.concatenate(parts).reshape(-1, table.shape[1]).astype(table.dtype, copy=False)

    def _rows(self, vertices: np.ndarray) -> np.ndarray:
        return vertices if self.row_of is None else self.row_of[vertices]

    def _edges(self, source: GraphSource, vertex: np.ndarray) -> np.ndarray:
        """Return the edges whose sources this rank owns, as vertices, (k, 2); collective."""
        rows = self.layout
        indptr, indices = source.pattern_rows(rows.start, rows.stop)
        row = np.repeat(np.arange(rows.start, rows.stop), np.diff(indptr))
        pairs = vertex[np.stack([indices, row], axis=1)]
        return self._sent(pairs) if self.directed else pairs[:, ::-1]

    def _evaluated(self, key: str, links: LinkSet, own: np.ndarray, vertex: np.ndarray,
                   every: KnownLinks) -> tuple[ScoredPairs, ScoredPairs]:
        """Return the pairs of an evaluation: links and negatives; see --evaluation-negatives.

        Drawn negatives are links of no set.
        """
        sources = own[:, 0]
        positive = self._scored(sources, own[:, 1], (len(own),))
        kind, count = self.negatives
        given = kind in ("auto", "all")
        if kind == "targets":
            with self.comm.collective_errors():
                targets = UniformTargets(count, self.n, self.seed, strict=True).targets(
                    sources, own[:, 2].astype(np.int64), every, 1, key)
            return positive, self._scored(np.repeat(sources, count), targets.ravel(),
                                          targets.shape)
        if given and links.negative is not None:
            start, stop = split(links.negative.shape[0], self.comm.size)[self.comm.rank:][:2]
            with self.comm.collective_errors():
                given_pairs = vertex[links.negative[int(start):int(stop)]]
            pairs = self._sent(given_pairs)
            return positive, self._scored(pairs[:, 0], pairs[:, 1], (len(pairs),))
        if given and links.negative_targets is not None:
            targets = own[:, 3:]
            return positive, self._scored(np.repeat(sources, targets.shape[1]), targets.ravel(),
                                          targets.shape)
        sampler = UniformTargets(1, self.n, self.seed, strict=True)
        numbers = np.arange(*split(len(links), self.comm.size)[self.comm.rank:][:2] * count)
        drawn = self._sent(np.stack([sampler.draw(numbers, 0, key), numbers], axis=1))
        with self.comm.collective_errors():
            targets = sampler.targets(drawn[:, 0], drawn[:, 1], every, 1, key)
        return positive, self._scored(drawn[:, 0], targets[:, 0], (len(drawn),))

    def _scored(self, sources: np.ndarray, targets: np.ndarray, shape: tuple) -> ScoredPairs:
        """Plan the pulls of pairs, block by block; collective."""
        most = int(self.comm.max([-(-sources.size // SCORED)])[0])
        blocks = []
        for first in range(0, most * SCORED, SCORED):
            place = slice(first, first + SCORED)
            rows = self._rows(targets[place])
            pulled = PulledRows.of(rows, self.layout, self.comm, self.buffers)
            blocks.append((pulled, *(self._put(each.astype(self.index, copy=False)) for each in (
                self._rows(sources[place]) - self.layout.start, pulled.places(rows)))))
        return ScoredPairs(blocks, shape)

    def _put(self, places: np.ndarray) -> Any:
        return self.comm.device.put(np.ascontiguousarray(places))

    def training_pairs(self, step: int, draws: DrawnLinks | None = None,
                       links: int | None = None) -> TrainingPairs:
        """Draw the negatives of a training step and plan its messages; collective.

        `draws` are the links of the step, by default all of them, and `links` their number over
        all ranks. `close` frees the messages.
        """
        draws = draws or self.draws
        links = self.num_links if links is None else links
        sources, rows = self._drawn(step, draws)
        pulled = PulledRows.of(rows, self.layout, self.comm, self.buffers)
        if self.comm.size > 1:
            for first in range(0, rows.size, DRAWN):
                place = slice(first, first + DRAWN)
                rows[place] = pulled.places(rows[place])
        sampler, k = draws.sampler, len(draws.positive)
        repeated = sources if sampler.shared else sources[:0]
        distinct, counts = np.unique(repeated, return_counts=True)
        return TrainingPairs(
            pulled, self._put(sources), self._put(rows[:sources.size]), k, self._put(distinct),
            self._put(counts[:, None].astype(np.float64)), self._put(rows[sources.size:]),
            (links, links * sampler.count), links / self.num_links)

    def _drawn(self, step: int, draws: DrawnLinks) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of a step, and shared targets, drawn block by block; collective.

        They are places of sources among own rows, (k,), and rows of targets, (k + M,).
        """
        k, sampler = len(draws.positive), draws.sampler
        count, shared = (0, sampler.count * (k > 0)) if sampler.shared else (sampler.count, 0)
        sources = np.empty(k * (1 + count), self.index)
        rows = np.empty(sources.size + shared, self.index)
        with self.comm.collective_errors():
            size = max(1, DRAWN // (1 + count))
            for first in range(0, k, size):
                place = slice(first, min(first + size, k))
                others = slice(k + place.start * count, k + place.stop * count)
                *ends, every = draws.part(place).pairs(step)
                for out, vertices in zip((sources, rows), ends):
                    found = self._rows(vertices)
                    out[place], out[others] = np.split(found, [place.stop - place.start])
                rows[sources.size:] = self._rows(every)
        sources -= self.layout.start
        return sources, rows

    def table(self, epoch: int) -> np.ndarray:
        """Return how many rows each rank pulls of each other one in an epoch; collective.

        The result is (P, P) int64, as of `hpgcn.parallel.pulled_rows.pulled_table`.
        """
        if self.comm.size == 1:
            return np.zeros((1, 1), np.int64)
        return table_of(self._drawn(epoch, self.draws)[1], self.layout, self.comm)

    def close(self) -> None:
        """Free the requests of evaluations."""
        for pairs in self.evaluated.values():
            for each in pairs:
                for pulled, *_ in each.blocks:
                    pulled.close()

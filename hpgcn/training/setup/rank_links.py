"""The links of a graph on this rank: pairs to train on and to evaluate, and their negatives."""
from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import UsageError, setting
from hpgcn.graphs.links import check_training
from hpgcn.model.links.link_loss import ScoredPairs, TrainingPairs
from hpgcn.parallel.layout import split
from hpgcn.parallel.pulled_rows import PulledRows, pulled_table
from hpgcn.parallel.workspace import HaloBuffers
from hpgcn.sampling.negatives import DrawnLinks, KnownLinks, UniformTargets, parse_negatives, turned

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.links import LinkSet
    from hpgcn.training.setup.shard import GraphShard

SCORED = 1 << 20  # pairs that a rank scores at a time


def check_links(source: GraphSource, config: Config) -> None:
    """Raise a DataError if a graph lacks the links of the task; UsageError for patience."""
    if config.task != "links":
        return
    links = source.links or {}
    check_training(links.get("train", ()), source.where)
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

        # the row of each vertex
        vertex = np.concatenate(self.comm.allgather(shard.vertex))
        self.row_of = None
        if (vertex != np.arange(self.n)).any():
            self.row_of = np.empty(self.n, np.int64)
            self.row_of[vertex] = np.arange(self.n)

        # the links of each set, as vertices: source, target, number, given targets
        found = {key: self._received(links, vertex) for key, links in source.links.items()}
        known = [each[:, :2] for each in found.values()]
        if not self.directed:
            known = [np.concatenate([each, self._sent(each[:, ::-1])]) for each in known]
        known = dict(zip(found, known))

        # the draws of training, and the pairs of evaluations
        kind, count = parse_negatives(config.negatives)
        train = found["train"]
        self.draws = DrawnLinks(train[:, :2], train[:, 2],
                                kind(count, self.n, self.seed, config.strict_negatives),
                                KnownLinks(known["train"], self.n))
        self.num_links = len(source.links["train"])
        every = KnownLinks(np.concatenate([*known.values()]), self.n)
        self.evaluated = {key: self._evaluated(key, source.links[key], found[key], vertex, every)
                          for key in ("val", "test") if key in found}

    def _received(self, links: LinkSet, vertex: np.ndarray) -> np.ndarray:
        """Return the links of a set whose sources this rank owns, (k, 3 + q) int64."""
        start, stop = split(len(links), self.comm.size)[self.comm.rank:][:2].tolist()
        with self.comm.collective_errors():
            pairs = vertex[links.positive[start:stop]]
            numbers = np.arange(start, stop)
            targets = links.negative_targets
            if targets is not None:
                given = vertex[targets[start:stop]]
            elif not self.directed:
                pairs = turned(pairs, numbers, self.seed)
        columns = [pairs, numbers[:, None]]
        return self._sent(np.concatenate(columns if targets is None else [*columns, given], axis=1))

    def _sent(self, table: np.ndarray) -> np.ndarray:
        """Send each row of a table of integers to the owner of its first vertex; collective."""
        owner = np.searchsorted(self.layout.offsets, self._rows(table[:, 0]), "right") - 1
        order = np.argsort(owner, kind="stable")
        cuts = np.searchsorted(owner[order], np.arange(self.comm.size + 1))
        parts = self.comm.alltoallv([table[order[first:last]].ravel()
                                     for first, last in pairwise(cuts.tolist())])
        return np.concatenate(parts).reshape(-1, table.shape[1])

    def _rows(self, vertices: np.ndarray) -> np.ndarray:
        return vertices if self.row_of is None else self.row_of[vertices]

    def _evaluated(self, key: str, links: LinkSet, own: np.ndarray, vertex: np.ndarray,
                   every: KnownLinks) -> tuple[ScoredPairs, ScoredPairs]:
        """Return the pairs of an evaluation: links and negatives.

        Negatives are given. Otherwise one pair for each link is drawn: a source, and a target
        that is no link of it in any set.
        """
        sources = own[:, 0]
        positive = self._scored(sources, own[:, 1], (len(own),))
        if links.negative is not None:
            start, stop = split(links.negative.shape[0], self.comm.size)[self.comm.rank:][:2]
            with self.comm.collective_errors():
                given = vertex[links.negative[int(start):int(stop)]]
            given = self._sent(given)
            return positive, self._scored(given[:, 0], given[:, 1], (len(given),))
        if links.negative_targets is not None:
            targets = own[:, 3:]
            return positive, self._scored(np.repeat(sources, targets.shape[1]), targets.ravel(),
                                          targets.shape)
        sampler = UniformTargets(1, self.n, self.seed, strict=True)
        numbers = own[:, 2].copy()
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
            blocks.append((pulled, self._put(self._rows(sources[place]) - self.layout.start),
                           self._put(pulled.places(rows))))
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
        with self.comm.collective_errors():
            sources, targets, shared = draws.pairs(step)
        rows = self._rows(np.concatenate([targets, shared]))
        pulled = PulledRows.of(rows, self.layout, self.comm, self.buffers)
        places = pulled.places(rows)
        first = self._rows(sources) - self.layout.start
        k, count = len(draws.positive), draws.sampler.count
        distinct, counts = np.unique(first[:k], return_counts=True)
        return TrainingPairs(
            pulled, self._put(first), self._put(places[:targets.size]), k, self._put(distinct),
            self._put(counts[:, None].astype(np.float64)), self._put(places[targets.size:]),
            (links, links * count), links / self.num_links)

    def table(self, epoch: int) -> np.ndarray:
        """Return how many rows each rank pulls of each other one in an epoch; collective.

        The result is (P, P) int64, as of `hpgcn.parallel.pulled_rows.pulled_table`.
        """
        with self.comm.collective_errors():
            sources, targets, shared = self.draws.pairs(epoch)
        own = pulled_table(self._rows(sources), self._rows(targets), self._rows(shared),
                           self.layout.offsets)
        return np.sum(self.comm.allgather(own), axis=0)

    def close(self) -> None:
        """Free the requests of evaluations."""
        for pairs in self.evaluated.values():
            for each in pairs:
                for pulled, *_ in each.blocks:
                    pulled.close()

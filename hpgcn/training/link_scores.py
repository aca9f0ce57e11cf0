"""Scores of pairs of vertices, and the best new targets of each vertex, by a model of links."""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError, assigned, setting
from hpgcn.graphs.named_vertices import find_vertices
from hpgcn.graphs.partition import positions_of
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.links.link_loss import blocks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.model.links.decoders import Dot
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec

log = logging.getLogger("hpgcn")
COLUMNS = ("source", "target", "score")


class LinkRequest(NamedTuple):
    """A request for scores of a model of links, by `hpgcn.predict`.

    `pairs` are k pairs of ids, or None; `top` is the number of new targets of each vertex, or 0.
    `sources` and `targets` are the ids of vertices that `top` is about, None for all.
    """

    pairs: Sequence | None = None
    top: int = 0
    sources: ArrayLike | None = None
    targets: ArrayLike | None = None

    def check(self, task: str) -> None:
        """Raise a UsageError if the request does not suit a model of this task."""
        given = ["pairs"] * (self.pairs is not None) + ["top"] * (self.top != 0)
        if given and task != "links":
            raise UsageError(f"{assigned(given[0])}: only for a model of "
                             f"{setting('task', 'links')}")
        if len(given) > 1:
            raise UsageError(f"{assigned('pairs')} and {assigned('top')}: give one of them")
        if self.top < 0:
            raise UsageError(f"{assigned('top', self.top)}: expected a number from 1")
        if self.targets is not None and not self.top:
            raise UsageError(f"{assigned('top_targets')}: only with {assigned('top')}")

    def results(self, source: GraphSource, results: dict[str, np.ndarray], spec: ModelSpec,
                parameters: Parameters) -> dict[str, np.ndarray]:
        """Return the results of a model of links, on one rank.

        `results` have the rows of all vertices under "logits", and "id", in ORIGINAL order.
        """
        Z, ids = results.pop("logits"), results["id"]
        decoder = DECODERS[spec.decoder](spec, parameters.arrays)
        if self.pairs is not None:
            pairs = self._find_pairs(source)
            return _named(ids, pairs[:, 0], pairs[:, 1], score_pairs(Z, decoder, pairs))
        if self.top:
            sources, targets = (
                np.arange(len(Z)) if asked is None
                else find_vertices(source, asked, f"{name}[{{}}]".format)
                for name, asked in (("vertices", self.sources), ("top_targets", self.targets)))
            known = known_links(source)
            if self.targets is None and is_bipartite(*known):
                log.warning("%s: edges and links join vertices of two kinds, but targets may be of "
                            "either kind; %s names those to choose from", source.where,
                            assigned("top_targets"))
            return _named(ids, *best_targets(Z, decoder, known, self.top, sources,
                                             np.unique(targets)))
        return {**results, "embedding": Z}

    def _find_pairs(self, source: GraphSource) -> np.ndarray:
        """Return the pairs as ORIGINAL vertices, (k, 2)."""
        asked = np.asarray(self.pairs)
        if asked.ndim != 2 or asked.shape[1] != 2:
            raise UsageError(f"pairs have shape {asked.shape}, expected (k, 2)")
        found = find_vertices(source, asked.ravel(), lambda place: f"pairs[{place // 2}]")
        return found.reshape(-1, 2)


def _named(ids: np.ndarray, sources: np.ndarray, targets: np.ndarray,
           scores: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(COLUMNS, (ids[sources], ids[targets], scores)))


def score_pairs(Z: np.ndarray, decoder: Dot, pairs: np.ndarray) -> np.ndarray:
    """Return the scores of pairs of rows of Z (n, d), (k,); `pairs` are (k, 2) int64."""
    found = [np.empty(0, Z.dtype)]
    for place in blocks_of(len(pairs), Z.shape[1]):
        sources, targets = pairs[place].T
        found.append(decoder.forward(Z[sources] * Z[targets])[0])
    return np.concatenate(found)


def known_links(source: GraphSource) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and targets of the edges and links of each vertex.

    They are (n + 1,) and (k,) int64, by ORIGINAL vertices. Each vertex is a target of itself.
    """
    n = source.header.num_nodes
    vertex = source.vertices(0, n)
    indptr, indices, _ = source.adjacency_rows(0, n)
    every = np.arange(n)
    pairs = [np.stack([indices.astype(np.int64), np.repeat(every, np.diff(indptr))], axis=1)]
    for each in (source.links or {}).values():
        positive = each.read().positive
        pairs += [positive] if source.header.directed else [positive, positive[:, ::-1]]
    sources, targets = vertex[np.concatenate([*pairs, np.stack([every, every], axis=1)])].T
    order = np.argsort(sources, kind="stable")
    return np.searchsorted(sources[order], np.arange(n + 1)), targets[order]


def is_bipartite(indptr: np.ndarray, targets: np.ndarray) -> bool:
    """Return whether all links join two kinds of vertices; a vertex is a target of itself.

    Examples
    --------
    >>> from hpgcn.training.link_scores import is_bipartite
    >>> is_bipartite(np.array([0, 2, 4, 5]), np.array([0, 2, 1, 2, 2]))
    True
    """
    n = indptr.size - 1
    links = sp.csr_array((np.ones(targets.size, np.int8), targets, indptr), shape=(n, n)).tocoo()
    others = links.row != links.col
    pairs = links.row[others], links.col[others]
    count = sp.csgraph.connected_components
    ones = np.ones(pairs[0].size, np.int8)
    once = count(sp.coo_array((ones, pairs), shape=(n, n)), directed=False)[0]
    twice = count(sp.coo_array((ones, (pairs[0], n + pairs[1])), shape=(2 * n, 2 * n)),
                  directed=False)[0]
    return bool(ones.size) and twice == 2 * once


def best_targets(Z: np.ndarray, decoder: Dot, known: tuple[np.ndarray, np.ndarray], top: int,
                 sources: np.ndarray,
                 targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the targets with the highest scores of each source, except for `known` ones.

    `sources`, (s,), and `targets`, (t,) increasing, are numbers of vertices. The results, (k,),
    have at most `top` targets of each source, the best first, and equal ones by number. Blocks of
    sources are scored at a time.
    """
    indptr, linked = known
    top, T = min(top, targets.size), Z[targets]
    column = np.full(len(Z), -1)
    column[targets] = np.arange(targets.size)
    found: list[Any] = []
    for place in blocks_of(sources.size, targets.size if decoder.linear else T.size):
        block = sources[place]
        scores = decoder.outer(Z[block], T)[0]
        pointers, places = positions_of(indptr[block], indptr[block + 1])
        row, columns = np.repeat(np.arange(block.size), np.diff(pointers)), column[linked[places]]
        scores[row[columns >= 0], columns[columns >= 0]] = -np.inf
        last = -np.partition(-scores, top - 1, axis=1)[:, top - 1:top]
        row, chosen = np.nonzero((scores >= last) & (scores > -np.inf))
        values = scores[row, chosen]
        order = np.lexsort((chosen, -values, row))
        row, chosen, values = row[order], chosen[order], values[order]
        rank = np.arange(row.size) - np.searchsorted(row, row)
        kept = rank < top  # ties of the last one are more
        found.append((block[row[kept]], targets[chosen[kept]], values[kept]))
    best, every, scores = (np.concatenate(each) for each in zip(*found))
    return best, every, scores

"""Scores of pairs of vertices, and the best new targets of each vertex, by a model of links."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.errors import UsageError, assigned, setting
from hpgcn.graphs.named_vertices import find_vertices
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.links.link_loss import blocks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.model.links.decoders import Dot
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec

COLUMNS = ("source", "target", "score")


class LinkRequest(NamedTuple):
    """A request for scores of a model of links, by `hpgcn.predict`.

    `pairs` are k pairs of ids, or None; `top` is the number of new targets of each vertex, or 0.
    """

    pairs: Sequence | None = None
    top: int = 0

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
            return _named(ids, *best_targets(Z, decoder, known_links(source), self.top))
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


def best_targets(Z: np.ndarray, decoder: Dot, known: tuple[np.ndarray, np.ndarray],
                 top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the targets with the highest scores of each vertex, except for `known` ones.

    Sources, targets and scores are (k,): at most `top` of each vertex, the best first, and equal
    ones by number. Blocks of vertices are scored at a time.
    """
    indptr, targets = known
    n, d = Z.shape
    top = min(top, n)
    found: list[Any] = []
    for place in blocks_of(n, n if decoder.linear else n * d):
        scores = decoder.outer(Z[place], Z)[0]
        row = np.repeat(np.arange(len(scores)), np.diff(indptr[place.start:place.stop + 1]))
        scores[row, targets[indptr[place.start]:indptr[place.stop]]] = -np.inf
        last = -np.partition(-scores, top - 1, axis=1)[:, top - 1:top]
        sources, chosen = np.nonzero((scores >= last) & (scores > -np.inf))
        values = scores[sources, chosen]
        order = np.lexsort((chosen, -values, sources))
        sources, chosen, values = sources[order], chosen[order], values[order]
        rank = np.arange(sources.size) - np.searchsorted(sources, sources)
        kept = rank < top  # ties of the last one are more
        found.append((place.start + sources[kept], chosen[kept], values[kept]))
    sources, every, scores = (np.concatenate(each) for each in zip(*found))
    return sources, every, scores

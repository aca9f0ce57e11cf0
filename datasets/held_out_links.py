"""Links of training, validation and test: drawn from the edges of a graph, or read from files.

The random number of an edge depends only on the seed and the ids of its two vertices.
"""
from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.raw_graph import ROW_FIRST
from hpgcn.datasets.source import Source, need, open_all
from hpgcn.datasets.split import SHARE
from hpgcn.datasets.tables.link_files import read_links
from hpgcn.datasets.tables.vertex_ids import VertexIds
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.adjacency import is_symmetric
from hpgcn.graphs.links import Links, LinkSet
from hpgcn.graphs.validation import SPLIT
from hpgcn.parallel.nodes.node_plan import scrambled
from hpgcn.sampling.keyed_draws import key_of

if TYPE_CHECKING:
    from hpgcn.datasets.convert import MemoryAdjacency
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw

LINK_BYTES = 56  # peak memory per entry to draw links
BLOCK = 1 << 20  # entries that are worked on at a time
DRAWN = re.compile(rf"(?:random:)?{SHARE}/{SHARE}/{SHARE}(?::(\d{{1,18}}))?")
FILE = re.compile(rf"({'|'.join(SPLIT)})=(.+)")
EXPECTED = ("expected percentages that sum to 100, as 80/10/10[:SEED], or train=FILE, val=FILE and "
            "test=FILE, each after its own --links")


def parse_links(texts: Sequence[str]) -> tuple[tuple[float, ...], int] | dict[str, str]:
    """Return the percentages and the seed, or the file of each set, in the texts of --links.

    Raises
    ------
    UsageError
        Other text, percentages that do not sum to 100 or leave nothing for training, a set
        that is named twice.
    """
    files: dict[str, str] = {}
    for text in texts:
        if len(texts) == 1 and (match := DRAWN.fullmatch(text)):
            percent = tuple(map(float, match.groups()[:3]))
            if percent[0] and abs(sum(percent) - 100) < 1e-9:
                return percent, int(match[4] or 0)
            raise UsageError(f"--links {text}: {EXPECTED}")
        match = FILE.fullmatch(text)
        if match is None:
            raise UsageError(f"--links {text}: {EXPECTED}")
        if match[1] in files:
            raise UsageError(f"--links {text}: {match[1]} is given before: {files[match[1]]}")
        files[match[1]] = match[2]
    return files


def with_links(adjacency: MemoryAdjacency, raw: Raw, options: ConvertOptions, where: str,
               file: Source, memory: int) -> tuple[MemoryAdjacency, Links]:
    """Return the adjacency of training and the links, drawn from it or read from files.

    Notes go to `raw.notes`, and files to `file.files`.
    """
    csr = adjacency.assemble.args
    directed = not is_symmetric(*csr)
    if directed and not np.intersect1d(np.flatnonzero(np.diff(csr[0])), csr[1]).size:
        raw.notes.append("no vertex is both a source and a target, so that one of the two kinds "
                         "receives no messages: --symmetrize lets them pass both ways")
    wanted = parse_links(options.links)
    if raw.links is not None:
        raw.notes.append("links of the source are left out, because --links is given")
    if not isinstance(wanted, dict):
        need(LINK_BYTES * csr[1].size, memory, f"{where}: links")
        kept, links, notes = hold_out(csr, raw, directed, *wanted, options.allow_isolated, where)
        raw.notes += notes
        if adjacency.assemble.keywords.get("edge_features") is not None:
            raw.notes.append("features of validation and test edges are not stored")
        return adjacency.kept(kept), links

    if options.reverse:
        raise UsageError("--reverse: not for links of files, whose directions would differ")

    # read the files; the edges of the graph are links of training unless a file has them
    vertices = VertexIds(raw, where, memory)
    target_first = directed and raw.reads == ROW_FIRST
    links = {}
    for key, source in zip(wanted, open_all(wanted.values())):
        links[key] = read_links(source, vertices, target_first, options.header, memory)
        raw.notes.append(f"links of {key}: {links[key].describe()} in {source}")
        if isinstance(file, Source):
            file.files.append(source)
    if "train" not in links:
        _, edges, _ = hold_out(csr, raw, directed, (100, 0, 0), 0, False, where)
        links["train"] = edges["train"]
    return adjacency, links


def hold_out(csr: Sequence, raw: Raw, directed: bool, percent: tuple[float, ...], seed: int,
             isolate: bool, where: str) -> tuple[np.ndarray, Links, list[str]]:
    """Draw the links of each set; return the entries that training keeps, links and notes.

    Both directions of an edge are in one set. Self loops are no links, and are kept. The edge
    of a vertex that comes last in the order of the draw is not held out, so no vertex loses
    its last edge.

    Parameters
    ----------
    csr : (indptr, indices, data)
        The adjacency in memory; data is None for ones.
    raw : Raw
        Its ids are those of the vertices.
    directed : bool
        [u, v] and [v, u] are different links. An undirected graph has each link once, the
        vertex with the smaller number first.
    percent : percentages of train, val and test
    seed : int
    isolate : bool
        Vertices may lose their last edge.
    where : str
        The input, for errors.

    Returns
    -------
    ((nnz,) bool, dict of LinkSet, list of str)

    Raises
    ------
    DataError
        No edges between two vertices.
    """
    # number the edges; the two directions of an edge have the same number
    indptr, indices, data = csr
    n = indptr.size - 1
    target = np.repeat(np.arange(n, dtype=indices.dtype), np.diff(indptr))
    listed = indices != target if directed else indices < target  # the entries that are links
    keys = np.unique(_edge_keys(indices[listed], target[listed], n))
    if not keys.size:
        raise DataError(f"{where}: no edges between two vertices, from which links can be drawn")

    # order them by their random numbers
    blocks = [slice(first, first + BLOCK) for first in range(0, indices.size, BLOCK)]
    ids, random = vertex_keys(raw), np.empty(keys.size, np.uint64)
    for block in blocks:
        low, high = np.sort(ids[np.stack(np.divmod(keys[block], n))], axis=0)
        random[block] = scrambled(scrambled(low ^ key_of(seed)) + high)
    order = np.argsort(random, kind="stable")
    del random

    # each vertex protects its last edge
    protected = np.zeros(keys.size, bool)
    if not isolate:
        place = np.empty(keys.size, np.int64)
        place[order] = np.arange(keys.size)
        last = np.zeros(n, np.int64)
        for block in blocks:
            for vertices in np.divmod(keys[block], n):
                np.maximum.at(last, vertices, place[block])
        for block in blocks:
            ends = np.stack(np.divmod(keys[block], n))
            protected[block] = (last[ends] == place[block]).any(axis=0)
        del place

    # the first edges are of test, then of validation
    free = order[~protected[order]]
    wanted = [int(keys.size * share / 100 + .5) for share in percent]
    part = np.zeros(keys.size, np.int8)
    part[free[:wanted[2]]] = 2
    part[free[wanted[2]:wanted[2] + wanted[1]]] = 1
    reached = int(place_of_last(order, part > 0))
    spared = int(np.count_nonzero(protected[order[:reached]]))

    # find the set of each entry; self loops are of training
    del order, free
    sets = np.zeros(indices.size, np.int8)
    for block in blocks:
        low, high = indices[block], target[block]
        found = np.minimum(np.searchsorted(keys, _edge_keys(low, high, n)), keys.size - 1)
        sets[block] = part[found] * (low != high)
    kept = sets == 0

    # collect the links of each set
    links = {}
    for number, key in enumerate(SPLIT):
        chosen = listed & (sets == number)
        pairs = np.stack([indices[chosen], target[chosen]], axis=1, dtype=np.int64)
        links[key] = LinkSet(pairs, weight=None if data is None else data[chosen])
    counts = np.bincount(part, minlength=3)
    notes = [f"links: {', '.join(f'{count} {key}' for key, count in zip(SPLIT, counts))} of "
             f"{keys.size} edges; the graph has those of training"]
    loops = np.count_nonzero(indices == target)
    notes += [f"{loops} self loops are no links, and stay in the graph"] * bool(loops)
    notes += [f"{spared} edges stay in training because a vertex would lose its last one "
              "(--allow-isolated holds them out)"] * bool(spared)
    short = wanted[1] + wanted[2] - int(counts[1:].sum())
    notes += [f"{short} links fewer than asked for: no other edge can be held out"] * (short > 0)
    notes += ["weights of validation and test links are stored with them"] * (data is not None)
    return kept, links, notes


def _edge_keys(source: np.ndarray, target: np.ndarray, n: int) -> np.ndarray:
    """Return the number of the edge of each pair, (k,) int64, the same for both directions."""
    return np.maximum(source, target) * np.int64(n) + np.minimum(source, target)


def place_of_last(order: np.ndarray, chosen: np.ndarray) -> int:
    """Return the number of items of `order` up to the last chosen one; 0 if none is."""
    places = np.flatnonzero(chosen[order])
    return places[-1] + 1 if places.size else 0


def vertex_keys(raw: Raw) -> np.ndarray:
    """Return a hash of the id of each vertex in the input, (n,) uint64."""
    ids: Any = raw.original_ids
    if ids is None:
        ids = np.arange(raw.num_nodes) + raw.base
    elif ids.dtype.kind == "U":
        ids = np.array([int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
                        for name in ids.tolist()], np.uint64)
    return scrambled(ids)

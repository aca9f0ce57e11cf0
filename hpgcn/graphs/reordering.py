"""Orders of the vertices, new -> old, and the choice of one for a file.

A product A H reads the row of H of each neighbor. Raw files often number vertices at
random; then every read goes to memory. The orders of ORDERS give close numbers to
vertices with common neighbors. Results of a run depend on the original numbers only, so
that an order changes only its time.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError
from hpgcn.graphs.adjacency import LARGE
from hpgcn.runtime.machine import default_threads

if TYPE_CHECKING:
    from hpgcn.graphs.graph import Graph

AUTO, NONE = "auto", "none"
SMALL = 1 << 14  # rows of fewer vertices fit into caches in any order
GAIN = 0.95  # an order is used if its misses are at most this share of another order's
HUB = 8  # multiple of the mean degree that makes a hub; rows of hubs are stored side by side
COMMUNITY = 1 << 12  # most vertices of a community, so that its rows fit into a cache
ROUNDS = 5
SPANS = np.array([1 << 13, 1 << 16])  # reads after which a small and a large cache have lost a row
PAGE, PAGE_SPAN = 8, 1 << 13  # rows (of 512 bytes) of a page; reads after which it is lost
SAMPLES, SAMPLE = 16, 1 << 18  # number and length of the samples of reads
VERTEX_BYTES, ENTRY_BYTES = 96, 48  # bytes of memory that ordering needs in addition to the graph


def symmetric_pattern(csr: sp.csr_array) -> sp.csr_array:
    """Return the pattern of A + A^T, bool csr_array (n, n), sorted; explicit zeros are entries."""
    pattern = sp.csr_array((np.ones(csr.nnz, bool), csr.indices, csr.indptr), shape=csr.shape)
    both = sp.csr_array(pattern + pattern.T.tocsr())
    both.sort_indices()
    return both


def rcm_within_parts(graph: Graph, part: np.ndarray, k: int,
                     original_ties: bool = False) -> np.ndarray:
    """Order the vertices of each part by reverse Cuthill-McKee on the edges inside it.

    `graph` has all rows, `part` is (n,) in [0, k); return (n,) int64 new -> old, part
    after part. One RCM over the edges inside parts orders all parts at once, since no
    edge joins two parts. Vertices of equal degree are searched in the order of the
    rows, or with `original_ties` in that of their ORIGINAL numbers.

    Source: A. George, J. W. Liu, Computer Solution of Large Sparse Positive Definite
    Systems, 1981, section 4.2.
    """
    n = graph.header.num_nodes
    part = np.asarray(part)
    if graph.indices.size >= LARGE and not graph.header.directed:
        return _rcm_compiled(graph, part, k, original_ties)
    if original_ties:
        row = np.argsort(graph.vertex)
        return row[rcm_within_parts(graph.in_original_order(), part[row], k)]

    rows = np.repeat(np.arange(n, dtype=graph.indices.dtype), np.diff(graph.indptr))
    inside = part[rows] == part[graph.indices]
    columns = graph.indices[inside]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[inside], minlength=n))])
    intra = sp.csr_array((np.ones(columns.size, bool), columns, indptr), shape=(n, n))
    order = _rcm(symmetric_pattern(intra) if graph.header.directed else intra)
    return order[np.argsort(part[order], kind="stable")]


def random_order(n: int, seed: int) -> np.ndarray:
    """Return a random order of n vertices, (n,) int64 new -> old, drawn by (seed, vertex)."""
    keys = np.random.Philox(key=seed).random_raw(n)
    below = np.uint64((1 << max(1, n - 1).bit_length()) - 1)
    # put the vertex into the low bits: keys become distinct, and sorting needs no argsort
    keys = (keys & ~below) | np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & below).astype(np.int64)


def bandwidth(csr: sp.csr_array) -> int:
    """Return the largest |i - j| over the entries of a CSR matrix; 0 without entries."""
    rows = np.flatnonzero(np.diff(csr.indptr))
    if not rows.size:
        return 0
    starts = csr.indptr[rows]
    below = rows - np.minimum.reduceat(csr.indices, starts)
    return int(max(below.max(), (np.maximum.reduceat(csr.indices, starts) - rows).max(), 0))


def pipeline_stages(n: int, bandwidth: int) -> int:
    """Return the row batches sent before the last one is aggregated (mixgcn, Prop. 3.5)."""
    return -(-2 * n // (n - bandwidth)) if n else 0


def profile(graph: Graph, iperm: np.ndarray) -> dict[str, int]:
    """Return bandwidth and pipeline stages of the stored order and of `iperm`, a dict.

    `iperm` is old -> new.
    """
    n = graph.header.num_nodes
    stored = bandwidth(graph)
    if graph.indices.size >= LARGE:
        from hpgcn.kernels import orders  # late, as it starts the compiler

        ordered = orders.spread(graph.indptr, graph.indices, iperm)
    else:
        rows = np.repeat(np.arange(n), np.diff(graph.indptr))
        ordered = int(np.abs(iperm[rows] - iperm[graph.indices]).max(initial=0))
    return {"bandwidth_stored": stored, "bandwidth": ordered,
            "stages_stored": pipeline_stages(n, stored), "stages": pipeline_stages(n, ordered)}


def _rcm_compiled(graph: Graph, part: np.ndarray, k: int, original_ties: bool) -> np.ndarray:
    """Return the order of `rcm_within_parts`, in compiled passes on all threads."""
    from hpgcn.kernels import orders  # late, as it starts the compiler

    # sort the vertices of each part by the number of their neighbors in it
    degrees = np.empty(part.size, np.int64)
    orders.inner_degrees(graph.indptr, graph.indices, part, degrees)
    if original_ties:
        row = np.empty_like(graph.vertex)
        row[graph.vertex] = np.arange(row.size)
        by_degree = row[np.argsort(degrees[row], kind="stable")]
    else:
        by_degree = np.argsort(degrees, kind="stable")
    by_degree = by_degree[np.argsort(part[by_degree], kind="stable")]
    number = np.empty_like(by_degree)
    number[by_degree] = np.arange(part.size)

    # search each part
    offsets = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=k))])
    order = degrees
    orders.reverse_cuthill_mckee(graph.indptr, graph.indices, part, offsets, by_degree, number,
                                 order)
    return order


def _rcm(symmetric: sp.csr_array) -> np.ndarray:
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # takes long to import

    # SciPy sorts the neighbors of each vertex by degree with an insertion sort, which is
    # quadratic at hubs. Numbering vertices by degree first leaves nothing to sort.
    rows, columns = symmetric.tocoo().coords
    kept = rows != columns
    degrees = np.bincount(rows[kept], minlength=symmetric.shape[0])
    by_degree = np.argsort(degrees, kind="stable")
    number = np.empty(by_degree.size, symmetric.indices.dtype)
    number[by_degree] = np.arange(by_degree.size, dtype=number.dtype)
    coords = (number[rows[kept]], number[columns[kept]])
    ranked = sp.csr_array((np.ones(coords[0].size, bool), coords), shape=symmetric.shape)
    ranked.sort_indices()
    order = reverse_cuthill_mckee(ranked, symmetric_mode=True)
    return by_degree[order].astype(np.int64, copy=False)


def degree(graph: Graph) -> np.ndarray:
    """Order vertices by descending degree; return (n,) int64 new -> old."""
    return np.argsort(-np.diff(graph.indptr), kind="stable")


def rcm(graph: Graph) -> np.ndarray:
    """Order vertices by reverse Cuthill-McKee; return (n,) int64 new -> old."""
    return rcm_within_parts(graph, np.zeros(graph.num_rows, np.int32), 1)


def breadth(graph: Graph) -> np.ndarray:
    """Return an order, (n,) new -> old: hubs by degree, then breadth-first search."""
    indptr, indices = _both_ways(graph)
    return _searched(indptr, indices, np.zeros(indptr.size - 1, np.int64))


def communities(graph: Graph) -> np.ndarray:
    """Return an order, (n,) int64 new -> old: hubs by degree, then by community."""
    from hpgcn.kernels import orders

    indptr, indices = _both_ways(graph)
    most = HUB * max(1, indices.size // max(1, graph.num_rows))
    label = orders.communities(indptr, indices, most, COMMUNITY, ROUNDS)
    return _searched(indptr, indices, label)


ORDERS = {"degree": degree, "rcm": rcm, "breadth": breadth, "communities": communities}
CHOICES = (AUTO, NONE, *ORDERS)


def find_order(graph: Graph, name: str = AUTO) -> tuple[np.ndarray | None, str]:
    """Return an order of all vertices, (n,) int64 new -> old, and a line that describes it.

    `auto` tries breadth-first search, and communities if these have clearly fewer cache
    misses (`misses`). The order is None if neither is better than the present one. So
    it is for the name `none`, and for a graph so small that caches contain its rows.
    UsageError for an unknown name.
    """
    check_order(name)
    if not is_worth_ordering(graph, name):
        return None, ""
    if name != AUTO:
        return ORDERS[name](graph), f"vertices ordered: {name}"

    # search for communities on another thread, as this takes as long as the rest
    from hpgcn.kernels.host.pools import start_pool

    with start_pool(int(default_threads() > 1))[0] as pool:
        searched = pool.submit(communities, graph)
        stored = misses(graph, np.arange(graph.num_rows))
        chosen, order = "breadth", breadth(graph)
        least = misses(graph, order)
        other = searched.result()

    # choose another order only if it has clearly fewer misses
    count = misses(graph, other)
    if count < GAIN * least:
        chosen, order, least = "communities", other, count
    if least > GAIN * stored:
        return None, "vertices keep the order of the input, which no other is clearly better than"
    return order, f"vertices ordered: {chosen}, for {1 - least / stored:.0%} fewer cache misses"


def is_worth_ordering(graph: Graph, name: str) -> bool:
    """Return whether to reorder the vertices: for `auto` only if the graph is large."""
    return name != NONE and (name != AUTO or (graph.num_rows >= SMALL and graph.indices.size > 0))


def check_order(name: str) -> None:
    """Raise UsageError unless `name` is the name of an order."""
    if name not in CHOICES:
        raise UsageError(f"order = {name!r}: expected one of {', '.join(CHOICES)}")


def ordering_bytes(graph: Graph) -> int:
    """Return the bytes of memory to order a graph and write it so."""
    X = graph.features
    entries = graph.indices.size * (2 if graph.header.directed else 1)
    return (VERTEX_BYTES * graph.header.num_nodes + ENTRY_BYTES * entries
            + (X.data.nbytes + X.indices.nbytes if sp.issparse(X) else 0))


def misses(graph: Graph, order: np.ndarray) -> float:
    """Return the expected cache misses per row that a product reads.

    They are summed over two caches and the pages of memory. All reads are counted; in a
    large graph only samples of the reads.
    """
    from hpgcn.kernels import orders

    starts, reads = np.zeros(1, np.int64), graph.indices.size
    if reads > SAMPLES * SAMPLE:
        ends = np.cumsum(np.diff(graph.indptr)[order])
        starts = np.searchsorted(ends, np.arange(SAMPLES) * reads // SAMPLES, side="right")
        reads = SAMPLE
    *counts, looked_at = orders.far_reads(graph.indptr, graph.indices, order, starts, reads, SPANS,
                                          PAGE, PAGE_SPAN)
    return sum(counts) / max(1, looked_at)


def _both_ways(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and columns of the pattern of A + A^T."""
    if not graph.header.directed:
        return graph.indptr, graph.indices
    ones = np.ones(graph.indices.size, bool)
    shape = (graph.num_rows, graph.num_rows)
    both = symmetric_pattern(sp.csr_array((ones, graph.indices, graph.indptr), shape=shape))
    return both.indptr.astype(np.int64), both.indices


def _searched(indptr: np.ndarray, indices: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return an order: hubs, then each group by breadth-first search from low degrees."""
    from hpgcn.kernels import orders

    degrees = np.diff(indptr)
    order = orders.breadth_first(indptr, indices, np.argsort(degrees, kind="stable"), group)
    ordered = degrees[order]
    is_hub = ordered > HUB * degrees.mean()
    hubs = order[is_hub]
    hubs = hubs[np.argsort(-degrees[hubs], kind="stable")]
    return np.concatenate([hubs, order[~is_hub]])

"""Choose the order of the vertices in a file so that products find rows in caches.

A product A H reads the row of H of each neighbor. Raw files often number vertices at
random; then every read goes to memory. The orders here give close numbers to vertices
with common neighbors. Results of a run depend on the original numbers only, so that an
order changes only its time.
"""
import numpy as np
import scipy.sparse as sp

from hpgcn.errors import UsageError
from hpgcn.graphs.reordering import rcm_within_parts, symmetric_pattern
from hpgcn.runtime.machine import default_threads

AUTO, NONE = "auto", "none"
SMALL = 1 << 14  # number of vertices: with fewer, rows lie in caches in any order
GAIN = 0.95  # an order is used if its misses are at most this share of another order's
HUB = 8  # vertices of this multiple of the mean degree are hubs: their rows are stored side by side
COMMUNITY = 1 << 12  # vertices of a community at most: their rows fit into a cache
ROUNDS = 5
SPANS = np.array([1 << 13, 1 << 16])  # reads until a row is gone from a smaller and a larger cache
PAGE, PAGE_SPAN = 8, 1 << 13  # rows of 512 bytes to a page of memory, and reads until it is gone
SAMPLES, SAMPLE = 16, 1 << 18  # places where reads are counted, and how many at each
VERTEX_BYTES, ENTRY_BYTES = 96, 48  # bytes of memory that ordering needs in addition to the graph


def degree(graph):
    """Order vertices by descending degree; return (n,) int64 new -> old."""
    return np.argsort(-np.diff(graph.indptr), kind="stable")


def rcm(graph):
    """Order vertices by reverse Cuthill-McKee; return (n,) int64 new -> old."""
    return rcm_within_parts(graph, np.zeros(graph.num_rows, np.int32), 1)


def breadth(graph):
    """Order hubs by degree, then the other vertices by breadth-first search; return
    (n,) new -> old.
    """
    indptr, indices = _both_ways(graph)
    return _searched(graph, indptr, indices, np.zeros(indptr.size - 1, np.int64))


def communities(graph):
    """Order hubs by degree, then all other vertices by community; return (n,) int64 new
    -> old.
    """
    from hpgcn.kernels import orders

    indptr, indices = _both_ways(graph)
    most = HUB * max(1, indices.size // max(1, graph.num_rows))
    label = orders.communities(indptr, indices, most, COMMUNITY, ROUNDS)
    return _searched(graph, indptr, indices, label)


ORDERS = {"degree": degree, "rcm": rcm, "breadth": breadth, "communities": communities}
CHOICES = (AUTO, NONE, *ORDERS)


def find_order(graph, name=AUTO):
    """Order the vertices of a whole graph; return (n,) int64 new -> old and a line that describes
    it.

    `auto` tries breadth-first search, and communities if these have clearly fewer cache
    misses (`misses`). Return None if neither is better than the present order, for the
    name `none`, and for a graph so small that caches contain its rows. UsageError for
    an unknown name.
    """
    check_order(name)
    if not is_worth_ordering(graph, name):
        return None, ""
    if name != AUTO:
        return ORDERS[name](graph), f"vertices ordered: {name}"

    # the search for communities takes as long as all the rest, and one thread
    from hpgcn.kernels.pools import start_pool

    with start_pool(int(default_threads() > 1))[0] as pool:
        searched = pool.submit(communities, graph)
        stored = misses(graph, np.arange(graph.num_rows))
        chosen, order = "breadth", breadth(graph)
        least = misses(graph, order)
        other = searched.result()

    # the order with clearly fewer misses
    count = misses(graph, other)
    if count < GAIN * least:
        chosen, order, least = "communities", other, count
    if least > GAIN * stored:
        return None, "vertices keep the order of the input, which no other is clearly better than"
    return order, f"vertices ordered: {chosen}, for {1 - least / stored:.0%} fewer cache misses"


def is_worth_ordering(graph, name):
    """Return whether to reorder the vertices: for `auto` only if the graph is large."""
    return name != NONE and (name != AUTO or (graph.num_rows >= SMALL and graph.indices.size > 0))


def check_order(name):
    """Raise UsageError unless `name` is the name of an order."""
    if name not in CHOICES:
        raise UsageError(f"order = {name!r}: expected one of {', '.join(CHOICES)}")


def ordering_bytes(graph):
    """Return the bytes of memory needed to order a graph and to write it in the new
    order.
    """
    X = graph.features
    entries = graph.indices.size * (2 if graph.header.directed else 1)
    return (VERTEX_BYTES * graph.header.num_nodes + ENTRY_BYTES * entries
            + (X.data.nbytes + X.indices.nbytes if sp.issparse(X) else 0))


def misses(graph, order):
    """Return the expected cache misses per row read in a product, summed over two
    caches and the page cache.

    All reads are counted; in a large graph only samples of the reads.
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


def _both_ways(graph):
    """Return row pointers and columns of the pattern of A + A^T."""
    if not graph.header.directed:
        return graph.indptr, graph.indices
    ones = np.ones(graph.indices.size, bool)
    shape = (graph.num_rows, graph.num_rows)
    both = symmetric_pattern(sp.csr_array((ones, graph.indices, graph.indptr), shape=shape))
    return both.indptr.astype(np.int64), both.indices


def _searched(graph, indptr, indices, group):
    """Return an order: first hubs, then each group by breadth-first search from
    vertices of low degree.
    """
    from hpgcn.kernels import orders

    degrees = np.diff(indptr)
    order = orders.breadth_first(indptr, indices, np.argsort(degrees, kind="stable"), group)
    ordered = degrees[order]
    is_hub = ordered > HUB * degrees.mean()
    hubs = order[is_hub]
    hubs = hubs[np.argsort(-degrees[hubs], kind="stable")]
    return np.concatenate([hubs, order[~is_hub]])

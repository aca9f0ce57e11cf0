"""Vertex cuts: edges are assigned to parts; a part has a copy of each vertex of its edges."""
import numpy as np
import scipy.sparse as sp
from numba.cpython.unsafe.numbers import trailing_zeros

from hpgcn.errors import UsageError
from hpgcn.graphs.reordering import random_order
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels.host.jit import jit
from hpgcn.runtime.machine import memory_budget

ONE = np.uint64(1)


def vertex_cut(graph, k, *, seed=0, deal=None, roots=None):
    """Assign the edges of a graph to k parts so that few vertices lie in several parts.

    Both arcs of an edge stay together, on directed graphs as well. Products with A and
    with A^T need the same two rows for an edge, so separate arcs could only add
    replicas.

    Vertices get owners in the order of (parts that hold the vertex, number). Vertices
    without an edge count as held by all parts. Each vertex goes to the part that owns
    the fewest rows among those that hold it; the lowest part wins ties. Loops are not
    assigned like edges: they go to the owner, the root.

    The bit sets of parts take n ceil(k / 64) words.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph
        All rows.
    k : int
        Number of parts, at least 1.
    seed : int
    deal : function (u, v, n, k, seed) -> (edges,) int32, optional
        Returns the part of each edge {u[e], v[e]}, u < v; edges are sorted and occur
        once. `libra`, the default, or `hpgcn.partition.nonzeros.expansion.expand`.
    roots : function (held, k, seed) -> (n,) int32, optional
        Returns the owner of each vertex: `random_roots`, or by default as above.

    Returns
    -------
    edge_part : (nnz,) int32
        Part of each stored entry of the graph, in its own order. a[u, v] and a[v, u]
        have the same part, a[v, v] that of its root.
    owner : (n,) int32
        Root of each vertex: one of the parts that hold it, or any part if it has no
        edge.

    Raises
    ------
    UsageError
        The parts of all vertices do not fit into memory.

    References
    ----------
    Md et al., DistGNN, SC 2021, section 5.1.
    """
    n = graph.num_rows
    words = -(-k // 64)
    needed = 8 * n * words
    memory = memory_budget()
    if needed > memory:
        raise UsageError(f"{graph.header.name}: up to {k} parts for each of {n} vertices need "
                         f"{needed} bytes, but the limit is {memory}; use fewer parts")

    # deal each edge once, by its arc above the diagonal
    both = _both_arcs(graph)
    rows = np.repeat(np.arange(n, dtype=both.indices.dtype), np.diff(both.indptr))
    above = rows < both.indices
    loop = rows == both.indices
    u = rows[above]
    v = both.indices[above]
    part = (deal or libra)(u, v, n, k, seed)
    owner = (roots or _deal_vertices)(_part_sets(u, v, part, n, words), k, seed)

    # give both arcs the part of the edge, and loops that of their vertex
    arc_part = np.empty(both.nnz, np.int32)
    arc_part[above] = part
    # the arcs below the diagonal, row by row, are those above it column by column
    arc_part[~(above | loop)] = sp.coo_array((part, (u, v)), shape=(n, n)).tocsc().data
    arc_part[loop] = owner[rows[loop]]
    return arc_part[both.data % 2 == 1], owner


def libra(u, v, n, k, seed):
    """Assign edges to parts one by one, in the order of keys drawn from (seed, number).

    An edge goes to the least loaded of some parts:

    - all parts, if neither end is in a part yet;
    - the parts of one end, if the other end is in none;
    - the parts that both ends share, if there are any;
    - else the parts of the end of lower degree, or of lower number.

    The load is the edges of a part, the degree is the final one, and the lowest part
    wins ties. The work is O(edges k / 64 + parts that are compared) operations of one
    thread.

    Xie et al., Distributed power-law graph computing, NIPS 2014.
    """
    degree = np.bincount(u, minlength=n) + np.bincount(v, minlength=n)
    order = random_order(u.size, seed)
    part = np.empty(u.size, np.int32)
    # gathering the ends first is four times as fast
    part[order] = _deal_edges(u[order], v[order], degree, _all_parts(k), k)
    return part


def _both_arcs(graph):
    """Return A + A^T as sorted CSR (n, n) of uint8: 1 entry of A, 2 of A^T, 3 of both."""
    nnz = graph.indices.size
    indptr = graph.indptr.astype(index_dtype(nnz), copy=False)  # else SciPy would widen the columns
    stored = sp.csr_array((np.ones(nnz, np.uint8), graph.indices, indptr),
                          shape=(graph.num_rows, graph.num_rows))
    transposed = stored.T.tocsr()
    transposed.data[:] = 2
    both = sp.csr_array(stored + transposed)
    both.sort_indices()
    return both


@jit(inner=True)
def _least_loaded(parts, load):
    """Return the least loaded part in a non-empty bit set; the lowest part wins ties."""
    best = np.int64(-1)
    least = np.iinfo(np.int64).max
    for word in range(parts.size):
        rest = parts[word]
        while rest:
            p = 64 * word + np.int64(trailing_zeros(rest))
            rest &= rest - ONE
            lower = load[p] < least
            best = p if lower else best  # a branch would be mispredicted
            least = load[p] if lower else least
    return best


def _all_parts(k):
    """Return the bit set of all parts, (words,) uint64."""
    bits = (1 << k) - 1
    return np.array([bits >> low & (1 << 64) - 1 for low in range(0, k, 64)], np.uint64)


@jit()
def _deal_edges(u, v, degree, every, k):
    """Apply Libra's rule to the edges (u[e], v[e]) in this order; return their parts, (edges,).

    `every` is the bit set of all parts.
    """
    part = np.empty(u.size, np.int32)
    words = every.size
    held = np.zeros((degree.size, words), np.uint64)
    load = np.zeros(k, np.int64)
    among = np.empty(words, np.uint64)
    for e in range(u.size):
        # parts of the two ends
        a = u[e]
        b = v[e]
        any_a = any_b = common = np.uint64(0)
        for word in range(words):
            any_a |= held[a, word]
            any_b |= held[b, word]
            common |= held[a, word] & held[b, word]
        stays = a if not any_b or (any_a and degree[a] <= degree[b]) else b

        # candidates: parts of both ends, else of one, else all
        for word in range(words):
            if common:
                among[word] = held[a, word] & held[b, word]
            elif any_a or any_b:
                among[word] = held[stays, word]
            else:
                among[word] = every[word]

        # the least loaded candidate takes the edge
        p = _least_loaded(among, load)
        bit = ONE << np.uint64(p & 63)
        held[a, p >> 6] |= bit
        held[b, p >> 6] |= bit
        load[p] += 1
        part[e] = p
    return part


@jit()
def _part_sets(u, v, part, n, words):
    """Return the bit set of parts of each vertex, (n, words) uint64."""
    held = np.zeros((n, words), np.uint64)
    for e in range(u.size):
        bit = ONE << np.uint64(part[e] & 63)
        held[u[e], part[e] >> 6] |= bit
        held[v[e], part[e] >> 6] |= bit
    return held


def _deal_vertices(held, k, seed):
    """Choose the owner of each vertex, (n,) int32; vertices of the fewest parts come first."""
    replicas = _sizes(held)
    alone = replicas == 0
    held[alone] = _all_parts(k)
    replicas[alone] = k
    order = np.argsort(replicas, kind="stable")
    return _deal_rows(held, order, np.empty(order.size, np.int32), np.zeros(k, np.int64))


def random_roots(held, k, seed):
    """Draw the owner of each vertex, (n,) int32, among its parts (distgnn-2021, section 5.3).

    Draws depend only on (seed, vertex). Vertices without an edge go to the parts with
    the fewest rows.
    """
    replicas = _sizes(held)
    draws = np.random.Philox(key=np.array([seed, 1], np.uint64)).random_raw(replicas.size)
    owner = _nth_part(held, (draws % np.maximum(replicas, 1).astype(np.uint64)).astype(np.int64))
    alone = np.flatnonzero(replicas == 0)
    held[alone] = _all_parts(k)
    rows = np.bincount(owner[replicas > 0], minlength=k).astype(np.int64)
    return _deal_rows(held, alone, owner, rows)


@jit()
def _nth_part(held, numbers):
    """Return the part at position numbers[v], from 0, in the bit set of each vertex, (n,) int32."""
    found = np.zeros(numbers.size, np.int32)
    for vertex in range(numbers.size):
        left = numbers[vertex]
        for word in range(held.shape[1]):
            rest = held[vertex, word]
            while rest:
                if left == 0:
                    found[vertex] = 64 * word + np.int64(trailing_zeros(rest))
                left -= 1
                rest &= rest - ONE
    return found


@jit()
def _deal_rows(held, order, owner, rows):
    """Assign each vertex, in this order, to the part with the fewest `rows` that holds it."""
    for vertex in order:
        p = _least_loaded(held[vertex], rows)
        owner[vertex] = p
        rows[p] += 1
    return owner


@jit()
def _sizes(sets):
    """Count the elements of each bit set, (m,) int64, of `sets` (m, words) uint64."""
    sizes = np.zeros(sets.shape[0], np.int64)
    for i in range(sets.shape[0]):
        for word in range(sets.shape[1]):
            rest = sets[i, word]
            while rest:
                sizes[i] += 1
                rest &= rest - ONE
    return sizes

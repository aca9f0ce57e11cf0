"""Vertex cut: edges are dealt to parts, and a vertex is held by every part that has an edge of it (Libra)."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba.cpython.unsafe.numbers import trailing_zeros

from hpgcn.check import index_dtype
from hpgcn.errors import UsageError
from hpgcn.kernels.jit import jit
from hpgcn.machine import memory_budget
from hpgcn.operator import with_self_loops
from hpgcn.partition.partition import check_parts
from hpgcn.partition.quality import imbalance
from hpgcn.reorder import random_order

ONE = np.uint64(1)


@dataclass(frozen=True, eq=False)
class VertexCut:
    """Part of every edge, and the root of every vertex.

    Attributes
    ----------
    edge_part : (nnz,) int32
        Part of each stored entry of the graph, in its own order. a[u, v] and a[v, u] have the same part, a[v, v] that
        of its root.
    owner : (n,) int32
        Root of each vertex: one of the parts that hold it, or any part if it has no edge.
    """

    edge_part: np.ndarray
    owner: np.ndarray


def vertex_cut(graph, k, *, seed=0):
    """Deal the edges of a graph to k parts so that few vertices lie in several (Libra).

    The edges {u, v}, u < v, each once, are numbered by (u, v) and visited in the order of keys drawn from (seed,
    number). An edge whose ends

    - are both in no part yet goes to the least loaded part,
    - one of which is in some part, to the least loaded part of that one,
    - share parts, to the least loaded of these,
    - lie in different parts, to the least loaded part of the end of lower degree (of equal degree: the lower number),

    where the load is the edges of a part, the degree is the final one without loops, and ties go to the lowest part.
    Both arcs of an edge are one, on directed graphs too: products with A and with A^T need the same two rows beside
    an edge, so that arcs kept together share their clones, and arcs kept apart could only add some.

    Roots: vertices are taken in the order of (parts that hold it, number), those without an edge as if held by all
    parts; each is owned by the part that owns the fewest rows among those that hold it, ties to the lowest. Loops are
    no part of the stream; they go to the root.

    Takes O(edges k/64 + parts looked at) operations, one thread, and n ceil(k/64) words of memory beside arrays of the
    length of the edges.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows.
    k : int
        Number of parts, at least 1.
    seed : int

    Returns
    -------
    VertexCut
        The same arguments give the same parts.

    Raises
    ------
    UsageError
        The parts of all vertices do not fit into memory.

    References
    ----------
    Md et al., DistGNN, SC 2021, section 5.1; Xie et al., Distributed power-law graph computing, NIPS 2014.
    """
    n, words = graph.num_rows, -(-k // 64)
    need, memory = 8 * n * words, memory_budget()
    if need > memory:
        raise UsageError(f"{graph.header.name}: the parts of {n} vertices, {k} at most each, need {need} bytes of "
                         f"memory, but only {memory} may be used; take fewer parts")
    both = _both_arcs(graph)
    rows = np.repeat(np.arange(n, dtype=both.indices.dtype), np.diff(both.indptr))
    above, loop = rows < both.indices, rows == both.indices
    u, v = rows[above], both.indices[above]
    degree = np.bincount(u, minlength=n) + np.bincount(v, minlength=n)
    order = random_order(u.size, seed)
    part = np.empty(u.size, np.int32)
    part[order], held = _deal_edges(u[order], v[order], degree, k, words)  # gathered beforehand: four times as fast
    owner = _deal_vertices(held, k)
    arc_part = np.empty(both.nnz, np.int32)
    arc_part[above] = part
    # the arcs below the diagonal, row by row, are those above it column by column
    arc_part[~(above | loop)] = sp.coo_array((part, (u, v)), shape=(n, n)).tocsc().data
    arc_part[loop] = owner[rows[loop]]
    return VertexCut(arc_part[both.data % 2 == 1], owner)


def vertex_cut_statistics(graph, edge_part, owner, k):
    """Count what a vertex cut costs: an exchange of width 1 takes rows of H from roots to clones, or sums back.

    A part holds a vertex if it has one of its edges, as row or as column, or owns it; a clone is a vertex held by a
    part that does not own it. Both ways move the same rows between the same pairs, with sender and receiver
    exchanged. On a directed graph a product reads only the clones that are columns, and sums only those that are rows:
    the numbers bound both, and are what a forward and a backward together must keep.

    Parameters
    ----------
    graph : hpgcn.graph.Graph
        All rows.
    edge_part : (nnz,) integers in [0, k)
        Part of each stored entry.
    owner : (n,) integers in [0, k)
    k : int

    Returns
    -------
    dict
        replication_factor: mean number of parts that hold a vertex;
        volume, volume_max, volume_avg: rows sent from roots to clones, in total, by the part that sends most, per
        part; on the way back volume_max rows are received by one part;
        ghosts_max: clones of the part that has most, received from roots, sent on the way back;
        messages, messages_max, messages_avg: non-empty (root's part, clone's part) pairs, in total, by the part that
        sends most, per part;
        imbalance_nnz, imbalance_rows: max / mean - 1 over parts, of nonzeros (the diagonal counted, at the root where
        none is stored) and of rows owned.
        Counts are int, means and imbalances float.

    Raises
    ------
    DataError
        `edge_part` or `owner` does not fit the graph, or holds a part outside 0..k-1.
    """
    edge_part = check_parts(edge_part, k, n=graph.indices.size, where="edge_part", what="entry")
    owner = check_parts(owner, k, n=graph.num_rows, where="owner")
    rows = np.bincount(owner, minlength=k)
    held = _holders(graph.indptr, graph.indices, edge_part, owner, -(-k // 64))
    replicas = _sizes(held)
    holds, reached = _by_part(held, owner, k)
    sent, received = np.bincount(owner, replicas - 1, k).astype(np.int64), holds - rows
    messages = _sizes(reached) - (rows > 0)  # a part that owns something reaches itself
    _, _, _, added = with_self_loops(graph)
    nonzeros = np.bincount(edge_part, minlength=k) + np.bincount(owner, added, k)
    return {
        "volume": int(sent.sum()), "volume_max": int(sent.max()), "volume_avg": float(sent.sum() / k),
        "ghosts_max": int(received.max()),
        "messages": int(messages.sum()), "messages_max": int(messages.max()), "messages_avg": float(messages.sum() / k),
        "replication_factor": float(replicas.mean()) if replicas.size else 1.0,
        "imbalance_nnz": imbalance(nonzeros), "imbalance_rows": imbalance(rows),
    }


def _both_arcs(graph):
    """Pattern of A + A^T, csr_array (n, n) of uint8 with sorted columns: 1 stored, 2 its transpose is, 3 both."""
    nnz = graph.indices.size
    indptr = graph.indptr.astype(index_dtype(nnz), copy=False)  # keeps SciPy from widening the column numbers
    stored = sp.csr_array((np.ones(nnz, np.uint8), graph.indices, indptr), shape=(graph.num_rows, graph.num_rows))
    transposed = stored.T.tocsr()
    transposed.data[:] = 2
    both = sp.csr_array(stored + transposed)
    both.sort_indices()
    return both


@jit()
def _least_loaded(parts, load):
    """Least loaded part, the lowest of equals, of a bit set (words,) uint64 that is not empty."""
    best, least = np.int64(-1), np.iinfo(np.int64).max
    for word in range(parts.size):
        rest = parts[word]
        while rest:
            p = 64 * word + np.int64(trailing_zeros(rest))
            rest &= rest - ONE
            lower = load[p] < least
            best, least = p if lower else best, load[p] if lower else least  # no branch to mispredict
    return best


@jit()
def _all_parts(k, words):
    every = np.zeros(words, np.uint64)
    for p in range(k):
        every[p >> 6] |= ONE << np.uint64(p & 63)
    return every


@jit()
def _deal_edges(u, v, degree, k, words):
    """Libra's rule over the edges (u[e], v[e]), in this order.

    Returns
    -------
    part : (edges,) int32
    held : (n, words) uint64
        Bit set of the parts that hold each vertex.
    """
    part = np.empty(u.size, np.int32)
    held = np.zeros((degree.size, words), np.uint64)
    load = np.zeros(k, np.int64)
    every, among = _all_parts(k, words), np.empty(words, np.uint64)
    for e in range(u.size):
        a, b = u[e], v[e]
        any_a = any_b = common = np.uint64(0)
        for word in range(words):
            any_a |= held[a, word]
            any_b |= held[b, word]
            common |= held[a, word] & held[b, word]
        stays = a if not any_b or (any_a and degree[a] <= degree[b]) else b
        for word in range(words):
            if common:
                among[word] = held[a, word] & held[b, word]
            elif any_a or any_b:
                among[word] = held[stays, word]
            else:
                among[word] = every[word]
        p = _least_loaded(among, load)
        bit = ONE << np.uint64(p & 63)
        held[a, p >> 6] |= bit
        held[b, p >> 6] |= bit
        load[p] += 1
        part[e] = p
    return part, held


def _deal_vertices(held, k):
    """Owner of each vertex, (n,) int32: those that fewest parts hold first, to the part that owns fewest rows."""
    replicas = _sizes(held)
    alone = replicas == 0
    held[alone], replicas[alone] = _all_parts(k, held.shape[1]), k
    return _deal_rows(held, np.argsort(replicas, kind="stable"), k)


@jit()
def _deal_rows(held, order, k):
    owner = np.empty(order.size, np.int32)
    rows = np.zeros(k, np.int64)
    for vertex in order:
        p = _least_loaded(held[vertex], rows)
        owner[vertex] = p
        rows[p] += 1
    return owner


@jit()
def _sizes(sets):
    """Elements of each bit set, (m,) int64, of `sets` (m, words) uint64."""
    sizes = np.zeros(sets.shape[0], np.int64)
    for i in range(sets.shape[0]):
        for word in range(sets.shape[1]):
            rest = sets[i, word]
            while rest:
                sizes[i] += 1
                rest &= rest - ONE
    return sizes


@jit()
def _holders(indptr, indices, edge_part, owner, words):
    """Bit set of the parts that hold each vertex, (n, words) uint64: those of its entries, and its owner."""
    held = np.zeros((owner.size, words), np.uint64)
    for row in range(owner.size):
        held[row, owner[row] >> 6] |= ONE << np.uint64(owner[row] & 63)
        for entry in range(indptr[row], indptr[row + 1]):
            p = edge_part[entry]
            held[row, p >> 6] |= ONE << np.uint64(p & 63)
            held[indices[entry], p >> 6] |= ONE << np.uint64(p & 63)
    return held


@jit()
def _by_part(held, owner, k):
    """Vertices that each part holds, (k,) int64, and the parts that hold any vertex of its own, (k, words) uint64."""
    holds = np.zeros(k, np.int64)
    reached = np.zeros((k, held.shape[1]), np.uint64)
    for vertex in range(owner.size):
        for word in range(held.shape[1]):
            rest = held[vertex, word]
            reached[owner[vertex], word] |= rest
            while rest:
                holds[64 * word + np.int64(trailing_zeros(rest))] += 1
                rest &= rest - ONE
    return holds, reached

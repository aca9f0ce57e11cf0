"""Rows that ranks send between nodes and within them, if each row crosses to a node once.

A node-aware exchange sends a row once to every other node that reads it, to one rank of
that node: the gateway. The gateway sends it on to the other ranks of its node that read
it. Ranks of the owner's node receive it from the owner.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.threads import Threaded, chunks
from hpgcn.parallel.pattern_counts import WORD


def count_node_ghosts(indptr, indices, part, offsets, nodes, order=None):
    """Count the columns of each part that the rows of each other node read, each once.

    Parameters
    ----------
    indptr, indices : (n + 1,), (nnz,) integers
        Pattern of the matrix; columns need not be sorted.
    part : (n,) integers
        Part that owns each row and column.
    offsets : (P + 1,) integers
        Part p owns the rows order[offsets[p]:offsets[p + 1]].
    nodes : (P,) integers
        Node of each part, from 0; every node has a part.
    order : (n,) integers, optional
        Rows, part by part; by default 0..n-1.

    Returns
    -------
    (N, P) int64
        Rows that part q sends to node m in a node-aware exchange; 0 if q is on m.

    Examples
    --------
    >>> from hpgcn.parallel.nodes.node_counts import count_node_ghosts
    >>> indptr, indices = np.array([0, 1, 3, 4, 6]), np.array([2, 0, 2, 1, 0, 1])
    >>> count_node_ghosts(indptr, indices, np.arange(4), np.arange(5), np.array([0, 0, 1, 1]))
    array([[0, 0, 1, 0],
           [1, 1, 0, 0]])
    """
    nodes = np.asarray(nodes, np.int64)
    count = int(nodes.max()) + 1
    ghosts = np.zeros((count, nodes.size), np.int64)
    if count > 1:
        order = np.arange(part.size) if order is None else order
        members = np.argsort(nodes, kind="stable")  # parts of node 0, then of node 1, ...
        bounds = run_offsets(np.bincount(nodes))
        _count_node_ghosts(indices.size, indptr.astype(np.int64, copy=False), indices,
                           order.astype(np.int64, copy=False), np.asarray(offsets, np.int64),
                           part.astype(np.int32, copy=False), nodes, members, bounds, ghosts)
    return ghosts


def _count_node_chunks(next_chunk, indptr, indices, order, offsets, part, nodes, members, bounds,
                       ghosts):
    """Fill the rows of `ghosts`, one node after the other."""
    words = (part.size >> WORD) + 1
    for m in chunks(next_chunk, bounds.size - 1):
        seen = np.zeros(words, np.uint64)  # bits of the columns that this node reads
        for place in range(bounds[m], bounds[m + 1]):
            p = members[place]
            for t in range(offsets[p], offsets[p + 1]):
                i = order[t]
                for e in range(indptr[i], indptr[i + 1]):
                    j = indices[e]
                    word = j >> WORD
                    bit = np.uint64(1) << np.uint64(j & ((1 << WORD) - 1))
                    if seen[word] & bit == 0:
                        seen[word] |= bit
                        q = part[j]
                        if nodes[q] != m:
                            ghosts[m, q] += 1


_count_node_ghosts = Threaded(_count_node_chunks)


def paired_gateways(nodes):
    """Return the gateway of each node for the rows of each part, (N, P) int64.

    The parts of a node have numbers in it from 0. Rows of part q, number l of its node,
    go to the part with number l modulo the number of parts of the other node.
    """
    nodes = np.asarray(nodes, np.int64)
    sizes = np.bincount(nodes)
    members = np.argsort(nodes, kind="stable")
    first = run_offsets(sizes)[:-1]
    local = np.empty_like(nodes)
    local[members] = np.arange(nodes.size) - first[nodes[members]]
    return members[first[:, None] + local % sizes[:, None]]


@dataclass(frozen=True, eq=False)
class NodeVolumes:
    """Rows that each rank sends and receives in a node-aware exchange; (P,) int64 each."""

    sent_between: np.ndarray  # to gateways of other nodes
    received_between: np.ndarray
    sent_within: np.ndarray  # own rows to ranks of the node, and rows sent on as a gateway
    received_within: np.ndarray

    @staticmethod
    def of(ghosts, node_ghosts, nodes, gateways=None):
        """Return the volumes of an exchange.

        Parameters
        ----------
        ghosts : (P, P) int64
            Rows of rank q that rank p reads, as of `Pattern.ghosts`.
        node_ghosts : (N, P) int64
            As of `count_node_ghosts`.
        nodes : (P,) integers
        gateways : (N, P) integers, optional
            Rank of node m that receives the rows of rank q; by default
            `paired_gateways`.
        """
        # between nodes, a row goes from its owner to a gateway
        gateways = paired_gateways(nodes) if gateways is None else gateways
        ranks = ghosts.shape[0]
        received = np.bincount(gateways.ravel(), node_ghosts.ravel(), ranks).astype(np.int64)

        # within a node, it goes from its owner or its gateway to each other reader
        source = np.asarray(gateways)[nodes].copy()  # [p, q]: rank from which p gets rows of q
        own = np.equal.outer(nodes, nodes)
        source[own] = np.broadcast_to(np.arange(ranks), own.shape)[own]
        passed = np.where(source == np.arange(ranks)[:, None], 0, ghosts)
        return NodeVolumes(
            node_ghosts.sum(0), received,
            np.bincount(source.ravel(), passed.ravel(), ranks).astype(np.int64), passed.sum(1))


def least_volumes(ghosts, node_ghosts):
    """Return the rows sent between nodes, and those within nodes if gateways read all
    rows that they receive.
    """
    between = int(node_ghosts.sum())
    return between, int(ghosts.sum()) - between

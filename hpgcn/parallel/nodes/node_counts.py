"""Count the rows that cross nodes, if each row is sent once to every other node that reads it."""
import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.entries import bit_in_word
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
                    bit = bit_in_word(j)
                    if seen[word] & bit == 0:
                        seen[word] |= bit
                        q = part[j]
                        if nodes[q] != m:
                            ghosts[m, q] += 1


_count_node_ghosts = Threaded(_count_node_chunks)

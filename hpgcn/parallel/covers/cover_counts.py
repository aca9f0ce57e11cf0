"""Count rows, columns and entries of balanced covers, without a holder for each entry."""
from itertools import pairwise

import numpy as np

from hpgcn.kernels.threads import Threaded, chunks
from hpgcn.parallel.covers.cover_balance import balance
from hpgcn.parallel.covers.cover_blocks import MATCHED, MIXED, BlockEntries
from hpgcn.parallel.covers.pushed_graph import PushedGraph


def count_balanced_cover(pattern, loads, limit):
    """Count the rows, columns and entries of blocks by holder; (5, P, P) int64, as
    `hpgcn.parallel.pattern_counts.count_held`.

    The holders are those of `hpgcn.parallel.vertex_covers.balanced_cover` for rows in
    the order of runs.

    Parameters
    ----------
    pattern : hpgcn.parallel.pattern.BlockPattern
    loads, limit : (P,) int64 ndarray, int
        As for `balanced_cover`.
    """
    # minimum covers, and the entries of their sums
    offsets = pattern.offsets
    counts, touched = pattern.nonzeros(offsets, offsets), pattern.touched_rows(offsets, offsets)
    ghosts, _ = pattern.ghosts(offsets)
    whole, ranks = pattern.whole, offsets.size - 1
    entries = BlockEntries(whole.indptr, whole.indices, pattern.part, pattern.part, ranks,
                           pattern.order, counts)
    sizes = np.zeros((4, ranks, ranks), np.int64)
    pushed = [_pushed(group, each, sizes) for group, each in entries.covered_groups(
        np.zeros(whole.indices.size, np.uint8), True, sizes)]
    sums, columns, held, mixed = sizes
    sent = 0  # columns that are sent although a sum had covered them

    # take sums back from ranks beyond the limit
    change = held.sum(0) - held.sum(1)
    most = np.maximum(limit, loads)
    if np.any(loads + change > most):
        graph = _graph(pushed, sizes, whole.num_rows)
        mixed_sums = _number_rows(graph, pattern)
        balance(graph, loads + change, most, lambda array: array)
        sent, sums, columns, held, mixed = _kept(graph, mixed_sums, ranks)

    # rows and columns that stay with the owner of the row
    np.fill_diagonal(touched := touched.copy(), 0)
    return np.array([ghosts - sizes[1] + sent, touched - sums + mixed, sums, columns, held])


def _pushed(group, entries, sizes):
    """Return the rows and the columns of the PUSHED entries of a group, block by block.

    Arguments are those that `BlockEntries.covered_groups` yields, and the counts. A row
    is stored as -1 - r if its entries are MIXED, a column as -1 - c if they are MATCHED.
    """
    first, last, offsets = group
    bounds = np.append(0, np.cumsum(sizes[2, first:last]))
    found = np.empty((2, int(bounds[-1])), np.int32)
    _copy_pushed(entries[0].size, offsets, bounds, *entries, *found)
    return found


def _graph(pushed, sizes, num_columns):
    """Return the PushedGraph of the entries in a list of `_pushed`, which is emptied."""
    graph = PushedGraph.empty(sizes)
    start = 0
    while pushed:
        rows, columns = pushed.pop(0)
        stop = start + rows.size
        graph.cadj[start:stop], graph.adj[start:stop] = rows, columns
        start = stop
    return graph.build(num_columns)


def _number_rows(graph, pattern):
    """Change the rows of a PushedGraph to their numbers in the order of runs; return
    which sums are MIXED, (S,) bool.
    """
    mixed = graph.row < 0
    np.subtract(-1, graph.row, out=graph.row, where=mixed)
    offsets = pattern.offsets
    number = np.empty(pattern.num_rows, np.int32)
    number[pattern.run_order] = np.arange(pattern.num_rows)
    bounds = graph.sums[np.searchsorted(graph.giver, np.arange(offsets.size))]
    for p, (first, last) in enumerate(pairwise(bounds)):
        own = number[offsets[p]:offsets[p + 1]] - offsets[p]
        graph.row[first:last] = own[graph.row[first:last]]
    return mixed


def _kept(graph, mixed, ranks):
    """Count the rest of a PushedGraph after `balance`, (5, P, P) int64.

    The counts are columns that are sent, sums, columns and entries of sums, and sums
    with `mixed`, (S,) bool.
    """
    blocks = graph.giver.size
    found = np.zeros((5, blocks), np.int64)
    width = int(np.diff(graph.columns).max(initial=0))
    _count_kept(graph.adj.size, width, graph.sums, graph.columns, graph.edges, graph.ptr, graph.adj,
                graph.passing, graph.fresh, mixed, found)
    kept = np.zeros((5, ranks, ranks), np.int64)
    kept[:, graph.giver, graph.taker] = found
    return kept


def _copy_pushed_blocks(next_chunk, offsets, bounds, rows, columns, bits, pushed_rows,
                        pushed_columns):
    """Copy the rows and columns of PUSHED entries of one block after the other."""
    for b in chunks(next_chunk, bounds.size - 1):
        at = bounds[b]
        for e in range(offsets[b], offsets[b + 1]):
            if bits[e]:
                pushed_rows[at] = -1 - rows[e] if bits[e] & MIXED else rows[e]
                pushed_columns[at] = -1 - columns[e] if bits[e] & MATCHED else columns[e]
                at += 1


def _count_kept_blocks(next_chunk, most_columns, sums, columns, edges, ptr, adj, passing, fresh,
                       mixed, found):
    """Fill in the counts of one block after the other."""
    last_block = np.full(most_columns, -1, np.int64)  # last block in which a column has a sum
    for b in chunks(next_chunk, found.shape[1]):
        for c in range(columns[b], columns[b + 1]):
            found[0, b] += passing[c]
        for s in range(sums[b], sums[b + 1]):
            if fresh[s] < 0:
                continue
            found[1, b] += 1
            found[4, b] += mixed[s]
            first, last = ptr[s + b], ptr[s + b + 1]
            found[3, b] += last - first
            for e in range(first, last):
                c = adj[edges[b] + e]
                found[2, b] += last_block[c] != b
                last_block[c] = b


_copy_pushed = Threaded(_copy_pushed_blocks)
_count_kept = Threaded(_count_kept_blocks)

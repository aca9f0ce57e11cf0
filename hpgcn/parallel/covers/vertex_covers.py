"""Choose the nonzeros that the owner of the column sums, by minimum vertex covers of blocks.

A nonzero in the rows of rank p and the columns of rank q is held by p or by q. Rank p
receives its row of H, or q sends a partial sum for its row of the product. The block is
a bipartite graph of sums, its rows, and of its columns. The fewest rows and sums that q
sends to p are a minimum vertex cover of this graph, which follows from a maximum
matching (Koenig). A partial sum reads rows of H that q owns. So it is computed before
anything arrives, and sent in the message of the rows. Source: Kayaaslan, Aykanat and
Ucar, SIAM J. Sci. Comput. 40(4), 2018.

The cover is that of the coarse Dulmage-Mendelsohn decomposition. It is the same for
every maximum matching, so it does not depend on the number of threads. Readers (the
ranks p) are processed in groups, whose entries are copied block by block.

All functions take the nonzeros of one rank's rows, or of all ranks'. Blocks do not
depend on each other, and ranks need only sums over all others.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.parallel.covers.cover_balance import PushedGraph, balance
from hpgcn.parallel.covers.matchings import augment, begin
from hpgcn.parallel.pattern_counts import count_blocks

GROUP = 1 << 24  # entries that a group of readers has at most, if it has more than one reader
PUSHED, MATCHED = 1, 2  # bits of an entry: its sum covers it, and the matching has it as well


def balanced_cover(matrix: Any, reader: np.ndarray, owner: np.ndarray, loads: np.ndarray,
                   limit: int, total: Callable = lambda array: array, *,
                   order: np.ndarray | None = None, numbers: Callable | None = None) -> np.ndarray:
    """Return which nonzeros the owners of columns sum, (nnz,) bool.

    They are chosen so that few rows and sums are sent. The choice is a minimum cover of
    each block, by its coarse Dulmage-Mendelsohn decomposition. It does not depend on
    the other blocks. But no rank may take nonzeros beyond a limit. If one would, the
    original ranks take back the sums of least cost for each nonzero. The cost of a sum
    is the number of rows of H sent in its place, less one. No block sends more rows and
    sums than it has columns, which are sent if nothing is summed.

    Parameters
    ----------
    matrix : csr_array (m, n)
        Only the pattern is read. Columns need not be sorted.
    reader, owner : (m,), (n,) integers
        Ranks that own each row, and each column.
    loads : (P,) int64
        Nonzeros in the rows that each rank owns, over all ranks.
    limit : int
        Most nonzeros that a rank may hold. A rank whose own rows have more takes none.
    total : function of an integer array, optional
        Sums it over ranks, where each gives the nonzeros of its own rows.
    order : (m,), optional
        Rows by reader, as for BlockEntries.
    numbers : function, optional
        Returns the number of each row in `order`, (m,), by which sums of the same cost
        are taken back. It is called only if some are.
    """
    entries = BlockEntries(matrix.indptr, matrix.indices, reader, owner, loads.size, order)
    flags = np.zeros(entries.indices.size, np.uint8)
    if not total(np.array([len(entries)])).any():
        return flags.astype(bool)

    # the smallest cover: each sum relieves one rank, and loads another
    sizes = entries.cover(flags, whole=True)
    held = loads + total(sizes[2].sum(0) - sizes[2].sum(1))
    most = np.maximum(limit, loads)

    # take sums back from ranks beyond the limit
    if np.any(held > most):
        graph = entries.pushed_graph(flags, sizes)
        if numbers is not None:
            first = np.repeat(entries.starts[graph.giver], np.diff(graph.sums))
            graph.row[:] = numbers()[first + graph.row]
        balance(graph, held, most, total)
        entries.take_back(flags, graph)
    return (flags & PUSHED).astype(bool)


def trimmed_cover(matrix: Any, reader: np.ndarray, owner: np.ndarray,
                  pushed: np.ndarray) -> np.ndarray:
    """Give up the partial sums that cost more than the rows sent in their place.

    Parameters
    ----------
    pushed : (nnz,) bool
        The choice, of `balanced_cover` for example, of which some nonzeros may be left
        out by now.

    The others are those of `balanced_cover`.

    Returns
    -------
    (nnz,) bool
        Some of `pushed`. No block passes more rows and sums than it has columns, nor than it
        passes by `pushed`.
    """
    ranks = 1 + max(int(np.max(each, initial=0)) for each in (reader, owner))
    entries = BlockEntries(matrix.indptr, matrix.indices, reader, owner, ranks)
    flags = np.asarray(pushed).astype(np.uint8)
    entries.cover(flags, whole=False)
    return flags.astype(bool)


class BlockEntries:
    """Entries of a CSR matrix, grouped by the owners of their rows and of their columns.

    Parameters
    ----------
    indptr, indices : (m + 1,), (nnz,)
        Columns need not be sorted.
    reader, owner : (m,), (n,)
        Ranks that own each row, and each column.
    ranks : int
        Number of ranks (P).
    order : (m,), optional
        Rows by reader. By default those of a reader are in increasing order.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, reader: np.ndarray,
                 owner: np.ndarray, ranks: int, order: np.ndarray | None = None) -> None:
        self.indptr = np.asarray(indptr, np.int64)
        self.indices = np.asarray(indices, np.int32)
        self.owner = np.asarray(owner, np.int32)
        self.ranks = ranks

        # rows by reader
        order = np.argsort(reader, kind="stable") if order is None else order
        self.order = np.asarray(order, np.int32)
        self.starts = run_offsets(np.bincount(reader, minlength=ranks))

        # entries of each block, except for those of one rank
        self.counts, _ = count_blocks(self.indptr, self.indices, self.starts, self.owner, ranks,
                                      self.order)
        np.fill_diagonal(self.counts, 0)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.indptr, self.indices, self.order, self.starts, self.owner

    def __len__(self) -> int:
        """Return the number of entries whose row and column have different owners."""
        return int(self.counts.sum())

    def cover(self, flags: np.ndarray, whole: bool) -> np.ndarray:
        """Find minimum covers; return counts of each block, (3, P, P) int64.

        The counts are sums that cover entries, and the columns and entries that these
        sums cover. `flags` (nnz,) uint8 are the bits of each entry, and are changed. If
        `whole`, all entries are covered, by sums or columns. Otherwise only columns are
        covered all of whose entries are PUSHED. PUSHED is then taken from all entries
        of the other sums.
        """
        sizes = np.zeros((3, self.ranks, self.ranks), np.int64)
        for first, last in self._groups(self.counts.sum(1)):
            # entries block by block
            offsets = run_offsets(self.counts[first:last].ravel())
            rows, columns = np.empty((2, int(offsets[-1])), np.int32)
            bits = np.empty(rows.size, np.uint8)
            group = first, last, offsets
            _scatter(rows.size, self._arrays, *group, flags, rows, columns, bits)

            # their covers
            largest = int(np.diff(offsets).max(initial=0))
            found = np.zeros((3, offsets.size - 1), np.int64)
            _cover(4 * rows.size, offsets, self.owner.size, largest, whole, rows, columns, bits,
                   found)
            sizes[:, first:last] = found.reshape(3, last - first, -1)
            _gather(bits.size, self._arrays, *group, bits, flags)
        return sizes

    def pushed_graph(self, flags: np.ndarray, sizes: np.ndarray) -> PushedGraph:
        """Return the PushedGraph of the entries that sums cover.

        `flags` were changed by `cover`, which returned `sizes`.
        """
        graph = PushedGraph.empty(sizes)
        cursors = np.zeros((self.ranks, self.ranks), np.int64)
        cursors[graph.giver, graph.taker] = graph.edges[:-1]
        _scatter_pushed(self.indices.size, self._arrays, cursors, flags, graph.cadj, graph.adj)
        return graph.build(self.owner.size)

    def take_back(self, flags: np.ndarray, graph: PushedGraph) -> None:
        """Clear `flags` of the entries of sums that are no longer in a PushedGraph."""
        bounds = np.searchsorted(graph.giver, np.arange(self.ranks + 1))
        _clear(self.indices.size, self._arrays, bounds, graph, flags)

    @staticmethod
    def _groups(counts: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield groups of consecutive readers: (first, last plus 1).

        A group has at most GROUP entries, or one reader.
        """
        first, total = 0, 0
        for reader, count in enumerate(counts.tolist()):
            if total and total + count > GROUP:
                yield first, reader
                first, total = reader, 0
            total += count
        if total:
            yield first, len(counts)


def _scatter_readers(counters: np.ndarray, entries: tuple, first: int, last: int,
                     offsets: np.ndarray, flags: np.ndarray, rows: np.ndarray, columns: np.ndarray,
                     bits: np.ndarray) -> None:
    """Copy rows, columns and bits of the entries of readers [first, last).

    The copies are in the order of blocks.
    """
    indptr, indices, order, starts, owner = entries
    ranks = starts.size - 1
    for number in chunks(counters, last - first):
        p = first + number
        cursors = offsets[number * ranks:(number + 1) * ranks].copy()
        for r in range(starts[p], starts[p + 1]):
            i = order[r]
            for e in range(indptr[i], indptr[i + 1]):
                q = owner[indices[e]]
                if q != p:
                    at = cursors[q]
                    cursors[q] += 1
                    rows[at] = r - starts[p]
                    columns[at] = indices[e]
                    bits[at] = flags[e]


def _gather_readers(counters: np.ndarray, entries: tuple, first: int, last: int,
                    offsets: np.ndarray, bits: np.ndarray, flags: np.ndarray) -> None:
    """Copy the bits back to the entries of readers [first, last)."""
    indptr, indices, order, starts, owner = entries
    ranks = starts.size - 1
    for number in chunks(counters, last - first):
        p = first + number
        cursors = offsets[number * ranks:(number + 1) * ranks].copy()
        for r in range(starts[p], starts[p + 1]):
            i = order[r]
            for e in range(indptr[i], indptr[i + 1]):
                q = owner[indices[e]]
                if q != p:
                    flags[e] = bits[cursors[q]]
                    cursors[q] += 1


def _scatter_pushed_readers(counters: np.ndarray, entries: tuple, cursors: np.ndarray,
                            flags: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Copy rows and columns of PUSHED entries, block by block.

    A column is stored as -1 - c if its entry is MATCHED.
    """
    indptr, indices, order, starts, owner = entries
    for p in chunks(counters, starts.size - 1):
        for r in range(starts[p], starts[p + 1]):
            i = order[r]
            for e in range(indptr[i], indptr[i + 1]):
                if flags[e]:
                    q = owner[indices[e]]
                    at = cursors[p, q]
                    cursors[p, q] += 1
                    rows[at] = r - starts[p]
                    columns[at] = -1 - indices[e] if flags[e] & MATCHED else indices[e]


def _cover_blocks(counters: np.ndarray, offsets: np.ndarray, num_columns: int, largest: int,
                  whole: bool, rows: np.ndarray, columns: np.ndarray, bits: np.ndarray,
                  found: np.ndarray) -> None:
    """Find the cover of each block.

    `offsets` are the bounds of blocks in `rows`, `columns` and `bits`. The covers are
    written to `bits`, their counts to `found`.
    """
    # numbers of columns within the block, and work arrays of this thread
    local = np.full(num_columns, -1, np.int32)
    adj, degree, match_s, match_c, queue, at, path, free = (
        np.empty(largest, np.int32), np.empty(largest, np.int32), np.empty(largest, np.int32),
        np.empty(largest, np.int32), np.empty(largest, np.int32), np.empty(largest, np.int32),
        np.empty(largest, np.int32), np.empty(largest, np.int32))
    ptr = np.empty(largest + 1, np.int32)
    level = np.full(largest, -1, np.int32)
    passing = np.empty(largest, np.uint8)

    for b in chunks(counters, offsets.size - 1):
        begins = offsets[b]
        count = offsets[b + 1] - begins
        if not count:
            continue

        # number sums and columns; a literal 0 would be compiled twice
        num_sums, width = np.int64(0), np.int64(0)
        for e in range(count):
            if not e or rows[begins + e] != rows[begins + e - 1]:
                ptr[num_sums] = e
                num_sums += 1
            c = local[columns[begins + e]]
            if c < 0:
                c = width
                local[columns[begins + e]] = c
                passing[c] = degree[c] = 0
                width += 1
            adj[e] = c
            degree[c] += 1
            if not whole and not bits[begins + e] & PUSHED:
                passing[c] = 1
        ptr[num_sums] = count
        for e in range(count):
            local[columns[begins + e]] = -1

        # a maximum matching
        begin(num_sums, width, ptr, adj, degree, passing, match_s, match_c)
        unmatched = np.int64(0)
        for u in range(num_sums):
            if match_s[u] < 0:
                free[unmatched] = u
                unmatched += 1
        reached = augment(ptr, adj, passing, match_s, match_c, free, unmatched, level, queue, at,
                          path)

        # columns cover the entries of sums on alternating paths
        for u in range(num_sums):
            pushed = 0
            partner = match_s[u]
            for e in range(ptr[u], ptr[u + 1]):
                c = adj[e]
                if level[u] >= 0:
                    bits[begins + e] = 0
                elif not whole:
                    bits[begins + e] &= PUSHED
                elif match_c[c] >= 0 and level[match_c[c]] >= 0:
                    bits[begins + e] = 0
                else:
                    bits[begins + e] = PUSHED
                    if c == partner:
                        bits[begins + e] |= MATCHED
                        partner = -1
                pushed += bits[begins + e] & PUSHED
            found[0, b] += pushed > 0
            found[2, b] += pushed
        for c in range(width):
            found[1, b] += match_c[c] < 0 or level[match_c[c]] < 0
        for i in range(reached):
            level[queue[i]] = -1


def _clear_readers(counters: np.ndarray, entries: tuple, bounds: np.ndarray, graph: PushedGraph,
                   flags: np.ndarray) -> None:
    """Clear the flags of PUSHED entries whose sum has `fresh` -1."""
    indptr, indices, order, starts, owner = entries
    taker, sums, ptr, fresh = graph.taker, graph.sums, graph.ptr, graph.fresh
    ranks = starts.size - 1
    block, place, edge = (np.empty(ranks, np.int64), np.empty(ranks, np.int64),
                          np.empty(ranks, np.int64))
    for p in chunks(counters, ranks):
        # the first sum and the first entry of each block
        for b in range(bounds[p], bounds[p + 1]):
            block[taker[b]] = b
            place[taker[b]] = sums[b]
            edge[taker[b]] = 0

        # entries in the order of the blocks
        for r in range(starts[p], starts[p + 1]):
            i = order[r]
            for e in range(indptr[i], indptr[i + 1]):
                if flags[e]:
                    q = owner[indices[e]]
                    if ptr[place[q] + block[q] + 1] == edge[q]:
                        place[q] += 1
                    edge[q] += 1
                    if fresh[place[q]] < 0:
                        flags[e] = 0


_scatter = Threaded(_scatter_readers)
_gather = Threaded(_gather_readers)
_scatter_pushed = Threaded(_scatter_pushed_readers)
_cover = Threaded(_cover_blocks)
_clear = Threaded(_clear_readers)

"""The sums that cover entries of all blocks, as bipartite graphs of sums and columns."""
from dataclasses import dataclass

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.threads import Threaded, chunks
from hpgcn.parallel.covers.matchings import transpose


@dataclass(frozen=True, eq=False)
class PushedGraph:
    """Sums that cover entries, and the columns of these entries, of all blocks.

    Block b of B has sums sums[b] to sums[b + 1], of rank giver[b] for rows of which
    rank taker[b] forms sums. Columns and entries likewise. Arrays by sum, column and
    entry are those of `hpgcn.parallel.covers.matchings`, with numbers within the block.
    """

    giver: np.ndarray  # (B,) int64, increasing
    taker: np.ndarray
    sums: np.ndarray  # (B + 1,) int64
    columns: np.ndarray
    edges: np.ndarray
    row: np.ndarray  # (S,) int32, number of the row among those of its rank
    ptr: np.ndarray  # (S + B,) int32: a block has one more than sums
    adj: np.ndarray  # (E,) int32
    cptr: np.ndarray  # (C + B,) int32
    cadj: np.ndarray
    match_s: np.ndarray  # (S,) int32
    match_c: np.ndarray  # (C,) int32
    passing: np.ndarray  # (C,) uint8, columns that are sent in any case
    fresh: np.ndarray  # (S,) int32, entries of columns that are not; -1: no longer a sum

    @staticmethod
    def empty(sizes):
        """Return a graph with room for blocks of these numbers of sums, columns and
        entries, the first three of (4, P, P).
        """
        giver, taker = map(np.ascontiguousarray, np.nonzero(sizes[2]))  # as all other arrays
        sums, columns, edges = (run_offsets(size[giver, taker]) for size in sizes[:3])
        count, width, entries = (int(each[-1]) for each in (sums, columns, edges))
        blocks = giver.size

        def array(size):
            return np.empty(size, np.int32)

        return PushedGraph(
            giver, taker, sums, columns, edges, array(count), array(count + blocks),
            array(entries), array(width + blocks), array(entries), array(count), array(width),
            np.zeros(width, np.uint8), array(count))

    def build(self, num_columns):
        """Fill in all arrays; `cadj` has the row, and `adj` the column of each entry.

        The column c of a MATCHED entry is stored as -1 - c. `num_columns` are those of
        all blocks. Return the graph.
        """
        _build(4 * self.adj.size, num_columns, *self.arrays)
        return self

    @property
    def prices(self):
        """Arrays that the prices of sums need."""
        return self.taker, self.sums, self.ptr, self.fresh

    @property
    def arrays(self):
        """All arrays but the ranks."""
        return (self.sums, self.columns, self.edges, self.row, self.ptr, self.adj, self.cptr,
                self.cadj, self.match_s, self.match_c, self.passing, self.fresh)


def _build_blocks(next_chunk, num_columns, sums, columns, edges, row, ptr, adj, cptr, cadj,
                  match_s, match_c, passing, fresh):
    """Fill in the arrays of a PushedGraph, whose `cadj` has the row, and `adj`
    the column of each entry.
    """
    local = np.full(num_columns, -1, np.int32)
    for b in chunks(next_chunk, sums.size - 1):
        begins, ends = edges[b], edges[b + 1]
        first_sum, first_column = sums[b], columns[b]
        pointers = ptr[first_sum + b:sums[b + 1] + b + 1]

        # number sums and columns
        num_sums, width = np.int64(0), np.int64(0)
        for e in range(begins, ends):
            if e == begins or cadj[e] != cadj[e - 1]:
                pointers[num_sums] = e - begins
                row[first_sum + num_sums] = cadj[e]
                num_sums += 1
            matched = adj[e] < 0
            column = -1 - adj[e] if matched else adj[e]
            if local[column] < 0:
                local[column] = width
                match_c[first_column + width] = -1
                width += 1
            c = local[column]
            if matched:
                match_s[first_sum + num_sums - 1] = c
                match_c[first_column + c] = num_sums - 1
            adj[e] = column
        pointers[num_sums] = ends - begins

        # columns to their numbers; these are reset once no entry needs them
        for e in range(begins, ends):
            cadj[e] = local[adj[e]]
        for e in range(begins, ends):
            local[adj[e]] = -1
            adj[e] = cadj[e]
        for u in range(num_sums):
            fresh[first_sum + u] = pointers[u + 1] - pointers[u]
        transpose(num_sums, width, pointers, adj[begins:ends],
                  cptr[first_column + b:columns[b + 1] + b + 1], cadj[begins:ends])


_build = Threaded(_build_blocks)

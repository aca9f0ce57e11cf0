"""Take partial sums back from ranks that would store too many entries, cheapest first.

The price of a sum is the number of rows of H that are sent in its place, less one, for
each of its entries. Rounds count entries of sums only, and look again at those sums
whose columns change. Numbers are integers, so the choice depends neither on threads nor
on which ranks count together.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.parallel.covers.matchings import augment, transpose

PATIENT_ROUNDS = 10  # rounds in which no rank takes back more than its room
BINS = 64  # prices are compared over ranks by their bin
FINEST = 2.0**-16  # price, in rows, below which all are in the first bin
# least price of each bin but the first: it doubles every three bins
PRICES = FINEST * np.array([2.0 ** (step // 3) * 2.0 ** (step % 3 / 3) for step in range(BINS - 1)])
PIECES = 16  # pieces of the blocks that have tables of their own
BIN_WORK = 8  # about the scalar operations to find the bin of a sum
BACK, FITS, OPEN = 1, 2, 4  # marks of a sum: to take back, within the room, not decided yet


class PushedGraph(NamedTuple):
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
    def empty(sizes: np.ndarray) -> PushedGraph:
        """Return a graph with room for blocks of these sizes.

        Numbers of sums, columns and entries, the first three of (4, P, P).
        """
        giver, taker = map(np.ascontiguousarray, np.nonzero(sizes[2]))  # as all other arrays
        sums, columns, edges = (run_offsets(size[giver, taker]) for size in sizes[:3])
        count, width, entries = (int(each[-1]) for each in (sums, columns, edges))
        blocks = giver.size

        def array(size: int) -> np.ndarray:
            return np.empty(size, np.int32)

        return PushedGraph(
            giver, taker, sums, columns, edges, array(count), array(count + blocks),
            array(entries), array(width + blocks), array(entries), array(count), array(width),
            np.zeros(width, np.uint8), array(count))

    def build(self, num_columns: int) -> PushedGraph:
        """Fill in all arrays; `cadj` has the row, and `adj` the column of each entry.

        The column c of a MATCHED entry is stored as -1 - c. `num_columns` are those of
        all blocks. Return the graph.
        """
        _build(4 * self.adj.size, num_columns, self)
        return self


def _build_blocks(counters: np.ndarray, num_columns: int, graph: PushedGraph) -> None:
    """Fill in the arrays of a PushedGraph.

    On entry `cadj` has the row, and `adj` the column of each entry.
    """
    (_, _, sums, columns, edges, row, ptr, adj, cptr, cadj, match_s, match_c, _, fresh) = graph
    local = np.full(num_columns, -1, np.int32)
    for b in chunks(counters, sums.size - 1):
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


def balance(graph: PushedGraph, held: np.ndarray, most: np.ndarray, total: Callable) -> None:
    """Take sums of a PushedGraph back until no rank exceeds its limit.

    `graph.fresh` of these sums is then -1.

    Parameters
    ----------
    held, most : (P,) int64
        Entries that each rank holds, over all ranks, and may hold.
    total : function of an integer array
        Sums it over ranks, as in `hpgcn.parallel.covers.vertex_covers.balanced_cover`.
    """
    moved = np.diff(graph.edges)  # entries of the sums of each block
    marks = np.zeros(graph.row.size, np.uint8)
    largest = int(np.diff(graph.sums).max(initial=0))
    turn = 0

    while np.any(held > most):
        # take back sums that cost least, but load no giver beyond its limit
        _offer(graph, marks, np.maximum(0, held - most), total)
        bit = BACK
        if turn < PATIENT_ROUNDS and total(np.array([_fit(graph, marks, most - held)])).any():
            bit = FITS
        before = moved.copy()
        _take_back(graph.adj.size, largest, bit, graph, marks, moved)
        turn += 1

        # each sum relieved one rank, and loaded another
        change = np.zeros(held.size, np.int64)
        np.add.at(change, graph.taker, moved - before)
        np.subtract.at(change, graph.giver, moved - before)
        held = held + total(change)


def _offer(graph: PushedGraph, marks: np.ndarray, excess: np.ndarray, total: Callable) -> None:
    """Mark the cheapest sums with BACK, until no rank has more than its limit."""
    # entries of each rank's sums, by price
    k = excess.size
    cuts = np.searchsorted(graph.sums, marks.size * np.arange(PIECES) // PIECES)
    cuts = np.append(cuts, graph.giver.size)
    tables = np.zeros((PIECES, k, BINS), np.int64)
    _tabulate(BIN_WORK * marks.size, cuts, excess, PRICES, graph, tables)
    every = total(tables.sum(0).ravel()).reshape(k, BINS)

    # a bin is taken as a whole, or each giver takes back its share, rounded up
    before = np.cumsum(every, axis=1) - every
    wanted = np.clip(excess[:, None] - before, 0, every)
    _mark_offers(BIN_WORK * marks.size, every, wanted, PRICES, graph, marks)


def _fit(graph: PushedGraph, marks: np.ndarray, room: np.ndarray) -> int:
    """Add FITS to the cheapest sums with BACK that have room.

    `room`, (P,), are the entries that each giver may still take. Return the number of
    sums.
    """
    bounds = np.searchsorted(graph.giver, np.arange(room.size + 1))
    fitting = np.zeros(room.size, np.int64)
    _mark_fits(BIN_WORK * marks.size, bounds, room, graph, marks, fitting)
    return int(fitting.sum())


@jit(forceinline=True)
def _bin(fresh: int, size: int, prices: np.ndarray) -> np.integer:
    """Return the bin of a sum's price: how many of `prices` it reaches."""
    return np.searchsorted(prices, (fresh - 1) / size, side="right")


def _tabulate_pieces(counters: np.ndarray, cuts: np.ndarray, excess: np.ndarray,
                     prices: np.ndarray, graph: PushedGraph, tables: np.ndarray) -> None:
    """Add up the entries of sums for ranks with an excess, by rank and price."""
    taker, sums, ptr, fresh = graph.taker, graph.sums, graph.ptr, graph.fresh
    for piece in chunks(counters, cuts.size - 1):
        for b in range(cuts[piece], cuts[piece + 1]):
            q = taker[b]
            if not excess[q]:
                continue
            for s in range(sums[b], sums[b + 1]):
                if fresh[s] >= 0:
                    size = ptr[s + b + 1] - ptr[s + b]
                    tables[piece, q, _bin(fresh[s], size, prices)] += size


@jit()
def select_cheapest(price: np.ndarray, row: np.ndarray, size: np.ndarray, most: int,
                    whole: bool) -> np.ndarray:
    """Return the positions of the cheapest sums, up to a number of entries.

    The cheapest is the first. Sums of the same price are chosen by row, then by
    position. A sum is among them if there are fewer than `most` entries before it in
    this order. If `whole`, the entries of the sum itself may not exceed `most` either.

    Parameters
    ----------
    price : (n,) float64
    row, size : (n,) integers
        Row and positive number of entries of each sum.
    most : int
    whole : bool
    """
    # stable; rows as floats, so that Numba compiles one sort, which takes longer than this kernel
    order = np.argsort(row.astype(np.float64), kind="mergesort")
    order = order[np.argsort(price[order], kind="mergesort")]
    before = np.int64(0)
    for i in range(order.size):
        entries = size[order[i]]
        if before + (entries if whole else 1) > most:
            return order[:i]
        before += entries
    return order


@jit(inner=True)
def _mark_cheapest(first: int, last: int, graph: PushedGraph, marks: np.ndarray, bit: int,
                   most: int, whole: bool, mark: int, other: int) -> int:
    """Replace the marks with `bit` in blocks [first, last).

    The cheapest sums get `mark`, the rest `other`. Return how many sums are the
    cheapest, by `select_cheapest`.
    """
    # the sums with the bit
    sums, ptr, fresh, row = graph.sums, graph.ptr, graph.fresh, graph.row
    count = 0
    for s in range(sums[first], sums[last]):
        if marks[s] & bit:
            count += 1
    price, rows = np.empty(count, np.float64), np.empty(count, np.int32)
    number, sizes = np.empty(count, np.int64), np.empty(count, np.int32)
    count = 0
    for b in range(first, last):
        for s in range(sums[b], sums[b + 1]):
            if marks[s] & bit:
                sizes[count] = ptr[s + b + 1] - ptr[s + b]
                price[count] = (fresh[s] - 1) / sizes[count]
                rows[count], number[count] = row[s], s
                marks[s] = other
                count += 1

    # the cheapest
    chosen = select_cheapest(price, rows, sizes, most, whole)
    for i in chosen:
        marks[number[i]] = mark
    return chosen.size


def _mark_offered_blocks(counters: np.ndarray, every: np.ndarray, wanted: np.ndarray,
                         prices: np.ndarray, graph: PushedGraph, marks: np.ndarray) -> None:
    """Mark sums BACK whose whole bin is wanted.

    If a part of a bin is wanted, its cheapest sums are marked.
    """
    taker, sums, ptr, fresh = graph.taker, graph.sums, graph.ptr, graph.fresh
    for b in chunks(counters, taker.size):
        q = taker[b]
        if not wanted[q].any():
            continue
        share, entries = 0.0, np.int64(0)  # those of the only bin wanted in part
        for s in range(sums[b], sums[b + 1]):
            if fresh[s] >= 0:
                size = ptr[s + b + 1] - ptr[s + b]
                i = _bin(fresh[s], size, prices)
                if wanted[q, i] and wanted[q, i] == every[q, i]:
                    marks[s] = BACK
                elif wanted[q, i]:
                    marks[s] = OPEN
                    share = wanted[q, i] / every[q, i]
                    entries += size
        if entries:
            most = np.int64(np.ceil(share * entries))
            _mark_cheapest(b, b + 1, graph, marks, OPEN, most, False, BACK, 0)


def _mark_fitting(counters: np.ndarray, bounds: np.ndarray, room: np.ndarray, graph: PushedGraph,
                  marks: np.ndarray, fitting: np.ndarray) -> None:
    """Add FITS to the cheapest sums with BACK within each giver's room.

    Their number is written to `fitting`, by giver.
    """
    for p in chunks(counters, bounds.size - 1):
        fitting[p] = _mark_cheapest(bounds[p], bounds[p + 1], graph, marks, BACK, room[p], True,
                                    BACK | FITS, BACK)


def _take_back_blocks(counters: np.ndarray, most_sums: int, bit: int, graph: PushedGraph,
                      marks: np.ndarray, moved: np.ndarray) -> None:
    """Take back the marked sums, and sums that no longer pay.

    A sum is marked if it has `bit` in `marks`. It no longer pays if it costs more than
    the rows sent in its place. Columns of these sums are sent in any case. The other
    sums stay in a minimum cover of the other columns: those that no alternating path
    leads to. `moved` counts the entries of each block's sums.
    """
    (_, _, sums, columns, edges, _, ptr, adj, cptr, cadj, match_s, match_c, passing, fresh) = graph
    level = np.full(most_sums, -1, np.int32)
    free, queue, at, path = (np.empty(most_sums, np.int32), np.empty(most_sums, np.int32),
                             np.empty(most_sums, np.int32), np.empty(most_sums, np.int32))
    for b in chunks(counters, moved.size):
        # the sums to take back
        first, last = sums[b], sums[b + 1]
        count = 0
        for s in range(first, last):
            if marks[s] & bit:
                queue[count] = s - first
                count += 1
            marks[s] = 0
        if not count:
            continue

        # arrays of this block
        entries = slice(edges[b], edges[b + 1])
        sum_columns, column_sums = adj[entries], cadj[entries]
        pointers, column_pointers = ptr[first + b:last + b + 1], cptr[columns[b] + b:
                                                                     columns[b + 1] + b + 1]
        partners, column_partners = match_s[first:last], match_c[columns[b]:columns[b + 1]]
        sent, left = passing[columns[b]:columns[b + 1]], fresh[first:last]
        unmatched = np.int64(0)
        while count:
            for i in range(count):
                u = queue[i]
                left[u] = -1
                moved[b] -= pointers[u + 1] - pointers[u]
            unmatched = 0
            for i in range(count):
                u = queue[i]
                for e in range(pointers[u], pointers[u + 1]):
                    c = sum_columns[e]
                    if sent[c]:
                        continue
                    sent[c] = 1
                    for f in range(column_pointers[c], column_pointers[c + 1]):
                        w = column_sums[f]
                        if left[w] >= 0:
                            left[w] -= 1
                    w = column_partners[c]
                    if w >= 0 and left[w] >= 0:
                        partners[w] = -1
                        free[unmatched] = w
                        unmatched += 1

            # other partners, or alternating paths from sums that find none
            count = augment(pointers, sum_columns, sent, partners, column_partners, free,
                            unmatched, level, queue, at, path)
            for i in range(count):
                level[queue[i]] = -1


_build = Threaded(_build_blocks)
_tabulate = Threaded(_tabulate_pieces)
_mark_offers = Threaded(_mark_offered_blocks)
_mark_fits = Threaded(_mark_fitting)
_take_back = Threaded(_take_back_blocks)

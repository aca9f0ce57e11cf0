"""Counts over the entries of a CSR pattern, by compiled kernels on all threads.

Each kernel reads every entry once. A thread counts in arrays of its own chunk of rows,
so the counts are the same on any number of threads. `indptr` (n + 1,) and `indices`
(nnz,) are those of the pattern; columns need not be sorted.
"""
from __future__ import annotations

from itertools import pairwise

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.cpu.chunks import by_nonzeros
from hpgcn.kernels.entries import bit_in_word, missing_loops
from hpgcn.kernels.host.threads import Threaded, chunks

PIECE = 1 << 20  # entries of a chunk of rows, about
WORD = 6  # a word of a bitmap has 2^WORD bits


def row_chunks(indptr: np.ndarray,
               offsets: list[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut rows into chunks of about PIECE entries, and at `offsets`.

    Return the bounds of the chunks, (C + 1,) int64, and the block between offsets that
    each chunk belongs to, (C,) int64.
    """
    offsets = np.asarray(offsets)
    bounds, blocks = [np.zeros(0, np.int64)], []
    for block, (start, stop) in enumerate(pairwise(offsets.tolist())):
        first, last = int(indptr[start]), int(indptr[stop])
        count = 1 + (last - first) // PIECE
        cuts = first + (last - first) * np.arange(1, count) // count
        # numbers of another dtype than `indptr` would make NumPy convert it
        cuts = np.searchsorted(indptr, cuts.astype(indptr.dtype))
        bounds.append(np.concatenate([[start], np.clip(cuts, start, stop)]))
        blocks += [block] * count
    return np.append(np.concatenate(bounds), offsets[-1]), np.array(blocks, np.int64)


def block_numbers(offsets: np.ndarray) -> np.ndarray:
    """Return the block between offsets of each row, (n,), of a narrow integer type."""
    blocks = len(offsets) - 1
    kind = np.int16 if blocks <= np.iinfo(np.int16).max else np.int32
    return np.repeat(np.arange(blocks, dtype=kind), np.diff(offsets))


def count_blocks(indptr: np.ndarray, indices: np.ndarray, row_offsets: np.ndarray,
                 block_of: np.ndarray, width: int,
                 order: np.ndarray | None = None) -> np.ndarray:
    """Count the entries of blocks, and the rows with entries in them.

    Return two arrays, (R, C) int64. `block_of`, (n,), has the block of each column,
    below `width`. `order`, (m,), are the rows between `row_offsets`; by default all
    rows in their own order.
    """
    pointers = indptr if order is None else run_offsets(np.diff(indptr)[order])
    order = np.arange(indptr.size - 1) if order is None else order
    bounds, blocks = row_chunks(pointers, row_offsets)
    counts = np.zeros((2, blocks.size, width), np.int64)
    _count_blocks(indices.size, indptr.astype(np.int64, copy=False), indices, order, bounds,
                  block_of, *counts)

    # add up the chunks of each block of rows
    sums = np.zeros((2, len(row_offsets) - 1, width), np.int64)
    for total, each in zip(sums, counts):
        np.add.at(total, blocks, each)
    return sums


def _count_block_chunks(counters: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
                        order: np.ndarray, bounds: np.ndarray, block_of: np.ndarray,
                        entries: np.ndarray, touched: np.ndarray) -> None:
    """Count the entries, and the rows with entries, of chunks of rows.

    They are counted by block of columns. The loop has no branches, because no CPU would
    predict them.
    """
    width = entries.shape[1]
    for chunk in chunks(counters, bounds.size - 1):
        last_row = np.full(width, -1, np.int64)
        for place in range(bounds[chunk], bounds[chunk + 1]):
            i = order[place]
            for e in range(indptr[i], indptr[i + 1]):
                block = block_of[indices[e]]
                entries[chunk, block] += 1
                touched[chunk, block] += last_row[block] != i
                last_row[block] = i


_count_blocks = Threaded(_count_block_chunks)


def count_parts(indptr: np.ndarray, indices: np.ndarray, part: np.ndarray, order: np.ndarray,
                offsets: np.ndarray, symmetric: bool = False) -> np.ndarray:
    """Count the blocks (p, q) of a matrix.

    The entries in the rows of part p and the columns of part q.

    Parameters
    ----------
    part : (n,) integers
        Part of each row and column.
    order : (n,) integers
        Rows by part. The greedy matching takes them in this order.
    offsets : (P + 1,)
        Bounds of the parts in `order`.
    symmetric : bool
        The pattern is symmetric: columns with entries are the rows of another block.

    Returns
    -------
    (4, P, P) int64
        The entries of each block; its rows that have entries; its columns that have
        entries; and the size of a greedy matching of its rows with its columns. The
        last two are 0 for p = q.
    """
    ranks = len(offsets) - 1
    counts = np.zeros((4, ranks, ranks), np.int64)
    _count_parts(2 * indices.size, indptr.astype(np.int64, copy=False), indices, part, order,
                 np.asarray(offsets, np.int64), symmetric, counts)
    if symmetric:
        counts[2] = counts[1].T
    counts[2:, np.arange(ranks), np.arange(ranks)] = 0
    return counts


def _count_one_part(counters: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
                    part: np.ndarray, order: np.ndarray, offsets: np.ndarray, symmetric: bool,
                    counts: np.ndarray) -> None:
    """Fill in the counts of the rows of one part after the other.

    Unless `symmetric`, only `ghosts` are counted. The loop over entries has no branches
    that depend on them, because no CPU would predict these.
    """
    ranks = offsets.size - 1
    words = (part.size >> WORD) + 1
    for p in chunks(counters, ranks):
        seen = np.zeros(0 if symmetric else words, np.uint64)  # bits of the columns that p reads
        taken = np.zeros(words, np.uint64)  # bits of those that are matched with a row
        # last row with an entry in each block, and last one that is matched there
        last_row, last_matched = np.full(ranks, -1, np.int64), np.full(ranks, -1, np.int64)
        entries, touched, ghosts, matched = counts[0, p], counts[1, p], counts[2, p], counts[3, p]
        for place in range(offsets[p], offsets[p + 1]):
            i = order[place]
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                q = part[j]
                entries[q] += 1
                touched[q] += last_row[q] != i
                last_row[q] = i

                word = j >> WORD
                bit = bit_in_word(j)
                if not symmetric:
                    ghosts[q] += (seen[word] & bit) == 0
                    seen[word] |= bit
                free = ((taken[word] & bit) == 0) & (last_matched[q] != i)
                matched[q] += free
                taken[word] |= bit * np.uint64(free)
                last_matched[q] = i if free else last_matched[q]


_count_parts = Threaded(_count_one_part)


def count_held(indptr: np.ndarray, indices: np.ndarray, pushed: np.ndarray, part: np.ndarray,
               order: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Count the rows, columns and entries of blocks by holder.

    Return (5, P, P) int64. The owner of its row holds an entry, or the owner of its
    column if the entry is `pushed`, (nnz,) bool. Numbers [:, p, q] are those of the
    block in the rows of p and the columns of q:

    - columns with entries that p holds, and rows with such entries;
    - rows with entries that q holds, columns with such entries, and these entries.

    The counts are 0 for p = q. Other arguments are those of `count_parts`.
    """
    ranks = len(offsets) - 1
    counts = np.zeros((5, ranks, ranks), np.int64)
    _count_held(2 * indices.size, indptr.astype(np.int64, copy=False), indices, pushed, part, order,
                np.asarray(offsets, np.int64), counts)
    return counts


def _count_held_blocks(counters: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
                       held: np.ndarray, part: np.ndarray, order: np.ndarray, offsets: np.ndarray,
                       counts: np.ndarray) -> None:
    """Fill in the counts of one block of rows after the other."""
    ranks = offsets.size - 1
    words = (part.size >> WORD) + 1
    for p in chunks(counters, ranks):
        seen = np.zeros((2, words), np.uint64)  # bits of the columns with entries that p, q hold
        last_row = np.full((2, ranks), -1, np.int64)  # last row with such entries in each block
        for place in range(offsets[p], offsets[p + 1]):
            i = order[place]
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                q = part[j]
                if q == p:
                    continue
                pushed = 1 if held[e] else 0
                word = j >> WORD
                bit = bit_in_word(j)
                counts[4, p, q] += pushed
                if not seen[pushed, word] & bit:
                    seen[pushed, word] |= bit
                    counts[3 * pushed, p, q] += 1
                if last_row[pushed, q] != i:
                    last_row[pushed, q] = i
                    counts[1 + pushed, p, q] += 1


_count_held = Threaded(_count_held_blocks)


def with_loops(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return CSR arrays with the missing entries of the diagonal.

    Columns are sorted in each row, before and after.
    """
    indptr = indptr.astype(np.int64, copy=False)
    pointers = run_offsets(np.diff(indptr) + missing_loops(indptr, indices, 0))
    columns = np.empty(int(pointers[-1]), indices.dtype)
    _insert_loops(indices.size, indptr, indices, by_nonzeros(indptr), pointers, columns)
    return pointers, columns


def _insert_loop_chunks(counters: np.ndarray, indptr: np.ndarray, indices: np.ndarray,
                        bounds: np.ndarray, pointers: np.ndarray, columns: np.ndarray) -> None:
    """Copy the entries, and add the missing entry of the diagonal.

    It is inserted before the first larger column of its row.
    """
    for chunk in chunks(counters, bounds.size - 1):
        for i in range(bounds[chunk], bounds[chunk + 1]):
            end = pointers[i]
            missing = pointers[i + 1] - pointers[i] > indptr[i + 1] - indptr[i]
            for e in range(indptr[i], indptr[i + 1]):
                if missing and indices[e] > i:
                    columns[end] = i
                    end += 1
                    missing = False
                columns[end] = indices[e]
                end += 1
            if missing:
                columns[end] = i


_insert_loops = Threaded(_insert_loop_chunks)

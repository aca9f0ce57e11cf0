"""Count the rows that parts exchange, and split vertices, in a compiled pass over nets."""
from collections import namedtuple

import numpy as np

from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_later
from hpgcn.kernels.entries import bit_in_word
from hpgcn.kernels.host.threads import Threaded, chunks
from hpgcn.parallel.pattern_counts import row_chunks

# For each part: rows sent, rows received, number of parts to which rows are sent, vertices of its
# edges, and split vertices among these. `split` is the number of all split vertices.
PartCounts = namedtuple("PartCounts", "sent received destinations vertices split_vertices split")


def column_pins(rows, symmetric):
    """Return the pins of all columns of a pattern: pointers (n + 1,) int64, and rows.

    Columns of a `symmetric` pattern are its rows.
    """
    columns = rows if symmetric else rows.tocsc()
    return columns.indptr.astype(np.int64, copy=False), columns.indices


def count_parts(rows, part, k, *, symmetric=False):
    """Count the exchange of parts that own whole rows; return PartCounts.

    Parameters
    ----------
    rows : csr_array (n, n)
        As `hpgcn.partition.rows.partition_model.pattern`.
    part : (n,) integers in [0, k)
    k : int
        At most `partition_request.MAX_PARTS`.
    symmetric : bool
        The pattern is known to be symmetric.

    Returns
    -------
    PartCounts
        Arrays (k,) int64, and an int. An edge is an entry off the diagonal; a vertex is
        split if several parts hold its edges.
    """
    pointers, pins = column_pins(rows, symmetric)
    bounds, _ = row_chunks(pointers, [0, part.size])
    sums = np.zeros((bounds.size - 1, 4, k), np.int64)
    split = np.zeros(bounds.size - 1, np.int64)
    meets = np.zeros((k, k), np.bool_)
    _count(pins.size, pointers, pins, bounds, part.astype(np.int32, copy=False),
           np.diff(rows.indptr) > 1, sums, split, meets)
    sent, received, vertices, split_vertices = sums.sum(axis=0)
    return PartCounts(sent, received, meets.sum(axis=1), vertices, split_vertices,
                      int(split.sum()))


@Threaded
def _count(counters, pointers, pins, bounds, part, edges, sums, split, meets):
    """Add up the counts of chunks of columns.

    `edges` (n,) says whether the row of a vertex has entries off the diagonal.
    """
    k = meets.shape[0]
    last = np.full(k, -1, np.int64)  # last column in which a part was seen
    touched = np.empty(k + 1, np.int64)
    for chunk in chunks(counters, bounds.size - 1):
        sent, received, vertices, split_vertices = sums[chunk]
        for j in range(bounds[chunk], bounds[chunk + 1]):
            # parts whose rows read this one
            own = part[j]
            count = 0
            for e in range(pointers[j], pointers[j + 1]):
                fetch_later(part, pins, e)
                p = part[pins[e]]
                if last[p] != j and pins[e] != j:
                    last[p] = j
                    touched[count] = p
                    count += 1
            for at in range(count):
                p = touched[at]
                if p != own:
                    sent[own] += 1
                    received[p] += 1
                    meets[own, p] = True

            # parts that hold edges of this vertex
            if edges[j] and last[own] != j:
                last[own] = j
                touched[count] = own
                count += 1
            for at in range(count):
                vertices[touched[at]] += 1
                split_vertices[touched[at]] += count > 1
            split[chunk] += count > 1


def fill_nets(pointers, pins, part, k, first, touched, counts, lam, masks):
    """List the parts that each column touches, and its pins in each.

    The arrays from `first` on are those of `row_moves.State`; those after `first` are
    filled.
    """
    bounds, _ = row_chunks(pointers, [0, part.size])
    _fill(pins.size, pointers, pins, bounds, part, k, first, touched, counts, lam, masks)


@Threaded
def _fill(counters, pointers, pins, bounds, part, k, first, touched, counts, lam, masks):
    last = np.full(k, -1, np.int64)  # last column in which a part was seen
    place = np.empty(k, np.int64)  # where it is in the list of that column
    for chunk in chunks(counters, bounds.size - 1):
        for j in range(bounds[chunk], bounds[chunk + 1]):
            end = first[j]
            for e in range(pointers[j], pointers[j + 1]):
                fetch_later(part, pins, e)
                p = part[pins[e]]
                if last[p] != j:
                    last[p] = j
                    place[p] = end
                    touched[end] = p
                    counts[end] = 0
                    end += 1
                counts[place[p]] += 1
            lam[j] = end - first[j]

            # a bit for each part, and one for each part with a single pin
            for at in range(first[j], end):
                bit = bit_in_word(touched[at])
                masks[j, 0] |= bit
                if counts[at] == 1:
                    masks[j, 1] |= bit

"""Vertex orders that place neighbours close together, and a count of the cache misses
of an order.

Each function uses one thread, so that the same graph gives the same order on every
machine. `indptr` (n + 1,) int64 and `indices` (nnz,) are those of a CSR matrix; an
order is new -> old.
"""
import numpy as np

from hpgcn.kernels.jit import jit

NEVER = np.int64(-1) << np.int64(60)


@jit()
def breadth_first(indptr, indices, starts, group):
    """Return the vertices in breadth-first order from each of `starts` (n,), one group
    after the other.

    `group` (n,) has the group number of each vertex. Vertices of other groups that are
    met wait until their group begins. With a single group this is breadth-first search.
    """
    n = indptr.size - 1
    order = np.empty(n, np.int64)
    waiting = np.empty(n, np.int64)  # vertices of other groups, in the order in which they were met
    placed = np.zeros(n, np.bool_)
    met = np.zeros(n, np.bool_)
    last = first = head = tail = 0
    for start in starts:
        # a new start waits behind all that were met
        if not met[start]:
            met[start] = True
            waiting[last] = start
            last += 1
        while first < last:
            # the next group begins at the vertex that was met first
            entry = waiting[first]
            first += 1
            if placed[entry]:
                continue
            placed[entry] = True
            order[tail] = entry
            tail += 1

            # go through it; vertices of other groups wait
            while head < tail:
                u = order[head]
                head += 1
                for k in range(indptr[u], indptr[u + 1]):
                    v = indices[k]
                    if placed[v]:
                        continue
                    if group[v] == group[u]:
                        placed[v] = met[v] = True
                        order[tail] = v
                        tail += 1
                    elif not met[v]:
                        met[v] = True
                        waiting[last] = v
                        last += 1
    return order


@jit()
def communities(indptr, indices, most_degree, most_members, rounds):
    """Return the community of each vertex, (n,) int64, by label propagation.

    A vertex joins the community of most of its neighbours, if that has fewer than
    `most_members` (U. N. Raghavan, R. Albert, S. Kumara, 2007). Vertices with more than
    `most_degree` neighbours stay alone. Rounds end when one moves fewer than one vertex
    in 64.
    """
    n = indptr.size - 1
    label = np.arange(n)
    members = np.ones(n, np.int64)
    count = np.zeros(n, np.int64)
    near = np.empty(n, np.int64)
    for _ in range(rounds):
        moved = 0
        for u in range(n):
            # count the neighbours in each community
            if indptr[u + 1] - indptr[u] > most_degree:
                continue
            size = 0
            for k in range(indptr[u], indptr[u + 1]):
                c = label[indices[k]]
                if count[c] == 0:
                    near[size] = c
                    size += 1
                count[c] += 1

            # join the largest that has room
            own = label[u]
            best = own
            for j in range(size):
                c = near[j]
                if count[c] > count[best] and members[c] < most_members:
                    best = c
            for j in range(size):
                count[near[j]] = 0
            if best != own:
                members[own] -= 1
                members[best] += 1
                label[u] = best
                moved += 1

        # stop when little changes
        if 64 * moved < n:
            break
    return label


@jit()
def far_reads(indptr, indices, order, starts, reads, spans, page, page_span):
    """Count the reads of rows that a cache would miss if rows are processed in an
    order.

    `reads` reads are counted from each row in `starts` (increasing positions in the
    order). The `spans[-1]` reads before them, the largest span, fill the cache. Return
    (spans + 2,) int64:

    - for each span, the reads of a row that was not among the last `span` reads;
    - the reads of a page that was not among the last `page_span`; a page is `page` successive
      rows of the order;
    - all reads.
    """
    # page of each row
    n = order.size
    place = np.empty(n, np.int64)
    for i in range(n):
        place[order[i]] = i // page

    # times of the last reads
    row_read = np.full(n, NEVER)
    page_read = np.full(n // page + 1, NEVER)
    missed = np.zeros(spans.size + 2, np.int64)
    now = np.int64(0)
    for start in starts:
        # fill the cache, then count
        now += spans[-1] + 1  # what was read before is forgotten
        counted = now + (spans[-1] if start else 0)
        for i in range(start, n):
            u = order[i]
            for k in range(indptr[u], indptr[u + 1]):
                v = indices[k]
                if now >= counted:
                    for s in range(spans.size):
                        missed[s] += now - row_read[v] > spans[s]
                    missed[spans.size] += now - page_read[place[v]] > page_span
                    missed[spans.size + 1] += 1
                row_read[v] = page_read[place[v]] = now
                now += 1
            if now >= counted + reads:
                break
    return missed


@jit()
def reordered(indptr, indices, order, place, pointers, columns):
    """Fill `columns` (nnz,) with the columns of a matrix in another order, increasing
    in each row.

    `place` (n,) is the inverse of `order`. `pointers` (n + 1,) are the row pointers in
    the new order.
    """
    for i in range(order.size):
        begin = pointers[i]
        first = indptr[order[i]]
        for k in range(pointers[i + 1] - begin):
            columns[begin + k] = place[indices[first + k]]
        columns[begin:pointers[i + 1]].sort()

"""Order vertices so that neighbors are close together; count the cache misses of an order.

Each order is found on one thread, so that the same graph gives the same order on every
machine. `indptr` (n + 1,) int64 and `indices` (nnz,) are those of a CSR matrix; an
order is new -> old.
"""

import numpy as np

from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_element, fetch_entries, fetch_later
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

NEVER = -1 << 30  # before all reads
LATEST = 1 << 29  # time of a read after which times begin again at 0
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
ROWS = 1 << 12  # rows of a chunk
LOADS = 16  # scalar operations in the time of moving an entry
SHORT = 48  # rows of at most this number of entries are sorted by insertion


@jit()
def breadth_first(indptr, indices, starts, group):
    """Return the vertices in breadth-first order from each of `starts` (n,), by groups.

    `group` (n,) has the group number of each vertex. Visited vertices of other groups
    wait until their group begins. With a single group this is breadth-first search.
    """
    n = indptr.size - 1
    order = np.empty(n, np.int64)
    waiting = np.empty(n, np.int64)  # vertices of other groups, in the order of their first visit
    placed = np.zeros(n, np.bool_)
    met = np.zeros(n, np.bool_)
    last = first = head = tail = 0
    for start in starts:
        # a new start waits behind all visited vertices
        if not met[start]:
            met[start] = True
            waiting[last] = start
            last += 1
        while first < last:
            # the next group begins at the vertex that was visited first
            entry = waiting[first]
            first += 1
            if placed[entry]:
                continue
            placed[entry] = True
            order[tail] = entry
            tail += 1

            # go through the group; vertices of other groups wait
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
    """Return communities by label propagation, (n,) of the type of `indices`.

    A vertex joins the community of most of its neighbors, if that has fewer than
    `most_members` (U. N. Raghavan, R. Albert, S. Kumara, 2007). Vertices with more than
    `most_degree` neighbors stay alone. Rounds end when a round moves fewer than one
    vertex in 64.
    """
    # the communities near a vertex are counted in a hash table, which stays in caches
    n = indptr.size - 1
    bits = 2
    while 1 << bits < 2 * min(most_degree, n):
        bits += 1
    shift = np.uint64(64 - bits)
    mask = np.uint64((1 << bits) - 1)
    table = np.full(1 << bits, -1, np.int64)
    near = np.empty((1 << bits, 3), np.int64)  # community, members among the neighbors, slot
    labels = np.empty(1 << bits, np.int64)

    label = np.arange(n).astype(indices.dtype)
    members = np.ones(n, indices.dtype)
    for _ in range(rounds):
        moved = 0
        for u in range(n):
            # fetch the communities of all neighbors at once
            first = indptr[u]
            degree = indptr[u + 1] - first
            if degree > most_degree:
                continue
            for k in range(degree):
                labels[k] = label[indices[first + k]]

            # count the neighbors in each community
            size = 0
            for k in range(degree):
                c = labels[k]
                slot = np.uint64(c) * GOLDEN >> shift
                while table[slot] >= 0 and near[table[slot], 0] != c:
                    slot = (slot + np.uint64(1)) & mask
                if table[slot] < 0:
                    table[slot] = size
                    near[size, 0] = c
                    near[size, 1] = 0
                    near[size, 2] = np.int64(slot)
                    size += 1
                near[table[slot], 1] += 1

            # join the largest that has room
            own = label[u]
            best = own
            most = 0
            for j in range(size):
                table[near[j, 2]] = -1
                if near[j, 0] == own:
                    most = near[j, 1]
            for j in range(size):
                if near[j, 1] > most and members[near[j, 0]] < most_members:
                    best = near[j, 0]
                    most = near[j, 1]
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
    """Count the reads of rows that a cache would miss if rows are processed in an order.

    `reads` reads are counted from each row in `starts` (increasing positions in the
    order). The `spans[-1]` reads before them, the largest span, fill the cache. Return
    (spans + 2,) int64:

    - for each span, the reads of a row that was not among the last `span` reads;
    - the reads of a page that was not among the last `page_span`; a page is `page` successive
      rows of the order;
    - all reads.
    """
    # time of the last read, and page, of each row; both are in one line of the cache
    n = order.size
    rows = np.empty((n, 2), np.int32)
    rows[:, 0] = NEVER
    for i in range(n):
        rows[order[i], 1] = i // page
    page_read = np.full(n // page + 1, NEVER, np.int32)

    missed = np.zeros(spans.size + 2, np.int64)
    now = 0
    for start in starts:
        # forget what was read before
        now += spans[-1] + 1
        if now > LATEST:
            rows[:, 0] = NEVER
            page_read[:] = NEVER
            now = 0

        # fill the cache, then count
        counted = now + (spans[-1] if start else 0)
        for i in range(start, n):
            u = order[i]
            for k in range(indptr[u], indptr[u + 1]):
                v = indices[k]
                if now >= counted:
                    for s in range(spans.size):
                        missed[s] += now - rows[v, 0] > spans[s]
                    missed[spans.size] += now - page_read[rows[v, 1]] > page_span
                    missed[spans.size + 1] += 1
                rows[v, 0] = page_read[rows[v, 1]] = now
                now += 1
            if now >= counted + reads:
                break
    return missed


@jit()
def sort_pairs(keys, values):
    """Sort two arrays in place by the first, whose numbers differ."""
    if keys.size > SHORT:
        values[:] = values[np.argsort(keys)]
        return
    for k in range(1, keys.size):
        key, value = keys[k], values[k]
        at = k
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            values[at] = values[at - 1]
            at -= 1
        keys[at] = key
        values[at] = value


@jit(inner=True)
def sort_row(numbers):
    """Sort an array in place: long ones first by quicksort, then all by insertion.

    Insertion is the fastest for most rows. Numba takes three times as long to compile
    `numbers.sort()`.
    """
    # split parts at the median of three numbers; the longer half waits
    low, high = 0, numbers.size
    if high > SHORT:
        waiting = np.empty((64, 2), np.int64)
        count = 0
        while True:
            if high - low > SHORT:
                a, b, c = numbers[low], numbers[(low + high) >> 1], numbers[high - 1]
                median = max(min(a, b), min(max(a, b), c))
                left, right = low, high - 1
                while left <= right:
                    while numbers[left] < median:
                        left += 1
                    while numbers[right] > median:
                        right -= 1
                    if left <= right:
                        numbers[left], numbers[right] = numbers[right], numbers[left]
                        left, right = left + 1, right - 1
                if right + 1 - low > high - left:
                    waiting[count, 0], waiting[count, 1] = low, right + 1
                    low = left
                else:
                    waiting[count, 0], waiting[count, 1] = left, high
                    high = right + 1
                count += 1
            elif count:
                count -= 1
                low, high = waiting[count, 0], waiting[count, 1]
            else:
                break

    # no number is now more than SHORT places away from its own
    for k in range(1, numbers.size):
        number = numbers[k]
        at = k
        while at > 0 and numbers[at - 1] > number:
            numbers[at] = numbers[at - 1]
            at -= 1
        numbers[at] = number


def inner_degrees(indptr: np.ndarray, indices: np.ndarray, group: np.ndarray,
                  degrees: np.ndarray) -> None:
    """Count the entries of each row in columns of its group, without loops; fill `degrees` (n,)."""
    _count_inner(indices.size, indptr, indices, group, -(-group.size // ROWS), degrees)


@Threaded
def _count_inner(counters, indptr, indices, group, count, degrees):
    for chunk in chunks(counters, count):
        for i in range(chunk * ROWS, min(group.size, (chunk + 1) * ROWS)):
            degree = 0
            for k in range(indptr[i], indptr[i + 1]):
                fetch_later(group, indices, k)
                degree += group[indices[k]] == group[i] and indices[k] != i
            degrees[i] = degree


def reverse_cuthill_mckee(indptr: np.ndarray, indices: np.ndarray, group: np.ndarray,
                          offsets: np.ndarray, by_degree: np.ndarray, number: np.ndarray,
                          order: np.ndarray) -> None:
    """Fill `order` (n,) with one group after another in reverse Cuthill-McKee order.

    Group g has the positions [offsets[g], offsets[g + 1]) of `order`. There `by_degree`
    (n,) has its vertices by rising degree. `number` (n,) is the rank of each vertex by
    degree. The pattern is symmetric; entries between groups are left out. One thread
    searches each group.
    """
    left = group.astype(np.int32)
    _search(LOADS * indices.size, indptr, indices, left, offsets, by_degree, number,
            np.empty_like(order), order)


@Threaded
def _search(counters, indptr, indices, left, offsets, by_degree, number, waiting, order):
    """Order groups; `left` (n,) has the group of each vertex, or -1 once the vertex waits."""
    for g in chunks(counters, offsets.size - 1):
        head = tail = begin = offsets[g]
        for at in range(begin, offsets[g + 1]):
            # a component begins at its vertex of least degree
            start = by_degree[at]
            if left[start] < 0:
                continue
            left[start] = -1
            waiting[tail] = start
            tail += 1

            # breadth-first search; the neighbors of a vertex follow by degree
            while head < tail:
                # prefetch the reads of the next vertices, at three distances
                u = waiting[head]
                if head + 4 < tail:
                    fetch_element(indptr, waiting[head + 4])
                    fetch_element(indices, indptr[waiting[head + 2]])
                    fetch_entries(left, indptr, indices, waiting[head + 1])
                head += 1
                first = tail
                for k in range(indptr[u], indptr[u + 1]):
                    v = indices[k]
                    if left[v] == g:
                        left[v] = -1
                        order[tail] = number[v]
                        waiting[tail] = v
                        tail += 1
                sort_pairs(order[first:tail], waiting[first:tail])

        # reverse the order
        for at in range(begin, tail):
            order[at] = waiting[begin + tail - 1 - at]


def spread(indptr: np.ndarray, indices: np.ndarray, number: int) -> int:
    """Return the largest distance between the numbers (n,) of an entry's ends, or 0."""
    found = np.zeros(max(1, -(-number.size // ROWS)), np.int64)
    _spread(indices.size, indptr, indices, number, found)
    return int(found.max())


@Threaded
def _spread(counters, indptr, indices, number, found):
    for chunk in chunks(counters, found.size):
        most = np.int64(0)
        for i in range(chunk * ROWS, min(number.size, (chunk + 1) * ROWS)):
            for k in range(indptr[i], indptr[i + 1]):
                fetch_later(number, indices, k)
                most = max(most, abs(number[indices[k]] - number[i]))
        found[chunk] = most


def place_rows(indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, number: np.ndarray,
               pointers: np.ndarray, columns: np.ndarray) -> None:
    """Copy the rows of a block into a matrix in another order, with sorted columns.

    Row i of the block becomes row `rows[i]` of the result; it is left out if that is
    negative. Column j becomes `number[j]`. `pointers` are the row pointers of the
    result, and `columns` is filled.
    """
    _place(LOADS * indices.size, indptr, indices, rows, number, pointers,
           -(-rows.size // ROWS), columns)


@Threaded
def _place(counters, indptr, indices, rows, number, pointers, count, columns):
    for chunk in chunks(counters, count):
        for i in range(chunk * ROWS, min(rows.size, (chunk + 1) * ROWS)):
            if rows[i] < 0:
                continue
            begin = pointers[rows[i]]
            first, last = indptr[i], indptr[i + 1]
            for k in range(first, last):
                fetch_later(number, indices, k)
                columns[begin + k - first] = number[indices[k]]
            sort_row(columns[begin:begin + last - first])

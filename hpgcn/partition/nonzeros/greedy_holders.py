"""Holders of nonzeros from parts of rows, in a few passes without annealing.

A nonzero in a row of part p and a column of part q is held by p or by q. Part p
receives the column's row of H, or q sends a partial sum of the row. The fewest of both
are a vertex cover of the block (Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput.
40(4), 2018).

The cover here is greedy. At first p holds all nonzeros of its rows. Then rows change
sides in a few passes, if that saves as much as it costs. For this, p counts the
nonzeros of each column that it holds itself. A column with one such nonzero is needed
by one row only.

Parts are processed in turn on one thread, with one count for each column.
"""
import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.kernels.host.jit import jit

PASSES = 4


def greedy_holders(rows, owner, k, capacity, w0=0):
    """Choose owners within their limit, and holders that receive and send few rows.

    Parameters
    ----------
    rows : csr_array (n, n)
        Pattern with a full diagonal, as `hpgcn.partition.rows.partition_model.pattern`.
    owner : (n,) int32
        Part of each row.
    k : int
    capacity : (2,) int64
        Weight and rows that a part may hold. A part stays larger only if no other part
        has room.
    w0 : int
        Weight of a row, beside its nonzeros.

    Returns
    -------
    holder : (nnz,) int32
        The owner for entries on the diagonal.
    owner : (n,) int32
    """
    # rows with the fewest nonzeros leave parts that own too many
    sizes = np.diff(rows.indptr)
    owner = np.array(owner, np.int32)
    counts = np.bincount(owner, minlength=k)
    weights = np.bincount(owner, sizes + w0, k).astype(np.int64)
    if counts.max() > capacity[1]:
        _shed_rows(rows.indptr, rows.indices, np.argsort(sizes, kind="stable"), owner, counts,
                   weights, capacity, w0)

    # cover the blocks of one part after another
    order = np.argsort(owner, kind="stable")
    holder = np.empty(rows.nnz, np.int32)
    _cover_blocks(rows.indptr, rows.indices, owner, order, run_offsets(counts), holder, weights,
                  capacity[0])
    if weights.max() > capacity[0]:
        _spill(rows.indptr, rows.indices, owner, holder, weights, capacity[0])
    return holder, owner


@jit()
def _shed_rows(indptr, indices, order, owner, counts, weights, capacity, w0):
    """Move rows, in this order, out of parts with too many rows.

    Each row goes to the part with room that has most of its columns, or else to the
    part with the fewest rows.
    """
    k = counts.size
    shared = np.zeros(k, np.int64)
    for v in order:
        p = owner[v]
        if counts[p] <= capacity[1]:
            continue
        for t in range(indptr[v], indptr[v + 1]):
            shared[owner[indices[t]]] += 1

        # prefer parts that stay within their weight
        weight = indptr[v + 1] - indptr[v] + w0
        best = -1
        for q in range(k):
            if counts[q] < capacity[1] and weights[q] + weight <= capacity[0] and (
                    best < 0 or (shared[q], -counts[q]) > (shared[best], -counts[best])):
                best = q
        if best < 0:
            best = np.argmin(counts)
        shared[:] = 0
        owner[v] = best
        counts[p] -= 1
        counts[best] += 1
        weights[p] -= weight
        weights[best] += weight


@jit()
def _cover_blocks(indptr, indices, owner, order, bounds, holder, load, limit):
    """Fill in the holder of each nonzero, and update the `load` of the parts.

    order, bounds : (n,) and (k + 1,) int64
        Rows by their owner, and the first row of each owner.
    """
    k = load.size
    held = np.zeros(owner.size, np.int32)  # nonzeros of each column that part p holds
    size = np.zeros(k, np.int64)
    cost = np.zeros(k, np.int64)  # columns that part p needs for this row alone
    other = np.empty(k, np.int64)
    moves = np.zeros(k, np.bool_)
    for p in range(k):
        # all nonzeros begin with the owner of their row
        own = order[bounds[p]:bounds[p + 1]]
        for i in own:
            for t in range(indptr[i], indptr[i + 1]):
                holder[t] = p
                held[indices[t]] += 1

        for _ in range(PASSES):
            for i in own:
                # columns of each other part that only this row needs
                met = 0
                for t in range(indptr[i], indptr[i + 1]):
                    j = indices[t]
                    q = owner[j]
                    if q == p:
                        continue
                    if size[q] == 0:
                        other[met] = q
                        met += 1
                        moves[q] = holder[t] == p
                    size[q] += 1
                    cost[q] += held[j] == (holder[t] == p)

                # change sides if that costs no more, and there is room
                changed = False
                for at in range(met):
                    q = other[at]
                    pulled = moves[q]
                    source, target = (p, q) if pulled else (q, p)
                    saves = cost[q] >= 1 if pulled else cost[q] < 1
                    moves[q] = saves and load[target] + size[q] <= limit
                    if moves[q]:
                        load[source] -= size[q]
                        load[target] += size[q]
                        changed = True
                    size[q] = 0
                    cost[q] = 0
                if changed:
                    for t in range(indptr[i], indptr[i + 1]):
                        q = owner[indices[t]]
                        if q != p and moves[q]:
                            pulled = holder[t] == p
                            holder[t] = q if pulled else p
                            held[indices[t]] += -1 if pulled else 1

        for i in own:
            for t in range(indptr[i], indptr[i + 1]):
                held[indices[t]] = 0


@jit()
def _spill(indptr, indices, owner, holder, load, limit):
    """Move nonzeros off the diagonal out of parts that hold too many.

    They go to the owner of their column, or else to a part with room.
    """
    spare = np.argmin(load)
    for i in range(owner.size):
        for t in range(indptr[i], indptr[i + 1]):
            p = holder[t]
            if load[p] <= limit or indices[t] == i:
                continue
            q = owner[indices[t]]
            if load[q] >= limit:
                if load[spare] >= limit:
                    spare = np.argmin(load)
                q = spare
            if load[q] + 1 < load[p]:
                holder[t] = q
                load[p] -= 1
                load[q] += 1

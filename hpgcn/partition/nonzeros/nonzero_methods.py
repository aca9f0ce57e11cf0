"""Partitioning methods that choose a holder for each nonzero, and an owner for each row."""
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from hpgcn.partition.effort import COARSE, FAST, is_sparse
from hpgcn.partition.partition_request import Parts, run
from hpgcn.partition.rows.partition_model import cut_nets, entry_rows, holders
from hpgcn.partition.rows.row_methods import best_columns, stream

SMALL = 1 << 24  # nonzeros that effort "fast" refines, at most


def cover(rows, weights, request, parts=None):
    """Find owners by rows, then holders with the fewest rows and sums by covers.

    Rows are those with which method best begins, or `parts` of the same effort. Holders
    are minimum vertex covers of pairs of parts, balanced (Kayaaslan, Aykanat and Ucar,
    SIAM J. Sci. Comput. 40(4), 2018). The refinement has a second start (`_rival`).
    With effort "fast" owners are those of method stream, and covers are greedy.
    """
    if request.effort == FAST:
        return _greedy(rows, request, parts or stream(rows, weights, request))
    if parts is None:
        parts = best_columns(rows, weights, request)

    from hpgcn.parallel.covers.vertex_covers import balanced_cover  # brings Numba

    reader, owner = parts.part[entry_rows(rows)], parts.part[rows.indices]
    loads = np.bincount(reader, minlength=request.k)
    share = 1 + min(request.epsilon, request.k - 1.0)  # k - 1: all in one part
    limit = max(int(share * rows.nnz / request.k), int(np.diff(rows.indptr).max()))
    summed = balanced_cover(rows, parts.part, parts.part, loads, limit)
    holder = np.where(summed, owner, reader)
    return _refine(rows, request, parts, holder, parts.part, _rival(rows, weights, request))


def medium_grain(rows, weights, request):
    """Partition groups of nonzeros: each joins its row or its column, the shorter one.

    Each row and each column has a net, and the pins are as in the column nets. The
    diagonal is in the group of the row, and owns it (Pelt and Bisseling, IPDPS 2014).
    """
    n = weights.size
    number = entry_rows(rows)
    columns = rows.indices
    of_row, of_column = np.diff(rows.indptr), np.bincount(columns, minlength=n)
    by_row = (of_row[number] <= of_column[columns]) | (number == columns)
    groups, group = np.unique(np.where(by_row, number, n + columns.astype(np.int64)),
                              return_inverse=True)
    grouped = np.bincount(group) + np.where(groups < n, request.w0, 0)
    return _by_groups(rows, weights, request, group, grouped)


def fine_grain(rows, weights, request):
    """Partition single nonzeros by nets of rows and of columns (Catalyurek, Aykanat 2001)."""
    single = 1 + request.w0 * (entry_rows(rows) == rows.indices)
    return _by_groups(rows, weights, request, np.arange(rows.nnz), single)


def vertex_cut(rows, weights, request, parts=None):
    """Give edges between parts of rows to the owner of one end, so vertices lie in few parts.

    The rows are `parts`, of the same effort, or those of method stream. Without
    refinement edges are assigned one by one (Libra); owners are the roots.
    """
    if not request.refine:
        return _by_edges(rows, request, None)
    return _greedy(rows, request, parts or stream(rows, weights, request), of_edges=True)


def distgnn(rows, weights, request):
    """Assign edges like `vertex_cut`, and draw the root of each vertex at random, unrefined.

    Source: distgnn-2021, sections 5.1 and 5.3.
    """
    from hpgcn.partition.nonzeros import cut_edges as cuts  # brings Numba

    edge_part, owner = cuts.vertex_cut(request.graph, request.k, seed=request.seed,
                                       roots=cuts.random_roots)
    return Parts(owner, holder=holders(request.graph, rows, edge_part, owner))


def expansion(rows, weights, request):
    """Grow parts from few vertices; each takes the edges between vertices it has reached."""
    from hpgcn.partition.nonzeros.expansion import expand  # brings Numba

    return _by_edges(rows, request, expand)


def _greedy(rows, request, parts, of_edges=False):
    """Find holders for parts of rows in a few passes (`greedy_holders`), and refine them.

    Effort "fast" refines small patterns only, because refinement takes about 80 bytes
    for each nonzero. `of_edges` is an argument of `_greedy_holders`.
    """
    refined = request.effort != FAST or rows.nnz <= SMALL
    holder, owner = _greedy_holders(rows, request, parts, of_edges and refined)
    if not refined:
        return replace(parts, part=owner, epsilon=request.epsilon, statistics={}, holder=holder)
    return _refine(rows, request, parts, holder, owner)


def _greedy_holders(rows, request, parts, of_edges):
    """Return the holders and owners of `greedy_holders` for parts of rows.

    With `of_edges`, both directions of an undirected edge get one holder.
    """
    from hpgcn.partition.nonzeros.greedy_holders import greedy_holders  # brings Numba
    from hpgcn.partition.nonzeros.nonzero_limits import part_capacity

    capacity = part_capacity(rows, request.k, request.epsilon, request.w0)
    holder, owner = greedy_holders(rows, parts.part, request.k, capacity, request.w0)
    if of_edges:
        from hpgcn.partition.nonzeros.refine_nonzeros import of_undirected_edges

        holder = of_undirected_edges(rows, holder, owner)
    return holder, owner


def _by_edges(rows, request, deal):
    from hpgcn.partition.nonzeros import cut_edges as cuts  # brings Numba

    edge_part, owner = cuts.vertex_cut(request.graph, request.k, seed=request.seed, deal=deal)
    holder = holders(request.graph, rows, edge_part, owner)
    return _refine(rows, request, Parts(owner), holder, owner)


def _by_groups(rows, weights, request, group, grouped):
    """Partition groups of nonzeros by nets of rows and of columns.

    `group` (nnz,) has the group of each nonzero, and `grouped` the weights of the
    groups.
    """
    number = entry_rows(rows)
    n = rows.shape[0]
    lines = np.concatenate([rows.indices, n + number.astype(np.int64)])
    # each group is in a net once
    nets = sp.csr_array((np.ones(lines.size, bool), (lines, np.tile(group, 2))),
                        shape=(2 * n, grouped.size))
    offsets, pins = cut_nets(nets)
    parts = run({"offsets": offsets, "pins": pins}, grouped, request)
    parts = replace(parts, divided="nonzeros" if parts.engine else "")
    holder = parts.part[group]
    rival = None if request.effort == FAST else _rival(rows, weights, request)
    return _refine(rows, request, parts, holder, holder[number == rows.indices], rival)


def _rival(rows, weights, request):
    """Return a second start for the refinement: holders and owners of method `vertex-cut`.

    Engines balance nonzeros but not rows, and evening out the rows later costs partial
    sums. The result is None for large patterns (COARSE entries) and for sparse ones, in
    which parts of `stream` send far more.
    """
    if not request.refine or rows.nnz >= COARSE or is_sparse(np.bincount(rows.indices)):
        return None
    return _greedy_holders(rows, request, stream(rows, weights, request), of_edges=True)


def _refine(rows, request, parts, holder, owner, rival=None):
    """Refine holders and owners, if requested, and put them into Parts.

    `rival` is an argument of `refine_nonzeros`.
    """
    epsilon = parts.epsilon
    unrefined = None
    if request.refine and request.k > 1:
        from hpgcn.partition.nonzeros.refine_nonzeros import refine_nonzeros

        epsilon = request.epsilon
        unrefined = owner, holder
        holder, owner = refine_nonzeros(rows, holder, owner, request.k, epsilon, request.w0,
                                        request.seed, request.effort, rival,
                                        by_engine=bool(parts.engine))
    return replace(parts, part=owner, epsilon=epsilon, holder=holder, unrefined=unrefined)

"""Choose the nonzeros that the owner of the column sums, by minimum vertex covers of
blocks.

A nonzero in the rows of rank p and the columns of rank q is held by p or by q. Rank p
receives its row of H; q sends a partial sum for its row of the product. The fewest rows
and sums that pass from q to p are a minimum vertex cover of the bipartite graph of the
block (Koenig). It comes from a maximum matching. A partial sum reads rows of H that q
owns: it is formed before anything arrives, and travels in the message of the rows.
Source: Kayaaslan, Aykanat and Ucar, SIAM J. Sci. Comput. 40(4), 2018.

All functions take the nonzeros of one rank's rows, or of all ranks'. Blocks do not
depend on each other, and ranks need only sums over all others.
"""
import numpy as np

from hpgcn.parallel.covers.cover_balance import balance
from hpgcn.parallel.covers.cover_blocks import PUSHED, BlockEntries


def balanced_cover(matrix, reader, owner, loads, limit, total=lambda array: array, *,
                   order=None, numbers=None):
    """Return the nonzeros that the owner of the column sums, (nnz,) bool, so that few
    rows and sums are sent.

    The choice is a minimum cover of each block, by its coarse Dulmage-Mendelsohn
    decomposition. It does not depend on the other blocks. But no rank may take nonzeros
    beyond a limit. If one would, the original ranks take back the sums of least cost
    for each nonzero. The cost of a sum is the number of rows of H sent in its place,
    less one. No block sends more rows and sums than it has columns, which are sent if
    nothing is summed.

    Parameters
    ----------
    matrix : csr_array (m, n)
        Its pattern counts. Columns need not be sorted.
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


def trimmed_cover(matrix, reader, owner, pushed):
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

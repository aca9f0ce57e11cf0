"""Graph attention with K heads of width f.

Source: Velickovic et al. 2018; demirci-2022 section 4.4.

For each stored entry (i, j) and head:

- the score is s = LeakyReLU(l_i + r_j);
- alpha is the softmax of s over the entries of row i;
- keep is drawn, 0 or 1 / (1 - p);
- out_i = sum over j of keep alpha x_j.

No array of the size of the nonzeros is stored. The backward has two passes, and neither adds to
rows of other ranks:

    attend_dots     computes, for each row of A, the K f + 3 K numbers that its neighbors need
                    (grad, l, lse and dot, side by side), and the gradient dl
    attend_backward pulls these numbers along the rows of A^T

"above" is the sum over only the entries whose l_i + r_j is above 0, where LeakyReLU' is 1:

    dl_i = (1 - slope) (<grad_i, above_i> - dot_i share_i)       as softmax bears a shift of row i
    dr_j = <slope dx_j + (1 - slope) above_j, x_j> - sum over i of alpha LeakyReLU' dot_i
"""

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.reference.random import dropout_scale, dropout_threshold, philox


def attend(indptr: Array, indices: Array, x: Array, row_score: Array, col_score: Array,
           out: Array | None = None, lse: Array | None = None, *, above: Array | None = None,
           share: Array | None = None, slope: float = 0.2, vertex: Array | None = None,
           neighbor: Array | None = None, seed: int = 0, epoch: int = 0, layer: int = 0,
           p: float = 0.0, first: int = 0, accumulate: bool = False) -> tuple[Array, Array]:
    """Return attended rows: sums weighted by a softmax over neighbors.

    Row i is the sum of keep softmax(LeakyReLU(l_i + r_j)) x_j over its entries (i, j).

    l is row_score, r is col_score. Softmax and weights are separate for each of K
    heads; head h has columns f h to f (h + 1) of x. A row without entries gives zeros,
    and lse -inf.

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows i, columns j
    x : (n, K f) float32 or float64
    row_score, col_score : (m, K) and (n, K); l and r
    out : (m, K f), optional
    lse : (m, K), optional
        Log of the sum of exp(score) over the row, from which the backward computes alpha
        again.
    above : (m, K f), optional
        Receives the same sums as `out`, but only of entries with l_i + r_j > 0;
        `attend_dots` needs it.
    share : (m, K), optional
        Receives the sum of alpha over the same entries, without dropout; needed with
        `above`.
    slope : float, 0 or more; of LeakyReLU below 0
    vertex, neighbor : (m,) and (n,) integers
        ORIGINAL numbers of rows and of columns; needed if p > 0 (`attention_bits`)
    p : float; probability of dropping an entry of a head, after softmax
    first : int
        Number of the first of these heads in the layer; it keys draws.
    accumulate : bool
        out, lse (and above, share) have results of other entries of the rows, to which
        these are added (online softmax: Milakov and Gimelshein 2018).

    Returns
    -------
    out : (m, K f)
    lse : (m, K)

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> scores = np.zeros((2, 1))
    >>> out, lse = reference.attend(indptr, indices, x, scores, scores)
    >>> out
    array([[ 1.5, 15. ],
           [ 2. , 20. ]])
    """
    # scores of the entries
    m, heads = row_score.shape
    row = np.repeat(np.arange(m), np.diff(indptr))
    column = indices[indptr[0]:indptr[-1]]
    z = row_score[row].astype(np.float64) + col_score[column]
    score = np.where(z > 0, z, slope * z)

    # softmax over each row
    top = np.full((m, heads), -np.inf)
    np.maximum.at(top, row, score)
    total = np.zeros((m, heads))
    np.add.at(total, row, np.exp(score - top[row]))
    with np.errstate(divide="ignore"):
        new_lse = np.log(total) + top
    alpha = np.exp(score - new_lse[row])

    # weighted sums
    weight = alpha * _factors(row, column, heads, vertex, neighbor, seed, epoch, layer, p, first)
    parts = (_row_sums(weight, x, row, column, m), new_lse,
             _row_sums(weight * (z > 0), x, row, column, m), _sum_rows(alpha * (z > 0), row, m))

    # store, or merge with results of other entries
    given = [np.zeros(part.shape, x.dtype) if array is None else array
             for array, part in zip((out, lse, above, share), parts)]
    if accumulate:
        attend_merge(given[0], given[1], parts[0], parts[1], above=given[2], share=given[3],
                     part_above=parts[2], part_share=parts[3])
    else:
        for array, part in zip(given, parts):
            array[:] = part
    return given[0], given[1]


def attend_merge(out: Array, lse: Array, part: Array, part_lse: Array, *,
                 above: Array | None = None, share: Array | None = None,
                 part_above: Array | None = None, part_share: Array | None = None) -> None:
    """Merge results of other entries of the same rows into `out` and `lse` (online softmax).

    All sums of `attend` are means weighted by exp(lse). Merged sums are such means as
    well, for any order of merging.

    Parameters
    ----------
    out, lse : (m, K f) and (m, K), changed
    part, part_lse : (m, K f) and (m, K); of the other entries
    above, share, part_above, part_share : optional, the same for the other two sums

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> out, part, lse = np.array([[1.0]]), np.array([[3.0]]), np.zeros((1, 1))
    >>> reference.attend_merge(out, lse, part, np.zeros((1, 1)))
    >>> out
    array([[2.]])
    >>> np.exp(lse).round(6)
    array([[2.]])
    """
    # weights of both, relative to the larger
    top = np.maximum(lse, part_lse).astype(np.float64)
    top[top == -np.inf] = 0
    mine, theirs = np.exp(lse - top), np.exp(part_lse - top)
    total = mine + theirs
    with np.errstate(divide="ignore"):
        lse[:] = np.log(total) + top

    # weighted means
    total[total == 0] = 1
    for sums, added in ((out, part), (above, part_above), (share, part_share)):
        if sums is not None:
            wide = [np.repeat(w / total, sums.shape[1] // w.shape[1], 1) for w in (mine, theirs)]
            sums[:] = wide[0] * sums + wide[1] * added


def attend_dots(grad: Array, out: Array, above: Array, share: Array, row_score: Array, lse: Array,
                pulled: Array | None = None, drow_score: Array | None = None, *,
                slope: float = 0.2) -> tuple[Array, Array]:
    """Return numbers of rows that `attend_backward` reads, and drow_score.

    Parameters
    ----------
    grad, out, above : (m, K f); gradient of out, and two results of `attend`
    share, row_score, lse : (m, K)
    pulled, drow_score : (m, K f + 3 K) and (m, K), optional; results

    Returns
    -------
    pulled : (m, K f + 3 K)
        The numbers that `attend_backward` pulls, side by side: grad, row_score, lse, and
        for each head the dot product of grad and out.
    drow_score : (m, K); gradient of row_score, (1 - slope) (<grad, above> - dot share)

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> one = np.ones((1, 1))
    >>> pulled, drow_score = reference.attend_dots(2 * one, 3 * one, one, one, one, one)
    >>> pulled
    array([[2., 1., 1., 6.]])
    >>> drow_score.round(6)
    array([[-3.2]])
    """
    # one dot product for each head
    heads = share.shape[1]
    wide = grad.astype(np.float64).reshape(*share.shape, grad.shape[1] // heads)
    dot = (wide * out.reshape(wide.shape)).sum(-1)

    # side by side, so that one message has all of them
    if pulled is None:
        pulled = np.empty((len(grad), grad.shape[1] + 3 * heads), grad.dtype)
    np.concatenate([grad, row_score, lse, dot.astype(grad.dtype)], axis=1, out=pulled)

    # gradient of the score of the row
    drow_score = np.empty_like(share) if drow_score is None else drow_score
    drow_score[:] = (1 - slope) * ((wide * above.reshape(wide.shape)).sum(-1) - dot * share)
    return pulled, drow_score


def attend_backward(indptr: Array, indices: Array, pulled: Array, x: Array, col_score: Array,
                    dx: Array | None = None, dcol_score: Array | None = None, *, slope: float = 0.2,
                    vertex: Array | None = None, neighbor: Array | None = None, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    accumulate: bool = False) -> tuple[Array, Array]:
    """Return the gradients of x and col_score, summed along the rows of A^T.

    Parameters
    ----------
    indptr, indices : (n + 1,) and (nnz,); A^T: rows j, columns i
    pulled : (m, K f + 3 K); result of `attend_dots`
    x, col_score : (n, K f) and (n, K)
    dx, dcol_score : (n, K f) and (n, K), optional; results
    slope, vertex, neighbor, seed, epoch, layer, p, first
        As in `attend`; vertex (m,), neighbor (n,).
    accumulate : bool
        Add to dx and dcol_score. Gradients of blocks of entries add up if lse and dot are
        those of whole rows.

    Returns
    -------
    dx, dcol_score

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> pulled = np.array([[2.0, 0.0, 0.0, 6.0]])
    >>> dx, dcol_score = reference.attend_backward(
    ...     np.array([0, 1]), np.array([0]), pulled, np.full((1, 1), 3.0), np.zeros((1, 1)))
    >>> dx
    array([[2.]])
    >>> dcol_score
    array([[0.]])
    """
    # operands of the entries
    n, heads = col_score.shape
    grad, row_score, lse, dot = np.split(
        pulled, x.shape[1] + heads * np.arange(3), axis=1)
    column = np.repeat(np.arange(n), np.diff(indptr))
    row = indices[indptr[0]:indptr[-1]]
    z = row_score[row].astype(np.float64) + col_score[column]

    # softmax again, from the log of the sum
    alpha = np.exp(np.where(z > 0, z, slope * z) - lse[row])
    weight = alpha * _factors(row, column, heads, vertex, neighbor, seed, epoch, layer, p, first)

    # gradient of the scores
    shape = (row.size, heads, x.shape[1] // heads)
    dots = (grad[row].astype(np.float64) * x[column]).reshape(shape).sum(-1)
    to_score = (weight * dots - alpha * dot[row]) * np.where(z > 0, 1, slope)

    # store or add
    dx = np.zeros_like(x) if dx is None else dx
    dcol_score = np.zeros_like(col_score) if dcol_score is None else dcol_score
    for array, sums in ((dx, _row_sums(weight, grad, column, row, n)),
                        (dcol_score, _sum_rows(to_score, column, n))):
        array[:] = array + sums if accumulate else sums
    return dx, dcol_score


def attention_bits(vertex: Array, neighbor: Array, heads: int, *, seed: int, epoch: int,
                   layer: int, p: float) -> Array:
    """Return the keep bits of the entries of a matrix.

    They depend only on vertex, neighbor, head, seed, epoch and layer. One Philox block
    gives 8 heads. The counter is (vertex low, neighbor low, vertex high << 16 |
    neighbor high, head >> 3).

    The key is the first two words of the block of counter (epoch, layer, 2^32 - 1, 2^32
    - 1) with key = seed. Bit q is 1 (keep) if 16-bit lane q >= round(p 65536).

    Parameters
    ----------
    vertex, neighbor : (k,) int64; ORIGINAL vertex numbers of row and of column
    heads : int

    Returns
    -------
    (k, heads) bool

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> bits = reference.attention_bits(
    ...     np.arange(2), np.arange(2), 4, seed=0, epoch=1, layer=0, p=0.5)
    >>> bits
    array([[False, False,  True,  True],
           [ True, False, False, False]])
    """
    # one counter per entry and eight heads, from 32 bits of each vertex number
    vertex, neighbor = (np.asarray(numbers, np.int64) for numbers in (vertex, neighbor))
    counter = np.empty((vertex.size, -(-heads // 8), 4), np.uint64)
    counter[..., 0] = (vertex & 0xFFFFFFFF)[:, None]
    counter[..., 1] = (neighbor & 0xFFFFFFFF)[:, None]
    counter[..., 2] = (vertex >> 32 << 16 | neighbor >> 32)[:, None]
    counter[..., 3] = np.arange(counter.shape[1])

    # draw, and compare 16 bits per head with the threshold
    words = philox(counter, attention_key(seed, epoch, layer))
    lanes = np.stack([words & 0xFFFF, words >> 16], -1).reshape(vertex.size, counter.shape[1] * 8)
    return lanes[:, :heads] >= dropout_threshold(p)


def attention_key(seed: int, epoch: int, layer: int) -> tuple:
    """Return the two words that key the draws of `attention_bits` in an epoch and layer."""
    last = 0xFFFFFFFF  # dropout_bits has such a counter only in epoch 2^32 - 1
    return tuple(map(int, philox((epoch, layer, last, last), (seed & last, seed >> 32))[:2]))


def _factors(row: Array, column: Array, heads: int, vertex: Array, neighbor: Array, seed: int,
             epoch: int, layer: int, p: float, first: int) -> Array:
    """Return the dropout factor of each entry and head: 0 or 1 / (1 - p)."""
    if not dropout_threshold(p):
        return 1
    bits = attention_bits(vertex[row], neighbor[column], first + heads, seed=seed, epoch=epoch,
                          layer=layer, p=p)
    return dropout_scale(p) * bits[:, first:]


def _row_sums(weight: Array, x: Array, row: Array, column: Array, m: int) -> Array:
    """Return sums of weight[k, h] x[column[k]] over the entries k of each row, for each head h."""
    wide = np.repeat(weight, x.shape[1] // weight.shape[1], 1)
    return _sum_rows(wide * x[column], row, m)


def _sum_rows(values: Array, row: Array, m: int) -> Array:
    sums = np.zeros((m, values.shape[1]))
    np.add.at(sums, row, values)
    return sums

"""Losses over rows: softmax of whole rows or blocks of columns, sigmoids for several labels."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import store

ABSENT = np.iinfo(np.int64).max  # larger than all columns, so never a minimum of others


def softmax_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, target: Array | None = None) -> tuple[float,
                          int]:
    """Return the softmax cross-entropy, and the number of correct rows; `grad` is written.

    Only the counted rows add to both.

    Parameters
    ----------
    logits : (m, c)
    labels : (m,) int64; class ids in 0..c-1 at `rows`
    rows : (r,) int64; rows that count
    scale : float; factor of the gradient (1 / global number of counted rows)
    grad : (m, c), optional
        Receives scale * (softmax - one-hot) at `rows`, 0 elsewhere; may be of 16 bits.
    target : (3, c) float64, optional
        Replaces the one-hot of a row of label y by t: t_q = target[1, q], plus
        target[0, y] for q = y; target[2, y] is the sum s of all t_q. The loss of the row is
        the sum over q of -t_q log(softmax_q), its gradient scale * (s softmax - t). So
        classes are weighted, and labels smoothed.

    Returns
    -------
    loss : float; SUM over rows, in float64
    correct : int

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> logits, labels, grad = np.zeros((2, 2)), np.array([0, 1]), np.empty((2, 2))
    >>> loss, correct = reference.softmax_cross_entropy(logits, labels, np.array([0]), grad=grad)
    >>> round(loss, 6), correct
    (0.693147, 1)
    >>> grad
    array([[-0.5,  0.5],
           [ 0. ,  0. ]])
    """
    # softmax in float64
    z = logits[rows].astype(np.float64)
    top = z.max(1, initial=-np.inf, keepdims=True)
    power = np.exp(z - top)
    total = power.sum(1, keepdims=True)

    # loss
    here = np.arange(rows.size)
    if target is None:
        loss = float((np.log(total[:, 0]) + top[:, 0] - z[here, labels[rows]]).sum())
    else:
        own, every, whole = target[0, labels[rows]], target[1], target[2, labels[rows]]
        loss = float((whole * np.log(total[:, 0]) + own * (top[:, 0] - z[here, labels[rows]])
                      + (top - z) @ every).sum())
    correct = int((logits[rows].argmax(1) == labels[rows]).sum()) if rows.size else 0

    # gradient, of these rows only
    if grad is not None:
        soft = power / total
        if target is not None:
            soft = soft * whole[:, None] - every
        soft[here, labels[rows]] -= 1 if target is None else own
        grad[:] = 0
        grad[rows] = store(soft * scale, np.empty(soft.shape, grad.dtype))
    return loss, correct


def sigmoid_cross_entropy(logits: Array, labels: Array, rows: Array, *, scale: float = 1.0,
                          grad: Array | None = None, smoothing: float = 0.0) -> tuple:
    """Return the binary cross-entropy of sigmoids, and counts of answers; `grad` is written.

    The counts are true positives, false positives and false negatives. The loss is a
    SUM over rows and labels. Divided by (global number of counted rows) * (global
    number of labels) it is the mean, like PyTorch's BCEWithLogitsLoss. A block of
    columns gives its part of every result. Everything else is as in
    `softmax_cross_entropy`.

    Parameters
    ----------
    labels : (m, t); 0 or 1, of any real dtype: several labels a vertex
    scale : float
        Factor of the gradient (1 / (global number of counted rows * global number of
        labels)).
    grad : (m, t), optional; receives scale * (sigmoid - label) at `rows`, 0 elsewhere
    smoothing : float; loss and gradient take (1 - smoothing) * label + smoothing / 2 for the label

    Returns
    -------
    loss : float; in float64; not finite if a logit is not
    true_positives, false_positives, false_negatives : int
        A label is predicted where its logit is > 0.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> logits, labels = np.array([[0.0, 0.0]]), np.array([[0, 1]])
    >>> loss, *counts = reference.sigmoid_cross_entropy(logits, labels, np.array([0]))
    >>> round(loss, 6), counts
    (1.386294, [0, 0, 1])
    """
    # loss, without an exponential that overflows
    z = logits[rows].astype(np.float64)
    true, predicted = labels[rows] > 0, z > 0
    y = (1 - smoothing) * labels[rows].astype(np.float64) + smoothing / 2
    small = np.exp(-np.abs(z))  # never overflows
    with np.errstate(invalid="ignore"):
        loss = float((np.maximum(z, 0) - z * y + np.log1p(small)).sum())

    # gradient, of these rows only
    if grad is not None:
        grad[:] = 0
        soft = np.where(z >= 0, 1, small) / (1 + small) - y
        grad[rows] = store(soft * scale, np.empty(soft.shape, grad.dtype))

    # counts
    counts = (true & predicted, ~true & predicted, true & ~predicted)
    return loss, *(int(count.sum()) for count in counts)


def spread_max(logits: Array) -> Array:
    """Return the maximum of each row of a block of columns.

    (m, f) to (m,), in the dtype of logits. A block without columns gives -inf. NaN is
    ignored.

    The softmax over columns that are spread over ranks, where `first` is the global
    number of a block's first column:

        top   = maximum over the blocks of spread_max(logits)
        total = sum over the blocks of spread_sum(logits, top)
        loss  = sum over the blocks of spread_gradient(logits, labels, first, rows, top, total, ...)
        class = minimum over the blocks of spread_argmax(logits, first, top)

    With one block, loss and gradient are those of `softmax_cross_entropy`.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.spread_max(np.array([[1.0, 3.0], [5.0, 2.0]]))
    array([3., 5.])
    """
    return np.fmax.reduce(logits, axis=1, initial=-np.inf).astype(logits.dtype)


def spread_sum(logits: Array, top: Array) -> Array:
    """Return the sum of exp(logits - top) over a block's columns, in float64.

    (m, f) and (m,) to (m,). `top` is the maximum of whole rows. A row with a logit that
    is not finite gives NaN, so that the loss shows it.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.spread_sum(np.array([[3.0, 3.0]]), np.array([3.0]))
    array([2.])
    """
    z = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (np.exp(z - top[:, None]) + (z - z)).sum(1)


def spread_gradient(logits: Array, labels: Array, first: int, rows: Array, top: Array, total: Array,
                    scale: float = 1.0, grad: Array | None = None,
                    target: Array | None = None) -> float:
    """Return a block's part of the cross-entropy; write its columns of the gradient.

    Parameters
    ----------
    labels : (m,) int64; GLOBAL class ids at `rows`
    first : int; global number of column 0
    top, total : (m,); maximum, and sum of exp(logits - top), of whole rows
    target : (3, C) float64, optional; of all classes, whatever columns this block has
    logits, rows, scale, grad
        As in `softmax_cross_entropy`, which also explains `target`.

    Returns
    -------
    loss : float
        Sum of log(total) + top - logit of the label, over rows whose label lies in this
        block. With `target`, s log(total) there, and t_q (top - logit) in each of the
        block's columns.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> logits, labels, grad = np.zeros((1, 2)), np.array([3]), np.empty((1, 2))
    >>> top, total = np.array([0.0]), np.array([4.0])
    >>> loss = reference.spread_gradient(
    ...     logits, labels, 2, np.array([0]), top, total, grad=grad)
    >>> round(loss, 6)
    1.386294
    >>> grad
    array([[ 0.25, -0.75]])
    """
    # rows whose label is in this block
    z = logits[rows].astype(np.float64)
    column = labels[rows] - first
    own = np.flatnonzero((column >= 0) & (column < logits.shape[1]))
    own_rows, own_columns = rows[own], column[own]

    # loss
    if target is None:
        loss = float((np.log(total[own_rows]) + top[own_rows] - z[own, own_columns]).sum())
    else:
        share, every = target[0, labels[own_rows]], target[1, first:first + logits.shape[1]]
        loss = float((target[2, labels[own_rows]] * np.log(total[own_rows])
                      + share * (top[own_rows] - z[own, own_columns])).sum()
                     + ((top[rows, None] - z) @ every).sum())

    # gradient, of these rows only
    if grad is not None:
        with np.errstate(invalid="ignore"):
            soft = np.exp(z - top[rows, None]) / total[rows, None]
        if target is not None:
            soft = soft * target[2, labels[rows], None] - every
        soft[own, own_columns] -= 1 if target is None else share
        grad[:] = 0
        grad[rows] = store(soft * scale, np.empty(soft.shape, grad.dtype))
    return loss


def spread_argmax(logits: Array, first: int, top: Array) -> Array:
    """Return the lowest global column whose logit equals `top`, (m,) int64.

    It is ABSENT (2^63 - 1) if all logits differ from `top`.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> logits, top = np.array([[1.0, 3.0], [5.0, 2.0]]), np.array([3.0, 5.0])
    >>> reference.spread_argmax(logits, 10, top)
    array([11, 10])
    """
    columns = np.where(logits == top[:, None], first + np.arange(logits.shape[1]), ABSENT)
    return columns.min(1, initial=ABSENT)

"""Dot products of rows and columns, softmax over rows, and sums of messages, by entries.

Messages read edge features: Hu et al. 2020, Strategies for pre-training graph neural
networks (GINE).
"""

import numpy as np

from hpgcn.kernels import Array


def edge_dot(indptr: Array, indices: Array, x: Array, y: Array, out: Array | None = None, *,
             heads: int = 1) -> Array:
    """Return the dot products of x_i and y_j for each entry (i, j) and head (SDDMM).

    The gradient of x is `spmm` of y with the gradient of out as weights; the gradient
    of y is the same along A^T.

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows i, columns j
    x, y : (m, K f) and (n, K f) float32 or float64
    out : (nnz, K), optional; entries of no row keep their numbers, or are 0 in a new array
    heads : int; K

    Returns
    -------
    out : (nnz, K)

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1])
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> reference.edge_dot(indptr, indices, x, x)
    array([[101.],
           [202.],
           [404.]])
    """
    out = np.zeros((indices.size, heads), x.dtype) if out is None else out
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))

    # entries before indptr[0] and from indptr[-1] on belong to no row
    held = slice(int(indptr[0]), int(indptr[-1]))
    shape = (row.size, heads, x.shape[1] // heads)
    out[held] = (x[row].astype(np.float64) * y[indices[held]]).reshape(shape).sum(-1)
    return out


def edge_softmax(indptr: Array, values: Array, out: Array | None = None) -> Array:
    """Return the softmax of values over the entries of each row, for each of K columns.

    Parameters
    ----------
    indptr : (m + 1,) int32 or int64; from 0 to nnz
    values : (nnz, K) float32 or float64
    out : (nnz, K), optional; may be values

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> values = np.array([[0.0], [0.0], [7.0]])
    >>> reference.edge_softmax(np.array([0, 2, 3]), values)
    array([[0.5],
           [0.5],
           [1. ]])
    """
    out = np.empty_like(values) if out is None else out
    m, heads = indptr.size - 1, values.shape[1]
    row = np.repeat(np.arange(m), np.diff(indptr))

    # relative to the largest of each row, so that no power overflows
    top = np.full((m, heads), -np.inf)
    np.maximum.at(top, row, values)
    power = np.exp(values - top[row])
    total = np.zeros((m, heads))
    np.add.at(total, row, power)
    out[:] = power / total[row]
    return out


def edge_softmax_backward(indptr: Array, alpha: Array, grad: Array,
                          out: Array | None = None) -> Array:
    """Return the gradient of the values of `edge_softmax`.

    The gradient is alpha (grad - sum of alpha grad over the row).

    Parameters
    ----------
    indptr : (m + 1,) int32 or int64; from 0 to nnz
    alpha, grad : (nnz, K); result of `edge_softmax`, and its gradient
    out : (nnz, K), optional; may be alpha or grad

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> alpha, grad = np.array([[0.5], [0.5], [1.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> reference.edge_softmax_backward(np.array([0, 2, 3]), alpha, grad)
    array([[-0.5],
           [ 0.5],
           [ 0. ]])
    """
    out = np.empty_like(alpha) if out is None else out
    m = indptr.size - 1
    row = np.repeat(np.arange(m), np.diff(indptr))
    total = np.zeros((m, alpha.shape[1]))
    np.add.at(total, row, alpha.astype(np.float64) * grad)
    out[:] = alpha * (grad - total[row])
    return out


def edge_relu(indptr: Array, indices: Array, edge: Array, x: Array, features: Array, weight: Array,
              bias: Array, out: Array | None = None, *, accumulate: bool = False) -> Array:
    """Return for each row i the sum over its entries (i, j) of relu(x_j + e_ij W + b).

    Parameters
    ----------
    indptr, indices : (m + 1,) and (nnz,) int32 or int64; rows i, columns j
    edge : (nnz,) int32 or int64
        Row of `features` that belongs to each entry.
    x : (n, f) float32 or float64
    features : (u, d), of the dtype of x; the e_ij
    weight, bias : (d, f) and (f,); W and b
    out : (m, f), optional
    accumulate : bool
        Add the sums to `out`.

    Returns
    -------
    out : (m, f)

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices, edge = np.array([0, 2, 2]), np.array([0, 1]), np.array([1, 0])
    >>> x, features = np.array([[1.0], [2.0]]), np.array([[1.0], [-3.0]])
    >>> reference.edge_relu(indptr, indices, edge, x, features, np.ones((1, 1)), np.ones(1))
    array([[4.],
           [0.]])
    """
    m = indptr.size - 1
    out = np.zeros((m, x.shape[1]), x.dtype) if out is None else out
    row, held = _rows(indptr)
    inner = _inner(x[indices[held]], features[edge[held]], weight, bias)
    sums = np.zeros(out.shape)
    np.add.at(sums, row, np.where(inner <= 0, 0, inner))
    out[:] = out + sums if accumulate else sums
    return out


def edge_relu_backward(indptr: Array, indices: Array, edge: Array, x: Array, features: Array,
                       weight: Array, bias: Array, grad: Array, out: Array | None = None, *,
                       accumulate: bool = False) -> tuple[Array, ...]:
    """Return the gradients of x, W and b in `edge_relu`, along the transpose.

    Parameters
    ----------
    indptr, indices : (n + 1,) and (nnz,) int32 or int64
        The transpose: rows j, columns i.
    edge : (nnz,) int32 or int64
        Row of `features` that belongs to each entry of the transpose.
    x, features, weight, bias
        As for `edge_relu`.
    grad : (m, f); gradient of the sums
    out : (n, f), optional; receives the gradient of x
    accumulate : bool
        Add the gradient of x to `out`.

    Returns
    -------
    out : (n, f)
    dweight, dbias : (d, f) and (f,) float64

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> indptr, indices, edge = np.array([0, 1, 2]), np.array([0, 0]), np.array([1, 0])
    >>> x, features = np.array([[1.0], [2.0]]), np.array([[1.0], [-3.0]])
    >>> one = np.ones((1, 1))
    >>> reference.edge_relu_backward(indptr, indices, edge, x, features, one, one[0], 5 * one)
    (array([[0.],
           [5.]]), array([[5.]]), array([5.]))
    """
    out = np.zeros(x.shape, x.dtype) if out is None else out
    row, held = _rows(indptr)
    e = features[edge[held]].astype(np.float64)
    slopes = np.where(_inner(x[row], e, weight, bias) <= 0, 0, grad[indices[held]])
    sums = np.zeros(out.shape)
    np.add.at(sums, row, slopes)
    out[:] = out + sums if accumulate else sums
    return out, e.T @ slopes, slopes.sum(0, np.float64)


def _rows(indptr: Array) -> tuple:
    """Return the row of each entry, and the slice of the entries that rows have."""
    row = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    return row, slice(int(indptr[0]), int(indptr[-1]))


def _inner(x: Array, e: Array, weight: Array, bias: Array) -> Array:
    return x.astype(np.float64) + bias + e.astype(np.float64) @ weight

"""Normalization of rows and of columns, whole or in blocks.

Source: Ba, Kiros and Hinton 2016, section 3.

Per row: xhat = (x - mean) / sqrt(variance + epsilon), y = gain * xhat + bias.
s() means "summed over the blocks of the row", and f is the GLOBAL number of columns:

    mean = s(row_sum(x)) / f
    inv_std = 1 / sqrt(s(row_squares(x, mean)) / f + epsilon)
    y = layer_norm(x, mean, inv_std, gain, bias, xhat)
    sums, dgain, dbias = layer_norm_backward_sums(g, xhat, gain)
    dx = layer_norm_backward(g, xhat, inv_std, gain, s(sums) / f)

The mean is computed first, then the squares of deviations from it. The difference of the
sums of x^2 and mean^2 would cancel if the mean is large against the deviation. Both ways
send two float64 numbers a row.

Batch normalization (Ioffe and Szegedy 2015, Algorithm 1) takes moments of columns
instead, by `column_sum`. Here s() means "summed over the blocks of the column", and n is the
GLOBAL number of rows:

    mean = s(column_sum(x)) / n
    inv_std = 1 / sqrt(s(column_squares(x, mean)) / n + epsilon)
    y = batch_norm(x, mean, inv_std, gain, bias, xhat)
    _, dgain, dbias = layer_norm_backward_sums(g, xhat, gain)
    dx = batch_norm_backward(g, xhat, inv_std, gain, (s(dbias), s(dgain)) / n)
"""
import numpy as np

from hpgcn.kernels import Array


def row_sum(x: Array) -> Array:
    """Return the sum of each row in float64: (m, f) to (m,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.row_sum(np.array([[1.0, 10.0], [2.0, 20.0]]))
    array([11., 22.])
    """
    return x.sum(1, dtype=np.float64)


def row_squares(x: Array, mean: Array) -> Array:
    """Return the sum of (x - mean)^2 over each row, in float64.

    (m, f) and (m,) float64 to (m,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.row_squares(np.array([[1.0, 3.0]]), np.array([2.0]))
    array([2.])
    """
    return ((x.astype(np.float64) - mean[:, None]) ** 2).sum(1)


def layer_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    """Return out = gain * (x - mean) * inv_std + bias, by rows.

    The result is computed in float64 and rounded when stored.

    Parameters
    ----------
    x : (m, f) float32 or float64
    mean, inv_std : (m,) float64; of whole rows
    gain, bias : (f,)
    out : (m, f), optional; made if absent; may be x
    xhat : (m, f), optional
        Receives (x - mean) * inv_std, which the backward needs; may be x, not out.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> mean, inv_std = np.array([2.0]), np.array([1.0])
    >>> reference.layer_norm(np.array([[1.0, 3.0]]), mean, inv_std, np.full(2, 5.0), np.zeros(2))
    array([[-5.,  5.]])
    """
    out = np.empty_like(x) if out is None else out
    normal = (x.astype(np.float64) - mean[:, None]) * inv_std[:, None]
    if xhat is not None:
        xhat[:] = normal
    out[:] = normal * gain + bias
    return out


def layer_norm_backward_sums(g: Array, xhat: Array, gain: Array) -> tuple[Array, ...]:
    """Return sums of rows, dgain and dbias for the backward of `layer_norm`, in float64.

    Parameters
    ----------
    g : (m, f); gradient of layer_norm's result
    xhat : (m, f)
    gain : (f,)

    Returns
    -------
    sums : (m, 2) float64; sums over columns of gain * g and of gain * g * xhat
    dgain, dbias : (f,) float64; gradients of gain and bias: sums over rows of g * xhat and of g

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> g, xhat = np.array([[1.0, 2.0]]), np.array([[-1.0, 1.0]])
    >>> sums, dgain, dbias = reference.layer_norm_backward_sums(g, xhat, np.ones(2))
    >>> sums, dgain, dbias
    (array([[3., 1.]]), array([-1.,  2.]), array([1., 2.]))
    """
    g, xhat = g.astype(np.float64), xhat.astype(np.float64)
    sums = np.stack([(gain * g).sum(1), (gain * g * xhat).sum(1)], 1)
    return sums, (g * xhat).sum(0), g.sum(0)


def layer_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    """Return the gradient of x of `layer_norm`.

    out = inv_std * (gain * g - means[:, 0] - xhat * means[:, 1]).

    The result is computed in float64 and rounded when stored.

    Parameters
    ----------
    g, xhat : (m, f)
    inv_std : (m,) float64
    gain : (f,)
    means : (m, 2) float64
        Sums of `layer_norm_backward_sums` over whole rows, by the global number of
        columns.
    out : (m, f), optional; made if absent; may be g or xhat

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> g, xhat = np.array([[1.0, 2.0]]), np.array([[-1.0, 1.0]])
    >>> means = np.array([[1.5, 0.5]])
    >>> reference.layer_norm_backward(g, xhat, np.ones(1), np.ones(2), means)
    array([[0., 0.]])
    """
    out = np.empty_like(g) if out is None else out
    # float64 until the result is stored
    centered = g * gain.astype(np.float64) - means[:, :1]
    out[:] = inv_std[:, None] * (centered - xhat.astype(np.float64) * means[:, 1:])
    return out


def column_squares(x: Array, mean: Array) -> Array:
    """Return the sum of (x - mean)^2 over each column, in float64.

    (m, f) and (f,) float64 to (f,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> reference.column_squares(np.array([[1.0], [3.0]]), np.array([2.0]))
    array([2.])
    """
    return ((x.astype(np.float64) - mean) ** 2).sum(0)


def batch_norm(x: Array, mean: Array, inv_std: Array, gain: Array, bias: Array,
               out: Array | None = None, *, xhat: Array | None = None) -> Array:
    """Normalize columns, like `layer_norm` does rows; mean and inv_std are (f,) float64.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> mean, inv_std = np.array([2.0]), np.array([1.0])
    >>> reference.batch_norm(np.array([[1.0], [3.0]]), mean, inv_std, np.full(1, 5.0), np.zeros(1))
    array([[-5.],
           [ 5.]])
    """
    out = np.empty_like(x) if out is None else out
    normal = (x.astype(np.float64) - mean) * inv_std
    if xhat is not None:
        xhat[:] = normal
    out[:] = normal * gain + bias
    return out


def batch_norm_backward(g: Array, xhat: Array, inv_std: Array, gain: Array, means: Array,
                        out: Array | None = None) -> Array:
    """Return the gradient of x of `batch_norm`.

    out = inv_std * gain * (g - means[0] - xhat * means[1]).

    The result is computed in float64. means (2, f) float64 holds the means of g and of
    g * xhat over all rows. Other arguments are as in `layer_norm_backward`, with
    inv_std (f,).

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> g, xhat = np.array([[1.0], [4.0]]), np.array([[-1.0], [1.0]])
    >>> means = np.array([[2.5], [1.5]])
    >>> reference.batch_norm_backward(g, xhat, np.ones(1), np.ones(1), means)
    array([[0.],
           [0.]])
    """
    out = np.empty_like(g) if out is None else out
    centered = g.astype(np.float64) - means[0] - xhat.astype(np.float64) * means[1]
    out[:] = inv_std * gain.astype(np.float64) * centered
    return out

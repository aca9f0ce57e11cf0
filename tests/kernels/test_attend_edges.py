"""Kernels with a number for each entry: dot products, softmax, gradients and empty rows."""
import numpy as np
import pytest
from arrays import assert_all
from cases import DTYPES, long, tolerance

from hpgcn.kernels import cpu, reference

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
HEADS = [1, 3, 8]


def graph(index=np.int32):
    rng = np.random.default_rng(0)
    pattern = rng.random((40, 30)) < 0.2
    pattern[[0, 7]] = False
    pattern[8] = True
    return pattern, np.r_[0, pattern.sum(1).cumsum()], pattern.nonzero()[1].astype(index), rng


def masked_softmax(pattern, values):
    """Return the softmax over each row's entries for every column of `values`, by dense arrays."""
    dense = np.full((*pattern.shape, values.shape[1]), -np.inf)
    dense[pattern] = values
    power = np.exp(dense - np.where(pattern.any(1)[:, None, None], dense.max(1, keepdims=True), 0))
    return (power / np.maximum(power.sum(1, keepdims=True), 1e-300))[pattern]


@BOTH
@DTYPES
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("f", [1, 5, 16, long(64)])
def test_dots_are_those_of_dense_matrices(kernels, f, heads, dtype):
    pattern, indptr, indices, rng = graph(np.int64 if f == 64 else np.int32)
    x, y = (rng.standard_normal((rows, heads * f)).astype(dtype) for rows in pattern.shape)
    result = kernels.edge_dot(indptr, indices, x, y, heads=heads)
    wide = [array.astype(np.float64).reshape(len(array), heads, f) for array in (x, y)]
    expected = np.einsum("ihf,jhf->ijh", *wide)[pattern]
    bound = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(result, expected, rtol=bound, atol=bound * f)
    assert result.dtype == dtype


@BOTH
def test_dots_of_some_rows_leave_other_entries(kernels):
    pattern, indptr, indices, rng = graph()
    x, y = (rng.standard_normal((rows, 6)) for rows in pattern.shape)
    whole = kernels.edge_dot(indptr, indices, x, y, heads=2)
    out = np.full_like(whole, 7)
    assert kernels.edge_dot(indptr[10:21], indices, x[10:20], y, out, heads=2) is out
    held = slice(indptr[10], indptr[20])
    np.testing.assert_array_equal(out[held], whole[held])
    assert_all(out[:held.start] == 7)
    assert_all(out[held.stop:] == 7)


@BOTH
@DTYPES
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("size", [1, 1e4])
def test_softmax_is_that_of_dense_matrices(kernels, heads, size, dtype):
    pattern, indptr, indices, rng = graph()
    values = (size * rng.standard_normal((indices.size, heads))).astype(dtype)
    expected = masked_softmax(pattern, values.astype(np.float64))
    result = kernels.edge_softmax(indptr, values)
    np.testing.assert_allclose(result, expected, **tolerance(dtype))
    assert kernels.edge_softmax(indptr, values, values) is values
    np.testing.assert_array_equal(values, result)


@BOTH
@pytest.mark.parametrize("heads", HEADS)
def test_gradient_of_softmax_is_a_finite_difference(kernels, heads):
    pattern, indptr, indices, rng = graph()
    values, grad, direction = rng.standard_normal((3, indices.size, heads))
    gradient = kernels.edge_softmax_backward(indptr, kernels.edge_softmax(indptr, values), grad)
    h = 1e-6
    above, below = ((masked_softmax(pattern, values + step * direction) * grad).sum()
                    for step in (h, -h))
    assert (gradient * direction).sum() == pytest.approx((above - below) / (2 * h), rel=1e-6)


@BOTH
def test_gradient_of_dots_is_a_product(kernels):
    _, indptr, indices, rng = graph()
    x, y = rng.standard_normal((40, 6)), rng.standard_normal((30, 6))
    g, direction = rng.standard_normal((indices.size, 1)), rng.standard_normal((40, 6))
    dots = kernels.edge_dot(indptr, indices, direction, y)
    dx = reference.spmm(indptr, indices, g.ravel(), y)
    assert (dots * g).sum() == pytest.approx((dx * direction).sum(), rel=1e-12)
    assert kernels.edge_dot(indptr, indices, x, y).shape == (indices.size, 1)


@BOTH
def test_nothing_to_read(kernels):
    none = np.zeros((0, 2))
    assert kernels.edge_softmax(np.zeros(4, int), none).shape == (0, 2)
    assert kernels.edge_softmax_backward(np.zeros(1, int), none, none).shape == (0, 2)
    dots = kernels.edge_dot(np.zeros(4, int), np.zeros(0, np.int32), np.ones((3, 4)),
                            np.ones((2, 4)), heads=2)
    assert dots.shape == (0, 2)

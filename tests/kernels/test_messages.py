"""The kernels `edge_relu`: results by hand, finite differences and parts that add up."""
import numpy as np
import pytest
from cases import DTYPES

from hpgcn.kernels import cpu, reference

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])

# rows 0: entries 0 1 2 from 1 0 1 (a source twice), row 1: empty, row 2: entry 3 from 2
INDPTR, INDICES = np.array([0, 3, 3, 4]), np.array([1, 0, 1, 2], np.int32)
EDGE = np.array([3, 0, 1, 2])
X = [[1, 8], [2, 4], [5, -6]]
FEATURES = [[1, 0], [-2, 1], [0, 1], [3, -2]]
WEIGHT, BIAS = [[1, -1], [2, 0]], [0.5, -1]
# x_j + e W + b of each entry: 2 + 3 - 4 + 0.5, 4 - 3 - 1; 1 + 1 + 0.5, 8 - 1 - 1;
# 2 - 2 + 2 + 0.5, 4 + 2 - 1; 5 + 2 + 0.5, -6 - 1
SUMS = [[1.5 + 2.5 + 2.5, 0 + 6 + 5], [0, 0], [7.5, 0]]


@BOTH
@DTYPES
def test_table(kernels, dtype):
    given = [np.array(each, dtype) for each in (X, FEATURES, WEIGHT, BIAS)]
    out = kernels.edge_relu(INDPTR, INDICES, EDGE, *given)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, np.array(SUMS, dtype))

    # the slope at 0 is 0
    indptr, indices, edge = kernels.transpose_pattern(INDPTR, INDICES, 3)
    grad = np.array([[1, 10], [100, 100], [3, 2]], dtype)
    dx, dweight, dbias = kernels.edge_relu_backward(
        indptr, indices, EDGE[edge], *given, grad)
    assert (dx.dtype, dweight.dtype, dbias.dtype) == (dtype, np.float64, np.float64)
    np.testing.assert_array_equal(dx, [[1, 10], [2, 10], [3, 0]])
    np.testing.assert_array_equal(dweight, [[3 + 1 - 2, 10 - 20], [-2 + 1 + 3, 10]])
    np.testing.assert_array_equal(dbias, [6, 20])


def random_case(d=5, f=7, dtype=np.float64):
    rng = np.random.default_rng(1)
    count = rng.integers(0, 9, 90) * (rng.random(90) < 0.8)
    count[[7, 40]] = 300, 700
    indptr = np.r_[0, count.cumsum()]
    indices = rng.integers(0, 60, indptr[-1]).astype(np.int32)
    given = (rng.standard_normal(shape) for shape in ((60, f), (indptr[-1], d), (d, f), f))
    edge = rng.permutation(indptr[-1])
    return indptr, indices, edge, *(each.astype(dtype) for each in given)


@pytest.mark.parametrize("d, f", [(1, 1), (4, 16), (5, 7), (9, 33)])
def test_the_reference(d, f):
    indptr, indices, edge, *given = random_case(d, f)
    ours, theirs = (kernels.edge_relu(indptr, indices, edge, *given)
                    for kernels in (cpu, reference))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    pattern = reference.transpose_pattern(indptr, indices, 60)
    grad = np.random.default_rng(2).standard_normal((90, f))
    ours, theirs = (kernels.edge_relu_backward(*pattern[:2], edge[pattern[2]], *given, grad)
                    for kernels in (cpu, reference))
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


@BOTH
def test_finite_differences(kernels):
    indptr, indices, edge, *given = random_case()
    rng = np.random.default_rng(3)
    grad = rng.standard_normal((90, 7))
    pattern = reference.transpose_pattern(indptr, indices, 60)
    gradients = kernels.edge_relu_backward(*pattern[:2], edge[pattern[2]], *given, grad)
    x, features, *weights = given
    for place, array, gradient in zip(range(3), (x, *weights), gradients):
        step = rng.standard_normal(array.shape) * 1e-7
        moved = [x, *weights]
        sums = []
        for sign in (1, -1):
            moved[place] = array + sign * step
            sums.append((kernels.edge_relu(indptr, indices, edge, moved[0], features, *moved[1:])
                         * grad).sum())
        np.testing.assert_allclose((sums[0] - sums[1]) / 2, (step * gradient).sum(), rtol=1e-5)


@BOTH
def test_parts_of_rows_and_of_columns_add_up(kernels):
    """A tile has pointers that begin past 0; another block adds to the sums."""
    indptr, indices, edge, *given = random_case()
    whole = kernels.edge_relu(indptr, indices, edge, *given)
    halves = [kernels.edge_relu(indptr[rows], indices, edge, *given)
              for rows in (slice(0, 31), slice(30, 91))]
    np.testing.assert_array_equal(np.concatenate(halves), whole)

    twice = kernels.edge_relu(indptr, indices, edge, *given, whole.copy(), accumulate=True)
    np.testing.assert_allclose(twice, 2 * whole, rtol=1e-13)

    pattern = reference.transpose_pattern(indptr, indices, 60)
    back = *pattern[:2], edge[pattern[2]]
    grad = np.ones((90, 7))
    dx, *sums = kernels.edge_relu_backward(*back, *given, grad)
    again = kernels.edge_relu_backward(*back, *given, grad, dx.copy(), accumulate=True)[0]
    np.testing.assert_allclose(again, 2 * dx, rtol=1e-13)
    halves = [kernels.edge_relu_backward(back[0][first:last + 1], *back[1:], given[0][first:last],
                                         *given[1:], grad) for first, last in ((0, 20), (20, 60))]
    np.testing.assert_array_equal(np.concatenate([half[0] for half in halves]), dx)
    for place, total in enumerate(sums, 1):
        np.testing.assert_allclose(sum(half[place] for half in halves), total, rtol=1e-12)

"""Layer and batch normalization: results by hand, gradients, and blocks against the whole."""
import numpy as np
import pytest
from arrays import assert_none
from cases import CUTS, DTYPES

from hpgcn.kernels import cpu, reference

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
EPSILON = 1e-5


def forward(kernels, blocks, gains, biases):
    """Normalize rows given as blocks of columns.

    Return results, normalized blocks and 1 / deviation.
    """
    f = sum(block.shape[1] for block in blocks)
    mean = sum(kernels.row_sum(block) for block in blocks) / f
    inv_std = 1 / np.sqrt(sum(kernels.row_squares(block, mean) for block in blocks) / f + EPSILON)
    normals = [np.empty_like(block) for block in blocks]
    results = [kernels.layer_norm(block, mean, inv_std, gain, bias, xhat=xhat)
               for block, gain, bias, xhat in zip(blocks, gains, biases, normals)]
    return results, normals, inv_std


def backward(kernels, slopes, normals, inv_std, gains):
    blocks = list(zip(slopes, normals, gains))
    sums, dgain, dbias = zip(*(kernels.layer_norm_backward_sums(*block) for block in blocks))
    means = sum(sums) / sum(gain.size for gain in gains)
    dx = [kernels.layer_norm_backward(g, xhat, inv_std, gain, means) for g, xhat, gain in blocks]
    return np.hstack(dx), np.hstack(dgain), np.hstack(dbias)


def case(m, f, dtype=np.float64):
    rng = np.random.default_rng(m + f)
    x, g = rng.standard_normal((2, m, f)).astype(dtype)
    gain = rng.random(f).astype(dtype) + dtype(0.5)
    return x + dtype(3), g, gain, rng.standard_normal(f).astype(dtype)


@BOTH
@DTYPES
def test_table(kernels, dtype):
    x = np.array([[1, 3, 5, 7], [2, 2, 2, 2]], dtype)
    mean = kernels.row_sum(x) / 4
    squares = kernels.row_squares(x, mean)
    assert mean.tolist() == [4, 2] and squares.tolist() == [20, 0]
    assert mean.dtype == squares.dtype == np.float64
    inv_std = np.array([0.5, 9])
    xhat = np.empty_like(x)
    gain, bias = np.array([[1, 1, 2, -2], [0, 10, 0, 0]], dtype)
    out = kernels.layer_norm(x, mean, inv_std, gain, bias, xhat=xhat)
    assert out.dtype == dtype
    np.testing.assert_array_equal(xhat, [[-1.5, -0.5, 0.5, 1.5], [0, 0, 0, 0]])
    np.testing.assert_array_equal(out, [[-1.5, 9.5, 1, -3], [0, 10, 0, 0]])
    g = np.array([[1, 0, 0, 2], [3, 4, 0, 0]], dtype)
    sums, dgain, dbias = kernels.layer_norm_backward_sums(g, xhat, gain)
    np.testing.assert_array_equal(sums, [[-3, -7.5], [7, 0]])
    np.testing.assert_array_equal(dgain, [-1.5, 0, 0, 3])
    np.testing.assert_array_equal(dbias, [4, 4, 0, 2])
    dx = kernels.layer_norm_backward(g, xhat, inv_std, gain, np.array([[-1, 2], [0, 0]], float))
    np.testing.assert_array_equal(dx, [[2.5, 1, 0, -3], [27, 36, 0, 0]])


@DTYPES
@pytest.mark.parametrize("m, f", [(1, 1), (70, 1), (70, 2), (33, 8), (65, 41), (130, 128)])
def test_against_the_reference(dtype, m, f):
    x, g, gain, bias = case(m, f, dtype)
    close = 2e-6 if dtype == np.float32 else 1e-12
    results, expected = (forward(kernels, [x], [gain], [bias]) for kernels in (cpu, reference))
    for mine, theirs in zip(results[:2], expected[:2]):
        np.testing.assert_allclose(mine[0], theirs[0], rtol=close, atol=close)
    np.testing.assert_allclose(results[2], expected[2], rtol=1e-13)
    gradients = [backward(kernels, [g], expected[1], expected[2], [gain])
                 for kernels in (cpu, reference)]
    size = 1 + np.abs(gradients[1][0]).max()  # one column: inv_std is 1 / sqrt(epsilon)
    for mine, theirs in zip(*gradients):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=close, atol=close * size)


@BOTH
@DTYPES
@pytest.mark.parametrize("cuts", CUTS)
def test_blocks_of_columns(kernels, dtype, cuts):
    x, g, gain, bias = case(40, 11, dtype)

    def cut(array):
        return [block.copy() for block in np.split(array, cuts, axis=-1)]

    whole, normal, inv_std = forward(kernels, [x], [gain], [bias])
    results, normals, same = forward(kernels, cut(x), cut(gain), cut(bias))
    single = dtype == np.float32
    close = {"rtol": 1e-6 if single else 1e-12, "atol": 1e-6 if single else 1e-13}
    np.testing.assert_allclose(same, inv_std, rtol=1e-13)
    np.testing.assert_allclose(np.hstack(results), whole[0], **close)
    np.testing.assert_allclose(np.hstack(normals), normal[0], **close)
    expected = backward(kernels, [g], normal, inv_std, [gain])
    for mine, theirs in zip(backward(kernels, cut(g), normals, same, cut(gain)), expected):
        np.testing.assert_allclose(mine, theirs, **close)


@BOTH
def test_gradients_by_finite_differences(kernels):
    x, g, gain, bias = case(3, 5)
    _, normals, inv_std = forward(kernels, [x], [gain], [bias])
    gradients = backward(kernels, [g], normals, inv_std, [gain])
    for array, gradient in zip((x, gain, bias), gradients):
        for index in np.ndindex(array.shape):
            values = []
            kept = array[index]
            for step in (1e-6, -1e-6):
                array[index] = kept + step
                values.append((forward(kernels, [x], [gain], [bias])[0][0] * g).sum())
            array[index] = kept
            assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)


@BOTH
@DTYPES
def test_moments_survive_a_large_mean(kernels, dtype):
    # E x^2 - (E x)^2 would lose all digits of the variance in float64, and give a negative one
    large = dtype(2**22 if dtype == np.float32 else 2**40)
    x = np.tile(np.array([-1, 1, -1, 1, 1, -1], dtype), (4, 1)) + large
    mean = kernels.row_sum(x) / 6
    assert kernels.row_squares(x, mean).tolist() == [6] * 4
    out = kernels.layer_norm(x, mean, np.ones(4), np.ones(6, dtype), np.zeros(6, dtype))
    assert out[0].tolist() == [-1, 1, -1, 1, 1, -1]


@BOTH
@DTYPES
def test_results_may_replace_operands(kernels, dtype):
    x, g, gain, bias = case(9, 13, dtype)
    mean = kernels.row_sum(x) / 13
    inv_std = np.linspace(0.5, 2, 9)
    xhat = np.empty_like(x)
    out = kernels.layer_norm(x, mean, inv_std, gain, bias, xhat=xhat)
    inside = x.copy()
    assert kernels.layer_norm(inside, mean, inv_std, gain, bias, inside) is inside
    np.testing.assert_array_equal(inside, out)
    normal = x.copy()
    spare = kernels.layer_norm(normal, mean, inv_std, gain, bias, np.empty_like(x), xhat=normal)
    np.testing.assert_array_equal(spare, out)
    np.testing.assert_array_equal(normal, xhat)

    means = np.random.default_rng(0).standard_normal((9, 2))
    dx = kernels.layer_norm_backward(g, xhat, inv_std, gain, means)
    for replaced in (0, 1):
        operands = [g, xhat]
        operands[replaced] = twin = operands[replaced].copy()
        assert kernels.layer_norm_backward(*operands, inv_std, gain, means, twin) is twin
        np.testing.assert_array_equal(twin, dx)


@BOTH
@pytest.mark.parametrize("m, f", [(0, 5), (4, 0), (0, 0)])
def test_nothing(kernels, m, f):
    x = np.empty((m, f))
    gain = np.ones(f)
    mean = np.zeros(m)
    assert kernels.row_sum(x).tolist() == kernels.row_squares(x, mean).tolist() == [0] * m
    assert kernels.layer_norm(x, mean, mean, gain, gain, xhat=x.copy()).shape == (m, f)
    sums, dgain, dbias = kernels.layer_norm_backward_sums(x, x, gain)
    assert sums.tolist() == [[0, 0]] * m and dgain.tolist() == dbias.tolist() == [0] * f
    assert kernels.layer_norm_backward(x, x, mean, gain, np.zeros((m, 2))).shape == (m, f)


def batch_forward(kernels, blocks, gain, bias):
    """Normalize columns given as blocks of rows.

    Return results, normalized blocks and 1 / deviation.
    """
    n = sum(len(block) for block in blocks)
    mean = sum(kernels.column_sum(block) for block in blocks) / n
    squares = sum(kernels.column_squares(block, mean) for block in blocks)
    inv_std = 1 / np.sqrt(squares / n + 1e-5)
    normals = [np.empty_like(block) for block in blocks]
    results = [kernels.batch_norm(block, mean, inv_std, gain, bias, xhat=xhat)
               for block, xhat in zip(blocks, normals)]
    return results, normals, inv_std


def batch_backward(kernels, blocks, normals, inv_std, gain):
    sums = [kernels.layer_norm_backward_sums(g, xhat, gain)[1:]
            for g, xhat in zip(blocks, normals)]
    dgain, dbias = (sum(each) for each in zip(*sums))
    means = np.stack([dbias, dgain]) / sum(map(len, blocks))
    dx = [kernels.batch_norm_backward(g, xhat, inv_std, gain, means)
          for g, xhat in zip(blocks, normals)]
    return np.vstack(dx), dgain, dbias


@BOTH
def test_columns_by_hand(kernels):
    x = np.array([[1.0, 5], [3, 5], [5, 5], [7, 5]])
    (out,), (normal,), inv_std = batch_forward(kernels, [x], np.array([2.0, 3]), np.array([1.0, 4]))
    np.testing.assert_allclose(normal[:, 0], np.array([-3, -1, 1, 3]) / np.sqrt(5 + 1e-5))
    np.testing.assert_allclose(out, normal * [2, 3] + [1, 4])
    assert_none(normal[:, 1])
    assert inv_std[1] == 1 / np.sqrt(1e-5)


@BOTH
@DTYPES
@pytest.mark.parametrize("cuts", [[], [0], [13], [5, 5, 31]])
def test_blocks_of_rows(kernels, dtype, cuts):
    x, g, gain, bias = case(40, 11, dtype)

    def cut(array):
        return [block.copy() for block in np.split(array, cuts)]

    whole, normal, inv_std = batch_forward(reference, [x], gain, bias)
    results, normals, same = batch_forward(kernels, cut(x), gain, bias)
    close = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(same, inv_std, rtol=1e-12)
    np.testing.assert_allclose(np.vstack(results), whole[0], rtol=close, atol=close)
    expected = batch_backward(reference, [g], normal, inv_std, gain)
    for mine, theirs in zip(batch_backward(kernels, cut(g), normals, same, gain), expected):
        np.testing.assert_allclose(mine, theirs, rtol=close, atol=close)


@BOTH
def test_gradients_of_columns_by_finite_differences(kernels):
    x, g, gain, bias = case(6, 3)
    _, normals, inv_std = batch_forward(kernels, [x], gain, bias)
    gradients = batch_backward(kernels, [g], normals, inv_std, gain)
    for array, gradient in zip((x, gain, bias), gradients):
        for index in np.ndindex(array.shape):
            values = []
            kept = array[index]
            for step in (1e-6, -1e-6):
                array[index] = kept + step
                values.append((batch_forward(kernels, [x], gain, bias)[0][0] * g).sum())
            array[index] = kept
            assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)

"""Losses against definitions in plain Python, blocks of columns against the whole, gradients by differences."""
import math
from fractions import Fraction
from itertools import pairwise

import numba
import numpy as np
import pytest

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.jit import threshold

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
CUTS = [[], [0], [5], [0, 0, 3, 3, 8, 11], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]  # 11 columns, empty blocks among them


def tolerance(dtype):
    return {"rtol": 2e-6 if dtype == np.float32 else 1e-13, "atol": 1e-7 if dtype == np.float32 else 1e-14}


@DTYPES
@pytest.mark.parametrize("c", [1, 2, 7, 40])
def test_softmax_cross_entropy(dtype, c):
    rng = np.random.default_rng(c)
    logits = (10 * rng.standard_normal((60, c))).astype(dtype)
    logits[0] += 1000  # no overflow
    labels, rows = rng.integers(0, c, 60), np.sort(rng.permutation(60)[:25])
    rows[0] = 0
    grads = [np.full_like(logits, 7) for _ in range(2)]
    found = cpu.softmax_cross_entropy(logits, labels, rows, scale=0.1, grad=grads[0])
    expected = reference.softmax_cross_entropy(logits, labels, rows, scale=0.1, grad=grads[1])
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert found[1] == expected[1] == sum(logits[i].argmax() == labels[i] for i in rows)
    np.testing.assert_allclose(grads[0], grads[1], **tolerance(dtype))
    others = np.setdiff1d(np.arange(60), rows)
    assert not grads[0][others].any()
    by_definition = sum(np.log(np.exp(logits[i].astype(float) - logits[i].max()).sum()) + logits[i].max()
                        - float(logits[i, labels[i]]) for i in rows)
    assert found[0] == pytest.approx(by_definition, rel=1e-6, abs=1e-6)
    assert cpu.softmax_cross_entropy(logits, labels, rows[:0], grad=grads[0]) == (0, 0)
    assert not grads[0].any()


def test_loss_gradient_by_finite_differences():
    rng = np.random.default_rng(4)
    logits, labels, rows = rng.standard_normal((6, 4)), rng.integers(0, 4, 6), np.array([0, 2, 5])
    grad = np.empty_like(logits)
    cpu.softmax_cross_entropy(logits, labels, rows, scale=1.0, grad=grad)
    for i, q in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[i, q] = 1e-6
        slope = (cpu.softmax_cross_entropy(logits + step, labels, rows)[0]
                 - cpu.softmax_cross_entropy(logits - step, labels, rows)[0]) / 2e-6
        assert grad[i, q] == pytest.approx(slope, abs=1e-8)


def binary_cross_entropy(z, y):
    """-y log(sigmoid(z)) - (1 - y) log(1 - sigmoid(z)) of one logit: log(1 + e^-z) or log(1 + e^z)."""
    w = -z if y else z
    return math.log1p(math.exp(w)) if w < 30 else w + math.exp(-w)


@BOTH
@DTYPES
def test_table_of_sigmoid_cross_entropy(kernels, dtype):
    logits = np.array([[0, 0], [9, 9], [math.log(3), -math.log(3)]], dtype)
    labels = np.array([[1, 0], [0, 0], [1, 1]], dtype)
    grad = np.full_like(logits, 7)
    loss, *counts = kernels.sigmoid_cross_entropy(logits, labels, np.array([0, 2]), scale=2.0, grad=grad)
    # ln 2 twice; sigmoid(ln 3) = 3/4
    assert loss == pytest.approx(2 * math.log(2) - math.log(3 / 4) - math.log(1 / 4), rel=1e-6)
    assert counts == [1, 0, 2]  # a logit of 0 predicts nothing
    np.testing.assert_allclose(grad, [[-1, 1], [0, 0], [-0.5, -1.5]], rtol=1e-6)


@DTYPES
@pytest.mark.parametrize("t", [1, 2, 7, 8, 43])
@pytest.mark.parametrize("kind", [np.float32, np.int64, bool])
def test_sigmoid_cross_entropy(dtype, t, kind):
    rng = np.random.default_rng(t)
    logits, labels = (10 * rng.standard_normal((60, t))).astype(dtype), (rng.random((60, t)) < 0.3).astype(kind)
    rows = rng.permutation(60)[:25]
    grads = [np.full_like(logits, 7) for _ in range(2)]
    found = cpu.sigmoid_cross_entropy(logits, labels, rows, scale=0.1, grad=grads[0])
    expected = reference.sigmoid_cross_entropy(logits, labels, rows, scale=0.1, grad=grads[1])
    assert found[0] == pytest.approx(expected[0], rel=1e-13)
    assert found[1:] == expected[1:]
    np.testing.assert_allclose(grads[0], grads[1], **tolerance(dtype))
    assert not grads[0][np.setdiff1d(np.arange(60), rows)].any()
    pairs = [(float(z), bool(y)) for i in rows for z, y in zip(logits[i], labels[i])]
    assert found[0] == pytest.approx(math.fsum(binary_cross_entropy(z, y) for z, y in pairs), rel=1e-12)
    assert found[1:] == tuple(sum((z > 0, y) == case for z, y in pairs) for case in ((1, 1), (1, 0), (0, 1)))
    assert all(float(count).is_integer() for count in found[1:])
    assert cpu.sigmoid_cross_entropy(logits, labels, rows) == found


@BOTH
def test_sigmoid_cross_entropy_is_stable(kernels):
    # one logit at a time: the loss keeps its relative accuracy where 1 + e^-z is 1
    for z in [0.0, 1e-300, 1e-9, 0.1, 0.7, 1.0, 3.0, 20.0, 36.0, 40.0, 200.0, 690.0]:
        for sign, y in ((1, 1), (1, 0), (-1, 1), (-1, 0)):
            grad = np.empty((1, 1))
            loss = kernels.sigmoid_cross_entropy(np.array([[sign * z]]), np.array([[y]]), np.array([0]), grad=grad)[0]
            assert loss == pytest.approx(binary_cross_entropy(sign * z, y), rel=4e-15)
            power = Fraction(math.exp(-z))  # exact from here on
            sigmoid = (1 if sign > 0 else power) / (1 + power)
            assert grad[0, 0] == pytest.approx(float(sigmoid - y), rel=1e-13, abs=2e-16)
    huge = np.array([[1e300, -1e300]])
    loss, *counts = kernels.sigmoid_cross_entropy(huge, np.array([[1, 0]]), np.array([0]))
    assert loss == pytest.approx(0, abs=1e-300)
    assert counts == [1, 0, 0]
    assert kernels.sigmoid_cross_entropy(huge, np.array([[0, 0]]), np.array([0])) == (1e300, 0, 1, 0)


@BOTH
@pytest.mark.parametrize("sick", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("y", [0, 1])
def test_what_is_not_finite_shows(kernels, sick, y):
    logits, labels = np.zeros((3, 4)), np.zeros((3, 4), int)
    logits[1, 2], labels[1, 2] = sick, y
    assert not math.isfinite(kernels.sigmoid_cross_entropy(logits, labels, np.arange(3))[0])
    assert math.isfinite(kernels.sigmoid_cross_entropy(logits, labels, np.array([0, 2]))[0])
    total = kernels.spread_sum(logits, kernels.spread_max(logits))
    assert not math.isfinite(kernels.spread_gradient(logits, np.zeros(3, int), 0, np.arange(3), np.zeros(3), total))
    np.testing.assert_array_equal(np.isnan(total), [False, True, False])


def test_sigmoid_gradient_by_finite_differences():
    rng = np.random.default_rng(5)
    logits, labels, rows = rng.standard_normal((5, 4)), rng.integers(0, 2, (5, 4)), np.array([4, 1])
    grad = np.empty_like(logits)
    cpu.sigmoid_cross_entropy(logits, labels, rows, scale=1.0, grad=grad)
    for i, q in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[i, q] = 1e-6
        slope = (cpu.sigmoid_cross_entropy(logits + step, labels, rows)[0]
                 - cpu.sigmoid_cross_entropy(logits - step, labels, rows)[0]) / 2e-6
        assert grad[i, q] == pytest.approx(slope, abs=1e-8)


@BOTH
@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_losses_of_nothing(kernels, shape):
    logits, rows, grad = np.empty(shape), np.arange(shape[0]), np.empty(shape)
    assert kernels.sigmoid_cross_entropy(logits, np.empty(shape), rows, grad=grad) == (0, 0, 0, 0)
    top = kernels.spread_max(logits)
    assert top.tolist() == [-np.inf] * shape[0]
    assert kernels.spread_sum(logits, top).tolist() == [0] * shape[0]
    assert kernels.spread_argmax(logits, 2, top).tolist() == [2**63 - 1] * shape[0]
    ones = np.ones(shape[0])
    assert kernels.spread_gradient(logits, np.full(shape[0], 7), 0, rows, ones, ones, 1.0, grad) == 0
    some = np.ones((3, 5))
    assert kernels.sigmoid_cross_entropy(some, some, rows[:0], grad=np.ones((3, 5))) == (0, 0, 0, 0)


def spread(kernels, blocks, firsts, labels, rows, scale):
    """Loss, gradient and classes from blocks of columns, reduced over the blocks as ranks would."""
    top = np.max([kernels.spread_max(block) for block in blocks], axis=0)
    total = np.sum([kernels.spread_sum(block, top) for block in blocks], axis=0)
    grads = [np.full_like(block, 7) for block in blocks]
    loss = sum(kernels.spread_gradient(*block, rows, top, total, scale, grad)
               for *block, grad in zip(blocks, [labels] * len(blocks), firsts, grads))
    assert loss == sum(kernels.spread_gradient(block, labels, first, rows, top, total)
                       for block, first in zip(blocks, firsts))
    classes = np.min([kernels.spread_argmax(block, first, top) for block, first in zip(blocks, firsts)], axis=0)
    return loss, np.hstack(grads), classes


@BOTH
@DTYPES
@pytest.mark.parametrize("cuts", CUTS)
def test_spread_softmax(kernels, dtype, cuts):
    rng = np.random.default_rng(6)
    logits = (10 * rng.standard_normal((40, 11))).astype(dtype)
    logits[0] += 1000  # no overflow
    logits[1] = 3  # all are the maximum: the first is the answer
    logits[2, [4, 9]] = 77
    labels, rows = rng.integers(0, 11, 40), np.r_[0:3, 39:20:-2]
    bounds = [0, *cuts, 11]
    blocks = [logits[:, low:high].copy() for low, high in pairwise(bounds)]
    loss, grad, classes = spread(kernels, blocks, bounds, labels, rows, 0.1)
    expected = np.empty_like(logits)
    total, correct = kernels.softmax_cross_entropy(logits, labels, rows, scale=0.1, grad=expected)
    assert loss == pytest.approx(total, rel=1e-13)
    np.testing.assert_allclose(grad, expected, **tolerance(dtype))
    assert classes.dtype == np.int64
    np.testing.assert_array_equal(classes, logits.argmax(1))
    assert classes[1:3].tolist() == [0, 4]
    assert (classes[rows] == labels[rows]).sum() == correct
    if not cuts:
        assert loss == total
        np.testing.assert_array_equal(grad, expected)


@BOTH
def test_table_of_a_spread_row(kernels):
    # e^0, e^0, e^(ln 2): a quarter, a quarter, a half; the right block starts at column 1 of the row
    row, top = np.array([[0.0, 0.0, math.log(2)]]), np.array([math.log(2)])
    left, right = row[:, :1], row[:, 1:].copy()
    assert kernels.spread_max(left).tolist() == [0]
    assert kernels.spread_max(right).tolist() == top.tolist()
    assert kernels.spread_sum(left, top) == pytest.approx(0.5)
    assert kernels.spread_sum(right, top) == pytest.approx(1.5)
    grad, both = np.empty_like(right), (np.array([0]), top, np.array([2.0]), 4.0, np.empty_like(right))
    assert kernels.spread_gradient(right, np.array([0]), 1, *both) == 0  # the label's column lies in the left block
    np.testing.assert_allclose(both[-1], [[1, 2]])
    assert kernels.spread_gradient(right, np.array([1]), 1, *both[:-1], grad) == pytest.approx(math.log(4))
    np.testing.assert_allclose(grad, [[-3, 2]])
    assert kernels.spread_argmax(left, 0, top).tolist() == [2**63 - 1]
    assert kernels.spread_argmax(right, 1, top).tolist() == [2]


@BOTH
def test_nan_hides_no_maximum(kernels):
    assert kernels.spread_max(np.array([[np.nan, 2.0, 1.0], [np.nan] * 3])).tolist() == [2, -np.inf]


@DTYPES
def test_any_number_of_threads_gives_the_same_bits(dtype):
    rng = np.random.default_rng(7)
    logits, labels = rng.standard_normal((300, 13)).astype(dtype), rng.integers(0, 13, 300)
    several, rows = (rng.random((300, 13)) < 0.3).astype(np.float32), rng.permutation(300)[:200]
    before, results = numba.get_num_threads(), set()
    for threads in (1, 2, 3):
        numba.set_num_threads(threads)
        for work in (0, np.inf):
            with threshold(work):
                grad = np.empty_like(logits)
                found = cpu.sigmoid_cross_entropy(logits, several, rows, grad=grad)
                results.add((found, grad.tobytes(), *spread_bits(logits, labels, rows)))
    numba.set_num_threads(before)
    assert len(results) == 1


def spread_bits(logits, labels, rows):
    """All results of a spread softmax, as something to compare."""
    loss, grad, classes = spread(cpu, [logits[:, :6].copy(), logits[:, 6:].copy()], [0, 6], labels, rows, 0.1)
    return loss, grad.tobytes(), classes.tobytes()

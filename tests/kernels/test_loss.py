"""Losses equal plain Python code; blocks of columns equal the whole; gradients are right."""
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from arrays import assert_none
from cases import CUTS, DTYPES, tolerance

from hpgcn.kernels import cpu, reference

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])


def both_losses(name, logits, labels, rows, **options):
    """Return loss and counts of the CPU kernel, after a comparison with the reference."""
    grads = np.full((2, *logits.shape), 7, logits.dtype)
    loss, *counts = getattr(cpu, name)(logits, labels, rows, scale=0.1, grad=grads[0],
                                        **options)
    expected = getattr(reference, name)(logits, labels, rows, scale=0.1, grad=grads[1],
                                        **options)
    assert loss == pytest.approx(expected[0], rel=1e-12) and counts == list(expected[1:])
    np.testing.assert_allclose(*grads, **tolerance(logits.dtype))
    assert_none(grads[0][np.setdiff1d(np.arange(logits.shape[0]), rows)])
    return loss, counts


@DTYPES
@pytest.mark.parametrize("c", [1, 2, 7, 40])
def test_softmax_cross_entropy(dtype, c):
    rng = np.random.default_rng(c)
    logits = (10 * rng.standard_normal((60, c))).astype(dtype)
    logits[0] += 1000  # no overflow
    labels = rng.integers(0, c, 60)
    rows = np.r_[0, 1 + rng.permutation(59)[:25]]
    loss, counts = both_losses("softmax_cross_entropy", logits, labels, rows)
    assert counts == [sum(logits[i].argmax() == labels[i] for i in rows)]
    z = logits[rows].astype(float)
    top = z.max(1)
    by_definition = np.log(np.exp(z - top[:, None]).sum(1)) + top - z[np.arange(26), labels[rows]]
    assert loss == pytest.approx(by_definition.sum(), rel=1e-6, abs=1e-6)
    grad = np.ones_like(logits)
    assert cpu.softmax_cross_entropy(logits, labels, rows[:0], grad=grad) == (0, 0)
    assert_none(grad)


@DTYPES
@pytest.mark.parametrize("c", [1, 8, 19])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_shows_in_the_loss(dtype, c, value):
    labels, rows = np.zeros(3, np.int64), np.arange(3)
    for column in {0, c // 2, c - 1}:
        logits = np.zeros((3, c), dtype)
        logits[1, column] = value
        assert math.isnan(cpu.softmax_cross_entropy(logits, labels, rows)[0])
        assert math.isfinite(cpu.softmax_cross_entropy(logits, labels, rows[[0, 2]])[0])


@DTYPES
@pytest.mark.parametrize("c", [3, 16, 37])
def test_the_first_of_the_largest_is_the_answer(dtype, c):
    logits = np.full((c, c), -5, dtype)
    rows = np.arange(c)
    logits[rows, rows] = logits[:, -1] = 2  # maxima of row i: columns i and c - 1
    for labels, right in ((rows, c), (np.full(c, c - 1), 1)):
        assert cpu.softmax_cross_entropy(logits, labels, rows)[1] == right


def target_of(weights, smoothing):
    """Return the array `target` of a loss for class weights and label smoothing."""
    own, every = (1 - smoothing) * weights, smoothing * weights / weights.size
    return np.array([own, every, own + every.sum()])


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("c", [1, 2, 7, 40])
def test_softmax_cross_entropy_of_targets(dtype, c, smoothing):
    rng = np.random.default_rng(c)
    logits = (10 * rng.standard_normal((60, c))).astype(dtype)
    logits[0] += 1000  # no overflow, and no digits lost
    labels = rng.integers(0, c, 60)
    rows = np.r_[0, 1 + rng.permutation(59)[:25]]
    weights = rng.random(c) + 0.5
    loss, counts = both_losses("softmax_cross_entropy", logits, labels, rows,
                               target=target_of(weights, smoothing))
    assert counts == [sum(logits[i].argmax() == labels[i] for i in rows)]
    z = logits[rows].astype(float)
    z -= z.max(1, keepdims=True)
    t = weights * (smoothing / c + (1 - smoothing) * (np.arange(c) == labels[rows][:, None]))
    minus_log = np.log(np.exp(z).sum(1, keepdims=True)) - z
    assert loss == pytest.approx((t * minus_log).sum(), rel=1e-12, abs=1e-12)


@BOTH
def test_a_target_of_the_labels_alone_is_none(kernels):
    logits = np.random.default_rng(1).standard_normal((9, 4))
    labels, rows = np.arange(9) % 4, np.array([7, 1, 2])
    grads = np.empty((2, 9, 4))
    plain = kernels.softmax_cross_entropy(logits, labels, rows, grad=grads[0])
    found = kernels.softmax_cross_entropy(logits, labels, rows, grad=grads[1],
                                          target=target_of(np.ones(4), 0.0))
    assert found == (pytest.approx(plain[0], rel=1e-15), plain[1])
    np.testing.assert_allclose(*grads, rtol=1e-14, atol=1e-16)


@BOTH
def test_sigmoids_of_smoothed_labels(kernels):
    rng = np.random.default_rng(2)
    logits, labels = rng.standard_normal((9, 3)), rng.integers(0, 2, (9, 3)) * 1.0
    rows = np.array([8, 0, 3])
    grads = np.empty((2, 9, 3))
    loss, *counts = kernels.sigmoid_cross_entropy(logits, labels, rows, grad=grads[0],
                                                  smoothing=0.2)
    soft = np.where(labels > 0, 0.9, 0.1)
    expected, *_ = kernels.sigmoid_cross_entropy(logits, soft, rows, grad=grads[1])
    assert loss == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(*grads, rtol=1e-13, atol=1e-15)
    # counts of the labels
    assert counts == list(kernels.sigmoid_cross_entropy(logits, labels, rows)[1:])


@pytest.mark.parametrize("name, labels, options", [
    ("softmax_cross_entropy", [0, 3, 1, 1, 2], {}),
    ("softmax_cross_entropy", [0, 3, 1, 1, 2],
     {"target": target_of(np.array([0.5, 2.0, 1.0, 0.0]), 0.3)}),
    ("sigmoid_cross_entropy", np.random.default_rng(5).integers(0, 2, (5, 4)), {}),
    ("sigmoid_cross_entropy", np.random.default_rng(5).integers(0, 2, (5, 4)),
     {"smoothing": 0.3})])
def test_gradient_by_finite_differences(name, labels, options):
    logits = np.random.default_rng(4).standard_normal((5, 4))
    grad = np.empty_like(logits)

    def loss(logits, **more):
        return getattr(cpu, name)(logits, np.array(labels), np.array([4, 0, 2]), **options,
                                  **more)[0]

    loss(logits, grad=grad)
    for place in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-6
        slope = (loss(logits + step) - loss(logits - step)) / 2e-6
        assert grad[place] == pytest.approx(slope, abs=1e-8)


def binary_cross_entropy(z, y):
    """Return -y log(sigmoid(z)) - (1 - y) log(1 - sigmoid(z)) without overflow."""
    w = -z if y else z
    return math.log1p(math.exp(w)) if w < 30 else w + math.exp(-w)


@BOTH
@DTYPES
def test_table_of_sigmoid_cross_entropy(kernels, dtype):
    logits = np.array([[0, 0], [9, 9], [math.log(3), -math.log(3)]], dtype)
    labels = np.array([[1, 0], [0, 0], [1, 1]], dtype)
    grad = np.full_like(logits, 7)
    loss, *counts = kernels.sigmoid_cross_entropy(
        logits, labels, np.array([0, 2]), scale=2.0, grad=grad)
    # ln 2 twice; sigmoid(ln 3) = 3/4
    assert loss == pytest.approx(2 * math.log(2) - math.log(3 / 4) - math.log(1 / 4), rel=1e-6)
    assert counts == [1, 0, 2]  # a logit of 0 predicts no label
    np.testing.assert_allclose(grad, [[-1, 1], [0, 0], [-0.5, -1.5]], rtol=1e-6)


@DTYPES
@pytest.mark.parametrize("t, kind", [(1, bool), (2, np.int64), (7, bool), (8, np.float32),
                                     (43, np.int64)])
def test_sigmoid_cross_entropy(dtype, t, kind):
    rng = np.random.default_rng(t)
    logits = (10 * rng.standard_normal((60, t))).astype(dtype)
    labels = (rng.random((60, t)) < 0.3).astype(kind)
    rows = rng.permutation(60)[:25]
    loss, counts = both_losses("sigmoid_cross_entropy", logits, labels, rows)
    pairs = [(float(z), bool(y)) for i in rows for z, y in zip(logits[i], labels[i])]
    assert loss == pytest.approx(math.fsum(binary_cross_entropy(z, y) for z, y in pairs), rel=1e-12)
    predicted = [(z > 0, y) for z, y in pairs]
    assert counts == [predicted.count(pair) for pair in ((1, 1), (1, 0), (0, 1))]
    assert all(float(count).is_integer() for count in counts)
    assert cpu.sigmoid_cross_entropy(logits, labels, rows) == (loss, *counts)


@BOTH
def test_sigmoid_cross_entropy_is_stable(kernels):
    # one logit at a time: the loss keeps its relative accuracy where 1 + e^-z is 1
    def loss(logits, labels, grad=None):
        return kernels.sigmoid_cross_entropy(
            np.array([logits]), np.array([labels]), np.array([0]), grad=grad)

    for z in [0.0, 1e-300, 1e-9, 0.1, 0.7, 1.0, 3.0, 20.0, 36.0, 40.0, 200.0, 690.0]:
        for sign, y in ((1, 1), (1, 0), (-1, 1), (-1, 0)):
            grad = np.empty((1, 1))
            expected = binary_cross_entropy(sign * z, y)
            assert loss([sign * z], [y], grad)[0] == pytest.approx(expected, rel=4e-15)
            power = Fraction(math.exp(-z))  # exact from here on
            sigmoid = (1 if sign > 0 else power) / (1 + power)
            assert grad[0, 0] == pytest.approx(float(sigmoid - y), rel=1e-13, abs=2e-16)
    huge = [1e300, -1e300]
    assert loss(huge, [1, 0]) == (pytest.approx(0, abs=1e-300), 1, 0, 0)
    assert loss(huge, [0, 0]) == (1e300, 0, 1, 0)


@BOTH
@pytest.mark.parametrize("sick", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows(kernels, sick):
    logits = np.zeros((3, 4))
    labels = np.zeros((3, 4), int)
    logits[1, 2] = sick
    for labels[1, 2] in (0, 1):
        assert not math.isfinite(kernels.sigmoid_cross_entropy(logits, labels, np.arange(3))[0])
        assert math.isfinite(kernels.sigmoid_cross_entropy(logits, labels, np.array([0, 2]))[0])
    total = kernels.spread_sum(logits, kernels.spread_max(logits))
    np.testing.assert_array_equal(np.isnan(total), [False, True, False])
    loss = kernels.spread_gradient(logits, labels[:, 0], 0, np.arange(3), np.zeros(3), total)
    assert not math.isfinite(loss)


@BOTH
@pytest.mark.parametrize("m, c", [(0, 5), (4, 0), (0, 0)])
def test_losses_of_nothing(kernels, m, c):
    logits, grad = np.empty((2, m, c))
    rows = np.arange(m)
    assert kernels.sigmoid_cross_entropy(logits, logits, rows, grad=grad) == (0, 0, 0, 0)
    top = kernels.spread_max(logits)
    assert top.tolist() == [-np.inf] * m
    assert kernels.spread_sum(logits, top).tolist() == [0] * m
    assert kernels.spread_argmax(logits, 2, top).tolist() == [2**63 - 1] * m
    ones = np.ones(m)
    assert kernels.spread_gradient(logits, np.full(m, 7), 0, rows, ones, ones, 1.0, grad) == 0
    some = np.ones((3, 5))
    assert kernels.sigmoid_cross_entropy(some, some, rows[:0], grad=some.copy()) == (0, 0, 0, 0)


@BOTH
@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("cuts", CUTS)
def test_spread_softmax(kernels, dtype, cuts, smoothing):
    """Softmax over blocks of columns, reduced as between ranks, equals softmax over whole rows."""
    rng = np.random.default_rng(6)
    target = target_of(np.arange(11) / 5, smoothing) if smoothing else None
    logits = (10 * rng.standard_normal((40, 11))).astype(dtype)
    logits[0] += 1000  # no overflow
    logits[1] = 3  # all are the maximum: the first is the answer
    logits[2, [4, 9]] = 77
    labels = rng.integers(0, 11, 40)
    rows = np.r_[0:3, 39:20:-2]
    bounds = [0, *cuts, 11]
    blocks = [(logits[:, low:high].copy(), low) for low, high in pairwise(bounds)]

    top = np.max([kernels.spread_max(block) for block, _ in blocks], axis=0)
    total = np.sum([kernels.spread_sum(block, top) for block, _ in blocks], axis=0)
    grads = [np.full_like(block, 7) for block, _ in blocks]
    loss = sum(kernels.spread_gradient(block, labels, first, rows, top, total, 0.1, grad, target)
               for (block, first), grad in zip(blocks, grads))
    assert loss == sum(kernels.spread_gradient(block, labels, first, rows, top, total,
                                               target=target) for block, first in blocks)
    classes = np.min([kernels.spread_argmax(block, first, top) for block, first in blocks], axis=0)

    expected = np.empty_like(logits)
    whole, correct = kernels.softmax_cross_entropy(logits, labels, rows, scale=0.1, grad=expected,
                                                   target=target)
    assert loss == pytest.approx(whole, rel=1e-13)
    np.testing.assert_allclose(np.hstack(grads), expected, **tolerance(dtype))
    assert classes.dtype == np.int64
    np.testing.assert_array_equal(classes, logits.argmax(1))
    assert classes[1:3].tolist() == [0, 4]
    assert (classes[rows] == labels[rows]).sum() == correct
    if not cuts and target is None:
        assert loss == whole
        np.testing.assert_array_equal(grads[0], expected)


@BOTH
def test_table_of_a_spread_row(kernels):
    # e^0, e^0, e^(ln 2): a quarter, a quarter, a half; the right block starts at column 1
    row = np.array([[0.0, 0.0, math.log(2)]])
    top = row[:, 2]
    left = row[:, :1]
    right = row[:, 1:].copy()
    for part, highest, total in ((left, 0, 0.5), (right, math.log(2), 1.5)):
        assert kernels.spread_max(part).tolist() == [highest]
        assert kernels.spread_sum(part, top) == pytest.approx(total)
    # a label in the left block, and one in the right
    for label, loss, gradient in ((0, 0, [[1, 2]]), (1, math.log(4), [[-3, 2]])):
        grad = np.empty_like(right)
        assert kernels.spread_gradient(right, np.array([label]), 1, np.array([0]), top,
                                       np.array([2.0]), 4.0, grad) == pytest.approx(loss)
        np.testing.assert_allclose(grad, gradient)
    assert kernels.spread_argmax(left, 0, top).tolist() == [2**63 - 1]
    assert kernels.spread_argmax(right, 1, top).tolist() == [2]


@BOTH
def test_nan_hides_no_maximum(kernels):
    logits = np.array([[np.nan, 2.0, 1.0], [np.nan] * 3])
    assert kernels.spread_max(logits).tolist() == [2, -np.inf]

"""Fused elementwise kernels equal the reference, and the reference equals the definitions."""
import itertools
import math

import numpy as np
import pytest
from arrays import assert_all, assert_none
from cases import DTYPES, tolerance

from hpgcn.kernels import cpu, pack_mask, reference, unpack_mask

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
KEY = {"seed": 99, "epoch": 3, "layer": 1}


@DTYPES
@pytest.mark.parametrize("width", [1, 5, 8, 16, 43])
def test_activate(dtype, width):
    rng = np.random.default_rng(width)
    z = rng.standard_normal((70, width)).astype(dtype)
    bias = rng.standard_normal(width).astype(dtype)
    vertex = rng.integers(0, 2**35, 70)
    for p, relu, masked in itertools.product((0.0, 0.5), (False, True), (False, True)):
        results = []
        for kernels in (cpu, reference):
            out = z.copy()
            mask = np.full((70, -(-width // 8)), 255, np.uint8) if masked else None
            kernels.activate(out, bias, vertex, relu=relu, p=p, mask=mask, **KEY)
            results += out, mask
        out, mask, expected, bits = results
        np.testing.assert_allclose(out, expected, **tolerance(dtype))
        if masked:
            np.testing.assert_array_equal(mask, bits)
            kept = unpack_mask(mask, width)
            assert_none(out[~kept])
            assert_all(not relu or out[kept] > 0)
        if not p:
            total = np.maximum(z + bias, 0) if relu else z + bias
            np.testing.assert_allclose(expected, total, **tolerance(dtype))


@BOTH
@pytest.mark.parametrize("kind, table", [
    ("elu", [(0, 0, 1), (2, 2, 1), (-1, math.exp(-1) - 1, math.exp(-1)), (-1e-20, -1e-20, 1)]),
    ("gelu", [(0, 0, 0.5), (1, 0.841344746068543, 1.0833154705876863), (40, 40, 1), (-40, 0, 0),
              (-1, -0.15865525393145707, -0.0833154705876863)])])
def test_smooth_activations_by_hand(kernels, kind, table):
    z, values, slopes = np.array(table).T
    slope = np.empty((1, z.size))
    out = kernels.activate_smooth(z[None] - 3, np.full(z.size, 3.0), kind=kind, slopes=slope)
    np.testing.assert_allclose(out[0], values, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(slope[0], slopes, rtol=1e-13, atol=1e-15)
    assert np.isnan(kernels.activate_smooth(np.array([[np.nan]]), np.zeros(1), kind=kind))


@DTYPES
@pytest.mark.parametrize("kind", ["elu", "gelu"])
@pytest.mark.parametrize("width, first", [(1, 0), (5, 3), (8, 0), (43, 9)])
def test_activate_smooth(dtype, kind, width, first):
    rng = np.random.default_rng(width)
    z, g = rng.standard_normal((2, 70, width)).astype(dtype)
    bias = rng.standard_normal(width).astype(dtype)
    vertex = rng.integers(0, 2**35, 70)
    for p, kept in itertools.product((0.0, 0.5), (False, True)):
        results = []
        for kernels in (cpu, reference):
            mask = np.full((70, -(-width // 8)), 255, np.uint8) if kept else None
            slope = np.empty_like(z) if kept else None
            out = kernels.activate_smooth(z.copy(), bias, vertex, kind=kind, p=p, first=first,
                                          mask=mask, slopes=slope, **KEY)
            results.append((out, mask, slope, kernels.elu_backward(g.copy(), out, mask, 2.0)))
        (out, mask, slope, back), (expected, bits, rise, other) = results
        for pair in ((out, expected), (back, other), *([(slope, rise)] if kept else [])):
            np.testing.assert_allclose(*pair, **tolerance(dtype))
        if kept:
            np.testing.assert_array_equal(mask, bits)
            dropped = ~unpack_mask(mask, width)
            assert_none(out[dropped])
            assert_none(slope[dropped])
            assert dropped.any() == bool(p)
        if kind == "elu" and kept:
            scale = reference.dropout_scale(p)
            np.testing.assert_allclose(cpu.elu_backward(g.copy(), out, mask, scale), g * slope,
                                       rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-6)


@BOTH
@pytest.mark.parametrize("kind", ["elu", "gelu"])
def test_slopes_by_finite_differences(kernels, kind):
    z = np.random.default_rng(0).standard_normal((9, 7)) * 2
    slope = np.empty_like(z)
    kernels.activate_smooth(z.copy(), np.zeros(7), kind=kind, slopes=slope)
    above, below = (kernels.activate_smooth(z + step, np.zeros(7), kind=kind)
                    for step in (1e-6, -1e-6))
    np.testing.assert_allclose((above - below) / 2e-6, slope, atol=1e-9)


@BOTH
def test_nan_passes_the_activation(kernels):
    z = kernels.activate(np.array([[np.nan, -1.0, 2.0]]), np.zeros(3))
    np.testing.assert_array_equal(z, [[np.nan, 0, 2]])


@BOTH
@DTYPES
def test_apply_mask(kernels, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((33, 13)).astype(dtype)
    keep = rng.random((33, 13)) < 0.4
    masked = kernels.apply_mask(x.copy(), pack_mask(keep), 2.0)
    np.testing.assert_array_equal(masked, np.where(keep, 2 * x, 0))


@BOTH
@DTYPES
def test_activation_of_a_block_of_columns(kernels, dtype):
    rng = np.random.default_rng(1)
    z = rng.standard_normal((9, 57)).astype(dtype)
    bias = np.zeros(57, dtype)
    vertex = rng.integers(0, 2**40, 9)
    mask = np.empty((9, 8), np.uint8)
    whole = kernels.activate(z.copy(), bias, vertex, p=0.5, mask=mask, **KEY)
    kept = unpack_mask(mask, 57)
    for first, width in itertools.product(range(18), (1, 8, 13)):
        columns = slice(first, first + width)
        block = z[:, columns].copy()
        bits = np.full((9, -(-width // 8)), 255, np.uint8)
        kernels.activate(block, bias[columns], vertex, p=0.5, first=first, mask=bits, **KEY)
        np.testing.assert_array_equal(block, whole[:, columns])
        # bit 0 is column `first`
        np.testing.assert_array_equal(bits, pack_mask(kept[:, columns]))


@BOTH
@DTYPES
@pytest.mark.parametrize("width", [5, 24, 43])
def test_activation_by_bits_drawn_before(kernels, dtype, width):
    rng = np.random.default_rng(width)
    z = rng.standard_normal((9, width)).astype(dtype)
    bias = rng.standard_normal(width).astype(dtype)
    vertex = rng.integers(0, 2**40, 9)
    for p, relu in itertools.product((0.0, 0.3), (False, True)):
        mask = np.empty((9, -(-width // 8)), np.uint8)
        expected = kernels.activate(z.copy(), bias, vertex, relu=relu, p=p, mask=mask, **KEY)
        bits = kernels.dropout_bits(vertex, width, p=p, **KEY)
        # dropped elements may have any value
        dropped = np.where(unpack_mask(bits, width), z, dtype(7))
        out = kernels.activate(dropped, bias, relu=relu, p=p, mask=bits, drawn=True, **KEY)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(bits, mask)


@BOTH
@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_activation_of_nothing(kernels, shape):
    m, width = shape
    mask = np.empty((m, -(-width // 8)), np.uint8)
    z = kernels.activate(np.empty(shape), np.zeros(width), np.arange(m), p=0.5, first=3, mask=mask,
                         **KEY)
    assert z.shape == shape
    z = kernels.activate_smooth(z, np.zeros(width), np.arange(m), kind="elu", p=0.5, mask=mask,
                                slopes=z.copy(), **KEY)
    assert kernels.elu_backward(z, z.copy(), mask).shape == shape


@DTYPES
def test_column_sum_is_summed_in_float64(dtype):
    x = np.full((200_000, 3), 0.1, dtype)
    np.testing.assert_allclose(cpu.column_sum(x), 200_000 * np.float64(dtype(0.1)), rtol=1e-12)
    assert cpu.column_sum(np.empty((0, 4), dtype)).tolist() == [0, 0, 0, 0]


@BOTH
@pytest.mark.parametrize("m, f", [(0, 3), (1, 1), (33, 7), (5000, 20)])
@DTYPES
def test_inner_product_is_summed_in_float64(kernels, dtype, m, f):
    x, y = np.random.default_rng(m).integers(-9, 10, (2, m, f)).astype(dtype)
    exact = sum(int(a) * int(b) for a, b in zip(x.ravel(), y.ravel()))
    assert kernels.inner(x, y).tolist() == [exact]
    product = kernels.inner(np.full_like(x, 0.1), np.full_like(x, 3))
    np.testing.assert_allclose(product, [x.size * 3 * np.float64(dtype(0.1))], rtol=1e-12)


@DTYPES
@pytest.mark.parametrize("decay, decayed", [(0.0, 0), (0.1, 40), (0.1, 100)])
def test_optimizers(dtype, decay, decayed):
    results = []
    for kernels in (cpu, reference):
        rng = np.random.default_rng(0)
        start = rng.standard_normal(100).astype(dtype)
        weights = start.copy()
        moments = np.zeros((2, 100), dtype)
        for step in range(1, 6):
            g = rng.standard_normal(100).astype(dtype)
            kernels.adam(weights, g, *moments, step=step, lr=0.01, decay=decay, decayed=decayed)
        descended = start.copy()
        kernels.sgd(descended, g, lr=0.5, decay=decay, decayed=decayed)
        assert np.abs(weights - start).max() < 0.06
        results.append((weights, descended))
    (weights, descended), (expected, other) = results
    np.testing.assert_allclose(weights, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(descended, other, rtol=1e-6)


def test_first_adam_step_moves_by_the_learning_rate():
    w = np.array([1.0, -2.0, 3.0])
    cpu.adam(w, np.array([0.5, -4.0, 0.0]), np.zeros(3), np.zeros(3), step=1, lr=0.01)
    np.testing.assert_allclose(w, [0.99, -1.99, 3.0], atol=1e-9)

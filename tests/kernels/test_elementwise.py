"""Fused passes against the reference, and the reference against definitions."""
import numpy as np
import pytest

from hpgcn.kernels import cpu, reference

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
KEY = {"seed": 99, "epoch": 3, "layer": 1}


def tolerance(dtype):
    return {"rtol": 2e-6 if dtype == np.float32 else 1e-13, "atol": 1e-7 if dtype == np.float32 else 1e-14}


@DTYPES
@pytest.mark.parametrize("width", [1, 5, 8, 16, 43])
@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_activate(dtype, width, p, relu, masked):
    rng = np.random.default_rng(width)
    z, bias = rng.standard_normal((70, width)).astype(dtype), rng.standard_normal(width).astype(dtype)
    vertex = rng.integers(0, 2**35, 70)
    shape = (70, -(-width // 8))
    found, expected = z.copy(), z.copy()
    masks = [np.full(shape, 255, np.uint8) if masked else None for _ in range(2)]
    cpu.activate(found, bias, vertex, relu=relu, p=p, mask=masks[0], **KEY)
    reference.activate(expected, bias, vertex, relu=relu, p=p, mask=masks[1], **KEY)
    np.testing.assert_allclose(found, expected, **tolerance(dtype))
    if masked:
        np.testing.assert_array_equal(masks[0], masks[1])
        kept = reference.unpack(masks[0], width)
        assert not found[~kept].any()
        if relu:
            assert (found[kept] > 0).all()
    if not p:
        np.testing.assert_allclose(expected, np.maximum(z + bias, 0) if relu else z + bias, **tolerance(dtype))


def test_nan_passes_the_activation():
    for kernels in (reference, cpu):
        z = np.array([[np.nan, -1.0, 2.0]])
        kernels.activate(z, np.zeros(3))
        assert np.isnan(z[0, 0])
        assert z[0, 1:].tolist() == [0, 2]


@DTYPES
def test_apply_mask(dtype):
    rng = np.random.default_rng(0)
    x, keep = rng.standard_normal((33, 13)).astype(dtype), rng.random((33, 13)) < 0.4
    for kernels in (reference, cpu):
        found = kernels.apply_mask(x.copy(), reference.pack(keep), 2.0)
        np.testing.assert_array_equal(found, np.where(keep, 2 * x, 0))


@DTYPES
@pytest.mark.parametrize("width", [1, 8, 13, 40])
def test_activation_of_a_block_of_columns(dtype, width):
    rng = np.random.default_rng(width)
    z, bias, vertex = rng.standard_normal((9, 57)).astype(dtype), np.zeros(57, dtype), rng.integers(0, 2**40, 9)
    mask = np.empty((9, 8), np.uint8)
    whole = cpu.activate(z.copy(), bias, vertex, p=0.5, mask=mask, **KEY)
    kept = reference.unpack(mask, 57)
    for first in range(18):
        columns = slice(first, first + width)
        for kernels in (reference, cpu):
            block, bits = z[:, columns].copy(), np.full((9, -(-width // 8)), 255, np.uint8)
            kernels.activate(block, bias[columns], vertex, p=0.5, first=first, mask=bits, **KEY)
            np.testing.assert_array_equal(block, whole[:, columns])
            np.testing.assert_array_equal(bits, reference.pack(kept[:, columns]))  # local: bit 0 is column `first`


@pytest.mark.parametrize("kernels", [reference, cpu])
@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_activation_of_nothing(kernels, shape):
    mask = np.empty((shape[0], -(-shape[1] // 8)), np.uint8)
    z = kernels.activate(np.empty(shape), np.zeros(shape[1]), np.arange(shape[0]), p=0.5, first=3, mask=mask, **KEY)
    assert z.shape == shape


@DTYPES
def test_column_sum_is_summed_in_float64(dtype):
    x = np.full((200_000, 3), 0.1, dtype)
    np.testing.assert_allclose(cpu.column_sum(x), 200_000 * np.float64(dtype(0.1)), rtol=1e-12)
    assert cpu.column_sum(np.empty((0, 4), dtype)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kernels", [reference, cpu])
@pytest.mark.parametrize("m, f", [(0, 3), (1, 1), (33, 7), (5000, 20)])
@DTYPES
def test_inner_product_is_summed_in_float64(kernels, dtype, m, f):
    x, y = np.random.default_rng(m).integers(-9, 10, (2, m, f)).astype(dtype)
    assert kernels.inner(x, y).tolist() == [sum(int(a) * int(b) for a, b in zip(x.ravel(), y.ravel()))]
    np.testing.assert_allclose(kernels.inner(np.full_like(x, 0.1), np.full_like(x, 3)),
                               [x.size * 3 * np.float64(dtype(0.1))], rtol=1e-12)


@DTYPES
@pytest.mark.parametrize("decay, decayed", [(0.0, 0), (0.1, 40), (0.1, 100)])
def test_optimisers(dtype, decay, decayed):
    rng = np.random.default_rng(0)
    w = rng.standard_normal(100).astype(dtype)
    twins = [(w.copy(), np.zeros_like(w), np.zeros_like(w)) for _ in range(2)]
    for step in range(1, 6):
        g = rng.standard_normal(100).astype(dtype)
        for kernels, (weights, mean, variance) in zip((cpu, reference), twins):
            kernels.adam(weights, g, mean, variance, step=step, lr=0.01, decay=decay, decayed=decayed)
    np.testing.assert_allclose(twins[0][0], twins[1][0], rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert np.abs(twins[0][0] - w).max() < 0.06
    one, two = w.copy(), w.copy()
    cpu.sgd(one, g, lr=0.5, decay=decay, decayed=decayed)
    reference.sgd(two, g, lr=0.5, decay=decay, decayed=decayed)
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_first_adam_step_moves_by_the_learning_rate():
    w = np.array([1.0, -2.0, 3.0])
    cpu.adam(w, np.array([0.5, -4.0, 0.0]), np.zeros(3), np.zeros(3), step=1, lr=0.01)
    np.testing.assert_allclose(w, [0.99, -1.99, 3.0], atol=1e-9)

"""gather and scatter_add: a copy and its transpose."""
import numpy as np
import pytest

from hpgcn.kernels import cpu, reference

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])


@BOTH
def test_table(kernels):
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    np.testing.assert_array_equal(kernels.gather(x, np.array([2, 0, 2])), [[5, 6], [1, 2], [5, 6]])
    assert kernels.gather(x, np.empty(0, np.int64)).shape == (0, 2)
    out = np.zeros((3, 2), np.float32)
    assert kernels.scatter_add(x, np.array([1, 1, 0]), out) is out
    np.testing.assert_array_equal(out, [[5, 6], [4, 6], [0, 0]])
    kernels.scatter_add(x[:0], np.empty(0, np.int64), out)
    np.testing.assert_array_equal(out, [[5, 6], [4, 6], [0, 0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("f", [1, 7, 16, 33, 128])
def test_random(f, dtype):
    rng = np.random.default_rng(f)
    x, index = rng.standard_normal((500, f)).astype(dtype), rng.integers(0, 90, 500)
    start = rng.standard_normal((90, f)).astype(dtype)
    found, expected = start.copy(), start.copy()
    cpu.scatter_add(x, index, found)
    reference.scatter_add(x, index, expected)
    np.testing.assert_array_equal(found, expected)  # the order of additions is fixed, so are the bits
    np.testing.assert_array_equal(cpu.gather(found, index), expected[index])


@BOTH
def test_adjoint(kernels):
    rng = np.random.default_rng(0)
    h, g, index = rng.standard_normal((40, 5)), rng.standard_normal((70, 5)), rng.integers(0, 40, 70)
    forward = (kernels.gather(h, index) * g).sum()
    assert forward == pytest.approx((h * kernels.scatter_add(g, index, np.zeros((40, 5)))).sum(), rel=1e-12)

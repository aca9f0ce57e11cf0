"""gather and scatter_add: a copy and its transpose."""
import sys

import numba
import numpy as np
import pytest

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.jit import threshold

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


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("f", [4, 20, 36, 130])
@pytest.mark.parametrize("offset", [0, 4, 16, 48])
def test_rows_stored_past_the_cache(dtype, f, offset, monkeypatch):
    monkeypatch.setattr(sys.modules["hpgcn.kernels.cpu.gather"], "last_level_cache", lambda: 0)
    rng = np.random.default_rng(f)
    x, index = rng.integers(-99, 99, (50, f)).astype(dtype), rng.integers(0, 50, 300)
    memory = np.full(300 * f * x.itemsize + 256, 77, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    out = memory[first:first + 300 * f * x.itemsize].view(dtype).reshape(300, f)
    with threshold(0):
        assert cpu.gather(x, index, out) is out
    np.testing.assert_array_equal(out, x[index])
    assert (memory[:first] == 77).all()
    assert (memory[first + out.nbytes:] == 77).all()


def test_columns_of_wider_rows():
    rng = np.random.default_rng(5)
    x, out, index = rng.standard_normal((60, 40)), np.zeros((200, 50)), rng.integers(0, 60, 200)
    cpu.gather(x[:, 3:20], index, out[:, 30:47])
    np.testing.assert_array_equal(out[:, 30:47], x[index, 3:20])
    assert not out[:, :30].any()
    assert not out[:, 47:].any()
    total = np.zeros((60, 40))
    cpu.scatter_add(out[:, 30:47], index, total[:, 1:18])
    expected = np.zeros((60, 17))
    reference.scatter_add(out[:, 30:47], index, expected)
    np.testing.assert_array_equal(total[:, 1:18], expected)
    assert not total[:, 18:].any()


@pytest.mark.parametrize("order", ["sorted", "random", "one row"])
def test_same_bits_for_any_number_of_threads(order):
    rng = np.random.default_rng(9)
    x, index = rng.standard_normal((5000, 33)).astype(np.float32), rng.integers(0, 77, 5000)
    index = {"sorted": np.sort(index), "random": index, "one row": np.full(5000, 3)}[order]
    expected = np.zeros((77, 33), np.float32)
    reference.scatter_add(x, index, expected)
    before = numba.get_num_threads()
    try:
        for threads in (1, 2, 3):
            numba.set_num_threads(threads)
            with threshold(0):
                np.testing.assert_array_equal(cpu.scatter_add(x, index, np.zeros((77, 33), np.float32)), expected)
    finally:
        numba.set_num_threads(before)

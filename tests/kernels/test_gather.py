"""The kernels `gather` and `scatter_add`: copies of rows, and the transpose."""
import sys

import numpy as np
import pytest
from arrays import assert_all, assert_none
from cases import DTYPES

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.host.threads import threshold

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])


@BOTH
def test_table(kernels):
    x = np.array([[1, 2], [3, 4], [5, 6]], float)
    np.testing.assert_array_equal(kernels.gather(x, np.array([2, 0, 2])), [[5, 6], [1, 2], [5, 6]])
    assert kernels.gather(x, np.empty(0, np.int64)).shape == (0, 2)
    out = np.zeros((3, 2))
    assert kernels.scatter_add(x, np.array([1, 1, 0]), out) is out
    np.testing.assert_array_equal(out, [[5, 6], [4, 6], [0, 0]])
    kernels.scatter_add(x[:0], np.empty(0, np.int64), out)
    np.testing.assert_array_equal(out, [[5, 6], [4, 6], [0, 0]])


@DTYPES
@pytest.mark.parametrize("f", [1, 7, 16, 33, 128])
def test_random(f, dtype):
    rng = np.random.default_rng(f)
    x = rng.standard_normal((500, f)).astype(dtype)
    start = rng.standard_normal((90, f)).astype(dtype)
    anywhere = rng.integers(0, 90, 500)
    for index in (anywhere, np.sort(anywhere), np.full(500, 3)):
        expected = reference.scatter_add(x, index, start.copy())
        sums = cpu.scatter_add(x, index, start.copy())
        np.testing.assert_array_equal(sums, expected)  # a fixed order gives fixed bits
        np.testing.assert_array_equal(cpu.gather(sums, index), expected[index])


@BOTH
def test_adjoint(kernels):
    rng = np.random.default_rng(0)
    h = rng.standard_normal((40, 5))
    g = rng.standard_normal((70, 5))
    index = rng.integers(0, 40, 70)
    forward = (kernels.gather(h, index) * g).sum()
    backward = (h * kernels.scatter_add(g, index, np.zeros((40, 5)))).sum()
    assert forward == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("dtype, offsets", [
    (np.float32, (0, 4, 16, 48)), (np.float64, (0, 16)), (np.int8, (0, 4))])
@pytest.mark.parametrize("f", [4, 20, 36, 130])
def test_rows_stored_past_the_cache(dtype, offsets, f, monkeypatch):
    monkeypatch.setattr(sys.modules["hpgcn.kernels.cpu.gather"], "last_level_cache", lambda: 0)
    rng = np.random.default_rng(f)
    x = rng.integers(-99, 99, (50, f)).astype(dtype)
    index = rng.integers(0, 50, 300)
    for offset in offsets:  # to memory that begins `offset` bytes past a cache line
        memory = np.full(300 * f * x.itemsize + 256, 77, np.uint8)
        first = -memory.ctypes.data % 64 + offset
        out = memory[first:first + 300 * f * x.itemsize].view(dtype).reshape(300, f)
        with threshold(0):
            assert cpu.gather(x, index, out) is out
        np.testing.assert_array_equal(out, x[index])
        beside = np.r_[memory[:first], memory[first + out.nbytes:]]
        assert_all(beside == 77)  # memory that must not change


def test_columns_of_wider_rows():
    rng = np.random.default_rng(5)
    x, out, index = rng.standard_normal((60, 40)), np.zeros((200, 50)), rng.integers(0, 60, 200)
    cpu.gather(x[:, 3:20], index, out[:, 30:47])
    np.testing.assert_array_equal(out[:, 30:47], x[index, 3:20])
    assert_none(out[:, :30])
    assert_none(out[:, 47:])
    total = np.zeros((60, 40))
    cpu.scatter_add(out[:, 30:47], index, total[:, 1:18])
    expected = np.zeros((60, 17))
    reference.scatter_add(out[:, 30:47], index, expected)
    np.testing.assert_array_equal(total[:, 1:18], expected)
    assert_none(total[:, 18:])

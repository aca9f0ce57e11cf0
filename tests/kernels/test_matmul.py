"""Dense products in blocks: the numbers of the reference, however many threads begin."""
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.jit import threshold

module = sys.modules["hpgcn.kernels.cpu.matmul"]
WORK = (1500, 70, 90)


@pytest.fixture
def blocks(monkeypatch):
    """Within, products are cut for three threads however small they are."""
    monkeypatch.setattr(module, "one_blas_thread", lambda: True)
    monkeypatch.setattr(module, "SMALL", 1)
    before = numba.get_num_threads()
    numba.set_num_threads(min(3, numba.config.NUMBA_NUM_THREADS))
    with threshold(0):
        yield
    numba.set_num_threads(before)


def operands(m, k, n, dtype=np.float32):
    rng = np.random.default_rng(m + k + n)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [WORK, (70, 1500, 90), (90, 1500, 70), (7, 3, 1000),
                                     (1000, 3, 7), (1, 1, 1), (0, 4, 5), (5, 0, 4), (5, 4, 0)])
def test_in_blocks(blocks, m, k, n, dtype):
    x, y = operands(m, k, n, dtype)
    expected = reference.matmul(x, y)
    out = np.full((m, n), np.nan, dtype)
    tolerance = 1e-4 if dtype == np.float32 else 1e-11
    for left, right in ((x, y), (np.asfortranarray(x), y), (x, np.asfortranarray(y))):
        assert cpu.matmul(left, right, out) is out
        np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
        assert cpu.matmul(left, right).tobytes() == out.tobytes()


@pytest.mark.parametrize("size", [0, 1, 23, 24, 64, 100, 513, 5000, 1 << 20])
def test_blocks_cover_all_rows_once(size):
    for threads in (2, 3, 16, 64):
        blocks = module.cut(size, 1 << 20, threads)
        firsts, lasts = zip(*blocks)
        assert firsts == (0, *lasts[:-1]) and lasts[-1] == size
        assert not any(first % module.UNIT for first in firsts)
        assert not size or all(first < last for first, last in blocks)
        assert len(blocks) <= module.PER_THREAD * threads + 1


def test_a_thread_that_has_not_begun_is_not_waited_for(blocks, monkeypatch):
    held = threading.Event()
    pool = ThreadPoolExecutor(1)
    monkeypatch.setattr(module, "_pool", lambda: pool)
    pool.submit(held.wait)
    x, y = operands(*WORK)
    try:
        # or it waits for ever
        np.testing.assert_allclose(cpu.matmul(x, y), reference.matmul(x, y), atol=1e-4)
    finally:
        held.set()
        pool.shutdown()


def test_what_fails_in_a_block_is_raised_and_nobody_writes_on(blocks, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(np, "matmul", fail)
    x, y = operands(*WORK)
    with pytest.raises(MemoryError, match="no room"):
        cpu.matmul(x, y)


def test_blas_divides_products_itself_where_it_has_threads(blocks, monkeypatch):
    monkeypatch.setattr(module, "one_blas_thread", lambda: False)
    monkeypatch.setattr(module, "_multiply", None)
    x, y = operands(*WORK)
    np.testing.assert_array_equal(cpu.matmul(x, y), np.matmul(x, y))

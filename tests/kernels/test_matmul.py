"""Dense products in blocks equal the reference for any number of threads."""
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from arrays import assert_all, assert_none, assert_some
from cases import DTYPES, long

from hpgcn.kernels import cpu, pack_mask, reference
from hpgcn.kernels.cpu.dense import gemm
from hpgcn.kernels.cpu.dense.gemm import columns_times, kernel_for, rows_times
from hpgcn.kernels.cpu.emit import row_passes
from hpgcn.kernels.cpu.emit.emitter import vector_bytes
from hpgcn.kernels.host import threads
from hpgcn.kernels.host.threads import num_threads, set_num_threads, threshold

module = sys.modules["hpgcn.kernels.cpu.matmul"]
WORK = (1500, 70, 90)


@pytest.fixture
def blocks(monkeypatch):
    """Multiply even small matrices in blocks, by three threads."""
    monkeypatch.setattr(module, "one_blas_thread", lambda: True)
    monkeypatch.setattr(module, "SMALL", 1)
    monkeypatch.setattr(module, "LONG", 100)
    before = num_threads()
    set_num_threads(3)
    with threshold(0):
        yield
    set_num_threads(before)


def operands(m, k, n, dtype=np.float64):
    rng = np.random.default_rng(m + k + n)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def assert_product(found, x, y):
    """Assert that `found` equals x @ y up to rounding errors of a sum in any order."""
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    bound = 4 * np.finfo(x.dtype).eps * np.sqrt(x.shape[1]) * (np.abs(x) @ np.abs(y))
    assert found.dtype == x.dtype
    assert_all(np.abs(found - x.astype(wide) @ y.astype(wide)) <= bound)


def for_blas(x, y):
    """Return operands in a memory order for which BLAS is used, not hpgcn's kernel."""
    return np.asfortranarray(x), y


@DTYPES
@pytest.mark.parametrize("m, k, n", [
    WORK, (70, 1500, 90), (7, 3, 1000), (1, 1, 1), (0, 4, 5), (5, 0, 4), (5, 4, 0),
    long(90, 1500, 70), long(5, 1500, 7)])
def test_in_blocks(blocks, m, k, n, dtype):
    x, y = operands(m, k, n, dtype)
    out = np.full((m, n), np.nan, dtype)
    for left, right in ((x, y), (np.asfortranarray(x), y), (x, np.asfortranarray(y))):
        assert cpu.matmul(left, right, out) is out
        assert_product(out, x, y)
        for count in (1, 2, 5):
            set_num_threads(count)
            assert cpu.matmul(left, right).tobytes() == out.tobytes()
        with threshold(np.inf):
            assert cpu.matmul(left, right).tobytes() == out.tobytes()


@pytest.mark.parametrize("size", [0, 1, 23, 24, 64, 100, 513, 5000, 1 << 20])
def test_blocks_cover_all_rows_once(size):
    for least, most in ((1, 8), (100, 32), (1 << 12, 256)):
        blocks = module.cut(size, 1 << 20, least, most)
        firsts, lasts = zip(*blocks)
        assert firsts == (0, *lasts[:-1]) and lasts[-1] == size
        assert not any(first % module.UNIT for first in firsts)
        assert not size or all(first < last for first, last in blocks)
        assert len(blocks) <= most


def test_a_thread_that_has_not_begun_is_not_waited_for(blocks, monkeypatch):
    held = threading.Event()
    pool = ThreadPoolExecutor(1)
    monkeypatch.setattr(threads, "_pool", lambda count: (pool, 1))
    pool.submit(held.wait)
    x, y = for_blas(*operands(*WORK))
    try:
        # otherwise it would wait forever
        assert_product(cpu.matmul(x, y), x, y)
    finally:
        held.set()
        pool.shutdown()


def test_what_fails_in_a_block_is_raised_and_nobody_writes_on(blocks, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(np, "matmul", fail)
    x, y = for_blas(*operands(*WORK))
    with pytest.raises(MemoryError, match="no room"):
        cpu.matmul(x, y)


TALL = [(2001, 66, 42), *(long(*each) for each in (
    (700, 128, 128), (256, 1, 1), (9000, 64, 100)))]


@DTYPES
@pytest.mark.parametrize("m, k, n", TALL)
def test_long_rows(blocks, m, k, n, dtype):
    x, w = operands(m, k, n, dtype)
    g = operands(m, n, 1, dtype)[0]
    wide = np.zeros((m, n + 3), dtype)  # rows of a result may lie apart
    ours = vector_bytes() >= 32
    assert kernel_for(x, w, wide[:, :n]) is (rows_times if ours else None)
    cpu.matmul(x, w, wide[:, :n])
    assert_product(wide[:, :n], x, w)
    assert_none(wide[:, n:])
    assert_product(cpu.matmul(g, w.T), g, w.T)

    out = np.empty((k, n), dtype)
    assert kernel_for(x.T, g, out) is (columns_times if ours else None)
    assert_product(cpu.matmul(x.T, g, out), x.T, g)
    once = out.tobytes()
    for count in (1, 2, 5):
        set_num_threads(count)
        assert cpu.matmul(x.T, g, out).tobytes() == once


@pytest.mark.parametrize("m, k, n", [*TALL, (3, 4, 6), (0, 3, 2)])
def test_bits_that_are_kept(blocks, m, k, n):
    x, w = operands(m, k, n)
    mask = pack_mask(np.random.default_rng(0).random((m, n)) < 0.5)
    expected = reference.matmul(x, w, mask=mask)
    np.testing.assert_allclose(cpu.matmul(x, w, mask=mask), expected, rtol=0, atol=1e-3)
    wide = np.zeros((m, n + 3))
    cpu.matmul(x, w, wide[:, :n], mask=mask)
    np.testing.assert_allclose(wide[:, :n], expected, rtol=0, atol=1e-3)
    kept = np.unpackbits(mask, axis=1, bitorder="little")[:, :n] > 0
    np.testing.assert_array_equal(cpu.matmul(x, w, mask=mask)[~kept], 0)
    if m:
        assert_some(expected[kept])


@pytest.mark.long
@pytest.mark.parametrize("n, begins, stored_past", [
    (64, 0, True), (64, 16, False), (64, 32, False), (40, 0, False), (48, 0, True)])
def test_results_past_the_cache_are_stored_by_whole_lines(monkeypatch, n, begins, stored_past):
    """Large results bypass the cache only if each tile stores whole cache lines."""
    monkeypatch.setattr(row_passes, "last_level_cache", lambda: 1 << 10)
    x, w = operands(600, 24, n, np.float32)
    memory = np.empty(600 * n + 32, np.float32)
    first = (-memory.ctypes.data % 64 + begins) // 4
    out = memory[first:first + 600 * n].reshape(600, n)
    memory[:] = 7
    shapes = []
    made = gemm._panel_code
    monkeypatch.setattr(
        gemm, "_panel_code", lambda shape, kind: shapes.append(shape) or made(shape, kind))
    launch, arguments = rows_times(x, w, out)
    whole_panel = vector_bytes() > 16  # half a line with less
    assert (shapes[-1].streamed > 0) == (stored_past and whole_panel)
    launch(*arguments)
    assert_product(out, x, w)
    assert_all(memory[:first] == 7)
    assert_all(memory[first + out.size:] == 7)


def test_nan_stays():
    x, w = operands(400, 5, 10)
    x[7, 2] = np.nan
    assert np.isnan(cpu.matmul(x, w)).all(1).tolist() == [i == 7 for i in range(400)]
    assert_all(np.isnan(cpu.matmul(x.T, np.c_[x, x]))[2])


def test_blas_divides_products_itself_where_it_has_threads(blocks, monkeypatch):
    monkeypatch.setattr(module, "one_blas_thread", lambda: False)
    monkeypatch.setattr(module, "_multiply", None)
    x, y = for_blas(*operands(*WORK))
    np.testing.assert_array_equal(cpu.matmul(x, y), np.matmul(x, y))


@pytest.mark.parametrize("k, n", [(700, 5), (193, 40), (385, 1)])
def test_pieces_of_columns_have_the_bits_of_all_columns(k, n, monkeypatch):
    rng = np.random.default_rng(k)
    x, g = (rng.standard_normal((300, width)).astype(np.float32) for width in (k, n))
    assert gemm.pieces_of(k, 1).size > 2
    results = [cpu.matmul(x.T, g)]
    monkeypatch.setattr(gemm, "PIECE", k + 1)
    assert gemm.pieces_of(k, 1).tolist() == [0, k]
    results.append(cpu.matmul(x.T, g))
    np.testing.assert_array_equal(*results)

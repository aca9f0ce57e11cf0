"""Sparse products that read x in blocks of rows have the bits of products without blocks."""
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest

from hpgcn.kernels import pack_mask, reference
from hpgcn.kernels.cpu import column_blocks, trusted, tuning
from hpgcn.kernels.cpu.column_blocks import IN_BLOCK, block_of

M, N, PER_ROW = 70, 90, 100
CACHE = 2 << 10  # bytes
WHOLE = tuning.default()._replace(blocks=0)
module = import_module("hpgcn.kernels.cpu.spmm")  # the package has the function by this name


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(column_blocks, "second_cache", lambda: CACHE)


def matrix(rng, index, *, rising=True, begin=0):
    """Return CSR arrays with rows of 0 to 2 PER_ROW entries; the row pointers start at `begin`."""
    lengths = rng.integers(1, 2 * PER_ROW, M)
    lengths[::9] = 0
    indptr = begin + np.concatenate([[0], np.cumsum(lengths)])
    columns = rng.integers(0, N, indptr[-1])
    if rising:
        for start, stop in pairwise(indptr):
            columns[start:stop].sort()
    return indptr, columns.astype(index)


@pytest.mark.long  # with and without blocks, each option: every case compiles
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype, index, width", [
    (np.float32, np.int32, 33), (np.float64, np.int64, 144), (np.uint16, np.int32, 100)])
def test_bits_are_those_of_one_pass(dtype, index, width, count, monkeypatch):
    monkeypatch.setattr(column_blocks, "IN_BLOCK", 1)
    rng = np.random.default_rng(width)
    real = np.float32 if dtype is np.uint16 else dtype
    x = rng.standard_normal((N, width)).astype(real)
    if dtype is np.uint16:
        x = (x.view(np.uint32) >> 16).astype(np.uint16)
    mask = pack_mask(rng.random((M, width)) < 0.5)
    mask[3] = 0
    scales = {"row_scale": rng.standard_normal(M).astype(real),
              "col_scale": rng.standard_normal(N).astype(real)}
    for rising, begin in ((True, 0), (False, 0), (True, 5)):
        indptr, columns = matrix(rng, index, rising=rising, begin=begin)
        data = rng.standard_normal(columns.size).astype(real)
        for values, more in ((None, {}), (data, scales), (data, {**scales, "mask": mask})):
            multiply = trusted.sspmm if "mask" in more else trusted.spmm
            got, passes = [], []
            for choice in (WHOLE, tuning.default()._replace(blocks=count)):
                with tuning.using(choice):
                    out = np.full((M, width), np.nan, real)
                    _, launches = module.product(indptr, columns, values, x, out, **more)
                    passes.append(sum(isinstance(launch, module.Pass) for launch in launches))
                    got.append(multiply(indptr, columns, values, x, out=out, **more).tobytes())
            assert got[0] == got[1]
            assert passes[1] > passes[0] if rising else passes[1] == passes[0]


def test_a_block_is_summed_once(monkeypatch):
    """A product in column blocks equals the reference, which has no blocks."""
    monkeypatch.setattr(column_blocks, "IN_BLOCK", 1)
    rng = np.random.default_rng(1)
    indptr, columns = matrix(rng, np.int32)
    data, x = rng.standard_normal(columns.size), rng.standard_normal((N, 48))
    with tuning.using(tuning.default()._replace(blocks=1)):
        assert block_of(M, N, columns.size, 48, 8, 8) is not None
        got = trusted.spmm(indptr, columns, data, x)
    np.testing.assert_allclose(got, reference.spmm(indptr, columns, data, x), atol=1e-11)


def test_cuts_are_those_of_the_matrix_as_it_is():
    """Cached block boundaries are not used for another matrix at the same address."""
    rng = np.random.default_rng(2)
    indptr, columns = matrix(rng, np.int32)
    bounds = np.array([0, M // 3, M])
    for size in (30, 30, 7, 30):
        for _ in range(2):
            cuts = column_blocks.cuts_of(indptr, columns, N, size, bounds)
            for i in range(M):
                start, stop = indptr[i:i + 2]
                expected = start + np.searchsorted(columns[start:stop], np.arange(0, N, size))
                assert cuts[:, i].tolist() == [*expected, stop]
            other = np.sort(rng.integers(0, N, PER_ROW))
            long = np.argmax(np.diff(indptr) > PER_ROW)
            columns[indptr[long]:indptr[long] + PER_ROW] = other
            columns[indptr[long]:indptr[long + 1]].sort()
    columns[indptr[long] + 1] = -1
    assert column_blocks.cuts_of(indptr, columns, N, 30, bounds) is None


def test_where_blocks_pay(monkeypatch):
    many = 10**6
    monkeypatch.setattr(column_blocks, "second_cache", lambda: 8 << 10)
    monkeypatch.setattr(column_blocks, "max_width", lambda itemsize: 1024 // itemsize)
    with tuning.using(tuning.default()._replace(blocks=1)):
        assert block_of(M, 32, many, 64, 4, 4) is None  # x fits the cache
        assert block_of(M, 64, many, 64, 4, 4) == (64, 32)
        assert block_of(M, 65, many, 64, 4, 4) == (64, 22)
        assert block_of(M, 64, 2 * IN_BLOCK * M - 1, 64, 4, 4) is None  # rows too short
        assert block_of(M, 64, 2 * IN_BLOCK * M, 64, 4, 4) == (64, 32)
        assert block_of(M, 64, 2 * IN_BLOCK * M, 64, 2, 4) is None  # bf16 rows fit the cache
        assert block_of(M, 10**4, 10**9, 32, 4, 4) is None  # two sets of accumulators
        assert block_of(M, 64, 4 * IN_BLOCK * M, 128, 4, 4) == (128, 16)
        assert block_of(M, 64, 2 * IN_BLOCK * M, 128, 4, 4) == (64, 32)  # narrow: fewer blocks
    with tuning.using(WHOLE):
        assert block_of(M, 64, many, 64, 4, 4) is None

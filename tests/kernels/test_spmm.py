"""The kernels spmm and sspmm against the reference: results by hand, random cases, all options."""
import importlib
import inspect
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from cases import DTYPES, long

from hpgcn.kernels import cpu, pack_mask, reference, unpack_mask
from hpgcn.kernels.cpu import trusted
from hpgcn.kernels.cpu.emit.emitter import vector_bytes
from hpgcn.kernels.cpu.emit.row_emitter import TOGETHER
from hpgcn.kernels.cpu.emit.row_product import HELD

module = importlib.import_module("hpgcn.kernels.cpu.spmm")  # the package has a function spmm

# indptr, indices, data, x, expected
TABLE = [
    ([0, 1], [0], [2.0], [[3.0]], [[6.0]]),
    ([0, 0], [], [], [[3.0]], [[0.0]]),
    ([0], [], [], [[1.0, 2.0]], np.zeros((0, 2))),
    ([0, 2, 2, 3], [0, 1, 1], [1.0, 2.0, -1.0], [[1, 10], [2, 20]],
     [[5, 50], [0, 0], [-2, -20]]),
    # a row with the same column twice
    ([0, 2, 3], [1, 1, 0], None, [[1, 2, 3], [4, 5, 6]], [[8, 10, 12], [1, 2, 3]]),
    ([0, 1], [0], [1.0], np.zeros((1, 0)), np.zeros((1, 0))),
    ([0, 0, 0], [], [], np.zeros((0, 3)), np.zeros((2, 3))),  # nothing to read, rows to write
]


@pytest.mark.parametrize("kernels", [reference, cpu])
@pytest.mark.parametrize("case", TABLE)
def test_table(kernels, case):
    indptr, indices, data, x, expected = case
    data = None if data is None else np.array(data)
    out = kernels.spmm(np.array(indptr), np.array(indices, np.int32), data, np.array(x, float))
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, np.array(expected, float))


def random_case(m, n, f, *, index=np.int32, dtype=np.float64, density=0.1):
    rng = np.random.default_rng(0)
    A = sp.random_array((m, n), density=density, rng=rng, format="csr", dtype=np.float64)
    A.data -= 0.5
    lengths = np.diff(A.indptr)
    A.data[np.repeat(lengths >= np.quantile(lengths, 0.9), lengths)] = 0
    A.eliminate_zeros()  # some rows are empty
    return (A.indptr.astype(np.int64), A.indices.astype(index), A.data.astype(dtype),
            rng.standard_normal((n, f)).astype(dtype), rng)


@pytest.mark.parametrize("f, index, dtype", [
    (3, np.int32, np.float64), (9, np.int32, np.float64),
    *(long(f, np.int32, np.float32) for f in (1, 8, 17, 64, 602)),
    long(64, np.int64, np.float32), long(41, np.int32, np.float64)])
def test_widths(f, index, dtype):
    indptr, indices, weights, x, _ = random_case(97, 61, f, index=index, dtype=dtype)
    for data in (weights, None):
        expected = reference.spmm(indptr, indices, data, x.astype(np.float64))
        tolerance = (1e-5 if dtype == np.float32 else 1e-13) * np.abs(expected).max()
        np.testing.assert_allclose(cpu.spmm(indptr, indices, data, x), expected, rtol=0,
                                   atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("dtype, f, gap", [(np.float64, 24, 0), (np.float32, 128, 0),
                                           (np.float32, 41, 23),
                                           (np.float32, 3856, 0)])  # the last pass: 16 columns
def test_wide_rows_begin_anywhere(dtype, f, gap):
    """A product has the same bits wherever rows start in a cache line, and reads no padding."""
    indptr, indices, data, x, rng = random_case(97, 61, f, dtype=dtype)
    scale = rng.standard_normal(97).astype(dtype)
    mask = pack_mask(rng.random((97, f)) < 0.5)
    before = rng.standard_normal((97, f)).astype(dtype)

    def products(skipped):
        memory = np.full((62 * (f + gap)) + 128 // x.itemsize, np.nan, dtype)
        first = (-memory.ctypes.data % 64 + skipped) // x.itemsize
        rows = memory[first:first + 61 * (f + gap)].reshape(61, f + gap)[:, :f]
        rows[...] = x
        shape = module.product(indptr, indices, data, rows)[1][0].shape
        yield shape.shifted > 0
        yield trusted.spmm(indptr, indices, data, rows)
        yield trusted.spmm(indptr, indices, data, rows, row_scale=scale)
        yield trusted.spmm(indptr, indices, data, rows, out=before.copy(), accumulate=True)
        yield trusted.sspmm(indptr, indices, data, rows, mask)

    none, *expected = products(0)
    assert not none
    np.testing.assert_allclose(expected[0], reference.spmm(indptr, indices, data, x), atol=1e-4)
    for skipped in range(x.itemsize, 64, x.itemsize):
        shifted, *got = products(skipped)
        size = vector_bytes()
        vectors = -(-(skipped % size + f * x.itemsize) // size)
        assert shifted == (skipped % size > 0 and vectors <= HELD)
        for one, other in zip(got, expected):
            assert one.tobytes() == other.tobytes()


@DTYPES
@pytest.mark.parametrize("f", [72, *map(long, (131, 256))])
def test_wide_rows_have_the_bits_of_narrow_ones(f, dtype):
    """A product of wide rows has the bits of products of narrow slices of their columns."""
    rng = np.random.default_rng(1)
    lengths = np.array([0, 1, TOGETHER - 1, TOGETHER, TOGETHER + 1, 0, 3 * TOGETHER + 5, 7])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, 50, indptr[-1]).astype(np.int32)
    weights, x, before, scale = (rng.standard_normal(shape).astype(dtype) for shape in (
        indptr[-1], (50, f), (lengths.size, f), lengths.size))
    mask = pack_mask(rng.random((lengths.size, f)) < 0.5)
    out = cpu.spmm(indptr, indices, weights, x, before.copy(), row_scale=scale, mask=mask,
                   accumulate=True)
    each = 40 * 4 // out.itemsize  # no narrower: rows of few bytes are summed in two sets
    for first in range(0, f - each, each // 8 * 8):
        some = slice(first, first + each)
        narrow = cpu.spmm(indptr, indices, weights, np.ascontiguousarray(x[:, some]),
                          before[:, some].copy(), row_scale=scale, accumulate=True,
                          mask=pack_mask(unpack_mask(mask, f)[:, some]))
        np.testing.assert_array_equal(out[:, some], narrow)


@pytest.mark.parametrize("scales", ["", "r", "c", "rc"])
def test_options(scales):
    indptr, indices, data, x, rng = random_case(83, 83, 9)
    bits = pack_mask(rng.random((83, 9)) < 0.5)
    some = rng.permutation(83)[:30]
    fixed = {"row_scale": rng.standard_normal(83) if "r" in scales else None,
             "col_scale": rng.standard_normal(83) if "c" in scales else None}
    start = rng.standard_normal((83, 9))
    for rows, mask, accumulate, values in itertools.product(
            (None, some), (None, bits), (False, True), (data, None)):
        options = {**fixed, "rows": rows, "mask": mask, "accumulate": accumulate}
        result = start.copy()
        expected = start.copy()
        assert cpu.spmm(indptr, indices, values, x, result, **options) is result
        reference.spmm(indptr, indices, values, x, expected, **options)
        np.testing.assert_allclose(result, expected, atol=1e-12)
        if rows is not None:
            others = np.setdiff1d(np.arange(83), rows)
            np.testing.assert_array_equal(result[others], start[others])


def test_pointers_that_do_not_start_at_zero():
    indptr, indices, data, x, _ = random_case(50, 40, 9)
    whole = reference.spmm(indptr, indices, data, x)
    for kernels in (reference, cpu):
        part = kernels.spmm(indptr[20:41], indices, data, x)
        np.testing.assert_allclose(part, whole[20:40], atol=1e-13)


def test_skewed_rows():
    lengths = np.r_[np.zeros(500, int), 3000, np.zeros(500, int), np.ones(700, int), 2000]
    indptr = np.r_[0, np.cumsum(lengths)]
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 900, indptr[-1]).astype(np.int32)
    x = rng.standard_normal((900, 9))
    expected = reference.spmm(indptr, indices, None, x)
    np.testing.assert_allclose(cpu.spmm(indptr, indices, None, x), expected, atol=1e-10)


def test_sspmm_is_spmm_with_a_mask():
    indptr, indices, data, x, rng = random_case(40, 40, 11)
    mask = pack_mask(rng.random((40, 11)) < 0.3)
    mask[5] = 0
    expected = np.where(unpack_mask(mask, 11), reference.spmm(indptr, indices, data, x), 0)
    for kernels in (reference, cpu):
        result = kernels.sspmm(indptr, indices, data, x, mask)
        np.testing.assert_allclose(result, expected, atol=1e-13)


def test_dot_product_with_the_transpose():
    indptr, indices, data, x, rng = random_case(60, 45, 9)
    g = rng.standard_normal((60, 9))
    transposed = sp.csr_array((data, indices, indptr), shape=(60, 45)).T.tocsr()
    forward = (cpu.spmm(indptr, indices, data, x) * g).sum()
    backward = (x * cpu.spmm(transposed.indptr.astype(np.int64),
                             transposed.indices.astype(np.int32), transposed.data, g)).sum()
    assert forward == pytest.approx(backward, rel=1e-12)


def test_twins_have_the_same_signatures():
    for name in cpu.__all__:
        mine, theirs = ([*inspect.signature(getattr(kernels, name)).parameters.values()]
                        for kernels in (cpu, reference))
        assert mine == theirs, name


def test_the_name_is_the_function_not_the_module():
    for name in ("spmm", "gather"):
        importlib.import_module(f"hpgcn.kernels.cpu.{name}")
        assert inspect.isfunction(getattr(cpu, name))

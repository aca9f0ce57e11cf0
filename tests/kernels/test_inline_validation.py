"""Products that validate a matrix while reading it refuse invalid entries and never follow them."""
import numpy as np
import pytest
from arrays import assert_all
from cases import long

from hpgcn.kernels import cpu
from hpgcn.kernels.cpu import tuning
from hpgcn.kernels.host.threads import threshold

M, N = 3000, 700
INDICES = pytest.mark.parametrize("dtype", ["int32", long("int64")])


def matrix(dtype, seed=0):
    """Return CSR pointers and indices with rows of 0 to 7 entries, longer than one validated piece.

    Row pointers have the other integer dtype than indices.
    """
    rng = np.random.default_rng(seed)
    pointers = {"int32": np.int64, "int64": np.int32}[dtype]
    indptr = np.r_[0, rng.integers(0, 8, M).cumsum()].astype(pointers)
    indices = rng.integers(0, N, indptr[-1]).astype(dtype)
    return indptr, indices


def number_of(width, seed=1):
    return np.random.default_rng(seed).standard_normal((N, width))


def frozen(*arrays):
    copies = [array.copy() for array in arrays]
    for copy in copies:
        copy.flags.writeable = False
    return copies


def refused(kernel, *args, **options):
    with threshold(0), pytest.raises(ValueError, match=r"^s?spmm: in") as caught:
        kernel(*args, **options)
    return str(caught.value)


WRONG_COLUMNS = {"beyond": N, "negative": -1, "huge": 2**31 - 1, "least": -2**31}
PLACES = (0, 1, 1023, 1024, 5000, -1)


@INDICES
@pytest.mark.parametrize("wrong", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_a_wrong_column_anywhere(wrong, dtype):
    indptr, indices = matrix(dtype)
    x = number_of(3)
    for place in PLACES:
        spoiled = indices.copy()
        spoiled[place] = wrong
        message = refused(cpu.spmm, indptr, spoiled, None, x)
        assert message == refused(cpu.spmm, indptr, *frozen(spoiled), None, x)
        assert message == f"spmm: indices[{place % indices.size}] is {wrong}, expected 0..{N - 1}"


WRONG_POINTERS = {
    "one falls": (700, lambda indptr: indptr[699] - 1), "one is negative": (0, lambda indptr: -1),
    "far beyond": (1500, lambda indptr: 2**31 - 1), "far below": (1500, lambda indptr: -2**31),
    "the last one": (M, lambda indptr: indptr[M] + 1), "the last falls": (M, lambda indptr: 0)}


@INDICES
@pytest.mark.parametrize("name", WRONG_POINTERS)
def test_a_wrong_pointer_anywhere(name, dtype):
    indptr, indices = matrix(dtype)
    place, value = WRONG_POINTERS[name]
    indptr[place] = value(indptr)
    x = number_of(3)
    message = refused(cpu.spmm, indptr, indices, None, x)
    assert message == ("spmm: indptr does not rise from 0 or more to at most "
                       f"{indices.size}, the length of indices")
    assert message == refused(cpu.spmm, *frozen(indptr, indices), None, x)


@pytest.mark.parametrize("options", [
    long({"width": 300}), {"width": 0}, {"rows": np.arange(3)}, {"rows": np.arange(0)},
    {"accumulate": True}, {"mask": True}], ids=str)
def test_however_it_is_called(options):
    indptr, indices = matrix("int32")
    indices[-2] = N
    x = number_of(options.pop("width", 3))
    if options.pop("mask", False):
        mask = np.zeros((M, 1), np.uint8)  # results are not stored, but validated
        refused(cpu.sspmm, indptr, indices, None, x, mask)
        return
    out = np.full((M, x.shape[1]), 3.0)
    refused(cpu.spmm, indptr, indices, None, x, out, **options)
    if options:  # outputs that are added to or partly written are unchanged
        assert_all(out == 3)


def test_no_row_of_x():
    indptr, indices = matrix("int32")
    refused(cpu.spmm, indptr, indices, None, number_of(3)[:0])


@pytest.mark.parametrize("per_row", [0, 3, 40, 3000])
@pytest.mark.parametrize("entries", [True, False])
@pytest.mark.parametrize("width", [3, long(300)])
def test_what_is_right_has_the_bits_of_a_trusted_product(per_row, entries, width):
    rng = np.random.default_rng(per_row)
    m = 600
    indptr = np.arange(m + 1) * per_row + 5  # the matrix is a part of longer arrays
    indices = rng.integers(0, N, indptr[-1] + 3).astype(np.int32)
    indices[:5] = indices[indptr[-1]:] = N - 1
    x = number_of(width)
    expected = cpu.trusted.spmm(indptr, indices, None, x)
    with tuning.using(tuning.default()._replace(entries=entries)), threshold(0):
        assert cpu.spmm(indptr, indices, None, x).tobytes() == expected.tobytes()

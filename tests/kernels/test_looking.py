"""Products that look at a matrix on their way: what is wrong anywhere is refused, and not read."""
import numpy as np
import pytest

from hpgcn.kernels import cpu
from hpgcn.kernels.cpu import tuning
from hpgcn.kernels.threads import threshold

M, N = 3000, 700
DTYPES = ("int32", "int64")


def matrix(dtype, seed=0):
    """Rows of 0 to 7 entries, in pieces of what is looked at together and beyond."""
    rng = np.random.default_rng(seed)
    indptr = np.r_[0, rng.integers(0, 8, M).cumsum()].astype(dtype)
    indices = rng.integers(0, N, indptr[-1]).astype(dtype)
    return indptr, indices


def number_of(dtype, width, seed=1):
    return np.random.default_rng(seed).standard_normal((N, width)).astype(dtype)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wrong", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_a_wrong_column_anywhere(wrong, dtype):
    indptr, indices = matrix(dtype)
    x = number_of(np.float32, 7)
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRONG_POINTERS)
def test_a_wrong_pointer_anywhere(name, dtype):
    indptr, indices = matrix(dtype)
    place, value = WRONG_POINTERS[name]
    indptr[place] = value(indptr)
    x = number_of(np.float64, 33)
    message = refused(cpu.spmm, indptr, indices, None, x)
    assert message == ("spmm: indptr does not rise from 0 or more to at most the "
                       f"{indices.size} entries of indices")
    assert message == refused(cpu.spmm, *frozen(indptr, indices), None, x)


@pytest.mark.parametrize("options", [
    {"width": 600}, {"width": 0}, {"rows": np.arange(3)}, {"rows": np.arange(0)},
    {"accumulate": True}, {"mask": True}], ids=str)
def test_however_it_is_called(options):
    indptr, indices = matrix("int32")
    indices[-2] = N
    x = number_of(np.float32, options.pop("width", 20))
    if options.pop("mask", False):
        mask = np.zeros((M, 3), np.uint8)  # nothing is kept, and yet looked at
        refused(cpu.sspmm, indptr, indices, None, x, mask)
        return
    out = np.full((M, x.shape[1]), 3, np.float32)
    refused(cpu.spmm, indptr, indices, None, x, out, **options)
    if options:  # what is added to, or written in part, is as it was
        assert (out == 3).all()


def test_no_row_of_x():
    indptr, indices = matrix("int32")
    refused(cpu.spmm, indptr, indices, None, number_of(np.float32, 9)[:0])


@pytest.mark.parametrize("per_row", [0, 3, 40, 3000])
@pytest.mark.parametrize("entries", [True, False])
def test_what_is_right_has_the_bits_of_a_trusted_product(per_row, entries):
    rng = np.random.default_rng(per_row)
    m = 600
    indptr = np.arange(m + 1) * per_row + 5  # it begins and ends within
    indices = rng.integers(0, N, indptr[-1] + 3)
    indices[:5] = indices[indptr[-1]:] = N - 1
    data = rng.standard_normal(indices.size).astype(np.float32)
    for width in (5, 64, 300):
        x = number_of(np.float32, width)
        for values in (None, data):
            expected = cpu.trusted.spmm(indptr, indices, values, x)
            with tuning.using(tuning.default()._replace(entries=entries)), threshold(0):
                assert cpu.spmm(indptr, indices, values, x).tobytes() == expected.tobytes()

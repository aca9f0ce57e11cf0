"""CUDA kernels without a GPU: compiled as C++, they pass the tests of the CPU kernels.

Some are compiled twice: with independent threads, and with warps whose threads exchange
registers.
"""
import re
import sys
import types

import numpy as np
import pytest
import shim
from arrays import assert_all, assert_none
from cases import DTYPES
from commands import python
from shim import COMPILER, KERNELS, SOURCES, WITHOUT_WARPS, ShimDevice, names_of, twins

from hpgcn.kernels import backend, cuda, pack_mask, reference
from hpgcn.kernels.bits16 import to_bf16
from hpgcn.kernels.cuda import gpu_device as cuda_device
from hpgcn.kernels.cuda.gpu_device import OPTIONS, CupyDevice, cached, using
from hpgcn.kernels.cuda.spmm import pieces_of, shape_of

pytestmark = pytest.mark.long

on_device = pytest.mark.usefixtures("device")
# kernels that are the same without warps, which training on the fake GPU compiles
alone = pytest.mark.parametrize("device", ["threads"], indirect=True)


def as_twin(name, test):
    """Run a test of the CPU kernels on the fake devices."""
    return on_device(alone(test) if name.endswith(WITHOUT_WARPS) else test)


globals().update({name: as_twin(name, test) for name, test in twins(cuda).items()})


@pytest.fixture(scope="session")
def devices():
    return [ShimDevice(shim.shared_folder(), warps) for warps in (False, True)]


# as a GPU runs them, and without warps
@pytest.fixture(params=["warps", "threads"])
def device(request):
    if COMPILER is None:
        pytest.skip("no C++ compiler: set CXX")
    found = request.getfixturevalue("devices")[request.param == "warps"]
    found.launched.clear()
    with using(found):
        yield found


def skewed(f, dtype=np.float64, seed=0):
    """Return a matrix with rows of 0 to 8 nonzeros and three of 512, 513 and 1700; and features."""
    rng = np.random.default_rng(seed)
    count = rng.integers(0, 9, 90)
    count[[7, 40, 41]] = 512, 513, 1700
    indptr = np.r_[0, count.cumsum()]
    indices = rng.integers(0, 60, indptr[-1]).astype(np.int32)
    data = rng.standard_normal(indptr[-1]).astype(dtype)
    return indptr, indices, data, rng.standard_normal((60, f)).astype(dtype), rng


@pytest.mark.parametrize("f", [1, 8, 19, 64, 130])
@pytest.mark.parametrize("options", ["", "rows", "mask accumulate", "rows mask accumulate scales"])
def test_long_rows_are_cut(device, f, options):
    indptr, indices, data, x, rng = skewed(f)
    given = {"rows": np.r_[41, 80:20:-1, 7][1:] if "rows" in options else None,
             "mask": pack_mask(rng.random((90, f)) < 0.5) if "mask" in options else None,
             "accumulate": "accumulate" in options}
    if "scales" in options:
        given |= {"row_scale": rng.standard_normal(90), "col_scale": rng.standard_normal(60)}
    start = rng.standard_normal((90, f))
    one, two = (cuda.spmm(indptr, indices, data, x, start.copy(), **given) for _ in range(2))
    expected = reference.spmm(indptr, indices, data, x, start.copy(), **given)
    np.testing.assert_allclose(one, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert "spmm_carries" in device.launched and one.tobytes() == two.tobytes()


def both(name, *given, **options):
    """Return the results of a kernel, checked to repeat, and those of the reference."""
    one, two = (getattr(cuda, name)(*given, **options) for _ in range(2))
    for mine, again in zip(one, two):
        assert mine.tobytes() == again.tobytes()
    return one, getattr(reference, name)(*given, **options)


@on_device
@alone
def test_long_rows_are_cut_in_attention(device):
    indptr, indices, _, x, rng = skewed(6)
    scores = rng.standard_normal((90, 2)), rng.standard_normal((60, 2))
    drawn = {"vertex": np.arange(90), "neighbor": np.arange(60), "p": 0.4}
    results = []
    for kernels in (cuda, reference):  # half of the rows' entries, then the other half
        above, share = np.zeros((90, 6)), np.zeros((90, 2))
        out, lse = None, None
        for turn, part in enumerate((indices, (indices + 1) % 60)):
            out, lse = kernels.attend(indptr, part, x, *scores, out, lse, above=above, share=share,
                                      accumulate=turn > 0, **drawn)
        results.append((out, lse, above, share))
    for mine, other in zip(*results):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)
    assert device.launched.count("attend_pieces") == 2

    pulled = rng.standard_normal((60, 6 + 3 * 2))
    drawn = {"vertex": np.arange(60), "neighbor": np.arange(90), "p": 0.4}
    wide = rng.standard_normal((90, 6))
    for mine, other in zip(*both("attend_backward", indptr, indices, pulled, wide, scores[0],
                                 **drawn)):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)
    assert "piece_sums" in device.launched


@on_device
@alone
@pytest.mark.parametrize("d, f", [(0, 2), (3, 5), (8, 1), (19, 4)])
def test_long_rows_are_cut_in_messages(device, d, f):
    indptr, indices, _, _, rng = skewed(1)
    edge = rng.permutation(indices.size)
    features, weight, bias = (rng.standard_normal(shape) for shape in ((edge.size, d), (d, f), f))
    given = features, weight, bias
    out, expected = (kernels.edge_relu(indptr, indices, edge, x, *given, np.ones((90, f)),
                                       accumulate=True)
                     for x in [rng.standard_normal((60, f))] for kernels in (cuda, reference))
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)
    assert "piece_sums" in device.launched
    pattern = indptr, indices, edge, rng.standard_normal((90, f)), *given
    for mine, other in zip(*both("edge_relu_backward", *pattern, rng.standard_normal((60, f)))):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)
    assert ("edge_relu_weights" in device.launched) == (d > 8)


@on_device
def test_pieces_hold_every_nonzero_once():
    indptr = skewed(1)[0] + 11
    cut = pieces_of(indptr, None)
    row, begin, end, slot = cut.pieces.T
    assert (end - begin).max() <= 512
    order = np.lexsort((begin, row))
    held = np.concatenate([np.arange(*piece) for piece in cut.pieces[order, 1:3]])
    np.testing.assert_array_equal(held, np.arange(indptr[0], indptr[-1]))
    owners = np.searchsorted(indptr, held, side="right") - 1  # empty rows are skipped
    np.testing.assert_array_equal(np.repeat(row[order], (end - begin)[order]), owners)
    assert set(row.tolist()) == set(range(90))
    np.testing.assert_array_equal(cut.rows, [40, 41])  # pieces of 513 and 1700
    np.testing.assert_array_equal(cut.firsts, [0, 2, 6])
    split = order[slot[order] >= 0]
    np.testing.assert_array_equal(slot[split], np.arange(6))
    np.testing.assert_array_equal(row[split], [40, 40, 41, 41, 41, 41])
    assert_all(np.diff(np.ceil(np.log2(end - begin + 1))) <= 0)


@on_device
def test_even_rows_are_not_cut():
    assert pieces_of(np.arange(0, 5000, 50), None) is None
    assert pieces_of(np.r_[0, np.arange(30).cumsum()], None) is None
    # equal rows, too long for one group of threads
    assert pieces_of(np.r_[0, 5000, 10000, 15000], None).slots == 30
    assert pieces_of(skewed(1)[0], np.array([0, 1, 2])) is None


@pytest.mark.parametrize("width, pack, name, threads", [
    (1, 4, "spmm_2", 10), (8, 4, "spmm_2", 10), (4, 2, "spmm_2", 10), (9, 4, "spmm_4", 40),
    (16, 4, "spmm_4", 40), (32, 4, "spmm_8", 80), (41, 4, "spmm_16", 160), (64, 4, "spmm_16", 160),
    (128, 4, "spmm_32", 320), (129, 4, "spmm_64", 320), (256, 4, "spmm_64", 320),
    (602, 4, "spmm_64", 960), (5, 2, "spmm_4", 40), (64, 2, "spmm_32", 320)])
def test_lanes_cover_the_width(width, pack, name, threads):
    assert shape_of(width, pack, 10, True) == (name, threads)
    assert shape_of(width, pack, 10, False) == ("spmm_thread", 10 * -(-width // 8))


@on_device
@DTYPES
@pytest.mark.parametrize("f", [5, 8, 41])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("nonzeros", [20, 900])
def test_rows_that_begin_anywhere(f, offset, nonzeros, dtype):
    rng = np.random.default_rng(f)
    indptr = np.r_[0, np.sort(rng.integers(0, nonzeros, 29)), nonzeros]
    indices = rng.integers(0, 50, nonzeros).astype(np.int32)
    memory = rng.standard_normal(52 * f + 8).astype(dtype)
    x = memory[offset:offset + 50 * f].reshape(50, f)
    expected = reference.spmm(indptr, indices, None, x.astype(np.float64))
    out = np.full(30 * f + 8, 7, dtype)
    cuda.spmm(indptr, indices, None, x, out[offset:offset + 30 * f].reshape(30, f))
    np.testing.assert_allclose(out[offset:offset + 30 * f].reshape(30, f), expected,
                               atol=1e-4 if dtype == np.float32 else 1e-12)
    assert_all(out[:offset] == 7)
    assert_all(out[offset + 30 * f:] == 7)


@on_device
def test_what_a_mask_drops_is_not_seen():
    x = np.array([[1] * 4 + [np.nan] * 7 + [2]] * 3)
    mask = np.array([[0x0F, 0x08]] * 2, np.uint8)
    out = cuda.sspmm(np.array([0, 2, 2]), np.array([0, 2], np.int32), None, x, mask,
                     np.full((2, 12), np.nan))
    np.testing.assert_array_equal(out, [[2] * 4 + [0] * 7 + [4], [0] * 12])


@DTYPES
def test_rows_of_all_shapes_have_the_same_bits(device, dtype):
    """A column of a product has the same bits for any width and number of lanes per row."""
    indptr, indices, data, x, _ = skewed(160, dtype)
    whole = cuda.spmm(indptr, indices, data, x)
    for width in (4, 8, 16, 32, 52, 64, 128):
        part = cuda.spmm(indptr, indices, data, x[:, :width].copy())
        np.testing.assert_array_equal(part, whole[:, :width])


@on_device
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.complex128])
@pytest.mark.parametrize("f", [1, 4, 16, 21])
def test_rows_of_any_kind_are_gathered(dtype, f):
    rng = np.random.default_rng(f)
    x = rng.integers(0, 99, (40, f)).astype(dtype)
    index = rng.integers(0, 40, 90)
    np.testing.assert_array_equal(cuda.gather(x, index), x[index])
    out = np.zeros((90, f + 3), dtype)
    cuda.gather(x, index.astype(np.int32), out[:, 1:f + 1])
    np.testing.assert_array_equal(out[:, 1:f + 1], x[index])
    assert_none(out[:, 0])
    assert_none(out[:, f + 1:])


@on_device
@pytest.mark.parametrize("m", [1, 31, 32, 33, 1000, 40_000])
def test_column_sums(m):
    x = np.random.default_rng(m).integers(-9, 10, (m, 5)).astype(float)
    np.testing.assert_array_equal(cuda.column_sum(x), x.sum(0, dtype=np.float64))


def test_what_cupy_is_given(monkeypatch):
    """CuPy's RawModule gets the expected sources, options, grid and arguments."""
    compiled = []
    started = []

    class RawModule:
        def __init__(self, code, options):
            compiled.append(options)
            self.code = code

        def get_function(self, name):
            assert f"void {name}(" in self.code
            return lambda grid, block, args: started.append((name, grid, block, args))

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(
        RawModule=RawModule, ndarray=np.ndarray, ascontiguousarray=np.ascontiguousarray))
    w, g = np.ones((2, 700), np.float32)
    with using(CupyDevice()):
        for _ in range(2):
            cuda.sgd(w, g, lr=0.5)
    with using(CupyDevice(warps=False)):
        cuda.sgd(w.astype(float), g, lr=0.5)
    assert compiled == [(*OPTIONS, "-DHPGCN_GPU_ONLY", "-DREAL=float"),
                        (*OPTIONS, "-DREAL=double")]
    name, grid, block, args = started[1]
    assert (name, grid, block, len(started)) == ("sgd", (3,), (256,), 3)
    assert args[0] is w and args[1] is g
    assert [(type(a), a.item()) for a in args[2:]] == [
        (np.int64, 700), (np.float64, 0), (np.int64, 0), (np.float64, 0.5)]


@on_device
def test_arrays_out_of_order_are_refused():
    z = np.asfortranarray(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"activate: an array of shape \(4, 3\) is not in C order"):
        cuda.trusted.activate(z, np.zeros(3))
    with pytest.raises(ValueError, match="not contiguous"):
        cuda.trusted.gather(z, np.array([0]))
    message = r"chunk_sums: no kernel for REAL of dtype float16: .* float32, float64"
    with pytest.raises(TypeError, match=message):
        cuda.trusted.column_sum(np.ones((2, 2), np.float16))


@on_device
def test_long_products_of_bits16_take_few_blocks(monkeypatch):
    """A bf16 product with 1000 rows is computed in 16 blocks, also if it is transposed."""
    monkeypatch.setattr(sys.modules["hpgcn.kernels.cuda.matmul"], "BLOCK_NUMBERS", 1 << 10)
    heights = []
    product = np.matmul
    monkeypatch.setattr(np, "matmul", lambda x, y: heights.append(x.shape) or product(x, y))
    x = to_bf16(np.ones((1000, 12)))
    assert_all(cuda.matmul(x, to_bf16(np.ones((12, 4)))) == 12)
    assert heights == [(64, 12)] * 15 + [(40, 12)]
    heights.clear()
    assert_all(cuda.matmul(x.T, to_bf16(np.ones((1000, 4)))) == 1000)
    assert heights == [(12, 64)] * 15 + [(12, 40)]


def test_what_is_kept_goes_with_its_array(monkeypatch):
    monkeypatch.setattr(cuda_device, "_results", {})
    sizes = []

    def make(array, _):
        sizes.append(array.size)
        return array.size

    one = np.zeros(3)
    two = np.zeros(4)
    assert [cached(make, array, None) for array in (one, two, one)] == [3, 4, 3]
    assert sizes == [3, 4]
    del one
    assert list(cuda_device._results.values()) == [4]


def test_arrays_of_cupy_are_served_without_an_import_for_others():
    ndarray = type("ndarray", (), {"__module__": "cupy"})
    assert backend(ndarray()) is cuda.trusted
    with pytest.raises(TypeError, match="no kernels for arrays of type cupyx_like"):
        backend(type("ndarray", (), {"__module__": "cupyx_like"})())
    code = ("import sys, numpy; from hpgcn.kernels import backend; backend(numpy.empty(1)); "
            "print(any(m.startswith('hpgcn.kernels.cuda') or m == 'cupy' for m in sys.modules))")
    assert python("-c", code).stdout == "False\n"


@pytest.mark.parametrize("source", SOURCES)
def test_threads_know_of_no_other_without_warps(source):
    text = re.sub(r"//.*", "", (KERNELS / f"{source}.cu").read_text())
    assert not re.search(r"atomic|__shared__|__syncthreads|#include", text)
    assert not re.search(r"__shfl|__ballot|__syncwarp", shim.without_warps(text))
    plain, all_names = map(set, names_of(source))
    assert plain and plain <= all_names

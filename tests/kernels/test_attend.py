"""Graph attention equals dense float64 code: heads, widths, dropout, blocks, gradients, limits."""
import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from arrays import assert_all, assert_none
from cases import DTYPES, long

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.host.threads import threshold

BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
KEY = {"seed": 2**40 + 7, "epoch": 5, "layer": 1}
# Each case compiles anew. Heads fill a part of a vector or several vectors, and so do the
# columns of a head. One head takes several passes.
SHAPES = pytest.mark.parametrize("heads, f, index, dtype", [
    (3, 3, np.int32, np.float64), long(3, 3, np.int32, np.float32),
    long(8, 5, np.int64, np.float64), long(1, 100, np.int32, np.float32)])
SLOPE = 0.2


class Case:
    """A random graph with an empty row, a row of one entry and a full row; K heads of width f."""

    def __init__(self, heads, f, dtype=np.float64, *, index=np.int32, m=40, n=33, seed=0):
        rng = np.random.default_rng([seed, heads, f])
        self.pattern = rng.random((m, n)) < 0.2
        self.pattern[3] = False
        self.pattern[4] = np.arange(n) == 2
        self.pattern[5] = True
        self.pattern[:, 6] = False
        self.heads, self.rng, self.index = heads, rng, index
        shapes = {"x": (n, heads * f), "row_score": (m, heads), "col_score": (n, heads),
                  "grad": (m, heads * f)}
        self.real = {name: rng.standard_normal(shape).astype(dtype)
                     for name, shape in shapes.items()}
        self.numbers = {"vertex": rng.integers(0, 2**47, m), "neighbor": rng.integers(0, 2**47, n)}

    def csr(self, pattern=None):
        pattern = self.pattern if pattern is None else pattern
        return np.r_[0, pattern.sum(1).cumsum()], pattern.nonzero()[1].astype(self.index)

    def options(self, p):
        return {**self.numbers, **KEY, "p": p, "slope": SLOPE}

    def forward(self, kernels, p=0.0, pattern=None, **more):
        x, row_score, col_score = (self.real[name] for name in ("x", "row_score", "col_score"))
        if "share" not in more:  # unused, but without them the kernel compiles again
            more["above"] = np.full_like(self.real["grad"], 9)
            more["share"] = np.full_like(self.real["row_score"], 9)
        return kernels.attend(*self.csr(pattern), x, row_score, col_score, **self.options(p),
                              **more)

    def kept(self, kernels, p=0.0):
        """Return all results of the forward pass: out, lse, above and share."""
        above, share = np.full_like(self.real["grad"], 9), np.full_like(self.real["row_score"], 9)
        return *self.forward(kernels, p, above=above, share=share), above, share

    def gradients(self, kernels, p=0.0):
        """Return the gradients of x, row_score and col_score."""
        out, lse, above, share = self.kept(kernels, p)
        pulled, drow = kernels.attend_dots(self.real["grad"], out, above, share,
                                           self.real["row_score"], lse, slope=SLOPE)
        dx, dcol = kernels.attend_backward(*self.csr(self.pattern.T), pulled, self.real["x"],
                                           self.real["col_score"], **self.options(p))
        return dx, drow, dcol


def dense(case, p=0.0, **changed):
    """Return out, lse, above and share, computed in float64 with dense matrices."""
    x, row, col, _ = (np.asarray({**case.real, **changed}[name], np.float64)
                      for name in ("x", "row_score", "col_score", "grad"))
    z = row[:, None] + col[None]
    pattern = case.pattern[..., None]
    score = np.where(pattern, np.where(z > 0, z, SLOPE * z), -np.inf)
    some = pattern.any(1)
    top = np.where(some, score.max(1), 0)
    power = np.exp(score - top[:, None])
    total = power.sum(1)
    alpha = power / np.where(some, total, 1)[:, None]
    weight = alpha * mask(case, p)
    heads = x.reshape(len(x), case.heads, -1)
    out, above = (np.einsum("ijh,jhf->ihf", w, heads).reshape(len(row), -1)
                  for w in (weight, weight * (z > 0)))
    with np.errstate(divide="ignore"):
        return out, np.log(total) + top, above, (alpha * (z > 0)).sum(1)


def mask(case, p):
    """Return the dropout factor of every pair of vertices and head, (m, n, K)."""
    if not p:
        return 1
    vertex, neighbor = case.numbers["vertex"], case.numbers["neighbor"]
    pairs = np.repeat(vertex, neighbor.size), np.tile(neighbor, vertex.size)
    bits = reference.attention_bits(*pairs, case.heads, p=p, **KEY)
    return bits.reshape(*case.pattern.shape, -1) * reference.dropout_scale(p)


def close(results, expected, dtype):
    bound = 4e-6 if dtype == np.float32 else 2e-14
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound * np.abs(
            other[np.isfinite(other)]).max(initial=1e-300))


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.4])
@SHAPES
def test_attention_is_that_of_dense_matrices(kernels, heads, f, index, dtype, p):
    case = Case(heads, f, dtype, index=index)
    close(case.kept(kernels, p), dense(case, p), dtype)


@pytest.mark.long
def test_results_are_those_beside_which_nothing_is_kept():
    case = Case(3, 3)
    for p in (0.0, 0.4):
        close(case.forward(cpu, p, above=None, share=None), case.forward(reference, p), np.float64)


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_gradients_are_finite_differences(kernels, p):
    case = Case(3, 3, m=12, n=9)
    names = ("x", "row_score", "col_score")
    for name, gradient in zip(names, case.gradients(kernels, p), strict=True):
        direction = case.rng.standard_normal(gradient.shape)
        h = 1e-6
        losses = [(dense(case, p, **{name: case.real[name] + step * direction})[0]
                   * case.real["grad"]).sum() for step in (-h, h)]
        expected = (losses[1] - losses[0]) / (2 * h)
        size = np.abs(dense(case, p)[0] * case.real["grad"]).sum()
        assert (gradient * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-8 * size)


@pytest.mark.parametrize("p", [0.0, 0.4])
@SHAPES
def test_gradients_are_those_of_the_reference(heads, f, index, dtype, p):
    case = Case(heads, f, dtype, index=index, m=50, n=31)
    exact = Case(heads, f, m=50, n=31)
    exact.real = {name: array.astype(np.float64) for name, array in case.real.items()}
    close(case.kept(cpu, p), exact.kept(reference, p), dtype)
    results, expected = case.gradients(cpu, p), exact.gradients(reference, p)
    bound = 1e-5 if dtype == np.float32 else 1e-13
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound * np.abs(other).max())


@BOTH
@DTYPES
def test_rows_without_entries_and_of_one(kernels, dtype):
    case = Case(3, 3, dtype)
    out, lse, above, share = case.kept(kernels)
    assert_all(out[3] == 0)
    assert_all(lse[3] == -np.inf)
    assert_all(above[3] == 0)
    assert_all(share[3] == 0)
    np.testing.assert_allclose(out[4], case.real["x"][2], rtol=1e-6)
    for gradient in case.gradients(kernels):
        assert_all(np.isfinite(gradient))
    dx, drow, dcol = case.gradients(kernels)
    assert_all(drow[3] == 0)
    assert_all(dx[6] == 0)
    assert_all(dcol[6] == 0)
    np.testing.assert_allclose(drow[4], 0, atol=1e-5)


@BOTH
def test_nothing_to_read(kernels):
    none = np.zeros((0, 3))
    indptr, indices = np.zeros(4, int), np.zeros(0, np.int32)
    kept = {"above": np.ones((3, 9)), "share": np.ones((3, 3))}
    out, lse = kernels.attend(indptr, indices, np.zeros((0, 9)), np.ones((3, 3)), none, **kept)
    for each in (out, *kept.values()):
        np.testing.assert_array_equal(each, np.zeros(each.shape))
    assert_all(lse == -np.inf)
    dx, dcol = kernels.attend_backward(np.zeros(4, int), indices, np.zeros((0, 18)),
                                       np.ones((3, 9)), np.ones((3, 3)))
    assert_none(dx)
    assert_none(dcol)
    out, lse = kernels.attend(indptr[:1], indices, np.ones((4, 9)), none, np.ones((4, 3)))
    assert out.shape == (0, 9) and lse.shape == (0, 3)


@BOTH
@DTYPES
def test_pointers_that_do_not_start_at_zero(kernels, dtype):
    case = Case(3, 3, dtype)
    indptr, indices = case.csr()
    whole, lse = case.forward(kernels)
    part = kernels.attend(indptr[10:21], indices, case.real["x"], case.real["row_score"][10:20],
                          case.real["col_score"], above=np.ones((10, 9)).astype(dtype),
                          share=np.ones((10, 3)).astype(dtype))
    close(part, (whole[10:20], lse[10:20]), dtype)


@BOTH
@DTYPES
@pytest.mark.parametrize("size", [1e4, -1e4, 1e30])
def test_large_scores_do_not_overflow(kernels, size, dtype):
    case = Case(3, 3, dtype)
    for name in ("row_score", "col_score"):
        case.real[name] *= dtype(size)
    out, lse, above, share = case.kept(kernels)
    expected = dense(case)
    assert_all(np.isfinite(out))
    assert_none(np.isnan(lse))
    if abs(size) == 1e4 and dtype == np.float64:
        close((out, lse, above, share), expected, dtype)
    if abs(size) == 1e4:  # with larger scores, exp would amplify the rounding of lse too much
        for gradient in case.gradients(kernels):
            assert_all(np.isfinite(gradient))


@BOTH
def test_what_is_not_a_number_is_seen(kernels):
    case = Case(3, 3)
    case.real["col_score"][2, 1] = np.nan
    out, lse = case.forward(kernels)
    reads = case.pattern[:, 2]
    assert_all(np.isnan(out[reads, 3:6]))
    assert_all(np.isnan(lse[reads, 1]))
    assert_all(np.isfinite(out[~reads]))
    assert_all(np.isfinite(out[:, :3]))


@BOTH
@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("heads, f, dtype", [
    (3, 3, np.float64), long(3, 3, np.float32), long(8, 5, np.float64)])
def test_blocks_of_columns_add_up_to_the_whole(kernels, heads, f, dtype, p):
    """Attention over blocks of columns, in any order, equals that over all columns.

    Blocks are accumulated or merged.
    """
    case = Case(heads, f, dtype)
    whole = case.kept(kernels, p)
    owner = case.rng.integers(0, 3, case.pattern.shape[1])
    for order in ([0, 1, 2], [2, 0, 1]):
        blocks = [case.pattern & (owner == each) for each in order]
        names = ("out", "lse", "above", "share")
        state = dict(zip(names, (np.full_like(array, 9) for array in whole)))
        for number, block in enumerate(blocks):
            case.forward(kernels, p, block, **state, accumulate=number > 0)
        close(state.values(), whole, dtype)

        parts = []
        for block in blocks:
            part = dict(zip(names, map(np.empty_like, whole)))
            case.forward(kernels, p, block, **part)
            parts.append(part)
        merged = parts[0]
        for part in parts[1:]:
            kernels.attend_merge(
                merged["out"], merged["lse"], part["out"], part["lse"], above=merged["above"],
                share=merged["share"], part_above=part["above"], part_share=part["share"])
        close(merged.values(), whole, dtype)


@BOTH
@DTYPES
def test_gradients_of_blocks_add_up(kernels, dtype):
    case = Case(3, 3, dtype)
    out, lse, above, share = case.kept(kernels, 0.4)
    pulled = np.full((40, 18), 9, dtype)
    kernels.attend_dots(case.real["grad"], out, above, share, case.real["row_score"], lse, pulled)
    expected = case.gradients(kernels, 0.4)
    dx, dcol = np.full_like(expected[0], 9), np.full_like(expected[2], 9)
    owner = case.rng.integers(0, 2, case.pattern.shape[0])
    for each in (0, 1):
        block = case.pattern.T & (owner == each)
        kernels.attend_backward(
            *case.csr(block), pulled, case.real["x"], case.real["col_score"], dx, dcol,
            **case.options(0.4), accumulate=each > 0)
    close((dx, dcol), (expected[0], expected[2]), dtype)


@BOTH
def test_dropout_hangs_on_original_numbers_alone(kernels):
    """The same entries are dropped if rows and columns are permuted."""
    case = Case(3, 3)
    whole = case.kept(kernels, 0.5)
    rows, columns = case.rng.permutation(40), case.rng.permutation(33)
    case.pattern = case.pattern[rows][:, columns]
    for name, order in (("row_score", rows), ("col_score", columns), ("x", columns)):
        case.real[name] = case.real[name][order]
    case.numbers = {"vertex": case.numbers["vertex"][rows],
                    "neighbor": case.numbers["neighbor"][columns]}
    close(case.kept(kernels, 0.5), [array[rows] for array in whole], np.float64)


@BOTH
def test_draws(kernels):
    """Dropout bits differ by seed, epoch, layer, row, column and head; a share 1 - p is 1."""
    rng = np.random.default_rng(0)
    vertex, neighbor = rng.integers(0, 2**48, (2, 3000))
    usual = kernels.attention_bits(vertex, neighbor, 11, **KEY, p=0.3)
    assert usual.shape == (3000, 11) and usual.dtype == bool
    np.testing.assert_array_equal(
        usual, reference.attention_bits(vertex, neighbor, 11, **KEY, p=0.3))
    assert usual.mean() == pytest.approx(0.7, abs=0.01)
    np.testing.assert_array_equal(
        usual[:, :3], kernels.attention_bits(vertex, neighbor, 3, **KEY, p=0.3))
    others = [kernels.attention_bits(vertex, neighbor, 11, **{**KEY, "p": 0.3, name: 9})
              for name in KEY]
    others += [kernels.attention_bits(*pair, 11, **KEY, p=0.3) for pair in (
        (neighbor, vertex), (vertex ^ 1, neighbor), (vertex, neighbor ^ 1),
        (vertex ^ 1 << 40, neighbor), (vertex, neighbor ^ 1 << 40))]
    others.append(np.roll(usual, 1, axis=1))
    for other in others:
        assert (other == usual).mean() == pytest.approx(0.58, abs=0.02)


def test_rows_longer_than_a_tile():
    """A row of 1000 entries is right whether its scores rise or fall along the row."""
    n, heads, f = 1000, 3, 3
    for sign in (1, -1):
        col_score = sign * np.linspace(-300, 300, heads * n).reshape(n, heads)
        x = np.random.default_rng(0).standard_normal((n, heads * f))
        operands = (np.array([0, n]), np.arange(n, dtype=np.int32), x, np.zeros((1, heads)),
                    col_score)
        results = []
        for kernels in (cpu, reference):
            above, share = np.empty((1, heads * f)), np.empty((1, heads))
            results.append((*kernels.attend(*operands, above=above, share=share), above, share))
        close(*results, np.float64)


@BOTH
@pytest.mark.parametrize("changed, message", [
    ({"x": np.ones((33, 16))}, "16 columns cannot be divided into 3 heads"),
    ({"p": 0.5}, "vertex is None, expected vertex numbers"),
    ({"p": 0.5, "vertex": np.arange(40)}, "neighbor is None"),
    ({"above": np.zeros((40, 9))}, "above is given without share"),
    ({"slope": -0.1}, "slope is -0.1, expected 0 or more"),
    ({"accumulate": True}, "out is None, expected an array: accumulate")])
def test_what_does_not_fit_is_refused(kernels, changed, message):
    case = Case(3, 3)
    indptr, indices = case.csr()
    given = {name: case.real[name] for name in ("x", "row_score", "col_score")}
    with pytest.raises(ValueError, match=message):
        kernels.attend(indptr, indices, **{**given, **changed})


@pytest.mark.long  # another number of heads needs a compilation
@BOTH
@pytest.mark.parametrize("first", [0, 3, 8, 11])
def test_some_heads_are_dropped_as_among_all(kernels, first):
    last = first + 8
    case = Case(20, 5)
    whole = [each.reshape(len(each), 20, -1)[:, first:last] for each in case.kept(kernels, 0.5)]
    gradients = [each.reshape(len(each), 20, -1)[:, first:last]
                 for each in case.gradients(kernels, 0.5)]
    part = Case(last - first, 5)
    part.numbers = case.numbers
    part.pattern = case.pattern
    for name, array in case.real.items():
        some = array.reshape(len(array), 20, -1)[:, first:last]
        part.real[name] = np.ascontiguousarray(some.reshape(len(array), -1))
    part.options = lambda p: {**case.options(p), "first": first}
    for ours, theirs in ((part.kept(kernels, 0.5), whole),
                         (part.gradients(kernels, 0.5), gradients)):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-13, atol=1e-14)


def test_work_arrays_exist_while_their_addresses_are_used(monkeypatch):
    """The code of a row gets the addresses of arrays that no other allocation may take."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    module = sys.modules["hpgcn.kernels.cpu.attend"]
    taken = []

    @ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
    def allocate(first, count, row_score, scores):
        sizes = [2 * module.TILE * padded * 4 + 64 for padded in (4, 8, 16)]
        blocks = [(libc.malloc(ctypes.c_size_t(size)), size) for size in sizes for _ in range(3)]
        taken.extend(scores - begin for begin, size in blocks if begin <= scores < begin + size)
        for begin, _ in blocks:
            libc.free(begin)

    code = SimpleNamespace(address=ctypes.cast(allocate, ctypes.c_void_p).value)
    monkeypatch.setattr(module, "forward_code", lambda shapes: code)
    case = Case(4, 2, np.float32)
    with threshold(np.inf):
        case.forward(cpu)
    assert not taken

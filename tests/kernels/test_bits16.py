"""bf16 arrays: rounding by a table, and every kernel that takes them against the reference."""
import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all
from cases import KEY, long

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.bits16 import BF16, number_dtype, to_bf16, to_float32
from hpgcn.kernels.host import threads

WIDTHS = pytest.mark.parametrize("width", [1, 7, 8, 41, 64])
TABLE = [  # bits of a float32, and those of the bfloat16 that is nearest to it
    (0x3F800000, 0x3F80), (0x80000000, 0x8000), (0x00000000, 0x0000),  # 1, -0, 0
    (0x3F808000, 0x3F80), (0x3F818000, 0x3F82),  # ties round to even, down and up
    (0x3F808001, 0x3F81), (0x3F807FFF, 0x3F80), (0xBF818000, 0xBF82),  # just above, just below
    (0x7F7F0000, 0x7F7F), (0x7F7F7FFF, 0x7F7F),  # the largest finite, and one rounded to it
    (0x7F7F8000, 0x7F80), (0x7F7FFFFF, 0x7F80), (0xFF7FFFFF, 0xFF80),  # too large: infinite
    (0x7F800000, 0x7F80), (0xFF800000, 0xFF80),  # Inf
    (0x7FC00000, 0x7FC0), (0x7F800001, 0x7FC0), (0xFFFFFFFF, 0xFFFF), (0x7FFF8000, 0x7FFF),  # NaN
    (0x00000001, 0x0000), (0x00008001, 0x0001), (0x00018000, 0x0002), (0x007FFFFF, 0x0080)]  # tiny


def random(shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * scale


def stored(shape, seed=0):
    return to_bf16(random(shape, seed))


def sparse(m, n, seed=0, density=0.2):
    A = sp.random_array((m, n), density=density, rng=seed, dtype=np.float32, format="csr")
    A.data -= 0.5
    return A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data


def in_threads_and_alone(call):
    """Run a kernel with one thread and with all; require equal bits and return the result."""
    results = []
    for work in (0, float("inf")):
        with threads.threshold(work):
            results.append(call())
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


@pytest.mark.parametrize("package", [reference, cpu])
def test_rounding_by_hand(package):
    wide = np.array([[bits for bits, _ in TABLE]], np.uint32).view(np.float32)
    narrow = np.array([[bits for _, bits in TABLE]], BF16)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(package.convert(wide, np.empty(wide.shape, BF16)), narrow)
    back = package.convert(narrow, np.empty(narrow.shape, np.float32))
    np.testing.assert_array_equal(back.view(np.uint32), narrow.astype(np.uint32) << 16)


def test_every_number_of_16_bits_is_itself():
    every = np.arange(1 << 16, dtype=np.uint32).astype(BF16).reshape(256, 256)
    wide = to_float32(every)
    nan = np.isnan(wide)
    for again in (to_bf16(wide), cpu.convert(wide, np.empty(every.shape, BF16))):
        np.testing.assert_array_equal(again[~nan], every[~nan])
        np.testing.assert_array_equal(again[nan], every[nan] | 0x40)
    assert number_dtype(BF16) == np.float32
    assert number_dtype("float64") == np.float64


@WIDTHS
def test_rounding_is_to_the_nearest(width):
    x = random((30, width), scale=1e3)
    found = in_threads_and_alone(lambda: cpu.convert(x, np.empty(x.shape, BF16)))
    np.testing.assert_array_equal(found, to_bf16(x))
    assert_all(np.abs(to_float32(found) - x) <= np.abs(x) * 2.0**-8)


@pytest.mark.long
@WIDTHS
@pytest.mark.parametrize("relu, p", [(True, 0.0), (True, 0.5), (False, 0.25)])
def test_activate(width, relu, p):
    z = stored((29, width))
    z[3, 0] = 0x7FC0  # NaN stays NaN
    bias = random(width, 1)
    given = {"vertex": np.arange(29) * 7, "relu": relu, **KEY, "p": p}
    masks = [np.zeros((29, -(-width // 8)), np.uint8) for _ in range(2)]
    expected = reference.activate(z.copy(), bias, mask=masks[0], **given)
    found = in_threads_and_alone(lambda: cpu.activate(z.copy(), bias, mask=masks[1], **given))
    same_nan = np.isnan(to_float32(found)) & np.isnan(to_float32(expected))  # a GPU has its own
    np.testing.assert_array_equal(np.where(same_nan, expected, found), expected)
    np.testing.assert_array_equal(*masks)


@WIDTHS
def test_masks(width):
    x = stored((29, width))
    mask = reference.dropout_bits(np.arange(29) * 3, width, **KEY)
    found = in_threads_and_alone(lambda: cpu.apply_mask(x.copy(), mask, 1.5))
    np.testing.assert_array_equal(found, reference.apply_mask(x.copy(), mask, 1.5))


@pytest.mark.long
@WIDTHS
def test_dropout(width):
    x = stored((29, width))
    vertex = np.arange(29) * 3
    found = in_threads_and_alone(lambda: cpu.dropout(x, vertex, **KEY))
    np.testing.assert_array_equal(found, reference.dropout(x, vertex, **KEY))


@pytest.mark.long
@WIDTHS
def test_sums_over_rows_are_of_the_numbers(width):
    x = stored((700, width))
    found = in_threads_and_alone(lambda: cpu.column_sum(x))
    np.testing.assert_allclose(found, to_float32(x).sum(0, dtype=np.float64), rtol=1e-12,
                               atol=1e-12)


@WIDTHS
def test_rows_are_copied_and_added(width):
    x, out = stored((40, width)), stored((25, width), 1)
    index = np.sort(np.random.default_rng(2).permutation(25)[:20])
    np.testing.assert_array_equal(cpu.gather(x, index), x[index])
    expected = to_bf16(to_float32(out[index]) + to_float32(x[:20]))
    added = in_threads_and_alone(lambda: cpu.scatter_add(x[:20], index, out.copy()))
    np.testing.assert_array_equal(added[index], expected)
    np.testing.assert_array_equal(reference.scatter_add(x[:20], index, out.copy()), added)
    total = in_threads_and_alone(lambda: cpu.add(x[:25], out.copy()))
    np.testing.assert_array_equal(total, to_bf16(to_float32(out) + to_float32(x[:25])))
    with pytest.raises(TypeError, match="add: out has dtype float32, expected uint16"):
        cpu.add(x, random((40, width)))


@WIDTHS
@pytest.mark.parametrize("kind", ["softmax", "smoothed", long("sigmoid"), long("spread")])
def test_gradients_of_losses_are_rounded_as_they_are_stored(width, kind):
    logits = random((33, width))
    rows = np.arange(0, 33, 2)
    labels = np.random.default_rng(3).integers(0, width, 33)
    given = {"scale": 0.125}
    arguments = logits, labels, rows
    name = "softmax_cross_entropy"
    if kind == "smoothed":
        given["target"] = np.stack([np.full(width, 0.9), np.full(width, 0.1 / width),
                                    np.ones(width)])
    elif kind == "sigmoid":
        name = "sigmoid_cross_entropy"
        arguments = logits, (logits > 0.5).astype(np.float32), rows
    elif kind == "spread":
        name = "spread_gradient"
        top = reference.spread_max(logits)
        arguments = logits, labels, 0, rows, top, reference.spread_sum(logits, top)
    exact = np.empty(logits.shape, np.float32)
    loss = getattr(cpu, name)(*arguments, grad=exact, **given)
    for package in (cpu, reference):
        grad = np.ones(logits.shape, BF16)
        np.testing.assert_allclose(getattr(package, name)(*arguments, grad=grad, **given), loss)
        np.testing.assert_array_equal(grad, to_bf16(exact))


SPARSE = pytest.mark.parametrize("m, n, density", [
    (50, 40, 0.2), (50, 40, 0.0), (1, 1, 1.0), long(300, 30, 0.6)])
SOME_WIDTHS = pytest.mark.parametrize("width", [7, long(64)])


@SOME_WIDTHS
@SPARSE
def test_sparse_products(width, m, n, density):
    matrix = sparse(m, n, density=density)
    x = stored((n, width))
    expected = reference.spmm(*matrix, to_float32(x))
    total = in_threads_and_alone(lambda: cpu.spmm(*matrix, x))
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)
    rounded = in_threads_and_alone(lambda: cpu.spmm(*matrix, x, np.empty((m, width), BF16)))
    np.testing.assert_array_equal(rounded, to_bf16(total))  # once
    if m > 1:
        with pytest.raises(ValueError, match="would be rounded twice"):
            cpu.spmm(*matrix, x, np.zeros((m, width), BF16), accumulate=True)


@pytest.mark.long
@pytest.mark.parametrize("m, n, density, width", [
    (50, 40, 0.2, 7), (50, 40, 0.0, 7), (1, 1, 1.0, 7), (300, 30, 0.6, 7), (50, 40, 0.2, 41)])
def test_sparse_products_with_options(m, n, density, width):
    """Sparse bf16 products equal the reference with all options.

    Options are masks, selected rows, scales and float32 results.
    """
    matrix = sparse(m, n, density=density)
    x = stored((n, width))
    mask = reference.dropout_bits(np.arange(m), width, **KEY)
    some = {"rows": np.arange(0, m, 3), "row_scale": random(m), "col_scale": random(n)}
    for out in (random((m, width), 5), stored((m, width), 5)):
        expected = reference.sspmm(*matrix, x, mask, out.copy(), **some)
        found = cpu.sspmm(*matrix, x, mask, out.copy(), **some)
        _near(found, expected)
    kept = random((m, width), 6)
    _near(cpu.spmm(*matrix, x, kept.copy(), mask=mask, accumulate=True),
          reference.spmm(*matrix, x, kept.copy(), mask=mask, accumulate=True))
    wide = random((n, width), 7)
    found = cpu.spmm(*matrix, wide, np.empty((m, width), BF16))
    np.testing.assert_array_equal(found, to_bf16(cpu.spmm(*matrix, wide)))


def _near(found, expected):
    """Assert that bf16 arrays differ by one unit in the last place (2^-7) at most."""
    assert found.dtype == expected.dtype
    bound = 2.0**-7 if found.dtype == BF16 else 1e-5
    found, expected = (to_float32(each) if each.dtype == BF16 else each
                       for each in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=bound, atol=1e-5)


@pytest.mark.parametrize("m, k, n", [
    (0, 4, 3), (4, 0, 3),
    *(long(*each) for each in ((1, 1, 7), (700, 41, 7), (5, 1433, 7), (5000, 64, 32)))])
def test_dense_products(m, k, n):
    x, W = stored((m, k)), random((k, n), 1)
    expected = to_float32(x) @ to_float32(to_bf16(W))  # both operands are bf16
    scale = np.abs(to_float32(x)) @ np.abs(W)
    found = in_threads_and_alone(lambda: cpu.matmul(x, W))
    assert found.dtype == np.float32
    assert_all(np.abs(found - expected) <= 1e-5 * scale)
    rounded = in_threads_and_alone(lambda: cpu.matmul(x, W, np.empty((m, n), BF16)))
    np.testing.assert_array_equal(rounded, to_bf16(found))
    from_floats = cpu.matmul(to_float32(x), to_float32(to_bf16(W)), np.empty((m, n), BF16))
    assert_all(np.abs(to_float32(from_floats) - expected) <= 2.0**-8 * np.abs(expected)
            + 1e-5 * scale)
    # by a transpose, as a backward multiplies
    again = cpu.matmul(x, np.asfortranarray(W), np.empty((m, n), BF16))
    _near(again, rounded)


@pytest.mark.parametrize("k, m, n", [
    (40_000, 7, 7), *(long(*each) for each in ((1, 1, 7), (5000, 64, 32), (9, 300, 41)))])
def test_long_sums_are_in_float32_and_in_an_order_of_their_own(k, m, n):
    x, y = stored((k, m)), stored((k, n), 1)
    expected = to_float32(x).T.astype(np.float64) @ to_float32(y)
    found = in_threads_and_alone(lambda: cpu.matmul(x.T, y))
    assert found.dtype == np.float32
    scale = np.abs(to_float32(x)).T @ np.abs(to_float32(y))
    assert_all(np.abs(found - expected) <= 2e-6 * scale)
    out = np.empty((m, n), np.float32)
    assert cpu.matmul(x.T, y, out) is out
    np.testing.assert_array_equal(out, found)

"""The kernel `aggregate`: results by hand, every operator, finite differences and adjoints."""
import numpy as np
import pytest
from arrays import assert_none
from cases import DTYPES

from hpgcn.kernels import cpu, reference

OPS, REDUCES = list(reference.OPS), list(reference.REDUCES)
BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
EVERY = [(op, reduce) for op in OPS for reduce in REDUCES]
NAN, INF = np.nan, np.inf

# rows 0: edges 0 1 2 from 1 0 1 (a source twice), row 1: empty, row 2: edge 3 from 2
INDPTR, INDICES = [0, 3, 3, 4], [1, 0, 1, 2]
X = [[1, 8], [2, 4], [5, -6]]
E = [[1, 2], [4, 2], [2, 4], [-1, 3]]
# op, reduce, out, arg
TABLE = [
    ("copylhs", "sum", [[5, 16], [0, 0], [5, -6]], None),
    # edges 0 and 2 tie: the first
    ("copylhs", "max", [[2, 8], [0, 0], [5, -6]], [[0, 1], [-1, -1], [3, 3]]),
    ("copylhs", "min", [[1, 4], [0, 0], [5, -6]], [[1, 0], [-1, -1], [3, 3]]),
    ("copyrhs", "sum", [[7, 8], [0, 0], [-1, 3]], None),
    ("copyrhs", "min", [[1, 2], [0, 0], [-1, 3]], [[0, 0], [-1, -1], [3, 3]]),
    ("add", "sum", [[12, 24], [0, 0], [4, -3]], None),
    ("add", "max", [[5, 10], [0, 0], [4, -3]], [[1, 1], [-1, -1], [3, 3]]),
    ("sub", "sum", [[-2, 8], [0, 0], [6, -9]], None),
    ("sub", "mean", [[-2 / 3, 8 / 3], [0, 0], [6, -9]], None),
    ("mul", "sum", [[10, 40], [0, 0], [-5, -18]], None),
    ("mul", "max", [[4, 16], [0, 0], [-5, -18]], [[1, 1], [-1, -1], [3, 3]]),
    ("div", "sum", [[3.25, 7], [0, 0], [-5, -2]], None),
    ("div", "min", [[0.25, 1], [0, 0], [-5, -2]], [[1, 2], [-1, -1], [3, 3]]),
]


@BOTH
@DTYPES
@pytest.mark.parametrize("op, reduce, expected, chosen", TABLE)
def test_table(kernels, op, reduce, expected, chosen, dtype):
    out, arg = kernels.aggregate(np.array(INDPTR), np.array(INDICES, np.int32), np.array(X, dtype),
                                 np.array(E, dtype), op=op, reduce=reduce)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, np.array(expected, dtype))
    assert (arg is None) == (chosen is None)
    if chosen is not None:
        assert arg.dtype == np.int64
        np.testing.assert_array_equal(arg, chosen)


@BOTH
def test_table_of_gradients(kernels):
    operands = (np.array(INDPTR), np.array(INDICES, np.int32), np.array(X, float),
                np.array(E, float))
    grad = np.array([[1.0, 10], [100, 100], [3, 2]])
    for op, reduce, dx, de in [
            ("mul", "sum", [[4, 20], [3, 60], [-3, 6]], [[2, 40], [1, 80], [2, 40], [15, -12]]),
            ("copylhs", "max", [[0, 10], [1, 0], [3, 2]], None),
            # messages of row 0: 1 2, -3 6, 0 0
            ("sub", "min", [[1, 0], [0, 10], [3, 2]], [[0, 0], [-1, 0], [0, -10], [-3, -2]]),
            ("copyrhs", "mean", None, [[1 / 3, 10 / 3]] * 3 + [[3, 2]])]:
        arg = kernels.aggregate(*operands, op=op, reduce=reduce)[1]
        gradients = kernels.aggregate_backward(grad, *operands, arg=arg, op=op, reduce=reduce)
        for gradient, expected in zip(gradients, (dx, de)):
            assert (gradient is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(gradient, expected, rtol=1e-15)


@BOTH
def test_transpose_pattern(kernels):
    for first, n, *expected in ((0, 4, [0, 1, 3, 4, 4], [0, 0, 0, 2], [1, 0, 2, 3]),
                                (1, 3, [0, 0, 0, 1], [1], [3])):  # rows 1 and 2 only
        pattern = kernels.transpose_pattern(
            np.array(INDPTR)[first:], np.array(INDICES, np.int32), n)
        assert [array.tolist() for array in pattern] == expected


@BOTH
@pytest.mark.parametrize("reduce, values, expected, edge", [
    ("max", [1, NAN, 3, NAN], NAN, 1), ("min", [NAN, 1, 3, 0], NAN, 0),
    ("sum", [1, NAN, 3, 4], NAN, None), ("mean", [1, INF, 3, 4], INF, None),
    ("max", [-INF] * 4, -INF, 0), ("min", [INF, INF, -INF, -INF], -INF, 2),
    ("max", [7] * 4, 7, 0), ("min", [7, 7, 3, 3], 3, 2), ("min", [0.0, -0.0, 0.0, -0.0], 0, 0)])
def test_nan_infinity_and_ties(kernels, reduce, values, expected, edge):
    e = np.array(values, float)[:, None]
    out, arg = kernels.aggregate(
        np.array([0, 4]), np.zeros(4, np.int32), None, e, op="copyrhs", reduce=reduce)
    np.testing.assert_array_equal(out, [[expected]])
    if edge is None:
        assert arg is None
    else:
        np.testing.assert_array_equal(arg, [[edge]])


@BOTH
def test_division_by_zero_stays_where_it_is(kernels):
    """An edge of weight 0 gives an infinite message; if not chosen, no NaN in its gradient."""
    operands = (np.array([0, 2]), np.array([0, 1], np.int32), np.array([[1.0], [2.0]]),
                np.array([[0.0], [1.0]]))
    out, arg = kernels.aggregate(*operands, op="div", reduce="min")
    assert (out[0, 0], arg[0, 0]) == (2, 1)
    dx, de = kernels.aggregate_backward(
        np.ones((1, 1)), *operands, op="div", reduce="min", arg=arg)
    np.testing.assert_array_equal(dx, [[0], [1]])
    np.testing.assert_array_equal(de, [[0], [-2]])
    assert kernels.aggregate(*operands, op="div", reduce="max")[0] == INF


def random_case(m, n, f, *, columns=None, index=np.int32, dtype=np.float64, pointer=np.int64,
                longest=9, seed=0):
    """Return random CSR arrays, features x and edge values e with 0.5 <= |e| <= 2.

    Rows may be empty, have duplicate entries, or never be read.
    """
    rng = np.random.default_rng(seed)
    count = rng.integers(0, longest, m) * (rng.random(m) < 0.8)
    indptr = np.r_[0, count.cumsum()].astype(pointer)
    indices = rng.integers(0, max(1, n * 4 // 5), indptr[-1]).astype(index)
    e = rng.uniform(0.5, 2, (indptr[-1], f if columns is None else columns))
    e *= rng.choice([-1, 1], (indptr[-1], 1))
    return indptr, indices, rng.standard_normal((n, f)).astype(dtype), e.astype(dtype)


def compare(results, expected, dtype):
    close = 2e-5 if dtype == np.float32 else 1e-13
    for mine, theirs in zip(results, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(
                mine, theirs, rtol=0, atol=close * np.abs(theirs).max(initial=1))


@pytest.mark.long
@pytest.mark.parametrize("index, pointer, dtype, f, columns", [
    (np.int32, np.int32, np.float64, 3, 3), (np.int32, np.int64, np.float64, 3, 1),
    (np.int32, np.int64, np.float32, 1, 1), (np.int64, np.int32, np.float32, 5, 5),
    (np.int32, np.int32, np.float64, 17, 1), (np.int64, np.int64, np.float64, 33, 33)])
def test_every_operator_and_type(index, pointer, dtype, f, columns):
    indptr, indices, x, e = random_case(
        61, 43, f, columns=columns, index=index, pointer=pointer, dtype=dtype)
    grad = np.random.default_rng(1).standard_normal((61, f)).astype(dtype)
    for op, reduce in EVERY:
        options = {"op": op, "reduce": reduce}
        out, arg = cpu.aggregate(indptr, indices, x, e, **options)
        compare((out, arg), reference.aggregate(indptr, indices, x, e, **options), dtype)
        gradients = reference.aggregate_backward(grad, indptr, indices, x, e, arg=arg, **options)
        for transposed in (None, cpu.transpose_pattern(indptr, indices, 43)):
            results = cpu.aggregate_backward(
                grad, indptr, indices, x, e, arg=arg, transposed=transposed, **options)
            compare(results, gradients, dtype)


@pytest.mark.long
@pytest.mark.parametrize("op, reduce, f, columns", [
    # a last vector in part; vectors in groups of 32 edges; two passes over columns
    ("mul", "sum", 3, 3), ("div", "mean", 3, 1), ("add", "min", 3, 3),
    ("mul", "sum", 80, 80), ("sub", "sum", 300, 300), ("copyrhs", "mean", 300, 300),
    ("add", "sum", 300, 1), ("div", "max", 300, 300), ("copyrhs", "min", 80, 80)])
def test_bits_are_those_of_sums_in_edge_order(op, reduce, f, columns):
    """Results have the bits of the reference, which adds rounded products in edge order."""
    indptr, indices, x, e = random_case(
        40, 50, f, columns=columns, dtype=np.float32, longest=90, seed=11)
    options = {"op": op, "reduce": reduce}
    for mine, theirs in zip(cpu.aggregate(indptr, indices, x, e, **options),
                            reference.aggregate(indptr, indices, x, e, **options), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if op in ("mul", "div"):
        grad = np.random.default_rng(12).standard_normal((40, f)).astype(np.float32)
        arg = reference.aggregate(indptr, indices, x, e, **options)[1]
        given = grad, indptr, indices, x, e
        dx, de = cpu.aggregate_backward(*given, arg=arg, **options)
        exact = reference.aggregate_backward(*given, arg=arg, **options)
        np.testing.assert_array_equal(dx, exact[0])
        if columns > 1:
            np.testing.assert_array_equal(de, exact[1])


@pytest.mark.long
@pytest.mark.parametrize("columns", [3, 1])
@pytest.mark.parametrize("op, reduce", EVERY)
def test_finite_differences(op, reduce, columns):
    """Gradients of <grad, aggregate> equal central differences in every element of x and e."""
    indptr, indices, x, e = random_case(6, 7, 3, columns=columns, longest=5, seed=3)
    grad = np.random.default_rng(4).standard_normal((6, 3))
    arg = cpu.aggregate(indptr, indices, x, e, op=op, reduce=reduce)[1]

    def loss():
        return (grad * cpu.aggregate(indptr, indices, x, e, op=op, reduce=reduce)[0]).sum()

    gradients = cpu.aggregate_backward(grad, indptr, indices, x, e, op=op, reduce=reduce, arg=arg)
    for operand, gradient in zip((x, e), gradients):
        step = 1e-6
        slopes = np.zeros_like(operand)
        for place in np.ndindex(operand.shape):
            kept = operand[place]
            operand[place] = kept + step
            above = loss()
            operand[place] = kept - step
            slopes[place] = (above - loss()) / (2 * step)
            operand[place] = kept
        if gradient is None:
            assert_none(slopes)
        else:
            np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("op", OPS)
def test_adjoint(kernels, op, reduce):
    """<A x, g> == <x, A^T g> for each operator that is linear in x or in e."""
    for columns in (3, 1):
        indptr, indices, x, e = random_case(40, 30, 3, columns=columns, seed=5)
        grad = np.random.default_rng(6).standard_normal((40, 3))
        options = {"op": op, "reduce": reduce}
        dx, de = kernels.aggregate_backward(grad, indptr, indices, x, e, **options)
        if op in ("add", "sub"):  # linear in (x, e) together
            pairs = [(x, e, (dx * x).sum() + (de * e).sum())]
        else:
            pairs = [(x, e, (dx * x).sum())] if dx is not None else []
            pairs += [(x, e, (de * e).sum())] if op in ("mul", "copyrhs") else []
        for left, right, backward in pairs:
            forward = (kernels.aggregate(indptr, indices, left, right, **options)[0] * grad).sum()
            assert forward == pytest.approx(backward, rel=1e-11)


@BOTH
@pytest.mark.parametrize("op, reduce", EVERY)
def test_rows_of_a_longer_pattern(kernels, op, reduce):
    """Rows 10 to 19 of a matrix give the same results and gradients as within the whole matrix."""
    indptr, indices, x, e = random_case(30, 20, 3, seed=7)
    part = indptr[10:21]
    options = {"op": op, "reduce": reduce}
    whole, chosen = reference.aggregate(indptr, indices, x, e, **options)
    out, arg = kernels.aggregate(part, indices, x, e, **options)
    compare((out, arg), (whole[10:20], None if chosen is None else chosen[10:20]), np.float64)
    grad = np.zeros((30, 3))
    grad[10:20] = np.random.default_rng(8).standard_normal((10, 3))
    gradients = kernels.aggregate_backward(grad[10:20], part, indices, x, e, arg=arg, **options)
    expected = reference.aggregate_backward(grad, indptr, indices, x, e, arg=chosen, **options)
    compare(gradients, expected, np.float64)


@BOTH
@pytest.mark.parametrize("m, n, f, longest", [
    (0, 3, 2, 9), (4, 3, 2, 1), (4, 3, 0, 5), (5, 0, 2, 1), (0, 0, 0, 1)])
def test_nothing_to_do(kernels, m, n, f, longest):
    indptr, indices, x, e = random_case(m, n, f, longest=longest)
    for op, reduce in EVERY:
        start = np.full((m, f), 9.0)
        out, arg = kernels.aggregate(indptr, indices, x, e, start, op=op, reduce=reduce)
        assert out is start
        assert_none(out)
        assert arg is None or (arg.shape == (m, f) and (arg == -1).all())
        gradients = kernels.aggregate_backward(
            out, indptr, indices, x, e, op=op, reduce=reduce, arg=arg)
        for gradient, operand in zip(gradients, (x, e)):
            assert gradient is None or (gradient.shape == operand.shape and not gradient.any())


@BOTH
def test_operands_that_are_not_read(kernels):
    indptr, indices, x, e = random_case(12, 9, 3, columns=1, seed=9)
    wide = np.broadcast_to(e, (e.shape[0], 3))
    grad = np.ones((12, 3))
    options = {"op": "copyrhs", "reduce": "sum"}
    alone = kernels.aggregate(indptr, indices, None, wide, **options)[0]
    assert alone.shape == (12, 3)
    np.testing.assert_array_equal(kernels.aggregate(indptr, indices, x, e, **options)[0], alone)
    dx, de = kernels.aggregate_backward(grad, indptr, indices, None, wide, **options)
    assert dx is None
    np.testing.assert_array_equal(de, np.ones((e.shape[0], 3)))
    de = kernels.aggregate_backward(grad, indptr, indices, x, e, **options)[1]
    np.testing.assert_array_equal(de, np.full((e.shape[0], 1), 3))
    np.testing.assert_array_equal(kernels.aggregate(indptr, indices, x, np.empty((0, 7)))[0],
                                  kernels.aggregate(indptr, indices, x)[0])


@BOTH
@pytest.mark.parametrize("operands, options, message", [
    ("xe", {"op": "dot"}, "'dot'.*add, sub, mul, div, copylhs, copyrhs"),
    ("xe", {"op": "add", "reduce": "prod"}, "'prod'.*sum, mean, max, min"),
    ("x", {"op": "mul"}, "'mul'.* needs e"), ("e", {"op": "add"}, "'add'.* needs x"),
    ("e", {}, "'copylhs'.* needs x"),
    ("", {"op": "copyrhs"}, "'copyrhs'.* needs e"),
    ("xw", {"op": "add"}, r"\(4, 3\), expected \(k, f\|1\), f = 2"),
    ("xv", {"op": "add"}, r"\(4,\), expected \(k, f\|1\)")])
def test_refusals(kernels, operands, options, message):
    arrays = {"e": np.ones((4, 2)), "w": np.ones((4, 3)), "v": np.ones(4)}
    x = np.ones((3, 2)) if "x" in operands else None
    e = next((arrays[name] for name in operands if name in arrays), None)
    given = (np.array(INDPTR), np.array(INDICES), x, e)
    options = {"op": "copylhs", "reduce": "sum", **options}
    with pytest.raises(ValueError, match=message):
        kernels.aggregate(*given, **options)
    with pytest.raises(ValueError, match=message):
        kernels.aggregate_backward(np.ones((3, 2)), *given, **options)


@BOTH
def test_the_chosen_edges_are_needed(kernels):
    with pytest.raises(ValueError, match="'max' needs arg"):
        kernels.aggregate_backward(np.ones((3, 2)), np.array(INDPTR), np.array(INDICES),
                                   np.ones((3, 2)), op="copylhs", reduce="max")

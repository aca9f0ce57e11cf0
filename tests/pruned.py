"""Maps to fewer rows from fewer rows, held against rows and columns of the dense matrix."""
import numpy as np

from hpgcn import cost
from hpgcn.cost.step import Product
from hpgcn.kernels import reference

KINDS = ("half", "few", "gap", "nothing out", "nothing in", "all in", "equal", "everything")


def choose(kind, grid):
    """(rows_out, rows_in): (n,) bool, the same on all ranks; "gap": the middle rank has no rows of the result."""
    n, rng = int(grid.offsets[-1]), np.random.default_rng(7)
    rows_out, rows_in = (rng.random(n) < share for share in ((0.05, 0.1) if kind == "few" else (0.5, 0.8)))
    if kind == "gap":
        middle = grid.offsets.size // 2 - 1
        rows_out[grid.offsets[middle]:grid.offsets[middle + 1]] = False
        rows_in[:grid.offsets[1]] = False
    rows_out &= kind != "nothing out"
    rows_in &= kind != "nothing in"
    rows_in |= kind in ("all in", "everything")
    rows_out |= kind == "everything"
    return rows_out, (rows_out.copy() if kind == "equal" else rows_in)


def check(name, full, kind, A, comm, widths, dtype):
    """Forward and backward of full.restrict: results, masks, the dot test, counts; then the full map again.

    `full`: a strategy whose ranks hold whole rows; A: its matrix, dense.
    """
    own = slice(full.layout.rows.start, full.layout.rows.stop)
    limit = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 2e-5}
    rng, (rows_out, rows_in) = np.random.default_rng(2), choose(kind, full.layout)
    probe = rng.standard_normal((len(A), 5)).astype(dtype)[own]
    before = full.forward(probe, layer=0), full.backward(probe, layer=0)
    made, other = full.restrict(rows_out, rows_in), full.restrict(rows_in, rows_out)
    assert (made.symmetric, made.buffer_bytes) == (full.symmetric, 0)
    assert type(made) is type(full)
    assert made.layout.rows.num_rows == np.count_nonzero(rows_out[own])
    assert made.layout_in.rows.num_rows == np.count_nonzero(rows_in[own])
    directions = (("forward", rows_in, rows_out, A), ("backward", rows_out, rows_in, A.T))
    for width in widths:
        products = {}
        for direction, source, target, M in directions:
            X = rng.standard_normal((len(A), width)).astype(dtype)
            x, expected = X[own][source[own]], (M[:, source] @ X[source])[own][target[own]]
            untouched, out = x.copy(), np.full(expected.shape, np.nan, dtype)
            product, itemsize, sent = getattr(made, direction), dtype().itemsize, comm.counters.total("pruned")
            comm.counters.phase = "pruned"
            assert product(x, layer=0, out=out) is out
            comm.counters.phase = "setup"
            calls = cost.product_counts(name, made.costs(), Product(0, width), itemsize, direction == "backward")
            planned = sum(np.array([np.ravel(book)[comm.rank] for book in counts]) for counts in calls)
            np.testing.assert_array_equal(np.subtract(comm.counters.total("pruned"), sent), planned)
            np.testing.assert_allclose(out, expected, **limit)
            np.testing.assert_array_equal(x, untouched)
            keep = rng.random((len(A), width))[own][target[own]] < 0.5
            masked = product(x, layer=0, mask=reference.pack(keep))
            np.testing.assert_array_equal(masked, np.where(keep, out, 0))
            mirror = "forward" if direction == "backward" else "backward"
            if full.symmetric:  # the map with both sets of rows swapped is the transpose
                np.testing.assert_array_equal(getattr(other, mirror)(x, layer=0), out)
            products[direction] = x.astype(np.float64), out.astype(np.float64)
        (h, Ah), (g, Atg) = products["forward"], products["backward"]
        forward, backward = comm.sum([(Ah * g).sum(), (h * Atg).sum()])
        assert abs(forward - backward) <= limit["rtol"] * max(1, comm.sum([np.abs(Ah * g).sum()])[0])
    for strategy in (made, other):
        strategy.close()
    for product, was in zip((full.forward, full.backward), before):
        assert product(probe, layer=0).tobytes() == was.tobytes()

"""Strategies 2d and 3d on every grid of the ranks at hand: A-hat and its transpose, masks, counts, empty blocks."""
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from graphs import make
from mpi4py import MPI

from hpgcn import cost
from hpgcn.errors import ConfigError, UsageError
from hpgcn.graph import Graph
from hpgcn.kernels import reference
from hpgcn.layout import Grid, split
from hpgcn.store import load, write_graph
from hpgcn.strategies.blocks import Blocks
from hpgcn.strategies.summa import ThreeD, TwoD

pytestmark = pytest.mark.mpi
P = MPI.COMM_WORLD.Get_size()
DIVISORS = [d for d in range(1, P + 1) if P % d == 0]
CASES = [(TwoD, (R, P // R)) for R in DIVISORS] + [
    (ThreeD, (R, C, P // (R * C))) for R in DIVISORS for C in DIVISORS if P % (R * C) == 0]
grids = pytest.mark.parametrize("strategy, axes", CASES, ids=lambda value: getattr(value, "name", None) or str(value))


def place(strategy, axes, comm, indptr, offsets=None):
    """The grid of this rank, and what cuts its block out of a whole matrix."""
    offsets = cost.row_blocks(strategy.name, axes, indptr) if offsets is None else np.asarray(offsets)
    grid = Grid(offsets, cost.cube(strategy.name, axes)[2], comm.rank)

    def mine(M):
        return np.ascontiguousarray(M[grid.rows.start:grid.rows.stop, grid.columns_of(M.shape[1])])

    return grid, mine


def build(strategy, axes, comm, graph, offsets=None, **options):
    grid, mine = place(strategy, axes, comm, graph.indptr, offsets)
    return strategy(graph, grid, comm, axes=axes, **{"dtype": np.float64, "max_width": 20, **options}), mine


def check(made, mine, A, widths=(1, 7, 20), rtol=1e-12):
    """Forward and backward against the dense matrix."""
    for width in widths:
        H = np.random.default_rng(width).standard_normal((len(A), width)).astype(made.dtype)
        for product, matrix in ((made.forward, A), (made.backward, A.T)):
            found = product(mine(H), layer=0)
            assert found.dtype == made.dtype
            np.testing.assert_allclose(found, mine(matrix @ H), rtol=rtol, atol=rtol)


@grids
@pytest.mark.parametrize("directed, weighted", [(False, False), (False, True), (True, True)])
def test_equals_the_dense_matrix(comm, strategy, axes, directed, weighted):
    graph = make(67, directed=directed, weighted=weighted)
    made, mine = build(strategy, axes, comm, graph)
    assert made.symmetric is not directed
    check(made, mine, oracle.normalised(graph))
    made.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_other_norms(comm, strategy, axes, directed):
    graph = make(67, directed=directed, weighted=True)
    A = graph.adjacency.toarray().astype(np.float64)
    made, mine = build(strategy, axes, comm, graph, norm="none", self_loops=False)
    check(made, mine, A, [7])
    made.close()
    made, mine = build(strategy, axes, comm, graph, norm="row", self_loops=False)
    degree = A.sum(1, keepdims=True)
    assert not made.symmetric
    check(made, mine, np.divide(A, degree, out=np.zeros_like(A), where=degree > 0), [7])
    made.close()


@grids
def test_single_precision_and_a_file(comm, strategy, axes, tmp_path):
    graph = make(67, directed=True, weighted=True)
    path = comm.bcast(tmp_path / "graph.h5")
    if comm.rank == 0:
        write_graph(path, graph)
    comm.barrier()
    with load(path) as stored:
        grid, mine = place(strategy, axes, comm, stored.pointers(0, 67))
        made = strategy(stored, grid, comm, axes=axes, max_width=20)
    assert made.dtype == np.float32
    check(made, mine, oracle.normalised(graph).astype(np.float32), rtol=2e-5)
    made.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(comm, strategy, axes, directed):
    graph = make(67, directed=directed, weighted=True)
    made, mine = build(strategy, axes, comm, graph)
    h, g = (mine(M) for M in np.random.default_rng(3).standard_normal((2, graph.num_rows, 9)))
    forward, backward = comm.sum([(made.forward(h, layer=0) * g).sum(), (h * made.backward(g, layer=0)).sum()])
    assert forward == pytest.approx(backward, rel=1e-12)
    made.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_the_mask_applies_to_the_result(comm, strategy, axes, directed):
    graph = make(67, directed=directed)
    made, mine = build(strategy, axes, comm, graph)
    rng = np.random.default_rng(4)
    H, keep = mine(rng.standard_normal((67, 11))), mine(rng.random((67, 11)) < 0.5)
    for product in (made.forward, made.backward):
        expected = np.where(keep, product(H, layer=0), 0)
        out = np.full(H.shape, np.nan)  # what was there before does not matter
        assert product(H, layer=0, mask=reference.pack(keep), out=out) is out
        np.testing.assert_array_equal(out, expected)
    made.close()


def pattern(graph):
    """CSR pattern of A + I."""
    dense = graph.adjacency.toarray() != 0
    rows, columns = np.nonzero(dense | np.eye(len(dense), dtype=bool))
    return np.searchsorted(rows, np.arange(len(dense) + 1)), columns


@grids
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("width", [1, 7, 20])
@pytest.mark.parametrize("where", ["balanced", "last"])
def test_every_rank_sends_what_is_predicted(comm, strategy, axes, directed, width, where):
    graph = make(67, directed=directed)
    blocks = P // axes[1]
    made, mine = build(strategy, axes, comm, graph, None if where == "balanced" else [0] * blocks + [67])
    H = mine(np.ones((67, width)))
    step = cost.Step((width, width), 8, directed=directed)  # one product each way
    nonzeros = [cost.stage_nonzeros(strategy.name, axes, made.layout.offsets, *pattern(graph), transposed=transposed)
                for transposed in (False, True)]
    predicted = cost.predict(strategy.name, step, axes, made.layout.offsets, nnz_blocks=nonzeros[0],
                             nnz_blocks_transposed=nonzeros[1])
    for phase, product in (("forward", made.forward), ("backward", made.backward)):
        comm.counters.phase = f"{phase} {strategy.name} {axes} {directed} {width} {where}"
        product(H, layer=0)
        found = comm.counters.total(comm.counters.phase)
        assert found == tuple(book["aggregation", phase][comm.rank] for book in (predicted.bytes, predicted.messages))
    comm.counters.phase = "setup"
    rows = np.diff(made.layout.offsets).reshape(axes[0], -1)
    assert cost.predict_step(strategy.name, step, axes, [made.costs()], [rows, rows]).traffic() == predicted.traffic()
    made.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_row_blocks_may_be_empty(comm, strategy, axes, directed):
    graph = make(5, 4, 2, directed=directed)
    blocks = P // axes[1]
    for offsets in (None, [0] + [5] * blocks, [0] * blocks + [5]):
        made, mine = build(strategy, axes, comm, graph, offsets)
        check(made, mine, oracle.normalised(graph), [1, 3])
        made.close()


@grids
def test_a_graph_without_edges_gives_zeros(comm, strategy, axes):
    graph = make(9, 4, 2)
    bare = Graph.from_scipy(graph.adjacency * 0, graph.features, graph.labels, None, name="bare")
    made, mine = build(strategy, axes, comm, bare, split(9, P // axes[1]), norm="none", self_loops=False)
    H = mine(np.ones((9, 6)))
    out = np.full(H.shape, np.nan)
    np.testing.assert_array_equal(made.backward(H, layer=0, out=out), 0)
    made.close()


@grids
def test_the_same_bits_again(comm, strategy, axes):
    graph = make(67, directed=True, weighted=True)
    found = []
    for _ in range(2):
        made, mine = build(strategy, axes, comm, graph, dtype=np.float32)
        H = mine(np.random.default_rng(5).standard_normal((67, 20)).astype(np.float32))
        found += [made.forward(H, layer=1).tobytes() + made.backward(H, layer=1).tobytes() for _ in range(2)]
        made.close()
    assert set(found) == {found[0]}


@grids
def test_buffers_hold_two_stages(comm, strategy, axes):
    graph = make(67, directed=True)
    made, mine = build(strategy, axes, comm, graph, max_width=5)
    R, L, C = cost.cube(strategy.name, axes)
    heights, width = np.diff(made.A.cuts.offsets), -(-5 // C)
    most = 2 * (C > 1) * max(made.A.sizes + made.A_transposed.sizes) + 2 * (R > 1) * 8 * width * heights.max()
    most += (L > 1) * 8 * width * (made.A.num_rows + (L - 1) * made.layout.rows.num_rows)
    assert (P > 1) * (L > 1) * 8 * width * made.A.num_rows <= made.buffer_bytes <= most
    before = [buffer.ctypes.data for buffer in (*made.sparse, *made.tall, made.partial)]
    made.backward(made.forward(mine(np.ones((67, 5))), layer=0), layer=0)
    assert before == [buffer.ctypes.data for buffer in (*made.sparse, *made.tall, made.partial)]
    made.close()


def rows_kept(n, last):
    """(rows out, rows in) of restricted maps; rows from `last` on are those of the last row block."""
    rng = np.random.default_rng(8)
    half, third, few, most = (rng.random(n) < density for density in (0.5, 0.3, 0.05, 0.9))
    every, none, gap = np.ones(n, bool), np.zeros(n, bool), np.arange(n) < last
    return {"half": (third, half), "few": (few, third), "most": (half, most), "all in": (third, every),
            "all out": (every, half), "the same": (half, half), "everything": (every, every),
            "a block without rows out": (half & gap, most), "a block without rows in": (third, half & gap),
            "nothing out": (none, half), "nothing in": (half, none), "nothing": (none, none)}


def restricted(whole):
    """(name, rows kept, map, function) for each of `rows_kept`, all made before the first is used.

    The function cuts this rank's share out of a matrix with all rows: that of the rows out (0) or of the rows in (1).
    """
    rows, found = slice(whole.layout.rows.start, whole.layout.rows.stop), []
    for name, kept in rows_kept(int(whole.layout.offsets[-1]), int(whole.layout.offsets[-2])).items():
        def mine(M, side, kept=kept):
            return np.ascontiguousarray(M[rows][kept[side][rows], whole.layout.columns_of(M.shape[1])])

        found.append((name, kept, whole.restrict(*kept), mine))
    return found


def check_restricted(whole, A, widths, rtol=1e-12):
    """Forward and backward of restricted maps against the dense matrix, with zeros where nothing is kept."""
    for name, kept, made, mine in restricted(whole):
        part = A * np.outer(*kept)
        for width in widths:
            H = np.random.default_rng(width).standard_normal((len(A), width)).astype(made.dtype)
            for product, matrix, there, here in ((made.forward, part, 1, 0), (made.backward, part.T, 0, 1)):
                np.testing.assert_allclose(product(mine(H, there), layer=0), mine(matrix @ H, here), rtol=rtol,
                                           atol=rtol, err_msg=f"{name}, width {width}")
        made.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_a_restricted_map_is_the_submatrix(comm, strategy, axes, directed):
    graph = make(67, directed=directed, weighted=True)
    A = oracle.normalised(graph)
    whole, mine = build(strategy, axes, comm, graph)
    check_restricted(whole, A, [1, 7, 20])
    check(whole, mine, A, [7])  # what they share is as it was
    whole.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_restricted_maps_of_empty_blocks(comm, strategy, axes, directed):
    graph = make(5, 4, 2, directed=directed)
    for offsets in ([0] + [5] * (P // axes[1]), [0] * (P // axes[1]) + [5]):
        whole, _ = build(strategy, axes, comm, graph, offsets, dtype=np.float32)
        check_restricted(whole, oracle.normalised(graph), [3], 1e-5)
        whole.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_masks_and_the_dot_product_of_restricted_maps(comm, strategy, axes, directed):
    graph = make(67, directed=directed, weighted=True)
    whole, _ = build(strategy, axes, comm, graph)
    rng = np.random.default_rng(9)
    H, keep = rng.standard_normal((67, 11)), rng.random((67, 11)) < 0.5
    for name, _, made, mine in restricted(whole):
        products = []
        for product, there, here in ((made.forward, 1, 0), (made.backward, 0, 1)):
            plain, kept = product(mine(H, there), layer=0), mine(keep, here)
            out = np.full(kept.shape, np.nan)
            assert product(mine(H, there), layer=0, mask=reference.pack(kept), out=out) is out
            np.testing.assert_array_equal(out, np.where(kept, plain, 0), err_msg=name)
            products.append((plain * mine(H, here)).sum())
        forward, backward = comm.sum(products)
        assert forward == pytest.approx(backward, rel=1e-12, abs=1e-12), name
    whole.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("width", [1, 7, 20])
def test_every_rank_sends_what_a_restricted_map_predicts(comm, strategy, axes, directed, width):
    graph = make(67, directed=directed)
    whole, _ = build(strategy, axes, comm, graph)
    product, H = cost.step.Product(0, width), np.ones((67, width))

    def predicted(costs, backward):
        calls = cost.product_counts(strategy.name, costs, product, 8, backward)
        return tuple(sum(np.ravel(count)[comm.rank] for count in counts) for counts in zip(*calls))

    for name, _, made, mine in restricted(whole):
        costs = made.costs()
        for backward, there in ((False, 1), (True, 0)):
            comm.counters.phase = f"{strategy.name} {axes} {directed} {width} {name} {backward}"
            (made.backward if backward else made.forward)(mine(H, there), layer=0)
            found = comm.counters.total(comm.counters.phase)
            assert found == predicted(costs, backward)
            assert np.all(np.less_equal(found, predicted(whole.costs(), backward))), "more than without restriction"
    comm.counters.phase = "setup"
    whole.close()


@grids
def test_blocks_that_a_restricted_map_keeps(comm, strategy, axes):
    """Entries and bytes of all its blocks, counted in the dense matrix between the bounds of the whole map's blocks."""
    graph = make(67, directed=True)
    A = oracle.normalised(graph) != 0
    whole, _ = build(strategy, axes, comm, graph)
    big, cuts = whole.layout.offsets[::cost.cube(strategy.name, axes)[1]], whole.A.cuts.offsets
    for name, (rows_out, rows_in), made, _ in restricted(whole):
        part = A * np.outer(rows_out, rows_in)
        for blocks, matrix, rows in ((made.A, part, rows_out), (made.A_transposed, part.T, rows_in)):
            entries = np.array([[matrix[a:b, c:d].sum() for c, d in pairwise(cuts)] for a, b in pairwise(big)])
            np.testing.assert_array_equal(blocks.nonzeros, entries, err_msg=name)
            height = rows[big[made.row]:big[made.row + 1]].sum()
            for s, message in blocks.messages.items():
                count = entries[made.row, s]
                assert message.nbytes == blocks.sizes[s] == (8 * (height + 1) + 12 * count if count else 0)
    whole.close()


@grids
@pytest.mark.parametrize("directed", [False, True])
def test_restricted_maps_share_what_they_can(comm, strategy, axes, directed):
    whole, mine = build(strategy, axes, comm, make(67, directed=directed))
    H = mine(np.ones((67, 20)))
    expected = whole.forward(H, layer=0)
    shared = ("sparse", "tall", "partial", "others", "along_row", "along_column", "along_layers")
    for name, (rows_out, rows_in), made, _ in restricted(whole):
        assert isinstance(made, strategy)
        assert (made.symmetric, made.dtype) == (whole.symmetric, whole.dtype)
        assert (made.layout.offsets[-1], made.layout_in.offsets[-1]) == (rows_out.sum(), rows_in.sum())
        assert all(getattr(made, each) is getattr(whole, each) for each in shared)
        assert made.buffer_bytes == 0
        assert (made.A is whole.A) == (made.A_transposed is whole.A_transposed) == (name == "everything")
        assert (made.A is made.A_transposed) == (not directed and name in ("the same", "everything", "nothing"))
        costs = made.costs()
        assert (costs.forward is costs.backward, costs.adjoint) == (made.A is made.A_transposed, False)
        made.close()
    np.testing.assert_array_equal(whole.forward(H, layer=0), expected)
    whole.close()


def test_a_grid_that_does_not_fit(comm):
    graph = make(67)
    with pytest.raises(ConfigError, match=rf"2d: {P + 1} row blocks x {P} column blocks given, expected {P} x 1 on "):
        grid = SimpleNamespace(size=P, offsets=np.arange(P + 2), columns=P)
        TwoD(graph, grid, comm, axes=(P, 1))
    with pytest.raises(UsageError, match=rf"grid {P + 1}x1 holds {P + 1} ranks, but there are {P}"):
        TwoD(graph, Grid(np.arange(P + 1), 1, comm.rank), comm, axes=(P + 1, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [np.int32, np.int64])
def test_a_packed_block(dtype, columns):
    blocks = object.__new__(Blocks)
    blocks.num_rows, blocks.dtype, blocks.columns = 2, np.dtype(dtype), np.dtype(columns)
    block = np.array([0, 1, 3]), np.array([4, 0, 2], columns), np.array([0.5, -1, 3], dtype)
    message = blocks.pack(*block)
    assert message.nbytes == 3 * 8 + 3 * (np.dtype(dtype).itemsize + np.dtype(columns).itemsize)
    for part, expected in zip(blocks.unpack(message, 3), block):
        np.testing.assert_array_equal(part, expected)
        assert part.flags.aligned
        assert np.shares_memory(part, message)
    assert blocks.pack(np.zeros(3, np.int64), np.empty(0, columns), np.empty(0, dtype)).size == 0

"""1.5d: replicas that share the stages compute A H and A^T G on every grid of groups and replicas, as predicted."""
import numpy as np
import oracle
import pruned
import pytest
from graphs import cut, make

from hpgcn import cost
from hpgcn.cost.step import Product
from hpgcn.errors import UsageError
from hpgcn.kernels import reference
from hpgcn.layout import Grid, split
from hpgcn.strategies import one_d
from hpgcn.strategies.one_and_a_half_d import OneAndAHalfD
from hpgcn.strategies.one_d import OneD

pytestmark = pytest.mark.mpi


def grids(comm):
    """Every arrangement in groups and replicas."""
    return [(comm.size // c, c) for c in range(1, comm.size + 1) if comm.size % c == 0]


def part(M, grid):
    return M[grid.rows.start:grid.rows.stop].copy()


@pytest.mark.parametrize("kind, dtype", [("even", np.float32), ("uneven", np.float64), ("gaps", np.float64)])
@pytest.mark.parametrize("directed, weighted", [(False, True), (True, False), (True, True)])
def test_equals_the_dense_matrix(comm, directed, weighted, kind, dtype):
    graph = make(directed=directed, weighted=weighted)
    A, grid = oracle.normalised(graph), cut(graph.num_rows, comm, kind)
    limit = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 2e-5}
    for axes in grids(comm):
        strategy = OneAndAHalfD(graph, grid, comm, dtype=dtype, max_width=20, axes=axes)
        for width in (20, 1, 7):
            H = np.random.default_rng(2).standard_normal((graph.num_rows, width)).astype(dtype)
            mine = part(H, grid)
            out = np.full(mine.shape, np.nan, dtype)
            assert strategy.forward(mine, layer=0, out=out) is out
            np.testing.assert_allclose(out, part(A @ H, grid), err_msg=f"{axes}", **limit)
            np.testing.assert_allclose(strategy.backward(mine, layer=0), part(A.T @ H, grid), **limit)
            np.testing.assert_array_equal(mine, part(H, grid))
        strategy.close()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("norm", ["row", "none"])
def test_norms(comm, norm, directed):
    graph = make(directed=directed, weighted=True)
    A, grid = graph.adjacency.toarray().astype(np.float64), cut(graph.num_rows, comm)
    sums = A.sum(1, keepdims=True)
    A = np.divide(A, sums, out=np.zeros_like(A), where=sums > 0) if norm == "row" else A
    H = np.random.default_rng(2).standard_normal((graph.num_rows, 5))
    for axes in grids(comm):
        strategy = OneAndAHalfD(graph, grid, comm, norm=norm, self_loops=False, dtype=np.float64, max_width=5,
                                axes=axes)
        np.testing.assert_allclose(strategy.forward(part(H, grid), layer=0), part(A @ H, grid), atol=1e-12)
        np.testing.assert_allclose(strategy.backward(part(H, grid), layer=0), part(A.T @ H, grid), atol=1e-12)
        strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_more_ranks_than_vertices(comm, directed):
    graph = make(n=5, directed=directed)
    A, grid = oracle.normalised(graph), Grid(split(5, comm.size), 1, comm.rank)
    for axes in grids(comm):
        strategy = OneAndAHalfD(graph, grid, comm, dtype=np.float64, max_width=3, axes=axes)
        for width in (3, 0):
            H = np.random.default_rng(2).standard_normal((5, width))
            np.testing.assert_allclose(strategy.forward(part(H, grid), layer=0), part(A @ H, grid), atol=1e-13)
            np.testing.assert_allclose(strategy.backward(part(H, grid), layer=0), part(A.T @ H, grid), atol=1e-13)
        strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(comm, directed):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm)
    strategy = OneAndAHalfD(graph, grid, comm, dtype=np.float64, max_width=9)
    h, g = (part(M, grid) for M in np.random.default_rng(3).standard_normal((2, graph.num_rows, 9)))
    forward, backward = comm.sum([(strategy.forward(h, layer=0) * g).sum(), (h * strategy.backward(g, layer=0)).sum()])
    assert forward == pytest.approx(backward, rel=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_mask_applies_to_the_result(comm, directed, direction):
    graph = make(directed=directed)
    grid, rng = cut(graph.num_rows, comm), np.random.default_rng(4)
    H, keep = part(rng.standard_normal((graph.num_rows, 11)), grid), part(rng.random((graph.num_rows, 11)), grid) < 0.5
    for axes in grids(comm):
        strategy = OneAndAHalfD(graph, grid, comm, dtype=np.float64, max_width=11, axes=axes)
        product, out = getattr(strategy, direction), np.full(H.shape, np.nan)
        product(H, layer=0, mask=reference.pack(keep), out=out)
        np.testing.assert_array_equal(out, np.where(keep, product(H, layer=0), 0))
        strategy.close()


def by_hand(grid, axes, rank, width, itemsize, adjoint):
    """(bytes, messages) of a rank in one product, block by block."""
    groups, replicas = axes
    heights = np.diff(grid.offsets).reshape(groups, replicas)
    group, replica = divmod(rank, replicas)
    owner = {k: j for j in range(replicas) for k in range(*split(groups, replicas)[j:j + 2])}  # replica of each stage
    rows = messages = 0
    for other in range(replicas):  # allgather, then reduce_scatter
        if other != replica:
            for height in (heights[group, replica], heights[group, other]):
                rows, messages = rows + height, messages + (height > 0)
    for k in range(groups):
        height = heights[k].sum()
        if owner[k] == replica and height and (k != group if adjoint else k == group):
            times = 1 if adjoint else groups - 1
            rows, messages = rows + height * times, messages + times
    return rows * width * itemsize, messages


@pytest.mark.parametrize("kind", ["uneven", "gaps"])
@pytest.mark.parametrize("directed", [False, True])
def test_sends_what_is_predicted(comm, directed, kind):
    graph, width = make(directed=directed), 6
    n, counters, grid = graph.num_rows, comm.counters, cut(graph.num_rows, comm, kind)
    H = part(np.ones((n, width), np.float32), grid)
    for axes in grids(comm):
        strategy, sent = OneAndAHalfD(graph, grid, comm, max_width=width, axes=axes), 0
        prediction = cost.predict("1.5d", cost.Step((width + 1, width), directed=directed), axes, grid.offsets)
        for direction in ("forward", "backward"):
            counters.phase = f"1.5d {axes} {direction} {directed} {kind}"
            getattr(strategy, direction)(H, layer=0)
            key, planned = (counters.phase, "aggregation"), ("aggregation", direction)
            found = counters.bytes.get(key, 0), counters.messages.get(key, 0)
            assert found == by_hand(grid, axes, comm.rank, width, 4, directed and direction == "backward")
            assert found == (prediction.bytes[planned][comm.rank], prediction.messages[planned][comm.rank])
            counts = list(cost.product_counts("1.5d", strategy.costs(), Product(0, width), 4, direction == "backward"))
            assert found == tuple(sum(book.ravel()[comm.rank] for book in books) for books in zip(*counts))
            sent += sum(book.sum() for book, _ in counts)
        groups, replicas = axes
        assert sent == 2 * 4 * n * width * (groups - 1 + 2 * (replicas - 1))
        strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_with_one_replica_it_is_1d_to_the_bit(comm, directed):
    graph = make(directed=directed, weighted=True)
    grid, rng = cut(graph.num_rows, comm), np.random.default_rng(5)
    H, mask = (part(M, grid) for M in (rng.standard_normal((graph.num_rows, 20)).astype(np.float32),
                                       reference.pack(rng.random((graph.num_rows, 20)) < 0.5)))
    results = []
    for kind, axes in ((OneD, None), (OneAndAHalfD, (comm.size, 1))):
        strategy = kind(graph, grid, comm, max_width=20, axes=axes)
        results.append([product(H, layer=0, mask=bits).tobytes() for product in (strategy.forward, strategy.backward)
                        for bits in (None, mask)] + [strategy.buffer_bytes])
        strategy.close()
    assert results[0] == results[1]


@pytest.mark.parametrize("directed", [False, True])
def test_same_bits_again_and_in_tiles_that_wait_for_messages(comm, directed, monkeypatch):
    graph = make(directed=directed)
    grid = cut(graph.num_rows, comm)
    H = part(np.random.default_rng(5).standard_normal((graph.num_rows, 20)).astype(np.float32), grid)
    for axes in grids(comm):
        results = []
        for nonzeros in (1 << 13, 1 << 13, 10):
            monkeypatch.setattr(one_d, "TILE_NONZEROS", nonzeros)
            strategy = OneAndAHalfD(graph, grid, comm, max_width=20, axes=axes)
            results.append((strategy.forward(H, layer=0).tobytes(), strategy.backward(H, layer=0).tobytes()))
            strategy.close()
        assert results[0] == results[1] == results[2]


def test_buffers_as_tall_as_the_blocks_on_their_way(comm):
    graph = make()
    grid, c = cut(graph.num_rows, comm, "even"), comm.size
    strategy = OneAndAHalfD(graph, grid, comm, max_width=20, axes=(1, c))  # a single stage: it arrives at nobody
    n, others = graph.num_rows, (c - 1) * grid.rows.num_rows
    assert strategy.buffer_bytes == (4 * 20 * (n + max(n, others)) if c > 1 else 0)
    strategy.close()


def test_grids(comm):
    graph = make()
    grid = cut(graph.num_rows, comm)
    strategy = OneAndAHalfD(graph, grid, comm)
    assert strategy.axes == cost.default_grid("1.5d", comm.size)
    strategy.close()
    with pytest.raises(UsageError, match=f"there are {comm.size}"):
        OneAndAHalfD(graph, grid, comm, axes=(comm.size, 2))


@pytest.mark.parametrize("kind", pruned.KINDS)
@pytest.mark.parametrize("directed", [False, True])
def test_fewer_rows_from_fewer_rows(comm, directed, kind):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm, "uneven" if directed else "gaps")
    for axes in grids(comm):
        full = OneAndAHalfD(graph, grid, comm, dtype=np.float64, max_width=20, axes=axes)
        pruned.check("1.5d", full, kind, oracle.normalised(graph), comm, (20, 1, 7), np.float64)
        full.close()

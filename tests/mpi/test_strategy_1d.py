"""1d: broadcasts of row blocks compute A H and A^T G on any cut of the rows, and send what is predicted."""
import numpy as np
import oracle
import pruned
import pytest
import scipy.sparse as sp
from graphs import cut, make

from hpgcn import cost, store
from hpgcn.comm import collectives
from hpgcn.cost.step import Product
from hpgcn.graph import Graph
from hpgcn.kernels import reference
from hpgcn.layout import Grid, split
from hpgcn.strategies import one_d
from hpgcn.strategies.one_d import OneD
from hpgcn.strategies.p2p import PointToPoint

pytestmark = pytest.mark.mpi


def own(grid):
    return slice(grid.rows.start, grid.rows.stop)


def dense(graph, norm, loops):
    """The matrix that is multiplied, entry by entry."""
    A = graph.adjacency.toarray().astype(np.float64)
    if loops:
        A[np.diag_indices_from(A)] = np.where(np.diag(A) == 0, 1, np.diag(A))
    if norm == "none":
        return A
    row, column = A.sum(1), A.sum(0) if norm == "sym" else np.ones(len(A))
    power = 0.5 if norm == "sym" else 1
    found = np.zeros_like(A)
    for i, j in zip(*A.nonzero()):
        found[i, j] = A[i, j] / (row[i] * column[j])**power if row[i] * column[j] > 0 else 0
    return found


def check(strategy, A, rows, widths, dtype, seed=2):
    """Forward and backward against the dense matrix, into an array of garbage; H stays as it is."""
    for width in widths:
        H = np.random.default_rng(seed).standard_normal((len(A), width)).astype(dtype)
        mine = H[rows].copy()
        out = np.full(mine.shape, np.nan, dtype)
        limit = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 2e-5}
        assert strategy.forward(mine, layer=0, out=out) is out
        np.testing.assert_allclose(out, (A @ H)[rows], **limit)
        np.testing.assert_allclose(strategy.backward(mine, layer=0), (A.T @ H)[rows], **limit)
        np.testing.assert_array_equal(mine, H[rows])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["even", "uneven", "gaps"])
@pytest.mark.parametrize("directed, weighted", [(False, False), (False, True), (True, False), (True, True)])
def test_equals_the_dense_matrix(comm, directed, weighted, kind, dtype):
    graph = make(directed=directed, weighted=weighted)
    grid = cut(graph.num_rows, comm, kind)
    strategy = OneD(graph, grid, comm, dtype=dtype, max_width=20)
    check(strategy, oracle.normalised(graph), own(grid), (20, 1, 7), dtype)
    strategy.close()


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("norm", ["sym", "row", "none"])
@pytest.mark.parametrize("directed", [False, True])
def test_norms(comm, norm, loops, directed):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm)
    strategy = OneD(graph, grid, comm, norm=norm, self_loops=loops, dtype=np.float64, max_width=5)
    A = dense(graph, norm, loops)
    check(strategy, A, own(grid), (5,), np.float64)
    assert strategy.symmetric == (norm != "row" and not directed)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_more_ranks_than_vertices(comm, directed):
    graph = make(n=5, directed=directed)
    grid = Grid(split(5, comm.size), 1, comm.rank)
    strategy = OneD(graph, grid, comm, dtype=np.float64, max_width=3)
    check(strategy, oracle.normalised(graph), own(grid), (3, 0), np.float64)
    strategy.close()


def test_a_matrix_without_entries_gives_zeros(comm):
    graph = Graph.from_scipy(sp.csr_array((12, 12)))
    grid = cut(12, comm)
    strategy = OneD(graph, grid, comm, norm="none", self_loops=False, dtype=np.float64, max_width=2)
    check(strategy, np.zeros((12, 12)), own(grid), (2,), np.float64)
    strategy.close()


def test_a_graph_in_a_file(comm, tmp_path):
    graph = make(directed=True, weighted=True)
    path = comm.bcast(str(tmp_path / "graph.h5"))
    if comm.rank == 0:
        store.write_graph(path, graph)
    comm.barrier()
    grid = cut(graph.num_rows, comm)
    strategy = OneD(store.load(path), grid, comm, dtype=np.float64, max_width=4)
    check(strategy, oracle.normalised(graph), own(grid), (4,), np.float64)
    strategy.close()
    comm.barrier()


@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(comm, directed):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm)
    strategy = OneD(graph, grid, comm, dtype=np.float64, max_width=9)
    h, g = np.random.default_rng(3).standard_normal((2, graph.num_rows, 9))[:, own(grid)]
    h, g = h.copy(), g.copy()
    forward, backward = comm.sum([(strategy.forward(h, layer=0) * g).sum(), (h * strategy.backward(g, layer=0)).sum()])
    assert forward == pytest.approx(backward, rel=1e-12)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_mask_applies_to_the_result(comm, directed, direction):
    graph = make(directed=directed)
    grid = cut(graph.num_rows, comm)
    strategy = OneD(graph, grid, comm, dtype=np.float64, max_width=11)
    rng = np.random.default_rng(4)
    H, keep = rng.standard_normal((graph.num_rows, 11))[own(grid)], rng.random((graph.num_rows, 11))[own(grid)] < 0.5
    product, H = getattr(strategy, direction), H.copy()
    out = np.full(H.shape, np.nan)
    product(H, layer=0, mask=reference.pack(keep), out=out)
    np.testing.assert_array_equal(out, np.where(keep, product(H, layer=0), 0))
    strategy.close()


@pytest.mark.parametrize("width", [1, 6])
@pytest.mark.parametrize("kind", ["uneven", "gaps"])
@pytest.mark.parametrize("directed", [False, True])
def test_sends_what_is_predicted(comm, directed, kind, width):
    graph = make(directed=directed)
    n, size, counters = graph.num_rows, comm.size, comm.counters
    grid = cut(n, comm, kind)
    strategy = OneD(graph, grid, comm, dtype=np.float64, max_width=width)
    H, m = np.ones((grid.rows.num_rows, width)), grid.rows.num_rows
    found = {}
    for direction in ("forward", "backward"):
        counters.phase = f"1d {direction} {directed} {kind} {width}"
        getattr(strategy, direction)(H, layer=0)
        found[direction] = tuple(book.get((counters.phase, "aggregation"), 0)
                                 for book in (counters.bytes, counters.messages))
        assert found[direction] == counters.total(counters.phase)
    full = int(np.count_nonzero(np.diff(grid.offsets)))
    rooted = 8 * width * m * (size - 1), (size - 1) * (m > 0)
    assert found["forward"] == rooted
    assert found["backward"] == ((8 * width * (n - m), full - (m > 0)) if directed else rooted)
    step = cost.Step((width + 1, width), 8, directed=directed)  # W first: one product each way
    prediction = cost.predict("1d", step, (size,), grid.offsets)
    for direction, pair in found.items():
        key = "aggregation", direction
        assert pair == (prediction.bytes[key][comm.rank], prediction.messages[key][comm.rank])
        counts = list(cost.product_counts("1d", strategy.costs(), Product(0, width), 8, direction == "backward"))
        assert [book[comm.rank, 0] for book in counts[0]] == list(pair)
        assert len(counts) == 1
        assert counts[0][0].sum() == 8 * n * width * (size - 1)
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_same_bits_again_and_in_tiles_that_wait_for_messages(comm, directed, monkeypatch):
    graph = make(directed=directed)
    grid = cut(graph.num_rows, comm)
    strategy = OneD(graph, grid, comm, max_width=20)
    H = np.random.default_rng(5).standard_normal((graph.num_rows, 20)).astype(np.float32)[own(grid)]
    first, again = ((strategy.forward(H, layer=0).tobytes(), strategy.backward(H, layer=0).tobytes()) for _ in range(2))
    assert first == again
    monkeypatch.setattr(one_d, "TILE_NONZEROS", 20)
    assert (strategy.forward(H, layer=0).tobytes(), strategy.backward(H, layer=0).tobytes()) == first
    monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", 1000)
    assert strategy.forward(H, layer=0).tobytes() == first[0]
    strategy.close()


@pytest.mark.parametrize("directed", [False, True])
def test_p2p_on_the_same_blocks_computes_the_same_and_sends_no_more(comm, directed):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm)
    H = np.random.default_rng(5).standard_normal((graph.num_rows, 6))[own(grid)]
    results, sent = [], []
    for kind in (OneD, PointToPoint):
        strategy = kind(graph, grid, comm, dtype=np.float64, max_width=6)
        comm.counters.phase = f"limit {kind.__name__} {directed}"
        results.append((strategy.forward(H, layer=0), strategy.backward(H, layer=0)))
        sent.append(comm.sum(comm.counters.total(comm.counters.phase)))
        strategy.close()
    np.testing.assert_allclose(results[0], results[1], atol=1e-14)
    assert (sent[1] <= sent[0]).all()


def test_two_buffers_as_tall_as_the_largest_block_that_arrives(comm):
    graph = make()
    grid = cut(graph.num_rows, comm)
    strategy = OneD(graph, grid, comm, max_width=20)
    others = np.delete(np.diff(grid.offsets), comm.rank)
    assert strategy.buffer_bytes == 4 * 20 * others.max(initial=0) * min(2, comm.size - 1)
    strategy.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", pruned.KINDS)
@pytest.mark.parametrize("directed", [False, True])
def test_fewer_rows_from_fewer_rows(comm, directed, kind, dtype):
    graph = make(directed=directed, weighted=True)
    grid = cut(graph.num_rows, comm, "uneven" if dtype == np.float32 else "gaps")
    full = OneD(graph, grid, comm, dtype=dtype, max_width=20)
    pruned.check("1d", full, kind, oracle.normalised(graph), comm, (20, 1, 7), dtype)
    full.close()


def test_fewer_rows_of_a_matrix_that_is_normalised_by_rows(comm):
    graph = make(weighted=True)
    full = OneD(graph, cut(graph.num_rows, comm), comm, norm="row", dtype=np.float64, max_width=5)
    pruned.check("1d", full, "half", dense(graph, "row", True), comm, (5,), np.float64)
    full.close()


@pytest.mark.parametrize("directed", [False, True])
def test_fewer_rows_by_hand(comm, directed):
    """A path 0 - 1 - ... - 11 without norm and loops: row i adds up its neighbours; directed, the next one alone."""
    A = sp.diags_array(np.ones(11), offsets=1, shape=(12, 12)).tocsr()
    full = OneD(Graph.from_scipy(A, symmetrize=not directed), cut(12, comm, "even"), comm, norm="none",
                self_loops=False, dtype=np.float64, max_width=1)
    rows_out, rows_in = np.isin(np.arange(12), [0, 5, 11]), np.isin(np.arange(12), [1, 4, 6])
    made, x = full.restrict(rows_out, rows_in), np.arange(100., 112)[:, None]
    H, G = (x[own(full.layout)][rows[own(full.layout)]] for rows in (rows_in, rows_out))
    T = np.concatenate(comm.allgather(made.forward(H, layer=0)))
    S = np.concatenate(comm.allgather(made.backward(G, layer=0)))
    assert T.ravel().tolist() == ([101, 106, 0] if directed else [101, 210, 0])
    assert S.ravel().tolist() == ([100, 0, 105] if directed else [100, 105, 105])
    full.close()


def test_restricted_operands_hold_what_was_asked_for_in_the_buffers_of_the_whole(comm):
    graph = make()
    full = OneD(graph, cut(graph.num_rows, comm), comm, max_width=20)
    rows_out, rows_in = pruned.choose("half", full.layout)
    made, same = full.restrict(rows_out, rows_in), full.restrict(rows_in, rows_in)
    moved = oracle.normalised(graph)[own(full.layout)] != 0
    for product, rows, columns in ((made.product, rows_out, rows_in), (made.reverse, rows_in, rows_out)):
        assert sum(block[2].size for block in product.blocks) == moved[rows[own(full.layout)]][:, columns].sum()
        assert [id(buffer) for buffer in product.buffers] == [id(buffer) for buffer in full.product.buffers]
    assert same.reverse is same.product  # one operand serves both ways
    full.close()

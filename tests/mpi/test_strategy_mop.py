"""Strategy mop: the map and its transpose, to all or some rows; masks, exact counts, batches that need not wait."""
import tracemalloc

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make

from hpgcn import cost
from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.kernels import reference
from hpgcn.layout import Grid, split
from hpgcn.strategies.batches import default_stages
from hpgcn.strategies.mop import MixtureOfParallelism, column_bits

pytestmark = pytest.mark.mpi


def build(comm, graph, offsets=None, **options):
    """The strategy, by default on row blocks of which the first is twice as long; and this rank's rows."""
    if offsets is None:
        offsets = np.delete(split(graph.header.num_nodes, comm.size + 1), 1)
    grid = Grid(np.asarray(offsets), 1, comm.rank)
    strategy = MixtureOfParallelism(graph, grid, comm, **{"dtype": np.float64, "max_width": 20, **options})
    assert strategy.layout is grid
    return strategy, slice(grid.rows.start, grid.rows.stop)


def dense(graph, norm, loops):
    if norm == "sym":
        return oracle.normalised(graph)
    A = graph.adjacency.toarray().astype(np.float64)
    if loops:
        A[np.diag_indices_from(A)] = np.where(np.diag(A) == 0, 1, np.diag(A))
    return A / np.where(A.sum(1) > 0, A.sum(1), np.inf)[:, None] if norm == "row" else A


def banded(n, width, *, directed=False):
    """Rows that read all others at most `width` away, each with its own weight."""
    rng = np.random.default_rng(7)
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width
    return Graph.from_scipy(sp.csr_array(near * (1 + rng.random((n, n)))), symmetrize=not directed, name="banded")


@pytest.mark.parametrize("stages", [0, 1, 4])
@pytest.mark.parametrize("width", [1, 3, 7, 20])
@pytest.mark.parametrize("directed, weighted, norm, loops", [
    (False, False, "sym", True), (False, True, "sym", True), (True, True, "sym", True), (False, True, "row", True),
    (True, False, "row", True), (True, True, "none", False), (False, False, "none", True)])
def test_equals_the_dense_matrix(comm, directed, weighted, norm, loops, width, stages):
    graph = make(directed=directed, weighted=weighted)
    A = dense(graph, norm, loops)
    strategy, mine = build(comm, graph, norm=norm, self_loops=loops, stages=stages)
    assert strategy.symmetric == (not directed and norm != "row")
    H = np.random.default_rng(2).standard_normal((graph.num_rows, width))
    np.testing.assert_allclose(strategy.forward(H[mine], layer=0), (A @ H)[mine], atol=1e-12)
    np.testing.assert_allclose(strategy.backward(H[mine], layer=0), (A.T @ H)[mine], atol=1e-12)
    strategy.close()


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("stages", [0, 1, 7])
def test_a_real_graph_equals_scipy(comm, data_dir, dtype, tolerance, stages):
    from hpgcn.datasets.convert import read

    graph = read(data_dir / "npz" / "amazon_computers.npz", "auto")[0]
    strategy, mine = build(comm, graph, dtype=dtype, stages=stages, norm="none", self_loops=False)
    assert strategy.stages == (1 if comm.size == 1 else stages or default_stages(strategy.layout.offsets, 13000))
    H = np.random.default_rng(2).standard_normal((graph.num_rows, 17)).astype(dtype)
    A = graph.adjacency.astype(np.float64)
    for product, expected in ((strategy.forward, A @ H), (strategy.backward, A.T @ H)):
        found = product(H[mine], layer=0)
        assert np.abs(found - expected[mine]).max(initial=0) <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("directed", [False, True])
def test_dot_product(comm, directed):
    graph = make(directed=directed, weighted=True)
    strategy, mine = build(comm, graph, stages=3)
    h, g = np.random.default_rng(3).standard_normal((2, graph.num_rows, 9))
    forward, backward = comm.sum([(strategy.forward(h[mine], layer=0) * g[mine]).sum(),
                                  (h[mine] * strategy.backward(g[mine], layer=0)).sum()])
    assert forward == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("stages", [1, 5])
@pytest.mark.parametrize("width", [1, 2, 11, 20])
@pytest.mark.parametrize("directed", [False, True])
def test_the_mask_applies_to_the_result(comm, directed, width, stages):
    graph = make(directed=directed)
    strategy, mine = build(comm, graph, stages=stages)
    rng = np.random.default_rng(4)
    H, keep = rng.standard_normal((graph.num_rows, width)), rng.random((graph.num_rows, width)) < 0.5
    for product in (strategy.forward, strategy.backward):
        expected = np.where(keep[mine], product(H[mine], layer=0), 0)
        np.testing.assert_array_equal(product(H[mine], layer=0, mask=reference.pack(keep[mine])), expected)


def counted(comm, phase):
    key = phase, "aggregation"
    return comm.counters.bytes.get(key, 0), comm.counters.messages.get(key, 0)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("stages", [0, 1, 6])
@pytest.mark.parametrize("width", [1, 3, 20])
@pytest.mark.parametrize("kind", ["uneven", "empty", "few rows"])
def test_counted_is_predicted(comm, kind, width, stages, directed):
    graph = make(n=5 if kind == "few rows" else 203, directed=directed)
    n, P = graph.num_rows, comm.size
    offsets = {"uneven": None, "few rows": split(n, P),
               "empty": np.where(np.arange(P + 1) * 2 <= P, 0, n) if P > 1 else np.array([0, n])}[kind]
    strategy, mine = build(comm, graph, offsets, stages=stages)
    H = np.random.default_rng(5).standard_normal((n, width))
    mask = np.zeros((mine.stop - mine.start, -(-width // 8)), np.uint8)
    phase = f"{kind} {width} {stages} {directed} "
    comm.counters.phase = phase + "forward"
    strategy.forward(H[mine], layer=0)
    strategy.forward(H[mine], layer=1)
    comm.counters.phase = phase + "backward"
    strategy.backward(H[mine], layer=1, mask=mask)
    strategy.backward(H[mine], layer=0)
    # layers of these widths multiply by W first, then by A first: that one's result is masked
    step = cost.Step((width, width, width + 1), itemsize=8, directed=directed)
    offsets = strategy.layout.offsets
    expected = cost.predict("mop", step, (P,), offsets, stages=strategy.stages)
    for direction in ("forward", "backward"):
        bytes_, messages = (book["aggregation", direction][comm.rank] for book in (expected.bytes, expected.messages))
        assert counted(comm, phase + direction) == (bytes_, messages)
    sent = comm.sum([counted(comm, phase + direction) for direction in ("forward", "backward")]).ravel() \
        if P > 1 else np.zeros(4)
    rows, columns = np.diff(offsets), np.diff(split(width, P))
    each_way, bits = 8 * (n * width - int(rows @ columns)), -(-columns // 8)
    assert sent[0] == 4 * each_way
    assert sent[2] == 4 * each_way + n * bits.sum() - rows @ bits
    total = cost.predict_step("mop", step, (P,), [strategy.costs()] * 2, [rows[:, None]] * 3).traffic()
    assert (total.aggregation_bytes, total.aggregation_messages) == (sent[0] + sent[2], sent[1] + sent[3])


@pytest.mark.parametrize("stages", [0, 1, 6])
def test_more_ranks_than_rows_or_columns(comm, stages):
    graph = make(n=5, weighted=True)
    A = oracle.normalised(graph)
    for offsets in (split(5, comm.size), [0] * comm.size + [5], [0] + [5] * comm.size):
        strategy, mine = build(comm, graph, offsets, stages=stages)
        H = np.random.default_rng(5).standard_normal((5, 2))
        np.testing.assert_allclose(strategy.forward(H[mine], layer=0), (A @ H)[mine], atol=1e-12)
        mask = reference.pack(H[mine] > 0)
        np.testing.assert_allclose(strategy.backward(H[mine], layer=0, mask=mask), np.where(H > 0, A @ H, 0)[mine],
                                   atol=1e-12)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("stages", [0, 3, 12])
def test_a_banded_matrix_starts_early_and_is_right(comm, stages, directed):
    n = 40 * comm.size
    graph = banded(n, 6, directed=directed)
    A = graph.adjacency.toarray().astype(np.float64)
    strategy, mine = build(comm, graph, split(n, comm.size), stages=stages, norm="none")
    H = np.random.default_rng(6).standard_normal((n, 20))
    for _ in range(3):
        np.testing.assert_allclose(strategy.forward(H[mine], layer=0), (A @ H)[mine], atol=1e-11)
        np.testing.assert_allclose(strategy.backward(H[mine], layer=0), (A.T @ H)[mine], atol=1e-11)


@pytest.mark.parametrize("stages", [1, 4])
def test_the_same_bits_twice_whatever_out_held(comm, stages):
    graph = make(weighted=True, directed=True)
    H = np.random.default_rng(8).standard_normal((graph.num_rows, 20)).astype(np.float32)
    found = []
    for garbage in (np.nan, 7):
        strategy, mine = build(comm, graph, stages=stages, dtype=np.float32)
        out = np.full(H[mine].shape, garbage, np.float32)
        assert strategy.forward(H[mine], layer=0, out=out) is out
        found.append((out.tobytes(), strategy.backward(H[mine], layer=0).tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("stages", [1, 4])
def test_buffers_are_made_once(comm, stages):
    n, f = 6000, 40
    chain = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1])
    strategy, mine = build(comm, Graph.from_scipy(chain, name="chain"), stages=stages, max_width=f)
    H = np.ones((n, f))[mine]
    mask, out, size = np.full((len(H), f // 8), 255, np.uint8), np.empty_like(H), strategy.buffer_bytes
    columns = -(-f // comm.size)
    bits = (n * (1 + (strategy.stages > 1)) + len(H) * comm.size) * -(-columns // 8)
    assert size == (0 if comm.size == 1 else 8 * (2 * n * columns + len(H) * f) + bits)
    strategy.forward(H, layer=0, mask=mask, out=out)
    tracemalloc.start()
    strategy.forward(H, layer=0, mask=mask, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * f / comm.size + 50_000


def test_an_error_of_one_rank_is_raised_on_all(comm):
    graph = make()

    class Broken:
        header, offsets = graph.header, None
        degrees, pointers = graph.degrees, graph.pointers

        def adjacency_rows(self, start, stop):
            if comm.rank == comm.size - 1:
                raise DataError("made: block 3 of adjacency/indices_1 is damaged")
            return graph.adjacency_rows(start, stop)

    with pytest.raises(DataError, match="block 3 of adjacency"):
        build(comm, Broken(), split(203, comm.size))


def some_rows(kind, n, comm):
    """Masks (rows_out, rows_in) over all rows; the first rank owns at least the first two of P + 1 even blocks."""
    draws = np.random.default_rng(10).random((2, n))
    out, into = {"few of many": draws < [[0.1], [0.7]], "many of few": draws < [[0.9], [0.2]],
                 "all in": draws < [[0.2], [1]], "same": draws[[0, 0]] < 0.5, "nothing": draws < [[0], [0.5]],
                 "from nothing": draws < [[0.5], [0]], "a rank without": draws < [[0.6], [0.5]]}[kind]
    if kind == "a rank without":
        out[:n // (comm.size + 1)], into[n // 2:] = False, False
    return out, into


def owned(rows, mine):
    """Of the chosen rows, those that this rank owns; (k,) bool."""
    return ((np.arange(rows.size) >= mine.start) & (np.arange(rows.size) < mine.stop))[rows]


@pytest.mark.parametrize("stages", [1, 5])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["few of many", "many of few", "all in", "same", "nothing", "from nothing",
                                  "a rank without"])
def test_restricted_equals_the_submatrix(comm, kind, directed, stages):
    graph = make(directed=directed, weighted=True)
    whole, mine = build(comm, graph, stages=stages)
    rows_out, rows_in = some_rows(kind, graph.num_rows, comm)
    A = oracle.normalised(graph)[rows_out][:, rows_in]
    strategy = whole.restrict(rows_out, rows_in)
    assert isinstance(strategy, MixtureOfParallelism)
    assert strategy.symmetric == whole.symmetric
    here, there = owned(rows_out, mine), owned(rows_in, mine)
    assert (strategy.layout.rows.num_rows, strategy.layout_in.rows.num_rows) == (here.sum(), there.sum())
    rng, own = np.random.default_rng(11), np.random.default_rng(comm.rank)
    for width in (1, 7, 20):
        H, G = rng.standard_normal((A.shape[1], width)), rng.standard_normal((A.shape[0], width))
        Z, S = strategy.forward(H[there], layer=0), strategy.backward(G[here], layer=0)
        np.testing.assert_allclose(Z, (A @ H)[here], atol=1e-12)
        np.testing.assert_allclose(S, (A.T @ G)[there], atol=1e-12)
        forward, backward = comm.sum([(Z * G[here]).sum(), (S * H[there]).sum()])
        assert forward == pytest.approx(backward, rel=1e-10, abs=1e-12)
        for product, dense_rows, found in ((strategy.forward, H[there], Z), (strategy.backward, G[here], S)):
            keep, out = own.random(found.shape) < 0.5, np.full(found.shape, np.nan)
            assert product(dense_rows, layer=0, mask=reference.pack(keep), out=out) is out
            np.testing.assert_array_equal(out, np.where(keep, found, 0))
    strategy.close()
    np.testing.assert_allclose(whole.forward(np.eye(graph.num_rows, 20)[mine], layer=0),
                               oracle.normalised(graph)[mine, :20], atol=1e-12)


@pytest.mark.parametrize("stages", [1, 6])
@pytest.mark.parametrize("kind", ["few of many", "many of few", "all in", "same", "nothing", "a rank without"])
def test_counted_is_predicted_for_some_rows(comm, kind, stages):
    graph = make(directed=stages > 1)
    whole, _ = build(comm, graph, stages=stages)
    rows_out, rows_in = some_rows(kind, graph.num_rows, comm)
    strategy = whole.restrict(rows_out, rows_in)
    m_out, m_in = strategy.layout.rows.num_rows, strategy.layout_in.rows.num_rows
    offsets = whole.layout.offsets
    for width in (1, 7, 20):
        columns = np.diff(split(width, comm.size))
        for backward, masked in ((False, False), (False, True), (True, False), (True, True)):
            product, m, m_back = (strategy.backward, m_out, m_in) if backward else (strategy.forward, m_in, m_out)
            comm.counters.phase = f"some rows {kind} {stages} {width} {backward} {masked}"
            product(np.ones((m, width)), layer=0, mask=np.zeros((m_back, -(-width // 8)), np.uint8) if masked else None)
            found = np.array(counted(comm, comm.counters.phase))
            calls = cost.product_counts("mop", strategy.costs(), cost.step.Product(0, width, masked), 8, backward)
            expected = np.array([[np.ravel(part)[comm.rank] for part in call] for call in calls]).sum(0)
            assert found.tolist() == expected.tolist()
            there, back = (np.diff(np.concatenate([[0], np.cumsum(rows)])[offsets])
                           for rows in ((rows_out, rows_in) if backward else (rows_in, rows_out)))
            total = sum(8 * (rows.sum() * width - rows @ columns) for rows in (there, back))
            bits = -(-columns // 8)
            assert comm.sum(found)[0] == total + masked * (back.sum() * bits.sum() - back @ bits) or comm.size == 1


def test_counts_of_some_rows_by_hand(comm):
    pair = comm.group((0, 1) if comm.rank < 2 <= comm.size else (comm.rank,))
    if pair.size == 2:
        whole, _ = build(pair, make(n=6), [0, 4, 6], stages=2)
        strategy = whole.restrict(np.array([0, 0, 1, 0, 1, 1]) == 1, np.array([1, 1, 0, 1, 0, 1]) == 1)
        pair.counters.phase = "by hand"
        m_in, m_out = (3, 1)[pair.rank], (1, 2)[pair.rank]
        strategy.forward(np.ones((m_in, 3)), layer=0, mask=np.zeros((m_out, 1), np.uint8))
        # rank 0 owns two columns of three: it sends 3 rows of one, returns 2 rows of two, and 1 byte of the mask
        assert counted(pair, "by hand") == ((24 + 32 + 1, 2 + 2 + 1), (16 + 8 + 2, 1 + 1 + 1))[pair.rank]
    pair.close()


@pytest.mark.parametrize("stages, made", [(0, (3, 2)), (4, (4, 4))])
def test_batches_of_some_rows(comm, stages, made):
    n = 5000 * comm.size
    chain = sp.diags_array([np.arange(1.0, n), np.arange(1.0, n)], offsets=[-1, 1]).tocsr()
    whole, mine = build(comm, Graph.from_scipy(chain, name="chain"), split(n, comm.size), stages=stages, norm="none",
                        self_loops=False)
    rows_out, rows_in = np.arange(n) % 7 == 0, np.arange(n) % 2 == 1
    strategy = whole.restrict(rows_out, rows_in)
    assert (whole.stages, strategy.stages) == (made if comm.size > 1 else (1, 1))
    H = np.random.default_rng(12).standard_normal((n, 9))
    A = chain[rows_out][:, rows_in]
    np.testing.assert_allclose(strategy.forward(H[rows_in][owned(rows_in, mine)], layer=0),
                               (A @ H[rows_in])[owned(rows_out, mine)], rtol=1e-9)
    np.testing.assert_allclose(strategy.backward(H[rows_out][owned(rows_out, mine)], layer=0),
                               (A.T @ H[rows_out])[owned(rows_in, mine)], rtol=1e-9)


@pytest.mark.parametrize("stages", [1, 4])
def test_some_rows_need_no_buffers_of_their_own(comm, stages):
    n, f = 6000, 40
    chain = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1])
    whole, _ = build(comm, Graph.from_scipy(chain, name="chain"), stages=stages, max_width=f)
    strategy = whole.restrict(np.arange(n) % 8 > 0, np.ones(n, bool))
    assert strategy.buffer_bytes == 0
    m_out, m_in = strategy.layout.rows.num_rows, strategy.layout_in.rows.num_rows
    H, Z, mask = np.ones((m_in, f)), np.empty((m_out, f)), np.full((m_out, f // 8), 255, np.uint8)
    strategy.forward(H, layer=0, mask=mask, out=Z)
    strategy.backward(Z, layer=0, out=H)  # kernels are loaded by now
    tracemalloc.start()
    strategy.forward(H, layer=0, mask=mask, out=Z)
    strategy.backward(Z, layer=0, out=H)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * f / comm.size + 50_000


@pytest.mark.parametrize("width", [1, 7, 8, 9, 24, 37])
def test_bits_of_some_columns(width):
    keep = np.random.default_rng(9).random((11, width)) < 0.5
    for first in range(width + 1):
        for last in range(first, width + 1):
            out = np.full((11, -(-(last - first) // 8)), 255, np.uint8)
            column_bits(reference.pack(keep), first, last, out)
            np.testing.assert_array_equal(out, reference.pack(keep[:, first:last]))

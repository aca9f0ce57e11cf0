"""Strategy mop: the map and its transpose, masks within the product, exact counts, batches that do not wait for all."""
import tracemalloc

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make

from hpgcn import cost, reorder
from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.kernels import reference
from hpgcn.layout import Grid, split
from hpgcn.strategies import mop
from hpgcn.strategies.mop import Batches, MixtureOfParallelism

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
    assert strategy.stages == (1 if comm.size == 1 else stages or mop.default_stages(strategy.layout.offsets, 13000))
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
    total = strategy.predicted(step)
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


def test_batches_by_hand():
    # rows 0-4, none, 5-6, 7-9 in two batches: the second and the last rank deal theirs from the end
    batches = Batches.deal(np.array([0, 5, 5, 7, 10]), 2)
    assert batches.order.tolist() == [0, 1, 2, 5, 9, 3, 4, 6, 7, 8]
    assert batches.bounds.tolist() == [0, 5, 10]
    assert batches.counts.tolist() == [[3, 0, 1, 1], [2, 0, 1, 2]]
    assert batches.starts[:, [0, 2, 3]].tolist() == [[0, 5, 9], [3, 6, 7]]
    # in that order, rows of the first batch that read columns 0 and 4 alone; the second batch reads column 9
    indptr = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3])
    assert batches.read(indptr, np.array([0, 4, 9])).tolist() == [1, 2]
    assert batches.read(indptr, np.array([0, 5, 1])).tolist() == [2, 2]
    assert batches.read(np.zeros(11, np.int64), np.empty(0, np.int32)).tolist() == [1, 2]


@pytest.mark.parametrize("P", [2, 3, 4, 7])
@pytest.mark.parametrize("m, b", [(40, 0), (40, 6), (40, 19), (40, 30), (33, 5)])
def test_the_first_batch_does_not_wait_for_the_last(P, m, b):
    n = m * P
    near = sp.csr_array(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= b)
    assert mop.bandwidth(near) == reorder.bandwidth(near) == b
    stages = reorder.pipeline_stages(m, b)
    batches = Batches.deal(np.arange(P + 1) * m, stages)
    assert sorted(batches.order.tolist()) == list(range(n))
    moved = mop.in_order(near, batches.order)
    moved.sort_indices()
    assert (moved != near[batches.order][:, batches.order]).nnz == 0
    found = batches.read(moved.indptr, moved.indices)
    assert found[0] < stages
    batch_of = np.repeat(np.arange(stages), np.diff(batches.bounds))
    highest = [batch_of[moved[batch_of == batch].indices].max() + 1 for batch in range(stages)]
    assert found.tolist() == np.maximum.accumulate(highest).tolist()


def test_default_stages():
    even = np.arange(5) * 100_000  # four ranks
    assert mop.default_stages(even, 0) == 2
    assert mop.default_stages(even, 50_000) == 4
    assert mop.default_stages(even, 60_000) == 5
    assert mop.default_stages(even, 99_000) == mop.MAX_STAGES
    assert mop.default_stages(even, 100_000) == mop.default_stages(even, 399_999) == mop.TILES
    assert mop.default_stages(np.arange(5) * 3000, 11_000) == 2  # of at least 1024 rows
    assert mop.default_stages(np.arange(5) * 10, 3) == 1
    assert mop.default_stages(np.array([0, 100_000]), 50_000) == 1
    assert mop.default_stages(np.array([0, 0, 0]), 0) == 1


@pytest.mark.parametrize("width", [1, 7, 8, 9, 24, 37])
def test_bits_of_some_columns(width):
    keep = np.random.default_rng(9).random((11, width)) < 0.5
    for first in range(width + 1):
        for last in range(first, width + 1):
            out = np.full((11, -(-(last - first) // 8)), 255, np.uint8)
            mop.column_bits(reference.pack(keep), first, last, out)
            np.testing.assert_array_equal(out, reference.pack(keep[:, first:last]))

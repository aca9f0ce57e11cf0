"""Details of single strategies.

1.5d equals 1d, packed blocks, batches, equal bits, and refusals.
"""

from functools import cache

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make
from test_strategies import PLAIN, build, check, counted, graph_of, own, pattern_of

from hpgcn.config import Config
from hpgcn.datasets.convert import read
from hpgcn.errors import ConfigError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.kernels import pack_mask
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.layout import BlockLayout
from hpgcn.strategies import STRATEGIES, RankGrid, nonzeros, read_options
from hpgcn.strategies.grids.packed_blocks import Blocks
from hpgcn.strategies.mixture.product_in_flight import column_bits
from hpgcn.strategies.mixture.row_batches import default_num_batches
from hpgcn.strategies.nonzeros import NonzeroPlan


def options_of(**settings):
    return read_options(Config(**settings))


@pytest.mark.parametrize("comm", [1, 5], indirect=True)
@pytest.mark.parametrize("directed", [False, True])
def test_15d_with_one_replica_is_1d_to_the_bit(comm, directed):
    graph = make(directed=directed, weighted=True)
    rng = np.random.default_rng(5)
    H = rng.standard_normal((graph.num_rows, 20)).astype(np.float32)
    keep = rng.random(H.shape) < 0.5
    results = []
    for case in (("1d", (comm.size,), 0), ("1.5d", (comm.size, 1), 0)):
        made, _ = build(comm, case, graph, dtype=np.float32)
        mine = own(made.layout, H)
        bits = pack_mask(own(made.layout, keep))
        results.append([multiply(mine, mask=mask).tobytes()
                        for multiply in (made.forward, made.backward)
                        for mask in (None, bits)] + [made.buffer_bytes])
        made.close()
    assert results[0] == results[1]


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
def test_who_only_sends_waits_until_it_is_sent(comm):
    n = 500 * comm.size
    rows = np.arange(n)
    columns = rows % (n // comm.size)  # all ranks read rows of rank 0, which reads none
    graph = Graph.from_scipy(sp.csr_array((np.ones(n), (rows, columns)), shape=(n, n)))
    made, _ = build(comm, ("p2p", (comm.size,), 0), graph, dtype=np.float32, norm="none",
                    self_loops=False)
    H = np.arange(n * 256, dtype=np.float32).reshape(n, 256)  # too much to be sent in passing
    for factor in (1, 2, 3):
        found = made.forward(own(made.layout, H) * factor)
        np.testing.assert_array_equal(found, own(made.layout, H[columns]) * factor)
    made.close()


@pytest.mark.parametrize("name", [
    name for name, each in STRATEGIES.items() if each.requires_partition])
def test_rows_and_sums_are_told_apart(comm, name):
    graph = graph_of(comm, directed=True)
    made, rank_grid = build(comm, (name, (comm.size,), 0), graph)
    plan = made.Plan.of(pattern_of(graph, symmetric=False), rank_grid)
    owner = rank_grid.layout.row_blocks
    rows, columns = plan.pattern.rows, plan.pattern.indices
    at = plan.pattern.holders if isinstance(plan, NonzeroPlan) else owner[rows]
    pulled = {(j, p) for j, p in zip(columns.tolist(), at.tolist()) if owner[j] != p}
    pushed = {(i, p) for i, p in zip(rows.tolist(), at.tolist()) if owner[i] != p}
    mine = np.ones((made.layout.rows.num_rows, 1))
    counters = comm.counters
    for number, (multiply, summed) in enumerate(((made.forward, pushed), (made.backward, pulled))):
        counters.phase = f"{name} {number}"
        multiply(mine)
        sent, sums = (comm.sum([sum(kept[counters.phase].values())])[0]
                      for kept in (counters.sent, counters.sums))
        assert (sent, sums) == (8 * (len(pulled) + len(pushed)), 8 * len(summed))
    made.close()


def test_pieces_of_entries_are_counted_as_all(comm, monkeypatch):
    """A row or a column may have entries in several pieces, and a pair counts once."""
    graph = graph_of(comm, directed=True)
    _, rank_grid = build(comm, ("vertex-cut", (comm.size,), 0), graph)
    pattern = pattern_of(graph, symmetric=False)
    pattern = pattern.assign_holders(np.arange(pattern.indices.size) * 7 % comm.size)

    def counts():
        plan = STRATEGIES["vertex-cut"].Plan.of(pattern, rank_grid)
        return [*plan.tables(), *(plan.added_rows(*each) for each in np.ndindex(2, 2))]

    whole = counts()
    monkeypatch.setattr(nonzeros, "PIECE", 11)
    for found, expected in zip(counts(), whole):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["p2p", "cover", "vertex-cut", "1d"])
def test_blocks_of_a_product_have_one_array_of_each_kind(comm, name):
    """So no array of a matrix is too small for a file, however many blocks it is cut in."""
    made, _ = build(comm, (name, (comm.size,), 0), graph_of(comm, directed=True))
    part = made.restrict(*(np.arange(made.layout.offsets[-1]) % 3 > 0,) * 2)
    for product in (made.product, made.back, part.product, part.back):
        for kind in ("indptr", "indices", "data"):
            arrays = [getattr(block, kind) for block in product.all_blocks()]
            first = arrays[0].base
            assert len(arrays) == 1 or (first is not None
                                        and all(each.base is first for each in arrays))
    made.close()


def test_a_layout_of_another_grid_is_refused(comm):
    adjacency = NormalizedAdjacency(make(67))
    layout = BlockLayout(np.arange(comm.size + 2), comm.size, comm.rank)
    P = comm.size
    said = rf"2d: {P + 1} row blocks x {P} column blocks given, expected {P} x 1 on "
    with pytest.raises(ConfigError, match=said):
        STRATEGIES["2d"].build(adjacency, RankGrid((comm.size, 1), layout, {}), comm)


@pytest.mark.parametrize("name, grid, said", [
    ("2d", "9x1", "grid 9x1 has 9 ranks, but there are {P}: expected RxC with product {P}"),
    ("3d", "1x1", "strategy = '3d:1x1': grid 1x1: strategy 3d takes RxCxL"),
    ("2d", "0x1", "grid 0x1: every axis must be a whole number of at least 1"),
    ("2d", "two", "grid two: expected RxC or RxCxL"),
    ("2d", "", None)])
def test_grids(comm, name, grid, said):
    strategy = STRATEGIES[name]
    options = options_of(strategy=name, grid=grid)
    if said is None:
        assert strategy.choose_shape(options, comm.size) == strategy.default_shape(comm.size)
        return
    with pytest.raises(ConfigError, match=said.format(P=comm.size)) as caught:
        strategy.choose_shape(options, comm.size)
    assert caught.value.collective


def test_replicas():
    strategy = STRATEGIES["1.5d"]
    assert strategy.choose_shape(options_of(strategy="1.5d", replication=3), 12) == (4, 3)
    with pytest.raises(ConfigError, match="5d:5': expected a divisor of the 12 ranks"):
        strategy.choose_shape(options_of(strategy="1.5d", replication=5), 12)
    with pytest.raises(UsageError, match="there are 12"):
        strategy.check_shape(12, (12, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [np.int32, np.int64])
def test_a_packed_block(dtype, columns):
    blocks = object.__new__(Blocks)
    blocks.num_rows, blocks.dtype, blocks.columns = 2, np.dtype(dtype), np.dtype(columns)
    block = Csr(np.array([0, 1, 3]), np.array([4, 0, 2], columns), np.array([0.5, -1, 3], dtype), 5)
    message = blocks.pack(block)
    assert message.nbytes == 3 * 8 + 3 * (np.dtype(dtype).itemsize + np.dtype(columns).itemsize)
    for part, expected in zip(blocks.unpack(message, 3), (block.indptr, block.indices, block.data)):
        np.testing.assert_array_equal(part, expected)
        assert part.flags.aligned and np.shares_memory(part, message)
    empty = Csr(np.zeros(3, np.int64), np.empty(0, columns), np.empty(0, dtype), 5)
    assert blocks.pack(empty).size == 0


@cache
def read_once(path):
    return read(path, "auto")[0]


@pytest.mark.long
@pytest.mark.parametrize("comm", [1, 4], indirect=True)
@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("stages", [0, 7])
def test_a_real_graph_in_batches(comm, data_dir, dtype, bound, stages):
    graph = read_once(data_dir / "npz" / "amazon_computers.npz")
    made, _ = build(comm, ("mop", (comm.size,), stages), graph, "even", dtype=dtype, **PLAIN)
    chosen = stages or default_num_batches(made.layout.offsets, 13000)
    assert made.num_batches == (1 if comm.size == 1 else chosen)
    H = np.random.default_rng(2).standard_normal((graph.num_rows, 17)).astype(dtype)
    A = graph.adjacency.astype(np.float64)
    for multiply, matrix in ((made.forward, A), (made.backward, A.T)):
        expected = matrix @ H
        error = np.abs(multiply(own(made.layout, H)) - own(made.layout, expected)).max(initial=0)
        assert error <= bound * np.abs(expected).max()


@pytest.mark.parametrize("comm", [1, 3, 4], indirect=True)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("stages", [0, 3, 12])
def test_a_banded_matrix_starts_early_and_is_right(comm, stages, directed):
    n = 40 * comm.size
    rng = np.random.default_rng(7)
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 6
    graph = Graph.from_scipy(sp.csr_array(near * (1 + rng.random((n, n)))), symmetrize=not directed)
    made, rank_grid = build(comm, ("mop", (comm.size,), stages), graph, "even", norm="none")
    plan = made.Plan.of(pattern_of(graph, not directed), rank_grid)
    check(comm, made, plan, sp.csr_array(oracle.normalized(graph, "none")), (20, 20))


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
@pytest.mark.parametrize("stages, expected", [(0, (3, 2)), (4, (4, 4))])
def test_batches_of_some_rows(comm, stages, expected):
    n = 5000 * comm.size
    weights = np.arange(n - 1) % 16 + 1.0
    chain = sp.diags_array([weights, weights], offsets=[-1, 1]).tocsr() / 16
    graph = Graph.from_scipy(chain, name="chain")
    whole, rank_grid = build(comm, ("mop", (comm.size,), stages), graph, "even", **PLAIN)
    rows_out, rows_in = np.arange(n) % 7 == 0, np.arange(n) % 2 == 1
    made = whole.restrict(rows_out, rows_in)
    assert (whole.num_batches, made.num_batches) == (expected if comm.size > 1 else (1, 1))
    plan = whole.Plan.of(pattern_of(graph, symmetric=True, loops=False), rank_grid)
    check(comm, made, plan.restrict(rows_out, rows_in), chain[rows_out][:, rows_in], (9,))


@pytest.mark.parametrize("comm", [2, 3], indirect=True)
def test_counts_of_some_rows_by_hand(comm):
    pair = comm.group((0, 1) if comm.rank < 2 <= comm.size else (comm.rank,))
    if pair.size == 2:
        layout = BlockLayout(np.array([0, 4, 6]), 1, pair.rank)
        given = options_of(strategy="mop", pipeline_batches=2)
        options = STRATEGIES["mop"].own_options(given, pair.device)
        adjacency = NormalizedAdjacency(make(n=6), dtype=np.float64)
        whole = STRATEGIES["mop"].build(adjacency, RankGrid((2,), layout, options), pair)
        made = whole.restrict(np.array([0, 0, 1, 0, 1, 1]) == 1, np.array([1, 1, 0, 1, 0, 1]) == 1)
        m_in, m_out = (3, 1)[pair.rank], (1, 2)[pair.rank]
        mask = np.zeros((m_out, 1), np.uint8)
        _, sent = counted(pair, made.forward, np.ones((m_in, 3)), mask=mask)
        # rank 0 owns two columns of three: it sends 3 rows of one, returns 2 rows of two, and
        # 1 byte of the mask
        assert sent == [[24 + 32 + 1, 2 + 2 + 1], [16 + 8 + 2, 1 + 1 + 1]][pair.rank]
    pair.close()


@pytest.mark.parametrize("width", [1, 7, 8, 9, 24, 37])
def test_bits_of_some_columns(width):
    keep = np.random.default_rng(9).random((11, width)) < 0.5
    for first in range(width + 1):
        for last in range(first, width + 1):
            out = np.full((11, -(-(last - first) // 8)), 255, np.uint8)
            column_bits(pack_mask(keep), first, last, out)
            np.testing.assert_array_equal(out, pack_mask(keep[:, first:last]))

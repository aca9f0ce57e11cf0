"""Every strategy multiplies by A and its transpose with the planned traffic and memory.

Each entry of STRATEGIES is tested on every grid, graph and restriction below. Features
of a single strategy are tested in test_strategy_details.py.
"""
import dataclasses
import math
import tracemalloc
from itertools import chain, pairwise
from itertools import product as all_of

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make, row_blocks
from training import RANKS, RARE

from hpgcn.comm import collectives
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.kernels import pack_mask
from hpgcn.parallel import csr
from hpgcn.parallel.layout import BlockLayout, divisors
from hpgcn.parallel.pattern import Pattern
from hpgcn.store import load, write_graph
from hpgcn.strategies import STRATEGIES, Product, RankGrid, RowStrategy, read_options

pytestmark = pytest.mark.usefixtures("poisoned")

PLAIN = {"norm": "none", "self_loops": False}
GRAPHS = {  # arguments of `make`, of NormalizedAdjacency, row blocks
    "undirected": ({}, {}, "uneven"),
    "directed": ({"directed": True, "weighted": True}, {}, "gaps"),
    "float32": ({"directed": True}, {"dtype": np.float32}, "balanced"),
    "mean": ({"weighted": True}, {"norm": "row"}, "even"),
    "as it is": ({"directed": True, "weighted": True}, PLAIN, "last"),
    "few vertices": ({"n": 5, "directed": True}, {}, "even"),
    "without entries": ({"n": 12, "degree": 0}, PLAIN, "uneven")}
KINDS = [*GRAPHS]
QUICK = {"p2p": 3, "cover": 2, "vertex-cut": 4, "1d": 3}  # ranks in short runs; of others 4


def cases(P):
    """Yield (P, (strategy, grid, row batches)) and a label for all grids of P ranks.

    With 5 and 7 ranks only each strategy's default grid is used: prime numbers behave
    like 3.
    """
    for name, strategy in STRATEGIES.items():
        axes = strategy.axes.count("x") + 1
        batches = (1, 5) if "pipeline_batches" in strategy.options else (0,)
        for shape in all_of(divisors(P), repeat=axes):
            if math.prod(shape) == P and (P < 5 or shape == strategy.default_shape(P)):
                for stages in batches:
                    label = "x".join(map(str, shape)) + f"-{stages}" * (stages > 0)
                    yield (P, (name, shape, stages)), f"{P} ranks-{name}-{label}"


def is_default(P, case):
    return case[1] == STRATEGIES[case[0]].default_shape(P)


def case_of(*values, label):
    """Return a pytest case; it is marked long or release unless it has a default grid."""
    P, case = values[:2]
    short = QUICK.get(case[0], 4) == P and is_default(P, case)
    later = pytest.mark.release if P in RARE else pytest.mark.long
    return pytest.param(*values, marks=[] if short else [later], id=label)


# each grid in two tests: on two of the graphs, with half of the restrictions each
every_case = pytest.mark.parametrize("comm, case, kind, half", [
    case_of(*values, kind, half, label=f"{label}-{kind}")
    for number, (values, label) in enumerate(chain(*map(cases, RANKS)))
    for half, kind in enumerate((KINDS[2 * number % 7], KINDS[(2 * number + 1) % 7]))
], indirect=["comm"])
# all grids of four ranks, and the grid of each strategy on seven
many_cases = pytest.mark.parametrize("comm, case", [
    case_of(*values, label=label) for P in (4, 7) for values, label in cases(P)],
                                     indirect=["comm"])
some_cases = pytest.mark.parametrize("comm, case", [
    pytest.param(*values, id=label) for values, label in cases(4) if is_default(*values)],
                                     indirect=["comm"])


def graph_of(comm, degree=8, **options):
    """Make a graph like `make`, with random owners of entries; degree 0 leaves no entry at all."""
    graph = make(degree=degree, **options)
    if not degree:
        graph = Graph.from_scipy(sp.csr_array(graph.adjacency.shape))
    parts = np.random.default_rng(4).integers(0, comm.size, graph.indices.size).astype(np.int32)
    return dataclasses.replace(graph, edge_parts=parts)


def build(comm, case, source, blocks="uneven", *, width=20, **options):
    """Build a strategy on row blocks of the kind `blocks`; return it and its RankGrid."""
    name, shape, stages = case
    strategy = STRATEGIES[name]
    rows, columns = strategy.block_grid(shape)
    n = source.header.num_nodes
    offsets = row_blocks(n, rows, blocks)
    if blocks == "balanced":
        offsets = strategy.row_offsets(shape, source.pointers(0, n))
    chosen = read_options(Config(strategy=name, pipeline_batches=stages))
    settings = strategy.own_options(chosen, comm.device)
    rank_grid = RankGrid(shape, BlockLayout(offsets, columns, comm.rank), settings)
    adjacency = NormalizedAdjacency(source, **{"dtype": np.float64, **options})
    return strategy.build(adjacency, rank_grid, comm, width=width), rank_grid


def pattern_of(graph, symmetric, loops=True):
    matrix = graph.adjacency.astype(bool)
    if loops:
        matrix = (matrix + sp.eye_array(graph.num_rows, dtype=bool)).tocsr()
    matrix.sort_indices()
    # the numbers of files
    matrix.indptr, matrix.indices = (each.astype(np.int32)
                                     for each in (matrix.indptr, matrix.indices))
    pattern = Pattern(matrix, symmetric)
    return pattern if graph.edge_parts is None else pattern.with_holders(graph, graph.edge_parts)


def own(layout, M):
    """Return this rank's block of a dense matrix."""
    return np.ascontiguousarray(M[layout.rows.start:layout.rows.stop,
                                  layout.columns_of(M.shape[1])])


def restrictions(offsets):
    """Return pairs of boolean masks (n,) by name.

    A pair has the rows of the result and those of the input.
    """
    n = int(offsets[-1])
    rng = np.random.default_rng(8)
    half, third, few, most = (rng.random(n) < share for share in (0.5, 0.3, 0.05, 0.9))
    every, none = np.ones(n, bool), np.zeros(n, bool)
    gap = np.arange(n) < offsets[-2]
    return {"half": (third, half), "few": (few, third), "most": (half, most),
            "all in": (third, every), "all out": (every, half), "equal": (half, half.copy()),
            "everything": (every, every), "a block without rows out": (half & gap, most),
            "a block without rows in": (third, half & gap),
            "nothing out": (none, half), "nothing in": (half, none), "nothing": (none, none)}


def counted(comm, call, *args, **options):
    """Call a function; return its result and the [bytes, messages] that this rank sent."""
    comm.counters.phase = "counted"
    before = comm.counters.total("counted")
    result = call(*args, **options)
    sent = np.subtract(comm.counters.total("counted"), before)
    comm.counters.phase = "setup"
    return result, sent.tolist()


def check(comm, made, plan, A, widths, dtype=np.float64):
    """Compare products, masks and traffic of a strategy.

    They equal those of the dense matrix (n_out, n_in) and of the plan.
    """
    bound = 2e-5 if dtype == np.float32 else 1e-12
    itemsize = np.dtype(dtype).itemsize
    rng = np.random.default_rng(2)
    traffic = made.traffic()
    for width in widths:
        dots = []
        H, G = (rng.standard_normal((rows, width)).astype(dtype) for rows in A.shape[::-1])
        keeps = [rng.random((rows, width)) < 0.5 for rows in A.shape]
        directions = (made.forward, A, H, made.layout_in, made.layout), (
            made.backward, A.T, G, made.layout, made.layout_in)
        for backward, (multiply, matrix, X, layout_in, layout) in enumerate(directions):
            x = own(layout_in, X)
            keep = own(layout, keeps[backward])
            out = np.full(keep.shape, np.nan, dtype)
            result, sent = counted(comm, multiply, x, out=out)
            assert result is out
            np.testing.assert_allclose(out, own(layout, matrix @ X), rtol=bound, atol=bound)
            np.testing.assert_array_equal(x, own(layout_in, X))  # the array must be unchanged

            again, sent_masked = counted(comm, multiply, x, mask=pack_mask(keep),
                                         out=np.full(keep.shape, np.nan, dtype))
            np.testing.assert_array_equal(again, np.where(keep, out, 0))
            for masked, amount in ((False, sent), (True, sent_masked)):
                product = Product(0, width, masked, bool(backward))
                planned = plan.traffic.counts(product, itemsize)
                assert planned[:, comm.rank].tolist() == amount
                assert traffic.counts(product, itemsize).tolist() == planned.tolist()
            dots.append((out * own(layout, (H, G)[not backward])).sum(dtype=np.float64))
        forward, backward = comm.sum(dots)
        assert forward == pytest.approx(backward, rel=100 * bound, abs=100 * bound * A.nnz)


def check_held(made, plan, rank):
    """Compare the number of entries and row pointers that a strategy stores with its plan."""
    if isinstance(made, RowStrategy):
        blocks = made.product.all_blocks() + made.back.all_blocks()
        arrays = {id(block): (block.indptr, block.indices) for block in blocks}.values()
    elif hasattr(made, "operand"):
        arrays = [(each.block.indptr, each.block.indices)
                  for each in {made.operand, made.operand_back}]
    else:
        arrays = [blocks.unpack(message, blocks.entries[stage])[:2]
                  for blocks in {made.A, made.A_transposed}
                  for stage, message in blocks.messages.items() if message.size]
    entries = sum(indices.size for _, indices in arrays)
    pointers = sum(indptr.size for indptr, _ in arrays)
    said = [sum(int(sizes[rank]) for sizes in each) for each in zip(*(
        (operand.entries, operand.pointers) for operand in plan.stored_operands))]
    assert said == [entries, pointers]


@every_case
def test_it_is_the_matrix_and_sends_and_holds_what_is_planned(comm, case, kind, half):
    made_of, options, blocks = GRAPHS[kind]
    graph = graph_of(comm, **made_of)
    dtype = options.get("dtype", np.float64)
    norm, loops = options.get("norm", "sym"), options.get("self_loops", True)
    whole, rank_grid = build(comm, case, graph, blocks, **options)
    assert whole.symmetric == (norm != "row" and not graph.header.directed)
    A = sp.csr_array(oracle.normalized(graph, norm, loops))
    plan = whole.Plan.of(pattern_of(graph, whole.symmetric, loops), rank_grid)
    check(comm, whole, plan, A, (20, 1, 7), dtype)
    check_held(whole, plan, comm.rank)
    assert plan.buffer_bytes(20, np.dtype(dtype).itemsize)[comm.rank] == whole.buffer_bytes

    rows = dict([*restrictions(rank_grid.layout.offsets).items()][half::2])
    # all before the first is used
    maps = {name: whole.restrict(*kept) for name, kept in rows.items()}
    for turn, (name, (rows_out, rows_in)) in enumerate(rows.items()):
        made = maps[name]
        part = plan.restrict(rows_out, rows_in)
        for layout, kept in ((made.layout, rows_out), (made.layout_in, rows_in)):
            heights = [kept[lo:hi].sum() for lo, hi in pairwise(rank_grid.layout.offsets)]
            assert np.diff(layout.offsets).tolist() == heights, name
        assert (type(made), made.symmetric, made.buffer_bytes) == (type(whole), whole.symmetric, 0)
        check(comm, made, part, A[rows_out][:, rows_in], [(20, 1, 7)[turn % 3]], dtype)
        check_held(made, part, comm.rank)
    for made in maps.values():
        made.close()
    check(comm, whole, plan, A, [7], dtype)  # still right after restricted maps
    whole.close()


@many_cases
@pytest.mark.parametrize("directed", [False, True])
def test_a_path_by_hand(comm, case, directed):
    """On the path 0 - 1 - ... - 11, products restricted to three rows equal sums by hand."""
    path = sp.diags_array(np.ones(11), offsets=1, shape=(12, 12)).tocsr()
    whole, _ = build(comm, case, Graph.from_scipy(path, symmetrize=not directed), "even", **PLAIN)
    made = whole.restrict(np.isin(np.arange(12), [0, 5, 11]), np.isin(np.arange(12), [1, 4, 6]))
    H, G = np.array([[101.0], [104], [106]]), np.array([[100.0], [105], [111]])
    for multiply, x, layout_in, layout, expected in (
            (made.forward, H, made.layout_in, made.layout, [[101, 210, 0], [101, 106, 0]]),
            (made.backward, G, made.layout, made.layout_in, [[100, 105, 105], [100, 0, 105]])):
        expected = np.array(expected[directed], float)[:, None]
        np.testing.assert_array_equal(multiply(own(layout_in, x)), own(layout, expected))
    made.close()
    whole.close()


@pytest.mark.long
@some_cases
def test_a_graph_in_a_file(comm, case, tmp_path):
    graph = make(67, directed=True, weighted=True)
    path = comm.bcast(str(tmp_path / "graph.h5"))
    if comm.rank == 0:
        write_graph(path, graph)
    comm.barrier()
    with load(path) as stored:
        made, rank_grid = build(comm, case, stored)
    plan = made.Plan.of(pattern_of(graph, symmetric=False), rank_grid)
    check(comm, made, plan, sp.csr_array(oracle.normalized(graph)), [3])
    made.close()
    comm.barrier()


@pytest.mark.long
@some_cases
def test_buffers_grow_and_are_made_once(comm, case):
    n, f = 6000, 40
    chain = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]).tocsr()
    graph = Graph.from_scipy(chain, name="chain")
    wide, _ = build(comm, case, graph, "even", width=f)
    grown, _ = build(comm, case, graph, "even", width=0)
    rng = np.random.default_rng(5)
    for width in (0, 3, f):
        H = own(wide.layout, rng.standard_normal((n, width)))
        for one, other in ((wide.forward, grown.forward), (wide.backward, grown.backward)):
            assert one(H).tobytes() == other(H).tobytes()
    assert grown.buffer_bytes <= wide.buffer_bytes
    grown.reserve(f)
    size = grown.buffer_bytes
    assert size == wide.buffer_bytes
    mask = np.full((len(H), -(-H.shape[1] // 8)), 255, np.uint8)
    part = grown.restrict(np.arange(n) % 8 > 0, np.ones(n, bool))
    out, few = np.empty_like(H), part.forward(H)
    grown.forward(H, mask=mask, out=out)
    part.backward(few, out=out)
    comm.barrier()
    if comm.rank == 0:  # counters of this process, which has all ranks
        tracemalloc.start()
    comm.barrier()
    grown.forward(H, mask=mask, out=out)
    part.forward(H, out=few)
    part.backward(few, out=out)
    comm.barrier()
    if comm.rank == 0:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.3 * 8 * n * f + comm.size * 50_000
    assert grown.buffer_bytes == size
    for made in (part, grown, wide):
        made.close()


@pytest.mark.long
@some_cases
@pytest.mark.parametrize("directed", [False, True])
def test_messages_in_pieces_and_products_in_tiles_change_no_bit(comm, case, directed, monkeypatch):
    graph = make(directed=directed)
    H = np.random.default_rng(5).standard_normal((graph.num_rows, 20))
    results, counts = [], []
    for limit, nonzeros in ((1 << 30, 1 << 13), (1 << 30, 20), (1000, 1 << 13)):
        comm.barrier()  # no rank is at another limit
        monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", limit)
        monkeypatch.setattr(csr, "TILE_NONZEROS", nonzeros)
        made, _ = build(comm, case, graph)
        mine = own(made.layout, H)
        forward, sent_forward = counted(comm, made.forward, mine)
        backward, sent_backward = counted(comm, made.backward, mine)
        results.append((forward, backward))
        counts.append((sent_forward, sent_backward))
        made.close()
    assert counts[0] == counts[1] == counts[2]
    whole, tiled, pieces = ([part.tobytes() for part in result] for result in results)
    assert whole == tiled and whole[0] == pieces[0]
    np.testing.assert_allclose(results[0][1], results[2][1], atol=1e-13)
    # MPI may add up a sum in pieces in another order
    if not (directed and isinstance(made, RowStrategy)):
        assert whole[1] == pieces[1]


@some_cases
def test_an_error_of_one_rank_is_raised_on_all(comm, case):
    graph = make()

    class Broken:
        header, where = graph.header, graph.where
        degrees, pointers, slab = graph.degrees, graph.pointers, graph.slab
        edge_part = graph.edge_part

        def adjacency_rows(self, start, stop):
            if comm.rank == 0:  # other ranks may have no rows to read
                raise DataError("made: block 3 of adjacency/indices_1 is damaged")
            return graph.adjacency_rows(start, stop)

    if STRATEGIES[case[0]].requires_partition:  # it multiplies by the rows that were read before
        build(comm, case, Broken(), "even")[0].close()
        return
    with pytest.raises(DataError, match="block 3 of adjacency"):
        build(comm, case, Broken(), "even")

"""Results of make_partition by each method: quality, reproducibility and refusals."""
import dataclasses
import importlib.util
import sys

import numpy as np
import pytest
from arrays import assert_all, assert_some
from commands import python
from small_graphs import edges, grid, two_cliques

from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import (
    METHODS,
    NONZERO_METHODS,
    given_partition,
    make_partition,
    statistics,
)
from hpgcn.partition.engines.engine_registry import ENGINES, kahypar_ini
from hpgcn.partition.rows.partition_model import column_nets, neighbors, pattern

# the call of KaHyPar depends on the method's nets only by their costs
CHOICES = [(method, engine) for method in METHODS for engine in METHODS[method].engines or (None,)
           if engine != "kahypar" or method in ("hypergraph", "stochastic")]
# test_partition_nonzeros.py and test_partition_stochastic.py have more tests of these
LONG = {"best", "stochastic", "cover", "medium-grain", "fine-grain"}


@pytest.fixture(params=[
    pytest.param(choice, marks=[pytest.mark.long] * (choice[0] in LONG),
                 id="-".join(filter(None, choice))) for choice in CHOICES])
def choice(request):
    method, engine = request.param
    if engine and importlib.util.find_spec(ENGINES[engine].module) is None:
        pytest.skip(f"{engine} is not installed")
    return {"method": method, "engine": engine}


def check(partition, n, k):
    assert partition.part.shape == (n,) and partition.k == k
    np.testing.assert_array_equal(np.sort(partition.perm), np.arange(n))
    np.testing.assert_array_equal(partition.perm[partition.iperm], np.arange(n))
    sizes = np.bincount(partition.part, minlength=k)
    np.testing.assert_array_equal(np.diff(partition.offsets), sizes)
    np.testing.assert_array_equal(partition.part[partition.perm], np.repeat(np.arange(k), sizes))


def with_isolated(directed):
    """Return a graph of 1200 vertices, 500 of them isolated, and which are not, (n,) bool."""
    rng = np.random.default_rng(1)
    tails, heads = rng.choice(700, (2, 6000))
    tails[tails < 50] += 50  # in a directed graph these are only read
    pairs = rng.permutation(1200)[np.stack([tails, heads], 1)]
    linked = np.zeros(1200, bool)
    linked[pairs] = True
    return edges(1200, pairs, symmetrize=not directed), linked


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("w0", [0, 3])
@pytest.mark.parametrize("method, options", [
    ("best", {}), ("best", {"effort": "fast"}), ("hypergraph", {"effort": "best"}), ("graph", {}),
    ("graph", {"engine": "kaminpar"}), ("hypergraph", {"engine": "kahypar"}), ("stream", {}),
    ("stochastic", {}), ("best", {"nested": True}), ("hypergraph", {"nodes": 2})], ids=str)
def test_isolated_vertices_go_to_the_parts_with_the_fewest_rows(method, options, directed, w0):
    for module in ("mtkahypar", "pymetis", options.get("engine", "numpy")):
        pytest.importorskip(module)
    graph, linked = with_isolated(directed)
    found = make_partition(graph, 4, method=method, w0=w0, **options)
    sizes = np.bincount(found.part, minlength=4)
    assert sizes.max() <= 1.06 * 300
    load = np.bincount(found.part, np.diff(pattern(graph).indptr) + w0)
    assert load.max() <= 1.011 * load.mean()
    # no message depends on them
    rest = Graph.from_scipy(graph.adjacency[linked][:, linked])
    counted = statistics(rest, found.part[linked], 4)
    for name in ("volume", "volume_max", "messages"):
        assert counted[name] == found.statistics[name]


@pytest.mark.parametrize("k", [2, 3, 7, 8])
@pytest.mark.parametrize("method", ["best", "stream", "stochastic", "hypergraph"])
def test_few_vertices_with_edges(method, k):
    pytest.importorskip("mtkahypar")
    graph = edges(8, [(5, 6), (6, 7)])
    for options in ({}, {"effort": "fast"}, {"nested": True} if k % 2 == 0 else {}):
        part = make_partition(graph, k, method=method, **options).part
        assert np.bincount(part, minlength=k).max() <= -(-8 // k) + (k == 7)


def test_a_large_imbalance_is_explained(caplog):
    with caplog.at_level("INFO", "hpgcn"):
        make_partition(with_isolated(False)[0], 4, method="stream")
        assert "times the mean" not in caplog.text
        make_partition(edges(40, [(0, j) for j in range(1, 20)]), 4, method="block")
    line, = [line for line in caplog.messages if "number of rows" in line]
    assert "times the mean number of rows, and its rank needs as much more memory" in line


@pytest.mark.long
@pytest.mark.parametrize("k", [3, 20])  # KaHyPar: direct, recursive
def test_twice_the_same(choice, k):
    graph = grid(20)
    before = {field.name: np.copy(getattr(graph, field.name)) for field in dataclasses.fields(Graph)
              if isinstance(getattr(graph, field.name), np.ndarray)}
    first, second = (make_partition(graph, k, **choice, seed=5) for _ in range(2))
    check(first, 400, k)
    np.testing.assert_array_equal(first.part, second.part)
    np.testing.assert_array_equal(first.perm, second.perm)
    assert first.statistics == second.statistics
    for name, array in before.items():  # the input is unchanged
        np.testing.assert_array_equal(getattr(graph, name), array)


def test_balance(choice):
    graph = grid(20)
    weights = np.diff(graph.indptr) + 1
    made = make_partition(graph, 4, **choice, epsilon=0.1)
    part = made.part
    limit = 1.1 * -(-weights.sum() // 4) + weights.max() * (choice["method"] == "block")
    if choice["method"] == "random":  # this method balances rows
        assert np.bincount(part).tolist() == [100] * 4
    elif choice["method"] == "distgnn":  # this method draws owners
        assert made.statistics["imbalance_nnz"] <= 0.1
    elif choice["method"] in NONZERO_METHODS:  # rows have a limit of their own
        assert np.bincount(part).max() <= 110
        assert made.statistics["imbalance_nnz"] <= 0.1001
    else:
        assert np.bincount(part, weights).max() <= limit


@pytest.mark.parametrize("engine", ["mtkahypar", "kahypar", "metis", "kaminpar"])
def test_two_cliques(engine):
    pytest.importorskip(ENGINES[engine].module)
    method = "graph" if engine in METHODS["graph"].engines else "hypergraph"
    result = make_partition(two_cliques(), 2, method=method, engine=engine)
    assert len(set(result.part[::2])) == len(set(result.part[1::2])) == 1
    # the joining edge: each end is sent once
    assert result.statistics["volume"] == result.statistics["messages"] == 2
    assert result.statistics["imbalance_nnz"] == 0.0
    assert (result.method, result.engine, result.epsilon) == (method, engine, 0.01)
    assert result.engine_version


@pytest.mark.long
def test_mtkahypar_counts_the_same_volume():
    library = pytest.importorskip("mtkahypar")
    graph = grid(16)
    result = make_partition(graph, 5, epsilon=0.05)
    run = library.initialize(1)
    context = run.context_from_preset(library.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(5, 0.05, library.Objective.KM1)
    dense = graph.adjacency.toarray() + np.eye(256)
    nets = [np.flatnonzero(column).tolist() for column in dense.T]
    model = run.create_hypergraph(context, 256, 256, nets)
    parts = model.create_partitioned_hypergraph(context, 5, result.part.tolist())
    assert parts.km1() == result.statistics["volume"]


def test_models_literal():
    # rows 0: {1}, 2: {1}, 3: {0, 1}; columns with the diagonal 0: {0, 3}, 1: {0, 1, 2, 3}, 2: {2},
    # 3: {3}
    rows = pattern(edges(4, [(0, 1), (2, 1), (3, 0), (3, 1), (1, 1)], symmetrize=False))
    assert np.diff(rows.indptr).tolist() == [2, 1, 2, 3]
    offsets, pins = column_nets(rows)
    assert offsets.tolist() == [0, 2, 6]  # nets of one pin are left out
    assert pins.tolist() == [0, 3, 0, 1, 2, 3]
    offsets, adjacent = neighbors(rows)
    assert offsets.tolist() == [0, 2, 5, 6, 8]
    assert adjacent.tolist() == [1, 3, 0, 2, 3, 1, 0, 1]


@pytest.mark.release
def test_real_graph(enron):
    pytest.importorskip("mtkahypar")
    one, two = (make_partition(enron, 4, epsilon=0.03, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.part, two.part)
    assert 12_800 < one.statistics["volume"] < 13_700
    assert one.statistics["imbalance_nnz"] <= 0.0301
    random = make_partition(enron, 4, method="random", rcm=False)
    assert one.statistics["volume"] < 0.25 * random.statistics["volume"]
    if importlib.util.find_spec("pymetis"):
        cut = make_partition(enron, 4, method="graph", epsilon=0.03)
        assert one.statistics["volume"] < cut.statistics["volume"]
        assert cut.statistics["volume"] < 0.3 * random.statistics["volume"]


def test_random_is_keyed():
    graph = edges(1000, [])
    first, other = (make_partition(graph, 4, method="random", seed=seed) for seed in (1, 2))
    assert np.bincount(first.part).tolist() == [250] * 4
    assert 0.2 < np.mean(first.part == other.part) < 0.3
    assert sorted(np.bincount(make_partition(edges(7, []), 3, method="random").part)) == [2, 2, 3]


def test_block_balances_nonzeros():
    graph = edges(6, [(0, j) for j in range(1, 6)])  # rows of 6, 2, 2, 2, 2, 2 with the diagonal
    assert make_partition(graph, 2, method="block").part.tolist() == [0, 0, 1, 1, 1, 1]
    assert make_partition(graph, 2, method="block", w0=1000).part.tolist() == [0, 0, 0, 1, 1, 1]
    star = edges(100, [(50, j) for j in range(100) if j != 50])
    assert_all(np.diff(make_partition(star, 8, method="block").part) >= 0)


def test_trivial_cases(choice):
    path = edges(5, [(i, i + 1) for i in range(4)])
    one = make_partition(path, 1, **choice)
    assert one.part.tolist() == [0] * 5
    assert one.statistics["volume"] == one.statistics["messages"] == 0
    five = make_partition(path, 5, **choice)
    if choice["method"] not in ("vertex-cut", "distgnn"):
        assert np.bincount(five.part, minlength=5).max() <= 2
    check(five, 5, 5)
    isolated = make_partition(edges(10, []), 5, **choice)
    assert np.bincount(isolated.part).tolist() == [2] * 5
    check(make_partition(edges(1, []), 1, **choice), 1, 1)
    check(make_partition(edges(50, [(0, 1), (1, 2), (3, 3), (4, 4)]), 3, **choice), 50, 3)


def test_no_engine_where_none_is_needed(monkeypatch):
    for engine in ENGINES.values():
        monkeypatch.setitem(sys.modules, engine.module, None)
    for k in (1, 9):
        result = make_partition(grid(3), k)
        assert (result.method, result.engine, result.engine_version) == ("best", "", "")
        assert result.epsilon == 0.0


@pytest.mark.long
@pytest.mark.parametrize("k", [7, 199])
def test_a_vertex_too_heavy_for_any_balance(choice, k):
    result = make_partition(edges(200, [(0, j) for j in range(1, 200)]), k, **choice)
    check(result, 200, k)
    loads = np.bincount(result.part, np.r_[200, np.full(199, 2)], k)
    # the hub is nearly alone, the others as they can be, if rows are whole
    if result.engine == "mtkahypar" and result.edge_part is None:
        assert loads.max() <= max(200, 1.01 * -(-598 // k)) + 4


@pytest.mark.long
def test_extremes(choice):
    check(make_partition(two_cliques(), 3, **choice, epsilon=1e300), 20, 3)
    extremes = {"w0": 2**31 - 1, "seed": 2**63 - 1}
    result = make_partition(grid(10), 4, **choice, **extremes, epsilon=0.05)
    if choice["method"] != "distgnn":  # its owners are drawn at random, not balanced
        assert np.bincount(result.part, minlength=4).max() <= 27


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"k": 0}, UsageError, "k = 0: expected at least 1"),
    ({"k": 2.0}, UsageError, r"k = 2\.0: expected an integer"),
    ({"k": 10}, DataError, r"cannot make 10 parts of 9 vertices, expected 1\.\.9"),
    ({"epsilon": -0.1}, UsageError, r"epsilon = -0\.1: expected a number of at least 0"),
    ({"epsilon": float("nan")}, UsageError, "epsilon = nan"),
    ({"epsilon": "0.1"}, UsageError, "epsilon = '0.1'"),
    ({"w0": -1}, UsageError, r"w0 = -1: expected 0 to 2147483647"),
    ({"seed": -1}, UsageError, "seed = -1"),
    ({"seed": 2**63}, UsageError, "seed = 9223372036854775808"),
    ({"time_limit": 0}, UsageError, "time_limit = 0: expected a number above 0"),
    ({"memory": 0}, UsageError, "memory = 0: expected at least 1"),
    ({"threads": 0}, UsageError, "threads = 0: expected at least 1"),
    ({"method": "hypergraf"}, UsageError, "block, random; did you mean hypergraph"),
    ({"method": "xyz"}, UsageError, "expected one of best, hypergraph, graph, .*random$"),
    ({"engine": "metis"}, UsageError, "method best takes one of mtkahypar, kahypar"),
    ({"method": "block", "engine": "metis"}, UsageError, "method block takes none"),
])
def test_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_partition(grid(3), **{"k": 2, **arguments})


def test_slab_refused():
    slab = grid(3).slab(2, 7)
    for arguments in ((make_partition, 2), (given_partition, np.zeros(9, int), 2)):
        with pytest.raises(DataError, match="5 of 9 rows in memory, expected all"):
            arguments[0](slab, *arguments[1:])


def test_given_parts():
    graph = grid(20)
    made = make_partition(graph, 4, method="block")
    given = given_partition(graph, made.part.astype(np.int64), 4)
    np.testing.assert_array_equal(given.perm, made.perm)
    assert given.statistics == made.statistics
    assert (given.method, given.engine, given.k) == ("given", "", 4)
    assert np.diff(given_partition(graph, made.part, 4, rcm=False).perm).tolist() == [1] * 399
    with_empty = given_partition(graph, made.part, 6)
    assert with_empty.offsets.tolist() == [*made.offsets.tolist(), 400, 400]
    for part, message in [(made.part[:-1], r"shape \(399,\)"), (made.part + 3, "has part 4")]:
        with pytest.raises(DataError, match=message):
            given_partition(graph, part, 4)


@pytest.mark.long
def test_engine_seeds_have_31_bits():
    pytest.importorskip("pymetis")
    parts = [make_partition(grid(30), 6, method="graph", seed=seed).part
             for seed in (0, 1, 2**31 - 1)]
    np.testing.assert_array_equal(parts[0], parts[2])
    assert_some(parts[0] != parts[1])


def test_kahypar_configuration_is_direct_for_few_parts():
    direct, recursive = (dict(line.split("=") for line in kahypar_ini(k).splitlines())
                         for k in (16, 17))
    assert (direct["mode"], direct["r-type"], direct["i-c-t"]) == ("direct", "kway_fm_km1", "150")
    assert (recursive["mode"], recursive["r-type"]) == ("recursive", "twoway_fm")
    assert not any(key.startswith("i-c-") for key in recursive)


def test_imports_without_engines_mpi_or_hdf5():
    code = ("import sys; absent = ['mtkahypar', 'kahypar', 'pymetis', 'mpi4py', 'h5py']\n"
            "sys.modules.update(dict.fromkeys(absent))\n"
            "import hpgcn.partition, hpgcn.graphs.reordering; print('numba' in sys.modules)")
    assert python("-c", code).stdout == "False\n"

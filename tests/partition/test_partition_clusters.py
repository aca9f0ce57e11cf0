"""Methods and engines run if they are named: on all vertices, or on clusters of them."""
import logging
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_some
from small_graphs import edges, grid

from hpgcn import errors, load, store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.graphs.graph import Graph
from hpgcn.partition import describe, make_partition, partition_request
from hpgcn.partition.effort import DEFAULT, FAST, expected_seconds
from hpgcn.partition.engines.engine_process import run_engine
from hpgcn.partition.partition_memory import needed_memory
from hpgcn.partition.rows import row_methods
from hpgcn.partition.rows.partition_model import cluster_nets, column_nets, pattern


@pytest.fixture
def coarse(monkeypatch):
    """Let a graph of any size count as a large one."""
    monkeypatch.setattr(row_methods, "COARSE", 0)


@pytest.fixture
def runs(monkeypatch):
    """Return a list of the runs of engines: name, arrays and result of each."""
    found = []

    def recorded(name, arrays, settings, **limits):
        found.append((name, arrays, run_engine(name, arrays, settings, **limits)))
        return found[-1][2]

    monkeypatch.setattr(partition_request, "run_engine", recorded)
    return found


def power_law(n=1500, seed=0):
    """Return a graph whose entries are drawn with chances that fall with the vertex."""
    draws = np.random.default_rng(seed)
    return edges(n, (n * draws.random((4 * n, 2)) ** 2).astype(int))


def listed(nets):
    return sorted(tuple(sorted(nets["pins"][a:b].tolist())) for a, b in pairwise(nets["offsets"]))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (30, 30), (12, 30)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.4])
def test_nets_of_clusters_equal_a_plain_count(shape, density):
    """Patterns are directed, with empty rows and columns, or are pieces that are not square."""
    draws = np.random.default_rng(3)
    dense = draws.random(shape) < density
    dense[:, 0] = dense[-1] = False
    rows = sp.csr_array(dense)
    for size in (1, 3, shape[0]):
        number = draws.integers(size, size=shape[0]).astype(np.int32)
        expected = [{int(number[i]) for i in np.flatnonzero(column)} for column in dense.T]
        found = cluster_nets(rows, number, size, 10**6)
        assert listed(found) == sorted(tuple(sorted(net)) for net in expected if len(net) > 1)
        np.testing.assert_array_equal(rows.toarray(), dense)  # it is not changed
    single = cluster_nets(rows, np.arange(shape[0], dtype=np.int32), shape[0], 10**6)
    assert listed(single) == listed(dict(zip(("offsets", "pins"), column_nets(rows))))


def test_large_nets_of_clusters_are_a_keyed_sample():
    rows = pattern(power_law())
    number = np.arange(rows.shape[0], dtype=np.int32) // 2
    whole = cluster_nets(rows, number, 750, 10**6)
    made = [cluster_nets(rows, number, 750, 2000, seed) for seed in (0, 0, 1)]
    for nets in made:
        assert 1900 < nets["pins"].size <= 2000
        assert set(listed(nets)) <= set(listed(whole))
    assert listed(made[0]) == listed(made[1]) != listed(made[2])


@pytest.mark.parametrize("method, engine", [
    ("hypergraph", "mtkahypar"), ("hypergraph", "kahypar"), ("graph", "metis"),
    ("graph", "kaminpar"), ("best", "mtkahypar"), ("cover", "mtkahypar")])
def test_engine_asked_for_divides_clusters(coarse, runs, method, engine):
    pytest.importorskip("pymetis" if engine == "metis" else engine)
    graph = power_law()
    made = make_partition(graph, 2, method=method, engine=engine)
    (name, arrays, _), = runs
    assert name == made.engine == engine and made.start == "scratch"
    clusters, what = made.divided.split()
    assert arrays["weights"].size <= int(clusters) < graph.num_rows and what == "clusters"
    assert made.seconds > 0 and "engine_volume" not in made.statistics
    assert made.statistics["volume"] < 0.9 * make_partition(
        graph, 2, method="random").statistics["volume"]
    again = make_partition(graph, 2, method=method, engine=engine, threads=1)
    np.testing.assert_array_equal(made.part, again.part)


def test_hypergraph_and_graph_differ_on_clusters(coarse, runs):
    pytest.importorskip("mtkahypar")
    pytest.importorskip("pymetis")
    graph = power_law()
    made = {method: make_partition(graph, 4, method=method, refine=False)
            for method in ("hypergraph", "graph")}
    assert_some(made["hypergraph"].part != made["graph"].part)
    assert [each.engine for each in made.values()] == ["mtkahypar", "metis"]
    assert made["hypergraph"].statistics["volume"] < made["graph"].statistics["volume"]

    # the engine's own count, net by net
    _, arrays, (part, volume) = runs[0]
    assert volume == sum(len(set(part[arrays["pins"][a:b]])) - 1
                         for a, b in pairwise(arrays["offsets"]))


def test_large_matrices_of_few_vertices_are_divided_whole(coarse):
    """There are no clusters if a part has few vertices."""
    pytest.importorskip("mtkahypar")
    made = make_partition(grid(8), 4, method="hypergraph")
    assert (made.engine, made.divided, made.start) == ("mtkahypar", "vertices", "scratch")
    for k in (1, 64):
        assert make_partition(grid(8), k, method="hypergraph").engine == ""


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("options", [{}, {"nodes": 2}, {"nested": True}])
def test_hypergraph_parts_begin_from_scratch(monkeypatch, runs, large, options):
    pytest.importorskip("mtkahypar")
    monkeypatch.setattr(partition_request, "SMALL", 0)
    monkeypatch.setattr(row_methods, "COARSE", 0 if large else 1 << 30)
    made = make_partition(grid(24), 4, method="hypergraph", **options)
    assert made.engine == "mtkahypar"
    assert {name for name, _, _ in runs} == {"mtkahypar"}
    assert not any("start" in arrays for _, arrays, _ in runs)


def test_best_improves_parts_by_metis(monkeypatch, runs):
    pytest.importorskip("mtkahypar")
    pytest.importorskip("pymetis")
    monkeypatch.setattr(partition_request, "SMALL", 0)
    made = make_partition(grid(24), 4)
    assert [name for name, _, _ in runs] == ["metis", "mtkahypar"]
    if made.winner == "hypergraph":
        assert (made.divided, made.start) == ("vertices", "metis")
    assert "from parts of metis in " in describe(made) or made.winner == "graph"


@pytest.mark.parametrize("options, message", [
    ({"method": "graph", "engine": "mtkahypar"}, "method graph takes one of metis, kaminpar"),
    ({"method": "stream", "engine": "metis"}, "method stream takes none"),
    ({"method": "hypergraph", "engine": "mtkahypar", "effort": FAST},
     "method hypergraph of effort fast runs no engine"),
    ({"method": "cover", "engine": "kahypar", "effort": FAST}, "runs no engine")])
def test_an_engine_that_would_not_run_is_refused(options, message):
    with pytest.raises(errors.UsageError, match=message):
        make_partition(grid(4), 2, **options)


@pytest.mark.parametrize("method, module", [("hypergraph", "mtkahypar"), ("graph", "pymetis")])
def test_missing_engine_is_refused_on_clusters(coarse, monkeypatch, method, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(errors.MissingError, match=f"needs {module}"):
        make_partition(grid(24), 2, method=method)


def test_work_is_stored_and_logged(tmp_path, caplog):
    pytest.importorskip("mtkahypar")
    graph = Graph.from_scipy(np.kron(np.eye(4), np.ones((5, 5))))
    with caplog.at_level(logging.DEBUG, "hpgcn"):  # what takes seconds is logged as INFO
        made = make_partition(graph, 2, method="hypergraph")
    text = f"by mtkahypar {made.engine_version} on vertices from scratch in {made.seconds:.1f} s"
    assert made.work == text and text in describe(made) and text in caplog.text
    store.write_partitioned(tmp_path / "g.h5", graph, made)
    with load(tmp_path / "g.h5") as stored:
        kept = stored.vertex_partition
    assert (kept.divided, kept.start, kept.seconds) == ("vertices", "scratch", made.seconds)
    assert "seconds" not in kept.statistics
    assert f"method hypergraph {text}, seed 0" in describe_file(tmp_path / "g.h5")


def test_forecasts_of_a_large_hypergraph():
    """Nets of clusters take longer and more memory than METIS, for graphs of any size."""
    sizes = np.full(1 << 20, 16)
    plain = expected_seconds(DEFAULT, sizes, 8)
    nets = expected_seconds(DEFAULT, sizes, 8, nets=True)
    assert 2 * plain < nets < 200
    header = SimpleNamespace(num_nodes=1 << 22, num_edges=1 << 26, num_splits=1)
    need = needed_memory(header, 8, "hypergraph", DEFAULT)
    assert needed_memory(header, 8, "best", DEFAULT) <= need < 6 * 10**9

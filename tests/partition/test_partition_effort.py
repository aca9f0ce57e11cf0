"""Effort of partitions: equal parts for any number of threads, and forecasts of seconds."""
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from small_graphs import grid, roads

from hpgcn import errors, load, store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.partition import describe, make_partition, partition_request
from hpgcn.partition.effort import BEST, DEFAULT, FAST, expected_seconds, paying_effort
from hpgcn.partition.engines.engine_registry import quick_ini
from hpgcn.partition.partition_memory import needed_memory

EDGES = 1 << 21  # sizes of a larger graph, only for forecasts


@pytest.fixture
def no_small(monkeypatch):
    """Let a small graph count as a large one."""
    monkeypatch.setattr(partition_request, "SMALL", 0)


@pytest.mark.parametrize("method", [
    "best", "cover", pytest.param("hypergraph", marks=pytest.mark.long)])  # a part of best
def test_default_effort_is_the_same_on_any_threads(no_small, method):
    pytest.importorskip("mtkahypar")
    made = [make_partition(grid(24), 4, method=method, threads=threads) for threads in (1, 3)]
    np.testing.assert_array_equal(made[0].part, made[1].part)
    assert made[0].effort == DEFAULT
    assert f"effort {DEFAULT}" in describe(made[0])


def test_default_effort_improves_parts_with_few_cut_edges(no_small):
    pytest.importorskip("mtkahypar")
    pytest.importorskip("pymetis")
    graph = grid(24)
    volume = {effort: make_partition(graph, 4, effort=effort).statistics["volume"]
              for effort in (FAST, DEFAULT, BEST)}
    cut = make_partition(graph, 4, method="graph", refine=False).statistics["volume"]
    assert volume[DEFAULT] <= min(cut, volume[FAST])
    assert volume[BEST] <= 1.02 * volume[DEFAULT]


def test_default_effort_is_near_the_best_in_sparse_patterns(no_small):
    """Parts of effort default begin with METIS, and send 6% more rows than those of best."""
    pytest.importorskip("mtkahypar")
    pytest.importorskip("pymetis")
    graph = roads(64, seed=1)
    volume = {effort: make_partition(graph, 48, method="hypergraph",
                                     effort=effort).statistics["volume"]
              for effort in (DEFAULT, BEST)}
    assert volume[DEFAULT] <= 1.02 * volume[BEST]


def test_default_effort_compares_no_parts_of_sparse_patterns(monkeypatch):
    """Parts with few cut edges are made only for dense or small patterns, or effort best."""
    engines = []

    def engine(name, arrays, settings, **_):
        engines.append(name)
        return np.arange(arrays["weights"].size, dtype=np.int32) % settings["k"], None

    monkeypatch.setattr(partition_request, "run_engine", engine)
    graphs = {"sparse": roads(8), "denser": grid(8)}
    for small in (0, 1 << 16):
        monkeypatch.setattr(partition_request, "SMALL", small)
        for kind, graph in graphs.items():
            for effort in (DEFAULT, BEST):
                engines.clear()
                make_partition(graph, 4, effort=effort)
                alone = (small, kind, effort) == (0, "sparse", DEFAULT)
                assert engines == ["mtkahypar"] if alone else sorted(engines) == [
                    "metis", "mtkahypar"]


@pytest.mark.parametrize("method", ["best", "hypergraph", "graph", "cover"])
def test_fast_effort_streams_without_an_engine(method):
    made = make_partition(grid(12), 4, method=method, effort=FAST)
    assert (made.method, made.engine, made.effort) == (method, "", FAST)
    if method != "cover":
        rival = make_partition(grid(12), 4, method="stream")
        np.testing.assert_array_equal(made.part, rival.part)
        assert rival.effort == ""


@pytest.mark.parametrize("method", ["best", "hypergraph", "graph"])
def test_default_effort_divides_clusters_of_large_graphs(monkeypatch, method):
    pytest.importorskip("pymetis")
    monkeypatch.setattr("hpgcn.partition.rows.row_methods.COARSE", 0)
    monkeypatch.setattr("hpgcn.partition.rows.streaming.FEWEST", 300)
    made = {effort: make_partition(grid(24), 4, method=method, effort=effort)
            for effort in (FAST, DEFAULT)}
    volume = {effort: each.statistics["volume"] for effort, each in made.items()}
    assert volume[DEFAULT] <= volume[FAST]
    engine = "mtkahypar" if method == "hypergraph" else "metis"
    assert (made[DEFAULT].engine, made[FAST].engine) == (engine, "")


def test_nested_pieces_take_every_effort(no_small):
    pytest.importorskip("mtkahypar")
    for effort in (FAST, DEFAULT):
        made = make_partition(grid(12), 4, effort=effort, nested=True)
        assert made.merges == (2,)
        assert made.statistics["imbalance_nnz"] < 0.2


def test_small_graphs_take_the_work_of_best():
    pytest.importorskip("mtkahypar")
    made = [make_partition(grid(12), 3, effort=effort) for effort in (DEFAULT, BEST)]
    np.testing.assert_array_equal(made[0].part, made[1].part)
    assert [each.effort for each in made] == [DEFAULT, BEST]


def test_effort_is_stored(tmp_path):
    graph = grid(6)
    store.write_partitioned(tmp_path / "g.h5", graph, make_partition(graph, 2, effort=FAST))
    with load(tmp_path / "g.h5") as stored:
        assert stored.vertex_partition.effort == FAST
    assert "effort fast" in describe_file(tmp_path / "g.h5")


def test_unknown_effort_is_refused():
    with pytest.raises(errors.UsageError, match="effort = 'much': expected one of fast, default"):
        make_partition(grid(3), 2, effort="much")


def test_seconds_are_said_before_and_after(monkeypatch, caplog):
    monkeypatch.setattr("hpgcn.partition.effort.WORTH_SAYING", 0.0)
    with caplog.at_level(logging.INFO, "hpgcn"):
        make_partition(grid(6), 2, effort=FAST, baseline=True)
    before, after = (record.getMessage() for record in caplog.records)
    assert "2 parts of effort fast take about" in before
    assert "fewer than random parts" in after


def test_expected_seconds_grow_with_effort_and_parts():
    sizes = np.full(EDGES // 16, 16)
    for k in (2, 16):
        seconds = [expected_seconds(effort, sizes, k) for effort in (FAST, DEFAULT, BEST)]
        assert seconds == sorted(seconds)
        assert expected_seconds(DEFAULT, sizes, k, holders=True) > seconds[1]
    assert expected_seconds(BEST, sizes, 4) < expected_seconds(BEST, sizes, 8)
    sparse = [expected_seconds(effort, np.full(EDGES // 4, 4), 64) for effort in (DEFAULT, BEST)]
    assert sparse[0] < sparse[1] / 2
    calm, warm = (expected_seconds(DEFAULT, each, 64, holders=True)
                  - expected_seconds(DEFAULT, each, 64) for each in (np.full(EDGES // 4, 4), sizes))
    assert calm < warm / 2
    large = np.tile(sizes, 5)
    assert expected_seconds(DEFAULT, large, 8) < expected_seconds(DEFAULT, sizes, 8)
    assert expected_seconds(FAST, large, 8) < expected_seconds(DEFAULT, large, 8)


def test_expected_seconds_count_levels_of_coarsening():
    """With many parts the engine coarsens less, so a pair takes fewer seconds."""
    sizes = np.full(EDGES // 16, 8)
    few, many, most = (expected_seconds(DEFAULT, sizes, k) for k in (8, 400, 512))
    assert many < few / 2
    assert most > many  # its V-cycle coarsens further


def test_v_cycle_coarsens_graphs_with_small_parts():
    def smallest(*arguments):
        return [line for line in quick_ini(*arguments).split() if line.startswith("c-t=")]

    assert smallest(True, False, 1000) == smallest(True, False, 320) == ["c-t=160"]
    assert smallest(True, False, 319) == ["c-t=79"]
    assert smallest(True, False, 2) == ["c-t=1"]
    assert smallest(False, False, 2) == smallest(False, False, 1000)


def test_long_training_pays_for_more_effort():
    sizes = np.full(EDGES // 16, 16)
    effort, seconds = paying_effort(sizes, 8, 1e4)
    assert effort == DEFAULT
    assert seconds == expected_seconds(DEFAULT, sizes, 8)
    assert paying_effort(sizes, 8, 5 * seconds)[0] == DEFAULT
    assert paying_effort(sizes, 8, 4.9 * seconds) == (FAST, expected_seconds(FAST, sizes, 8))

    # parts of less than a second
    tiny = sizes[:100]
    least = expected_seconds(FAST, tiny, 8)
    assert paying_effort(tiny, 8, least / 2) == (DEFAULT, expected_seconds(DEFAULT, tiny, 8))
    assert paying_effort(tiny, 8, 0.49 * least) == (None, 0.0)

    # parts of more
    least = expected_seconds(FAST, sizes, 8)
    assert least > 1
    assert paying_effort(sizes, 8, 5 * least) == (FAST, least)
    assert paying_effort(sizes, 8, 4.9 * least) == (None, 0.0)


def test_default_effort_needs_little_memory_for_large_graphs():
    header = SimpleNamespace(num_nodes=1 << 22, num_edges=1 << 26, num_splits=1)
    need = [needed_memory(header, 8, "best", effort) for effort in (FAST, DEFAULT, BEST)]
    assert need[0] < need[1] < need[0] + 10**9 < need[2]

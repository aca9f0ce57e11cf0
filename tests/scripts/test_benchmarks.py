"""scripts/benchmarks: bytes by hand, commands and refusals; times are not checked."""
import json
import math
import re
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from commands import python, refused, succeed
from graphs import make

import hpgcn
from benchmarks import (
    aggregate_steps,
    benchmark_graphs,
    checks,
    epoch,
    growth,
    peers,
    processors,
    roofline,
    run,
    sampled_volumes,
)
from hpgcn import store
from hpgcn.bench import host
from hpgcn.errors import DataError, InternalError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import make_partition
from hpgcn.sampling import VertexSampler

QUICK = ("--scale-down", 4096, "--repeats", 1, "--threads", 1, "--json")
TIMES = {"time_ms", "median_ms", "relative_error"}
PRODUCT = TIMES | {"graph", "vertices", "nonzeros", "width", "kernel", "least_bytes", "floor_ms",
                   "share_of_floor", "traffic_bytes", "share_of_traffic"}
MEMORY = {"read_bytes_per_s", "copy_bytes_per_s", "triad_bytes_per_s", "memory_bytes_per_s",
          "array_bytes"}


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Measure bandwidths and rates with small arrays, because the tests check no times."""
    monkeypatch.setattr(host, "CACHES", 0)
    monkeypatch.setattr(host, "SMALLEST", 1 << 20)
    monkeypatch.setattr(growth, "FILL", (0.5, 0.5, 1))


def measured(*args):
    """Run a benchmark; check that its numbers are finite and positive; return its report."""
    report = json.loads(succeed(*args, program=run.main), parse_constant=pytest.fail)
    assert report["bench"] == args[0] and report["machine"]["cpu_model"]
    assert report["machine"]["threads"] >= 1
    for row in report.get("rows", []):
        for key, value in row.items():
            if isinstance(value, int | float) and key != "relative_error":
                assert value > 0 or (value == 0 and key.endswith("_share")), key
        assert 0 <= (row.get("relative_error") or 0) < 1e-4
    assert all(value > 0 for value in report.get("limits", {}).values())
    return report


@pytest.mark.long  # compiles a kernel of its own
@pytest.mark.parametrize("cuts, capacity, reads, writes", [
    # rows 0 and 1 read x 0 1 2 and 0 2; all fits: x once, each result written once
    ([[0, 3, 5], [3, 5, 5]], 9, 3, 2),
    # two rows fit: after row 0 x 2 and result 0 are there, so row 1 reads 0 and 2 again
    ([[0, 3, 5], [3, 5, 5]], 2, 5, 2),
    # blocks 0 and 1..2: row 0 is 0, then 1 2; row 1 is 0, then 2; results are read again
    ([[0, 3, 5], [1, 4, 5], [3, 5, 5]], 9, 3, 2),
    ([[0, 3, 5], [1, 4, 5], [3, 5, 5]], 2, 5, 4)])
def test_transfers_of_an_lru_cache(cuts, capacity, reads, writes):
    counted = aggregate_steps.count_transfers(np.array(cuts), np.array([0, 1, 2, 0, 2]), capacity)
    assert counted == (reads, writes)


@pytest.mark.parametrize(("m", "n", "nnz", "width", "options", "least", "traffic"), [
    # 3 pointers of 8, 5 x (4 + 4), x 3 x 2 x 4, out 2 x 2 x 4
    (2, 3, 5, 2, {"cache_bytes": 1000}, 24 + 40 + 24 + 16, 24 + 40 + 24 + 16),
    # x (24 bytes) exceeds the cache: 5 rows of 8 bytes, a line of 64 each
    (2, 3, 5, 2, {"cache_bytes": 23}, 104, 24 + 40 + 5 * 64 + 16),
    (2, 3, 5, 2, {"cache_bytes": 24}, 104, 104),  # exactly fits
    # rows of 80 bytes take 2 lines
    (2, 3, 5, 20, {"cache_bytes": 0}, 24 + 40 + 240 + 160, 24 + 40 + 5 * 128 + 160),
    # no values, int32 pointers, float64, scales of 7 bytes
    (2, 3, 5, 2, {"cache_bytes": 1000, "value": 0, "pointer": 4, "item": 8, "extra": 7},
     12 + 20 + 48 + 32 + 7, 119),
    # one nonzero reads one row of x
    (2, 1000, 1, 16, {"cache_bytes": 0}, 24 + 8 + 64 + 128, 24 + 8 + 64 + 128),
    # each line of out is read before it is stored: its 160 bytes once more
    (2, 3, 5, 20, {"cache_bytes": 0, "allocate": True}, 464, 24 + 40 + 5 * 128 + 2 * 160),
    # nothing to multiply: pointers are read, zeros are written
    (4, 4, 0, 1, {"cache_bytes": 0}, 40 + 16, 40 + 16),
])
def test_spmm_bytes(m, n, nnz, width, options, least, traffic):
    assert roofline.spmm_bytes(m, n, nnz, width, **options) == (least, traffic)


def test_a_benchmark_matrix_is_the_normalised_adjacency():
    graph = benchmark_graphs.make("dense", 1 << 12)
    A = benchmark_graphs.normalized(graph)
    dense = graph.adjacency.toarray().astype(np.float64) + np.eye(64)
    scale = dense.sum(1) ** -0.5
    np.testing.assert_allclose(A.matrix.toarray(), scale[:, None] * dense * scale, rtol=1e-6)
    np.testing.assert_allclose(A.scale, scale, rtol=1e-6)
    assert A.values.size == np.count_nonzero(dense)


def test_families():
    sizes = [benchmark_graphs.make(name, 1 << 10).num_rows for name in run.GRAPHS]
    assert sizes == [64, 1024, 1024]
    road = benchmark_graphs.make("road", 1 << 10)
    degrees = np.diff(road.indptr)
    assert (degrees.min(), degrees.max(), degrees.sum()) == (2, 4, 4 * 32 * 31)
    rows = np.repeat(np.arange(1024), degrees)
    assert np.abs(road.indices - rows).max() > 64  # not in the lattice's own order

def test_a_missing_peer_is_named_not_needed():
    def failing(error):
        raise error

    absent = {}
    assert peers.installed({
        "none": lambda: failing(ModuleNotFoundError("No module named 'none'")),
        "half": lambda: failing(OSError("libx.so\nnot found")),
        "here": lambda: {"here": abs}}, absent) == {"here": abs}
    assert absent == {"none": "ModuleNotFoundError: No module named 'none'",
                      "half": "OSError: libx.so not found"}


def test_turns_are_counted_and_results_checked():
    seen = []
    calls = {name: lambda name=name: seen.append(name) or np.ones((2, 2))
             for name in ("hpgcn", "peer")}
    expected = {"hpgcn": np.ones((2, 2)), "peer": np.full((2, 2), 2.0)}
    timings = checks.checked_turns(processors.Processors(), calls, 2, "test", expected=expected,
                                   prepare=lambda: seen.append("prepare"))
    assert seen == ["prepare", "hpgcn", "prepare", "peer", "hpgcn", "peer", "hpgcn", "peer"]
    assert [timings[name]["relative_error"] for name in calls] == [0, 0.5]
    assert all(0 < row["time_ms"] <= row["median_ms"] for row in timings.values())


@pytest.mark.parametrize("result", [[1, 2.01], [1, math.nan], [1, 2, 3]])
def test_a_wrong_kernel_is_an_error_and_a_wrong_peer_is_not(result):
    expected = np.array([1.0, 2.0])
    with pytest.raises(InternalError, match="test: the result of hpgcn has relative error"):
        checks.check_result("test", "hpgcn", np.array(result, float), expected)
    error = checks.check_result("test", "peer", np.array(result, float), expected)
    assert error == (pytest.approx(0.005) if result == [1, 2.01] else None)


@pytest.mark.long
@pytest.mark.parametrize(("command", "kernels", "bytes_of"), [
    # width 7 alone: each shape of a row is compiled; test_gather takes two
    # 16 x 16 lattice: 257 pointers, 1216 columns and values, x and out of 256 x 7; scales; bits
    ("spmm", {"hpgcn", "scipy"}, {"hpgcn": 0, "hpgcn_scaled": -1216 * 4 + 2 * 256 * 4}),
    ("sspmm", {"hpgcn_two_passes", "scipy"}, {"hpgcn": 256, "hpgcn_spmm": 0})])
def test_products(command, kernels, bytes_of):
    report = measured(command, "--graphs", "dense,road", "--widths", "7", *QUICK)
    assert set(report["limits"]) == MEMORY
    assert all(set(row) == PRODUCT for row in report["rows"])
    rows = {(row["graph"], row["width"], row["kernel"]): row for row in report["rows"]}
    assert set(rows) >= {(graph, 7, kernel) for graph in ("dense", "road")
                         for kernel in kernels | set(bytes_of)}
    for kernel, extra in bytes_of.items():
        row = rows["road", 7, kernel]
        least = 257 * 8 + 1216 * 8 + 2 * 256 * 7 * 4 + extra
        assert (row["vertices"], row["nonzeros"]) == (256, 1216)
        assert row["least_bytes"] == row["traffic_bytes"] == least  # all arrays fit the cache
        floor_ms = 1e3 * least / report["limits"]["memory_bytes_per_s"]
        assert row["floor_ms"] == pytest.approx(floor_ms)
        assert row["share_of_floor"] == pytest.approx(floor_ms / row["time_ms"])


@pytest.mark.long
def test_a_graph_of_the_user(tmp_path):
    """Benchmarks run on a file of four vertices, and count the one row that the other
    half reads.
    """
    A = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [3, 0, 0, 0]])
    hpgcn.save(Graph.from_scipy(A), tmp_path / "g.h5")
    few = (tmp_path / "g.h5", "--widths", "5", "--repeats", 1, "--threads", 1, "--json")
    rows = measured("sspmm", *few)["rows"]
    assert {(row["graph"], row["vertices"], row["nonzeros"]) for row in rows} == {("graph", 4, 8)}
    assert {row["rows"] for row in measured("gather", *few)["rows"]} == {1}
    hpgcn.save(Graph.from_scipy(np.eye(4)), tmp_path / "i.h5")
    with pytest.raises(DataError, match="the other vertices read no row of the first 2"):
        run.measure(run.settings_of("gather", graph=tmp_path / "i.h5", widths="5", repeats=1))


@pytest.mark.long
def test_gather():
    report = measured("gather", "--widths", "3,5", *QUICK)
    assert {row["width"] for row in report["rows"]} == {3, 5}
    rows = {(row["operation"], row["order"], row["kernel"]): row
            for row in report["rows"] if row["width"] == 5}
    assert set(rows) >= {(operation, order, kernel) for operation in ("gather", "scatter_add")
                         for order in ("random", "sorted") for kernel in ("hpgcn", "numpy", "copy")}
    assert rows["gather", "random", "copy"]["bytes"] == 128 * 2 * 5 * 4
    for operation, passes in (("gather", 2), ("scatter_add", 3)):
        row = rows[operation, "random", "hpgcn"]
        assert (row["rows"], row["bytes"]) == (128, 128 * (8 + passes * 5 * 4))
        assert row["bytes_per_s"] == pytest.approx(row["bytes"] / row["time_ms"] * 1e3)
        rate = rows[operation, "random", "copy"]["bytes_per_s"]
        assert row["share_of_copy"] == pytest.approx(row["bytes_per_s"] / rate)


@pytest.mark.long
def test_growth():
    rows = measured("growth", "--widths", "5", *QUICK)["rows"]
    assert [row["vertices"] for row in rows] == [64, 64, 256, 1024]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["time_ms"] / row["predicted_ms"])
        shares = [row[f"{level}_share"] for level in ("l2", "last", "memory")]
        costs = [row[f"{level}_ns"] for level in ("l2", "last", "memory")]
        assert sum(shares) == pytest.approx(1)
        assert row["predicted_ms"] == pytest.approx(1e-6 * row["nonzeros"] * np.dot(shares, costs))


@pytest.mark.parametrize(("held", "passing"), [(50, 0), (400, 2), (1900, 0), (1900, 2)])
def test_cache_misses_are_those_of_a_simulated_cache(held, passing):
    rng = np.random.default_rng(held)
    p = 1 / np.arange(1, 2001)
    reads = rng.choice(2000, 60_000, p=p / p.sum())
    cache = OrderedDict()
    free = 4 * held
    missed = 0
    for at, row in enumerate(reads):
        if row in cache:
            cache.move_to_end(row)
        else:
            missed += 1
            free -= 4
            cache[row] = 4
        for line in range(passing):  # lines that come by once
            cache[-1 - at * passing - line] = 1
            free -= 1
        while free < 0:
            free += cache.popitem(last=False)[1]
    counts = np.bincount(reads, minlength=2500)  # some rows are never read
    share = roofline.cache_misses(counts, 4, passing, 4 * held)
    assert share == pytest.approx(missed / reads.size, rel=0.03)


def test_a_cache_that_holds_all_misses_each_row_once():
    assert roofline.cache_misses(np.array([3, 0, 5]), 1, 0, 100) == 2 / 8
    assert roofline.cache_misses(np.zeros(4, int), 1, 0, 100) == 0


def test_epoch(monkeypatch):
    """The benchmark `epoch` reports the graph, and times of products within that of an epoch."""
    monkeypatch.setattr(epoch, "alone", lambda label, hint, call, *args: call(*args))
    row, = measured("epoch", "--graphs", "road", "--widths", "6,5,5,3", *QUICK)["rows"]
    assert row["widths"] == [6, 5, 5, 3]
    assert (row["graph"], row["vertices"], row["nonzeros"], row["epochs"]) == ("road", 256, 1216, 1)
    assert row["spmm_s"] + row["dense_s"] <= row["epoch_s"]
    assert row["spmm_share"] == pytest.approx(row["spmm_s"] / row["epoch_s"])
    assert row["peak_rss_bytes"] > 10 << 20


@pytest.mark.long
def test_layers_of_pyg():
    pytest.importorskip("torch_geometric", reason="needs PyTorch and PyG")
    report = measured("torch", "--graphs", "dense,road", "--widths", "5", *QUICK)
    layers = "GCNConv", "SAGEConv", "SAGEConv max"
    rows = {(row["graph"], row["layer"], row["kernel"]): row for row in report["rows"]}
    assert set(rows) == {(graph, layer, kernel) for graph in ("dense", "road") for layer in layers
                         for kernel in ("hpgcn", "pyg")}
    assert all((row["relative_error"] is None) == (key[1] == "SAGEConv max")
               for key, row in rows.items())
    for row in report["ratios"]:
        ours, pyg = (rows[row["graph"], row["layer"], kernel] for kernel in ("hpgcn", "pyg"))
        assert row["peer_ratio"] == pytest.approx(pyg["time_ms"] / ours["time_ms"])
        assert row["width"] == 5 and row["first_use_ms"] > 0
    assert set(report["summary"]) == {"mean_ratio", "least_ratio", "spmm_overhead_ms",
                                      "accelerated_overhead_ms"}


@pytest.mark.long
def test_output_for_people():
    text = succeed("gather", "--widths", "3", *QUICK[:-1], program=run.main)
    heading = next(line for line in text.splitlines() if line.startswith("operation"))
    assert heading.split()[:4] == ["operation", "order", "rows", "width"] and "GB/s" in text


@pytest.mark.parametrize(("command", "options", "message"), [
    ("spmm", {"graphs": "dens"}, "'dens' is unknown, expected names among dense, prod, road"),
    ("spmm", {"graphs": ""}, "'' is unknown"),
    ("spmm", {"widths": "16,x"}, "'x' is not a whole number"),
    ("spmm", {"widths": "0"}, "'0' is not"), ("spmm", {"widths": "-1"}, "'-1' is not"),
    ("spmm", {"repeats": 0}, "repeats is 0"), ("spmm", {"scale_down": 0}, "scale-down is 0"),
    ("spmm", {"graph": "g.h5", "graphs": "road"}, "bench spmm GRAPH excludes --graphs"),
    ("gather", {"graph": "g.h5", "scale_down": 2}, "GRAPH excludes --graphs and --scale-down"),
    ("batches", {"graph": "g.h5", "epochs": 0}, "epochs is 0"),
    ("batches", {"graph": "g.h5", "ranks": "3,x"}, "'x' is not a whole number"),
    ("epoch", {"widths": "16"}, "--widths 16: expected features, hidden widths"),
    ("epoch", {"widths": "8,4,5,3"}, "--widths 8,4,5,3"),
    ("spmm", {"starved": True, "threads": 2}, "--starved needs --threads 1, not 2")])
def test_usage(command, options, message):
    with pytest.raises(UsageError, match=message):
        run.settings_of(command, **options)


def test_refusals_of_the_command_line(capsys):
    assert "threads = -1: expected 0 to 4096" in refused(2, "spmm", "--threads", -1,
                                                         program=run.main)
    for words in (("gather", "--graphs", "road"), ("gather", "--starved"), ("growth", "g.h5"),
                  ("batches", "g.h5", "--widths", 16), ("kernels", "g.h5"), ("spmm", "--ranks", 3)):
        assert re.search("unknown|unrecognized", refused(2, *words, program=run.main))
    assert "required: graph" in refused(2, "batches", program=run.main)
    assert run.main(["nothing"]) == 2
    assert "'nothing': expected one of" in capsys.readouterr().err


@pytest.mark.long
def test_it_runs_as_a_script(tmp_path):
    """The benchmark script runs from another folder, also with `python -P`."""
    for words in ((), ("-P",)):
        done = python(*words, run.__file__, "growth", *QUICK, "--widths", 5, cwd=tmp_path)
        assert not done.returncode, done.stderr
        assert json.loads(done.stdout)["bench"] == "growth"


@pytest.mark.long
def test_batches(tmp_path):
    pytest.importorskip("mtkahypar")
    graph = make(120, degree=6)
    store.write_graph(tmp_path / "graph.h5", graph)
    quick = "--ranks", "2,3", "--epochs", 5, "--threads", 1
    words = "batches", tmp_path / "graph.h5", *quick
    report = json.loads(succeed(*words, "--json", program=run.main))
    assert "limits" not in report
    assert [(row["ranks"], row["parts"]) for row in report["rows"]] == [
        (k, parts) for k in (2, 3) for parts in ("stochastic", "hypergraph", "best, refined")]
    for row in report["rows"]:
        assert 0 < row["error"] < row["busiest"] <= row["rows_a_batch"] <= row["full"]
    means = [row["ratio"] for row in report["rows"] if row["parts"] == "hypergraph"]
    assert report["summary"] == {"vertices_of_a_batch": 12, "batches": 50, "paper_ratio": 1.1,
                                 "mean_ratio": pytest.approx(np.mean(means))}
    assert "paper ratio" in run.format_report(report)

    made = make_partition(graph, 2, method="block")
    store.write_partitioned(tmp_path / "parts.h5", graph, made)
    assert "partitioned already" in refused(65, "batches", tmp_path / "parts.h5", *quick,
                                            program=run.main)
    assert "121 ranks for 120" in refused(65, "batches", tmp_path / "graph.h5", "--ranks", 121,
                                          program=run.main)


def test_rows_of_batches_are_counted_by_hand():
    # the path 0-1-2-3 in halves; a batch holds all, then pairs of vertices
    path = sp.csr_array(np.eye(4) + np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    part = np.array([0, 0, 1, 1])
    counted = sampled_volumes.count(path, part, 2, VertexSampler(4, 4, 0), 3)
    assert counted == {"rows_a_batch": 2, "error": 0, "busiest": 1, "full": 2}
    # rows 1 and 2 travel if they are together: in 1 of 3 pairings, in one of its two batches
    counted = sampled_volumes.count(path, part, 2, VertexSampler(4, 2, 0), 300)
    assert counted["rows_a_batch"] == pytest.approx(1 / 3, abs=4 * counted["error"] + 0.01)


@pytest.mark.long
def test_aggregation_by_blocks_and_steps():
    report = measured("aggregate", "--graphs", "dense", "--widths", "48", *QUICK)
    assert [row["blocks"] for row in report["rows"]] == [1, 2, 4, 8, 16, 32, 64]
    assert all(row["reuse"] <= row["nonzeros"] / row["vertices"] for row in report["rows"])
    assert [row["step"].split()[-1] for row in report["steps"]] == [
        "baseline", "scheduling", "blocks", "reordering"]
    said = refused(2, "aggregate", "--widths", "16", *QUICK, program=run.main)
    assert "more than 32" in said

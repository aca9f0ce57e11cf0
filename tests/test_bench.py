"""Benchmarks: floors by hand, what the machine says of itself, the schema of every command. No timing is judged."""
import json
import math
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused, succeed

from hpgcn import bench
from hpgcn.__main__ import main
from hpgcn.bench import floors, graphs, hardware, peers, tables, timing
from hpgcn.errors import InternalError, UsageError

QUICK = ("--scale-down", 4096, "--repeats", 1, "--threads", 1, "--json")
PRODUCT = {"graph", "vertices", "nonzeros", "width", "kernel", "time_ms", "least_bytes", "floor_ms", "share_of_floor",
           "traffic_bytes", "traffic_ms", "share_of_traffic", "relative_error"}
MEMORY = {"read_bytes_per_s", "copy_bytes_per_s", "triad_bytes_per_s", "memory_bytes_per_s", "array_bytes"}


def measured(*args):
    """Report of a command: one JSON object, every number in it finite and positive, shares and errors aside."""
    report = json.loads(succeed("bench", *args), parse_constant=pytest.fail)
    assert report["bench"] == args[0]
    assert report["machine"]["cpu_model"]
    assert report["machine"]["threads"] >= 1
    for row in report.get("rows", []):
        for key, value in row.items():
            if isinstance(value, int | float) and key != "relative_error":
                assert value > 0 or (value == 0 and key.endswith("_share")), key
        assert 0 <= row.get("relative_error", 0) < 1e-4
    for key, value in report.get("limits", {}).items():
        assert value > 0, key
    return report


@pytest.mark.parametrize(("m", "n", "nnz", "width", "options", "least", "traffic"), [
    # 3 pointers of 8, 5 x (4 + 4), x 3 x 2 x 4, out 2 x 2 x 4
    (2, 3, 5, 2, {"cache_bytes": 1000}, 24 + 40 + 24 + 16, 24 + 40 + 24 + 16),
    # x (24 bytes) exceeds the cache: 5 rows of 8 bytes, a line of 64 each
    (2, 3, 5, 2, {"cache_bytes": 23}, 104, 24 + 40 + 5 * 64 + 16),
    # exactly fits
    (2, 3, 5, 2, {"cache_bytes": 24}, 104, 104),
    # rows of 80 bytes take 2 lines
    (2, 3, 5, 20, {"cache_bytes": 0}, 24 + 40 + 240 + 160, 24 + 40 + 5 * 128 + 160),
    # no values, int32 pointers, float64, scales of 7 bytes
    (2, 3, 5, 2, {"cache_bytes": 1000, "value": 0, "pointer": 4, "item": 8, "extra": 7}, 12 + 20 + 48 + 32 + 7, 119),
    # one nonzero reads one row of x
    (2, 1000, 1, 16, {"cache_bytes": 0}, 24 + 8 + 64 + 128, 24 + 8 + 64 + 128),
    # nothing to multiply: pointers are read, zeros are written
    (4, 4, 0, 1, {"cache_bytes": 0}, 40 + 16, 40 + 16),
])
def test_spmm_bytes(m, n, nnz, width, options, least, traffic):
    assert floors.spmm_bytes(m, n, nnz, width, **options) == (least, traffic)


def test_bytes_of_masks_and_rows():
    assert [floors.mask_bytes(10, width) for width in (1, 8, 9, 128)] == [10, 10, 20, 160]
    assert floors.gather_bytes(3, 2) == 3 * 8 + 3 * 8 + 3 * 8
    assert floors.gather_bytes(3, 2, index=4, item=8) == 12 + 48 + 48
    assert floors.scatter_add_bytes(3, 2) == 3 * 8 + 3 * 3 * 8


def test_operator_is_the_normalised_adjacency():
    graph = graphs.make("dense", 1 << 12)
    A = graphs.operator(graph)
    dense = graph.adjacency.toarray().astype(np.float64) + np.eye(64)
    scale = dense.sum(1) ** -0.5
    np.testing.assert_allclose(A.matrix.toarray(), scale[:, None] * dense * scale, rtol=1e-6)
    np.testing.assert_allclose(A.scale, scale, rtol=1e-6)
    assert sp.csr_array((A.values, A.indices, A.indptr), shape=(64, 64)).nnz == np.count_nonzero(dense)


def test_families():
    assert [graphs.make(name, 1 << 10).num_rows for name in bench.GRAPHS] == [64, 1024, 1024]
    road = graphs.make("road", 1 << 10)
    degrees = np.diff(road.indptr)
    assert (degrees.min(), degrees.max(), degrees.sum()) == (2, 4, 4 * 32 * 31)
    assert np.abs(road.indices - np.repeat(np.arange(1024), degrees)).max() > 64  # not in the lattice's own order


@pytest.fixture
def system(tmp_path):
    """Two sockets as /sys/devices/system/cpu shows them: a core of two threads each, one L1 a core, one L3 a socket."""
    for cpu, (package, users) in enumerate([(0, "0-1"), (0, "0-1"), (1, "2-3"), (1, "2-3")]):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text("0\n")
        for index, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "64K"),
                                                     (3, "Unified", "32M")]):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", 64),
                               ("shared_cpu_list", users)):
                (folder / name).write_text(f"{text}\n")
    return tmp_path


def test_caches_and_cores(system):
    found = hardware.caches(range(4), system)
    assert found == [
        {"level": 1, "type": "Data", "size_bytes": 49152, "line_bytes": 64, "instances": 2},
        {"level": 1, "type": "Instruction", "size_bytes": 65536, "line_bytes": 64, "instances": 2},
        {"level": 3, "type": "Unified", "size_bytes": 33554432, "line_bytes": 64, "instances": 2}]
    assert hardware.last_level(found) == 2 * 33554432
    assert hardware.last_level(hardware.caches([0, 1], system)) == 33554432
    assert [hardware.cores(allowed, system) for allowed in ([0], [0, 1], [0, 2], range(4))] == [1, 1, 2, 2]


def test_a_system_that_says_nothing(system, tmp_path):
    (system / "cpu0" / "cache" / "index2" / "size").write_text("")
    assert [cache["level"] for cache in hardware.caches([0], system)] == [1, 1]
    assert hardware.caches([7], tmp_path) == []
    assert hardware.last_level([]) == hardware.ASSUMED_CACHE
    assert hardware.cores([5, 6, 7], tmp_path) == 3


def test_a_missing_peer_is_named_not_needed():
    def maker(error):
        def make():
            raise error
        return make

    found, absent = peers.installed({
        "none": maker(ModuleNotFoundError("No module named 'none'")), "half": maker(OSError("libx.so\nnot found")),
        "here": lambda: {"here": abs}})
    assert found == {"here": abs}
    assert absent == {"none": "ModuleNotFoundError: No module named 'none'", "half": "OSError: libx.so"}


def test_turns_are_counted_and_results_checked():
    seen = []
    calls = {name: lambda name=name: seen.append(name) or np.ones((2, 2)) for name in ("hpgcn", "peer")}
    found = timing.compare(calls, {None: np.ones((2, 2)), "peer": np.full((2, 2), 2.0)}, 2, "test",
                           prepare=lambda: seen.append("prepare"))
    assert seen == ["prepare", "hpgcn", "prepare", "peer", "hpgcn", "peer", "hpgcn", "peer"]
    assert (found["hpgcn"][1], found["peer"][1]) == (0, 0.5)
    assert all(seconds > 0 for seconds, _ in found.values())


@pytest.mark.parametrize("result", [[1, 2.01], [1, math.nan], [1, 2, 3]])
def test_a_wrong_kernel_is_an_error_and_a_wrong_peer_is_not(result):
    expected = {None: np.array([1.0, 2.0])}
    with pytest.raises(InternalError, match="test: the result of hpgcn has relative error"):
        timing.compare({"hpgcn": lambda: np.array(result, float)}, expected, 1, "test")
    _, error = timing.compare({"peer": lambda: np.array(result, float)}, expected, 1, "test")["peer"]
    assert error == (pytest.approx(0.005) if result == [1, 2.01] else None)


def test_table_is_aligned_with_units():
    rows = [{"kernel": "a", "time_ms": 1.5, "share_of_floor": 0.25, "moved_bytes": 2_000_000, "relative_error": None},
            {"kernel": "long", "time_ms": 1234.5, "share_of_floor": 1.0, "moved_bytes": 0, "relative_error": 1e-7}]
    assert tables.aligned(rows) == [
        "kernel       time  share of floor  moved bytes  relative error",
        "               ms               %           MB",
        "a           1.500              25         2.00               -",
        "long    1,234.500             100         0.00         1.0e-07"]


def test_machine():
    limits = measured("machine", "--repeats", 1, "--threads", 1, "--json")["limits"]
    assert set(limits) == MEMORY | {"gemm_float32_flops_per_s", "gemm_float64_flops_per_s", "gemm_size"}
    assert limits["memory_bytes_per_s"] == max(limits[f"{name}_bytes_per_s"] for name in ("read", "copy", "triad"))


@pytest.mark.parametrize(("command", "kernels"), [
    ("spmm", {"hpgcn", "hpgcn_scaled", "scipy"}),
    ("sspmm", {"hpgcn", "hpgcn_two_passes", "hpgcn_spmm", "scipy"})])
def test_products(command, kernels):
    report = measured(command, "--graphs", "dense,road", "--widths", "7,16", *QUICK)
    assert set(report["limits"]) == MEMORY
    assert all(set(row) == PRODUCT for row in report["rows"])
    found = {(row["graph"], row["width"], row["kernel"]): row for row in report["rows"]}
    assert set(found) >= {(graph, width, kernel) for graph in ("dense", "road") for width in (7, 16)
                          for kernel in kernels}
    row = found["road", 7, "hpgcn"]  # 16 x 16 lattice: 2 x 2 x 16 x 15 entries and 256 loops, all in the cache
    assert (row["vertices"], row["nonzeros"]) == (256, 1216)
    least = 257 * 8 + 1216 * 8 + 2 * 256 * 7 * 4 + (256 if command == "sspmm" else 0)
    assert row["least_bytes"] == row["traffic_bytes"] == least
    assert row["floor_ms"] == pytest.approx(1e3 * least / report["limits"]["memory_bytes_per_s"])
    assert row["share_of_floor"] == pytest.approx(row["floor_ms"] / row["time_ms"])
    unmasked = {"spmm": ("hpgcn_scaled", least - 1216 * 4 + 2 * 256 * 4), "sspmm": ("hpgcn_spmm", least - 256)}[command]
    assert found["road", 7, unmasked[0]]["least_bytes"] == unmasked[1]


def test_gather():
    report = measured("gather", "--widths", "5", *QUICK)
    found = {(row["operation"], row["order"], row["kernel"]): row for row in report["rows"]}
    assert set(found) >= {(operation, order, kernel) for operation in ("gather", "scatter_add")
                          for order in ("random", "sorted") for kernel in ("hpgcn", "numpy", "copy")}
    row = found["gather", "random", "hpgcn"]
    assert (row["rows"], row["bytes"]) == (128, 128 * (8 + 2 * 5 * 4))
    assert row["bytes_per_s"] == pytest.approx(row["bytes"] / row["time_ms"] * 1e3)
    copy = found["gather", "random", "copy"]
    assert copy["bytes"] == 128 * 2 * 5 * 4
    assert row["share_of_copy"] == pytest.approx(row["bytes_per_s"] / copy["bytes_per_s"])


def test_growth():
    rows = measured("growth", "--widths", "5", *QUICK)["rows"]
    assert [row["vertices"] for row in rows] == [64, 64, 256, 1024]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["time_ms"] / row["predicted_ms"])
        shares = [row[f"{level}_share"] for level in ("l2", "last", "memory")]
        assert sum(shares) == pytest.approx(1)
        each = [row[f"{level}_ns"] for level in ("l2", "last", "memory")]
        assert row["predicted_ms"] == pytest.approx(1e-6 * row["nonzeros"] * np.dot(shares, each))


@pytest.mark.parametrize("passing", [0, 2])
@pytest.mark.parametrize("held", [50, 400, 1900])
def test_cache_misses_are_those_of_a_simulated_cache(held, passing):
    rng = np.random.default_rng(held)
    p = 1 / np.arange(1, 2001)
    reads = rng.choice(2000, 60_000, p=p / p.sum())
    cache, free, missed = OrderedDict(), 4 * held, 0
    for at, row in enumerate(reads):
        if row in cache:
            cache.move_to_end(row)
        else:
            missed, free = missed + 1, free - 4
            cache[row] = 4
        for line in range(passing):  # lines that come by once
            cache[-1 - at * passing - line], free = 1, free - 1
        while free < 0:
            free += cache.popitem(last=False)[1]
    counts = np.bincount(reads, minlength=2500)  # some rows are not read at all
    assert floors.cache_misses(counts, 4, passing, 4 * held) == pytest.approx(missed / reads.size, rel=0.03)


def test_a_cache_that_holds_all_misses_each_row_once():
    assert floors.cache_misses(np.array([3, 0, 5]), 1, 0, 100) == 2 / 8
    assert floors.cache_misses(np.zeros(4, int), 1, 0, 100) == 0


def test_epoch():
    (row,) = measured("epoch", "--graphs", "road", "--widths", "6,5,5,3", *QUICK)["rows"]
    assert row["widths"] == [6, 5, 5, 3]
    assert (row["graph"], row["vertices"], row["nonzeros"], row["epochs"]) == ("road", 256, 1216, 1)
    assert row["spmm_s"] + row["dense_s"] <= row["epoch_s"]
    assert row["spmm_share"] == pytest.approx(row["spmm_s"] / row["epoch_s"])
    assert row["peak_rss_bytes"] > 10 << 20


def test_output_for_people():
    text = succeed("bench", "gather", "--widths", "3", *QUICK[:-1])
    heading = next(line for line in text.splitlines() if line.startswith("operation"))
    assert heading.split()[:4] == ["operation", "order", "rows", "width"]
    assert "GB/s" in text


@pytest.mark.parametrize(("args", "message"), [
    (("spmm", "--graphs", "dens"), "did you mean dense"),
    (("spmm", "--graphs", ""), "graph '' is unknown"),
    (("spmm", "--widths", "16,x"), "width 'x'"),
    (("spmm", "--widths", "0"), "width '0'"),
    (("spmm", "--widths", "-1"), "width '-1'"),
    (("spmm", "--repeats", "0"), "repeats is 0"),
    (("spmm", "--scale-down", "0"), "scale-down is 0"),
    (("spmm", "--threads", "-1"), "threads = -1: expected 0 to 4096"),
    (("gather", "--graphs", "road"), "takes no --graphs"),
    (("machine", "--widths", "16"), "takes no --widths"),
    (("epoch", "--widths", "16"), "widths 16: expected features, hidden widths"),
    (("epoch", "--widths", "8,4,5,3"), "widths 8,4,5,3"),
])
def test_usage(args, message):
    assert message in refused(2, "bench", *args)


def test_unknown_command_and_more_than_the_memory(capsys):
    assert main(["bench", "nothing"]) == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="bench 'nothing'"):
        bench.run("nothing")
    with pytest.raises(UsageError, match=r"x need 1\d{18} bytes of memory, the limit is \d+; use --scale-down"):
        timing.need(10**18, "x")

"""`hpgcn bench`: machine facts, order of measurements, tables and refusals.

Times are not checked.
"""
import json
import os
import re

import pytest
from commands import refused, succeed
from cuda_ranks import cuda

from hpgcn import bench
from hpgcn.__main__ import main
from hpgcn.bench import host, machine_rates, tables, timing
from hpgcn.errors import UsageError
from hpgcn.kernels.cpu.emit import emitter
from hpgcn.planning.answers.options import read_machine
from hpgcn.planning.seconds import machine_files
from hpgcn.runtime import copy_rates
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.device import Cuda

__all__ = ["cuda"]


@pytest.fixture
def little_memory(monkeypatch):
    """Measure bandwidths and rates with small arrays, because the tests check no times."""
    monkeypatch.setattr(host, "CACHES", 0)
    monkeypatch.setattr(host, "SMALLEST", 1 << 20)
    monkeypatch.setattr(host, "GEMM_SIZE", 64)


@pytest.fixture
def system(tmp_path):
    """Write a fake /sys of two sockets, each with one core of two threads and L1 and L3 caches."""
    for cpu, (package, users) in enumerate([(0, "0-1"), (0, "0-1"), (1, "2-3"), (1, "2-3")]):
        files = {"topology/physical_package_id": package, "topology/core_id": 0}
        for index, cache in enumerate([(1, "Data", "48K"), (1, "Instruction", "64K"),
                                       (3, "Unified", "32M")]):
            names = ("level", "type", "size", "coherency_line_size", "shared_cpu_list")
            files |= {f"cache/index{index}/{name}": text
                      for name, text in zip(names, (*cache, 64, users))}
        for name, text in files.items():
            path = tmp_path / f"cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    return tmp_path


def test_caches_and_cores(system):
    listed = host.caches(range(4), system)
    assert listed == [
        {"level": level, "type": kind, "size_bytes": size, "line_bytes": 64, "instances": 2}
        for level, kind, size in ((1, "Data", 48 << 10), (1, "Instruction", 64 << 10),
                                  (3, "Unified", 32 << 20))]
    assert host.last_level(listed) == 64 << 20
    assert host.last_level(host.caches([0, 1], system)) == 32 << 20
    assert [host.cores(cpus, system) for cpus in ([0], [0, 1], [0, 2], range(4))] == [1, 1, 2, 2]


def test_a_system_that_says_nothing(system, tmp_path):
    (system / "cpu0" / "cache" / "index2" / "size").write_text("")
    assert [cache["level"] for cache in host.caches([0], system)] == [1, 1]
    assert host.caches([7], tmp_path) == [] and host.last_level([]) == host.ASSUMED_CACHE
    assert host.cores([5, 6, 7], tmp_path) == 3


def test_the_cpu_that_code_is_compiled_for_is_named(monkeypatch):
    monkeypatch.setattr(emitter.config, "CPU_NAME", None)
    assert emitter.cpu_name() == emitter.binding.get_host_cpu_name()
    monkeypatch.setattr(emitter.config, "CPU_NAME", "generic")
    assert emitter.cpu_name() == "generic"


def test_each_call_is_made_once_and_then_in_turns():
    seen = []
    calls = {name: lambda name=name: seen.append(name) for name in "ab"}
    timings = timing.in_turns(host.BenchHost(), calls, 2, "test")
    assert seen == [*"abab", *"ab"]
    assert all(0 < row["time_ms"] <= row["median_ms"] for row in timings.values())


def test_table_is_aligned_with_units():
    keys = "kernel", "time_ms", "share_of_floor", "moved_bytes", "relative_error"
    rows = ("a", 1.5, 0.25, 2_000_000, None), ("long", 1234.5, 1.0, 0, 1e-7)
    assert tables.aligned([dict(zip(keys, row)) for row in rows]).splitlines() == [
        "kernel       time  share of floor  moved bytes  relative error",
        "               ms               %           MB",
        "a           1.500              25         2.00               -",
        "long    1,234.500             100         0.00         1.0e-07"]


@pytest.mark.usefixtures("little_memory")
def test_machine(monkeypatch, tmp_path):
    """`hpgcn bench machine --json` prints the machine, its bandwidths and its rates."""
    monkeypatch.setattr(machine_rates.rates, "measure", lambda settings, host: settings.repeats)
    monkeypatch.setattr(machine_rates, "BIG_SAMPLE", 1 << 20)
    text = succeed("bench", "machine", "--repeats", 1, "--threads", 1, "--json",
                   "--scratch", tmp_path)
    report = json.loads(text, parse_constant=pytest.fail)
    assert report["bench"] == "machine" and report["machine"]["cpu_model"]
    assert report["machine"]["threads"] >= 1 and report["rates"] == [1]
    assert CopyRates(*report["disk"].values()).seconds(1e6, 1e6) > 0 and not os.listdir(tmp_path)
    limits = report["limits"]
    assert set(limits) == {
        "read_bytes_per_s", "copy_bytes_per_s", "triad_bytes_per_s", "memory_bytes_per_s",
        "array_bytes", "gemm_float32_flops_per_s", "gemm_float64_flops_per_s", "gemm_size"}
    assert all(value > 0 for value in limits.values())
    rates = [limits[f"{name}_bytes_per_s"] for name in ("read", "copy", "triad")]
    assert limits["memory_bytes_per_s"] == max(rates)


@pytest.mark.usefixtures("cuda")
def test_pcie_is_measured_and_read_by_the_plan(monkeypatch, tmp_path):
    """A machine file without these rates keeps working."""
    monkeypatch.setattr(copy_rates, "SAMPLE", 1 << 16)
    report = {"machine": {"caches": [], "versions": {}}, "bench": "machine",
              "limits": dict.fromkeys(machine_files.LIMITS, 1e9),
              **machine_rates.copy_rates("")}
    assert "pcie read" in tables.format_report(report) and list(report)[-1] == "pcie"
    rates = report["pcie"]
    assert all(rate > 0 for rate in rates.values())
    for known, expected in ((report, CopyRates(*rates.values())),
                            ({"limits": report["limits"]}, None)):
        (tmp_path / "m.json").write_text(json.dumps(known))
        assert read_machine(str(tmp_path / "m.json"))[0].pcie == expected


@pytest.mark.usefixtures("cuda")
def test_copies_over_pcie_go_both_ways(monkeypatch):
    """Each way is measured alone, and then both at once, on streams that run side by side."""
    made = []
    monkeypatch.setattr(copy_rates, "SAMPLE", 1 << 16)
    monkeypatch.setattr(Cuda, "copy", lambda gpu, target, source, size, stream: made.append(
        (target, source, size, stream.ptr)))
    rates = copy_rates.measure_pcie(Cuda())
    times, both = copy_rates.TIMES, made[-2:]
    read, write = both
    assert made == [read] * times + [write] * times + both * times
    assert len({read[0], read[1], write[0], write[1], read[3], write[3]}) == 6
    assert min(rates.read, rates.write, rates.both) > 0


@pytest.mark.parametrize(("options", "message"), [
    ({"repeats": 0}, "repeats is 0, expected 1..1000000"), ({"scale_down": 0}, "scale-down is 0"),
    ({"seed": -1}, "seed is -1"), ({"threads": 0}, "threads is 0")])
def test_usage(options, message):
    with pytest.raises(UsageError, match=f"bench tune: {message}"):
        bench.run("tune", bench.Settings(**options))


def test_refusals_of_the_command_line_and_of_more_than_the_memory(capsys):
    assert "--threads -1: expected 0 to 4096" in refused(2, "bench", "tune", "--threads", -1)
    for words in (("machine", "--reset"), ("tune", "--widths", 16), ("machine", "graph.h5")):
        assert re.search("unknown|unrecognized", refused(2, "bench", *words))
    assert main(["bench", "spmm"]) == 2
    assert "'spmm': expected one of" in capsys.readouterr().err
    message = r"x needs 1\d{18} bytes of memory, but the limit is \d+; use --scale-down"
    with pytest.raises(UsageError, match=message):
        host.BenchHost().need(10**18, "x")

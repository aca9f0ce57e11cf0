"""Ranks with two devices: pipelines and products by hand, machine files, shipped machines."""
import itertools
import json
import runpy
from dataclasses import replace

import numpy as np
import pytest
from arrays import assert_all
from checkout import ROOT
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.cli.parser import MACHINES
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.planning.answers.options import Options, read_machine
from hpgcn.planning.answers.report import forecast, notes
from hpgcn.planning.seconds.machine_files import SHIPPED
from hpgcn.planning.seconds.mixed_devices import Aggregator, MixedDevices, Updater, pipeline_seconds
from hpgcn.planning.seconds.step_seconds import Machine

SCRIPT = ROOT / "scripts" / "paper_machines.py"
FILE = {"aggregate": {"adders": 4, "clock_hz": 10, "memory_bytes_per_s": 100, "cache_bytes": 0},
        "update": {"gemm_float32_flops_per_s": 10, "gemm_float64_flops_per_s": 5,
                   "memory_bytes_per_s": 100}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "graph.h5"
    store.write_graph(path, make(n=80))
    return path


def simulated(first, second, stages):
    """Return the time of a two-stage pipeline, simulated batch by batch."""
    one = other = 0.0
    for _ in range(stages):
        one += first / stages
        other = max(one, other) + second / stages
    return other


@pytest.mark.parametrize("first, second, stages, seconds", [
    (3, 5, 1, 8), (5, 3, 1, 8), (3, 5, 2, 6.5), (4, 4, 4, 5), (0, 5, 3, 5), (5, 0, 3, 5),
    (6, 2, 1 << 20, 6)])
def test_pipelines_by_hand(first, second, stages, seconds):
    assert pipeline_seconds(first, second, stages) == pytest.approx(seconds, abs=1e-5)


def test_pipelines_by_batches():
    for first, second, stages in itertools.product((0, .3, 1, 7), (0, 1, 2.5), (1, 2, 3, 10)):
        seconds = pipeline_seconds(first, second, stages)
        assert seconds == pytest.approx(simulated(first, second, stages))
        assert max(first, second) <= seconds <= first + second
        assert seconds >= pipeline_seconds(first, second, stages + 1)


def test_products_with_A_by_hand():
    device = Aggregator(adders=4, clock_hz=10, memory_bytes_per_s=1e9, cache_bytes=0)
    # 20 entries add 3 numbers each, 40 a second
    assert device.seconds(20, 5, 12, 4, rows=5) == pytest.approx(1.5)
    # a mask skips results, and a share of the additions
    skips = replace(device, masked_share=.5)
    assert skips.seconds(20, 5, 12, 4, rows=5) == pytest.approx(1.5)
    assert skips.seconds(20, 5, 12, 4, rows=5, masked=True) == pytest.approx(.75)
    assert device.seconds(20, 5, 12, 4, rows=5, masked=True) == pytest.approx(1.5)


@pytest.mark.parametrize("cache, rows_read", [(0, 20), (30, 12.5), (60, 5), (1e9, 5)])
def test_a_cache_holds_rows(cache, rows_read):
    # 5 rows of 12 bytes; 20 entries of 4 bytes; 5 results
    device = Aggregator(adders=1e9, clock_hz=1e9, memory_bytes_per_s=10, cache_bytes=cache)
    seconds = (20 * 4 + (rows_read + 5) * 12) / 10
    assert device.seconds(20, 5, 12, 4, rows=5) == pytest.approx(seconds)
    # two entries read at most two rows; none read nothing
    assert device.seconds(2, 5, 12, 4, rows=5) == pytest.approx((2 * 4 + (2 + 5) * 12) / 10)
    assert device.seconds(0, 0, 12, 4, rows=5) == 0


def test_dense_products_by_hand():
    device = Updater(10, 5, 100)
    dense = [(50, 100), (10, 300)]  # by flops; by bytes
    assert device.seconds(dense, 200, itemsize=4) == 5 + 3 + 2
    assert device.seconds(dense, 200, itemsize=8) == 10 + 3 + 2


def machine(stages=1, **rates):
    aggregate = Aggregator(16.0, 1e9, 1e10, 1e4)
    update = Updater(1e10, 5e9, 1e10)
    parts = {"aggregate": aggregate, "update": update}
    for name, rate in rates.items():
        part, field = name.split("__")
        parts[part] = replace(parts[part], **{field: rate})
    return Machine(call_s=1e-15, devices=MixedDevices(**parts, stages=stages))


def compute(graph, machine, ranks=2):
    options = Options((ranks,), machine=machine, config=Config(prune=False))
    return np.array([row["seconds"]["compute"] for row in forecast(graph, options)["rows"]
                     if "+" not in row["strategy"]])  # the machine file says which layers differ


@pytest.mark.parametrize("ranks", [1, 5])
def test_a_step_is_between_the_slower_device_and_the_sum(graph, ranks):
    alone = compute(graph, machine(), ranks)
    many = compute(graph, machine(stages=1000), ranks)
    instant = {"aggregate__adders": 1e20, "aggregate__memory_bytes_per_s": 1e25}
    updating = compute(graph, machine(**instant), ranks)
    instant = {f"update__{name}": 1e25 for name in FILE["update"]}
    aggregating = compute(graph, machine(**instant), ranks)
    assert_all(updating > 0)
    assert_all(aggregating > 0)
    # which rank computes longest may change: at most the sum of both
    assert_all(alone <= (updating + aggregating) * (1 + 1e-9))
    assert_all(many < alone)
    assert_all(many >= updating * (1 - 1e-9))
    assert_all(many >= aggregating * (1 - 1e-9))
    if ranks == 1:
        np.testing.assert_allclose(alone, updating + aggregating)


@pytest.mark.long
@pytest.mark.parametrize("rate", [
    "aggregate__adders", "aggregate__clock_hz", "aggregate__memory_bytes_per_s",
    "aggregate__cache_bytes", "update__gemm_float32_flops_per_s", "update__memory_bytes_per_s"])
def test_faster_devices_take_no_longer(graph, rate):
    series = np.array([compute(graph, machine(3, **{rate: value}))
                       for value in (1e-3, 1e3, 1e12)])
    assert_all(np.diff(series, axis=0) <= 0)
    assert_all(series[-1] < series[0])


def test_a_device_of_64_bits_multiplies_at_its_own_rate(graph):
    slow = machine(update__gemm_float64_flops_per_s=1.0)
    seconds = {}
    for dtype in ("float32", "float64"):
        options = Options((1,), machine=slow, config=Config(prune=False, dtype=dtype))
        seconds[dtype], = (row["seconds"]["compute"] for row in forecast(graph, options)["rows"])
    assert seconds["float64"] > 1e3 * seconds["float32"]


def written(tmp_path, values):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(values))
    return path


def test_machine_files(tmp_path):
    found, network = read_machine(written(tmp_path, FILE))
    assert found == Machine(devices=MixedDevices(Aggregator(4, 10, 100, 0), Updater(10, 5, 100)))
    assert not network
    aggregate = {**FILE["aggregate"], "masked_share": .5}
    values = {**FILE, "aggregate": aggregate, "stages": 7, "machine": {"cores": 3},
              "network": {"latency_s": 1, "bytes_per_s": 2}}
    found, network = read_machine(written(tmp_path, values))
    assert found == Machine(latency_s=1, network_bytes_per_s=2, cores=3, devices=MixedDevices(
        Aggregator(4, 10, 100, 0, .5), Updater(10, 5, 100), 7))
    assert network and not any("machine assumed" in note for note in notes(
        Options(machine=found, network=network), []))


def changed(group, **values):
    return {**FILE, group: {**FILE[group], **values}}


@pytest.mark.parametrize("values, said", [
    ({"aggregate": FILE["aggregate"]}, "update is None, expected an object"),
    ({"update": FILE["update"]}, "aggregate is None, expected an object"),
    ({"stages": 3}, "aggregate is None, expected an object"),
    ({**FILE, "aggregate": 3}, "aggregate is 3, expected an object"),
    ({**FILE, "limits": {}}, "has both 'limits' and two devices"),
    ({**FILE, "stages": 0}, "stages is 0, expected an integer of at least 1"),
    ({**FILE, "stages": 1.5}, "stages is 1.5, expected an integer"),
    ({**FILE, "aggregate": {}}, "aggregate.adders is missing"),
    (changed("aggregate", adders=0), "aggregate.adders is 0, expected a number"),
    (changed("aggregate", cache_bytes=-1), "aggregate.cache_bytes is -1, expected a number"),
    (changed("aggregate", masked_share=2), "aggregate.masked_share is 2, expected a number"),
    (changed("aggregate", flops=1), "aggregate.flops is unknown, expected aggregate.adders and"),
    (changed("update", memory_bytes_per_s="1"), "update.memory_bytes_per_s is '1', expected"),
    (changed("update", adders=1), "update.adders is unknown, expected update.gemm_float32")])
def test_refused_machine_files(tmp_path, values, said):
    path = written(tmp_path, values)
    with pytest.raises(DataError) as error:
        read_machine(path)
    assert str(path) in str(error.value) and said in str(error.value)


def test_refused_at_the_command_line(graph, tmp_path):
    path = written(tmp_path, {**FILE, "stages": 0})
    assert f"{path}: stages is 0" in refused(65, "plan", graph, "--machine", path)
    assert "mixgcn-none" in refused(66, "plan", graph, "--machine", "mixgcn-none")


def test_shipped_machines_are_those_of_help():
    assert tuple(SHIPPED) == MACHINES
    for path in SHIPPED.values():
        assert "Not in the paper" in json.loads(path.read_text())["source"]


@pytest.mark.long
@pytest.mark.parametrize("name", MACHINES)
def test_plans_of_shipped_machines(graph, name):
    asked = "-k", "1,4", "--json"
    report = json.loads(succeed("plan", graph, "--machine", name, *asked))
    by_path = json.loads(succeed("plan", graph, "--machine", SHIPPED[name], *asked))
    assert report["rows"] == by_path["rows"]
    assert report["machine"]["network_from_file"]
    assert (report["machine"]["devices"] is None) == name.startswith("mg-gcn")
    assert all(row["seconds"]["compute"] > 0 for row in report["rows"])
    assert "assumed" not in " ".join(report["notes"])


def test_numbers_of_a_graph_stand_for_it(tmp_path):
    """Strategy mop has the same forecast for a graph and for its numbers.

    The numbers are those of vertices and entries.
    """
    made = make()
    path = tmp_path / "graph.h5"
    store.write_graph(path, made)
    rates, _ = read_machine("mixgcn-sparse-unit")
    config = Config(prune=False, pipeline_batches=1)
    report = forecast(path, Options((4,), (24, 16, 5), machine=rates, config=config))
    row, = (row for row in report["rows"] if row["strategy"] == "mop")
    names = runpy.run_path(str(SCRIPT))
    n = report["graph"]["num_nodes"]
    edges = report["graph"]["multiplied_nonzeros"] - n
    found = names["step_seconds"](rates, names["footprint"]("mop", 4, n, edges, (24, 16, 5)))
    assert found == pytest.approx((row["seconds"]["compute"], row["seconds"]["communication"]))


def test_batches_of_mop_are_the_stages_of_its_pipeline(tmp_path):
    path = tmp_path / "graph.h5"
    store.write_graph(path, make())

    def seconds(batches, stages):
        rates, _ = read_machine("mixgcn-sparse-unit")
        rates = replace(rates, devices=replace(rates.devices, stages=stages))
        config = Config(prune=False, pipeline_batches=batches)
        report = forecast(path, Options((4,), (24, 16, 5), machine=rates, config=config))
        return {row["strategy"]: row["seconds"]["compute"] for row in report["rows"]}

    # buffers differ a little, and calls take most of the time
    alone, given = seconds(1, 1), seconds(4, 11)
    saved = alone["mop"] - given["mop"]
    assert saved > 0 and saved == pytest.approx(alone["mop"] - seconds(1, 4)["mop"], rel=0.02)
    assert given["1d"] == seconds(1, 11)["1d"]


def test_the_table_of_the_papers(capsys):
    names = runpy.run_path(str(SCRIPT))
    names["main"]([])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("papers100M") for line in lines) == 4
    names["main"](["--json"])
    tables = json.loads(capsys.readouterr().out)
    assert [len(rows) for rows in tables.values()] == [5, 5, 5, 5, 13]

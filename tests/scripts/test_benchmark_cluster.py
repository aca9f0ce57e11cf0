"""The benchmark of strategies on clusters of namespaces, and its tables."""
import json
from pathlib import Path

import pytest
from commands import refused, run
from graphs import make

from benchmarks import cluster, node_gain
from benchmarks import run as script
from hpgcn import store


def test_choices_slower_than_the_fastest_are_marked():
    rows = [{"name": name, "sent_bytes": 10**6, "planned_s": planned,
             "measured_s": measured, "least_s": measured, "most_s": measured,
             "ratio": measured / planned}
            for name, planned, measured in (("p2p", 1.0, 1.1), ("cover", 0.8, 1.25),
                                            ("mop", 0.7, 1.5))]
    case = {"layout": "2x2", "rate": "1gbit", "auto": "cover", "rows": rows,
            "network": {"latency_s": 1e-4, "bytes_per_s": 1e8}}
    assert [row["name"] for row in cluster.choices(case)] == ["p2p", "mop", "cover"]
    lines = cluster.text({"cases": [case]}).splitlines()
    assert lines[0] == "2x2 ranks at 1gbit: 100.0 MB/s a rank, latency 100 us"
    assert lines[-1].split() == ["2x2", "1gbit", "p2p", "1.1", "mop", "1.36!", "cover", "1.14"]


@pytest.mark.parametrize("layouts", ["1x1", "2", "2x0", "axb"])
def test_usage(layouts):
    refused(2, "cluster", "g.h5", "--layouts", layouts, program=script.main)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Let ranks measure their machine with small arrays and graphs."""
    worker = tmp_path / "ranks.py"
    worker.write_text(f"""
import runpy
from hpgcn.bench import host, training_steps
host.CACHES, host.SMALLEST, host.GEMM_SIZE = 0, 1 << 20, 64
training_steps.SCALE, training_steps.EPOCHS = 8, 3
runpy.run_path({str(cluster.WORKER)!r}, run_name="__main__")
""")
    monkeypatch.setattr(cluster, "WORKER", worker)


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_every_strategy_is_forecast_and_trained(tmp_path):
    store.write_graph(tmp_path / "g.h5", make(n=60))
    done = run("cluster", tmp_path / "g.h5", "--layouts", "2x1", "--rates", "1gbit", "--hidden", 8,
               "--epochs", 2, "--repeats", 1, "--json", program=script.main)
    if done.returncode == 69:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    case, = json.loads(done.stdout, parse_constant=pytest.fail)["cases"]
    names = {row["name"] for row in case["rows"]}
    assert {"p2p", "cover", case["auto"]} <= names
    assert all(row["planned_s"] > 0 and row["measured_s"] > 0 for row in case["rows"])


def test_before_and_after_are_compared_by_medians(monkeypatch, tmp_path):
    """Epochs of both turns count, and each strategy has its own two sides."""
    calls = []
    seconds = {"p2p": ([4.0, 9.0, 5.0], [2.0]), "cover": ([3.0], [3.0])}

    def call(command, label):
        calls.append(command)
        if label == "2x2 at 1gbit":
            words = json.loads(command[-1])
            epochs = [[{"epoch_s": each, "bytes_between_nodes": size} for each in found]
                      for sides in seconds.values() for found, size in zip(sides, (30, 20))]
            assert [case["node_aware"] for case in words["cases"]] == 2 * ["never", "always"]
            Path(words["out"]).write_text(json.dumps(epochs))

    monkeypatch.setattr(cluster, "call", call)
    report = node_gain.measure(node_gain.Settings("g.h5", strategies=("p2p", "cover")))
    first, second = report["rows"]
    assert (first["before"]["epoch_s"], first["before"]["most_s"]) == (5.0, 9.0)
    assert first["bytes_ratio"] == 1.5 and (first["gain"], second["gain"]) == (2.5, 1.0)
    assert [("--nodes" in command) for command in calls[:4]] == [False, True, False, True]
    assert "5.000 (4.000-9.000)" in node_gain.text(report)


@pytest.mark.release  # the test above trains on such a cluster, test_node_aware.py both exchanges
def test_both_sides_are_trained(tmp_path):
    store.write_graph(tmp_path / "g.h5", make(n=60))
    done = run("nodes", tmp_path / "g.h5", "--strategies", "p2p", "--hidden", 8, "--epochs", 2,
               "--turns", 1, "--json", program=script.main)
    if done.returncode == 69:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    row, = json.loads(done.stdout, parse_constant=pytest.fail)["rows"]
    assert row["before"]["bytes_between_nodes"] > 0 and row["gain"] > 0

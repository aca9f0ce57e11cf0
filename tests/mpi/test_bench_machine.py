"""`hpgcn bench machine` on several ranks writes a file that `hpgcn plan` reads."""
import json
import math

import pytest
from graphs import make

from hpgcn.bench import Settings, format_report, host, machine_rates, rates, training_steps
from hpgcn.planning.answers.options import Options, read_machine
from hpgcn.planning.answers.report import forecast
from hpgcn.store import write_graph

pytestmark = pytest.mark.mpi
SMALL = {"ROW_BYTES": (1 << 10, 1 << 12, 1 << 14), "MOST_ROWS": 1 << 8, "ROWS": 1 << 6, "STEPS": 2,
         "PRODUCT_BYTES": tuple(1 << size for size in (8, 10, 12, 14, 16)),
         "MULTIPLICATIONS": 1 << 10}


@pytest.mark.long
def test_measured_rates_are_read(comm, tmp_path, monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(rates, name, value)
    for name, value in {"CACHES": 0, "SMALLEST": 1 << 20, "GEMM_SIZE": 64}.items():
        monkeypatch.setattr(host, name, value)
    for name, value in {"SCALE": 6, "EPOCHS": 3}.items():
        monkeypatch.setattr(training_steps, name, value)
    report = machine_rates.measure(Settings(repeats=1), host.BenchHost(), comm)
    counts = [1] if comm.size == 1 else [1, comm.size]
    assert ("network" in report) == ("steps" in report) == (comm.size > 1)
    if comm.rank:
        return
    assert [each["ranks"] for each in report["rates"]] == counts
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(report, allow_nan=False))
    found, network = read_machine(file)
    assert network == (comm.size > 1) and [each.ranks for each in found.rates] == counts
    if network:
        assert 0 < found.latency_s < 60 and found.network_bytes_per_s > 0
        assert 0 <= found.hidden <= 1
        assert {"p2p", "1d", "mop"} <= set(found.steps)

    write_graph(tmp_path / "g.h5", make(n=300))
    told = forecast(tmp_path / "g.h5", Options(ranks=(1, 2), machine=found))
    assert told["machine"]["rates"] == counts
    for row in told["rows"]:
        assert 0 < row["seconds"]["compute"] < math.inf
    about = host.BenchHost().describe() | {"versions": {}}
    text = format_report({"bench": "machine", "machine": about, **report})
    assert f"timed on {' and '.join(map(str, counts))} ranks" in text
    assert ("network latency" in text) == ("steps of p2p" in text) == network

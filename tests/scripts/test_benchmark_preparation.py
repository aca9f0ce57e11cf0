"""The benchmark from a text file to the first epoch: its steps, and the rows that parts send."""
import json
import sys

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

from benchmarks import preparation, run
from benchmarks.measured import measured
from hpgcn import store
from hpgcn.partition import make_partition

STEPS = ("generate the text", "read the text", "convert", "convert, order kept", "plan", "set-up",
         "epoch")


@pytest.mark.long
def test_all_steps_are_measured(tmp_path, monkeypatch, forked):
    monkeypatch.setattr(sys, "executable", f"{forked}/python")
    text = succeed("preparation", "--entries", 16000, "--parts", 3, "--threads", 1, "--json",
                   "--efforts", "fast,default", "--folder", tmp_path, program=run.main)
    report = json.loads(text, parse_constant=pytest.fail)
    rows = {row["step"]: row for row in report["rows"]}
    assert set(STEPS) <= rows.keys()
    efforts = [step for step in rows if step.startswith("partition, effort")]
    assert efforts == ["partition, effort fast", "partition, effort default"]
    assert all(row["seconds"] > 0 and row["peak_mb"] > 1 for row in rows.values())
    assert rows["epoch"]["epochs"] == 1
    assert list(tmp_path.iterdir()) == []

    table = preparation.markdown(report)
    assert all(f"| {step} |" in table for step in rows)


def test_a_step_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="exit code 3: sorry"):
        measured([sys.executable, "-S", "-c", "print('sorry'); raise SystemExit(3)"])
    refused(2, "preparation", "--parts", 1, program=run.main)
    refused(2, "preparation", "--entries", "1M", program=run.main)
    refused(2, "preparation", "--efforts", "fast,all", program=run.main)


def test_rows_sent_are_those_of_the_partition(tmp_path):
    graph = make()
    store.write_graph(tmp_path / "graph.h5", graph)
    found = make_partition(graph, 3, method="random", seed=0, rcm=False, refine=False)
    assert preparation.sent_rows(tmp_path / "graph.h5", np.asarray(found.part),
                                 3) == found.statistics["volume"]

"""Runs that are killed on one tier of memory go on in another one, to the same bits."""
import json
import os
import signal
import sys

import pytest
from checkout import ROOT
from commands import process
from resuming import left_behind

from hpgcn.runtime import faults

pytestmark = pytest.mark.long

DOWN = "disk", "GPU", "memory"
DEVICES = "memory", "memory of a GPU", "memory"  # those of DOWN, and of the reverse


def run_through(tiers, python, out, settings, *, killed):
    """Run two epochs on each tier; `killed` ones go on until the third, and are killed in it."""
    scratch = out.with_suffix(".scratch")
    scratch.mkdir()
    for done, tier in enumerate(tiers):
        epochs = 2 * (done + 1)
        fault = {}
        if killed and epochs < 2 * len(tiers):
            fault = {faults.VARIABLE: f"kill:3:{epochs + 1}:backward"}
        ended = process(python, ROOT / "tests" / "support" / "tiers.py", tier, scratch, out,
                        epochs + len(fault), json.dumps(settings),
                        PYTHONPATH=os.pathsep.join(sys.path), **fault)
        assert ended.returncode == (-signal.SIGKILL if fault else 0), ended.stderr
        assert not os.listdir(scratch)
    return left_behind(out)


@pytest.mark.parametrize("strategy, settings", [
    ("p2p", {}), ("cover", {"model": "gin"}), ("vertex-cut", {"model": "gat", "heads": 2}),
    ("1d", {"dtype": "bf16"}),
    *(pytest.param(*each, marks=pytest.mark.release) for each in (
        ("mop", {"norm": "batch"}), ("2d", {"model": "gin"})))], ids=str)
def test_killed_runs_go_on_in_other_tiers(strategy, settings, forked, tmp_path):
    settings = {"strategy": strategy, **settings}
    python = f"{forked}/python"
    expected = run_through(DEVICES, python, tmp_path / "expected", settings, killed=False)
    for name, tiers in (("down", DOWN), ("up", DOWN[::-1])):
        assert run_through(tiers, python, tmp_path / name, settings, killed=True) == expected

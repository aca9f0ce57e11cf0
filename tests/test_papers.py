"""The scripts in scripts/papers run in their small setting, print the paper's table and
draw a picture.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import MPIEXEC, clean_environment

FOLDER = Path(__file__).parents[1] / "scripts" / "papers"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh") if path.name != "common.sh")
SLOWEST = "accuracy.sh", "cagnet-breakdown.sh"  # run before a release
# a sentence or a cell of the paper, in the output of each script
PAPER = {
    "accuracy.sh": "about 75% on Cora", "cagnet-breakdown.sh": "2d is never faster than 1.5d",
    "demirci-table2.sh": "paper, 512 parts", "distgnn-blocks.sh": "Table 3",
    "distgnn-delay.sh": "Table 6", "mggcn-density.sh": "Figure 9",
    "mggcn-memory.sh": "section 4.2", "mggcn-permutation.sh": "4 V100",
    "mixgcn-balance.sh": "Figure 11", "mixgcn-ordering.sh": "papers100M (paper)",
    "scaling.sh": "demirci-2022, Figure 3", "stochastic.sh": "1.10 in the mean"}


@pytest.mark.long
@pytest.mark.skipif(not MPIEXEC, reason="needs mpiexec: pip install '.[mpi,mpich]'")
@pytest.mark.parametrize("script", [
    pytest.param(name, marks=[pytest.mark.release] * (name in SLOWEST)) for name in SCRIPTS])
def test_script_prints_a_table_and_draws_a_picture(script, tmp_path, forked):
    pytest.importorskip("matplotlib")
    path = os.pathsep.join([forked, str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**clean_environment(), "PATH": path, "OUT": str(tmp_path / "out")}
    ended = subprocess.run(["bash", FOLDER / script, "--small"], env=variables, text=True,
                           capture_output=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert PAPER[script] in ended.stdout
    assert "---" in ended.stdout and " nan" not in ended.stdout
    picture = Path(ended.stdout.rsplit("picture: ", 1)[1].strip())
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_script_without_a_graph_says_how_to_call_it():
    ended = subprocess.run(["bash", FOLDER / "accuracy.sh"], text=True, capture_output=True,
                           timeout=60, check=False)
    assert ended.returncode == 2
    assert "scripts/papers/accuracy.sh [--small] GRAPH.h5" in ended.stderr

"""The scripts in scripts/papers run in their small setting.

They print the paper's table, store its numbers and draw a picture whose texts can be
read.
"""
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import picture_texts
import pytest
from checkout import ROOT
from commands import MPIEXEC, clean_environment

FOLDER = ROOT / "scripts" / "papers"
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


@pytest.fixture
def checking(tmp_path, forked):
    """Return a folder for the PATH whose `python` also checks the pictures of the scripts."""
    folder = tmp_path / "checking"
    folder.mkdir()
    (folder / "hpgcn").symlink_to(Path(forked) / "hpgcn")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in {FOLDER}/*) set -- {picture_texts.__file__} "$@";; '
                      f'esac\nexec {forked}/python "$@"\n')
    python.chmod(0o755)
    return str(folder)


@pytest.mark.long
@pytest.mark.skipif(not MPIEXEC, reason="needs mpiexec: pip install '.[mpi,mpich]'")
@pytest.mark.parametrize("script", [
    pytest.param(name, marks=[pytest.mark.release] * (name in SLOWEST)) for name in SCRIPTS])
def test_script_prints_a_table_and_draws_a_picture(script, tmp_path, checking):
    pytest.importorskip("matplotlib")
    path = os.pathsep.join([checking, str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**clean_environment(), "PATH": path, "OUT": str(tmp_path / "out")}
    ended = subprocess.run(["bash", FOLDER / script, "--small"], env=variables, text=True,
                           capture_output=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert PAPER[script] in ended.stdout
    assert "---" in ended.stdout and " nan" not in ended.stdout
    picture = Path(ended.stdout.rsplit("picture: ", 1)[1].strip())
    assert picture.read_bytes().startswith(b"\x89PNG")

    # the numbers of every printed table
    results = json.loads(picture.with_suffix(".json").read_text())
    assert results["script"] == script.removesuffix(".sh") == picture.stem
    assert len(results["tables"]) == ended.stdout.count("\n---")
    assert all(rows and all(row.keys() == rows[0].keys() for row in rows)
               for rows in results["tables"].values())


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Return the module results.py of the scripts, for a script NAME.sh.

    Its pictures are checked.
    """
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("RESULTS", str(tmp_path / "name.json"))
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "results", raising=False)
    module = importlib.import_module("results")
    monkeypatch.delitem(sys.modules, "results")
    return module


def test_tables_are_printed_rounded_and_stored_whole(results, tmp_path, capsys):
    columns = {"case": ("case", ""), "seconds": ("s/epoch", ".2f")}
    results.show("one", "title", columns, [{"case": "1d", "seconds": 1 / 3}, {"case": "2d"}])
    results.show("two", "title", columns, [{"case": "3d", "seconds": np.float32(0.5)}])
    printed = capsys.readouterr().out
    assert "1d       0.33\n" in printed and "2d          -\n" in printed
    assert json.loads((tmp_path / "name.json").read_text()) == {"script": "name", "tables": {
        "one": [{"case": "1d", "seconds": 1 / 3}, {"case": "2d", "seconds": None}],
        "two": [{"case": "3d", "seconds": 0.5}]}}


def test_pictures_of_long_names_and_many_ranks_can_be_read(results, monkeypatch):
    drawings = []
    monkeypatch.setattr(results, "png", lambda drawing: drawings.append(drawing) or b"")
    names = ["a graph with a long name", "soc-Slashdot0902 (paper)", "mean"]
    series = {"METIS": [1.5, 23473, None], "RCM": [.1, 175, 4.25]}
    ranks = [1, 2, 4, 16, 64, 512]

    def draw(bars, groups, curves):
        results.bars(bars, names, {"dense": [1, 2, 3], "sparse broadcast": [0, 2, 1]}, title="s")
        results.groups(groups, [""] * 3, series, title="seconds")
        results.curves(curves, {f"case {number}": (ranks, [number * p for p in ranks])
                                for number in range(1, 8)}, title="speed-up")
        results.count_axis(curves.xaxis, ranks)
        curves.set_yscale("log")
        groups.set_xscale("log")

    results.picture(draw, width=12, height=5, panels=3)
    results.picture(lambda axes: results.bars(axes, names, series | {"METIS": [1, 2, 3]}))
    assert [picture_texts.problems(drawing) for drawing in drawings] == [[], []]


def test_texts_that_cannot_be_read_are_found(results, monkeypatch):
    drawings = []
    monkeypatch.setattr(results, "png", lambda drawing: drawings.append(drawing) or b"")

    def draw(axes):
        axes.plot([1, 100], [1, 100])
        axes.set(xscale="log", yticks=[1, 2, 3])
        axes.text(0.5, 0.5, "one", transform=axes.transAxes)
        axes.text(0.5, 0.5, "other", transform=axes.transAxes)
        axes.text(0.2, 0.1, "$10^3$", transform=axes.transAxes)
        axes.text(1.2, 0.5, "outside", transform=axes.transAxes).set_in_layout(False)

    results.picture(draw)
    found = "; ".join(picture_texts.problems(drawings[0]))
    assert "has code of TeX" in found and "'one' and 'other' overlap" in found
    assert "'outside' is not inside the picture" in found and "'1' and '2' overlap" in found


def test_script_without_a_graph_says_how_to_call_it():
    ended = subprocess.run(["bash", FOLDER / "accuracy.sh"], text=True, capture_output=True,
                           timeout=60, check=False)
    assert ended.returncode == 2
    assert "scripts/papers/accuracy.sh [--small] GRAPH.h5" in ended.stderr

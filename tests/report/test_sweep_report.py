"""`hpgcn report OUT` of a sweep: its runs, their table, and a picture of each setting."""
import pytest
from commands import refused, succeed
from graphs import make

import hpgcn
from hpgcn import report
from hpgcn.report import look
from hpgcn.report.run_sweep import panels


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Return a folder with the runs of a sweep, and its Sweep."""
    out = tmp_path_factory.mktemp("sweep") / "runs"
    values = {"hidden": [16, 8], "norm": ["none", "layer"], "lr": [0.1]}
    return out, hpgcn.sweep(make(n=60), hpgcn.Config(epochs=2, out=str(out)), values,
                            seeds=range(2))


def test_the_table_of_a_folder(swept, tmp_path):
    out, found = swept
    text = succeed("report", out, "--html", tmp_path / "r.html", "-q")
    sweep = report.sweep_of(report.read_runs(report.expanded([out])[0]))
    assert text.startswith(sweep.text()) and text.count("/seed-1 ") >= 4
    assert "a folder of 8 runs: compare them with `hpgcn report" in refused(65, "inspect", out)
    assert sweep.varied == ("hidden", "norm")  # lr is equal in all runs
    assert sweep.best == {name: each for name, each in found.best.items() if name != "lr"}
    assert len(sweep) == 8 and sweep[0]["hidden"] == 8
    page = (tmp_path / "r.html").read_text()
    assert "validation results over the values of each setting" in page and "runs  valid" in page


def test_an_unfinished_run_is_not_in_the_means(swept, tmp_path):
    out, _ = swept
    runs = report.read_runs(report.expanded([out])[0])
    runs[0].summary = {}
    assert sorted(each["runs"] for each in report.sweep_of(runs).combinations) == [1, 2, 2, 2]


def test_runs_that_differ_in_no_setting_have_no_table(swept):
    out, _ = swept
    path = next(out.iterdir())
    assert report.expanded([path / "seed-0"]) == ([path / "seed-0"], 0)
    assert report.sweep_of(report.read_runs(report.expanded([path])[0])) is None
    assert "best epoch" in succeed("report", path / "seed-0", path / "seed-1").replace("\n", " ")


def test_a_panel_for_each_setting(swept):
    pytest.importorskip("matplotlib")
    _, found = swept
    with look.style():
        drawing = panels(found)
    shown = [axis for axis in drawing.axes if axis.get_visible()]
    assert [axis.get_xlabel() for axis in shown] == ["hidden", "norm", "lr"]
    dots, means, ring = shown[0].lines
    assert len(dots.get_xdata()) == 8
    assert [each.get_text() for each in shown[0].get_xticklabels()] == ["8", "16"]
    narrow = [row["best_val_acc"] for row in found if row["hidden"] == 8]
    assert means.get_ydata()[0] == pytest.approx(100 * sum(narrow) / len(narrow))
    assert ring.get_ydata()[0] == pytest.approx(100 * found.best["best_val_acc"]["mean"])

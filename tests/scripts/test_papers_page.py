"""docs/papers.md: filled from measured figures; short forms of its commands give the same.

scripts/papers/run.py writes the page from a template and from measured.json.
"""
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from commands import clean_environment
from papers import run as papers
from papers.runs import GRAPHS, RUNS
from papers.runs.outcome import Outcome

from benchmarks import run as benchmarks
from hpgcn.cli.parser import parser

TEXT = (ROOT / "docs" / "papers.md").read_text()
TEMPLATE = papers.TEMPLATE.read_text()
MEASURED = json.loads(papers.MEASURED.read_text())
SHORT = [label for label, run in RUNS.items() if run.short]


def rows_of(text):
    """Return the rows of the page's tables of results, lists of five cells."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
            if line.count("|") == 6 and not line.startswith("|---") and "| mark |" not in line]


ROWS = rows_of(TEXT)
REASONS = re.findall(r"^- \*([a-z ]+)\*:", TEXT, re.MULTILINE)


def test_the_page_is_filled_from_the_measured_figures():
    assert papers.filled(TEMPLATE, MEASURED) == TEXT
    assert papers.MISSING not in [word for row in ROWS for word in re.split(r"[ ,;]+", row[2])]


def test_every_figure_is_of_the_command_that_the_page_prints():
    for label, run in RUNS.items():
        if run.figures:
            assert MEASURED[label]["command"] == run.command
            assert MEASURED[label]["date"] and MEASURED[label]["commit"]


def test_no_figure_is_kept_by_hand():
    # a figure has a decimal point or a unit; widths, counts and formulas have not
    by_hand = re.compile(r"\d*\.\d(?!d)|\d ?(%|s|ms|MB|GB)\b")
    results = [re.sub(r"\{.*?\}|`.*?`|\(.*?\)", "", row[2]) for row in rows_of(TEMPLATE)]
    assert not [cell for cell in results if by_hand.search(re.sub(r"\b[123](\.5)?d\b", "", cell))]


def test_every_figure_is_used():
    used = set(re.findall(r"\{([A-Z]\d+)\[", TEMPLATE))
    assert used == {label for label, run in RUNS.items() if run.figures}


def simple_commands():
    """Return the commands of the page without loops and variables, by label."""
    return {label: re.sub(r"^mpiexec -n \d+ ", "", run.command) for label, run in RUNS.items()
            if not re.search(r"[;$\n]|^[A-Z]+=", run.command)}


@pytest.mark.parametrize("label", simple_commands())
def test_a_command_exists(label):
    program, *words = shlex.split(simple_commands()[label])
    if program == "hpgcn":
        parser().parse_args(words)
        return
    script = words.pop(0) if program == "python" else program
    assert (ROOT / script).exists()
    if script == "scripts/benchmarks/run.py":
        benchmarks.parser().parse_args(words)


@pytest.mark.parametrize("label", SHORT)
@pytest.mark.long
def test_short_forms_give_the_figures_that_are_kept(label, tmp_path, forked, monkeypatch):
    run, kept = RUNS[label], MEASURED[label]["short"]
    assert kept["command"] == run.short
    for name in {*os.environ} - {*clean_environment()}:
        monkeypatch.delenv(name)
    monkeypatch.setattr(papers, "PLACES", [forked, Path(sys.executable).parent])
    try:
        found = papers.run_figures(label, run.short, tmp_path)
    except papers.MissingInputError as error:
        pytest.skip(str(error))
    assert found.keys() == kept["figures"].keys()
    assert found.pop("loss_difference", 0) < 1e-5  # rounding, which depends on the machine
    for name, figure in found.items():
        assert figure == pytest.approx(kept["figures"][name], rel=run.tolerance), name


def test_labels_of_rows_and_commands_agree():
    assert {row[1] for row in ROWS} - {""} == {*RUNS}


def test_rows_have_a_mark_and_a_reason():
    marks = {"y", *(f"{mark} {reason}" for mark in "p-" for reason in REASONS)}
    assert len(ROWS) > 120 and len(REASONS) > 5
    assert not [row for row in ROWS if row[4] not in marks or not (row[0] and row[2] and row[3])]


def test_every_script_of_papers_is_on_the_page():
    scripts = {path.name for path in (ROOT / "scripts" / "papers").glob("*.sh")} - {"common.sh"}
    assert scripts == {*re.findall(r"scripts/papers/(\S+\.sh) \S+\.h5", TEXT)}


def test_graphs_of_commands_are_made_by_commands():
    for name, command in GRAPHS.items():
        program, *words = shlex.split(command)
        assert program == "hpgcn" and f"{name}.h5" in words
        parser().parse_args(words)


def test_figures_are_printed_as_the_page_has_them():
    held = papers.Measured("D1", {"figures": {"a": .5, "b": [1.25, -.5, None], "c": "text"}})
    assert [f"{held['a']:.2f}", f"{held['b']:.1f}", f"{held['c']}", f"{held['d']:.1f}"] == [
        ".50", "1.2, -.5, -", "text", "?"]


def test_tables_of_a_script_are_read(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "x.json").write_text('{"tables": {"t": [{"a": 1}]}}')
    assert Outcome("", tmp_path).table("t") == [{"a": 1}]
    assert Outcome('log\n{"a": 2}\n', tmp_path).object == {"a": 2}


def test_an_unknown_label_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        papers.main(["Q7"])
    assert ended.value.code == 2
    assert "Q7: unknown" in capsys.readouterr().err

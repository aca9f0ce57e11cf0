"""docs/papers.md: its commands exist, and each row of its tables has a mark and a reason."""
import re
import shlex

import pytest
from test_readme import ROOT

from benchmarks import run as benchmarks
from hpgcn.cli.parser import parser

TEXT = (ROOT / "docs" / "papers.md").read_text()
COMMAND = re.compile(r"^\| ([A-Z]\d+) \| `(.*)` \|$", re.MULTILINE)
COMMANDS = dict(COMMAND.findall(TEXT))
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines()
        if line.count("|") == 6 and not line.startswith("|---") and "| mark |" not in line]
REASONS = re.findall(r"^- \*([a-z ]+)\*:", TEXT, re.MULTILINE)


@pytest.mark.parametrize("label", COMMANDS)
def test_a_command_exists(label):
    program, *words = shlex.split(re.sub(r"^mpiexec -n \d+ ", "", COMMANDS[label]))
    if program == "hpgcn":
        parser().parse_args(words)
        return
    script = words.pop(0) if program == "python" else program
    assert (ROOT / script).exists()
    if script == "scripts/benchmarks/run.py":
        benchmarks.parser().parse_args(words)


def test_labels_of_tables_and_commands_agree():
    assert len(COMMANDS) == len(COMMAND.findall(TEXT))
    assert {row[1] for row in ROWS} - {""} == {*COMMANDS}


def test_rows_have_a_mark_and_a_reason():
    marks = {"y", *(f"{mark} {reason}" for mark in "p-" for reason in REASONS)}
    assert len(ROWS) > 100 and len(REASONS) > 5
    assert not [row for row in ROWS if row[4] not in marks or not (row[0] and row[2] and row[3])]


def test_every_script_of_papers_is_on_the_page():
    scripts = {path.name for path in (ROOT / "scripts" / "papers").glob("*.sh")} - {"common.sh"}
    named = re.findall(r"`scripts/papers/(\S+\.sh) ", TEXT)
    assert scripts == {*named}

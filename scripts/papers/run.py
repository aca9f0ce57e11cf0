#!/usr/bin/env python3
"""Run the commands of docs/papers.md, keep their figures, and fill the page with them.

    python scripts/papers/run.py [LABEL ...]   # such as D5 X4, or D for all of one paper
    python scripts/papers/run.py --fill        # only fill the page from measured.json
    python scripts/papers/run.py --check       # exit 1 if the page differs from that

Without a label it runs all commands. Graphs are made in a folder (--folder) and kept there.
Graphs of files come from the folder of data sets, HPGCN_TEST_DATA. A command whose data, GPU
or library is missing is left out with a line, and its figures stay.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "scripts")]

from papers.runs import GRAPHS, PAPERS, RUNS  # noqa: E402
from papers.runs.outcome import Outcome  # noqa: E402

from hpgcn.bench.host import cpu_model  # noqa: E402

DATA = Path(os.environ.get("HPGCN_TEST_DATA", ROOT.parent / "shared" / "data")).resolve()
PLACES = [Path(sys.executable).parent]  # folders of hpgcn, python and mpiexec
PAGE = ROOT / "docs" / "papers.md"
TEMPLATE = HERE / "page.md"
MEASURED = HERE / "measured.json"
WIDTH = 120  # columns of the page
MISSING = "?"  # on the page, for a figure that was never measured
UNAVAILABLE = 69  # exit status of a command without a device or a library


class MissingInputError(Exception):
    """A data set, a device or a library of a command is missing."""


def main(words):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", nargs="*", metavar="LABEL", help="commands, or D C G X N for "
                        "all of a paper (default: all)")
    parser.add_argument("--short", action="store_true",
                        help="run the short forms, and keep their figures for the tests")
    parser.add_argument("--fill", action="store_true", help="run nothing, fill the page")
    parser.add_argument("--check", action="store_true", help="run nothing, compare the page")
    parser.add_argument("--folder", type=Path, help="graphs and results (default: a new one)")
    given = parser.parse_args(words)

    if not (given.fill or given.check):
        folder = (given.folder or Path(tempfile.mkdtemp())).resolve()
        for label in chosen(parser, given.labels):
            try:
                keep(label, given.short, folder)
            except MissingInputError as error:
                print(f"{label}: left out, {error}", file=sys.stderr)

    page = filled(TEMPLATE.read_text(), json.loads(MEASURED.read_text()))
    if given.check:
        if PAGE.read_text() != page:
            print(f"{PAGE} differs from {MEASURED.name}: run {Path(__file__).name} --fill",
                  file=sys.stderr)
        return int(PAGE.read_text() != page)
    PAGE.write_text(page)
    return 0


def chosen(parser, labels):
    """Return the labels of the runs with figures that the words name."""
    for word in labels:
        if word not in RUNS and word not in PAPERS:
            parser.error(f"{word}: unknown, expected labels such as D5, or {' '.join(PAPERS)}")
    return [label for label, run in RUNS.items() if run.figures
            and (not labels or label in labels or label[0] in labels)]


def keep(label, short, folder):
    """Run a command and write its figures to MEASURED."""
    run = RUNS[label]
    if short and not run.short:
        return
    command = run.short if short else run.command
    begin = time.perf_counter()
    figures = run_figures(label, command, folder)
    print(f"{label}: {time.perf_counter() - begin:.1f} s, {figures}", file=sys.stderr)

    measured = json.loads(MEASURED.read_text())
    held = measured.setdefault(label, {})
    if short:
        held["short"] = {"command": command, "figures": figures}
    else:
        held |= {"command": command, "figures": figures, **circumstances()}
    MEASURED.write_text(json.dumps(dict(sorted(measured.items(), key=by_label)), indent=1) + "\n")


def by_label(item):
    """Return the sort key of an item by label: paper, then number."""
    return list(PAPERS).index(item[0][0]), int(item[0][1:])


def circumstances():
    """Return the date, the commit and the machine of a measurement."""
    def output(*words):
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout.strip()

    commit = output("git", "rev-parse", "--short=8", "HEAD")
    if output("git", "status", "--porcelain", "--", "hpgcn", "kernels", "datasets"):
        commit += "+"
    return {"date": datetime.now(UTC).date().isoformat(), "commit": commit,
            "machine": f"{cpu_model()}, {os.cpu_count()} threads"}


def run_figures(label, command, folder):
    """Run a command in a folder and return its figures, a dict from name to numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in graphs_of(command):
        make_graph(name, folder)
    out = folder / label
    out.mkdir(exist_ok=True)
    printed = shell(command, folder, OUT=str(out))
    figures = RUNS[label].figures(Outcome(printed, out))
    return {name: rounded(value) for name, value in figures.items()}


def rounded(value):
    """Return a number with six digits, or a list of such numbers; texts stay."""
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, str) or value is None:
        return value
    return int(value) if float(value).is_integer() else float(f"{float(value):.6g}")


def graphs_of(command):
    """Return the names of the graphs that a command reads."""
    return [name for name in re.findall(r"([\w-]+)\.h5", command) if name in GRAPHS]


def make_graph(name, folder):
    """Write a graph of GRAPHS to NAME.h5 unless it is there."""
    command = GRAPHS[name]
    for source in re.findall(r"DATA/(\S+)", command):
        if not (DATA / source).exists():
            raise MissingInputError(f"{DATA / source}: no such file; set HPGCN_TEST_DATA")
    if not (folder / f"{name}.h5").exists():
        shell(f"{command.replace('DATA/', f'{DATA}/')} -q", folder)


def shell(command, folder, **variables):
    """Run a command line in a folder and return its output; raise if it fails.

    Scripts of the repository are found from any folder.
    """
    line = re.sub(r"(?<![\w/])scripts/", f"{ROOT}/scripts/", command)
    places = [*map(str, PLACES), os.environ.get("PATH", "")]
    # more ranks than cores: MPICH's waiting ranks must give way to those that compute
    environment = {**os.environ, "PATH": os.pathsep.join(places),
                   "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", **variables}
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=folder, text=True,
                           capture_output=True, check=False, env=environment)
    if ended.returncode == UNAVAILABLE:
        raise MissingInputError(ended.stderr.strip().splitlines()[-1])
    if ended.returncode:
        raise SystemExit(f"{command}\nended with {ended.returncode}:\n{ended.stderr}")
    return ended.stdout


class Figure:
    """A number, or a list of numbers, that formats without a leading zero."""

    def __init__(self, value):
        self.value = value

    def __format__(self, style):
        if isinstance(self.value, list):
            return ", ".join(format(Figure(value), style) for value in self.value) or MISSING
        if isinstance(self.value, str):
            return self.value
        text = "-" if self.value is None else format(self.value, style)
        return re.sub(r"^(-?)0\.", r"\1.", text)


class Measured:
    """A run in the template: {D5[name]:.2f} is a figure with its format."""

    def __init__(self, label, held):
        self.command = RUNS[label].command
        self.when = f": {held['date']}, {held['commit']}" if held.get("date") else ""
        self.figures = held.get("figures", {})

    def __getitem__(self, name):
        return Figure(self.figures.get(name, MISSING))


def filled(template, measured):
    """Return the page: the template with commands, dates and figures."""
    runs = {label: Measured(label, measured.get(label, {})) for label in RUNS}
    used = {name for run in RUNS.values() for name in graphs_of(run.command)}
    graphs = "\n".join(line for name in GRAPHS if name in used
                       for line in wrapped(re.sub(r"DATA/(?:\S+/)?", "", GRAPHS[name])))
    machines = sorted({held["machine"] for held in measured.values() if "GPU" not in
                       held.get("machine", "GPU")})
    tables = {f"runs_{letter}": run_table(letter, runs) for letter in PAPERS}
    return template.format(graphs=graphs, machine=" or ".join(machines) or MISSING, **tables,
                           **runs)


def run_table(letter, runs):
    """Return the commands of a paper as lines of a shell, with dates and commits."""
    lines = []
    for label, run in runs.items():
        if label[0] == letter:
            lines += [f"# {label}{run.when}", *wrapped(run.command)]
    return "\n".join(lines)


def wrapped(command):
    """Return the lines of a command, cut to at most WIDTH columns."""
    found = []
    for line in command.splitlines():
        parts = textwrap.wrap(line, WIDTH - 2, subsequent_indent="    ", break_long_words=False,
                              break_on_hyphens=False)
        found += [*(f"{part} \\" for part in parts[:-1]), parts[-1]]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

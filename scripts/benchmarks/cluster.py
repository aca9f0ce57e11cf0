"""Train with every strategy on clusters that scripts/cluster.sh makes; compare with the plan.

A case is a layout (nodes x ranks of each) and a rate of the nodes' links. On each case the network
is measured, every strategy is forecast with these figures, and trained. A graph is partitioned once
for each number of ranks.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hpgcn.errors import InternalError, MissingError, UsageError
from hpgcn.runtime.launcher import without_launcher
from hpgcn.runtime.text_table import table

SCRIPT = Path(__file__).parents[1] / "cluster.sh"
WORKER = Path(__file__).with_name("cluster_ranks.py")
LOST = 1.2  # factor over the fastest strategy from which a choice is marked
NO_RIGHTS = 69  # exit status of the script


class Settings(NamedTuple):
    """The arguments of `measure`."""

    graph: str
    layouts: tuple[str, ...] = ("2x1", "2x2", "4x1")
    rates: tuple[str, ...] = ("100mbit", "1gbit", "10gbit")
    delay: str = "0"
    hidden: int = 128
    layers: int = 2
    epochs: int = 3
    repeats: int = 2
    machine: str = ""  # machine file with the rates of kernels
    folder: str | None = None  # where partitions are kept; None: nowhere

    def check(self):
        """Raise UsageError if a layout is invalid; the script checks rates and the delay."""
        for layout in self.layouts:
            if not re.fullmatch(r"[1-9]\d?x[1-9]\d?", layout) or layout == "1x1":
                raise UsageError(f"--layouts: {layout!r} is no layout, expected such as 2x2: "
                                 "nodes x ranks of each")


def measure(settings):
    """Run all cases of the Settings; return a dict with "bench", "settings" and "cases".

    A case is a dict:

    - layout and rate;
    - network, within_node, steps: as in the output of `hpgcn bench machine`;
    - bench_s: the seconds in which they were measured;
    - auto: the strategy and exchange that a run with these rates chooses by itself;
    - rows: a dict for each strategy and exchange, with planned_s, measured_s (the median), least_s
      and most_s of an epoch.
    """
    settings.check()
    cases = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(settings.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for layout in settings.layouts:
            nodes, each = map(int, layout.split("x"))
            parts = folder / f"{Path(settings.graph).stem}.p{nodes * each}.h5"
            if not parts.exists():
                call([sys.executable, "-m", "hpgcn", "partition", settings.graph, "-k",
                      str(nodes * each), "--method", "cover", "--effort", "fast", "-q", "-o",
                      str(parts)], "the partition")
            for rate in settings.rates:
                print(f"cluster: {layout} ranks at {rate}", file=sys.stderr)
                cases.append({"layout": layout, "rate": rate,
                              **run_case(settings, layout, rate, parts, Path(temporary))})
    return {"bench": "cluster", "settings": settings._asdict(), "cases": cases}


def run_case(settings, layout, rate, parts, folder):
    """Run `cluster_ranks` on one case and return its report."""
    nodes, each = layout.split("x")
    out = folder / "case.json"
    words = {"graph": str(parts), "out": str(out), "machine": settings.machine,
             "hidden": settings.hidden, "layers": settings.layers, "epochs": settings.epochs,
             "repeats": settings.repeats}
    call([SCRIPT, "--nodes", nodes, "--ranks-per-node", each, "--rate", rate, "--delay",
          settings.delay, sys.executable, WORKER, json.dumps(words)], f"{layout} at {rate}")
    return json.loads(out.read_text())


def call(command, label):
    """Run a command; raise MissingError without the rights for a cluster, else InternalError."""
    done = subprocess.run(list(map(str, command)), check=False, text=True, capture_output=True,
                          env=without_launcher(os.environ))
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == NO_RIGHTS:
        raise MissingError(last)
    if done.returncode:
        raise InternalError(f"{label} failed with {done.returncode}: {last}")


def choices(case):
    """Return the fastest strategy of a case, that of the plan and that of auto: dicts of rows."""
    rows = case["rows"]
    fastest = min(rows, key=lambda row: row["measured_s"])
    planned = min(rows, key=lambda row: row["planned_s"])
    auto = next(row for row in rows if row["name"] == case["auto"])
    return fastest, planned, auto


def text(report):
    """Return a report as text: a table of each case, and one of all choices."""
    parts = []
    chosen = [("layout", "rate", "fastest", "s", "by the plan", "slower", "auto", "slower")]
    for case in report["cases"]:
        title = (f"{case['layout']} ranks at {case['rate']}: "
                 f"{1e-6 * case['network']['bytes_per_s']:.1f} MB/s a rank, latency "
                 f"{1e6 * case['network']['latency_s']:.0f} us")
        lines = [("strategy", "MB an epoch", "planned s", "measured s", "least", "most", "ratio")]
        lines += [(row["name"], f"{1e-6 * row['sent_bytes']:.1f}",
                   *(f"{row[key]:.3g}" for key in ("planned_s", "measured_s", "least_s", "most_s")),
                   f"{row['ratio']:.2f}") for row in case["rows"]]
        parts.append(f"{title}\n{table(lines)}")

        fastest, *others = choices(case)
        line = [case["layout"], case["rate"], fastest["name"], f"{fastest['measured_s']:.3g}"]
        for row in others:
            slower = row["measured_s"] / fastest["measured_s"]
            line += [row["name"], f"{slower:.2f}" + ("!" if slower > LOST else "")]
        chosen.append(tuple(line))
    return "\n\n".join([*parts, table(chosen)])

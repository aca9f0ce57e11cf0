"""Train on nodes of several ranks, before and after parts and messages take account of nodes.

Before: parts of `hpgcn partition -k`, and direct messages. After: parts of `--nodes`, and a row
goes to each node once. Both train on a cluster that scripts/cluster.sh makes.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import cluster
from hpgcn.runtime.text_table import table

# strategies, and the method of their parts
METHODS = {"p2p": "hypergraph", "cover": "hypergraph", "vertex-cut": "cover"}
SIDES = {"before": "never", "after": "always"}  # the setting node_aware


class Settings(NamedTuple):
    """The arguments of `measure`."""

    graph: str
    layout: str = "2x2"
    rate: str = "1gbit"
    strategies: tuple[str, ...] = tuple(METHODS)
    effort: str = "default"
    hidden: int = 128
    layers: int = 2
    epochs: int = 4
    turns: int = 2
    folder: str | None = None  # where partitions are kept; None: nowhere


def measure(settings):
    """Run the Settings; return a dict with "bench", "settings" and "rows".

    A row is a dict of a strategy:

    - method: the method of its parts;
    - before, after: dicts of bytes_between_nodes of an epoch, epoch_s (the median), least_s and
      most_s, without the first epoch of each turn;
    - bytes_ratio, gain: bytes and median seconds before over those after.
    """
    cluster.Settings(settings.graph, (settings.layout,)).check()
    nodes, each = map(int, settings.layout.split("x"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(settings.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = [{"strategy": strategy, "node_aware": aware,
                  "graph": str(make_parts(settings, folder, METHODS[strategy], side, nodes, each))}
                 for strategy in settings.strategies for side, aware in SIDES.items()]

        # all cases in one start of the ranks
        out = Path(temporary) / "cases.json"
        words = {"out": str(out), "cases": cases, **{
            name: getattr(settings, name) for name in ("hidden", "layers", "epochs", "turns")}}
        cluster.call([cluster.SCRIPT, "--nodes", nodes, "--ranks-per-node", each, "--rate",
                      settings.rate, sys.executable, cluster.WORKER, json.dumps(words)],
                     f"{settings.layout} at {settings.rate}")
        found = json.loads(out.read_text())

    rows = []
    for strategy, (before, after) in zip(settings.strategies, zip(found[::2], found[1::2])):
        sides = {"before": summary(before), "after": summary(after)}
        ratios = {name: sides["before"][key] / sides["after"][key]
                  for name, key in (("bytes_ratio", "bytes_between_nodes"), ("gain", "epoch_s"))}
        rows.append({"strategy": strategy, "method": METHODS[strategy], **sides, **ratios})
    return {"bench": "nodes", "settings": settings._asdict(), "rows": rows}


def make_parts(settings, folder, method, side, nodes, each):
    """Return the path of the parts of one side, which are made if they are missing."""
    path = folder / f"{Path(settings.graph).stem}.{settings.layout}.{method}.{side}.h5"
    if not path.exists():
        by_node = ["--nodes", nodes] if side == "after" else []
        cluster.call([sys.executable, "-m", "hpgcn", "partition", settings.graph, "-k",
                      nodes * each, "--method", method, "--effort", settings.effort, *by_node,
                      "-q", "-o", path], f"the partition {side}")
    return path


def summary(epochs):
    """Return the numbers of one side of a row, a dict; `epochs`: metrics of its epochs, a list."""
    seconds = [epoch["epoch_s"] for epoch in epochs]
    return {"bytes_between_nodes": epochs[0]["bytes_between_nodes"],
            "epoch_s": statistics.median(seconds), "least_s": min(seconds), "most_s": max(seconds)}


def text(report):
    """Return a report as a table."""
    lines = [("strategy", "parts", "MB before", "after", "ratio", "s before", "after", "gain")]
    for row in report["rows"]:
        megabytes, seconds = ([form(row[side]) for side in SIDES] for form in (
            lambda side: f"{1e-6 * side['bytes_between_nodes']:.1f}",
            lambda side: f"{side['epoch_s']:.3f} ({side['least_s']:.3f}-{side['most_s']:.3f})"))
        lines.append((row["strategy"], row["method"], *megabytes, f"{row['bytes_ratio']:.2f}",
                      *seconds, f"{row['gain']:.2f}"))
    return table(lines)

"""Time all steps from a text file to the first epoch; compare partitions with those of METIS.

Each step is a whole process: its seconds include the start of Python and the read of its input. A
graph of a planted partition (sbm, edge factor 8) is written as text, converted in memory and on
disk, partitioned, planned and trained. The epoch is that of a gcn on one rank with all threads.
"""

import json
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from benchmarks.measured import measured
from hpgcn.errors import UsageError

EDGE_FACTOR = 8  # edges drawn for each vertex; each is stored in both directions
FEATURES, HIDDEN, CLASSES = 128, 64, 16
EPOCHS = 3
TEXT_SHARE = 3  # bytes of text for each byte of memory of the conversion on disk
LEAST_MEMORY = 400 << 20  # bytes
PEER = Path(__file__).with_name("preparation_peer.py")
PEERS = {  # step: name in preparation_peer, modules of which it needs one
    "partition, pymetis": ("pymetis", ("pymetis",)),
    "partition, PyG ClusterData": ("cluster", ("torch_sparse", "pyg_lib"))}
EFFORTS = ("fast", "default", "best")
ROW_BLOCK = 1 << 20
MOST_PARTS = 1 << 12
MOST_ENTRIES = 1 << 36


class Settings(NamedTuple):
    """The arguments of `measure`."""

    entries: tuple[int, ...]
    parts: int = 8
    threads: int = 0
    seed: int = 0
    folder: str | None = None  # where files are written and removed; None: the system's
    efforts: tuple[str, ...] = EFFORTS  # efforts of hpgcn partition

    def check(self):
        """Raise UsageError if the number of parts is out of range, or an effort is unknown."""
        if not 2 <= self.parts <= MOST_PARTS:
            raise UsageError(f"--parts {self.parts}: expected 2..{MOST_PARTS}")
        for effort in self.efforts:
            if effort not in EFFORTS:
                raise UsageError(f"--efforts: {effort!r} is unknown, expected names among "
                                 f"{', '.join(EFFORTS)}")


def measure(settings):
    """Run all steps for each number of entries in the Settings.

    The dict has "bench", "settings", "rows" and "absent". "rows" have these keys:

    - entries: those of the stored graph; step;
    - seconds, cpu_s, peak_mb: of the process;
    - text_mb_per_s: bytes of text by seconds, of steps that read or write it;
    - sent_rows: rows that all parts send, of partitions;
    - epochs: seconds divided by those of an epoch in the same run.

    "absent" has the reasons why peers are missing.
    """
    settings.check()
    absent = {step: f"needs {' or '.join(modules)}" for step, (_, modules) in PEERS.items()
              if not any(find_spec(module) for module in modules)}
    rows = []
    for entries in settings.entries:
        folder = Path(tempfile.mkdtemp(prefix="preparation-", dir=settings.folder))
        try:
            rows += _steps(folder, entries, settings, absent)
        finally:
            shutil.rmtree(folder)
    return {"bench": "preparation", "settings": settings._asdict(), "rows": rows,
            "absent": absent}


class _Steps:
    """The steps of one graph in a `folder`, and the rows that they gave so far."""

    def __init__(self, folder, settings):
        self.settings = settings
        self.text, self.graph, self.parted, self.run = (
            folder / name for name in ("edges.txt", "graph.h5", "parts.h5", "run"))
        self.rows = []

    def measure(self, name, *command, program=("-m", "hpgcn"), uses_text=False, **known):
        """Run a command in a process; append its row, with `known` as more of its numbers."""
        cost, _ = measured([sys.executable, *program, *command])
        rate = self.text.stat().st_size / 1e6 / cost.seconds if uses_text else None
        self.rows.append({"step": name, "seconds": cost.seconds, "cpu_s": cost.cpu_s,
                          "peak_mb": cost.peak_bytes / 1e6, "text_mb_per_s": rate,
                          "sent_rows": None} | known)

    def convert(self, entries):
        """Write the text, read it, and convert it three times; return the entries stored."""
        scale = max(10, round(np.log2(entries / (2 * EDGE_FACTOR))))
        self.measure("generate the text", "generate", "sbm", self.text, "--scale", scale,
                     "--edge-factor", EDGE_FACTOR, "--seed", self.settings.seed, uses_text=True)
        self.measure("read the text", "read", self.text, program=(PEER,), uses_text=True)

        memory = f"{max(LEAST_MEMORY, self.text.stat().st_size // TEXT_SHARE) >> 20}M"
        for name, flags in ((f"convert, memory {memory}", ("--memory", memory)),
                            ("convert, order kept", ("--order", "none")), ("convert", ())):
            self.measure(name, "convert", self.text, self.graph, "--overwrite", "--symmetrize",
                         "--features", f"random:{FEATURES}", "--labels", f"random:{CLASSES}",
                         "--split", "random:60/20/20", *flags, uses_text=True)
        with h5py.File(self.graph) as file:
            return file["adjacency/indices"].size

    def partition(self, absent):
        """Partition the graph at each effort, and by the peers that are not `absent`."""
        parts = self.settings.parts
        for name, flags in _efforts(self.settings.efforts).items():
            self.measure(name, "partition", self.graph, "-k", parts, "-o", self.parted,
                         "--overwrite", *flags)
            with h5py.File(self.parted) as file:
                self.rows[-1]["sent_rows"] = int(file["partition"].attrs["volume"])

        found = self.graph.with_name("parts.npy")
        for name, (peer, _) in PEERS.items():
            if name not in absent:
                self.measure(name, peer, self.graph, parts, found, program=(PEER,))
                self.rows[-1]["sent_rows"] = sent_rows(self.graph, np.load(found), parts)

    def train(self):
        """Plan the parts, and train on one rank; return the seconds of an epoch."""
        self.measure("plan", "plan", self.parted, "-k", self.settings.parts, "--widths",
                     f"{FEATURES},{HIDDEN},{CLASSES}")
        self.measure("train", "train", self.graph, "--epochs", EPOCHS, "--hidden", HIDDEN, "--out",
                     self.run, "--threads", self.settings.threads, "--eval-every", 0, cpu_s=None)

        # two rows of the one process
        summary = json.loads((self.run / "summary.json").read_text())
        train = self.rows.pop()
        self.rows += [train | {"step": "set-up", "seconds": summary["setup_s"]},
                      train | {"step": "epoch", "seconds": summary["epoch_s_median"]}]
        return summary["epoch_s_median"]


def _steps(folder, entries, settings, absent):
    """Return the rows of one graph."""
    steps = _Steps(folder, settings)
    stored = steps.convert(entries)
    steps.partition(absent)
    epoch = steps.train()
    return [{"entries": stored} | row | {"epochs": row["seconds"] / epoch} for row in steps.rows]


def _efforts(names):
    """Return the flags of `hpgcn partition` for each step.

    These efforts, or two methods if it has no efforts.
    """
    if "--effort" in measured([sys.executable, "-m", "hpgcn", "partition", "--help"])[1]:
        return {f"partition, effort {effort}": ("--effort", effort) for effort in names}
    return {"partition, stream": ("--method", "stream"), "partition": ()}


def sent_rows(graph, part, parts):
    """Return the rows that parts send for a product: each row once to each part that reads it.

    `part` (n,) is the part of each row of the file `graph`.
    """
    read = np.zeros((parts, part.size), bool)
    with h5py.File(graph) as file:
        indptr = file["adjacency/indptr"][:]
        for first in range(0, part.size, ROW_BLOCK):
            last = min(first + ROW_BLOCK, part.size)
            columns = file["adjacency/indices"][indptr[first]:indptr[last]]
            read[np.repeat(part[first:last], np.diff(indptr[first:last + 1])), columns] = True
    read[part, np.arange(part.size)] = False
    return int(np.count_nonzero(read))


def markdown(report):
    """Return the rows of a report as a Markdown table for each number of entries."""
    lines = []
    for entries in dict.fromkeys(row["entries"] for row in report["rows"]):
        lines += ["", f"| {entries:,} entries | seconds | CPU seconds | peak MB | text MB/s | "
                      "rows sent | / epoch |", "|---|---|---|---|---|---|---|"]
        for row in report["rows"]:
            if row["entries"] == entries:
                numbers = (_cell(row["seconds"], ".2f"), _cell(row["cpu_s"], ".2f"),
                           _cell(row["peak_mb"], ",.0f"), _cell(row["text_mb_per_s"], ",.0f"),
                           _cell(row["sent_rows"], ",d"), _cell(row["epochs"], ".1f"))
                lines.append(f"| {row['step']} | {' | '.join(numbers)} |")
    lines += [f"\nwithout {name}: {reason}" for name, reason in report["absent"].items()]
    return "\n".join(lines).strip()


def _cell(value, style):
    return "-" if value is None else format(value, style)

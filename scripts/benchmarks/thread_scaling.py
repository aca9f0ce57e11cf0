"""Benchmark of steps and launches on 1, 2, 4, ... threads, and of ranks that divide the threads."""

import json
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.benchmark_graphs import FAMILIES, normalized, scaled
from benchmarks.cluster import call
from benchmarks.epoch import train_epochs, with_all_in_training
from benchmarks.process import alone
from hpgcn.datasets.generators.generate import generate
from hpgcn.doctor import find_launcher
from hpgcn.errors import MissingError, require
from hpgcn.runtime.progress_bar import bar
from hpgcn.store import save

LAUNCH = 20_000, 5_000, 16  # nonzeros, rows and columns of a product that one thread ends at once
ENOUGH = 2.0  # seconds of steps that are timed, at least
LEAST = 10  # steps that are timed, at least
DROPOUT = 0.5  # as of `train_epochs`
EPOCHS = 12  # that ranks train


class Case(NamedTuple):
    """A graph and a GCN: kind and size as of `generate`, then widths."""

    kind: str
    scale: int
    edge_factor: int
    widths: tuple[int, ...]


CASES = {  # sizes of Cora with dense features, email-Enron, Slashdot, and the benchmark graphs
    "tiny": Case("rmat", 11, 2, (1433, 16, 7)), "enron": Case("rmat", 15, 6, (32, 16, 7)),
    "slashdot": Case("rmat", 16, 12, (128, 128, 128, 40)),
    **{name: Case(*family, (128, 128, 128, 40)) for name, family in FAMILIES.items()}}
RANKS = Case("sbm", 17, 12, (128, 128, 128, 8))  # what they train on


def measure(settings, host, limits):
    """Time steps of six graphs and launches of one product, by number of threads.

    Each case and number of threads has a process of its own. "rows": case, threads,
    vertices, nonzeros, step_ms (median), and torch_ms for the same layers on
    torch.sparse_csr. "launches": threads, and launch_us of a product that one thread
    ends in less time than a wake-up may take. "ranks": ranks, threads of each, and epoch_ms
    (median) of a GCN on an SBM, by p2p with contiguous parts. "absent": why torch or mpiexec is
    missing, if it is.
    """
    absent: dict = {}
    try:
        require("torch", "torch", "bench threads")
    except MissingError as error:
        absent["torch"] = str(error)
    counts = [1]
    while counts[-1] < settings.threads:
        counts.append(min(2 * counts[-1], settings.threads))

    rows, launches = [], []
    for name in bar(CASES, desc="threads", unit="graph", leave=False):
        for threads in counts:
            label = f"bench threads: the process that trained on {name}"
            row = alone(label, "use --scale-down", time_steps, name, threads, settings)
            if not absent:
                row |= alone(label, "use --scale-down", time_torch, name, threads, settings)
            rows.append(row)
    for threads in counts:
        launches.append(alone("bench threads: the process that multiplied", "", time_launch,
                              threads, settings.seed))
    ranks = time_ranks([count for count in counts if settings.threads % count == 0], settings,
                       absent)
    return {"rows": rows, "launches": launches, "ranks": ranks, "absent": absent}


def make_graph(name, settings):
    """Return the Graph of a case; all vertices train."""
    return generated(CASES[name], settings)


def generated(case, settings):
    features, *_, classes = case.widths
    graph = generate(case.kind, scale=scaled(case.scale, settings.scale_down),
                     edge_factor=case.edge_factor, features=features, classes=classes,
                     seed=settings.seed)
    return with_all_in_training(graph)


def time_steps(name, threads, settings):
    """Return a row of `measure` without torch."""
    graph = make_graph(name, settings)
    _, *hidden, _ = CASES[name].widths
    epochs = LEAST
    while True:
        lines = train_epochs(graph, hidden, epochs, settings.seed, threads)
        seconds = [line["epoch_s"] for line in lines][LEAST // 2:]
        if sum(seconds) >= ENOUGH / settings.scale_down or epochs > 1000:
            break
        epochs = min(2000, int(epochs * 1.5 * ENOUGH / max(sum(seconds), 1e-9)) + 1)
    return {"case": name, "threads": threads, "vertices": graph.num_rows,
            "nonzeros": graph.header.num_edges + graph.num_rows,
            "step_ms": 1e3 * float(np.median(seconds))}


def time_torch(name, threads, settings):
    """Return {"torch_ms": median} of steps of the same layers by torch, with its own optimizer."""
    torch = require("torch", "torch", "bench threads")
    torch.set_num_threads(threads)
    torch.manual_seed(settings.seed)
    graph = make_graph(name, settings)
    A = normalized(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse tensors are in beta
        arrays = map(torch.from_numpy, (A.indptr, A.indices, A.values))
        A = torch.sparse_csr_tensor(*arrays, size=A.matrix.shape)
    X, y = torch.from_numpy(graph.features), torch.from_numpy(graph.labels)
    widths = CASES[name].widths
    layers = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in pairwise(widths))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)

    def step():
        H = X
        for number, layer in enumerate(layers):
            H = torch.nn.functional.dropout(H, DROPOUT)
            H = torch.matmul(A, H @ layer.weight.T) + layer.bias
            H = torch.relu(H) if number + 1 < len(layers) else H
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(H, y).backward()
        optimizer.step()

    return {"torch_ms": 1e3 * median_seconds(step, ENOUGH / settings.scale_down)}


def time_ranks(counts, settings, absent):
    """Return the rows of "ranks" for numbers of ranks."""
    launcher = find_launcher()
    if launcher is None:
        absent["mpiexec"] = "not found"
        counts = counts[:1]
    _, *hidden, _ = RANKS.widths
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.h5"
        save(generated(RANKS, settings), path)
        for count in bar(counts, desc="threads", unit="ranks", leave=False):
            threads = settings.threads // count
            out = Path(folder) / f"run{count}"
            ranks = [launcher, "-n", count] if count > 1 else []
            call([*ranks, sys.executable, "-m", "hpgcn", "train", path, "--strategy", "p2p",
                  "--layers", len(hidden) + 1, "--hidden", hidden[0], "--dropout", DROPOUT,
                  "--threads", threads, "--epochs", EPOCHS, "--eval-every", 0, "--out", out],
                 f"bench threads: training on {count} ranks")
            lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
            seconds = [line["epoch_s"] for line in lines][EPOCHS // 3:]
            rows.append({"ranks": count, "threads": threads,
                         "epoch_ms": 1e3 * float(np.median(seconds))})
    return rows


def time_launch(threads, seed):
    """Return a row of "launches"."""
    from hpgcn.kernels import cpu
    from hpgcn.kernels.host.threads import set_num_threads, threshold

    set_num_threads(threads)
    nonzeros, n, width = LAUNCH
    A = sp.random_array((n, n), density=nonzeros / n**2, rng=np.random.default_rng(seed),
                        format="csr", dtype=np.float32)
    x = np.ones((n, width), np.float32)
    out = np.empty_like(x)
    with threshold(0):
        seconds = median_seconds(lambda: cpu.trusted.spmm(A.indptr, A.indices, A.data, x, out), 0.2)
    return {"threads": threads, "launch_us": 1e6 * seconds}


def median_seconds(call, enough):
    """Return the median seconds of a call, after some calls that are not counted."""
    found = []
    for _ in range(LEAST // 2):
        call()
    while len(found) < LEAST or sum(found) < enough:
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return float(np.median(found))

"""Benchmark of the seconds until an accuracy is reached.

It has several settings of --batch, and PyG.
"""

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import fmean, median

import numpy as np
import scipy.sparse as sp

from benchmarks.checks import OURS, tolerated
from benchmarks.process import alone
from hpgcn import sampling
from hpgcn.bench.host import BenchHost
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import DataError, HpgcnError, UsageError
from hpgcn.runtime.machine import default_threads
from hpgcn.runtime.progress_bar import bar
from hpgcn.runtime.temporary import temporary_folder
from hpgcn.sampling import FULL

PEER = "pyg"
CLUSTERS = "graph"  # partitioning by METIS, as ClusterLoader does
SCRIPT = Path(__file__).with_name("accuracy_peer.py")
PEER_FIELDS = (  # settings that the peer takes or that do not concern it; of others the default
    "layers", "hidden", "dropout", "input_dropout", "batch", "epochs", "patience", "lr",
    "weight_decay", "decay_layers", "precompute", "prune", "eval_every", "seed", "split_index",
    "device", "threads", "strategy", "graph", "memory", "comm_timeout")
KEPT = ("epoch_s", "val_acc", "test_acc")  # metrics of an epoch that are kept


def measure(path, config, batches=(), *, seeds=(0,), target=None, margin=0.005, seconds=0.0,
            peer=""):
    """Train on a graph with each setting of --batch and each seed.

    Runs follow each other in new processes.

    Parameters
    ----------
    path : str
        Graph (.h5).
    config : hpgcn.Config
        All but batch, seed and out, which are set here.
    batches : sequence of str
        Settings of --batch. "full" is put first where it is not among them and `target` is None.
    seeds : sequence of int
    target : float, optional
        Validation accuracy that is to be reached. Default: mean over seeds of the best one of full
        batch, less `margin`.
    margin : float
    seconds : float
        Training seconds after which a run ends with its epoch; 0: never.
    peer : str
        A Python with torch and torch_geometric, which trains likewise
        (`benchmarks.accuracy_peer`); "": none.

    Returns
    -------
    dict
        "bench", "settings", "machine", "graph", "target_acc", "rows", "curves", "absent" (library
        and batch: why there is no peer), "summary" (texts). A row of a library and batch has
        medians over seeds, None where half of them or more never reached the target: steps (of an
        epoch), epochs_run, epoch_s (median), setup_s, reached ("2 of 3"), to_target_epochs,
        to_target_steps, to_target_s (epoch_s of all epochs up to the first evaluation at the
        target: no set-up, no evaluations), faster_ratio (to_target_s of our full batch over it),
        val_acc (best), test_acc (of that epoch), peak_rss_bytes. A curve is of one run: library,
        batch, seed, seconds, val_acc, test_acc, at evaluations.

    Raises
    ------
    UsageError
        A batch twice or malformed, a target or margin that is no share.
    HpgcnError
        Whatever training raises.
    """
    config = config.replace(out="", seed=0)
    batches = check(config, batches, seeds, target, margin, seconds)
    from hpgcn import store
    from hpgcn.training.setup.run_plan import check_trainable

    source = store.load(path)
    check_trainable(source.header, config.split_index, source.path)
    graph = source.read().of_split(config.split_index)

    runs = []
    todo = [(batch, seed) for batch in batches for seed in seeds]
    for batch, seed in bar(todo, desc="accuracy", unit="run", leave=False):
        config = config.replace(batch=batch, seed=seed)
        run = alone("bench accuracy: the process that trained with --batch "
                    f"{batch}", "use smaller batches",
                    train_on, path, config, seconds)
        runs.append({"library": OURS, "batch": batch, "seed": seed,
                     "steps": steps_of(batch, source, graph), **run})
    absent = {}
    if peer:
        runs += run_peers(source, graph, config, todo, seconds, peer, absent)

    asked = target
    if target is None:
        target = fmean(max(known(run, "val_acc")) for run in runs[:len(seeds)]) - margin
    rows = [row_of([run for run in runs if (run["library"], run["batch"]) == key], target)
            for key in dict.fromkeys((run["library"], run["batch"]) for run in runs)]
    reference = next((row["to_target_s"] for row in rows if row["batch"] == FULL), None)
    for row in rows:
        took = row["to_target_s"]
        row["faster_ratio"] = reference / took if reference and took else None
    settings = dataclasses.asdict(config) | {
        "batch": list(batches), "seed": list(seeds), "target": asked, "margin": margin,
        "seconds": seconds}
    header = graph.header
    return {
        "bench": "accuracy", "settings": settings, "machine": BenchHost().describe(),
        "graph": {"name": header.name, "vertices": header.num_nodes, "entries": header.num_edges,
                  "features": header.num_features, "classes": header.num_classes,
                  "train": int(graph.masks["train"].sum())},
        "target_acc": target, "rows": rows, "curves": [curve_of(run) for run in runs],
        "absent": absent, "summary": summarize(header.name, rows, target, asked, margin)}


def check(config, batches, seeds, target, margin, seconds):
    """Return the valid settings of --batch.

    Full batch comes first if it defines the target.

    Raise UsageError for repeated or invalid settings.
    """
    batches = tuple(batches)
    if target is None and FULL not in batches:
        batches = (FULL, *batches)
    if target is None:
        batches = (FULL, *(batch for batch in batches if batch != FULL))
    for batch in batches:
        sampling.parse(config.replace(batch=batch).batch)
        if batches.count(batch) > 1:
            raise UsageError(f"bench accuracy: batch {batch!r:.80} is given twice")
    if not batches or not seeds:
        raise UsageError("bench accuracy: expected at least one --batch and one seed")
    for name, value, low, high in (("target", target, 0, 1), ("margin", margin, 0, 1),
                                   ("seconds", seconds, 0, 1e9)):
        if value is not None and not low <= value <= high:
            raise UsageError(f"bench accuracy: {name} is {value}, expected {low}..{high:g}")
    return batches


def steps_of(batch, source, graph):
    """Return the number of training steps in an epoch with this --batch."""
    request = sampling.parse(batch)
    if request is None:
        return 1
    if request.name == "vertices":
        units = graph.num_rows
    elif request.name == "neighbors":
        units = int(graph.masks["train"].sum())
    else:
        units = int(request.parts) if request.parts.isdigit() else \
            (source.reopen(request.parts) if request.parts else source).vertex_partition.k
    return -(-units // request.size)


def train_on(path, config, seconds):
    """Train for at most `seconds` seconds (0: no limit).

    Return setup time, peak memory and the history.

    First, one epoch that is not counted compiles and loads everything that is needed.
    """
    from hpgcn.training.run import train

    train(path, config.replace(epochs=1, eval_every=0))
    spent = [0.0]

    def enough(metrics):
        spent[0] += metrics["epoch_s"]
        return 0 < seconds <= spent[0]

    result = train(path, config, callbacks=[enough])
    return {"setup_s": result["setup_s"], "peak_rss_bytes": result["peak_rss_bytes"],
            "history": [{key: line[key] for key in KEPT} for line in result.history]}


def run_peers(source, graph, config, todo, seconds, python, absent):
    """Train with PyG in another Python for each (batch, seed) it supports.

    Return runs like those of `measure`.
    """
    runs = []
    with temporary_folder(tempfile.gettempdir()) as folder:
        with tolerated(PEER, absent):
            check_peer(graph, config)
            hand_over(graph, folder)
        for batch, seed in bar([] if absent else todo, desc=PEER, unit="run", leave=False):
            name = f"{PEER} {batch}"
            if name in absent:
                continue
            with tolerated(name, absent):
                settings = peer_settings(source, graph, config.replace(batch=batch, seed=seed),
                                         folder)
                settings["seconds"] = seconds
                (folder / "settings.json").write_text(json.dumps(settings))
                runs.append({"library": PEER, "batch": batch, "seed": seed,
                             **call_peer(python, folder)})
    return runs


def check_peer(graph, config):
    """Raise an error for settings and graphs that the script for PyG does not support."""
    default = Config()
    for entry in dataclasses.fields(Config):
        value = getattr(config, entry.name)
        if entry.name not in PEER_FIELDS and value != getattr(default, entry.name):
            raise UsageError(f"{entry.name} = {value!r}: the script for PyG does not support this "
                             "setting")
    header = graph.header
    if header.directed or not header.all_ones or header.multilabel:
        raise DataError(f"{header.name}: the script for PyG does not support directed, weighted or "
                        "multi-label graphs")


def hand_over(graph, folder):
    """Write a graph as .npy files: CSR without diagonal, x, y and masks."""
    A = sp.csr_array((np.ones(graph.indices.size, np.int8), graph.indices, graph.indptr),
                     shape=2 * (graph.num_rows,), copy=True)
    A.setdiag(0)
    A.eliminate_zeros()
    X = graph.features
    arrays = {"indptr": A.indptr.astype(np.int64), "indices": A.indices.astype(np.int64),
              "x": (X.toarray() if sp.issparse(X) else X).astype(np.float32, copy=False),
              "y": graph.labels.astype(np.int64), **graph.masks}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def peer_settings(source, graph, config, folder):
    """Return the settings for the PyG script.

    If batches are parts, also write the part of each vertex.
    """
    request = sampling.parse(config.batch)
    options = {"layers": config.layers}
    if request is not None and request.name == "neighbors":
        fan_outs = list(request.fan_outs) * (config.layers if len(request.fan_outs) == 1 else 1)
        options |= {"size": request.size, "fan_outs": fan_outs}
    elif request is not None and request.name == "parts":
        from hpgcn.training.setup.run_partition import parts_of

        options["size"] = request.size
        part, _ = parts_of(request, source, SerialComm(), CLUSTERS)
        np.save(folder / "part.npy", part[graph.vertex].astype(np.int64))
    elif request is not None:
        raise UsageError(f"batch = {config.batch}: PyG has no equivalent loader")
    return {"batch": {"name": request.name if request else FULL, "options": options},
            "hidden": [config.hidden] * (config.layers - 1),
            "dropouts": [config.first_dropout, *[config.dropout] * (config.layers - 1)],
            **{name: getattr(config, name) for name in (
                "lr", "weight_decay", "decay_layers", "epochs", "patience", "eval_every", "seed")},
            "threads": config.threads or default_threads()}


def call_peer(python, folder):
    """Run the PyG script.

    If it fails, raise HpgcnError with the last line of its errors.
    """
    try:
        done = subprocess.run([python, SCRIPT, folder], capture_output=True,
                              text=True, check=False)
    except OSError as error:
        raise HpgcnError(f"{python}: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise HpgcnError(said[-1][:300])
    return json.loads(done.stdout.splitlines()[-1])


def known(run, name):
    """Return a metric at a run's evaluations, or [0.0] without any."""
    return [line[name] for line in run["history"] if line[name] is not None] or [0.0]


def reached(run, target):
    """Return the epochs and seconds until the target was first reached.

    The target is a validation accuracy; None if it was never reached.
    """
    spent = 0.0
    for epoch, line in enumerate(run["history"], 1):
        spent += line["epoch_s"]
        if line["val_acc"] is not None and line["val_acc"] >= target:
            return epoch, spent
    return None


def middle(values):
    """Return the median, where None counts as infinity; None if the median is infinite."""
    found = median(np.inf if value is None else value for value in values)
    return found if np.isfinite(found) else None


def row_of(runs, target):
    """Return the row of the table that summarizes the runs of all seeds; see `measure`."""
    ends = [reached(run, target) or (None, None) for run in runs]
    best = [int(np.argmax(known(run, "val_acc"))) for run in runs]
    steps = runs[0]["steps"]
    epochs = middle([end[0] for end in ends])
    return {
        **{name: runs[0][name] for name in ("library", "batch", "steps")},
        "epochs_run": middle([len(run["history"]) for run in runs]),
        "epoch_s": median(line["epoch_s"] for run in runs for line in run["history"]),
        "setup_s": middle([run["setup_s"] for run in runs]),
        "reached": f"{sum(end[0] is not None for end in ends)} of {len(runs)}",
        "to_target_epochs": epochs,
        "to_target_steps": epochs * steps if epochs else None,
        "to_target_s": middle([end[1] for end in ends]),
        "faster_ratio": None,
        "val_acc": middle([known(run, "val_acc")[at] for run, at in zip(runs, best)]),
        "test_acc": middle([known(run, "test_acc")[at] for run, at in zip(runs, best)]),
        "peak_rss_bytes": max(run["peak_rss_bytes"] for run in runs)}


def curve_of(run):
    """Return the accuracies of a run as lists over its training seconds."""
    spent = np.cumsum([line["epoch_s"] for line in run["history"]])
    points = [(float(at), line["val_acc"], line["test_acc"])
              for at, line in zip(spent, run["history"]) if line["val_acc"] is not None]
    names = ("seconds", "val_acc", "test_acc")
    return {**{name: run[name] for name in ("library", "batch", "seed")},
            **{name: list(column) for name, column in zip(names, zip(*points))}}


def summarize(name, rows, target, asked, margin):
    """Return the target in words, and the names of runs that never reached it."""
    what = "given by --target" if asked is not None else \
        f"the best validation accuracy of full batches minus {100 * margin:g}%"
    missed = [f"{row['library']} {row['batch']} (best {100 * row['val_acc']:.2f}%)"
              for row in rows if row["reached"].startswith("0 ")]
    return {"graph": name, "target": f"{100 * target:.2f}%, {what}",
            "target never reached": ", ".join(missed) or "none"}

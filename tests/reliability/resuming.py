"""Settings and results of runs that are stopped and resumed."""
import json
import time

import hpgcn
from hpgcn.training.files.records import PART_SECONDS
from hpgcn.training.files.run_directory import read_run

TIMES = ("epoch_s", "eval_s", "spmm_s", "dense_s", "comm_s", "wait_s", "peak_rss_bytes",
         *PART_SECONDS)


def settings(out, **changes):
    return hpgcn.Config(**{"out": str(out), "epochs": 12, "hidden": 6, "checkpoint_every": 4,
                           **changes})


def steps(out):
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def wait_for(out, epochs, process):
    """Wait until a running process has completed `epochs` epochs, for at most a minute."""
    metrics, end = out / "metrics.jsonl", time.monotonic() + 60
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < epochs:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def left_behind(out):
    """Return the results in a run directory that do not depend on the clock."""
    weights, _, attributes = read_run(out)
    rows = [{name: value for name, value in line.items() if name not in TIMES}
            for line in lines(out)]
    summary = json.loads((out / "summary.json").read_text())
    kept = [summary[name] for name in (
        "epochs", "final_loss", "best_epoch", "best_val_acc", "test_acc", "sent_bytes_per_epoch",
        "max_rank_sent_bytes_per_epoch")]
    weights = {name: array.tobytes() for name, array in weights.items()}
    return weights, attributes["epoch"], rows, kept

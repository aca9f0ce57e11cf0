"""One run after another, each of a seed of its own, and what they come to: `train --seeds`."""
import os
import re
import statistics

from hpgcn.errors import UsageError
from hpgcn.runtime.text_table import table

SEED = r"\d{1,19}"
PIECE = re.compile(rf"({SEED})(?:\.\.({SEED}))?")
MOST = 10_000


def parse_seeds(text):
    """Return the seeds of e.g. "0..9" or "1,5,8..10", list of int; UsageError if they are none."""
    seeds = []
    for piece in text.split(","):
        match = PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63 or last - first >= MOST:
            raise UsageError(f"--seeds {text!r:.80}: expected such as 0..9 or 1,5,8")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds {text!r:.80}: expected each seed once")
    return seeds


def directory(out, seed):
    """Return the run directory of a seed."""
    return os.path.join(out, f"seed-{seed}")


def together(summaries):
    """Return mean and sample standard deviation of the metrics of runs; None where one is None."""
    found = {}
    for name in ("best_val_acc", "test_acc"):
        values = [summary[name] for summary in summaries]
        known = None not in values
        found[name] = {"mean": statistics.fmean(values) if known else None,
                       "std": statistics.stdev(values) if known and len(values) > 1 else None}
    return {"runs": summaries, **found}


def words(seeds, summaries):
    """Return a table of runs, a line each, and their mean."""
    from hpgcn.store.words import percent

    metric = summaries[0]["metric"]
    rows = [["seed", f"test {metric}", "validation", "best epoch", "epochs", "seconds per epoch"]]
    rows += [[str(seed), percent(each["test_acc"]), percent(each["best_val_acc"]),
              str(each["best_epoch"]), str(each["epochs"]), f"{each['epoch_s_median']:.4g}"]
             for seed, each in zip(seeds, summaries)]
    whole = together(summaries)
    for name in ("mean", "std"):
        rows.append([name, *(percent(whole[key][name]) for key in ("test_acc", "best_val_acc")),
                     "", "", ""])
    return table(rows, rule=True)

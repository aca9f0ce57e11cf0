"""Train with several seeds and splits, and summarize the results: `train --seeds`."""
import os
import re
import statistics
from dataclasses import dataclass, replace
from itertools import product

from hpgcn.errors import UsageError
from hpgcn.runtime.text_table import table

NUMBER = r"\d{1,19}"
PIECE = re.compile(rf"({NUMBER})(?:\.\.({NUMBER}))?")
MOST = 10_000
ALL = "all"


def parse_runs(args):
    """Return the RunGrid of a command line; UsageError if its flags contradict each other."""
    for flag, single in (("seeds", "seed"), ("splits", "split_index")):
        if getattr(args, flag) is None:
            continue
        for other in (single, "dry_run"):
            if getattr(args, other) is not None and getattr(args, other) is not False:
                raise UsageError(f"--{flag} and --{other.replace('_', '-')} exclude each other")
    splits = args.splits if args.splits == ALL else parse_numbers("--splits", args.splits)
    return RunGrid(parse_numbers("--seeds", args.seeds), splits)


def parse_numbers(flag, text):
    """Parse text such as "0..9" or "1,5,8..10" into a list of int.

    None stays None. Raise a UsageError if the text is invalid.
    """
    if text is None:
        return None
    numbers = []
    for piece in text.split(","):
        match = PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63 or last - first >= MOST:
            raise UsageError(f"{flag} {text!r:.80}: expected numbers such as 0..9 or 1,5,8")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"{flag} {text!r:.80}: expected each number once")
    return numbers


@dataclass(frozen=True)
class RunGrid:
    """The runs of one command: a grid of seeds x splits.

    It is falsy if neither flag was given.
    """

    seeds: list[int] | None = None  # None: the value in the settings
    splits: list[int] | str | None = None  # the same; or ALL, until the graph is open

    def __bool__(self):
        return self.seeds is not None or self.splits is not None

    def of(self, header):
        """Return this grid with ALL replaced by the numbers of all splits of the graph."""
        return replace(self, splits=list(range(header.num_splits))) if self.splits == ALL else self

    @property
    def first(self):
        """Return the split and the seed of the first run.

        None stands for the value in the settings.
        """
        splits = [0] if self.splits == ALL else self.splits
        return (splits or [None])[0], (self.seeds or [None])[0]

    def last_split(self, split_index):
        """Return the highest split number among the runs.

        `split_index` is the setting for a single split.
        """
        return max(self.splits or [split_index])

    def directory(self, out, split, seed):
        """Return the run directory of a split and a seed.

        None adds no folder to the path.
        """
        folders = [f"split-{split}"] * (split is not None) + [f"seed-{seed}"] * (seed is not None)
        return os.path.join(out, *folders)

    def configs(self, config):
        """Return the Config of each run, all seeds of the first split first."""
        return [config.replace(seed=config.seed if seed is None else seed,
                               split_index=config.split_index if split is None else split,
                               out=self.directory(config.out, split, seed))
                for split, seed in product(self.splits or [None], self.seeds or [None])]

    def words(self, configs, summaries):
        """Return a table of all runs, their mean and standard deviation.

        There is a line for each run.
        """
        from hpgcn.setting_words import score

        names = {"split": "split_index"} if self.splits else {}
        names |= {"seed": "seed"} if self.seeds else {}
        metric = summaries[0]["metric"]
        rows = [[*names, f"test {metric}", "validation", "best epoch", "epochs",
                 "seconds per epoch"]]
        rows += [[*(str(getattr(config, name)) for name in names.values()),
                  score(summary["test_acc"], metric), score(summary["best_val_acc"], metric),
                  str(summary["best_epoch"]), str(summary["epochs"]),
                  f"{summary['epoch_s_median']:.4g}"]
                 for config, summary in zip(configs, summaries)]
        whole = summarize_runs(configs, summaries)
        for name in ("mean", "std"):
            rows.append([name, *[""] * (len(names) - 1),
                         *(score(whole[key][name], metric)
                           for key in ("test_acc", "best_val_acc")),
                         "", "", ""])
        return table(rows, rule=True, keys=len(names))


def summarize_runs(configs, summaries):
    """Return mean and standard deviation of the accuracies of all runs.

    Return None if a run has no accuracy.
    """
    found = {}
    for name in ("best_val_acc", "test_acc"):
        values = [summary[name] for summary in summaries]
        known = None not in values
        found[name] = {"mean": statistics.fmean(values) if known else None,
                       "std": statistics.stdev(values) if known and len(values) > 1 else None}
    runs = [{"seed": config.seed, "split_index": config.split_index, **summary}
            for config, summary in zip(configs, summaries)]
    return {"runs": runs, **found}

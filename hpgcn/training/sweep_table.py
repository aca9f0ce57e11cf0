"""The table of a sweep: a row for each run, and the means of each combination of settings."""
from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpgcn.model.metrics import goodness
from hpgcn.runtime.text_table import table
from hpgcn.setting_words import score
from hpgcn.training.run_grid import REPEATS

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.training.files.result import Result

SCORES = {"best_val_acc": "validation", "test_acc": "test"}
BEST = "best"
UNKNOWN = "none"


class Sweep(list[dict[str, Any]]):
    """The runs of a sweep, a list with a dict for each; `pandas.DataFrame(sweep)` is its table.

    A dict has the settings in which runs differ, `seed` and `split_index`, and the fields
    of summary.json. A run that diverged has the settings and `error`.

    Attributes
    ----------
    varied : tuple of str
        Settings in which the runs differ, apart from seeds and splits.
    configs : list of hpgcn.Config
    results : list of hpgcn.Result or None
        The results of the same runs, with weights and history; None for a run that
        diverged.

    Examples
    --------
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> found = hpgcn.sweep(graph, hpgcn.Config(epochs=20), {"hidden": [1, 4]}, seeds=[0, 1])
    >>> [(run["hidden"], run["seed"], run["epochs"]) for run in found]
    [(1, 0, 20), (1, 1, 20), (4, 0, 20), (4, 1, 20)]
    >>> found.best["hidden"], found.best_config.hidden
    (4, 4)
    """

    def __init__(self, varied: Sequence[str], rows: Sequence[Mapping[str, Any]],
                 configs: Sequence[Config] = (), results: Sequence[Result | None] = ()) -> None:
        super().__init__(map(dict, rows))
        self.varied = tuple(varied)
        self.configs = list(configs)
        self.results = list(results)

    @property
    def metric(self) -> str:
        """Name of the metric of all runs."""
        return next((row["metric"] for row in self if row.get("metric")), "score")

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """The means over seeds and splits, a dict for each combination of settings.

        It has the settings, the number of `runs`, and `mean` and `std` of each score:
        None if a run has no such score. `std` is the sample standard deviation.
        """
        groups: dict[tuple, list[dict]] = {}
        for row in self:
            groups.setdefault(tuple(row[name] for name in self.varied), []).append(row)
        return [{**dict(zip(self.varied, key)), "runs": len(rows),
                 **{name: _mean([row.get(name) for row in rows]) for name in SCORES}}
                for key, rows in groups.items()]

    @property
    def best(self) -> dict[str, Any] | None:
        """The combination with the best mean on validation vertices.

        If several are equal, it is the one with the smallest values. None if no combination
        has such a mean.
        """
        known = [each for each in self.combinations if each["best_val_acc"]["mean"] is not None]
        known.sort(key=lambda each: [value_order(each[name]) for name in sorted(self.varied)])
        return max(known, default=None,
                   key=lambda each: goodness(self.metric, each["best_val_acc"]["mean"]))

    @property
    def best_config(self) -> Config | None:
        """The Config of the best combination's first run, without a run directory."""
        if self.best is None or not self.configs:
            return None
        return self.configs[next(self._rows_of(self.best))].replace(out="")

    def _rows_of(self, chosen: dict[str, Any]) -> Any:
        """Yield the numbers of the runs of a combination."""
        return (number for number, row in enumerate(self)
                if all(row[name] == chosen[name] for name in self.varied))

    def to_json(self) -> dict[str, Any]:
        """Return all numbers as one object for JSON."""
        if not self.varied:
            return {"runs": list(self), **{name: self.combinations[0][name] for name in SCORES}}
        return {"runs": list(self), "combinations": self.combinations, "best": self.best}

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the table: runs of one combination, or means of several combinations."""
        return self._means() if self.varied else self._runs()

    def _runs(self) -> str:
        """Return a table of all runs, their mean and standard deviation."""
        repeats = [name for name in REPEATS if len({row[name] for row in self}) > 1] or ["seed"]
        rows = [[*(name.removesuffix("_index") for name in repeats), f"test {self.metric}",
                 "validation", "best epoch", "epochs", "seconds per epoch"]]
        for row in self:
            seconds = row.get("epoch_s_median")
            scores = [self._shown(row.get(score)) for score in ("test_acc", "best_val_acc")]
            rows.append([*(str(row[name]) for name in repeats), *scores,
                         *(str(row.get(name, UNKNOWN)) for name in ("best_epoch", "epochs")),
                         UNKNOWN if seconds is None else f"{seconds:.4g}"])
        means, = self.combinations
        for name in ("mean", "std"):
            scores = [self._shown(means[score][name]) for score in ("test_acc", "best_val_acc")]
            rows.append([name, *[""] * (len(repeats) - 1), *scores, "", "", ""])
        return table(rows, rule=True, keys=len(repeats))

    def _means(self) -> str:
        """Return a table with a row for each combination; the best one is marked."""
        best = self.best
        rows = [[*(name.replace("_", "-") for name in self.varied), "runs",
                 *(f"{word} {self.metric}" if name == "best_val_acc" else word
                   for name, word in SCORES.items())]]
        combinations = self.combinations
        for each in combinations:
            rows.append([*(str(each[name]) for name in self.varied), str(each["runs"]),
                         *(self._with_deviation(each[name]) for name in SCORES)])
        marks = {} if best is None else {combinations.index(best) + 1: BEST}
        return table(rows, rule=True, keys=len(self.varied), marks=marks)

    def _with_deviation(self, mean: dict[str, float | None]) -> str:
        return " ± ".join(self._shown(mean[name]) for name in ("mean", "std")
                          if mean[name] is not None) or UNKNOWN

    def _shown(self, value: object) -> str:
        """Return a score, or the mean of several, as text."""
        return score(value, self.metric)


def value_order(value: Any) -> tuple:
    """Return a key that sorts the values of a setting, numbers before words."""
    number = isinstance(value, int | float)
    return not number, value if number else 0, str(value)


def _mean(values: list) -> dict[str, float | None]:
    known = None not in values
    return {"mean": statistics.fmean(values) if known else None,
            "std": statistics.stdev(values) if known and len(values) > 1 else None}

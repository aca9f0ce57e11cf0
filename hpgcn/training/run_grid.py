"""The runs of a sweep: every combination of settings on every split with every seed."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hpgcn.config import SETTINGS
from hpgcn.errors import UsageError, setting, suggestion
from hpgcn.training.run import check_settings

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.header import Header

ALL = "all"
REPEATS = {"split_index": "splits", "seed": "seeds"}  # a sweep is averaged over these
# settings that are read before the first run
FIXED = ("graph", "out", "device", "update_on", "threads", "memory", "scratch", "gpu_memory",
         "comm_timeout")


@dataclass(frozen=True)
class RunGrid:
    """The runs of a sweep: settings x splits x seeds.

    It is falsy if it is a single run.
    """

    values: dict[str, list] = field(default_factory=dict)  # values of each setting, by name
    seeds: list[int] | None = None  # None: the value in the settings
    splits: list[int] | str | None = None  # the same; or ALL, until the graph is open

    def __bool__(self) -> bool:
        return bool(self.values) or self.seeds is not None or self.splits is not None

    def of(self, header: Header) -> RunGrid:
        """Return this grid with ALL replaced by the numbers of all splits of the graph."""
        return replace(self, splits=list(range(header.num_splits))) if self.splits == ALL else self

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the settings in which the runs differ, those of REPEATS last."""
        return (*self._lists(),)

    def last_split(self, split_index: int) -> int:
        """Return the highest split number among the runs.

        `split_index` is the setting for a single split.
        """
        return max(self._lists().get("split_index") or [split_index])

    def first(self, out: str) -> str:
        """Return the directory of the first run, if `out` is that of all."""
        return self.directory(out, {name: each[0] for name, each in self._lists().items()})

    def _lists(self) -> dict[str, list]:
        """Return the values of each setting in `varied`; of ALL splits only the first."""
        splits = [0] if isinstance(self.splits, str) else self.splits
        repeats = {"split_index": splits, "seed": self.seeds}
        return self.values | {name: each for name, each in repeats.items() if each is not None}

    def directory(self, out: str, chosen: dict[str, Any]) -> str:
        """Return the run directory of a run with the `chosen` settings; "" without files."""
        swept = ",".join(f"{name.replace('_', '-')}-{quote(str(value), safe=':+')}"
                         for name, value in chosen.items() if name not in REPEATS)
        folders = [swept] * bool(swept)
        folders += [f"{name.removesuffix('_index')}-{chosen[name]}"
                    for name in REPEATS if name in chosen]
        return os.path.join(out, *folders) if out else ""

    def configs(self, config: Config) -> list[Config]:
        """Return the Config of each run: all seeds of the first split and combination first.

        Raise a UsageError for the first combination that no graph supports.
        """
        lists = self._lists()
        found = []
        for values in product(*lists.values()):
            each = config.replace(**dict(zip(lists, values)))
            check_settings(each)
            chosen = {name: getattr(each, name) for name in lists}
            found.append(each.replace(out=self.directory(config.out, chosen)))
        return found


def check_sweep(values: dict[str, list], where: str = "sweep") -> None:
    """Raise a UsageError for settings that cannot be swept, or values that repeat.

    `where` begins the message.
    """
    for name, each in values.items():
        if name not in SETTINGS:
            near = suggestion(str(name).replace("-", "_"), SETTINGS)
            raise UsageError(f"{where}: setting {name!r:.80} is unknown{near}")
        if name in REPEATS:
            raise UsageError(f"{where}: {name} has a list of its own: use {setting(REPEATS[name])}")
        if name in FIXED:
            raise UsageError(f"{where}: {name} is equal in all runs: use {setting(name)}")
        if not isinstance(each, list) or not each or any(each.count(one) > 1 for one in each):
            raise UsageError(f"{where}: {name}: expected a list of values, each once")

"""A Run is a command of docs/papers.md; an Outcome has its output and files."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """The output of a command, and the folder of its files."""

    printed: str
    out: Path

    @property
    def objects(self):
        """The JSON objects that the command printed, a list."""
        return [json.loads(line) for line in self.printed.splitlines() if line.startswith("{")]

    @property
    def object(self):
        """The only JSON object that the command printed."""
        (found,) = self.objects
        return found

    def table(self, key):
        """Return a table of a script of scripts/papers, a list of dicts."""
        found = [json.loads(path.read_text()) for path in self.out.glob("*.json")]
        (tables,) = [each["tables"] for each in found if "tables" in each]
        return tables[key]

    def summaries(self):
        """Return the summaries of the run directories in the folder, a dict by name."""
        return {path.parent.name: json.loads(path.read_text())
                for path in sorted(self.out.glob("*/summary.json"))}


class Run(NamedTuple):
    """A command of the page.

    Parameters
    ----------
    command : str
        As the page prints it. NAME.h5 of a graph in GRAPHS is made first; $OUT is a folder.
    figures : callable or None
        Returns the figures of an Outcome, a dict from name to numbers; None without figures.
    short : str
        A short form whose figures do not depend on the machine, for tests; "" without one.
    tolerance : float
        Share by which figures of the short form may differ from those that are kept.
    """

    command: str
    figures: Callable | None = None
    short: str = ""
    tolerance: float = 1e-5


def plan_rows(plan, **wanted):
    """Return the cases of a plan, a JSON object, whose fields have these values."""
    return [row for row in plan["rows"]
            if all(row[name] == value for name, value in wanted.items())]


def plan_row(plan, **wanted):
    """Return the only case of a plan whose fields have these values."""
    (found,) = plan_rows(plan, **wanted)
    return found


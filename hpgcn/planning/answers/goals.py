"""Goals of a plan: a limit of seconds per epoch, a limit of ranks, or the cheapest case.

The answer is a sentence with the best case and the next best one. If no case meets the
goal, it names the nearest one.
"""
import re
from dataclasses import dataclass

from hpgcn.errors import UsageError

MAX_RANKS = 1 << 13  # counts of an all-to-all are held for every pair of ranks
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
CHEAPEST = "cheapest"


@dataclass(frozen=True)
class Goal:
    """A goal of a plan.

    It is at most `seconds` per epoch, at most `ranks` ranks, or the cheapest case.
    """

    text: str
    seconds: float | None = None
    ranks: int | None = None

    @staticmethod
    def parse(text):
        """Parse `10s` (us, ms, s, min, h), `64ranks` or `cheapest`.

        Raise a UsageError for other text.
        """
        if text == CHEAPEST:
            return Goal(text)
        time = re.fullmatch(r"(\d+|\d*\.\d+) ?(us|ms|s|min|h)", text, re.ASCII)
        if time and float(time[1]) > 0:
            return Goal(text, seconds=float(time[1]) * UNITS[time[2]])
        ranks = re.fullmatch(r"(\d{1,9}) ?ranks?", text, re.ASCII)
        if ranks and 1 <= int(ranks[1]) <= MAX_RANKS:
            return Goal(text, ranks=int(ranks[1]))
        raise UsageError(f"--goal {text!r}: expected seconds of an epoch, such as 10s or 200ms, a "
                         f"number of ranks up to {MAX_RANKS}, such as 64ranks, or {CHEAPEST}")

    def numbers(self, num_nodes):
        """Return the numbers of ranks to compare.

        None stands for the defaults of `hpgcn plan`.
        """
        if self.ranks is None:
            return None
        most = min(self.ranks, num_nodes)
        powers = (2**e for e in range(most.bit_length()))
        return tuple(sorted({*powers, most}))

    def answer(self, rows, named):
        """Choose the best case; return the object `goal` of a plan's JSON, a dict.

        Parameters
        ----------
        rows : list of dict
            Cases as in the plan, of which one fits; those that do not are no answer.
        named : function of a row
            Says in words which case it is.
        """
        good = [row for row in rows if row["fits"]]
        able = [row for row in good if self._met(row)]
        order = self._order if able else self._distance
        best, *others = sorted(able or good, key=order)
        text = f"{named(best)}: {_price(best)}"
        if not able:
            what = f"on {self.ranks}" if self.ranks else f"in {self.text}"
            text = f"no case {what}; the nearest is {text}"
        if others:
            text += f"; next {named(others[0])}: {_price(others[0])}"
        return {"asked": self.text, "met": bool(able), "index": rows.index(best),
                "next": rows.index(others[0]) if others else None, "text": text}

    def _met(self, row):
        if self.seconds is not None:
            return epoch_seconds(row) <= self.seconds
        return self.ranks is None or row["ranks"] <= self.ranks

    def _order(self, row):
        if self.seconds is not None:
            return row["ranks"], epoch_seconds(row)
        if self.ranks is not None:
            return epoch_seconds(row), row["ranks"]
        return row["ranks"] * epoch_seconds(row), row["ranks"]

    def _distance(self, row):
        """Return a sort key for cases that miss the goal: seconds, or ranks."""
        seconds = epoch_seconds(row)
        return seconds if self.ranks is None else row["ranks"], row["ranks"], seconds


def _price(row):
    seconds = epoch_seconds(row)
    return f"{seconds:.3g} s per epoch, {row['ranks'] * seconds:.3g} rank-seconds"


def epoch_seconds(row):
    """Return the forecast seconds per epoch in a row of a plan."""
    return row["seconds"]["epoch"]

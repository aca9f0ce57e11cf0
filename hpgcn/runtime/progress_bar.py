"""Progress: a bar on a terminal or in a notebook, else a log line every few seconds."""
from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hpgcn.runtime import launcher, streams

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # without ipywidgets, tqdm warns and draws the bar with letters
    from tqdm.auto import tqdm

log = logging.getLogger("hpgcn")
EVERY = 10.0  # seconds between two lines


def bar(iterable: Iterable | None = None, *, shown: bool = True, **options: Any) -> Any:
    """Return a tqdm.tqdm on a terminal or in a notebook, else ProgressLines.

    Neither prints unless `shown`. Ranks that a launcher starts write to pipes;
    therefore none of them has a terminal.
    """
    drawn = terminal_bar(iterable, shown=shown, **options)
    if shown and drawn.disable:
        return ProgressLines(iterable, **options)
    return drawn


def terminal_bar(iterable: Iterable | None = None, *, shown: bool = True, **options: Any) -> Any:
    """Return a tqdm.tqdm, visible only if `shown`, on a terminal or in a notebook."""
    disable = None if shown else True  # None: only on a terminal
    if shown and type(sys.stderr).__module__.startswith("ipykernel"):
        disable = False  # a notebook can show a bar, but its stream is no terminal
    return tqdm(iterable, disable=disable, **options)


def log_line(text: str) -> None:
    """Log a progress line; without a handler rank 0 writes it to standard error."""
    if log.hasHandlers():
        log.info(text)
    elif not launcher.launched_rank():
        streams.say(f"hpgcn: {text}")


class ProgressLines:
    """A replacement for tqdm.tqdm that logs a line every EVERY seconds.

    The first line comes after EVERY seconds, so that short work logs nothing. A line is
    "37 of 200 epochs, loss 0.5123, 1.2 s per epoch"; a description is put in front of
    it.

    Parameters
    ----------
    iterable : iterable, optional
    total, initial : int
        Number of items, and of those that were done before; None if it is unknown.
    desc, unit : str
    clock : callable
        Returns seconds.
    **options
        Other options of tqdm.tqdm, which concern bars.
    """

    disable = True  # like a tqdm bar that is hidden

    def __init__(self, iterable: Any = None, *, total: int | None = None, initial: int = 0,
                 desc: str = "", unit: str = "it", clock: Callable = time.monotonic,
                 **options: Any) -> None:
        self.iterable = iterable
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total
        self.initial = self.n = initial
        self.desc = desc
        self.unit = unit
        self.clock = clock
        self.postfix = {}
        self.begin = self.last = clock()

    def __iter__(self) -> Iterator:
        for item in self.iterable:
            yield item
            self.update()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_postfix(self, *, refresh: bool = True, **postfix: Any) -> None:
        """Set the values at the end of each line."""
        self.postfix = postfix

    def set_description(self, desc: str, refresh: bool = True) -> None:
        """Set the text at the beginning of each line."""
        self.desc = desc

    def update(self, n: int = 1) -> None:
        """Count `n` finished items, and log a line if the last one is EVERY seconds old."""
        self.n += n
        now = self.clock()
        if now - self.last >= EVERY:
            self.last = now
            log_line(self.line(now - self.begin))

    def close(self) -> None:
        """Do nothing, because lines need no cleanup."""

    def line(self, seconds: float) -> str:
        """Return the text of a line `seconds` after the start."""
        count, total = self.n, self.total
        unit = self.unit if count == 1 and not total else f"{self.unit}s"
        if self.unit == "B":
            count, total, unit = round(count / 1e6), total and round(total / 1e6), "MB"
        words = [f"{count:,} of {total:,} {unit}" if total else f"{count:,} {unit}"]
        words += [f"{key} {_text(value)}" for key, value in self.postfix.items()
                  if value is not None]
        done = self.n - self.initial
        if self.unit == "B":
            words.append(f"{done / 1e6 / seconds:.3g} MB per second")
        elif done:
            words.append(f"{seconds / done:.3g} s per {self.unit}")
        return (f"{self.desc}: " if self.desc else "") + ", ".join(words)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

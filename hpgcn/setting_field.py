"""Declare a setting, and check its value."""
import math
import numbers
import os
from dataclasses import field

from hpgcn.errors import UsageError, assigned, suggestion

KINDS = {"int": int, "float": float, "str": str, "bool": bool}

# headings of the settings in `--help` and docs/config.md
RUN = "graph and run"
MODEL = "model"
OPTIMIZER = "optimizer"
PARALLEL = "parallel run"
BATCHES = "mini-batches"
FILES = "files and checkpoints"
HEADINGS = (RUN, MODEL, OPTIMIZER, PARALLEL, BATCHES, FILES)


def setting(default, text, heading="", *, only="", choices=None, low=None, high=None,
            open_high=False, metavar=None, common=False, cost=False, plan=False, resumable=False,
            hidden=False):
    """Return a dataclass field that declares a setting, all of it in one place.

    Parameters
    ----------
    text : str
        Its help text.
    heading : str
        One of HEADINGS.
    only : str
        "strategy" or "model" if only some of them read it: their classes say which.
    choices, low, high, open_high
        The values that it accepts.
    metavar : str, optional
        Placeholder of the value in `--help`.
    common : bool
        `hpgcn train --help` lists it first.
    cost : bool
        It determines the traffic and memory of a training step of given widths.
    plan : bool
        `hpgcn plan` reads it; so it does if `cost`.
    resumable : bool
        A resumed run may change it: how it computes, how long and where.
    hidden : bool
        `--help` and docs/config.md omit it.
    """
    about = {"heading": heading, "only": only, "choices": choices, "low": low, "high": high,
             "open_high": open_high, "metavar": metavar, "common": common, "cost": cost,
             "plan": plan or cost, "resumable": resumable, "hidden": hidden}
    return field(default=default, metadata={"help": text, **about})


def values_of(entry):
    """Return a text on the valid values of a field: type or choices, range, default."""
    limits, words = entry.metadata, entry.type
    if limits["choices"]:
        words = ", ".join(limits["choices"])
    elif limits["low"] is not None and limits["high"] is None:
        words += f" from {limits['low']}"
    elif limits["low"] is not None:
        words += f" from {limits['low']} to {'below ' * limits['open_high']}{limits['high']}"
    return f"{words}; default {entry.default!r}"


def checked(entry, value):
    """Return the value of a setting, a dataclass field, or raise a UsageError."""
    # accept numbers of NumPy and paths
    kind = KINDS[entry.type]
    name, limits = entry.name, entry.metadata
    if not isinstance(value, bool | int | float) and isinstance(value, numbers.Real):  # NumPy's
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        expected = "an integer of 64 bits" if kind is int else kind.__name__
        raise UsageError(f"{assigned(name)}: expected {expected}")
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        value = float(value)  # also of NumPy's float64, which is a float with another repr
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)

    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{assigned(name, value)}: expected {kind.__name__}")

    # a name with bytes other than UTF-8, which config.toml could not hold
    if kind is str and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UsageError(f"{assigned(name, value)}: expected text that UTF-8 can hold")
    if kind is str and "\0" in value:
        raise UsageError(f"{assigned(name, value)}: expected text without NUL")

    # numbers lie within their limits
    low, high = limits["low"], limits["high"]
    if kind in (int, float):
        too_low = low is not None and value < low
        too_high = high is not None and (value >= high if limits["open_high"] else value > high)
        if not math.isfinite(value) or too_low or too_high:
            bound = f"at least {low}"
            if high is not None:
                bound = f"{bound} and below {high}" if limits["open_high"] else f"{low} to {high}"
            finite = "" if math.isfinite(value) else "a finite number, "
            raise UsageError(f"{assigned(name, value)}: expected {finite}{bound}")

    # words are among the choices
    if limits["choices"] and value not in limits["choices"]:
        words = ", ".join(limits["choices"]) + suggestion(value, limits["choices"])
        raise UsageError(f"{assigned(name, value)}: expected one of {words}")
    return value

"""Timing in turns, and the check that what was timed is right."""
from __future__ import annotations

import math
import time

import numpy as np

from hpgcn.bar import bar
from hpgcn.errors import InternalError, UsageError
from hpgcn.machine import memory_budget

OURS = "hpgcn"  # names of this package's kernels start so
TOLERANCE = 1e-3  # relative error in float32 from which on a kernel is wrong, not rounded


def best_of(calls, repeats, label, *, prepare=None, check=None):
    """Least seconds of each call. The calls take turns, so that what disturbs the machine disturbs all alike.

    Parameters
    ----------
    calls : dict of str to callable
    repeats : int
        Turns after one that is not timed, in which compilers run and pages are touched.
    label : str
        Of the progress bar (on a terminal or in a notebook).
    prepare : callable, optional
        Called before the first call of each.
    check : callable, optional
        Given (name, result) of each first call.
    """
    best = dict.fromkeys(calls, math.inf)
    with bar(total=len(calls) * (repeats + 1), desc=label, unit="call", leave=False) as done:
        for turn in range(repeats + 1):
            for name, call in calls.items():
                if prepare and not turn:
                    prepare()
                begin = time.perf_counter()
                result = call()
                seconds = time.perf_counter() - begin
                if turn:
                    best[name] = min(best[name], max(seconds, 1e-9))
                elif check:
                    check(name, result)
                del result
                done.update()
    return best


def compare(calls, expected, repeats, label, *, prepare=None):
    """Time calls and check their results.

    Parameters
    ----------
    calls, repeats, label, prepare
        As in `best_of`.
    expected : dict of str to ndarray
        What each call computes; None is the key of all that have none of their own.

    Returns
    -------
    dict of str to (seconds, relative error)
        The error is the largest difference over the largest number; None if it is not finite.

    Raises
    ------
    InternalError
        A kernel of this package is wrong.
    """
    errors = {}

    def check(name, result):
        error = relative_error(np.asarray(result), expected.get(name, expected[None]))
        if name.startswith(OURS) and not error <= TOLERANCE:
            raise InternalError(f"{label}: the result of {name} has relative error {error:.2g}, expected at most "
                                f"{TOLERANCE:g}")
        errors[name] = error if math.isfinite(error) else None

    seconds = best_of(calls, repeats, label, prepare=prepare, check=check)
    return {name: (seconds[name], errors[name]) for name in calls}


def relative_error(found, expected):
    """Largest |found - expected| over largest |expected|; infinite if the shapes differ."""
    if found.shape != expected.shape:
        return math.inf
    if not expected.size:
        return 0.0
    difference = found - expected
    largest = float(np.abs(difference, out=difference).max())
    size = max(float(expected.max()), -float(expected.min()))
    return largest / size if size else largest


def need(size, what):
    """Refuse to allocate more than the memory.

    Raises
    ------
    UsageError
    """
    budget = memory_budget()
    if size > budget:
        raise UsageError(f"bench: {what} need {size} bytes of memory, the limit is {budget}; use --scale-down")

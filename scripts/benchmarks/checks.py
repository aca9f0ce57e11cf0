"""Timing of calls in turns, after a check of their results."""

import math
from contextlib import contextmanager

import numpy as np

from hpgcn.bench.timing import time_turns
from hpgcn.errors import InternalError

OURS = "hpgcn"  # names of this package's kernels start so
TOLERANCE = 1e-3  # largest relative error that rounding to float32 explains


def checked_turns(device, calls, repeats, label, *, expected=None, prepare=None, absent=None):
    """Call and check each function once, then time them in turns.

    Source of the times: hpgcn.bench.timing.time_turns.

    `prepare` is called before each checked call; `expected` has the results by name. If a call of
    another library fails, its name and the reason go to `absent`, and it is not timed.

    Return dicts by name: those of `time_turns` and, of expected results, relative_error as of
    `check_result`.
    """
    errors = {}
    for name, call in calls.items():
        with tolerated(name, absent):
            if prepare:
                prepare()
            result = call()
            errors[name] = {}
            if expected:
                error = check_result(label, name, device.get(result), expected[name])
                errors[name] = {"relative_error": error}
        result = None  # free its memory for the next call
    timings = time_turns(device, {name: calls[name] for name in errors}, repeats, label)
    return {name: timing | errors[name] for name, timing in timings.items()}


@contextmanager
def tolerated(name, absent):
    """Context manager: record in `absent` why another library fails.

    Let errors of hpgcn's kernels pass.
    """
    try:
        yield
    except Exception as error:
        if absent is None or name.startswith(OURS):
            raise
        absent[name] = " ".join(f"{type(error).__name__}: {error}".split())


def check_result(label, name, result, expected):
    """Return the largest difference over the largest expected number.

    The result is None if it is not finite.
    Raise InternalError if a kernel of this package is wrong.
    """
    error = math.inf
    if result.shape == expected.shape:
        difference = np.abs(result - expected).max(initial=0)
        error = float(difference / (np.abs(expected).max(initial=0) or 1))
    if name.startswith(OURS) and not error <= TOLERANCE:
        raise InternalError(f"{label}: the result of {name} has relative error {error:.2g}, "
                            f"expected at most {TOLERANCE:g}")
    return error if math.isfinite(error) else None

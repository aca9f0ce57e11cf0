"""Timing in turns, and the check that what was timed is right."""

import math
from contextlib import contextmanager

import numpy as np

from hpgcn.errors import InternalError
from hpgcn.runtime.progress_bar import bar

OURS = "hpgcn"  # names of this package's kernels start so
TOLERANCE = 1e-3  # relative error in float32 from which on a kernel is wrong, not rounded


def in_turns(device, calls, repeats, label, *, prepare=None, expected=None, absent=None):
    """Time calls, by name, in turns, so that what disturbs the machine disturbs all alike.

    In a first turn, not timed, compilers run, pages are touched and results are checked: `prepare`
    is called before each, `expected` has the results by name, and `absent` takes the name of a peer
    that fails, and why, in place of the error. The progress bar and errors show `label`.

    Return dicts by name: time_ms (least), median_ms, on a GPU host_ms (median of queueing the
    call), and where results are expected relative_error, as `check_result`.
    """
    seconds = {}
    errors = {}
    with bar(total=len(calls) * (repeats + 1), desc=label, unit="call", leave=False) as progress:
        for name, call in calls.items():
            with tolerated(name, absent):
                if prepare:
                    prepare()
                result = call()
                if expected:
                    error = check_result(label, name, device.get(result), expected[name])
                    errors[name] = {"relative_error": error}
                seconds[name] = []
            result = None  # its memory is the next one's
            progress.update()
        for _ in range(repeats):
            for name, times in seconds.items():
                times.append(device.seconds(calls[name]))
                progress.update()

    timings = {}
    for name, times in seconds.items():
        milliseconds = 1e3 * np.maximum(times, 1e-9)
        medians = dict(zip(("median_ms", "host_ms"), np.median(milliseconds, axis=0)))
        timings[name] = {"time_ms": milliseconds[:, 0].min(), **medians, **errors.get(name, {})}
    return timings


@contextmanager
def tolerated(name, absent):
    """Note in `absent` why a peer fails, in place of the error; our kernels must not."""
    try:
        yield
    except Exception as error:
        if absent is None or name.startswith(OURS):
            raise
        absent[name] = " ".join(f"{type(error).__name__}: {error}".split())


def check_result(label, name, result, expected):
    """Return the largest difference over the largest number expected; None if it is not finite.

    InternalError where a kernel of this package is wrong.
    """
    error = math.inf
    if result.shape == expected.shape:
        difference = np.abs(result - expected).max(initial=0)
        error = float(difference / (np.abs(expected).max(initial=0) or 1))
    if name.startswith(OURS) and not error <= TOLERANCE:
        raise InternalError(f"{label}: the result of {name} has relative error {error:.2g}, "
                            f"expected at most {TOLERANCE:g}")
    return error if math.isfinite(error) else None

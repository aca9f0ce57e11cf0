"""Time several calls in alternation."""

import numpy as np

from hpgcn.runtime.progress_bar import bar


def in_turns(host, calls, repeats, label):
    """Time several calls in alternation.

    So a disturbance of the machine affects all of them. Each call is first made once,
    untimed, to compile code and touch pages. The progress bar shows `label`. Return a
    dict of times by name, as from `time_turns`.
    """
    for call in bar(calls.values(), desc=f"{label}, first", unit="call", leave=False):
        call()
    return time_turns(host, calls, repeats, label)


def time_turns(host, calls, repeats, label):
    """Time several calls in alternation, each of which was made before.

    Each entry of the dict has time_ms (minimum) and median_ms. On a GPU it also has
    host_ms, the median time to queue the call.
    """
    seconds = {name: [] for name in calls}
    with bar(total=len(calls) * repeats, desc=label, unit="call", leave=False) as progress:
        for _ in range(repeats):
            for name, call in calls.items():
                seconds[name].append(host.seconds(call))
                progress.update()

    timings = {}
    for name, times in seconds.items():
        milliseconds = 1e3 * np.maximum(times, 1e-9)
        medians = dict(zip(("median_ms", "host_ms"), np.median(milliseconds, axis=0)))
        timings[name] = {"time_ms": milliseconds[:, 0].min(), **medians}
    return timings

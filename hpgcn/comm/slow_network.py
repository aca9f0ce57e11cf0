"""A slower network, for experiments: HPGCN_NETWORK=RATE,LATENCY such as 1Gb,50us; off unless set.

A message completes at its receiver no earlier than latency + bytes / rate after the
receiver has started it. The messages that a rank receives share its rate, as on a link
of its own. A collective of q ranks has log2 q latencies. Results do not change. Messages
of GPU memory and ranks in one process are not delayed.

With HPGCN_OVERLAP=0 a rank waits for each broadcast as soon as it has started it.
"""
from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from hpgcn.errors import UsageError
from hpgcn.runtime.machine import is_allowed

VARIABLE = "HPGCN_NETWORK"
OVERLAP = "HPGCN_OVERLAP"
BITS = {"Kb": 1e3, "Mb": 1e6, "Gb": 1e9, "KB": 8e3, "MB": 8e6, "GB": 8e9}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class SlowNetwork:
    """A simulated network, which delays messages by a rate and a latency.

    Parameters
    ----------
    bytes_per_s : float
        Rate at which a rank receives.
    latency_s : float
        Seconds that a message of no bytes takes.
    """

    def __init__(self, bytes_per_s: float, latency_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.latency_s = latency_s
        self.free = 0.0  # time at which the link has taken all messages so far
        # by id of a list of requests: times of those not delivered, and the numbers held back
        self.under_way = {}

    def begin(self, requests: Sequence, received: Sequence[int], hops: int = 1) -> None:
        """Note that these requests start now.

        `received` has the bytes that each request receives, 0 for a send.
        """
        now = time.perf_counter()
        self.free = max(self.free, now)
        times = {}
        for number, size in enumerate(received):
            self.free += size / self.bytes_per_s
            times[number] = self.free + hops * self.latency_s if size else now
        self.under_way[id(requests)] = times, set()

    def deliver(self, requests: Sequence, completed: list[int], pending: set[int]) -> list[int]:
        """Return the numbers of completed requests whose delay is over.

        `completed` are the numbers of requests that MPI has completed, `pending` those
        that the caller waits for.
        """
        if id(requests) not in self.under_way:
            return completed
        times, held = self.under_way[id(requests)]
        held.update(completed)
        now = time.perf_counter()
        ready = sorted(number for number in held & pending if times[number] <= now)
        held.difference_update(ready)

        # forget what is delivered: another list may get the same id
        for number in ready:
            del times[number]
        if not times:
            del self.under_way[id(requests)]
        return ready


def parse(text: str) -> SlowNetwork:
    """Return the SlowNetwork of a text such as 1Gb,50us; UsageError otherwise."""
    match = re.fullmatch(r"([\d.]+)([KMG][bB]),([\d.]+)(us|ms|s)", text)
    try:
        rate, latency = float(match[1]) * BITS[match[2]] / 8, float(match[3]) * SECONDS[match[4]]
    except (TypeError, ValueError):
        rate = latency = 0.0
    if rate <= 0:
        raise UsageError(f"{VARIABLE}={text}: expected RATE,LATENCY, such as 1Gb,50us (bits) or "
                         "100MB,1ms (bytes)")
    return SlowNetwork(rate, latency)


def requested() -> str:
    """Return the value of the variable HPGCN_NETWORK, "" if it is not set."""
    return os.environ.get(VARIABLE, "")


def requested_network() -> SlowNetwork | None:
    """Return the SlowNetwork that HPGCN_NETWORK describes, or None if it is not set."""
    return parse(requested()) if requested() else None


def requested_overlap() -> bool:
    """Return whether ranks compute during broadcasts, by HPGCN_OVERLAP.

    Raise a UsageError unless the variable is 0 or 1.
    """
    return is_allowed(OVERLAP)

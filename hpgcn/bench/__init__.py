"""Measure this machine: the rates that `hpgcn plan` reads, and prefetch distances for this CPU."""

from typing import NamedTuple

from hpgcn.bench import machine_rates, tune
from hpgcn.bench.host import BenchHost
from hpgcn.bench.tables import format_report
from hpgcn.comm import SerialComm
from hpgcn.errors import UsageError

__all__ = ["Settings", "format_report", "run"]

MEASURES = {"machine": machine_rates.measure, "tune": tune.measure}
BOUNDS = {"repeats": (1, 10**6), "threads": (1, 1 << 20), "seed": (0, 2**63 - 1),
          "scale_down": (1, 1 << 40)}


class Settings(NamedTuple):
    """Arguments of the commands of `hpgcn bench`.

    Each call is timed `repeats` times. `threads` is the number that Numba and BLAS
    have, which must be set before they are imported. `seed` keys all draws.
    `scale_down` divides the sizes of tune's products. `reset` removes the file of tune
    and measures nothing. `scratch` is a folder whose disk is measured.
    """

    repeats: int = 5
    threads: int = 1
    seed: int = 0
    scale_down: int = 1
    reset: bool = False
    scratch: str = ""


def run(command, settings, comm=None):
    """Measure the rates of this machine ("machine") or tune products ("tune"); return a dict.

    The dict has "bench" (the command), "settings", "machine" (`BenchHost.describe`),
    and the results of `measure` of the command's module. Keys of numbers end in their
    unit; shares and ratios have no unit. `comm` is a hpgcn.comm communicator; all its
    ranks call this function.

    UsageError if a setting is out of range or the arrays exceed the memory.
    """
    check(command, settings, BOUNDS)
    host = BenchHost()
    report = {"bench": command, "settings": settings._asdict(), "machine": host.describe()}
    return report | MEASURES[command](settings, host, comm or SerialComm())


def check(command, settings, bounds):
    """Raise UsageError if a setting is outside of its bounds, which are inclusive."""
    for name, (low, high) in bounds.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            flag = name.replace("_", "-")
            raise UsageError(f"bench {command}: {flag} is {value}, expected {low}..{high}")

"""Benchmarks: this machine's limits, and the kernels and a training epoch held against them.

`run` measures and returns numbers, `table` shows them to people. Nothing heavy is imported before `run`.
"""
from __future__ import annotations

import difflib
from dataclasses import dataclass

from hpgcn.errors import UsageError

GRAPHS = ("dense", "prod", "road")
WIDTHS = {"machine": (), "spmm": (16, 64, 128, 256), "sspmm": (16, 64, 128, 256), "gather": (16, 128),
          "growth": (64, 128), "epoch": (128, 128, 128, 40), "cuda": (16, 41, 64, 128, 256),
          "cuda-epoch": (16, 512)}
COMMANDS = tuple(WIDTHS)
ON_GPU = ("cuda", "cuda-epoch")
ON_GRAPHS = ("spmm", "sspmm", "epoch", "cuda")


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes
    ----------
    graphs : tuple of str
        Families of hpgcn.bench.graphs.
    widths : tuple of int
        Columns of the dense matrices; for an epoch features, hidden widths (all equal) and classes; for cuda-epoch the
        width of the hidden layer, one after the other.
    scale_down : int
        Divides the numbers of vertices and of gathered rows, for a quick look.
    repeats : int
        Times that each thing is timed, after one warm-up.
    threads : int
    seed : int
    """

    graphs: tuple[str, ...]
    widths: tuple[int, ...]
    scale_down: int = 1
    repeats: int = 5
    threads: int = 1
    seed: int = 0


def run(command, *, graphs=None, widths=None, scale_down=1, repeats=5, threads=1, seed=0):
    """Measure.

    Parameters
    ----------
    command : {"machine", "spmm", "sspmm", "gather", "growth", "epoch", "cuda", "cuda-epoch"}
    graphs, widths : str, optional
        Comma-separated; by default all of GRAPHS, and WIDTHS[command].
    scale_down, repeats, threads, seed : int
        As in `Settings`. The thread counts of Numba and BLAS are set before they are imported, not here.

    Returns
    -------
    dict
        "bench", "settings", "machine" (hpgcn.bench.hardware), "limits" (hpgcn.bench.limits; not for an epoch, whose
        peak memory it would spoil), "rows" (not for machine), one dict of numbers each, and "absent" for peers that are
        not installed (name: reason). Keys of numbers end in their unit; shares and relative errors have none. What
        cuda adds is said in hpgcn.bench.cuda, of cuda-epoch in hpgcn.bench.cuda_epoch.

    Raises
    ------
    UsageError
        Unknown command or graph, a number out of range, more than the memory.
    InternalError
        A kernel gives a wrong result.
    MissingError
        cuda, cuda-epoch: no CuPy or no GPU.
    """
    settings = check(command, graphs, widths, scale_down, repeats, threads, seed)
    if command in ON_GPU:
        return {"bench": command, "settings": vars(settings)} | _on_gpu(command).measure(settings)
    from hpgcn.bench import hardware

    report = {"bench": command, "settings": vars(settings), "machine": hardware.describe()}
    if command == "epoch":
        from hpgcn.bench import epoch

        return report | epoch.measure(settings)
    from hpgcn.bench import limits

    cache = report["machine"]["last_level_cache_bytes"]
    report["limits"] = bounds = limits.memory(cache, settings)
    if command == "machine":
        bounds |= limits.gemm(settings)
        return report
    if command == "growth":
        from hpgcn.bench import growth

        return report | growth.measure(settings, report["machine"]["caches"], cache)
    if command == "gather":
        from hpgcn.bench import gather

        return report | gather.measure(settings)
    from hpgcn.bench import products

    return report | products.measure(command, settings, bounds["memory_bytes_per_s"], cache)


def _on_gpu(command):
    from importlib import import_module

    return import_module(f"hpgcn.bench.{command.replace('-', '_')}")


def check(command, graphs=None, widths=None, scale_down=1, repeats=5, threads=1, seed=0):
    """Return the Settings; parameters and errors as in `run`."""
    if command not in COMMANDS:
        raise UsageError(f"bench {command!r}: expected one of {', '.join(COMMANDS)}")
    for name, given, used in (("graphs", graphs is not None, command in ON_GRAPHS),
                              ("widths", widths is not None, command != "machine"),
                              ("scale-down", scale_down != 1, command != "machine")):
        if given and not used:
            raise UsageError(f"bench {command} takes no --{name}")
    for name, value, low, high in (("scale-down", scale_down, 1, 1 << 40), ("repeats", repeats, 1, 10**6),
                                   ("threads", threads, 1, 1 << 20), ("seed", seed, 0, 2**63 - 1)):
        if not low <= value <= high:
            raise UsageError(f"bench {command}: {name} is {value}, expected {low}..{high}")
    names = GRAPHS if graphs is None else tuple(graphs.split(","))
    for name in names:
        if name not in GRAPHS:
            near = difflib.get_close_matches(name, GRAPHS, 1)
            raise UsageError(f"bench {command}: graph {name!r} is unknown, expected {', '.join(GRAPHS)}"
                             + (f"; did you mean {near[0]}?" if near else ""))
    if widths is None:
        numbers = WIDTHS[command]
    else:
        words = widths.split(",")
        bad = next((word for word in words if not (word.isascii() and word.isdigit()) or not 1 <= int(word) <= 1 << 20),
                   None)
        if bad is not None:
            raise UsageError(f"bench {command}: width {bad!r} in --widths {widths!r}, expected 1..{1 << 20}")
        numbers = tuple(map(int, words))
    if command == "epoch" and (len(numbers) < 2 or len(set(numbers[1:-1])) > 1):
        raise UsageError(f"bench epoch: widths {','.join(map(str, numbers))}: expected features, hidden widths (all "
                         "equal) and classes, e.g. 128,128,128,40")
    return Settings(names if command in ON_GRAPHS else (), numbers, scale_down, repeats, threads, seed)


def table(report):
    """Lines for people, from what `run` returned."""
    from hpgcn.bench import tables

    if report["bench"] in ON_GPU:
        return _on_gpu(report["bench"]).table(report)
    return tables.format_report(report)

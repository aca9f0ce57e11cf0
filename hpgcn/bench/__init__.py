"""Benchmarks: this machine's limits, and kernels and training epochs held against them."""

import difflib
import sys
from importlib import import_module
from typing import NamedTuple

from hpgcn.bench.tables import format_report as table
from hpgcn.errors import UsageError

__all__ = ["COMMANDS", "Settings", "check", "run", "table"]

GRAPHS = ("dense", "prod", "road")
WIDTHS = {  # of each command, by default
    "machine": (), "spmm": (16, 64, 128, 256), "sspmm": (16, 64, 128, 256), "gather": (16, 128),
    "growth": (64, 128), "epoch": (128, 128, 128, 40), "cuda": (16, 41, 64, 128, 256),
    "cuda-epoch": (16, 512), "torch": (16, 64, 256), "batches": (),
    "kernels": (64,), "tune": ()}
COMMANDS = tuple(WIDTHS)
MODULES = {  # where it is not the command
    "spmm": "products", "sspmm": "products", "cuda-epoch": "cuda_epoch", "torch": "layers",
    "machine": "machine_rates", "batches": "sampled_volumes", "gather": "row_gathers"}
STARVED = ("spmm", "kernels")
WITHOUT_LIMITS = ("epoch", "cuda-epoch", "batches", "kernels", "tune")
ON_GRAPHS = ("spmm", "sspmm", "epoch", "cuda", "torch")
COUNTED = ("batches",)  # what is not timed, on a graph of the user's
OWN = ("spmm", "sspmm", "gather")  # what is timed on a graph of the user's, if one is named


RANKS = "3,9,27,81"  # of batches
MOST_RANKS = 1 << 13


class Settings(NamedTuple):
    """The arguments of `run`, checked, with its defaults filled in."""

    command: str
    graphs: tuple[str, ...]
    widths: tuple[int, ...]
    scale_down: int
    repeats: int
    threads: int
    seed: int
    graph: str = ""
    ranks: tuple[int, ...] = ()
    epochs: int = 0
    starved: bool = False
    reset: bool = False


def run(command, *, graphs=None, widths=None, scale_down=1, repeats=5, threads=1, seed=0,
        graph=None, ranks=None, epochs=None, starved=False, reset=False, comm=None):
    """Measure what a command of COMMANDS says, and return the numbers.

    `graphs`, families of benchmark_graphs (default: all), and `widths` of the dense matrices
    (default: WIDTHS[command]) are comma-separated; of an epoch the widths are features, hidden (all
    equal), classes; of cuda-epoch a hidden width a training. `scale_down` divides the numbers of
    vertices and gathered rows; each thing is timed `repeats` times, after one warm-up; `threads`
    are those that Numba and BLAS were given before they were imported. `graph`, a path, is what
    batches are of; those in OWN take its adjacency in place of `graphs`. Of batches alone:
    comma-separated numbers of `ranks` (default: 3,9,27,81) and `epochs` (default: 10). Of
    those in STARVED, `starved`: times beside another process that copies without end, too. Of tune,
    `reset`: what was kept is removed. Of machine, `comm`: a hpgcn.comm communicator, whose ranks
    all call this.

    The dict has "bench" (the command), "settings", "machine" and "limits" (`describe` and `limits`
    of hpgcn.bench.host or benchmarks.gpu; none in WITHOUT_LIMITS: those of an epoch would spoil
    its peak memory, kernels have theirs in the same turns), and what `measure` of the command's
    module adds: "rows", one dict each, and "absent" (peer: reason). Keys of numbers end in their
    unit; shares and ratios have none.

    UsageError for a name or number that is not expected, or more than the memory; InternalError for
    a wrong result; MissingError for cuda and cuda-epoch without CuPy or a GPU, for torch without
    PyTorch and PyG.
    """
    settings = check(command, graphs, widths, scale_down, repeats, threads, seed, graph, ranks,
                     epochs, starved, reset)
    if command.startswith("cuda"):
        from benchmarks.gpu import Gpu as Device
    else:
        from hpgcn.bench.host import Host as Device
    device = Device()
    device.comm = comm if comm is not None and comm.size > 1 else None
    report = {"bench": command, "settings": settings._asdict(), "machine": device.describe()}
    if command not in WITHOUT_LIMITS:
        report["limits"] = device.limits(settings)
    module = import_module(f"hpgcn.bench.{MODULES.get(command, command)}")
    given = report.get("limits")
    if command == "machine":
        from hpgcn.comm import SerialComm

        given = comm or SerialComm()
    report |= module.measure(settings, device, given)

    for name in ("cupy", "torch"):
        if name in sys.modules:
            report["machine"]["versions"][name] = sys.modules[name].__version__
    return report


def check(command, graphs=None, widths=None, scale_down=1, repeats=5, threads=1, seed=0,
          graph=None, ranks=None, epochs=None, starved=False, reset=False):
    """Return the Settings; parameters and errors as in `run`."""
    if command not in COMMANDS:
        raise UsageError(f"bench {command!r}: expected one of {', '.join(COMMANDS)}")
    counted = command in COUNTED
    sized = command not in ("machine", "tune") and not counted
    for name, given, used in (("graphs", graphs is not None, command in ON_GRAPHS and not graph),
                              ("widths", widths is not None, sized),
                              ("scale-down", scale_down != 1,
                               (sized or command == "tune") and not graph),
                              ("ranks", ranks is not None, counted),
                              ("epochs", epochs is not None, counted),
                              ("starved", starved, command in STARVED),
                              ("reset", reset, command == "tune")):
        if given and not used:
            raise UsageError(f"bench {command}{' GRAPH' * bool(graph)} takes no --{name}")
    for name, value, low, high in (
            ("scale-down", scale_down, 1, 1 << 40), ("repeats", repeats, 1, 10**6),
            ("threads", threads, 1, 1 << 20), ("seed", seed, 0, 2**63 - 1),
            ("epochs", 10 if epochs is None else epochs, 1, 10**6)):
        if not low <= value <= high:
            raise UsageError(f"bench {command}: {name} is {value}, expected {low}..{high}")

    names = GRAPHS if graphs is None else tuple(graphs.split(","))
    for name in names:
        if name not in GRAPHS:
            near = difflib.get_close_matches(name, GRAPHS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"bench {command}: graph {name!r} is unknown, expected "
                             f"{', '.join(GRAPHS)}{hint}")

    numbers = WIDTHS[command]
    if widths is not None:
        words = widths.split(",")
        numbers = tuple(int(word) if word.isascii() and word.isdigit() else 0 for word in words)
        for word, number in zip(words, numbers):
            if not 1 <= number <= 1 << 20:
                raise UsageError(f"bench {command}: width {word!r}, expected 1..{1 << 20}")
    if command == "epoch" and (len(numbers) < 2 or len(set(numbers[1:-1])) > 1):
        raise UsageError(f"bench epoch: widths {','.join(map(str, numbers))}: expected features, "
                         "hidden widths (all equal) and classes, e.g. 128,128,128,40")
    if command not in ON_GRAPHS or graph:
        names = ()
    if starved and threads != 1:
        raise UsageError(f"bench {command}: --starved is for --threads 1, {threads} are given")
    settings = Settings(command, names, numbers, scale_down, repeats, threads, seed,
                        graph=str(graph or ""), starved=starved, reset=reset)
    if counted and not graph:
        raise UsageError(f"bench {command}: expected a graph (.h5)")
    if graph and not counted and command not in OWN:
        raise UsageError(f"bench {command}: takes no graph, {graph} was given")
    if not counted:
        return settings
    from hpgcn.graphs.validation import numbers as parsed_numbers  # late: it brings SciPy

    ranks = tuple(sorted(set(parsed_numbers("--ranks", ranks or RANKS, MOST_RANKS))))
    return settings._replace(ranks=ranks,
                             epochs=10 if epochs is None else epochs)

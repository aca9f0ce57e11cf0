"""Compare hpgcn with other libraries and with the limits of this machine; `run.py --help`.

Heavy imports wait for the number of threads.
"""

import dataclasses
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from hpgcn.__main__ import main as run_command
from hpgcn.cli import run_flags
from hpgcn.cli.output import given, print_text, print_unless_quiet
from hpgcn.cli.settings import Parser, add_settings, integers, verbosity
from hpgcn.config import Config
from hpgcn.errors import UsageError, printable, require
from hpgcn.runtime import machine
from hpgcn.runtime.text_table import label_list

GRAPHS = ("dense", "prod", "road")  # families of benchmark_graphs
MAX_RANKS = 1 << 13
MAX_WIDTH = 1 << 20


class Benchmark(NamedTuple):
    """A benchmark: its module, its help text, default widths, and its own flags."""

    module: str
    text: str
    widths: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    limits: bool = True  # measure the bandwidth of memory first


BENCHMARKS = {
    "spmm": Benchmark("products", "Time SpMM on the CPU, and that of SciPy, MKL and torch.",
                      (16, 64, 128, 256), ("graph", "graphs", "starved")),
    "sspmm": Benchmark("products", "Time masked SpMM on the CPU, and that of SciPy.",
                       (16, 64, 128, 256), ("graph", "graphs")),
    "gather": Benchmark("row_gathers", "Time gathers and scatters of rows, and those of NumPy.",
                        (16, 128), ("graph",)),
    "aggregate": Benchmark("aggregate_steps", "Time DistGNN's aggregation by blocks of x, and by "
                           "the steps of its Figure 4.", (128,), ("graph", "graphs"), limits=False),
    "growth": Benchmark("growth", "Time SpMM on graphs of growing size; compare with a model of "
                                  "caches.",
                        (64, 128)),
    # kernels have the bandwidth in their own turns; limits would spoil the peak memory of an epoch
    "kernels": Benchmark("kernels", "Time every kernel on the CPU; count the bytes that it must "
                                    "move.",
                         (64,), ("starved",), limits=False),
    "epoch": Benchmark("epoch", "Time training epochs on generated graphs.",
                       (128, 128, 128, 40), ("graphs",), limits=False),
    "threads": Benchmark("thread_scaling", "Time training steps and launches on 1, 2, 4, .. "
                                           "threads, beside torch, and ranks x threads.",
                         flags=("sizes",), limits=False),
    "torch": Benchmark("layers", "Time layers of PyG with the kernels of torch and of hpgcn.",
                       (16, 64, 256), ("graphs",)),
    "batches": Benchmark("sampled_volumes", "Count the rows that mini-batches send.",
                         flags=("stored", "ranks", "epochs"), limits=False),
    "cuda": Benchmark("cuda", "Time the CUDA kernels, and those of cuSPARSE and torch.",
                      (16, 41, 64, 128, 256), ("graphs",)),
    "cuda-models": Benchmark("cuda_models", "Time training steps on a GPU, and those of PyG's "
                             "layers; products, and those of cuSPARSE.", (64, 64),
                             ("quick", "seconds"), limits=False),
    "cuda-epoch": Benchmark("cuda_epoch", "Time training epochs on a GPU; compare their losses.",
                            (16, 512), limits=False)}


class Settings(NamedTuple):
    """The arguments of all benchmarks except accuracy and drift."""

    command: str
    graphs: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    scale_down: int = 1
    repeats: int = 5
    threads: int = 1
    seed: int = 0
    graph: str = ""
    ranks: tuple[int, ...] = ()
    epochs: int = 10
    starved: bool = False
    quick: bool = False
    seconds: float = 200.0


def settings_of(command, *, graphs=None, widths=None, graph=None, ranks=None, **options):
    """Return the Settings with defaults filled in; lists are texts separated by commas.

    Raise UsageError if a name or a number is invalid.
    """
    from hpgcn import bench
    from hpgcn.graphs.validation import numbers

    known = BENCHMARKS[command]
    settings = Settings(command, widths=known.widths, graph=str(graph or ""), **options)
    bench.check(command, settings, bench.BOUNDS | {"epochs": (1, 10**6), "seconds": (0, 10**6)})
    if settings.starved and settings.threads != 1:
        raise UsageError(f"bench {command}: --starved needs --threads 1, not {settings.threads}")
    if widths:
        settings = settings._replace(widths=numbers("--widths", widths, MAX_WIDTH))
    if ranks:
        ranks = tuple(sorted(set(numbers("--ranks", ranks, MAX_RANKS))))
        settings = settings._replace(ranks=ranks)
    if command == "cuda-models" and (len(settings.widths) != 2 or settings.widths[1] % 4):
        raise UsageError(f"--widths {','.join(map(str, settings.widths))}: expected features and "
                         "hidden width, a multiple of 4, e.g. 64,64")
    if command == "epoch" and (len(settings.widths) < 2 or len(set(settings.widths[1:-1])) > 1):
        raise UsageError(f"--widths {','.join(map(str, settings.widths))}: expected features, "
                         "hidden widths (all equal) and classes, e.g. 128,128,128,40")

    # a stored graph replaces the generated ones
    if graph:
        if graphs is not None or settings.scale_down != 1:
            raise UsageError(f"bench {command} GRAPH excludes --graphs and --scale-down")
        return settings
    names = GRAPHS if graphs is None else tuple(graphs.split(","))
    for name in names:
        if name not in GRAPHS:
            raise UsageError(f"--graphs: {name!r} is unknown, expected names among "
                             f"{', '.join(GRAPHS)}")
    return settings._replace(graphs=names if "graphs" in known.flags else ())


def measure(settings):
    """Run a benchmark and return its numbers.

    The dict has "bench" (the command), "settings", "machine", and "limits" (bandwidths of memory,
    for some benchmarks). It also has the results of `measure` of the benchmark's module: "rows", a
    list of dicts, and "absent" (library: reason). Keys of numbers end in their unit; shares and
    ratios have no unit.

    UsageError if the arrays exceed the memory; InternalError if a result is wrong. MissingError
    without CuPy or a GPU for cuda, cuda-models and cuda-epoch, without PyTorch and PyG for torch.
    """
    known = BENCHMARKS[settings.command]
    if settings.command.startswith("cuda"):
        from benchmarks.gpu import Gpu as Device
    else:
        from benchmarks.processors import Processors as Device
    device = Device()
    report = {"bench": settings.command, "settings": settings._asdict(),
              "machine": device.describe()}
    if known.limits:
        report["limits"] = device.memory_limits(settings.repeats)
    module = import_module(f"benchmarks.{known.module}")
    report |= module.measure(settings, device, report.get("limits"))

    for name in ("cupy", "torch"):
        if name in sys.modules:
            report["machine"]["versions"][name] = sys.modules[name].__version__
    return report


def format_report(report):
    """Return a report as text."""
    from hpgcn import bench
    from hpgcn.bench.tables import aligned, labeled

    parts = [bench.format_report(report)]
    parts += [aligned(report[name])
              for name in ("ratios", "launches", "ranks", "copies", "losses", "variants")
              if report.get(name)]
    if report.get("summary"):
        parts.append(label_list(labeled(report["summary"]), 28))
    if report.get("absent"):
        reasons = report["absent"].items()
        parts.append(label_list((f"without {name}:", reason) for name, reason in reasons))
    return "\n\n".join(parts)


def print_report(args, report):
    print_text(json.dumps(report) if args.json else format_report(report))


def run_benchmark(args):
    """Run a benchmark of BENCHMARKS and print its report."""
    options = {name: getattr(args, name) for name in Settings._fields if name in args}
    threads = Config(threads=args.threads).threads
    threads = threads or (1 if options.get("starved") else machine.default_threads())
    machine.limit_threads(threads)
    print_report(args, measure(settings_of(**{**options, "threads": threads})))


def config_of(args, *own):
    """Return the Config of the flags in `args`, except those in `own`.

    Limit the number of threads.
    """
    names = [entry.name for entry in dataclasses.fields(Config)
             if entry.name in args and entry.name not in own]
    config = Config(**given(args, names))
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)
    return config.replace(threads=threads)


def run_accuracy(args):
    """Measure seconds until training by batches is as accurate as full batch, and until PyG is."""
    config = config_of(args, "graph", "batch")
    from benchmarks import accuracy
    from hpgcn.runtime.atomic import atomic_write, refuse_existing, writing

    # refuse before any time is spent
    files = [Path(args.folder) / f"accuracy.{kind}" for kind in ("json", "png")] \
        if args.folder else []
    if files:
        require("matplotlib", "plot", "a picture")
        with writing(args.folder):
            files[0].parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            refuse_existing(file, args.overwrite)
    if args.peer_python and not args.peers:
        raise UsageError("--peer-python: needs --peers")

    report = accuracy.measure(
        args.graph, config, args.batch or (), target=args.target,
        seeds=run_flags.parse_numbers("--seeds", args.seeds), margin=args.margin,
        seconds=args.seconds, peer=args.peers and (args.peer_python or sys.executable))
    if files:
        from benchmarks.accuracy_plot import picture

        atomic_write(files[0], json.dumps(report), overwrite=args.overwrite)
        atomic_write(files[1], picture(report), overwrite=args.overwrite)
    print_report(args, report)
    if not args.json:
        print_unless_quiet(args, *(f"wrote {printable(file)}" for file in files))


def run_drift(args):
    """Measure how far losses and accuracy of bf16 are from those of float32."""
    config = config_of(args, "graph")
    from benchmarks import drift

    print_report(args, drift.measure(args.graph, config,
                                     run_flags.parse_numbers("--seeds", args.seeds)))


def run_preparation(args):
    """Time all steps from a text file to the first epoch, beside METIS."""
    from benchmarks import preparation
    from hpgcn.graphs.validation import numbers

    report = preparation.measure(preparation.Settings(
        numbers("--entries", args.entries, preparation.MOST_ENTRIES), args.parts, args.threads,
        args.seed, args.folder, tuple(args.efforts.split(","))))
    print_text(json.dumps(report) if args.json else preparation.markdown(report))


def run_cluster(args):
    """Train with every strategy on clusters made of namespaces; compare with the plan."""
    from benchmarks import cluster

    lists = {name: tuple(getattr(args, name).split(",")) for name in ("layouts", "rates")}
    others = {name: getattr(args, name)
              for name in cluster.Settings._fields if name in args and name not in lists}
    report = cluster.measure(cluster.Settings(**others, **lists))
    print_text(json.dumps(report) if args.json else cluster.text(report))


def run_nodes(args):
    """Train on nodes of several ranks, with direct messages and node-aware ones."""
    from benchmarks import node_gain

    settings = {name: getattr(args, name) for name in node_gain.Settings._fields if name in args}
    settings["strategies"] = tuple(args.strategies.split(","))
    report = node_gain.measure(node_gain.Settings(**settings))
    print_text(json.dumps(report) if args.json else node_gain.text(report))


def parser():
    top = Parser("run.py", description=__doc__.partition(";")[0] + ".")
    commands = top.add_subparsers(metavar="BENCHMARK", required=True)

    def add_command(name, text, run):
        command = commands.add_parser(name, help=text, description=text, parents=[verbosity()])
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print the numbers as JSON")
        return command

    for name, known in BENCHMARKS.items():
        command = add_command(name, known.text, run_benchmark)
        command.set_defaults(command=name)
        add_flags(command, known)
    add_accuracy_flags(add_command("accuracy", run_accuracy.__doc__, run_accuracy))
    add_drift_flags(add_command("drift", run_drift.__doc__, run_drift))
    add_preparation_flags(add_command("preparation", run_preparation.__doc__, run_preparation))
    add_cluster_flags(add_command("cluster", run_cluster.__doc__, run_cluster))
    add_nodes_flags(add_command("nodes", run_nodes.__doc__, run_nodes))
    return top


def add_flags(command, known):
    add = command.add_argument
    integers(command, ("threads", 0, "0: all cores that this process may use"),
             ("seed", 0, "seed of all random numbers"))
    if known.widths or "sizes" in known.flags:
        integers(command, ("scale-down", 1, "divide the sizes of generated graphs by this"))
    if known.widths:
        add("--widths", metavar="N,N",
            help="widths of the dense matrices; for epoch: features, hidden widths and classes; "
                 "for cuda-models: features and hidden width; "
                 f"for cuda-epoch: hidden widths (default: {','.join(map(str, known.widths))})")
        integers(command, ("repeats", 5, "time each call this number of times"))
    texts = {
        "graph": ("graph", {"nargs": "?", "help": "graph (.h5) instead of generated ones"}),
        "stored": ("graph", {"help": "graph (.h5)"}),
        "graphs": ("--graphs", {"metavar": "NAMES", "help": "any of dense,prod,road (default: "
                                                            "all)"}),
        "ranks": ("--ranks", {"metavar": "K,K", "default": "3,9,27,81",
                              "help": "numbers of parts (default: 3,9,27,81)"}),
        "epochs": ("--epochs", {"type": int, "metavar": "N", "default": 10,
                                "help": "number of epochs to count (default: 10)"}),
        "quick": ("--quick", {"action": "store_true",
                              "help": "measure only small graphs, float32 and mini-batches"}),
        "seconds": ("--seconds", {"type": float, "metavar": "X", "default": 200.0,
                                  "help": "begin no case after these seconds (default: 200.0)"}),
        "starved": ("--starved", {"action": "store_true",
                                  "help": "use one thread; measure again while another process "
                                          "copies memory on another core"})}
    for flag in filter(texts.get, known.flags):
        name, options = texts[flag]
        add(name, **options)


def add_accuracy_flags(command):
    add = command.add_argument
    add("graph", help="graph, partitioned or not (.h5)")
    add("--batch", action="append", metavar="BATCH",
        help="a value of hpgcn train --batch; repeat the flag for each. Without --target, full is "
             "measured first (default: full)")
    add("--target", type=float, metavar="SHARE",
        help="validation accuracy to reach (default: the best of full batch, less --margin)")
    add("--margin", type=float, default=0.005, metavar="SHARE",
        help="difference between the best of full batch and the target (default: 0.005)")
    add("--seconds", type=float, default=0.0, metavar="X",
        help="end a run after this training time in seconds; 0: never (default: 0.0)")
    add("--seeds", default="0", metavar="SEEDS",
        help="such as 0..2 or 1,5: one run per seed; medians are reported (default: 0)")
    add("--peers", action="store_true", help="also train with PyG")
    add("--peer-python", metavar="PYTHON",
        help="a Python with torch and torch_geometric (default: this one)")
    add("--out", dest="folder", metavar="FOLDER",
        help="write accuracy.json, and accuracy.png with the curves")
    add("--overwrite", action="store_true", help="replace these files")
    add_other_settings(command, "batch")


def add_drift_flags(command):
    add = command.add_argument
    add("graph", help="graph, partitioned or not (.h5)")
    add("--seeds", default="0", metavar="SEEDS",
        help="such as 0..2 or 1,5: two runs per seed (default: 0)")
    add_other_settings(command, "dtype")
    add("--dtype", default="bf16", choices=("float64", "bf16"),
        help="dtype to compare with float32 (default: bf16)")


def add_preparation_flags(command):
    add = command.add_argument
    add("--entries", default="1000000,10000000", metavar="N,N",
        help="stored entries of the graphs, about (default: 1000000,10000000)")
    add("--folder", help="folder for the files, which are removed (default: the system's)")
    add("--efforts", default="fast,default,best", metavar="NAMES",
        help="efforts of hpgcn partition (default: fast,default,best)")
    integers(command, ("parts", 8, "number of parts"),
             ("threads", 0, "threads of the epoch; 0: all cores that this process may use"),
             ("seed", 0, "seed of all random numbers"))


def add_cluster_flags(command):
    add = command.add_argument
    add("graph", help="graph without parts (.h5)")
    add("--layouts", default="2x1,2x2,4x1", metavar="NxR,NxR",
        help="nodes x ranks of each node (default: 2x1,2x2,4x1)")
    add("--rates", default="100mbit,1gbit,10gbit", metavar="RATE,RATE",
        help="rates of the links, as of scripts/cluster.sh (default: 100mbit,1gbit,10gbit)")
    add("--delay", default="0", metavar="TIME", help="delay, as of scripts/cluster.sh (default: 0)")
    add("--machine", default="", metavar="FILE",
        help="rates of kernels, as of hpgcn bench machine (default: measure memory and products)")
    add("--folder", help="keep the partitions here, and use those that are here")
    integers(command, ("hidden", 128, "width of the hidden layers"), ("layers", 2, "layers"),
             ("epochs", 3, "most epochs of a run; the fastest counts"),
             ("repeats", 2, "time each message this number of times"))


def add_nodes_flags(command):
    add = command.add_argument
    add("graph", help="graph without parts (.h5)")
    add("--layout", default="2x2", metavar="NxR", help="nodes x ranks of each node (default: 2x2)")
    add("--rate", default="1gbit", help="rate of the links (default: 1gbit)")
    add("--strategies", default="p2p,cover,vertex-cut", metavar="NAMES",
        help="strategies (default: p2p,cover,vertex-cut)")
    add("--effort", default="default", help="effort of the partitions (default: default)")
    add("--folder", help="keep the partitions here, and use those that are here")
    integers(command, ("hidden", 128, "width of the hidden layers"), ("layers", 2, "layers"),
             ("epochs", 4, "most epochs of a run; the first does not count"),
             ("turns", 2, "train each case this number of times, in turns"))


def add_other_settings(command, own):
    """Add the flags of hpgcn.Config, except those that the benchmark defines itself."""
    left_out = {"graph", "out", "seed", "trace", "checkpoint_every", own}
    add_settings(command, [entry.name for entry in dataclasses.fields(Config)
                           if entry.name not in left_out])


def main(argv=None):
    """Run a command line and return its exit code."""
    return run_command(argv, parser)


if __name__ == "__main__":
    # replace this folder on the path by its parent: modules are imported as benchmarks.NAME, and
    # a name such as `kernels` hides no other package
    folder = Path(__file__).resolve().parent
    sys.path[:] = [str(folder.parent), *(path for path in sys.path if path != str(folder))]
    sys.exit(main())

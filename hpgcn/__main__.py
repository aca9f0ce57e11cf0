"""The command line: `hpgcn COMMAND ...` or `python -m hpgcn COMMAND ...`. Heavy imports wait for the command."""
from __future__ import annotations

import os
import signal
import sys

from hpgcn import signals

if __name__ == "__main__" or os.path.basename(sys.argv[0]) == "hpgcn":  # the program, from its first line on
    signals.start(sys.argv[1:])

import argparse
import contextvars
import dataclasses
import faulthandler
import logging
import re
import traceback
from contextlib import suppress

from hpgcn import __version__, config, machine, streams
from hpgcn import commands as run
from hpgcn.config import COSTS, Config
from hpgcn.errors import COMMAND_LINE, HpgcnError, InternalError, StorageError, UsageError, printable

log = logging.getLogger("hpgcn")
METAVARS = {"out": "RUN", "grid": "RxC", "memory": "BYTES", "int": "N", "float": "X"}  # of a field, or of its type
LONG = re.compile(r"(\S{160})\S{160,}(\S{80})")  # a word that nobody reads to its end


def main(argv=None):
    """Run a command and return its exit code (docs: README, "Exit codes")."""
    return contextvars.copy_context().run(_main, argv)


def _main(argv):
    COMMAND_LINE.set(True)
    streams.repair()
    faulthandler.enable(2)  # a segmentation fault leaves a stack on standard error
    argv = sys.argv[1:] if argv is None else argv
    with signals.program(argv):
        code = command(argv)
        lost = streams.failure(sys.stdout)
        if lost and not code:
            code = fail_to_print(lost)
        if not streams.said():
            streams.silence(sys.stderr)
            code = code or end_all(StorageError.code)
    return code


def command(argv):
    """Run a command; what it prints may still be in the buffers. Return its exit code."""
    ranked = argv[:1] in (["train"], ["predict"])
    try:
        args = parser().parse_args(argv)
    except UsageError as error:
        return fail(error, False, ranked)
    except SystemExit as error:  # --help
        return error.code or 0
    except OSError as error:
        return fail_to_print(error)
    quiet = logging.WARNING if args.quiet else logging.DEBUG if args.verbose else logging.INFO
    handler = streams.Lines()
    handler.setFormatter(OneLine("hpgcn: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(logging.ERROR if machine.launched_rank() else quiet)
    try:
        return args.run(args) or 0
    except (Exception, KeyboardInterrupt, signals.Ended) as error:
        return failed(error, args.verbose, ranked)


def failed(error, verbose, ranked):
    """Say what a command ended with, and return its exit code; within the `except` of that error."""
    number = signals.ended_by()
    if number:  # whatever the libraries on the way out made of it
        return interrupted(number)
    if isinstance(error, HpgcnError):
        return fail(error, verbose, ranked)
    if isinstance(error, KeyboardInterrupt):
        return interrupted(signal.SIGINT)
    if isinstance(error, signals.Ended):
        return interrupted(error.number)
    if isinstance(error, MemoryError):
        return fail(InternalError(f"out of memory: {error}"), verbose, ranked)
    lost = isinstance(error, OSError) and streams.failure(sys.stdout, b"\n")
    if lost:
        return fail_to_print(lost)
    if "mpi4py.MPI" in sys.modules:
        raise error  # the except hook names the rank and ends them all
    with suppress(OSError):
        traceback.print_exc()
    streams.say(f"hpgcn: internal error: {type(error).__name__}: {error}")
    return 70


def fail(error, verbose, ranked):
    """Print one line (once if all ranks raise the error together) and return its code, or end all ranks with it."""
    if verbose:
        with suppress(OSError):
            traceback.print_exc()
    if ranked and not error.collective and machine.launched() and "mpi4py.MPI" not in sys.modules:
        from hpgcn import comm

        try:
            comm.world(error=error)  # the others wait there
        except HpgcnError as agreed:
            error = agreed
    if not error.collective or machine.launched_rank() == 0:
        streams.say("hpgcn: " + LONG.sub(r"\1...\2", printable(error)))
    return error.code if error.collective else end_all(error.code)


def fail_to_print(error):
    """As `fail`, if standard output takes no more; the reader of our output may leave, without a word."""
    streams.silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    reason = getattr(error, "strerror", None) or error
    return fail(StorageError(f"standard output: writing failed: {reason}"), False, False)


def interrupted(number):
    """Print a line on rank 0, end all ranks, and return the exit code of a process that a signal ended."""
    if not machine.launched_rank():
        streams.say(f"hpgcn: {signals.told(number)}")
    return end_all(128 + number)


def end_all(code):
    """End all ranks with this code, as far as there are others; return it."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1:
        mpi.COMM_WORLD.Abort(code)
    return code


class OneLine(logging.Formatter):
    """A line for each record, whatever names are in it."""

    def format(self, record):
        return printable(super().format(record))


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print."""

    def error(self, message):
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message, file=None):
        if message and not machine.launched_rank():
            (file or sys.stderr).write(message)


def parser():
    """The argument parser of all commands."""
    common = Parser(add_help=False)
    common.add_argument("-v", "--verbose", action="store_true", help="more log lines; tracebacks of errors")
    common.add_argument("-q", "--quiet", action="store_true", help="warnings and errors only")
    top = Parser(
        "hpgcn", description="Full-batch GCN training, the same result on any number of ranks.")
    top.add_argument("--version", action="version", version=f"hpgcn {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)

    def add(action, name, text):
        command = subparsers.add_parser(name, help=text, description=text, parents=[common])
        command.set_defaults(run=action)
        return command

    convert = add(run.convert, "convert", "Read a graph in any known format and write it as HDF5.")
    convert.add_argument("source", help="a file, or the word digits or karate")
    convert.add_argument("out", help="graph to write (.h5)")
    convert.add_argument("--format", default="auto",
                         choices=["auto", "planetoid", "ogb", "npz", "mtx", "snap", "csv", "parquet"],
                         help="of the source (default: auto, by its name)")
    convert.add_argument("--columns", metavar="NAMES", help="what each column of an edge list is, whatever its header "
                         "says: source,target (row target aggregates source) or u,v (row u aggregates v), w (weights), "
                         "- (not read); such as u,v,-,w")
    convert.add_argument("--base", type=int, choices=[0, 1], help="id of the first vertex of an edge list (default: 0; "
                         "1 under KONECT's header)")
    convert.add_argument("--features", metavar="FILE", help=".npy, or .npz (SciPy sparse or one array); or the word "
                         "identity (a column for each vertex) or degree (log(1 + d) of row sum and column sum)")
    convert.add_argument("--labels", metavar="FILE", help=".npy: class ids (n,), -1 unknown; or 0/1 (n, t)")
    convert.add_argument("--symmetrize", action="store_true", help="take max(A, A^T)")
    convert.add_argument("--unweighted", action="store_true", help="set all edge weights to 1")
    convert.add_argument("--reverse", action="store_true", help="row and column of every entry change places")
    convert.add_argument("--strict", action="store_true", help="refuse duplicates, self loops and false symmetry")
    convert.add_argument("--row-normalize", action=argparse.BooleanOptionalAction, default=None,
                         help="scale each feature row to sum 1 (default: for planetoid only)")
    convert.add_argument("--split", metavar="SPLIT", help="file, planetoid, or random:60/20/20[:SEED]")
    convert.add_argument("--memory", type=size, metavar="BYTES",
                         help="what it may hold; larger edge lists are sorted on disk (default: 80%% of what is free)")
    convert.add_argument("--compress", default="none", choices=["none", "gzip"],
                         help="gzip: a smaller file that takes longer to read (default: none)")
    convert.add_argument("--overwrite", action="store_true", help="replace an existing graph")

    generate = add(run.generate, "generate", "Write a generated graph with features and labels, or its edges as text.")
    generate.add_argument("kind", choices=["rmat", "sbm", "grid"],
                          help="rmat: few vertices have most edges; sbm: classes are communities; grid: two dimensions")
    generate.add_argument("out", help=".h5, or .txt for an edge list")
    for name, default, text in (("scale", 16, "2^SCALE vertices"), ("edge-factor", 16, "undirected edges per vertex"),
                                ("features", 64, "width"), ("classes", 8, "labels"), ("seed", 0, "keys all draws")):
        generate.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    generate.add_argument("--overwrite", action="store_true", help="replace an existing file")

    partition = add(run.partition, "partition", "Decide which rank owns which vertex; write the graph in that order.")
    partition.add_argument("graph", help="graph (.h5)")
    partition.add_argument("-k", type=int, required=True, metavar="K", help="number of parts")
    partition.add_argument("-o", "--out", metavar="FILE", help="default: GRAPH.pK.h5; a name that ends in .npy, .txt "
                           "or .part.K takes the part of each vertex alone")
    partition.add_argument("--method", default="hypergraph", metavar="METHOD", help="hypergraph, graph, stochastic, "
                           "vertex-cut, random or block (default: hypergraph)")
    partition.add_argument("--engine", metavar="ENGINE", help="of hypergraph mtkahypar or kahypar (default: "
                           "mtkahypar), of graph metis")
    partition.add_argument("--epsilon", type=float, default=0.01, metavar="SHARE",
                           help="imbalance allowed (default: 0.01)")
    weight = partition.add_mutually_exclusive_group()
    weight.add_argument("--w0", type=int, default=0, metavar="N",
                        help="weight of a row besides its nonzeros (default: 0)")
    weight.add_argument("--widths", metavar="N,N", help="take as w0 the dense work of a row for these widths: "
                        "features, hidden, classes")
    partition.add_argument("--seed", type=int, default=0, metavar="N", help="keys all draws (default: 0)")
    partition.add_argument("--no-refine", action="store_true", help="leave the parts as the engine found them")
    partition.add_argument("--no-rcm", action="store_true", help="keep the vertex order inside each part")
    partition.add_argument("--parts", metavar="FILE", help="take the part of each vertex from FILE (.npy, or text)")
    partition.add_argument("--compare", metavar="METHOD,...", help="run several methods, show them side by side and "
                           "write nothing")
    partition.add_argument("--json", action="store_true", help="print statistics as JSON")
    partition.add_argument("--overwrite", action="store_true", help="replace an existing file")

    plan = add(run.plan, "plan", "Say how many ranks, which partition and strategy, how much memory and how long, from "
               "the file alone.")
    plan.add_argument("graph", help="graph, partitioned or not (.h5)")
    plan.add_argument("-k", dest="ranks", metavar="K,K", help="numbers of ranks (default: powers of two up to 512; the "
                      "parts of a partitioned file)")
    plan.add_argument("--widths", metavar="N,N", help="features, hidden widths, classes (default: of the file, "
                      "hidden 16)")
    plan.add_argument("--method", metavar="METHOD,...", help="partitions for p2p (default: random,block)")
    plan.add_argument("--machine", metavar="FILE", help="what `hpgcn bench machine --json` printed")
    plan.add_argument("--memory", type=size, metavar="BYTES", help="memory that a rank may hold "
                      "(default: any number)")
    knobs(plan, COSTS)
    plan.add_argument("--json", action="store_true", help="print every number as one JSON object")
    plan.add_argument("--plot", metavar="FILE", help="draw a picture: .png, .svg or .pdf")

    inspect = add(run.inspect, "inspect", "Say in words what is in a file, a run directory or a checkpoint.")
    inspect.add_argument("file", metavar="PATH", help="an .h5 file of hpgcn, a run directory or a checkpoint in it")
    inspect.add_argument("--verify", action="store_true", help="read all of it and compare every checksum")

    train = add(run.train, "train", "Train; under mpiexec -n P on P ranks.")
    train.add_argument("graph", help="graph, partitioned or not (.h5)")
    train.add_argument("--config", metavar="RUN.toml", help="settings from a file; flags override them")
    knobs(train, [entry.name for entry in dataclasses.fields(Config) if entry.name != "graph"])
    train.add_argument("--dry-run", action="store_true", help="train nothing: say what the run would send and hold")
    train.add_argument("--json", action="store_true", help="print the summary as JSON")
    existing = train.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace an existing run directory")
    existing.add_argument("--resume", action="store_true", help="go on in --out after its newest checkpoint, by its "
                          "settings; flags may change how and how long it runs, not what it computes")
    train.add_argument("--no-verify", action="store_true", help="do not check CRCs of what is read")

    predict = add(run.predict, "predict", "Logits, labels and embeddings of all vertices, in their original order.")
    predict.add_argument("model", metavar="RUN", help="run directory, or its model.h5")
    predict.add_argument("graph", nargs="?", help="another graph (.h5); default: the one trained on")
    predict.add_argument("-o", "--out", metavar="FILE", help="default: RUN/predictions.h5")
    predict.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto",
                         help="where to compute, whatever the model was trained on (default: auto)")
    predict.add_argument("--threads", type=int, default=0, metavar="N",
                         help="threads per rank (default: 0, cores / ranks on the node)")
    predict.add_argument("--overwrite", action="store_true", help="replace an existing file of predictions")

    report = add(run.report, "report", "Compare runs: a table; with --html curves, times, messages and timelines.")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    report.add_argument("--html", metavar="FILE", help=".html: a page that needs nothing else; .png: the curves alone")

    bench = add(run.bench, "bench", "Measure this machine, the kernels or a training epoch against its limits.")
    bench.add_argument("what", choices=["machine", "spmm", "sspmm", "gather", "growth", "epoch", "cuda",
                                         "cuda-epoch"],
                       help="machine: its memory and cores; spmm, sspmm, gather: kernels on the CPU; growth: SpMM on "
                       "graphs of growing size; epoch: training steps; cuda, cuda-epoch: both on a GPU")
    bench.add_argument("--graphs", metavar="NAMES", help="dense,prod,road or some of them (default: all)")
    bench.add_argument("--widths", metavar="N,N", help="widths of x (default: 16,64,128,256; gather: 16,128; "
                       "growth: 64,128; cuda: 16,41,64,128,256); of an epoch: features, hidden, classes "
                       "(default: 128,128,128,40); of cuda-epoch: hidden (default: 16,512)")
    for name, default, text in (("scale-down", 1, "divides the sizes of the graphs"),
                                ("repeats", 5, "times that each thing is timed"),
                                ("threads", 0, "0: all cores this process may use"), ("seed", 0, "keys all draws")):
        bench.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    bench.add_argument("--json", action="store_true", help="print the numbers as JSON")

    doctor = add(run.doctor, "doctor", "Is what hpgcn rests on there, and does it work? MPI, HDF5, threads...")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    return top


def knobs(command, names):
    """Add the flags of some fields of Config; what is not given is None."""
    for entry in dataclasses.fields(Config):
        flag, told = "--" + entry.name.replace("_", "-"), entry.metadata["help"]
        if entry.name in names and entry.type == "bool":
            command.add_argument(flag, action=argparse.BooleanOptionalAction,
                                 help=f"{told} (default: {'on' if entry.default else 'off'})")
        elif entry.name in names:
            kind = {"int": int, "float": float, "str": str}[entry.type]
            default = f" (default: {entry.default})" if entry.default != "" else ""
            choices = entry.metadata["choices"]
            command.add_argument(flag, type=kind, choices=choices, help=told + default,
                                 metavar=None if choices else METAVARS.get(entry.name, METAVARS.get(entry.type)))


def size(text):
    """As hpgcn.config.size, for a flag."""
    try:
        return config.size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())

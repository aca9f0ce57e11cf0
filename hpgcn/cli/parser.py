"""The flags and arguments of all commands: a function for each, of its name, adds them."""

import argparse
import dataclasses

from hpgcn import __version__
from hpgcn.cli import commands
from hpgcn.cli.data_arguments import convert, generate, partition
from hpgcn.cli.settings import Parser, add_settings, alone, integers, size, verbosity
from hpgcn.config import COST_FIELDS, Config

# of hpgcn.planning.seconds.machine_files.SHIPPED, likewise
MACHINES = ("mg-gcn-dgx-a100", "mg-gcn-dgx-v100", "mixgcn-cpu", "mixgcn-sparse-unit")


def parser():
    top = Parser(
        "hpgcn", description="Full-batch GCN training, the same result on any number of ranks.")
    top.add_argument("--version", action="version", version=f"hpgcn {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for add_arguments in (convert, generate, partition, plan, inspect, train, predict, export,
                          report, bench, doctor):
        name = add_arguments.__name__
        action = getattr(commands, name)
        command = subparsers.add_parser(
            name, help=action.__doc__, description=action.__doc__, parents=[verbosity()])
        command.set_defaults(run=action)
        add_arguments(command)
    return top


def plan(command):
    add = command.add_argument

    # the graph, and a run to calibrate by
    add("graph", nargs="?", help="graph, partitioned or not (.h5; default: that of --from)")
    add("--from", dest="from_run", metavar="RUN",
        help="a finished run: its settings, and seconds corrected by what it took")

    # cases to compare
    add("-k", dest="ranks", metavar="K,K",
        help="numbers of ranks (default: powers of two up to 512; the parts of a partitioned file)")
    add("--widths", metavar="N,N",
        help="features, hidden widths, classes (default: of the file, hidden 16)")
    add("--method", metavar="METHOD,...", help="partitions for p2p (default: random,block)")
    add("--machine", metavar="FILE|NAME",
        help="rates: what `hpgcn bench machine --json` printed, a file of two devices "
             f"(docs/mixed-devices.md), or one of {', '.join(MACHINES)}")

    # limits and goals
    add("--memory", type=size, metavar="BYTES",
        help="memory that a rank may hold (default: any number)")
    add("--goal", metavar="GOAL",
        help="10s: fewest ranks for such an epoch; 64ranks: fastest of so many; cheapest: least "
             "ranks times seconds")
    add("--sweep", metavar="WIDTHS[:LAYERS]", help="compare models, e.g. 64,256:2,3")

    # settings of the model, and the output
    add_settings(command, COST_FIELDS)
    add("--json", action="store_true", help="print every number as one JSON object")
    add("--plot", metavar="FILE", help="draw a picture: .png, .svg or .pdf")


def inspect(command):
    command.add_argument("file", metavar="PATH",
                         help="an .h5 file of hpgcn, a run directory or a checkpoint in it")
    command.add_argument("--verify", action="store_true",
                         help="read all of it and compare every checksum")


def train(command):
    add = command.add_argument

    # settings of one run
    add("graph", help="graph, partitioned or not (.h5)")
    add("--config", metavar="RUN.toml", help="settings from a file; flags override them")
    names = [entry.name for entry in dataclasses.fields(Config) if entry.name != "graph"]
    add_settings(command, names)

    # several runs, or several ranks in this process
    add("--seeds", metavar="SEEDS",
        help="such as 0..9 or 1,5,8: a run of each, in OUT/seed-N, and their mean; for --seed")
    add("--splits", metavar="SPLITS",
        help="all, or such as 0..9 or 0,3,5: a run on each split of the graph, in OUT/split-I, and "
             "their mean; for --split-index. With --seeds every seed on every split, in "
             "OUT/split-I/seed-N")
    integers(command, ("ranks", 1, "ranks in this process, which take turns, instead of mpiexec "
                       "-n: to learn, debug and count messages; no faster than one"))

    # what is done in place of a new run
    add("--dry-run", action="store_true",
        help="train nothing: say what the run would send and hold")
    add("--json", action="store_true", help="print the summary as JSON")
    existing = command.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true",
                          help="replace an existing run directory")
    existing.add_argument("--resume", action="store_true",
                          help="go on in --out after its newest checkpoint, by its settings; flags "
                               "may change how and how long it runs, not what it computes")

    add("--no-verify", action="store_true", help="do not check CRCs of what is read")
    alone(command)


def predict(command):
    add = command.add_argument

    # the model, the graph and the output
    add("model", metavar="RUN", help="run directory, or its model.h5; with --from a state_dict "
                                     "that torch.save wrote (.pt)")
    add("graph", nargs="?", help="another graph (.h5); default: the one trained on")
    add("-o", "--out", metavar="FILE",
        help="default: RUN/predictions.h5; .csv, .tsv or .parquet: a row per vertex, id, label and "
             "probability; .npz: arrays")

    # models of PyG
    add("--from", dest="library", choices=["pyg"],
        help="the model is PyG's: GCN, SAGE (mean), GIN, GAT or SGC")
    add("--activation", choices=["own", "relu", "elu", "gelu"], default="own",
        help="with --from: between layers (default: own, ELU of GAT and else ReLU)")

    # where it runs
    add("--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="where to compute, whatever the model was trained on (default: auto)")
    integers(command, ("threads", 0, "threads per rank; 0: cores / ranks on the node"))
    alone(command)
    add("--overwrite", action="store_true", help="replace an existing file of predictions")


def export(command):
    add = command.add_argument
    add("model", metavar="RUN", help="run directory, or its model.h5")
    add("out", metavar="FILE", help="state_dict to write (.pt)")
    add("--to", required=True, choices=["pyg"], help="whose layers it is for")
    add("--overwrite", action="store_true", help="replace an existing file")


def report(command):
    command.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    command.add_argument("--html", metavar="FILE",
                         help=".html: a page that needs nothing else; .png: the curves alone")


def bench(command):
    kinds = command.add_subparsers(
        dest="what", metavar="WHAT", required=True,
        help="machine: rates of memory, kernels and network, for `hpgcn plan --machine`; tune: "
             "prefetch distances of products on this CPU, kept for later runs")
    quiet = verbosity(argument_default=argparse.SUPPRESS)  # keep the flags given before WHAT

    for name, text in (
            ("machine", "Measure the rates of memory, kernels and network for `hpgcn plan`."),
            ("tune", "Measure and keep the best prefetch distances of products on this CPU.")):
        kind = kinds.add_parser(name, description=text, parents=[quiet])
        integers(kind, ("repeats", 5, "number of times that each call is timed"),
                 ("threads", 0, "0: all cores that this process may use"),
                 ("seed", 0, "key of all random draws"))
        if name == "machine":
            alone(kind)
        else:
            integers(kind, ("scale-down", 1, "divides the sizes of the products"))
            kind.add_argument("--reset", action="store_true",
                              help="remove the kept distances; measure nothing")
        kind.add_argument("--json", action="store_true", help="print the numbers as JSON")


def doctor(command):
    command.add_argument("--json", action="store_true", help="print the findings as JSON")

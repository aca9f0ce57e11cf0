"""Define the flags and arguments of all commands, in one function per command."""

import argparse

from hpgcn import __version__
from hpgcn.cli import commands
from hpgcn.cli.data_arguments import convert, generate, partition
from hpgcn.cli.run_flags import SweepAction
from hpgcn.cli.settings import (
    Parser,
    add_settings,
    alone,
    integers,
    local_ranks,
    size,
    verbosity,
)
from hpgcn.config import PLAN_FIELDS, SETTINGS
from hpgcn.setting_field import FILES, HEADINGS, PARALLEL, RUN

# a copy of hpgcn.planning.seconds.machine_files.SHIPPED, whose import is slow
MACHINES = ("mg-gcn-dgx-a100", "mg-gcn-dgx-v100", "mixgcn-cpu", "mixgcn-sparse-unit")
EXAMPLES = {
    "convert": ("hpgcn convert digits digits.h5",
                "hpgcn convert edges.csv graph.h5 --features x.npy --labels y.npy"),
    "generate": ("hpgcn generate sbm graph.h5 --scale 14",),
    "partition": ("hpgcn partition graph.h5 -k 4",),
    "plan": ("hpgcn plan graph.h5", "hpgcn plan graph.h5 -k 16,64 --widths 128,256,40"),
    "inspect": ("hpgcn inspect graph.h5", "hpgcn inspect RUN"),
    "train": ("hpgcn train graph.h5 --hidden 64 --epochs 500 --out RUN",
              "mpiexec -n 4 hpgcn train graph.p4.h5 --out RUN"),
    "predict": ("hpgcn predict RUN -o labels.csv",),
    "export": ("hpgcn export RUN model.pt --to pyg",),
    "report": ("hpgcn report RUN OTHER-RUN --html report.html",),
    "bench": ("hpgcn bench machine --json > machine.json",),
    "doctor": ("hpgcn doctor",),
}


def parser():
    top = Parser("hpgcn", description="Train graph convolutional networks (GCN) on full batches, "
                 "with the same result on any number of ranks.",
                 examples=("hpgcn convert digits digits.h5", "hpgcn train digits.h5",
                           "hpgcn COMMAND --help"))
    top.add_argument("--version", action="version", version=f"hpgcn {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for add_arguments in (convert, generate, partition, plan, inspect, train, predict, export,
                          report, bench, doctor):
        name = add_arguments.__name__
        action = getattr(commands, name)
        command = subparsers.add_parser(
            name, help=action.__doc__, description=action.__doc__, parents=[verbosity()],
            examples=EXAMPLES[name])
        command.set_defaults(run=action)
        add_arguments(command)
    return top


def plan(command):
    # the graph, and a run to calibrate by
    add = command.add_argument
    add("graph", nargs="?", help="graph file (.h5), partitioned or not (default: that of --from)")
    add = command.heading("cases to compare").add_argument
    add("-k", "--ranks", dest="ranks", metavar="K,K",
        help="numbers of ranks (default: powers of two up to 512; for a partitioned file its "
             "number of parts)")
    add("--method", metavar="METHOD,...",
        help="partition methods for strategy p2p (default: random,block)")
    add("--widths", metavar="N,N",
        help="width of features, hidden layers and classes (default: those of the file, hidden 16)")
    add("--sweep", metavar="WIDTHS[:LAYERS]",
        help="compare models: hidden widths and numbers of layers, such as 64,256:2,3")

    # a graph that is not there
    add = command.heading("instead of a graph").add_argument
    add("--vertices", metavar="N", help="number of vertices, such as 111M")
    add("--edges", metavar="N",
        help="number of edges, such as 1.6G; each counts in both directions")
    add("--directed", action="store_true", help="edges have one direction each")
    add("--features", metavar="N", help="number of features (default: 128)")
    add("--classes", metavar="N", help="number of classes (default: 40)")

    # the machine, limits and goals
    add = command.heading("machine and goal").add_argument
    add("--machine", metavar="FILE|NAME",
        help="speed of the machine: the output of `hpgcn bench machine --json`, a file for two "
             f"devices (docs/mixed-devices.md), or one of {', '.join(MACHINES)} (default: a server "
             "with InfiniBand)")
    add("--ranks-per-node", metavar="N",
        help="ranks that share a node, N consecutive ones each, or those of each node, such as "
             "4,4,2: messages between nodes are counted and timed apart (default: that of the "
             "machine file, else one network for all ranks)")
    add("--from", dest="from_run", metavar="RUN",
        help="a finished run: use its settings, and correct the forecast by its measured seconds")
    add("--memory", type=size, metavar="BYTES",
        help="memory limit of a rank, such as 2G; with --scratch of the process (default: no "
             "limit)")
    add("--scratch", metavar="DIR", default="",
        help="plan a run on local ranks whose arrays are files of this folder: bytes read and "
             "written, seconds. The disk is that of --machine, else it is measured now (default: "
             "none)")
    add("--gpu-memory", metavar="BYTES", default="",
        help="plan a run on local ranks that take turns on a GPU with this memory: bytes copied, "
             "seconds. With --device cuda; --scratch adds a disk below the host (default: none)")
    add("--gpus", type=int, metavar="N",
        help="with --gpu-memory: number of GPUs that divide the ranks, each with a process "
             "(default: 1)")
    add("--goal", metavar="GOAL",
        help="10s: fewest ranks with an epoch of at most 10 seconds. 64ranks: fastest case with at "
             "most 64 ranks. cheapest: smallest product of ranks and seconds")

    # output
    add = command.heading("output").add_argument
    add("--json", action="store_true", help="print all numbers as one JSON object")
    add("--all", action="store_true",
        help="print every case, not only those that `hpgcn train` runs and the fastest others")
    add("--plot", metavar="FILE", help="draw the forecast as a picture: .png, .svg or .pdf")

    # settings of the run, with --help-all
    add_settings(command, PLAN_FIELDS, strategy="words of strategies, such as 2d:4x2, cover:0.1 or "
                 "mop:8, joined by +; all strategies are compared")
    command.hide(HEADINGS)


def inspect(command):
    command.add_argument("file", metavar="PATH",
                         help="an .h5 file of hpgcn, a run directory or a checkpoint in it")
    command.add_argument("--verify", action="store_true",
                         help="read the whole file and compare every checksum")


def train(command):
    command.add_argument("graph", help="graph file (.h5), partitioned or not")
    add_settings(command, [name for name in SETTINGS if name != "graph"], common=True)

    # several runs, or several ranks in this process
    add = command.heading(RUN).add_argument
    add("--sweep", metavar="NAME=VALUE,VALUE", action=SweepAction,
        help="train once per value of a setting, such as lr=.01,.003, and mark the best by "
             "validation. Given several times: every combination. Finished runs of the same "
             "command are not repeated")
    add("--seeds", metavar="SEEDS",
        help="train once per seed, such as 0..9 or 1,5,8, each in OUT/seed-N, and print the mean. "
             "Replaces --seed")
    add("--splits", metavar="SPLITS",
        help="train once per split, such as all, 0..9 or 0,3,5, each in OUT/split-I, and print the "
             "mean. Replaces --split-index. With --seeds: every seed on every split, in "
             "OUT/split-I/seed-N")
    add("--dry-run", action="store_true",
        help="do not train: print what each rank would send and store")
    local_ranks(command.heading(PARALLEL),
                ". Ranks run in turns: to learn, debug and count messages, not to save time")
    command.heading(PARALLEL).add_argument(
        "--nodes", metavar="N",
        help="with --ranks: number of nodes that these ranks are taken to run on, or the node of "
             "each rank, such as 0,0,1 (default: 1)")
    alone(command.heading(PARALLEL))

    # files and checkpoints
    files = command.heading(FILES)
    files.add_argument("--config", metavar="RUN.toml",
                       help="read settings from this file; flags override them")
    existing = files.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true",
                          help="replace an existing run directory")
    existing.add_argument("--resume", action="store_true",
                          help="continue the run in --out from its newest checkpoint, with its "
                               "settings. Flags may change how and how long it runs, but not what "
                               "it computes")
    files.add_argument("--no-verify", action="store_true",
                       help="skip the checksums of the graph file")
    files.add_argument("--json", action="store_true", help="print the summary as JSON")
    command.hide(HEADINGS)


def predict(command):
    # the model, the graph and the output
    add = command.add_argument
    add("model", metavar="RUN",
        help="run directory or its model.h5; with --from a state_dict written by torch.save (.pt)")
    add("graph", nargs="?", help="graph file (.h5) (default: the graph of the training run)")
    add = command.heading("output").add_argument
    add("-o", "--out", metavar="FILE",
        help="file to write (default: RUN/predictions.h5). .csv, .tsv or .parquet: a row per "
             "vertex with id, label and probability. .npz: arrays")
    add("--probabilities", action="store_true",
        help="also write the probability of each class, in a column each, or an array")
    add("--vertices", metavar="FILE",
        help="write only these vertices, or with --top the targets of these: a file with an id of "
             "the input in each line, or FILE:COLUMN of a table (default: all)")
    add("--pairs", metavar="FILE",
        help="with a model of links: score these pairs of ids of the input, the columns source and "
             "target of a table, else its first two. -o is a .csv, .tsv, .parquet or .npz "
             "(default: RUN/scores.csv)")
    add("--top", type=int, metavar="N",
        help="with a model of links: the N new targets with the highest scores of each vertex, in "
             "place of --pairs")
    add("--top-targets", metavar="FILE",
        help="with --top: choose only from these vertices, such as the products of a shop: a file "
             "with an id of the input in each line, or FILE:COLUMN (default: all)")
    add("--overwrite", action="store_true", help="replace an existing file")

    # models of PyG
    add = command.heading("models of PyG").add_argument
    add("--from", dest="library", choices=["pyg"],
        help="library of the model. pyg: GCN, SAGE (mean), GIN, GAT or SGC")
    add("--activation", choices=["own", "relu", "elu", "gelu"], default="own",
        help="with --from only: activation between layers (default: own, that is elu for GAT, "
             "relu for all others)")

    # where it runs
    parallel = command.heading(PARALLEL)
    parallel.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto",
                          help="device to compute on; it may differ from that of the training run "
                               "(default: auto)")
    integers(parallel, ("threads", 0, "threads per rank. 0: number of cores / ranks on the node"))
    local_ranks(parallel)
    add_settings(command, ("memory", "scratch", "gpu_memory"))
    alone(parallel)


def export(command):
    add = command.add_argument
    add("model", metavar="RUN", help="run directory or its model.h5")
    add("out", metavar="FILE", help="file to write: a state_dict (.pt), a model (.onnx), or rows "
                                    "(.csv, .tsv, .npz)")
    add("--to", required=True, choices=["pyg", "onnx", "embedding"], metavar="FORM",
        help="pyg: a state_dict, and code that loads it. onnx: the matrices of a model whose "
             "products with the graph all come first (gcn and sgc of one layer) or last (appnp). "
             "embedding: learned rows with ids")
    add("--overwrite", action="store_true", help="replace an existing file")


def report(command):
    command.add_argument("runs", nargs="+", metavar="RUN",
                         help="run directory, or a folder of them such as the OUT of a sweep")
    command.add_argument("--html", metavar="FILE",
                         help="also write pictures. .html: one page without other files. .png: "
                              "only the curves")
    command.add_argument("--breakdown", metavar="FILE",
                         help="also draw the time of an epoch as a stacked bar for each run (.png, "
                              ".svg, .pdf)")
    command.add_argument("--speedup", metavar="RUN",
                         help="add a column: seconds of this run over those of each run")


def bench(command):
    kinds = command.add_subparsers(
        dest="what", metavar="WHAT", required=True,
        help="machine: measure memory, kernels and network, for `hpgcn plan --machine`. tune: find "
             "the best prefetch distances for this CPU and store them for later runs")
    quiet = verbosity(argument_default=argparse.SUPPRESS)  # keep the flags given before WHAT

    for name, text, example in (
            ("machine", "Measure the speed of memory, kernels and network for `hpgcn plan`.",
             "hpgcn bench machine --json > machine.json"),
            ("tune", "Find the best prefetch distances for this CPU and store them.",
             "hpgcn bench tune")):
        kind = kinds.add_parser(name, description=text, parents=[quiet], examples=(example,))
        integers(kind, ("repeats", 5, "number of times that each call is timed"),
                 ("threads", 0, "number of threads. 0: all cores that this process may use"),
                 ("seed", 0, "seed of all random draws"))

        # flags of one kind
        if name == "machine":
            alone(kind)
            kind.add_argument("--scratch", metavar="DIR", default="",
                              help="also measure the disk of this folder, for `hpgcn plan "
                                   "--scratch` (default: none)")
        else:
            integers(kind, ("scale-down", 1, "divide the sizes of the measured products by N"))
            kind.add_argument("--reset", action="store_true",
                              help="do not measure: remove the stored distances")
        kind.add_argument("--json", action="store_true", help="print the numbers as JSON")


def doctor(command):
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument("--compile", action="store_true",
                         help="compile the kernels of common commands ahead, into the folder that "
                              "HPGCN_KERNELS names for all users, or into the cache of this user")
    integers(command, ("jobs", 0, "with --compile: N processes at a time. 0: one a core"))


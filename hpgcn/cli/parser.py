"""The flags and arguments of all commands: a function for each, of its name, adds them."""

import argparse
import dataclasses
import sys

from hpgcn import __version__, config
from hpgcn.cli import commands
from hpgcn.config import COST_FIELDS, Config
from hpgcn.errors import UsageError
from hpgcn.runtime import machine

# of a field of Config, or of its type
METAVARS = {"out": "RUN", "grid": "RxC", "memory": "BYTES", "class_weight": "balanced|FILE",
            "int": "N", "float": "X"}


# of hpgcn.graphs.vertex_order.ORDERS, not imported here: it brings SciPy
VERTEX_ORDERS = ("degree", "rcm", "breadth", "communities")
# of hpgcn.planning.machine_files.SHIPPED, likewise
MACHINES = ("mg-gcn-dgx-a100", "mg-gcn-dgx-v100", "mixgcn-cpu", "mixgcn-sparse-unit")
IN_REGISTRIES = ("strategy", "model")


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print."""

    def error(self, message):
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message, file=None):
        if message and not machine.launched_rank():
            (file or sys.stderr).write(message)


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


def verbosity(**options):
    """Flags of all commands, to be a parent of theirs; `options` as of argparse."""
    common = Parser(add_help=False, **options)
    for flag, name, text in (("-v", "--verbose", "more log lines; tracebacks of errors"),
                             ("-q", "--quiet", "warnings and errors only")):
        common.add_argument(flag, name, action="store_const", const=True, help=text)
    return common


def convert(command):
    add = command.add_argument
    add("source", help="a file, or the word digits or karate")
    add("out", help="graph to write (.h5)")
    add("--format", default="auto", help="of the source (default: auto, by its name)",
        choices=["auto", "planetoid", "ogb", "npz", "mtx", "snap", "csv", "parquet", "pt", "mat",
                 "metis", "graphml", "gexf", "gml", "pajek", "adjlist"])
    add("--columns", metavar="NAMES",
        help="what each column of an edge list is, whatever its header says: source,target (row "
             "target aggregates source) or u,v (row u aggregates v), w (weights), - (not read); "
             "such as u,v,-,w")
    add("--base", type=int, choices=[0, 1],
        help="id of the first vertex of an edge list (default: 0; 1 under KONECT's header)")
    add("--features", metavar="FILE",
        help=".npy, .npz (SciPy sparse or one array), .json (lists of numbers), LibSVM; or "
             "the word identity (a column for each vertex) or degree (log(1 + d) of row sum and "
             "column sum)")
    add("--labels", metavar="FILE",
        help=".npy: class ids (n,), -1 unknown; or 0/1 (n, t); or .csv with a column of classes")
    add("--symmetrize", action="store_true", help="take max(A, A^T)")
    add("--unweighted", action="store_true", help="set all edge weights to 1")
    add("--reverse", action="store_true", help="row and column of every entry change places")
    add("--strict", action="store_true", help="refuse duplicates, self loops and false symmetry")
    add("--row-normalize", action=argparse.BooleanOptionalAction, default=None,
        help="scale each feature row to sum 1 (default: for planetoid only)")
    add("--split", metavar="SPLIT",
        help="file, planetoid, random:60/20/20[:SEED] (percent), or per-class:20/30[:SEED] (to "
             "train and to validate, all others to test)")
    integers(command, ("num-splits", 1, "splits to draw, random or per-class; number i has SEED + "
                       "i, and train --split-index i takes it"))
    add("--largest-component", action="store_true",
        help="leave out vertices outside the largest weakly connected component")
    vertex_order(command)
    add("--memory", type=size, metavar="BYTES",
        help="what it may hold; larger edge lists are sorted on disk (default: 80%% of what is "
             "free)")
    add("--compress", default="none", choices=["none", "gzip"],
        help="gzip: a smaller file that takes longer to read (default: none)")
    add("--overwrite", action="store_true", help="replace an existing graph")


def generate(command):
    add = command.add_argument
    add("kind", choices=["rmat", "sbm", "grid", "bter"],
        help="rmat: few vertices have most edges; sbm: classes are communities; grid: two "
             "dimensions; bter: degrees and clustering by degree as asked for")
    add("out", help=".h5, or .txt for an edge list")
    add("--scale", type=int, metavar="N", help="2^SCALE vertices, 16 unless given; not of bter")
    add("--edge-factor", type=int, metavar="N",
        help="undirected edges per vertex, 16 unless given; not of bter")
    add("--degrees", metavar="FILE", help="of bter: lines `degree count [clustering]`")
    add("--like", metavar="GRAPH",
        help="of bter: take degrees and clustering from a graph (.h5), its edges in both "
             "directions")
    add("--scale-edges", type=float, metavar="X",
        help="of bter: the degree of every vertex times X, so the same vertices with X times as "
             "many edges")
    add("--scale-vertices", type=float, metavar="X",
        help="of bter: X times as many vertices of each degree")
    integers(command, ("features", 64, "width"), ("classes", 8, "labels"),
             ("seed", 0, "keys all draws"))
    add("--separation", type=float, default=2.0, metavar="X",
        help="distance of the mean features of a class from 0, beside noise of 1 in each feature "
             "(default: 2.0)")
    vertex_order(command)
    add("--memory", type=size, metavar="BYTES",
        help="what it may hold; edges that do not fit are sorted on disk (default: 80%% of what is "
             "free)")
    add("--overwrite", action="store_true", help="replace an existing file")


def vertex_order(command):
    command.add_argument(
        "--order", default="auto", choices=["auto", "none", *VERTEX_ORDERS],
        help="of the rows in the file, so that products find them in caches; results are in the "
             "input's order whatever it is (default: auto, the one that misses caches least)")


def partition(command):
    add = command.add_argument
    add("graph", help="graph (.h5)")
    add("-k", type=int, required=True, metavar="K", help="number of parts")
    add("-o", "--out", metavar="FILE",
        help="default: GRAPH.pK.h5; a name that ends in .npy, .txt or .part.K takes the part of "
             "each vertex alone")
    add("--method", default="hypergraph", metavar="METHOD",
        help="of rows: hypergraph, graph, stochastic, random, block; of nonzeros, for strategy "
             "vertex-cut: cover, medium-grain, fine-grain, vertex-cut, expansion (default: "
             "hypergraph)")
    add("--engine", metavar="ENGINE",
        help="mtkahypar or kahypar (default: mtkahypar), of graph metis; vertex-cut and "
             "expansion take none")
    add("--epsilon", type=float, metavar="SHARE",
        help="imbalance allowed (default: 0.01, of nonzeros 0.05)")
    weight = command.add_mutually_exclusive_group()
    weight.add_argument("--w0", type=int, default=0, metavar="N",
                        help="weight of a row besides its nonzeros (default: 0)")
    weight.add_argument("--widths", metavar="N,N",
                        help="take as w0 the dense work of a row for these widths: features, "
                             "hidden, classes")
    integers(command, ("seed", 0, "keys all draws"))
    add("--balance-train", action="store_true",
        help="give parts equally many vertices to train on, too, within 10%%")
    integers(command, ("split-index", 0, "split whose vertices to train on are balanced and "
                       "counted; the file has all"))
    add("--nested", action="store_true",
        help="number the parts so that 2p and 2p + 1 are part p of half as many, and so on")
    add("--no-refine", action="store_true", help="leave the parts as they were first found")
    add("--no-rcm", action="store_true", help="keep the vertex order inside each part")
    add("--parts", metavar="FILE", help="take the part of each vertex from FILE (.npy, or text)")
    add("--compare", metavar="METHOD,...",
        help="run several methods, or all, show them side by side and write nothing")
    add("--json", action="store_true", help="print statistics as JSON")
    add("--overwrite", action="store_true", help="replace an existing file")


def plan(command):
    add = command.add_argument
    add("graph", nargs="?", help="graph, partitioned or not (.h5; default: that of --from)")
    add("--from", dest="from_run", metavar="RUN",
        help="a finished run: its settings, and seconds corrected by what it took")
    add("-k", dest="ranks", metavar="K,K",
        help="numbers of ranks (default: powers of two up to 512; the parts of a partitioned file)")
    add("--widths", metavar="N,N",
        help="features, hidden widths, classes (default: of the file, hidden 16)")
    add("--method", metavar="METHOD,...", help="partitions for p2p (default: random,block)")
    add("--machine", metavar="FILE|NAME",
        help="rates: what `hpgcn bench machine --json` printed, a file of two devices "
             f"(docs/mixed-devices.md), or one of {', '.join(MACHINES)}")
    add("--memory", type=size, metavar="BYTES",
        help="memory that a rank may hold (default: any number)")
    add("--goal", metavar="GOAL",
        help="10s: fewest ranks for such an epoch; 64ranks: fastest of so many; cheapest: least "
             "ranks times seconds")
    add("--sweep", metavar="WIDTHS[:LAYERS]", help="compare models, e.g. 64,256:2,3")
    knobs(command, COST_FIELDS)
    add("--json", action="store_true", help="print every number as one JSON object")
    add("--plot", metavar="FILE", help="draw a picture: .png, .svg or .pdf")


def inspect(command):
    command.add_argument("file", metavar="PATH",
                         help="an .h5 file of hpgcn, a run directory or a checkpoint in it")
    command.add_argument("--verify", action="store_true",
                         help="read all of it and compare every checksum")


def train(command):
    add = command.add_argument
    add("graph", help="graph, partitioned or not (.h5)")
    add("--config", metavar="RUN.toml", help="settings from a file; flags override them")
    knobs(command, [entry.name for entry in dataclasses.fields(Config) if entry.name != "graph"])
    add("--seeds", metavar="SEEDS",
        help="such as 0..9 or 1,5,8: a run of each, in OUT/seed-N, and their mean; for --seed")
    add("--splits", metavar="SPLITS",
        help="all, or such as 0..9 or 0,3,5: a run on each split of the graph, in OUT/split-I, and "
             "their mean; for --split-index. With --seeds every seed on every split, in "
             "OUT/split-I/seed-N")
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


def predict(command):
    add = command.add_argument
    add("model", metavar="RUN", help="run directory, or its model.h5; with --from a state_dict "
                                     "that torch.save wrote (.pt)")
    add("graph", nargs="?", help="another graph (.h5); default: the one trained on")
    add("-o", "--out", metavar="FILE", help="default: RUN/predictions.h5")
    add("--from", dest="library", choices=["pyg"],
        help="the model is PyG's: GCN, SAGE (mean), GIN, GAT or SGC")
    add("--activation", choices=["own", "relu", "elu", "gelu"], default="own",
        help="with --from: between layers (default: own, ELU of GAT and else ReLU)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto",
        help="where to compute, whatever the model was trained on (default: auto)")
    integers(command, ("threads", 0, "threads per rank; 0: cores / ranks on the node"))
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
    from hpgcn.bench import COMMANDS

    kinds = command.add_subparsers(
        dest="what", metavar="WHAT", required=True,
        help="machine: its memory and cores; spmm, sspmm, gather: kernels on the CPU; growth: SpMM "
             "on graphs of growing size; kernels: all of them on the CPU; tune: how far ahead "
             "products read on this CPU, kept for later; epoch: training steps; torch: layers of "
             "PyG, by torch and by our kernels; batches: rows that mini-batches send under "
             "partitions of GRAPH; cuda, cuda-epoch: kernels and epochs on a GPU; accuracy: "
             "seconds until training by batches is as accurate as full batch; drift: losses and "
             "accuracy of bf16 beside float32")
    quiet = verbosity(argument_default=argparse.SUPPRESS)  # what stands before WHAT holds
    for name in COMMANDS:
        one = kinds.add_parser(name, description=commands.bench.__doc__, parents=[quiet])
        one.set_defaults(graph=None)
        if name == "batches":
            one.add_argument("graph", help="graph (.h5)")
        kernels(one)
    one = kinds.add_parser("accuracy", description=commands.accuracy.__doc__, parents=[quiet])
    one.set_defaults(run=commands.accuracy)
    accuracy(one)
    one = kinds.add_parser("drift", description=commands.drift.__doc__, parents=[quiet])
    one.set_defaults(run=commands.drift)
    drift(one)


def kernels(command):
    add = command.add_argument
    add("--graphs", metavar="NAMES", help="dense,prod,road or some of them (default: all)")
    add("--widths", metavar="N,N",
        help="widths of x (default: 16,64,128,256; gather: 16,128; growth: 64,128; torch: "
             "16,64,256; kernels: 64; cuda: 16,41,64,128,256); of an epoch: features, hidden, "
             "classes (default: 128,128,128,40); of cuda-epoch: hidden (default: 16,512)")
    add("--ranks", metavar="K,K", help="of batches: numbers of parts (default: 3,9,27,81)")
    add("--epochs", type=int, metavar="N", help="of batches: how many are counted (default: 10)")
    integers(command, ("scale-down", 1, "divides the sizes of the graphs"),
             ("repeats", 5, "times that each thing is timed"),
             ("threads", 0, "0: all cores this process may use"), ("seed", 0, "keys all draws"))
    add("--starved", action="store_true",
        help="of spmm and kernels: by one thread, alone and beside a process that copies memory on "
             "another core")
    add("--reset", action="store_true", help="of tune: remove what was kept; nothing is timed")
    add("--json", action="store_true", help="print the numbers as JSON")


def accuracy(command):
    add = command.add_argument
    add("graph", help="graph, partitioned or not (.h5)")
    add("--batch", action="append", metavar="BATCH",
        help="as of train, once for each setting to be measured; full comes first in any case "
             "unless --target is given (default: full)")
    add("--target", type=float, metavar="SHARE",
        help="validation accuracy to be reached (default: the best one of full batch, less "
             "--margin)")
    add("--margin", type=float, default=0.005, metavar="SHARE",
        help="what the target is below the best of full batch (default: 0.005)")
    add("--seconds", type=float, default=0.0, metavar="X",
        help="of training, after which a run ends; 0: never (default: 0.0)")
    add("--seeds", default="0", metavar="SEEDS",
        help="such as 0..2 or 1,5: a run of each, and their medians (default: 0)")
    add("--peers", action="store_true", help="let PyG train likewise, too")
    add("--peer-python", metavar="PYTHON",
        help="with torch and torch_geometric (default: this one)")
    add("--out", dest="folder", metavar="FOLDER",
        help="write accuracy.json and, as a picture, accuracy.png")
    add("--overwrite", action="store_true", help="replace these files")
    own = {"graph", "out", "batch", "seed", "trace", "checkpoint_every"}
    knobs(command, [entry.name for entry in dataclasses.fields(Config) if entry.name not in own])
    add("--json", action="store_true", help="print the numbers as JSON")


def drift(command):
    add = command.add_argument
    add("graph", help="graph, partitioned or not (.h5)")
    add("--seeds", default="0", metavar="SEEDS",
        help="such as 0..2 or 1,5: two runs of each (default: 0)")
    own = {"graph", "out", "seed", "trace", "checkpoint_every", "dtype"}
    knobs(command, [entry.name for entry in dataclasses.fields(Config) if entry.name not in own])
    add("--dtype", default="bf16", choices=("float64", "bf16"),
        help="what is held against float32 (default: bf16)")
    add("--json", action="store_true", help="print the numbers as JSON")


def doctor(command):
    command.add_argument("--json", action="store_true", help="print the findings as JSON")


def integers(command, *flags):
    """Add flags that take an integer: name, default, help."""
    for name, default, text in flags:
        command.add_argument(f"--{name}", type=int, default=default, metavar="N",
                             help=f"{text} (default: {default})")


def knobs(command, names):
    """Add the flags of some fields of Config; what is not given is None."""
    for entry in dataclasses.fields(Config):
        if entry.name not in names:
            continue
        flag = "--" + entry.name.replace("_", "-")
        text = entry.metadata["help"]
        if entry.type == "bool":
            text += f" (default: {'on' if entry.default else 'off'})"
            command.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
            continue
        if entry.default != "":
            text += f" (default: {entry.default})"
        choices = entry.metadata["choices"]
        metavar = METAVARS.get(entry.name, METAVARS.get(entry.type))
        if entry.name in IN_REGISTRIES:
            metavar = "NAME"
            text += "; one of %(names)s"
        kind = {"int": int, "float": float, "str": str}[entry.type]
        added = command.add_argument(flag, type=kind, choices=choices, help=text,
                                     metavar=None if choices else metavar)
        added.names = Names(entry.name)


class Names:
    """The words that a setting takes, looked up when a help text is printed: imports are slow."""

    def __init__(self, setting):
        self.setting = setting

    def __str__(self):
        from hpgcn.model.registry import model_kinds
        from hpgcn.strategies import AUTO, AUTO_PER_LAYER, STRATEGIES

        if self.setting == "strategy":
            return ", ".join((AUTO, *STRATEGIES, AUTO_PER_LAYER))
        return ", ".join(model_kinds())


def size(text):
    try:
        return config.size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

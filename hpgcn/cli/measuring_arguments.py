"""The flags of `hpgcn bench` and of what it measures."""
import argparse
import dataclasses

from hpgcn.cli import measuring
from hpgcn.cli.settings import alone, integers, knobs, verbosity
from hpgcn.config import Config


def bench(command):
    from hpgcn.bench import COMMANDS, OWN

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
        one = kinds.add_parser(name, description=measuring.bench.__doc__, parents=[quiet])
        one.set_defaults(graph=None)
        if name == "batches":
            one.add_argument("graph", help="graph (.h5)")
        elif name in OWN:
            one.add_argument("graph", nargs="?", help="graph (.h5) whose adjacency is used "
                                                      "(default: made ones)")
        elif name == "machine":
            alone(one)
        kernels(one)
    one = kinds.add_parser("accuracy", description=measuring.accuracy.__doc__, parents=[quiet])
    one.set_defaults(run=measuring.accuracy)
    accuracy(one)
    one = kinds.add_parser("drift", description=measuring.drift.__doc__, parents=[quiet])
    one.set_defaults(run=measuring.drift)
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

"""Flags of the commands that write graph files: convert, generate, partition."""
import argparse
import dataclasses

from hpgcn.cli.settings import integers, size
from hpgcn.datasets.convert_options import FORMATS, REST, ConvertOptions
from hpgcn.errors import UsageError, setting
from hpgcn.runtime import machine

# a copy of hpgcn.graphs.reordering.ORDERS, whose import is slow: it needs SciPy
VERTEX_ORDERS = ("degree", "rcm", "breadth", "communities")

# flags of `generate` by the kind of graph that uses them
OF_DEGREES = ("degrees", "like", "scale_vertices", "scale_edges")
OF_OTHERS = ("scale", "edge_factor")


def convert(command):
    add = command.add_argument
    add("source", help="a file, a folder with the files of a data set, or a built-in data set: "
                       "digits or karate")
    add("out", help="graph file to write (.h5)")
    add = command.heading("input and output").add_argument
    add("--format", default="auto", help="format of the source (default: auto, by its name)",
        choices=FORMATS)
    add("--compress", default="none", choices=["none", "gzip"],
        help="compression of the output. gzip: smaller, but slower to read (default: none)")
    add("--overwrite", action="store_true", help="replace an existing file")
    memory_flag(add)

    add_options(command)
    vertex_order(command.heading(REST).add_argument)


def add_options(command):
    """Add a flag for each field of ConvertOptions under its heading."""
    for entry in dataclasses.fields(ConvertOptions):
        words = dict(entry.metadata)
        add = command.heading(words.pop("heading")).add_argument
        if entry.type.startswith("bool"):
            words["action"] = ("store_true" if entry.default is False
                               else argparse.BooleanOptionalAction)
        add("--" + entry.name.replace("_", "-"), default=entry.default, **words)


def memory_flag(add):
    add("--memory", type=size, metavar="BYTES",
        help="memory limit, such as 2G; edges that do not fit are sorted on disk (default: 80%% "
             "of the free memory)")


def generate(command):
    add = command.add_argument
    add("kind", choices=["rmat", "sbm", "grid", "bter"],
        help="rmat: few vertices have most of the edges. sbm: classes are communities. grid: a "
             "two-dimensional grid. bter: given degrees, and clustering for each degree")
    add("out", help="file to write: a graph (.h5), or an edge list (.txt)")

    # size, and degrees of bter
    add = command.heading("edges of rmat, sbm and grid").add_argument
    add("--scale", type=int, metavar="N", help="generate 2^N vertices (default: 16)")
    add("--edge-factor", type=int, metavar="N",
        help="number of undirected edges per vertex (default: 16)")
    add = command.heading("edges of bter").add_argument
    add("--degrees", metavar="FILE",
        help="text file of degrees: lines `degree count [clustering]`")
    add("--like", metavar="GRAPH",
        help="take degrees and clustering from this graph (.h5), with its edges in both directions")
    add("--scale-edges", type=float, metavar="X",
        help="multiply the degree of every vertex by X: the same vertices, X times the edges")
    add("--scale-vertices", type=float, metavar="X",
        help="multiply the number of vertices of each degree by X")

    # features and labels
    group = command.heading("features and labels")
    integers(group, ("features", 64, "number of features"), ("classes", 8, "number of classes"))
    group.add_argument(
        "--separation", type=float, default=2.0, metavar="X",
        help="distance of the mean features of a class from 0; the noise of each feature has "
             "deviation 1 (default: 2.0)")

    # output
    group = command.heading("output")
    integers(group, ("seed", 0, "seed of all random draws"))
    vertex_order(group.add_argument)
    memory_flag(group.add_argument)
    group.add_argument("--overwrite", action="store_true", help="replace an existing file")


def vertex_order(add):
    add("--order", default="auto", choices=["auto", "none", *VERTEX_ORDERS],
        help="order of the vertices in the file, for faster products. Results are always in the "
             "order of the input (default: auto, the order with the fewest cache misses)")


def partition(command):
    add = command.add_argument
    add("graph", help="graph file (.h5)")
    add = command.heading("parts and output").add_argument
    add("-k", "--ranks", dest="k", type=int, required=True, metavar="K",
        help="number of parts, one for each rank")
    add("-o", "--out", metavar="FILE",
        help="file to write (default: GRAPH.pK.h5). .npy, .txt or .part.K: only the part of each "
             "vertex")
    add("--overwrite", action="store_true", help="replace an existing file")
    add("--json", action="store_true", help="print statistics as JSON")
    add("--memory", type=size, metavar="BYTES",
        help="memory limit, such as 2G. If the pattern does not fit, parts by row are made in "
             "passes over the file. A method that needs more is refused (default: no limit)")

    # method
    method = command.heading("method")
    add = method.add_argument
    add("--method", default="best", metavar="METHOD",
        help="partition rows: best (of hypergraph and graph), hypergraph, graph, stream (fast), "
             "stochastic, random, block. Or partition nonzeros, for strategy vertex-cut: cover, "
             "medium-grain, fine-grain, vertex-cut, distgnn, expansion (default: best)")
    add("--effort", default="default", choices=["fast", "default", "best"],
        help="work for the parts. fast: parts by stream, and few passes over nonzeros. default: "
             "less work of the engine; method best improves parts by METIS. In large graphs it "
             "divides clusters. best: all of it. The seconds to be expected are printed first "
             "(default: default)")
    add("--engine", metavar="ENGINE",
        help="library that partitions: mtkahypar or kahypar; metis or kaminpar for method graph. "
             "Methods vertex-cut and expansion use none. With --compare, of the methods that take "
             "it (default: mtkahypar)")
    integers(method, ("seed", 0, "seed of all random draws"))
    add("--no-refine", action="store_true", help="keep the parts as first found; no refinement")

    # arguments of Algorithm 3 of demirci-2022
    add = command.heading("method stochastic").add_argument
    add("--batch", metavar="BATCH",
        help="mini-batches whose traffic is minimized, as in `hpgcn train --batch`: vertices:B, "
             "parts:Q:K (Q of K parts) or neighbors:K:B (K neighbors of each of B rows; default: "
             "vertices:B, B 20000, or a tenth of the vertices)")
    add("--theta", type=float, metavar="X",
        help="error of the mean connectivity of the nets drawn; fewer nets for a larger one "
             "(default: 0.5)")
    add("--delta", type=float, metavar="X",
        help="chance of a larger error than theta (default: 0.1)")

    # balance
    balance = command.heading("balance")
    add = balance.add_argument
    add("--epsilon", type=float, metavar="SHARE",
        help="allowed imbalance (default: 0.01 for rows, 0.05 for nonzeros)")
    weight = balance.add_mutually_exclusive_group()
    weight.add_argument("--w0", type=int, default=0, metavar="N", help=argparse.SUPPRESS)
    weight.add_argument("--widths", metavar="N,N",
                        help="balance the dense work of a row as well, for these widths: features, "
                             "hidden layers, classes (default: nonzeros only)")
    add("--balance-train", action="store_true",
        help="balance the number of training vertices as well, to within 10%%")
    integers(balance, ("split-index", 0, "number of the split whose training vertices are balanced "
                       "and counted, from 0. The file keeps all splits"))

    # order of the parts and of their vertices
    add = command.heading("order").add_argument
    add("--nested", action="store_true",
        help="number the parts so that parts 2p and 2p + 1 form part p of K/2 parts, and so on")
    nodes = command.heading("order").add_mutually_exclusive_group()
    nodes.add_argument("--nodes", type=int, metavar="N",
                       help="choose the parts of a node together, so that few rows are sent "
                            "between N nodes. K must be a multiple of N; node j has parts j K / N "
                            "to (j + 1) K / N - 1")
    nodes.add_argument("--ranks-per-node", metavar="N,N,...",
                       help="the same for nodes of several sizes, whose sum is K")
    add("--no-rcm", action="store_true", help="keep the order of the vertices inside each part")
    add("--pipeline-batches", type=int, default=0, metavar="N",
        help="method block only, for strategy mop: cut the rows in RCM order into N batches, and "
             "give each part a piece of each. 0: contiguous parts (default: 0)")

    # alternatives to a new partition
    add = command.heading("instead of a new partition").add_argument
    add("--parts", metavar="FILE",
        help="do not partition: read the part of each vertex from FILE (.npy or text)")
    add("--compare", metavar="METHOD,...",
        help="run several methods, or all, and print side by side which engine ran, the seconds "
             "and the statistics. Writes no file")


def parse_degrees(args):
    """Return the Degrees from which a graph is generated.

    UsageError for flags of other kinds of graphs, or unless exactly one of --degrees
    and --like is given. DataError if the file is invalid.
    """
    from hpgcn import store
    from hpgcn.datasets.generators.degree_distribution import degrees_of, read_degrees

    refuse_flags(args, OF_OTHERS)
    if (args.degrees is None) == (args.like is None):
        raise UsageError(f"generate {args.kind}: give either --degrees FILE or --like GRAPH.h5")
    memory = machine.memory_budget() if args.memory is None else args.memory
    if args.like is None:
        degrees = read_degrees(args.degrees, memory)
    else:
        degrees = degrees_of(store.load(args.like, memory=memory).read(), memory)
    factors = [1.0 if factor is None else factor
               for factor in (args.scale_vertices, args.scale_edges)]
    return degrees.scaled(*factors, memory)


def refuse_flags(args, names=OF_DEGREES):
    """Refuse flags that have no effect on this kind of generated graph."""
    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(f"generate {args.kind}: takes no {setting(name)}")

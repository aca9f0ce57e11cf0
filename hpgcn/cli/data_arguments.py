"""Flags of the commands that write graph files: convert, generate, partition."""
import argparse

from hpgcn.cli.settings import integers, size
from hpgcn.errors import UsageError, setting
from hpgcn.runtime import machine

# a copy of hpgcn.graphs.vertex_order.ORDERS, whose import is slow: it needs SciPy
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
        choices=["auto", "planetoid", "ogb", "graphsaint", "reddit", "geomgcn", "linqs",
                 "dglcsv", "npz", "mtx", "snap", "csv", "parquet", "pt", "mat", "metis",
                 "graphml", "gexf", "gml", "pajek", "adjlist", "json"])
    add("--compress", default="none", choices=["none", "gzip"],
        help="compression of the output. gzip: smaller, but slower to read (default: none)")
    add("--overwrite", action="store_true", help="replace an existing file")
    memory_flag(add)

    edge_flags(command.heading("edge lists").add_argument)
    table_flags(command.heading("features and labels").add_argument)
    graph_flags(command)


def memory_flag(add):
    add("--memory", type=size, metavar="BYTES",
        help="memory limit, such as 2G; edges that do not fit are sorted on disk (default: 80%% "
             "of the free memory)")


def edge_flags(add):
    """Add the flags for reading an edge list."""
    add("--columns", metavar="NAMES",
        help="meaning of each column of an edge list, such as u,v,-,w. source,target: row target "
             "aggregates row source. u,v: row u aggregates row v. w: weight. -: skip the column")
    add("--weights", metavar="NAME",
        help="column, attribute or array with the edge weights (default: the one called weight or "
             "similar)")
    add("--matrix", metavar="NAME",
        help="array that is the adjacency, in .mat and .npz files of several matrices (default: "
             "the one called A, adj, network or similar)")
    add("--edge-features", metavar="NAMES|FILE",
        help="features of the edges: columns of the edge list, such as dist,'t*'; an array of .pt "
             "or .npz, such as edge_attr; or a file with a row for each edge in the order of the "
             "input, such as edge-feat.csv.gz")
    add("--header", action=argparse.BooleanOptionalAction, default=None,
        help="the first line of an edge list or table has column names (--no-header: data) "
             "(default: by the words in it)")

    # vertices
    add("--base", type=int, choices=[0, 1],
        help="id of the first vertex in a list or an array of edges (default: 0; 1 below a header "
             "of KONECT)")
    add("--num-nodes", type=int, metavar="N",
        help="number of vertices of an edge list, with or without edges. Ids are 0..N-1, or 1..N "
             "with --base 1 (default: by the ids in the list)")
    add("--compact", action="store_true",
        help="number only the ids that occur in an edge, in increasing order, and store the ids")
    add("--bipartite", action="store_true",
        help="the two columns have ids of different kinds, such as users and items. Vertices of "
             "the second column are numbered after those of the first. Edges are read in both "
             "directions")


def table_flags(add):
    """Add the flags for files with features and labels, and with the ids of their rows."""
    # features and labels
    add("--features", metavar="FILE",
        help="features: a table (text, Parquet, JSON) joined by its id column, or .npy, .npz, "
             ".json (lists of numbers), LibSVM. Or a word: identity (one column per vertex), "
             "degree (log(1 + d) of row sum and column sum) or random:N[:SEED] (N columns drawn "
             "for each vertex id, to measure time). Or :NAME,..., attributes of the nodes in the "
             "source")
    add("--labels", metavar="FILE[:COLUMN]",
        help="labels: a table joined by its id column, or .npy with classes (n,), -1 for "
             "unlabeled, or with 0/1 (n, t) for multi-label. Or :NAME, an attribute of the nodes "
             "in the source. Or a word: random:N[:SEED] (N classes drawn for each vertex id)")
    add("--classes", action="store_true",
        help="the numbers among the labels are classes, although they look like values to "
             "predict: most occur once or twice, or they have a decimal point")
    add("--add-vertices", action="store_true",
        help="a file without ids may have more rows than the edges have vertices: the last rows "
             "are those of vertices without edges")
    add("--ids", metavar="FILE[:COLUMN]",
        help="ids of the rows of files without ids: text with one id per line, .npy, or a table")

    # columns of these tables
    add("--id-column", metavar="NAME",
        help="id column of the tables. none: rows are in the order of the vertices")
    add("--label-column", metavar="NAME",
        help="label column in the table of --labels. Several columns of 0 and 1, such as a,b or "
             "'is_*', are multi-label")
    add("--feature-columns", metavar="NAME,...", type=lambda text: tuple(text.split(",")),
        help="feature columns in the table of --features, such as age,'f*' (default: all except "
             "ids, labels and split)")


def graph_flags(command):
    """Add the flags that change the edges, features and vertices after reading."""
    add = command.heading("changes to edges").add_argument
    add("--duplicates", choices=["merge", "sum", "sum-edges"],
        help="result of an edge that is listed several times. merge: one edge; its weights are "
             "added unless all are 1. sum: weights are added, as in PyG. sum-edges: the same, but "
             "of several self loops only the last counts, as in PyG's GCNConv (default: merge)")
    add("--symmetrize", action="store_true", help="make the graph undirected: max(A, A^T)")
    add("--unweighted", action="store_true", help="set all edge weights to 1")
    add("--reverse", action="store_true", help="reverse all edges: A^T instead of A")
    add("--strict", action="store_true",
        help="refuse duplicate edges, self loops, and an asymmetric matrix that claims symmetry")

    # split
    add = command.heading("split").add_argument
    add("--split", metavar="SPLIT",
        help="train, validation and test vertices. file: as in the source. planetoid. "
             "random:60/20/20[:SEED]: percent. per-class:20/30[:SEED]: number to train and to "
             "validate in each class, the rest to test. all: every labelled vertex in all three, "
             "for runs that measure time; accuracies are then of vertices trained on. "
             "FILE[:COLUMN]: lists of ids (text, JSON, .npz), masks, or a table with the words "
             "train, val, test or the numbers 0, 1, 2")
    integers(command.heading("split"), (
        "num-splits", 1, "number of splits to draw, with random or per-class. Split i is drawn "
        "with SEED + i; `hpgcn train --split-index i` uses it"))

    # features and vertices
    add = command.heading("changes to features and vertices").add_argument
    add("--row-normalize", action=argparse.BooleanOptionalAction, default=None,
        help="scale each row of features to sum 1 (default: on for planetoid, else off)")
    add("--largest-component", action="store_true",
        help="keep only the vertices of the largest weakly connected component")
    vertex_order(add)


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
    add("-k", type=int, required=True, metavar="K", help="number of parts, one for each rank")
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
    add("--no-refine", action="store_true", help="skip the improvement of the first parts found")

    # arguments of Algorithm 3 of demirci-2022
    add = command.heading("method stochastic").add_argument
    add("--batch", metavar="BATCH",
        help="mini-batches whose traffic is minimized, as in `hpgcn train --batch`: vertices:B, "
             "parts:Q:K (Q of K parts) or neighbours:K:B (K neighbors of each of B rows; default: "
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
    weight.add_argument("--w0", type=int, default=0, metavar="N",
                        help="weight of a row in addition to its nonzeros (default: 0)")
    weight.add_argument("--widths", metavar="N,N",
                        help="compute --w0 from the dense work of a row for these widths: "
                             "features, hidden layers, classes")
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

"""The flags of the commands that make graph files: convert, generate, partition."""
import argparse

from hpgcn.cli.settings import integers, size

# of hpgcn.graphs.vertex_order.ORDERS, not imported here: it brings SciPy
VERTEX_ORDERS = ("degree", "rcm", "breadth", "communities")


def convert(command):
    add = command.add_argument

    # input and output
    add("source", help="a file, a folder with the files of one set, or the word digits or karate")
    add("out", help="graph to write (.h5)")
    add("--format", default="auto", help="of the source (default: auto, by its name)",
        choices=["auto", "planetoid", "ogb", "graphsaint", "reddit", "geomgcn", "linqs",
                 "dglcsv", "npz", "mtx", "snap", "csv", "parquet", "pt", "mat", "metis",
                 "graphml", "gexf", "gml", "pajek", "adjlist", "json"])

    edge_flags(add)
    table_flags(add)
    graph_flags(command)
    add("--memory", type=size, metavar="BYTES",
        help="what it may hold; larger edge lists are sorted on disk (default: 80%% of what is "
             "free)")
    add("--compress", default="none", choices=["none", "gzip"],
        help="gzip: a smaller file that takes longer to read (default: none)")
    add("--overwrite", action="store_true", help="replace an existing graph")


def edge_flags(add):
    """Add the flags that say how an edge list is read."""
    add("--columns", metavar="NAMES",
        help="what each column of an edge list is, whatever its header says: source,target (row "
             "target aggregates source) or u,v (row u aggregates v), w (weights), - (not read); "
             "such as u,v,-,w")
    add("--weights", metavar="NAME",
        help="column, attribute or array of edges that has their weights (default: the one that "
             "is called a weight)")
    add("--header", action=argparse.BooleanOptionalAction, default=None,
        help="the first line of text has the names of the columns, or is data; of tables where "
             "that is in doubt (default: by its words)")

    # vertices
    add("--base", type=int, choices=[0, 1],
        help="id of the first vertex of an edge list (default: 0; 1 under KONECT's header)")
    add("--num-nodes", type=int, metavar="N",
        help="vertices of an edge list: ids are 0..N-1 (1..N with --base 1), with or without edges "
             "(default: by the ids)")
    add("--compact", action="store_true",
        help="number only the ids that are in an edge, in increasing order; they are kept")
    add("--bipartite", action="store_true",
        help="the ids of the two columns are of two kinds, such as users and items: number those "
             "of the second after those of the first, and read edges in both directions")


def table_flags(add):
    """Add the flags of files of features and labels, and of their ids."""
    # features and labels
    add("--features", metavar="FILE",
        help="a table (text, Parquet, JSON) with a column of ids, joined by these; .npy, .npz, "
             ".json (lists of numbers), LibSVM; or the word identity (a column for each vertex) or "
             "degree (log(1 + d) of row sum and column sum)")
    add("--labels", metavar="FILE[:COLUMN]",
        help="a table with a column of ids, joined by these; .npy: classes (n,), -1 unlabeled, "
             "or 0/1 (n, t)")
    add("--ids", metavar="FILE[:COLUMN]",
        help="id of each row of files without ids: a text with an id a line, .npy, or a table")

    # columns of these tables
    add("--id-column", metavar="NAME",
        help="column of ids in tables; none: rows are in the order of the vertices")
    add("--label-column", metavar="NAME",
        help="column of labels in the table of --labels; several of 0 and 1 (a,b or 'is_*') are "
             "multi-label")
    add("--feature-columns", metavar="NAME,...", type=lambda text: tuple(text.split(",")),
        help="columns of features in the table of --features, such as age,'f*' (default: all but "
             "ids, labels and split)")


def graph_flags(command):
    """Add the flags that change the edges, the features and the vertices that were read."""
    add = command.add_argument

    # edges
    add("--duplicates", choices=["merge", "sum", "sum-edges"],
        help="an edge that is listed several times: merge (weights are summed, but if all are 1 it "
             "is one edge), sum (each counts, as in PyG), sum-edges (of the loops of a vertex the "
             "last alone, as in PyG's GCNConv); default: merge")
    add("--symmetrize", action="store_true", help="take max(A, A^T)")
    add("--unweighted", action="store_true", help="set all edge weights to 1")
    add("--reverse", action="store_true", help="row and column of every entry change places")
    add("--strict", action="store_true", help="refuse duplicates, self loops and false symmetry")

    # features, labels and vertices
    add("--row-normalize", action=argparse.BooleanOptionalAction, default=None,
        help="scale each feature row to sum 1 (default: for planetoid only)")
    add("--split", metavar="SPLIT",
        help="file, planetoid, random:60/20/20[:SEED] (percent), per-class:20/30[:SEED] (to "
             "train and to validate, all others to test), or FILE[:COLUMN]: .npz of masks or ids, "
             "JSON lists of ids, or a table with the words train, val, test")
    integers(command, ("num-splits", 1, "splits to draw, random or per-class; number i has SEED + "
                       "i, and train --split-index i takes it"))
    add("--largest-component", action="store_true",
        help="leave out vertices outside the largest weakly connected component")
    vertex_order(command)


def generate(command):
    add = command.add_argument

    # what is generated, and its size
    add("kind", choices=["rmat", "sbm", "grid", "bter"],
        help="rmat: few vertices have most edges; sbm: classes are communities; grid: two "
             "dimensions; bter: degrees and clustering by degree as asked for")
    add("out", help=".h5, or .txt for an edge list")
    add("--scale", type=int, metavar="N", help="2^SCALE vertices, 16 unless given; not of bter")
    add("--edge-factor", type=int, metavar="N",
        help="undirected edges per vertex, 16 unless given; not of bter")

    # degrees of bter
    add("--degrees", metavar="FILE", help="of bter: lines `degree count [clustering]`")
    add("--like", metavar="GRAPH",
        help="of bter: take degrees and clustering from a graph (.h5), its edges in both "
             "directions")
    add("--scale-edges", type=float, metavar="X",
        help="of bter: the degree of every vertex times X, so the same vertices with X times as "
             "many edges")
    add("--scale-vertices", type=float, metavar="X",
        help="of bter: X times as many vertices of each degree")

    # features, labels and order
    integers(command, ("features", 64, "width"), ("classes", 8, "labels"),
             ("seed", 0, "keys all draws"))
    add("--separation", type=float, default=2.0, metavar="X",
        help="distance of the mean features of a class from 0, beside noise of 1 in each feature "
             "(default: 2.0)")
    vertex_order(command)

    # memory and output
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

    # input and output
    add("graph", help="graph (.h5)")
    add("-k", type=int, required=True, metavar="K", help="number of parts")
    add("-o", "--out", metavar="FILE",
        help="default: GRAPH.pK.h5; a name that ends in .npy, .txt or .part.K takes the part of "
             "each vertex alone")

    # method
    add("--method", default="hypergraph", metavar="METHOD",
        help="of rows: hypergraph, graph, stochastic, random, block; of nonzeros, for strategy "
             "vertex-cut: cover, medium-grain, fine-grain, vertex-cut, expansion (default: "
             "hypergraph)")
    add("--engine", metavar="ENGINE",
        help="mtkahypar or kahypar (default: mtkahypar), of graph metis; vertex-cut and "
             "expansion take none")
    add("--epsilon", type=float, metavar="SHARE",
        help="imbalance allowed (default: 0.01, of nonzeros 0.05)")

    # balance
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

    # order of the parts and of their vertices
    add("--nested", action="store_true",
        help="number the parts so that 2p and 2p + 1 are part p of half as many, and so on")
    add("--no-refine", action="store_true", help="leave the parts as they were first found")
    add("--no-rcm", action="store_true", help="keep the vertex order inside each part")

    # what is done in place of a new partition
    add("--parts", metavar="FILE", help="take the part of each vertex from FILE (.npy, or text)")
    add("--compare", metavar="METHOD,...",
        help="run several methods, or all, show them side by side and write nothing")
    add("--json", action="store_true", help="print statistics as JSON")
    add("--overwrite", action="store_true", help="replace an existing file")

"""The user's options of a conversion: each is a flag of `hpgcn convert` and a keyword of `read`."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from hpgcn.errors import UsageError

READERS = {  # format -> its module, imported on demand
    "planetoid": "hpgcn.datasets.collections.planetoid",
    "ogb": "hpgcn.datasets.collections.ogb",
    "graphsaint": "hpgcn.datasets.collections.graphsaint",
    "reddit": "hpgcn.datasets.collections.reddit",
    "geomgcn": "hpgcn.datasets.collections.geomgcn",
    "linqs": "hpgcn.datasets.collections.linqs",
    "dglcsv": "hpgcn.datasets.collections.dglcsv",
    "npz": "hpgcn.datasets.readers.npz",
    "mtx": "hpgcn.datasets.readers.matrix_market",
    "snap": "hpgcn.datasets.edges.edge_lists",
    "csv": "hpgcn.datasets.edges.edge_lists",
    "parquet": "hpgcn.datasets.edges.parquet",
    "pt": "hpgcn.datasets.readers.torch_file",
    "mat": "hpgcn.datasets.readers.matlab",
    "metis": "hpgcn.datasets.readers.metis",
    "graphml": "hpgcn.datasets.readers.xml_networks",
    "gexf": "hpgcn.datasets.readers.xml_networks",
    "gml": "hpgcn.datasets.readers.gml_pajek",
    "pajek": "hpgcn.datasets.readers.gml_pajek",
    "adjlist": "hpgcn.datasets.edges.neighbor_lists",
    "json": "hpgcn.datasets.readers.json_graphs",
}
FORMATS = ("auto", *READERS)
MOST_VERTICES = 2**62

# headings of `hpgcn convert --help`
EDGES, TABLES = "edge lists", "features and labels"
CHANGES, SPLITS, LINKS = "changes to edges", "split", "links"
REST = "changes to features and vertices"


def option(heading: str, text: str, default: Any = None, **words: Any) -> Any:
    """Return a dataclass field with its help text; `words` are those of argparse."""
    return field(default=default, metadata={"heading": heading, "help": text, **words})


@dataclass(frozen=True)
class ConvertOptions:
    """Options of a conversion; a default leaves the choice to the file.

    `features`, `labels` and `ids` may also be path-like.
    """

    # options of edges
    columns: str | None = option(
        EDGES, "meaning of each column of an edge list, such as u,v,-,w. source,target: row target "
        "aggregates row source. u,v: row u aggregates row v. w: weight. -: skip the column",
        metavar="NAMES")
    weights: str | None = option(
        EDGES, "column, attribute or array with the edge weights (default: the one called weight "
        "or similar)", metavar="NAME")
    matrix: str | None = option(
        EDGES, "array that is the adjacency, in .mat and .npz files of several matrices (default: "
        "the one called A, adj, network or similar)", metavar="NAME")
    edge_features: str | None = option(
        EDGES, "features of the edges: columns of the edge list, such as dist,'t*'; an array of "
        ".pt or .npz, such as edge_attr; or a file with a row for each edge in the order of the "
        "input, such as edge-feat.csv.gz", metavar="NAMES|FILE")
    header: bool | None = option(
        EDGES, "the first line of an edge list or table has column names (--no-header: data) "
        "(default: by the words in it)")
    base: int | None = option(
        EDGES, "id of the first vertex in a list or an array of edges (default: 0; 1 below a "
        "header of KONECT)", type=int, choices=[0, 1])
    num_nodes: int | None = option(
        EDGES, "number of vertices of an edge list, with or without edges. Ids are 0..N-1, or 1..N "
        "with --base 1 (default: by the ids in the list)", type=int, metavar="N")
    compact: bool = option(
        EDGES, "leave out vertices without edges: number the others from 0 and keep their ids",
        False)
    bipartite: bool = option(
        EDGES, "the two columns have ids of different kinds, such as users and items. Vertices of "
        "the second column are numbered after those of the first. Edges are read in both "
        "directions", False)

    # options of features and labels
    features: str | None = option(
        TABLES, "features: a table (text, Parquet, JSON) joined by its id column, or .npy, .npz, "
        ".json (lists of numbers), LibSVM. Or a word: identity (one column per vertex), degree "
        "(log(1 + d) of row sum and column sum) or random:N[:SEED] (N columns drawn for each "
        "vertex id, to measure time). Or :NAME,..., attributes of the nodes in the source",
        metavar="FILE")
    labels: str | None = option(
        TABLES, "labels: a table joined by its id column, or .npy with classes (n,), -1 for "
        "unlabeled, or with 0/1 (n, t) for multi-label. Or :NAME, an attribute of the nodes in the "
        "source. Or a word: random:N[:SEED] (N classes drawn for each vertex id)",
        metavar="FILE[:COLUMN]")
    targets: str | None = option(
        TABLES, "values to predict, in place of labels: a table joined by its id column, or .npy "
        "(n,) or (n, t). An empty cell or NaN is unknown. Or only COLUMNS, such as price,'t*', of "
        "the table of --features, or arrays of a source .npz or .pt, such as y. Or :NAME,..., "
        "attributes of the nodes in the source", metavar="FILE[:COLUMNS]|COLUMNS")
    classes: bool = option(
        TABLES, "the numbers among the labels are classes, although they look like values to "
        "predict: most occur once or twice, or they have a decimal point", False)
    add_vertices: bool = option(
        TABLES, "a file without ids may have more rows than the edges have vertices: the last rows "
        "are those of vertices without edges", False)
    ids: str | None = option(
        TABLES, "ids of the rows of files without ids: text with one id per line, .npy, or a table",
        metavar="FILE[:COLUMN]")
    id_column: str | None = option(
        TABLES, "id column of the tables. none: rows are in the order of the vertices",
        metavar="NAME")
    label_column: str | None = option(
        TABLES, "label column in the table of --labels. Several columns of 0 and 1, such as a,b or "
        "'is_*', are multi-label", metavar="NAME")
    feature_columns: tuple[str, ...] | None = option(
        TABLES, "feature columns in the table of --features, such as age,'f*' (default: all except "
        "ids, labels and split)", metavar="NAME,...", type=lambda text: tuple(text.split(",")))

    # options that change edges, splits and vertices
    duplicates: str | None = option(
        CHANGES, "result of an edge that is listed several times. merge: one edge; its weights are "
        "added unless all are 1. sum: weights are added, as in PyG. sum-edges: the same, but of "
        "several self loops only the last counts, as in PyG's GCNConv (default: merge)",
        choices=["merge", "sum", "sum-edges"])
    symmetrize: bool = option(CHANGES, "make the graph undirected: max(A, A^T)", False)
    unweighted: bool = option(CHANGES, "set all edge weights to 1", False)
    reverse: bool = option(CHANGES, "reverse all edges: A^T instead of A", False)
    strict: bool = option(
        CHANGES, "refuse duplicate edges, self loops, and an asymmetric matrix that claims "
        "symmetry", False)
    split: str | None = option(
        SPLITS, "train, validation and test vertices. file: as in the source. planetoid. "
        "random:60/20/20[:SEED]: percent. per-class:20/30[:SEED]: number to train and to validate "
        "in each class, the rest to test. all: every labeled vertex in all three, for runs that "
        "measure time; accuracies are then of vertices trained on. FILE[:COLUMN]: lists of ids "
        "(text, JSON, .npz), masks, or a table with the words train, val, test or the numbers 0, "
        "1, 2", metavar="SPLIT")
    num_splits: int = option(
        SPLITS, "number of splits to draw, with random or per-class. Split i is drawn with SEED + "
        "i; `hpgcn train --split-index i` uses it (default: 1)", 1, type=int, metavar="N")
    links: tuple[str, ...] | None = option(
        LINKS, "links to predict. 80/10/10[:SEED]: percent of the edges to train, validate and "
        "test; the graph keeps those to train. SET=FILE: pairs of ids, with 1 and 0 in a column "
        "called label if some are no links; SET is train, val or test, and the flag is given for "
        "each (default for train: the edges of the graph)", metavar="LINKS", action="append")
    allow_leakage: bool = option(
        LINKS, "links of validation and test may be edges of the graph", False)
    allow_isolated: bool = option(
        LINKS, "a vertex may lose its last edge to validation or test", False)
    row_normalize: bool | None = option(
        REST, "scale each row of features to sum 1 (default: on for planetoid, else off)")
    largest_component: bool = option(
        REST, "keep only the vertices of the largest weakly connected component", False)

    @property
    def asked_weights(self) -> str | bool | None:
        """The name of the edge attribute of weights; None: choose by name, False: weights of 1."""
        return False if self.unweighted else self.weights

    @property
    def edge_feature_names(self) -> tuple[str, ...]:
        """Names of columns with features of edges, or patterns; () if a file has them."""
        choice = self.edge_features
        return () if choice is None or os.path.isfile(choice) else tuple(str(choice).split(","))

    @property
    def target_arrays(self) -> tuple[str, ...]:
        """Names in --targets that may be arrays of the source; () if it names a file."""
        text = os.fspath(self.targets or "")
        named = text and text[0] != ":" and not any(
            os.path.exists(path) for path in (text, text.rpartition(":")[0]) if path)
        return tuple(text.split(",")) if named else ()

    def flags(self, *names: str) -> list[str]:
        """Return the flags among these fields that the user gave, as typed in a shell."""
        return ["--" + each.name.replace("_", "-") for each in fields(self)
                if each.name in names and getattr(self, each.name) != each.default]

    def check(self) -> None:
        """Raise UsageError for a value out of range, or flags that exclude each other."""
        # refuse wrong values
        if self.base not in (None, 0, 1):
            raise UsageError(f"--base {self.base}: expected 0 or 1")
        n = self.num_nodes
        if n is not None and not (isinstance(n, int) and 1 <= n < MOST_VERTICES):
            raise UsageError(f"--num-nodes {n}: expected a number of vertices, 1 or more")

        # refuse options that contradict each other
        if self.weights is not None and self.unweighted:
            raise UsageError(f"--weights {self.weights}: excludes --unweighted, which sets all "
                             "weights to 1")
        for one, other in (("columns", "weights"), ("num_nodes", "bipartite"),
                           ("num_nodes", "compact"), ("edge_features", "largest_component"),
                           ("labels", "targets"), ("links", "largest_component")):
            if getattr(self, one) and getattr(self, other):
                one, other = (f"--{name.replace('_', '-')}" for name in (one, other))
                raise UsageError(f"{one} and {other}: expected only one of them")

    def refuse_for_names(self, where: object) -> None:
        """Raise UsageError for flags on numeric ids, because the ids of `where` are names."""
        if self.base:
            raise UsageError(f"--base {self.base}: the ids of {where} are names, not numbers")
        if self.num_nodes is not None:
            raise UsageError(f"--num-nodes {self.num_nodes}: the ids of {where} are names, so "
                             "vertices without edges cannot be added")

"""Small random graphs for tests, with difficult cases such as loops and isolated vertices."""
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.graph import Graph
from hpgcn.graphs.links import LinkSet
from hpgcn.graphs.validation import SPLIT
from hpgcn.parallel.layout import split
from hpgcn.partition import Partition

IDS = [f"v{k}" for k in range(11)] + ["a,b"]  # ids of the vertices of `cliques`


def make(n=203, f=13, c=5, *, directed=False, weighted=False, sparse=False, seed=0, degree=8,
         train=None):
    """Return a random graph with difficult cases.

    There are loops, isolated vertices, empty rows and columns of features, unknown
    labels, and an odd width. `train` is the number of training vertices; three quarters
    of it validate. Without `train` nearly all vertices are in a mask.
    """
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=min(1, degree / n), rng=rng, format="lil")
    A[n // 2, :] = A[:, n // 2] = 0  # isolated
    A[1, 1] = 1  # a loop of its own
    A = A.tocsr()
    A.eliminate_zeros()
    A.data[:] = rng.integers(1, 5, A.nnz) / 2 if weighted else 1
    X = rng.standard_normal((n, f)).astype(np.float32)
    X[rng.random((n, f)) < 0.6] = 0
    X[3], X[:, 2] = 0, 0
    y = rng.integers(0, c, n)
    order = rng.permutation(n)
    cut = train or n // 3
    share = -(-cut * 3 // 4) if train else n // 4
    masks = order[:cut], order[cut:cut + share], order[cut + share:n - 3]
    if train:
        masks = masks[0], masks[1], []
    y[order[n - 3:]] = -1
    return Graph.from_scipy(A, sp.csr_array(X) if sparse else X, y, masks, symmetrize=not directed,
                            name="made", classes=True)


def with_edges(columns=3, **kind):
    """Return the graph of `make` with random edge features, which differ by direction."""
    graph = make(**kind)
    features = np.random.default_rng(8).standard_normal((graph.indices.size, columns))
    return Graph.from_scipy(graph.adjacency, graph.features, graph.labels, graph.masks,
                            name="made", edge_features=features, classes=True)


def several_labels(graph, labels=4):
    """Return the graph with `labels` random labels (0 or 1) for each vertex."""
    y = (np.random.default_rng(7).random((graph.num_rows, labels)) < 0.4).astype(float)
    return Graph.from_scipy(graph.adjacency, graph.features, y, graph.masks)


def with_targets(graph, targets=2, *, unknown=0.2):
    """Return the graph with values to predict in place of labels, some of them NaN.

    They are smooth sums of the features of neighbors, in different units.
    """
    rng = np.random.default_rng(9)
    A = graph.adjacency + sp.eye_array(graph.num_rows)
    X = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    smooth = (A @ X) / A.sum(axis=1)[:, None]
    y = smooth @ rng.standard_normal((X.shape[1], targets)) * 10.0 ** np.arange(targets) + 50
    y[rng.random(y.shape) < unknown] = np.nan
    return Graph.from_scipy(graph.adjacency, graph.features, masks=graph.masks, targets=y,
                            name="made", target_names=[f"t{k}" for k in range(targets)])


def scattered(graph, comm):
    """Return the graph with a random partition, one part for each rank."""
    part = np.random.default_rng(5).integers(0, comm.size, graph.num_rows)
    partition = Partition.from_parts(part, comm.size)
    return graph.permuted(partition.perm, partition.offsets)


def in_blocks(graph, comm):
    """Return the graph in its order, in equal blocks of rows; the last rank has no row."""
    part = np.arange(graph.num_rows) * max(1, comm.size - 1) // graph.num_rows
    partition = Partition.from_parts(part, comm.size)
    return graph.permuted(partition.perm, partition.offsets)


def dealt(graph, comm):
    """Return the graph of `scattered` with each entry of the adjacency on a random rank."""
    graph = scattered(graph, comm)
    parts = np.random.default_rng(4).integers(0, comm.size, graph.indices.size)
    return replace(graph, edge_parts=parts.astype(np.int32))


def reading_nobody(graph, rows):
    """Return a directed graph whose first `rows` rows have no entries, but are read."""
    A = graph.adjacency.tolil()
    A[:rows] = 0
    return Graph.from_scipy(A.tocsr(), graph.features, graph.labels, graph.masks, symmetrize=False)


def row_blocks(n, parts, kind="uneven"):
    """Return offsets of `parts` row blocks; with "gaps" the first and the last are empty."""
    if kind == "even":
        return split(n, parts)
    if kind == "last":
        return np.array([0] * parts + [n])
    cuts = np.sort(np.random.default_rng(6).integers(0, n + 1, parts - 1))
    if kind == "gaps" and parts > 2:
        cuts[0], cuts[-1] = 0, n
    return np.concatenate([[0], cuts, [n]])


def cliques(names=None, ids=IDS, multilabel=False):
    """Return a graph of three cliques of 4 vertices, one for each class; `names` are those."""
    y = np.arange(12) // 4
    A = sp.csr_array((y[:, None] == y) & ~np.eye(12, dtype=bool))
    masks = {"train": [0, 4, 8, 9], "val": [1, 5], "test": [2, 6, 10]}
    return Graph.from_scipy(A, np.eye(3)[y], np.eye(3)[y] if multilabel else y, masks,
                            class_names=names, original_ids=ids)


def with_links(graph, seed=0, **negatives):
    """Return a graph without some of its edges, and all of them as links.

    `negatives` are arrays of the sets "val" and "test", as in LinkSet.
    """
    A = graph.adjacency.tocoo()
    pairs = np.stack([A.col, A.row], axis=1)[A.row != A.col]  # source, target
    if not graph.header.directed:
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    pairs = np.random.default_rng(seed).permutation(pairs).astype(np.int64)
    cuts = [len(pairs) * 7 // 10, len(pairs) * 8 // 10]
    sets = dict(zip(SPLIT, np.split(pairs, cuts)))
    kept = sp.lil_array(A.shape)
    for source, target in sets["train"]:
        kept[target, source] = 1
    sets |= {key: LinkSet(sets[key], **negatives) for key in ("val", "test") if negatives}
    return Graph.from_scipy(kept.tocsr(), graph.features, graph.labels, name="linked", links=sets,
                            symmetrize=not graph.header.directed, classes=True)

"""Convert graphs from NetworkX (all four classes) and to NetworkX (Graph or DiGraph)."""
from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, require, warn
from hpgcn.graphs.classes import classes_of
from hpgcn.graphs.contents import NAMED
from hpgcn.graphs.edge_weights import attribute_names, join_names, weights_of
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import GraphSource, check_source
from hpgcn.graphs.validation import SPLIT

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike

BY_NAME = "by name"  # the weight attribute is found by its name
LABEL = "label"  # attribute of nodes that `to_networkx` writes


def from_networkx(G: nx.Graph, features: ArrayLike | str | None = None,
                  labels: ArrayLike | str | None = None, *, edge_weight: str | None = BY_NAME,
                  weight: str | None = BY_NAME, name: str = "graph", **options: Any) -> Graph:
    """Make a graph from a `networkx.Graph`; vertex i is `list(G)[i]`.

    Parameters
    ----------
    G : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        An edge without direction goes both ways; the end of a directed one, u -> v,
        aggregates its start: a[v, u]. Parallel edges are duplicates, as those of
        `Graph.from_scipy`. Nodes that are not 0, 1, .. in this order are kept as
        `original_ids`: integers, or else text. Masks are node attributes `train_mask`,
        `val_mask`, `test_mask`, false where a node has none.
    features : array (n, f), dense or sparse, or str, optional
        Row i belongs to `list(G)[i]`. A str names an attribute, which has a number in
        each node, or a list of numbers.
    labels : array (n,) or (n, t), or str, optional
        Likewise. A node without the attribute has no label. Text is read like
        `hpgcn.graphs.classes.parse_classes`: as numbers, or as names of classes in
        sorted order. For numbers in the attribute `label`, names are the graph's
        `class_names`.
    edge_weight : str or None, optional
        The attribute of edges that has their weights, 1 for an edge without it. By
        default the one that is called a weight, as `weight`, `Weight` and `value` are.
        None: all are 1.
    weight : str or None, optional
        The same, as NetworkX calls it.
    name, **options
        As of `Graph.from_scipy`.

    Raises
    ------
    DataError
        No graph of NetworkX, attributes that are no numbers, several that are called a
        weight, nodes that have the same text, and whatever `Graph.from_scipy` refuses.

    Warns
    -----
    DataWarning
        Attributes of edges or of nodes that are not read; edges without a weight among
        others that have one.

    Examples
    --------
    >>> import networkx
    >>> graph = hpgcn.from_networkx(networkx.path_graph(3))
    >>> graph.header.num_nodes, graph.indices
    (3, array([1, 0, 2, 1], dtype=int32))
    """
    # refuse other objects
    if not all(hasattr(G, method) for method in ("is_directed", "edges", "nodes")):
        raise DataError(f"{name}: a {type(G).__name__}, expected a graph of NetworkX")
    nodes = list(G)

    # read the edges and their weights
    choice = weight if edge_weight is BY_NAME else edge_weight
    choice = {BY_NAME: None, None: False}.get(choice, choice)
    (u, v, w), notes = edge_arrays(G, choice, name, 'edge_weight="{}"'.format)
    notes = [] if choice is False else notes  # edge_weight=None sets all weights to 1

    # name the attributes that are not read
    read = {features if isinstance(features, str) else None,
            labels if isinstance(labels, str) else None, *(f"{key}_mask" for key in SPLIT)}
    if others := [key for key in attribute_names(G.nodes(data=True)) if key not in read]:
        notes.append(f"attributes of nodes are not read: {join_names(others)}")
    for note in notes:
        warn(f"{name}: {note}")

    # row v of the adjacency holds the edges into vertex v
    A = sp.coo_array((w, (v, u)), shape=(len(nodes), len(nodes)))

    feature_names = None
    if isinstance(features, str):
        feature_names = G.graph.get("feature_names") if features == "features" else None
        features = _attribute(G, features, name)
    class_names = None
    if isinstance(labels, str):
        labels, class_names = _labels(G, labels, name, options.get("classes", False))
    found = {"masks": _masks(G, name), "original_ids": node_ids(nodes, name),
             "class_names": class_names, "feature_names": feature_names}
    return Graph.from_scipy(A, features, labels, name=name, **(found | options))


def to_networkx(graph: GraphSource) -> nx.Graph:
    """Return the whole graph, in its ORIGINAL order, as a `networkx.Graph`, or DiGraph if directed.

    Nodes are `original_ids`, else 0..n-1. Edges have `weight` unless all are 1. Nodes
    have, if the graph has them, `features` (a dense row), `label` or `targets`,
    `train_mask`, `val_mask` and `test_mask`. The graph has `class_names`, `feature_names` and
    `target_names`, lists.
    MissingError without NetworkX; DataError where only some rows are held, or ids repeat.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> hpgcn.to_networkx(graph).edges
    EdgeView([(0, 1)])
    """
    networkx = require("networkx", "io", "hpgcn.to_networkx")

    # the nodes
    graph = check_source(graph).in_original_order()
    ids = graph.original_ids
    nodes = list(range(graph.num_rows)) if ids is None else ids.tolist()
    if len(set(nodes)) < len(nodes):
        raise DataError(f"{graph.header.name}: original_ids repeat, so nodes would be lost")
    G = networkx.DiGraph() if graph.header.directed else networkx.Graph()
    G.graph |= {field: list(names) for field in NAMED if (names := getattr(graph, field))}
    G.add_nodes_from(nodes)

    # the edges: column u of the adjacency is the start, row v the end
    v, u = graph.adjacency.nonzero()
    ends = [nodes[k] for k in u.tolist()], [nodes[k] for k in v.tolist()]
    if graph.data is None:
        G.add_edges_from(zip(*ends))
    else:
        G.add_weighted_edges_from(zip(*ends, graph.data.tolist()))

    # the attributes of nodes
    X = graph.features
    rows = {LABEL: graph.labels, "targets": graph.targets}
    rows |= {f"{key}_mask": mask for key, mask in (graph.masks or {}).items()}
    for k, node in enumerate(nodes):
        attributes = G.nodes[node]
        if X is not None:
            attributes["features"] = X[[k]].toarray()[0] if sp.issparse(X) else X[k]
        for key, array in rows.items():
            if array is not None:
                attributes[key] = array[k].tolist()
    return G


def edge_arrays(G: nx.Graph, choice: str | bool | None, name: str,
                option: Callable) -> tuple[tuple, list[str]]:
    """Return the edges of a graph as arrays, and notes for the user.

    An undirected edge is in both directions.

    Parameters
    ----------
    G : networkx.Graph
    choice : str, None or False
        The attribute that has the weights; None: the one that is called a weight;
        False: none.
    name : str
        The input, for errors.
    option : callable
        Returns how a user names an attribute, such as "--weights NAME".

    Returns
    -------
    ((e,) int64, (e,) int64, (e,) float64), list of str
        Starts and ends of edges as places in `list(G)`, and their weights.
    """
    # number the nodes
    number = {node: k for k, node in enumerate(G)}
    edges = list(G.edges(data=True))
    w, _, notes = weights_of(edges, choice, name, option)
    u, v = (np.array([number[edge[end]] for edge in edges], np.int64) for end in range(2))

    # give each edge without direction a second one
    if not G.is_directed():
        off = u != v
        u, v, w = (np.concatenate(pair) for pair in ((u, v[off]), (v, u[off]), (w, w[off])))
    return (u, v, w), notes


def node_ids(nodes: list, name: str = "graph") -> np.ndarray | None:
    """Return the names of nodes as ids, (n,) int64 or text; None if they are 0, 1, .."""
    whole = all(isinstance(node, numbers.Integral) and not isinstance(node, bool)
                and -2**63 <= node < 2**63 for node in nodes)
    if whole:
        ids = np.array(nodes, np.int64)
        return None if np.array_equal(ids, np.arange(ids.size)) else ids
    texts = [str(node) for node in nodes]
    seen = {}
    for node, text in zip(nodes, texts):
        if text in seen:
            raise DataError(f"{name}: nodes {seen[text]!r} and {node!r} are the same as text, and "
                            "names are stored as text: rename one")
        seen[text] = node
    return np.array(texts, np.str_)


def _attribute(G: nx.Graph, key: str, name: str) -> np.ndarray:
    """Return a node attribute as an array with a row for each node."""
    rows = []
    for node, value in G.nodes(data=key):
        row = None if value is None or isinstance(value, str) else np.atleast_1d(value)
        if row is None or row.ndim != 1 or row.dtype.kind not in "fiub":
            shown = "missing" if value is None else "no number or list of numbers"
            raise DataError(f"{name}: node {node!r}: attribute {key} is {shown}")
        if rows and row.size != rows[0].size:
            raise DataError(f"{name}: node {node!r}: attribute {key} has {row.size} numbers, but "
                            f"other nodes have {rows[0].size}")
        rows.append(row)
    return np.array(rows)


def _labels(G: nx.Graph, key: str, name: str, numbers_are_classes: bool) -> tuple:
    """Return the labels in a node attribute, (n,) or (n, t), and the names of classes."""
    values = [value for _, value in G.nodes(data=key)]
    nodes = list(G)
    known = [value for value in values if value is not None]
    if not known:
        raise DataError(f"{name}: no node has an attribute {key}")

    # text names classes
    if all(isinstance(value, str) for value in known):
        return classes_of([value or "" for value in values], f"{name}: attribute {key}",
                          lambda row: f"node {nodes[row]!r}", classes=numbers_are_classes)

    # numbers are classes; lists of numbers are multi-label
    class_names = G.graph.get("class_names") if key == LABEL else None
    if np.ndim(known[0]):
        return _attribute(G, key, name), class_names

    for node, value in G.nodes(data=key):
        if value is not None and not isinstance(value, (numbers.Real, np.bool_)):
            raise DataError(f"{name}: node {node!r}: attribute {key} is {value!r}, expected a "
                            "number, or text in all nodes")
    return np.array([-1 if value is None else value for value in values]), class_names


def _masks(G: nx.Graph, name: str) -> dict[str, np.ndarray] | None:
    """Return the masks that node attributes contain; None without masks."""
    masks = {}
    for key in SPLIT:
        values = dict(G.nodes(data=f"{key}_mask"))
        given = next((value for value in values.values() if value is not None), None)
        if given is None:
            continue
        none = np.zeros(np.shape(given), bool)
        for node, value in values.items():
            if value is not None and not np.isin(value, (0, 1)).all():
                raise DataError(f"{name}: node {node!r}: attribute {key}_mask is {value!r}, "
                                "expected true or false")
        masks[key] = np.array([none if value is None else value for value in values.values()], bool)
    return masks or None

"""Convert graphs from and to DGL: homogeneous DGLGraph."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, require, warn
from hpgcn.graphs.edge_weights import join_names
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import GraphSource, check_source
from hpgcn.graphs.validation import SPLIT
from hpgcn.interop.pyg import edges
from hpgcn.interop.tensors import first_of, masks_of, to_array, weights_of

if TYPE_CHECKING:
    import dgl

FEATURES = ("feat", "features", "x", "attr")  # names of the arrays of vertices
LABELS = ("label", "labels", "y")


def from_dgl(g: dgl.DGLGraph, **options: Any) -> Graph:
    """Make a graph from a homogeneous `dgl.DGLGraph`.

    Parameters
    ----------
    g : DGLGraph
        The end of an edge aggregates its start. Of its `ndata` the first of `feat`,
        `features`, `x`, `attr` are features, of `label`, `labels`, `y` labels;
        `train_mask`, `val_mask` and `test_mask` are (n,) or (n, s). `original_ids` is
        kept. The array of its `edata` that is called a weight, as `weight`, `w` and
        `edge_weight` are, has the weights. A DataWarning names arrays that are not
        read. The graph may lie on a GPU.
    **options
        As of `Graph.from_edge_index`; `features`, `labels` and `masks` replace those of the graph.
        `edge_weight` is an array (e,), or the name of an array of `edata`, or None: all weights
        are 1. `edge_features`, (e, d), is an array or such a name.

    Raises
    ------
    DataError
        Several types of vertices or edges, a block, several arrays that are called a
        weight, and whatever `Graph.from_edge_index` refuses.

    Examples
    --------
    >>> import dgl
    >>> graph = hpgcn.from_dgl(dgl.graph(([0, 1], [1, 0])))
    >>> graph.header.num_nodes, graph.indices
    (2, array([1, 0], dtype=int32))
    """
    name = options.setdefault("name", "graph")

    # refuse other objects and graphs of several types
    if getattr(g, "is_block", False):
        raise DataError(f"{name}: a DGL block, expected a graph: dgl.block_to_graph(g) converts it")
    if not getattr(g, "is_homogeneous", True):
        raise DataError(f"{name}: a DGL graph with {len(g.ntypes)} types of vertices and "
                        f"{len(g.etypes)} of edges, expected one of each: dgl.to_homogeneous(g, "
                        "ndata=['feat', 'label']) converts it, g[TYPE] selects one type")
    if not hasattr(g, "ndata"):
        raise DataError(f"{name}: a {type(g).__name__}, expected a dgl.DGLGraph (from a data set: "
                        "dataset[0])")

    # take the edges and the known arrays; options replace them
    source, target = _ends(g)
    found = {"features": first_of(g.ndata.get, FEATURES), "labels": first_of(g.ndata.get, LABELS),
             "masks": masks_of(g.ndata.get), "num_nodes": g.num_nodes(),
             "original_ids": to_array(g.ndata.get("original_ids"))}
    options = found | options

    # choose the weights, and name the arrays that are left out
    weights_of(_user_fields(g.edata), options, len(source), options["num_nodes"])
    read = {next((key for key in keys if key in g.ndata), None) for keys in (FEATURES, LABELS)}
    read |= {"original_ids", *(f"{key}_mask" for key in SPLIT)}
    if others := [key for key in _user_fields(g.ndata) if key not in read]:
        warn(f"{name}: arrays of vertices are not used: {join_names(others)}")
    return Graph.from_edge_index(np.stack([source, target]), **options)


def _ends(g: dgl.DGLGraph) -> list[np.ndarray]:
    """Return the start and the end of each edge of a DGLGraph, by its edge number."""
    allowed = [name for names in g.formats().values() for name in names]
    if "coo" in allowed:
        return [*map(to_array, g.edges(order="eid"))]

    # a graph that is kept in one compressed format refuses to list edges
    kept = "csc" if "csc" in allowed else "csr"
    tensors = g.adj_tensors if hasattr(g, "adj_tensors") else g.adj_sparse  # before DGL 1.1
    indptr, indices, number = map(to_array, tensors(kept))
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    ends = np.empty((2, indices.size), np.int64)
    ends[:, number if number.size else slice(None)] = (
        (indices, rows) if kept == "csc" else (rows, indices))
    return [*ends]


def _user_fields(frame: Any) -> dict[str, Any]:
    """Return the arrays that the user stored in a frame, without those of DGL (`_ID`)."""
    return {key: value for key, value in frame.items() if not key.startswith("_")}


def to_dgl(graph: GraphSource) -> dgl.DGLGraph:
    """Return the whole graph, in its ORIGINAL order, as a `dgl.DGLGraph`.

    `ndata` has these entries, if the graph has them: `feat` (dense, the only form of
    DGL), `label` or `target`, masks, and `original_ids` that are numbers. `edata` has `weight` if
    not all are 1, and `feat`, the edge features. MissingError without DGL; DataError
    where only some rows are held.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> hpgcn.to_dgl(graph).num_edges()
    2
    """
    torch = require("torch", "dgl", "hpgcn.to_dgl")
    dgl = require("dgl", "dgl", "hpgcn.to_dgl")
    graph = check_source(graph).in_original_order()
    source, target, weights, order = edges(graph)

    # the edges and their weights
    g = dgl.graph((torch.from_numpy(source), torch.from_numpy(target)),
                  num_nodes=graph.header.num_nodes)
    if weights is not None:
        g.edata["weight"] = torch.from_numpy(weights)
    if graph.edge_features is not None:
        g.edata["feat"] = torch.from_numpy(graph.edge_features[order])

    # arrays of the vertices, if the graph has them
    X = graph.features
    if X is not None:
        g.ndata["feat"] = torch.tensor(X.toarray() if sp.issparse(X) else X)
    if graph.labels is not None:
        g.ndata["label"] = torch.tensor(graph.labels)
    if graph.targets is not None:
        g.ndata["target"] = torch.tensor(graph.targets)
    for key, mask in (graph.masks or {}).items():
        g.ndata[f"{key}_mask"] = torch.tensor(mask)
    if graph.original_ids is not None and graph.original_ids.dtype.kind != "U":
        g.ndata["original_ids"] = torch.tensor(graph.original_ids)

    return g

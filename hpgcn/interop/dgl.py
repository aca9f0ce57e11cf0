"""Graphs of DGL: a homogeneous DGLGraph in, a DGLGraph out."""
import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, require
from hpgcn.graphs.graph import Graph
from hpgcn.interop.pyg import edges
from hpgcn.interop.tensors import first_of, masks_of, to_array

FEATURES = ("feat", "features", "x", "attr")  # what the arrays of vertices are called
LABELS = ("label", "labels", "y")
WEIGHTS = ("weight", "w", "edge_weight")  # and those of edges


def from_dgl(g, **options):
    """Make a graph of a homogeneous `dgl.DGLGraph`.

    Parameters
    ----------
    g : DGLGraph
        The end of an edge aggregates its start. Of its `ndata` the first of `feat`, `features`,
        `x`, `attr` are features, of `label`, `labels`, `y` labels; `train_mask`, `val_mask` and
        `test_mask` are (n,) or (n, s). Weights are the first of `weight`, `w`, `edge_weight` in its
        `edata`, (e,). `original_ids` is kept. It may lie on a GPU.
    **options
        As of `Graph.from_edge_index`; `features`, `labels`, `masks` and `edge_weight` replace
        those of the graph.

    Raises
    ------
    DataError
        Several types of vertices or edges, a block, and whatever `Graph.from_edge_index` refuses.
    """
    name = options.setdefault("name", "graph")
    if getattr(g, "is_block", False):
        raise DataError(f"{name}: a DGL block, whose ends are different vertices: "
                        "dgl.block_to_graph(g) makes a graph of it")
    if not getattr(g, "is_homogeneous", True):
        raise DataError(f"{name}: a DGL graph of {len(g.ntypes)} types of vertices and "
                        f"{len(g.etypes)} of edges, expected one of each: dgl.to_homogeneous(g, "
                        "ndata=['feat', 'label']) makes one graph of it, g[TYPE] takes one type")
    if not hasattr(g, "ndata"):
        raise DataError(f"{name}: a {type(g).__name__}, expected a dgl.DGLGraph (of a dataset, "
                        "dataset[0])")
    source, target = map(to_array, g.edges(order="eid"))
    found = {"features": first_of(g.ndata.get, FEATURES), "labels": first_of(g.ndata.get, LABELS),
             "masks": masks_of(g.ndata.get), "num_nodes": g.num_nodes(),
             "edge_weight": first_of(g.edata.get, WEIGHTS),
             "original_ids": to_array(g.ndata.get("original_ids"))}
    return Graph.from_edge_index(np.stack([source, target]), **(found | options))


def to_dgl(graph):
    """Return the whole graph, in its ORIGINAL order, as a `dgl.DGLGraph`.

    `ndata` has, where the graph has them, `feat` (dense, which is all that DGL holds), `label`,
    masks, and `original_ids` that are numbers; `edata` has `weight` if not all are 1.
    MissingError without DGL; DataError where only some rows are held.
    """
    torch = require("torch", "dgl", "Graph.to_dgl")
    dgl = require("dgl", "dgl", "Graph.to_dgl")
    graph = graph.in_original_order()
    source, target, weights = edges(graph)
    g = dgl.graph((torch.from_numpy(source), torch.from_numpy(target)),
                  num_nodes=graph.header.num_nodes)
    if weights is not None:
        g.edata["weight"] = torch.from_numpy(weights)
    X = graph.features
    if X is not None:
        g.ndata["feat"] = torch.tensor(X.toarray() if sp.issparse(X) else X)
    if graph.labels is not None:
        g.ndata["label"] = torch.tensor(graph.labels)
    for key, mask in (graph.masks or {}).items():
        g.ndata[f"{key}_mask"] = torch.tensor(mask)
    if graph.original_ids is not None and graph.original_ids.dtype.kind != "U":
        g.ndata["original_ids"] = torch.tensor(graph.original_ids)
    return g

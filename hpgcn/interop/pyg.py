"""Graphs of PyTorch Geometric: `Data` in, `Data` out."""
import warnings

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, require
from hpgcn.graphs.graph import Graph
from hpgcn.interop.tensors import csr_tensor, masks_of, to_array


def from_pyg(data, **options):
    """Make a graph of a `torch_geometric.data.Data`.

    Parameters
    ----------
    data : Data
        `edge_index`, whose targets (row 1) aggregate sources, or `adj_t`, row of a target, as
        ToSparseTensor makes it; `x`, dense or sparse; `y` (n,), -1 for unknown, or (n, t);
        `train_mask`, `val_mask`, `test_mask`, (n,) or (n, s); weights from `edge_weight`, or an
        `edge_attr` of one column: an edge has no other attributes here. `original_ids` is kept,
        and `class_names` beside `y`. Tensors may lie on a GPU; of those that require a gradient
        the values are taken.
    **options
        As of `Graph.from_edge_index`; `features`, `labels` and `masks` replace those of the data.

    Raises
    ------
    DataError
        A heterogeneous graph, no edges, and whatever `Graph.from_edge_index` refuses.
    """
    name = options.setdefault("name", "graph")
    if hasattr(data, "edge_types"):
        raise DataError(f"{name}: a HeteroData, whose vertices or edges are of several types, "
                        "expected one type of each: data.to_homogeneous() makes a Data of it")

    def get(key):
        return getattr(data, key, None)

    edge_index, adj_t = to_array(get("edge_index")), to_array(get("adj_t"))
    if edge_index is None and adj_t is None:
        raise DataError(f"{name}: a {type(data).__name__} without edge_index or adj_t, expected a "
                        "torch_geometric.data.Data (of a dataset, dataset[0])")
    found = {"features": to_array(get("x")), "labels": to_array(get("y")), "masks": masks_of(get),
             "original_ids": _ids(get("original_ids"))}
    if found["labels"] is not None and "labels" not in options:
        found["class_names"] = get("class_names")
    options = found | options
    if edge_index is None:
        if not sp.issparse(adj_t):
            raise DataError(f"{name}: adj_t is a {type(get('adj_t')).__name__}, expected a sparse "
                            "tensor (n, n)")
        X, y = options.pop("features"), options.pop("labels")
        return Graph.from_scipy(adj_t, X, y, options.pop("masks"), **_without_none(options))
    if "edge_weight" not in options:
        options["edge_weight"] = to_array(get("edge_weight"))
    attributes = to_array(get("edge_attr"))
    if options["edge_weight"] is None and np.shape(attributes)[1:] in ((), (1,)):
        options["edge_weight"] = attributes
    with warnings.catch_warnings(action="ignore"):  # where PyG infers it from edge_index
        options.setdefault("num_nodes", get("num_nodes"))
    return Graph.from_edge_index(edge_index, **_without_none(options))


def to_pyg(graph):
    """Return the whole graph, in its ORIGINAL order, as a `torch_geometric.data.Data`.

    It has `edge_index`, sorted and without duplicates, `num_nodes` and, where the graph has them,
    `edge_weight` (if not all are 1), `x` (sparse features as a sparse CSR tensor), `y`, masks,
    `original_ids` (of names a list) and `class_names`, a list. MissingError without PyG; DataError
    where only some rows are held.
    """
    torch = require("torch", "pyg", "Graph.to_pyg")
    Data = require("torch_geometric.data", "pyg", "Graph.to_pyg").Data
    graph = graph.in_original_order()
    source, target, weights = edges(graph)
    data = Data(edge_index=torch.from_numpy(np.stack([source, target])),
                num_nodes=graph.header.num_nodes)
    if weights is not None:
        data.edge_weight = torch.from_numpy(weights)
    X = graph.features
    if sp.issparse(X):
        data.x = csr_tensor(torch, X, torch.tensor(X.data))
    elif X is not None:
        data.x = torch.tensor(X)
    if graph.labels is not None:
        data.y = torch.tensor(graph.labels)
    for key, mask in (graph.masks or {}).items():
        data[f"{key}_mask"] = torch.tensor(mask)
    ids = graph.original_ids
    if ids is not None:
        data.original_ids = ids.tolist() if ids.dtype.kind == "U" else torch.tensor(ids)
    if graph.class_names is not None:
        data.class_names = list(graph.class_names)
    return data


def edges(graph):
    """Return sources and targets, two (e,) int64 sorted by the source, and weights or None."""
    A = sp.csr_array(graph.adjacency.T)  # row u: those who aggregate u
    A.sort_indices()
    source = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return source, A.indices.astype(np.int64), None if graph.data is None else A.data


def _ids(ids):
    ids = to_array(ids)
    return ids if ids is None else np.asarray(ids)


def _without_none(options):
    return {key: value for key, value in options.items() if value is not None}

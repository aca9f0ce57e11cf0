"""Convert graphs from and to PyTorch Geometric: `Data`."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, UsageError, require
from hpgcn.graphs.contents import NAMED
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.graph_source import GraphSource, check_source
from hpgcn.graphs.validation import SPLIT
from hpgcn.interop.link_splits import LABELED, RELATIONS, is_link_split, links_of_split
from hpgcn.interop.tensors import csr_tensor, masks_of, to_array, weights_of

if TYPE_CHECKING:
    from torch_geometric.data import Data

Y = {"classification": "labels", "regression": "targets"}  # what y is, by task
READ = ("edge_index", "adj_t", "x", "y", "num_nodes", "original_ids", "class_names",
        "feature_names", "target_names", "batch", "ptr", *(f"{key}_mask" for key in SPLIT))


def from_pyg(data: Data | Sequence[Data], *, task: str = "classification", **options: Any) -> Graph:
    """Make a graph from a `torch_geometric.data.Data`.

    Parameters
    ----------
    data : Data
        `edge_index`, whose targets (row 1) aggregate sources, or `adj_t`, row of a
        target, as ToSparseTensor makes it; `x`, dense or sparse; `y` (n,), -1 for
        unknown, or (n, t); `train_mask`, `val_mask`, `test_mask`, (n,) or (n, s);
        `original_ids`; `class_names` beside `y`, `feature_names` beside `x`. The tensor
        of the edges that is called a weight, as `edge_weight` is, has their weights. A
        DataWarning names other tensors, such as `edge_attr`, which are not read. Tensors
        may lie on a GPU; of those that require a gradient the values are taken. Or the
        three Data that RandomLinkSplit returns: the edges are those of the first, and the
        pairs of all become `links`.
    task : "classification" or "regression"
        Whether `y` are labels, or targets (values to predict) called `target_names`.
    **options
        As of `Graph.from_edge_index`; `features`, `labels` and `masks` replace those of the data.
        `edge_weight` is an array (e,), or the name of a tensor of the data, such as "edge_attr",
        or None: all weights are 1. `edge_features`, (e, d), is an array or such a name.

    Raises
    ------
    DataError
        A heterogeneous graph, no edges, several tensors that are called a weight, and
        whatever `Graph.from_edge_index` refuses.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> edges, weights = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 2.0])
    >>> data = Data(edge_index=edges, edge_attr=weights, num_nodes=2)
    >>> hpgcn.from_pyg(data, edge_weight="edge_attr").data
    array([2., 2.], dtype=float32)
    """
    name = options.setdefault("name", "graph")

    # refuse other objects and graphs of several types
    if hasattr(data, "edge_types"):
        raise DataError(f"{name}: a HeteroData with several types of vertices or edges, expected "
                        "one of each: data.to_homogeneous() converts it to Data")

    # take the graph of training, and links of all three, from RandomLinkSplit's result
    if is_link_split(data, hasattr):
        if any(hasattr(part, "edge_types") for part in data):
            raise DataError(f"{name}: HeteroData with several types of edges, expected links of "
                            "one type")
        parts = [{key: to_array(getattr(part, key, None)) for key in (*LABELED, *RELATIONS)}
                 for part in data]
        options.setdefault("links", links_of_split(parts, name))
        data = data[0]

    def get(key: str) -> Any:
        return getattr(data, key, None)

    edge_index, adj_t = to_array(get("edge_index")), to_array(get("adj_t"))
    if isinstance(data, (list, tuple)):
        raise DataError(f"{name}: a {type(data).__name__} of {len(data)} objects, expected one "
                        "torch_geometric.data.Data, or the three of RandomLinkSplit with its "
                        "own key='edge_label'")
    if edge_index is None and get("train_pos_edge_index") is not None:
        raise DataError(f"{name}: a Data of train_test_split_edges, expected the three Data of "
                        "RandomLinkSplit(is_undirected=True)(data)")
    if edge_index is None and adj_t is None:
        raise DataError(f"{name}: a {type(data).__name__} without edge_index or adj_t, expected a "
                        "torch_geometric.data.Data (from a data set: dataset[0])")

    # take the known tensors; options replace them
    if task not in Y:
        raise UsageError(f"task = {task!r}: expected {' or '.join(Y)}")
    contents = {"features": to_array(get("x")), "masks": masks_of(get),
                "original_ids": _ids(get("original_ids")), "labels": None}
    if not {"labels", "targets"} & options.keys():
        contents[Y[task]] = to_array(get("y"))
        if contents.get("targets") is not None:
            contents["target_names"] = get("target_names")
    if contents["labels"] is not None:
        contents["class_names"] = get("class_names")
    if contents["features"] is not None and "features" not in options:
        contents["feature_names"] = get("feature_names")
    options = contents | options

    # choose the weights among the other tensors
    read = (*READ, *LABELED) if "links" in options else READ
    arrays = {key: value for key in _names(data) if key not in read
              and (value := get(key)) is not None}
    if edge_index is None:
        return _from_adj_t(adj_t, arrays, options)
    with warnings.catch_warnings(action="ignore"):  # where PyG infers it from edge_index
        options.setdefault("num_nodes", get("num_nodes"))
    num_edges = np.shape(edge_index)[-1] if np.ndim(edge_index) else 0
    weights_of(arrays, options, num_edges, options["num_nodes"])
    if "num_nodes" not in _names(data) and num_edges and (
            options["num_nodes"] == np.max(edge_index) + 1):
        options["num_nodes"] = None  # PyG only counted the numbers, which may begin at 1
    return Graph.from_edge_index(edge_index, **_without_none(options))


def _from_adj_t(adj_t: Any, arrays: dict[str, Any], options: dict[str, Any]) -> Graph:
    """Make a graph from the sparse matrix `adj_t`, whose values are the edge weights."""
    name = options["name"]
    if not sp.issparse(adj_t):
        raise DataError(f"{name}: adj_t is a {type(adj_t).__name__}, expected a sparse tensor "
                        "(n, n)")
    if options.get("edge_weight") is not None:
        raise DataError(f"{name}: edge_weight is given, but adj_t has the weights: "
                        "edge_weight=None sets all weights to 1")
    if options.get("edge_features") is not None:
        raise DataError(f"{name}: edge_features are read beside edge_index only, not beside adj_t")
    unweighted = "edge_weight" in options
    weights_of(arrays, options | {"edge_weight": None}, adj_t.nnz, adj_t.shape[0])
    options.pop("edge_weight", None)
    X, y = options.pop("features"), options.pop("labels")
    return Graph.from_scipy(adj_t, X, y, options.pop("masks"),
                            **{"unweighted": unweighted, **_without_none(options)})


def _names(data: Data) -> list[str]:
    """Return the names of all attributes of a Data."""
    names = getattr(data, "keys", None)  # a property before PyG 2.4
    names = names() if callable(names) else names
    return list(vars(data) if names is None else names)


def to_pyg(graph: GraphSource) -> Data:
    """Return the whole graph, in its ORIGINAL order, as a `torch_geometric.data.Data`.

    It has `edge_index`, sorted and without duplicates, and `num_nodes`. If the graph
    has them, it also has:

    - `edge_weight` (if not all are 1), and `edge_attr`, the edge features;
    - `x` (sparse features as a sparse CSR tensor);
    - `y` (labels or targets), masks, `original_ids` (a list for names), `class_names`,
      `feature_names` and `target_names`, lists.

    MissingError without PyG; DataError where only some rows are held.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> hpgcn.to_pyg(graph).edge_index
    tensor([[0, 1],
            [1, 0]])
    """
    torch = require("torch", "pyg", "hpgcn.to_pyg")
    Data = require("torch_geometric.data", "pyg", "hpgcn.to_pyg").Data

    # the edges and their weights
    graph = check_source(graph).in_original_order()
    source, target, weights, order = edges(graph)
    data = Data(edge_index=torch.from_numpy(np.stack([source, target])),
                num_nodes=graph.header.num_nodes)
    if weights is not None:
        data.edge_weight = torch.from_numpy(weights)
    if graph.edge_features is not None:
        data.edge_attr = torch.from_numpy(graph.edge_features[order])

    # features, labels and masks, if the graph has them
    X = graph.features
    if sp.issparse(X):
        data.x = csr_tensor(torch, X, torch.tensor(X.data))
    elif X is not None:
        data.x = torch.tensor(X)
    if graph.labels is not None:
        data.y = torch.tensor(graph.labels)
    elif graph.targets is not None:
        data.y = torch.tensor(graph.targets)
    for key, mask in (graph.masks or {}).items():
        data[f"{key}_mask"] = torch.tensor(mask)

    # names of vertices and classes
    ids = graph.original_ids
    if ids is not None:
        data.original_ids = ids.tolist() if ids.dtype.kind == "U" else torch.tensor(ids)
    for field in NAMED:
        if (names := getattr(graph, field)) is not None:
            data[field] = list(names)
    return data


def edges(graph: Graph) -> tuple:
    """Return sources and targets of all edges, weights (or None), and entry numbers.

    Ends are (e,) int64, sorted by source. An edge has the weight of the entry of the
    adjacency with its number.
    """
    n = graph.header.num_nodes
    entries = np.arange(graph.indices.size), graph.indices, graph.indptr
    A = sp.csr_array(sp.csr_array(entries, shape=(n, n)).T)  # row u: the vertices that aggregate u
    A.sort_indices()
    source = np.repeat(np.arange(n), np.diff(A.indptr))
    weights = None if graph.data is None else graph.data[A.data]
    return source, A.indices.astype(np.int64), weights, A.data


def _ids(ids: Any) -> np.ndarray | None:
    ids = to_array(ids)
    return ids if ids is None else np.asarray(ids)


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}

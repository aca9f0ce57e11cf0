"""Write and open files of graphs and of partitioned graphs."""
from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs.contents import NAMED
from hpgcn.graphs.graph_source import GraphSource, check_source
from hpgcn.graphs.validation import SPLIT, index_dtype
from hpgcn.runtime.files import check_path
from hpgcn.store.blocks.reordered import ReorderedGraph
from hpgcn.store.csr_arrays import reorder_entries, write_csr
from hpgcn.store.schema import (
    DEGREES,
    EDGE_FEATURES,
    GRAPH,
    ORDER,
    PARTITION_FIELDS,
    PARTITION_OPTIONS,
    PARTITIONED,
    TARGETS,
    link_name,
    mask_name,
    node_fields,
    write_names,
)
from hpgcn.store.stored import StoredGraph
from hpgcn.store.writer import create

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.partition import Partition
    from hpgcn.store.writer import Writer


def save(graph: GraphSource, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the whole graph, in its ORIGINAL order, to a file (.h5), which `hpgcn.load` reads.

    Parameters
    ----------
    graph : hpgcn.Graph or hpgcn.store.StoredGraph
    path : str or path-like
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    DataError
        The graph has only some of its rows.
    OutputError, StorageError
        The file exists and `overwrite` is false, or it cannot be created; the disk is full.

    Examples
    --------
    >>> import os, tempfile
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hpgcn.save(graph, os.path.join(folder, "two.h5"))
    ...     print(os.listdir(folder))
    ['two.h5']
    """
    # undo the order of parts that the rows of a partitioned graph have
    write_graph(path, check_source(graph).in_original_order(), overwrite=overwrite)


def write_graph(path: Any, graph: Any, *, overwrite: bool = False, compress: str = "none",
                scratch: Path | None = None, order: np.ndarray | None = None) -> None:
    """Write a whole graph to a new file of format hpgcn-graph.

    `graph` has all rows, in the order that is to be called the original one. Its arrays
    may be any objects with `shape`, `size`, `dtype` and `array[start:stop]`: about 16
    MiB of one are read at once. With `order`, (n,) int64 new -> old, of a graph in
    memory, the file has the rows in this order, and the order itself. Other options are
    as in `hpgcn.store.writer.create`.
    """
    _require_whole(graph)
    with create(path, GRAPH, overwrite=overwrite, compress=compress, scratch=scratch) as writer:
        features = graph.features
        sha256 = graph.header.source_sha256
        if order is not None:
            graph, features = _reordered(graph, order)
        _write(writer, graph, features, sha256)
        if order is not None:
            writer.dataset(ORDER, order)


def in_parts_already(where: str) -> DataError:
    """Return the DataError for a graph to partition that has parts already."""
    return DataError(f"{where}: is partitioned already; partition the graph from which it was made")


def write_partitioned(path: Path | str, graph: Graph | None, partition: Partition, *,
                      overwrite: bool = False, compress: str = "none",
                      source: StoredGraph | None = None, window: int | None = None) -> None:
    """Write a whole graph in the order of a partition, to a file of format hpgcn-partitioned-graph.

    `graph` has all rows, in ORIGINAL order; rows and columns are permuted on the way.
    `source` is the open StoredGraph that it was read from. If it is given, its arrays
    are written, in blocks. `graph` may then be its `structure`, or None if entries have
    no parts of their own. About `window` bytes are gathered at once. The SHA-256 of
    `source` becomes `source_sha256`, by default the graph's own. Options are as in
    `write_graph`.
    """
    # refuse a partition that does not fit the graph
    if graph is None:
        header, in_parts = source.header, source.offsets is not None
    else:
        _require_whole(graph)
        header = graph.header
        in_parts = (graph.offsets is not None
                    or not np.array_equal(graph.vertex, np.arange(graph.num_rows)))
    if in_parts:
        raise in_parts_already(source.where if source else header.name)
    if partition.part.shape != (header.num_nodes,):
        raise DataError(f"{path}: the partition has {partition.part.size} vertices, but the graph "
                        f"{header.num_nodes}")
    edge_part = partition.edge_part
    if edge_part is not None and edge_part.shape != graph.indices.shape:
        raise DataError(f"{path}: the partition has parts for {edge_part.size} edges, but the "
                        f"graph stores {graph.indices.size}")

    # write the graph in the new order
    with create(path, PARTITIONED, overwrite=overwrite, compress=compress) as writer:
        sha256 = header.source_sha256
        if source is not None:
            sha256 = source.sha256()
            source.refuse_replaced()
            ordered = ReorderedGraph(source, partition.iperm, path, window)
            features = ordered.features
        else:
            ordered, features = _reordered(graph, partition.perm)
        _write(writer, ordered, features, sha256)

        # write the partition, and the holder of each nonzero
        fields = {name: kind(getattr(partition, name)) for name, kind in PARTITION_FIELDS.items()}
        fields |= {name: getattr(partition, name) or None for name in PARTITION_OPTIONS}
        fields |= {"k": partition.k, "nested": partition.nested,
                   **node_fields(partition.node_sizes)}
        writer.attributes("partition", {**partition.statistics, **fields})
        for name in ("part", "perm", "iperm", "offsets"):
            writer.dataset(f"partition/{name}", getattr(partition, name))
        if edge_part is not None:
            edge_part = reorder_entries(edge_part, graph.indptr, graph.indices, partition.iperm)
            writer.dataset("partition/edge_part", edge_part)
            writer.link("partition/owner", "partition/part")


def _reordered(graph: Graph, perm: np.ndarray) -> tuple:
    """Return a graph in another order, without large features, and the features.

    Large features are permuted as they are read.
    """
    features = graph.features
    if features is not None and not sp.issparse(features):  # permute dense ones in pieces
        return dataclasses.replace(graph, features=None).permuted(perm), _Reordered(features, perm)
    graph = graph.permuted(perm)
    return graph, graph.features


class _Reordered:
    """A view of an array's rows in another order, copied only when they are read."""

    def __init__(self, array: np.ndarray, perm: np.ndarray) -> None:
        self.array = array
        self.perm = perm
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.array[self.perm[rows]]


def _require_whole(graph: Graph) -> None:
    stop = graph.start + graph.num_rows
    if graph.start != 0 or stop != graph.header.num_nodes:
        raise DataError(f"{graph.header.name}: only rows {graph.start}..{stop} are in memory, but "
                        f"a file needs all {graph.header.num_nodes}")


def _write(writer: Writer, graph: Graph | ReorderedGraph, features: Any,
           source_sha256: str) -> None:
    # attributes that describe the arrays
    header = graph.header
    n = header.num_nodes
    writer.attributes("/", {
        "source_name": header.name, "source_sha256": source_sha256, "split": header.split,
        "directed": header.directed, "num_nodes": n, "num_edges": header.num_edges,
        "num_features": header.num_features, "num_classes": header.num_classes,
        "num_splits": header.num_splits if header.num_splits > 1 else None,
        "base": header.base or None, "parallel_edges": int(header.parallel_edges) or None,
        "random_features": header.random_features or None,
        "random_labels": header.random_labels or None})

    # the adjacency and the features
    write_csr(writer, "adjacency", graph.indptr, graph.indices, graph.data, n)
    if graph.edge_features is not None:
        writer.dataset(EDGE_FEATURES, graph.edge_features)
    if header.sparse_features:
        indptr = _as(features.indptr, np.int64)
        indices = _as(features.indices, index_dtype(header.num_features))
        write_csr(writer, "features", indptr, indices, features.data, header.num_features)
    elif features is not None:
        writer.dataset("features", features)

    # labels or targets, and splits
    if graph.labels is not None:
        writer.dataset("labels", graph.labels)
    if graph.targets is not None:
        writer.dataset(TARGETS, graph.targets)
    for split in range(header.num_splits):
        masks = graph.split_masks(split)
        for key in SPLIT:
            writer.dataset(mask_name(key, split), masks[key].view(np.uint8))

    # pairs to predict
    for key, links in (graph.links or {}).items():
        for field, array in links.arrays().items():
            writer.dataset(link_name(key, field), array)

    # degrees and names
    for name in DEGREES:
        writer.dataset(f"degree/{name}", _as(getattr(graph, f"degree_{name}"), np.float64))
    if graph.original_ids is not None:
        ids = graph.original_ids
        writer.dataset("original_ids", ids if ids.dtype.kind == "U" else _as(ids, np.int64))
    write_names(writer, {field: getattr(graph, field) for field in NAMED})


def _as(array: Any, dtype: DTypeLike) -> Any:
    return array if array.dtype == dtype else np.asarray(array, dtype)


def load(path: str | os.PathLike[str], *, verify: bool = True,
         memory: int | None = None, cached: bool = True) -> StoredGraph:
    """Open a graph or a partitioned graph.

    Parameters
    ----------
    path : str or path-like
    verify : bool
        Compare the checksum of everything that is read.
    memory : int, optional
        Bytes that may be read at once; default 80% of the available memory / ranks on
        this machine.
    cached : bool
        Whether contents may stay in the system's page cache, for later runs.

    Returns
    -------
    StoredGraph

    Examples
    --------
    >>> import os, tempfile
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.h5")
    ...     hpgcn.save(graph, path)
    ...     with hpgcn.load(path) as stored:
    ...         print(stored.header.num_nodes, stored.read().indices)
    2 [1 0]
    """
    # this validates the header; arrays are validated when they are read
    return StoredGraph(check_path(path), verify=verify, memory=memory, cached=cached)

"""Graphs in .npz files: CSR arrays or edge_index, with attributes, labels and split."""
import numpy as np

from hpgcn.datasets.arrays import COMPRESSED, Archive
from hpgcn.datasets.ids import compact_ids
from hpgcn.datasets.raw import TARGET_FIRST, Raw
from hpgcn.datasets.source import need, shown
from hpgcn.errors import DataError
from hpgcn.graphs.validation import SPLIT, check_finite, check_range

WEIGHTS = ("edge_weight", "weight")  # one number an edge
ATTRIBUTES = ("edge_attr", "edge_feat")  # one number an edge, or several: names of PyG and OGB


def read(source, memory):
    """Read a graph from an .npz file; DataError where an array is not what its key says.

    Keys: adj_indices adj_indptr adj_shape and adj_data (without it all weights are 1);
    or edge_index (2, e), row 0 the source and row 1 the target as in PyG, maybe with
    num_nodes, and with weights (e,) or (e, 1) as edge_weight, weight, edge_attr or
    edge_feat; or what scipy.sparse.save_npz writes, row u aggregates column v. Besides
    these attr_data attr_indices attr_indptr attr_shape, attr_matrix, x or node_feat;
    labels, y or node_label; train_mask val_mask test_mask or train_idx val_idx test_idx.
    """
    archive = Archive(source, memory)
    if _has_csr(archive, "attr"):
        archive.require("attr_data")
        features = archive.read_csr("attr")
    else:
        features = archive.first("attr_matrix", "x", "node_feat")
    labels = archive.first("labels", "y", "node_label")

    if _has_csr(archive, "adj"):
        raw = _from_matrix(archive, archive.read_csr("adj"), f"{source} adj_shape")
        if "adj_data" not in archive:
            raw.values = None
    elif "edge_index" in archive:
        raw = _from_edge_index(archive, features, labels)
        raw.values = _edge_weights(archive, raw.rows.size)
    elif archive.is_sparse:
        raw = _from_matrix(archive, archive.read_sparse(), f"{source} shape")
    else:
        names = shown(", ".join(archive.keys)) or "none"
        raise DataError(f"{source}: arrays {names}, expected adj_indices, adj_indptr and "
                        "adj_shape, or edge_index, or what scipy.sparse.save_npz writes")

    raw.features = features
    raw.labels = labels
    raw.masks = _masks(archive, raw.num_nodes)
    raw.notes = archive.notes
    if archive.unread:
        raw.notes.append(f"arrays not read: {shown(', '.join(archive.unread))}")
    return raw


def read_edge_index(archive, n=None):
    """Return sources and targets, two (e,) int64 in [0, n), or not negative."""
    where = f"{archive.source} edge_index"
    edges = archive.read("edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where}: dtype {edges.dtype} and shape {edges.shape}, expected integers "
                        "(2, e)")
    for row in range(2):
        check_range(edges[row], 1 << 63 if n is None else n, f"{where} row {row}")
    return edges.astype(np.int64, copy=False)


def _has_csr(archive, prefix):
    return any(f"{prefix}_{key}" in archive for key in COMPRESSED)


def _from_matrix(archive, matrix, where):
    n = matrix.shape[0]
    if n != matrix.shape[1]:
        raise DataError(f"{where}: {matrix.shape}, expected a square matrix")
    need(64 * n, archive.memory, f"{where}: {n} vertices")
    matrix = matrix.tocoo()
    return Raw(n, *matrix.coords, matrix.data)


def _edge_weights(archive, num_edges):
    """Return the weight of each edge, (e,), or None; attributes of several columns are left out."""
    for key in WEIGHTS + ATTRIBUTES:
        if key not in archive:
            continue
        shape = archive.shape(key)
        wide = len(shape) == 2 and shape[0] == num_edges and shape[1] != 1
        if key in ATTRIBUTES and wide:
            archive.notes.append(f"{key} of shape {shape} is not used: an edge has one weight, "
                                 "edge_weight")
            archive.unread.remove(key)
            continue
        where = f"{archive.source} {key}"
        if shape not in ((num_edges,), (num_edges, 1)):
            raise DataError(f"{where}: shape {shape}, expected ({num_edges},): one weight for each "
                            "edge")
        values = archive.read(key).ravel()
        check_finite(values, where)
        archive.notes.append(f"weights read from {key} (--unweighted sets them to 1)")
        return values
    return None


def _from_edge_index(archive, features, labels):
    n = next((array.shape[0] for array in (features, labels)
              if array is not None and array.shape), None)
    if "num_nodes" in archive:
        counts = archive.read("num_nodes").ravel()
        if counts.size != 1 or counts.dtype.kind not in "iu" or int(counts[0]) < 0:
            raise DataError(f"{archive.source} num_nodes: {counts[:4].tolist()}, expected one "
                            "number of vertices")
        n = int(counts[0])
    columns, rows = read_edge_index(archive, n)
    if n is None:
        numbering, rows, columns = compact_ids(rows, columns)
        return Raw(numbering.num_nodes, rows, columns, original_ids=numbering.original_ids,
                   reads=TARGET_FIRST)
    need(64 * n, archive.memory, f"{archive.source} num_nodes: {n} vertices")
    return Raw(n, rows, columns, reads=TARGET_FIRST)


def _masks(archive, n):
    masks = {}
    for key in SPLIT:
        if f"{key}_mask" in archive:
            where = f"{archive.source} {key}_mask"
            mask = archive.read(f"{key}_mask")
            if mask.shape != (n,):
                raise DataError(f"{where}: shape {mask.shape}, expected ({n},)")
            wrong = np.flatnonzero((mask != 0) & (mask != 1))
            if wrong.size:
                raise DataError(f"{where}: entry {wrong[0]} is {mask[wrong[0]]}, expected true or "
                                "false")
            masks[key] = mask.astype(bool)
        elif f"{key}_idx" in archive:
            where = f"{archive.source} {key}_idx"
            numbers = archive.read(f"{key}_idx")
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
                raise DataError(f"{where}: dtype {numbers.dtype} and shape {numbers.shape}, "
                                "expected vertex numbers")
            check_range(numbers, n, where)
            masks[key] = np.isin(np.arange(n), numbers)
    return masks or None

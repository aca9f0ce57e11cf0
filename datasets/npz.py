"""Graphs in .npz files: adj_data/adj_indices/adj_indptr/adj_shape, or edge_index, with attributes, labels and split."""
import numpy as np

from hpgcn.check import SPLIT, check_csr_arrays, check_finite, check_range
from hpgcn.datasets.arrays import Archive, is_sparse, read_shape, read_sparse, signed, sparse_matrix
from hpgcn.datasets.raw import TARGET_FIRST, Raw, compact_ids
from hpgcn.datasets.source import need, shown
from hpgcn.errors import DataError

WEIGHTS = ("edge_weight", "weight")  # one number an edge
ATTRIBUTES = ("edge_attr", "edge_feat")  # one number an edge, or several: names of PyG and OGB


def read(source, memory):
    """Read a graph from an .npz file.

    Keys: adj_indices adj_indptr adj_shape and adj_data (without it all weights are 1); or edge_index (2, e), row 0 the
    source and row 1 the target as in PyG, maybe with num_nodes, and with weights (e,) or (e, 1) as edge_weight,
    weight, edge_attr or edge_feat; or what scipy.sparse.save_npz writes, row u aggregates column v. Besides these
    attr_data attr_indices attr_indptr attr_shape, attr_matrix, x or node_feat; labels, y or node_label; train_mask
    val_mask test_mask or train_idx val_idx test_idx.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw

    Raises
    ------
    DataError
        Not a zip, two members of one name, no adjacency, or an array that is not what its key says.
    """
    archive = Archive(source, memory)
    features = _features(archive)
    _, labels = archive.first("labels", "y", "node_label")
    if any(f"adj_{key}" in archive for key in ("data", "indices", "indptr")):
        raw = _from_csr(archive)
    elif "edge_index" in archive:
        raw = _from_edge_index(archive, features, labels)
        raw.values = _edge_weights(archive, raw.rows.size)
    elif is_sparse(archive):
        raw = _from_sparse(archive)
    else:
        raise DataError(f"{source}: arrays {shown(', '.join(archive.keys)) or 'none'}, expected adj_indices, "
                        "adj_indptr and adj_shape, or edge_index, or what scipy.sparse.save_npz writes")
    raw.features, raw.labels, raw.masks = features, labels, _masks(archive, raw.num_nodes)
    raw.notes = archive.notes
    if archive.unread:
        raw.notes.append(f"arrays not read: {shown(', '.join(archive.unread))}")
    return raw


def _family(archive, prefix, keys):
    missing = [prefix + key for key in keys if prefix + key not in archive]
    if missing:
        raise DataError(f"{archive.source}: no array {missing[0]}, expected {', '.join(prefix + key for key in keys)}")


def _from_csr(archive):
    _family(archive, "adj_", ("indices", "indptr", "shape"))
    where = f"{archive.source} adj_"
    shape = read_shape(archive, "adj_shape")
    if shape[0] != shape[1]:
        raise DataError(f"{where}shape: {shape}, expected a square matrix")
    indptr, indices = archive.read("adj_indptr"), archive.read("adj_indices")
    check_csr_arrays(indptr, indices, shape, f"{archive.source} adjacency")
    indptr, indices = signed(indptr), signed(indices)
    values = archive.read("adj_data") if "adj_data" in archive else None
    if values is not None and values.shape != indices.shape:
        raise DataError(f"{where}data: shape {values.shape}, expected {indices.shape}")
    return Raw(shape[0], np.repeat(np.arange(shape[0]), np.diff(indptr)), indices, values)


def _from_sparse(archive):
    matrix = read_sparse(archive).tocoo()
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{archive.source} shape: {matrix.shape}, expected a square matrix")
    need(64 * matrix.shape[0], archive.memory, f"{archive.source} shape: {matrix.shape[0]} vertices")
    return Raw(matrix.shape[0], *matrix.coords, matrix.data)


def _edge_weights(archive, num_edges):
    """Return the weight of each edge, (e,), or None; attributes of several columns are noted and left out."""
    for key in WEIGHTS + ATTRIBUTES:
        if key not in archive:
            continue
        shape = archive.shape(key)
        if key in ATTRIBUTES and len(shape) == 2 and shape[0] == num_edges and shape[1] != 1:
            archive.notes.append(f"{key} of shape {shape} is not used: an edge has one weight, edge_weight")
            archive.unread.remove(key)
            continue
        where = f"{archive.source} {key}"
        if shape not in ((num_edges,), (num_edges, 1)):
            raise DataError(f"{where}: shape {shape}, expected ({num_edges},): one weight for each edge")
        values = archive.read(key).ravel()
        check_finite(values, where)
        archive.notes.append(f"weights read from {key} (--unweighted sets them to 1)")
        return values
    return None


def _from_edge_index(archive, features, labels):
    where = f"{archive.source} edge_index"
    edges = archive.read("edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where}: dtype {edges.dtype} and shape {edges.shape}, expected integers (2, e)")
    wrong = np.argwhere((edges < 0) | (edges > np.iinfo(np.int64).max))
    if wrong.size:
        k, entry = wrong[0]
        raise DataError(f"{where}: entry ({k}, {entry}) is {edges[k, entry]}, expected a vertex number")
    columns, rows = edges.astype(np.int64, copy=False)
    known = next((array.shape[0] for array in (features, labels) if array is not None and array.shape), None)
    if "num_nodes" in archive:
        known = archive.read("num_nodes")
        if known.size != 1 or known.dtype.kind not in "iu" or int(known.ravel()[0]) < 0:
            raise DataError(f"{archive.source} num_nodes: {known.ravel()[:4].tolist()}, expected one number of "
                            "vertices")
        known = int(known.ravel()[0])
    if known is None:
        numbering, rows, columns = compact_ids(rows, columns)
        return Raw(numbering.num_nodes, rows, columns, original_ids=numbering.original_ids, reads=TARGET_FIRST)
    need(64 * known, archive.memory, f"{archive.source} num_nodes: {known} vertices")
    for k, numbers in enumerate((columns, rows)):
        check_range(numbers, known, f"{where} row {k}")
    return Raw(known, rows, columns, reads=TARGET_FIRST)


def _features(archive):
    if any(f"attr_{key}" in archive for key in ("data", "indices", "indptr")):
        _family(archive, "attr_", ("data", "indices", "indptr", "shape"))
        shape = read_shape(archive, "attr_shape")
        data, indices, indptr = (archive.read("attr_" + key) for key in ("data", "indices", "indptr"))
        return sparse_matrix(data, indices, indptr, shape, f"{archive.source} attr")
    return archive.first("attr_matrix", "x", "node_feat")[1]


def _masks(archive, n):
    masks = {}
    for key in SPLIT:
        if f"{key}_mask" in archive:
            masks[key] = _mask(archive.read(f"{key}_mask"), n, f"{archive.source} {key}_mask")
        elif f"{key}_idx" in archive:
            numbers = archive.read(f"{key}_idx")
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
                raise DataError(f"{archive.source} {key}_idx: dtype {numbers.dtype} and shape {numbers.shape}, "
                                "expected vertex numbers")
            check_range(numbers, n, f"{archive.source} {key}_idx")
            masks[key] = np.zeros(n, bool)
            masks[key][numbers] = True
    return masks or None


def _mask(mask, n, where):
    if mask.shape != (n,):
        raise DataError(f"{where}: shape {mask.shape}, expected ({n},)")
    wrong = np.flatnonzero((mask != 0) & (mask != 1))
    if wrong.size:
        raise DataError(f"{where}: entry {wrong[0]} is {mask[wrong[0]]}, expected true or false")
    return mask.astype(bool)

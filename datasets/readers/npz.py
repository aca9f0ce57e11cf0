"""Reader of graphs in .npz files: CSR arrays or edges, with attributes, labels and
splits.
"""
import re

import numpy as np

from hpgcn.datasets.edges.ids import compact_ids
from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.readers.numpy_files import Archive
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import choose_array
from hpgcn.graphs.validation import SPLIT, check_finite, check_range

FEATURES = ("attr_matrix", "x", "X", "node_feat", "node_features", "features", "feature", "feats",
            "feat")
LABELS = ("labels", "label", "y", "node_label", "node_labels")


def read(source, memory, weights=None):
    """Read a graph from an .npz file; DataError if an array does not fit its key.

    Keys of the edges are one of these:

    - adj_indices adj_indptr adj_shape and adj_data (without it all weights are 1);
    - the same as adj_matrix.data and so on, as Graph2Gauss and ppnp write them;
    - edge_index (2, e), row 0 the source and row 1 the target as in PyG, maybe with num_nodes;
    - edges (e, 2), each once for both directions;
    - the keys of scipy.sparse.save_npz, where row u aggregates column v. Weights of edges (e,) or
      (e, 1) are in the array that `weights` names, by default in the one that is called a weight.
      Other keys:
    - features: attr_data attr_indices attr_indptr attr_shape, or attr_matrix.data and so on, or one
      array of FEATURES;
    - labels: one of LABELS, or a CSR matrix labels.data and so on, and the text class_names;
    - feature_names, text;
    - masks: train_mask val_mask test_mask, singular or plural, (n,), or (n, s) or (s, n) for s
      splits;
    - or train_idx val_idx test_idx. Arrays of Python objects are left out, which a note says.
    """
    archive = Archive(source, memory)
    features = _features(archive)
    labels = archive.first(*LABELS, kinds="fiubSU")
    if labels is None and (prefix := archive.csr_prefix("labels.", "labels_")):
        labels = archive.read_csr(prefix)
        need(4 * labels.shape[0] * labels.shape[1], memory, f"{source} labels")
        labels = labels.toarray()

    prefix = archive.csr_prefix("adj_", "adj_matrix.", "adj_matrix_", "adj.")
    is_list = prefix is None and ("edge_index" in archive or "edges" in archive)
    if weights and not is_list:
        raise UsageError(f"--weights {weights}: only for lists of edges; {source} has a matrix, "
                         "whose entries are the weights")
    if prefix is not None:
        raw = from_matrix(archive, archive.read_csr(prefix), f"{source} {prefix}shape")
        if f"{prefix}data" not in archive:
            raw.values = None
    elif is_list:
        key = "edge_index" if "edge_index" in archive else "edges"
        raw = _from_edges(archive, key, features, labels)
        if key == "edges":
            # as Platonov et al. (2023) load them, whose directed sets say so in their
            # names
            raw.symmetrize = not re.search("(?<!un)directed", source.path.stem)
            raw.notes.append("edges read in both directions" if raw.symmetrize else
                             "edges read as directed, because of the file's name")
    elif archive.is_sparse:
        raw = from_matrix(archive, archive.read_sparse(), f"{source} shape")
    else:
        names = truncate(", ".join(archive.keys)) or "none"
        raise DataError(f"{source}: arrays {names}, expected adj_indices, adj_indptr and "
                        "adj_shape, or edge_index, or edges, or what scipy.sparse.save_npz writes")

    raw.features = features
    raw.labels = labels
    named = labels is not None and "class_names" in archive
    if named and archive.dtype("class_names").kind == "U":
        raw.class_names = archive.read("class_names", "U").tolist()
    if raw.features is not None and "feature_names" in archive \
            and archive.dtype("feature_names").kind == "U":
        raw.feature_names = archive.read("feature_names", "U").tolist()
    raw.masks = _masks(archive, raw.num_nodes)
    if raw.masks is not None:
        raw.in_edge = None  # they say which vertices there are
    if is_list:
        raw.values = _edge_weights(archive, raw.rows.size, raw.num_nodes, weights)
    raw.notes = archive.notes + raw.notes
    raw.notes += archive.unread_notes()
    return raw


def read_edge_index(archive, n=None, key="edge_index"):
    """Return the sources and the targets of edges, two (e,) int64 in [0, n), or not
    negative if n is None.

    The array is (2, e), or (e, 2) if it is called `edges`.
    """
    where = f"{archive.source} {key}"
    edges = archive.read(key)
    upright = key == "edges"
    if edges.ndim != 2 or edges.shape[upright] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where}: dtype {edges.dtype} and shape {edges.shape}, expected integers "
                        f"{'(e, 2)' if upright else '(2, e)'}")
    edges = edges.T if upright else edges
    for end in range(2):
        check_range(edges[end], 1 << 63 if n is None else n,
                    f"{where} {'column' if upright else 'row'} {end}")
    return edges.astype(np.int64, copy=False)


def _features(archive):
    """Return the features of an archive, (n, f), dense or sparse; None without
    features.
    """
    prefix = archive.csr_prefix("attr_", "attr_matrix.", "attr_matrix_", "attr.")
    if prefix is None:
        return archive.first(*FEATURES)
    archive.require(f"{prefix}data")
    return archive.read_csr(prefix)


def from_matrix(archive, matrix, where):
    n = matrix.shape[0]
    if n != matrix.shape[1]:
        raise DataError(f"{where}: {matrix.shape}, expected a square matrix")
    need(64 * n, archive.memory, f"{where}: {n} vertices")
    matrix = matrix.tocoo()
    return Raw(n, *matrix.coords, matrix.data)


def _edge_weights(archive, num_edges, num_nodes, asked):
    """Return the weight of each edge, (e,), or None; add notes on edge arrays that are
    not read.
    """
    shapes = archive.unread_shapes()
    key, left = choose_array(shapes, num_edges, num_nodes, asked, str(archive.source),
                             "--weights {}".format)
    archive.notes += left.values()
    archive.unread = [other for other in archive.unread if other not in left]
    if key is None:
        return None
    values = archive.read(key).ravel()
    check_finite(values, f"{archive.source} {key}")
    archive.notes.append(f"weights read from {key} (--unweighted sets them to 1)")
    return values


def _from_edges(archive, key, features, labels):
    n = next((array.shape[0] for array in (features, labels)
              if array is not None and array.shape), None)

    if "num_nodes" in archive:
        counts = archive.read("num_nodes").ravel()
        if counts.size != 1 or counts.dtype.kind not in "iu" or int(counts[0]) < 0:
            raise DataError(f"{archive.source} num_nodes: {counts[:4].tolist()}, expected one "
                            "number of vertices")
        n = int(counts[0])

    columns, rows = read_edge_index(archive, n, key)
    if n is None:
        numbering, rows, columns = compact_ids(rows, columns)
        return Raw(numbering.num_nodes, rows, columns, original_ids=numbering.original_ids,
                   in_edge=numbering.in_edge, reads=TARGET_FIRST)

    need(64 * n, archive.memory, f"{archive.source} num_nodes: {n} vertices")
    return Raw(n, rows, columns, reads=TARGET_FIRST)


def _masks(archive, n):
    masks = {}

    for key in SPLIT:
        if name := next((f"{key}_{word}" for word in ("mask", "masks")
                         if f"{key}_{word}" in archive), None):
            masks[key] = as_mask(archive.read(name), n, f"{archive.source} {name}")
        elif f"{key}_idx" in archive:
            where = f"{archive.source} {key}_idx"
            numbers = archive.read(f"{key}_idx")
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
                raise DataError(f"{where}: dtype {numbers.dtype} and shape {numbers.shape}, "
                                "expected vertex numbers")
            check_range(numbers, n, where)
            masks[key] = np.isin(np.arange(n), numbers)

    return masks or None


def as_mask(mask, n, where):
    """Return a bool mask (n,), or masks (n, s) of s splits, from an array of shape
    (n,), (n, s) or (s, n).
    """
    shape = mask.shape
    if n not in shape[:2] or len(shape) > 2:
        raise DataError(f"{where}: shape {shape}, expected ({n},), or ({n}, s) or (s, {n}) for s "
                        "splits")
    if shape == (n, n) and n > 1:
        raise DataError(f"{where}: shape {shape}, the number of splits equals that of vertices, so "
                        "(n, s) and (s, n) cannot be distinguished")
    wrong = np.argwhere((mask != 0) & (mask != 1))
    if wrong.size:
        place = tuple(wrong[0].tolist())
        raise DataError(f"{where}: entry {place if len(place) > 1 else place[0]} is {mask[place]}, "
                        "expected true or false")
    return (mask if shape[0] == n else mask.T).astype(bool)

"""Reader of graphs in .npz files: CSR arrays or edges, attributes, labels and splits."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.edges.edge_arrays import read_edge_arrays, refuse_list_flags
from hpgcn.datasets.readers.adjacency_matrix import choose_matrix, from_matrix
from hpgcn.datasets.readers.numpy_files import Archive
from hpgcn.datasets.source import need, truncate
from hpgcn.datasets.text.column_names import DIRECTED, end_names, find_ends
from hpgcn.datasets.unsupported_formats import SAVE
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import choose_array, numbers_of_texts
from hpgcn.graphs.validation import SPLIT, check_finite, check_range, first_true

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

FEATURES = ("attr_matrix", "x", "X", "node_feat", "node_features", "features", "feature", "feats",
            "feat")
ADJACENCY = ("adj_", "adj_matrix.", "adj_matrix_", "adj.")  # prefixes of the names of CSR arrays
LABELS = ("labels", "label", "y", "node_label", "node_labels")


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read a graph from an .npz file; DataError if an array does not fit its key.

    Keys of the edges are one of these:

    - adj_indices adj_indptr adj_shape and adj_data (without it all weights are 1);
    - the same as adj_matrix.data and so on, as Graph2Gauss and ppnp write them;
    - edge_index (2, e), row 0 the source and row 1 the target as in PyG, maybe with num_nodes;
    - edges (e, 2), each once for both directions;
    - the keys of scipy.sparse.save_npz, where row u aggregates column v;
    - two arrays (e,) that are called like the ends of an edge: src and dst, row and col;
    - a dense matrix (n, n), where row u aggregates column v, by the rules of `choose_matrix`.

    Weights of edges (e,) or (e, 1) are in the array that `weights` names, by default in the
    one that is called a weight. Other keys:

    - features: attr_data attr_indices attr_indptr attr_shape, or attr_matrix.data and so on, or one
      array of FEATURES;
    - labels: one of LABELS, or a CSR matrix labels.data and so on, and the text class_names;
    - feature_names, text;
    - the arrays that `options.targets` names, if all are there, instead of labels;
    - masks: train_mask val_mask test_mask, singular or plural, (n,), or (n, s) or (s, n) for s
      splits;
    - or train_idx val_idx test_idx. Arrays of Python objects are left out, which a note says.
    """
    archive = Archive(source, memory)
    features = _features(archive)
    targets = {name: archive.read(name) for name in options.target_arrays
               if set(options.target_arrays) <= archive.members.keys()}
    labels = archive.first(*(key for key in LABELS if key not in targets), kinds="fiubSU")
    if labels is None and (prefix := archive.csr_prefix("labels.", "labels_")):
        labels = archive.read_csr(prefix)
        need(4 * labels.shape[0] * labels.shape[1], memory, f"{source} labels")
        labels = labels.toarray()

    lists = _lists_of_edges(archive) if options.matrix is None else None
    if lists is not None:
        n = _count(archive, features, next(iter(targets.values()), labels))
        raw = _from_lists(archive, lists, n, options)
    elif options.asked_weights:
        raise UsageError(f"--weights {options.weights}: only for lists of edges; {source} has a "
                         "matrix, whose entries are the weights")
    else:
        raw = _from_matrix(archive, options)

    raw.features = features
    raw.labels = labels
    raw.set_targets(targets, source)
    named = labels is not None and "class_names" in archive
    if named and archive.dtype("class_names").kind == "U":
        raw.class_names = archive.read("class_names", "U").tolist()
    if raw.features is not None and "feature_names" in archive \
            and archive.dtype("feature_names").kind == "U":
        raw.feature_names = archive.read("feature_names", "U").tolist()
    raw.masks = _masks(archive, raw.num_nodes)
    if raw.masks is not None:
        raw.in_edge = None  # the arrays determine the vertices
    if lists is not None:
        weights = options.asked_weights
        if weights is None and "data" in archive.unread:
            weights = "data"  # a name of scipy.sparse.coo_array
        raw.values = _edge_weights(archive, raw.rows.size, raw.num_nodes, weights)
    raw.notes = archive.notes + raw.notes
    raw.notes += archive.unread_notes()
    return raw


def _lists_of_edges(archive: Archive) -> Sequence[str] | None:
    """Return the names of the arrays with the edges, one or two; None if a matrix has them."""
    if archive.csr_prefix(*ADJACENCY) is not None:
        return None
    for key in ("edge_index", "edges"):
        if key in archive:
            return (key,)
    if archive.is_sparse:
        return None
    whole = [key for key, shape in archive.unread_shapes().items()
             if len(shape) == 1 and archive.dtype(key).kind in "fiu"]
    return find_ends(whole)


def _from_lists(archive: Archive, keys: Sequence[str], n: int | None,
                options: ConvertOptions) -> Raw:
    """Return the Raw of a list of edges in one array, or in an array for each end."""
    names = DIRECTED
    if len(keys) == 1:
        ends = _both_ends(archive, *keys)
        word = "column" if keys == ("edges",) else "row"
        places = [f"{keys[0]} {word} {end}" for end in range(2)]
    else:
        names = end_names(keys)
        ends = [_as_integers(archive.read(key), f"{archive.source} {key}") for key in keys]
        places = list(keys)
        if ends[0].shape != ends[1].shape:
            raise DataError(f"{archive.source} {keys[1]}: shape {ends[1].shape}, expected "
                            f"{ends[0].shape} as of {keys[0]}")
        archive.notes.append(f"edges: {keys[0]} is {names[0]}, {keys[1]} is {names[1]}")
    raw = read_edge_arrays(ends, None, n, options, archive.memory, [str(archive.source), *places],
                           names=names)
    if keys == ("edges",):
        # the names of files of Platonov et al. (2023) contain "directed" if edges are directed
        raw.symmetrize = not re.search("(?<!un)directed", archive.source.path.stem)
        raw.notes.append("edges read in both directions" if raw.symmetrize else
                         "edges read as directed, because of the file's name")
    return raw


def _as_integers(numbers: np.ndarray, where: str) -> np.ndarray:
    """Return ids as integers; raise DataError for fractions."""
    if numbers.dtype.kind == "f":
        check_finite(numbers, where)
        if (k := first_true(numbers != np.floor(numbers))) is not None:
            raise DataError(f"{where}: entry {k} is {numbers[k]}, expected ids")
        return numbers.astype(np.int64)
    return numbers


def _from_matrix(archive: Archive, options: ConvertOptions) -> Raw:
    """Return the Raw of the adjacency matrix, sparse or dense."""
    source, memory = archive.source, archive.memory
    refuse_list_flags(options, source)
    choice = options.matrix
    prefix = archive.csr_prefix(*(ADJACENCY if choice is None else (f"{choice}_", f"{choice}.")))
    if prefix is not None:
        raw = from_matrix(archive.read_csr(prefix), memory, f"{source} {prefix[:-1]}")
        if f"{prefix}data" not in archive:
            raw.values = None
        return raw
    if archive.is_sparse and choice is None:
        return from_matrix(archive.read_sparse(), memory, str(source))

    # read a dense matrix
    shapes = archive.unread_shapes()
    name = choose_matrix(shapes, choice, source)
    if name is not None:
        raw = from_matrix(archive.read(name), memory, f"{source} {name}")
        raw.notes.append(f"adjacency read from {name}")
        return raw
    names = truncate(", ".join(archive)) or "none"
    if objects := archive.objects():
        key = truncate(objects[0], 40)
        raise DataError(f"{source}: {truncate(', '.join(objects))}: Python objects (a pickle), "
                        "which hpgcn never executes; if you trust it, for a SciPy matrix A = "
                        f"numpy.load(FILE, allow_pickle=True)[{key!r}].item(); {SAVE}")
    raise DataError(f"{source}: arrays {names}, expected adj_indices, adj_indptr and adj_shape, or "
                    "edge_index, or edges, or src and dst, or a square matrix, or what "
                    "scipy.sparse.save_npz writes")


def _count(archive: Archive, features: Any, labels: np.ndarray | None) -> int | None:
    """Return the number of vertices that `num_nodes`, features or labels give, or None."""
    if "num_nodes" in archive:
        counts = archive.read("num_nodes").ravel()
        if counts.size != 1 or counts.dtype.kind not in "iu" or int(counts[0]) < 0:
            raise DataError(f"{archive.source} num_nodes: {counts[:4].tolist()}, expected one "
                            "number of vertices")
        return int(counts[0])
    return next((array.shape[0] for array in (features, labels)
                 if array is not None and array.shape), None)


def _both_ends(archive: Archive, key: str) -> np.ndarray:
    """Return the two ends of edges in an array (2, e), or (e, 2) if it is called `edges`."""
    where = f"{archive.source} {key}"
    edges = archive.read(key)
    upright = key == "edges"
    if edges.ndim != 2 or edges.shape[upright] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where}: dtype {edges.dtype} and shape {edges.shape}, expected integers "
                        f"{'(e, 2)' if upright else '(2, e)'}")
    return edges.T if upright else edges


def read_edge_index(archive: Archive, n: int) -> np.ndarray:
    """Return the sources and the targets in `edge_index`, two (e,) int64 in [0, n)."""
    edges = _both_ends(archive, "edge_index")
    for end in range(2):
        check_range(edges[end], n, f"{archive.source} edge_index row {end}")
    return edges.astype(np.int64, copy=False)


def _features(archive: Archive) -> Any:
    """Return the features of an archive, (n, f), dense or sparse; None without features."""
    prefix = archive.csr_prefix("attr_", "attr_matrix.", "attr_matrix_", "attr.")
    if prefix is None:
        return archive.first(*FEATURES)
    archive.require(f"{prefix}data")
    return archive.read_csr(prefix)


def _edge_weights(archive: Archive, num_edges: int, num_nodes: int,
                  choice: str | bool | None) -> np.ndarray | None:
    """Return the weight of each edge, (e,), or None; note edge arrays that are not read."""
    shapes = archive.unread_shapes()
    key, left = choose_array(shapes, num_edges, num_nodes, choice, str(archive.source),
                             "--weights {}".format)
    archive.notes += left.values()
    archive.unread = [other for other in archive.unread if other not in left]
    if key is None:
        return None
    values = archive.read(key, "fiubU").ravel()
    if values.dtype.kind == "U":
        values = numbers_of_texts(values.tolist(), f"{archive.source} {key} at {{}}".format)
        archive.notes.append(f"{key} is text: read as numbers")
    check_finite(values, f"{archive.source} {key}")
    archive.notes.append(f"weights read from {key} (--unweighted sets them to 1)")
    return values


def _masks(archive: Archive, n: int) -> dict[str, np.ndarray] | None:
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


def as_mask(mask: np.ndarray, n: int, where: object) -> np.ndarray:
    """Return bool masks (n,), or (n, s) of s splits, from an array (n,), (n, s) or (s, n)."""
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

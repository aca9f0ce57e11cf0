"""Any input to a Graph: finds the reader, applies what the user asked for, and says what it met."""
from __future__ import annotations

import dataclasses
import re
from importlib import import_module

import numpy as np
import scipy.sparse as sp

from hpgcn.check import check_features, check_finite, check_labels
from hpgcn.datasets import arrays, builtin
from hpgcn.datasets.planetoid import FILE as PLANETOID_FILE
from hpgcn.datasets.source import Source
from hpgcn.datasets.split import describe_split, parse_split, planetoid_split, random_split
from hpgcn.errors import DataError, InputNotFoundError, UsageError
from hpgcn.graph import assemble, build_adjacency
from hpgcn.machine import memory_budget

READERS = {  # format: module (imported when it is needed) and function
    "planetoid": ("hpgcn.datasets.planetoid", "read"),
    "npz": ("hpgcn.datasets.npz", "read"),
    "mtx": ("hpgcn.datasets.mtx", "read"),
    "snap": ("hpgcn.datasets.edges", "read_snap"),
    "csv": ("hpgcn.datasets.edges", "read_csv"),
}


def read(source, fmt="auto", *, features=None, labels=None, symmetrize=False, unweighted=False, reverse=False,
         strict=False, row_normalize=None, split=None, memory=None):
    """Read a graph.

    Parameters
    ----------
    source : str or path
        A file, or the word digits or karate.
    fmt : {"auto", "planetoid", "npz", "mtx", "snap", "csv"}
        Format; "auto" goes by the name, then by the first bytes.
    features : path, optional
        Replaces the input's features: .npy, or .npz with one dense array or a SciPy sparse matrix, (n, f).
    labels : path, optional
        Replaces the input's labels: .npy, (n,) or (n, t). Where ids were relabelled, rows of features and labels
        follow the increasing order of the original ids.
    symmetrize : bool
        Take max(A, A^T).
    unweighted : bool
        Set all weights to 1.
    reverse : bool
        Take the transpose: an edge `u v` becomes a[v, u].
    strict : bool
        Refuse duplicates, self loops, and asymmetric entries where the input says that it is undirected.
    row_normalize : bool, optional
        Divide each row of the features by its sum; default True for Planetoid alone.
    split : str, optional
        "file", "planetoid" or "random:60/20/20[:SEED]"; default the input's own, if it has one.
    memory : int, optional
        Bytes that the input may ask for; default 80% of the available memory.

    Returns
    -------
    Graph, list of str
        The graph, and what a user should know of how it was read.

    Raises
    ------
    DataError, InputNotFoundError, UsageError, MissingError, StorageError
        Each one line with file, field, and index or line number.
    """
    wanted = None if split is None else parse_split(split)
    memory = memory_budget() if memory is None else memory
    raw, name, where, digest = _read(source, fmt, memory)
    notes = list(raw.notes)
    _replace(raw, features, labels, memory, notes)
    if reverse:
        raw.rows, raw.columns = raw.columns, raw.rows
    _drop_zeros(raw, unweighted, where, notes)
    if not raw.num_nodes:
        raise DataError(f"{where}: no vertices")
    if strict:
        _refuse_irregular(raw, where)
    indptr, indices, data, counts = build_adjacency(raw.rows, raw.columns, raw.values, raw.num_nodes,
                                                    symmetrize=symmetrize or raw.symmetrize, name=where)
    raw.rows = raw.columns = raw.values = None
    if strict and raw.undirected and raw.symmetrize and counts.asymmetric:
        raise DataError(f"{where}: {counts.asymmetric} edges are listed in one direction only, the format lists both")
    if raw.row_normalize if row_normalize is None else row_normalize:
        raw.features = normalize_rows(raw.features, where)
    masks, split = _split(raw, wanted, where)
    graph = assemble(indptr, indices, data, raw.features, raw.labels, masks, name=where,
                     original_ids=raw.original_ids, split=split, source_sha256=digest)
    graph = dataclasses.replace(graph, header=dataclasses.replace(graph.header, name=name))
    if raw.undirected and graph.header.directed:
        if strict:
            raise DataError(f"{where}: says it is undirected, but its entries are not symmetric: give --symmetrize")
        notes.append("the input says it is undirected, but its entries are not symmetric: --symmetrize makes them so")
    return graph, _report(graph, counts) + notes


def detect(source):
    """Return the format of a file, by its name, then by its first bytes."""
    name = source.path.name.lower().removesuffix(".gz")
    if PLANETOID_FILE.fullmatch(source.path.name):
        return "planetoid"
    if source.magic[:8] == b"\x89HDF\r\n\x1a\n":
        raise DataError(f"{source}: is an HDF5 file, expected an input to convert into one")
    for suffix, fmt in ((".npz", "npz"), (".mtx", "mtx"), (".csv", "csv")):
        if name.endswith(suffix):
            return fmt
    if source.magic[:4] == b"PK\x03\x04":
        return "npz"
    head = source.head().removeprefix(b"\xef\xbb\xbf")
    if head[:14].lower() == b"%%matrixmarket":
        return "mtx"
    first = re.search(rb"^[^#%\r\n][^\r\n]*", head, re.MULTILINE)
    return "csv" if first and re.search(rb"[,;]", first[0]) else "snap"


def normalize_rows(X, where="features"):
    """Divide each row by its sum; rows that sum to 0 stay as they are.

    Parameters
    ----------
    X : (n, f) ndarray or scipy sparse

    Returns
    -------
    The same kind, floating point.
    """
    if X is None:
        raise DataError(f"{where}: no features to normalise: give --features")
    if len(X.shape) != 2 or X.dtype.kind not in "fiub":
        raise DataError(f"{where}: features have dtype {X.dtype} and shape {tuple(X.shape)}, expected numbers (n, f)")
    total = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = np.where(total == 0, 1, 1 / total)
        if not sp.issparse(X):
            return X * scale[:, None].astype(X.dtype if X.dtype.kind == "f" else np.float32)
        X = sp.csr_array(X)
        data = X.data * np.repeat(scale, np.diff(X.indptr))
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _read(source, fmt, memory):
    """Return Raw, name of the graph, what to call the input in errors, SHA-256."""
    if fmt not in ("auto", *READERS):
        raise UsageError(f"format {fmt!r}: expected auto, {', '.join(READERS)}")
    if fmt == "auto" and str(source) in builtin.BUILTIN:
        raw = builtin.BUILTIN[str(source)]()
        return raw, str(source), str(source), builtin.sha256(raw)
    try:
        file = Source(source)
    except InputNotFoundError as error:
        raise InputNotFoundError(f"{error}; expected a file, or the word {' or '.join(builtin.BUILTIN)}") from error
    fmt = detect(file) if fmt == "auto" else fmt
    module, function = READERS[fmt]
    raw = getattr(import_module(module), function)(file, memory)
    name = PLANETOID_FILE.fullmatch(file.path.name)[1] if fmt == "planetoid" else file.name
    return raw, name, str(file), file.sha256()


def _replace(raw, features, labels, memory, notes):
    """Take features and labels from files of their own."""
    if features is not None:
        file = Source(features)
        array, more = arrays.read_matrix(file, memory)
        _check_rows(array, raw, f"{file}: features")
        raw.features = check_features(array, raw.num_nodes, str(file))
        notes += more
    if labels is not None:
        file = Source(labels)
        array, more = arrays.read_array(file, memory)
        _check_rows(array, raw, f"{file}: labels")
        raw.labels = check_labels(array, raw.num_nodes, str(file))[0]
        notes += more


def _check_rows(array, raw, where):
    if len(array.shape) not in (1, 2) or array.shape[0] != raw.num_nodes:
        ids = "" if raw.original_ids is None else ", one for each distinct id in increasing order"
        raise DataError(f"{where} have shape {tuple(array.shape)}, expected {raw.num_nodes} rows{ids}")


def _drop_zeros(raw, unweighted, where, notes):
    """Leave out entries of weight 0: they are no edges, and do not turn a 0/1 input into a valued one."""
    if raw.values is None:
        return
    if raw.values.dtype.kind not in "fiub":
        raise DataError(f"{where}: weights have dtype {raw.values.dtype}, expected numbers")
    check_finite(raw.values, f"{where}: weight")
    kept = raw.values != 0
    zeros = kept.size - int(np.count_nonzero(kept))
    if zeros:
        raw.rows, raw.columns, raw.values = raw.rows[kept], raw.columns[kept], raw.values[kept]
        notes.append(f"{zeros} entries of weight 0 dropped")
    if unweighted:
        raw.values = None


def _refuse_irregular(raw, where):
    """Refuse self loops and duplicates, naming the first."""
    def edge(k):
        u, v = (int(ids[k]) if raw.original_ids is None else int(raw.original_ids[ids[k]])
                for ids in (raw.rows, raw.columns))
        return f"{u} -> {v}"

    loops = np.flatnonzero(raw.rows == raw.columns)
    if loops.size:
        raise DataError(f"{where}: {loops.size} self loops, the first at entry {loops[0]}: {edge(loops[0])} (--strict)")
    order = np.lexsort((raw.columns, raw.rows))
    rows, columns = raw.rows[order], raw.columns[order]
    again = order[1:][(rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])]
    if again.size:
        raise DataError(f"{where}: {again.size} duplicate edges, the first at entry {again.min()}: {edge(again.min())} "
                        "(--strict)")


def _split(raw, wanted, where):
    """Masks and how they were made: what was asked for, or the input's own."""
    if wanted is None or wanted == ("file",):
        if wanted and raw.masks is None:
            raise DataError(f"{where}: no split in the input: give --split planetoid or --split random:60/20/20")
        return raw.masks, raw.split
    if wanted == ("planetoid",) and raw.masks is not None and raw.split == "planetoid":
        return raw.masks, raw.split
    labels, _ = check_labels(raw.labels, raw.num_nodes, where)
    if wanted == ("planetoid",):
        return planetoid_split(labels, where), "planetoid"
    return random_split(labels, *wanted[1:], where), describe_split(*wanted)


def _report(graph, counts):
    """What was read, in words."""
    header = graph.header
    neighbors = np.diff(graph.indptr) + np.bincount(graph.indices, minlength=header.num_nodes)
    neighbors -= 2 * (graph.degree_loop != 0)
    notes = [
        f"{header.num_nodes} vertices, {header.num_edges} edges, {'directed' if header.directed else 'undirected'}"
        + ("" if header.all_ones else ", weighted"),
        f"{counts.duplicates} duplicates merged, {counts.loops} self loops, "
        f"{np.count_nonzero(neighbors == 0)} isolated vertices"]
    if counts.asymmetric > 0:
        notes.append(f"{counts.asymmetric} edges added to make it symmetric")
    if counts.zeros:
        notes.append(f"{counts.zeros} edges dropped whose weights sum to 0")
    if graph.original_ids is not None:
        notes.append(f"ids {graph.original_ids[0]}..{graph.original_ids[-1]} relabelled 0..{header.num_nodes - 1} in "
                     "increasing order")
    return notes

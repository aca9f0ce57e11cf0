"""What is in a file, in words: the text of `hpgcn inspect`."""
from __future__ import annotations

import os
from itertools import pairwise

import numpy as np

from hpgcn.check import SPLIT, check_range
from hpgcn.errors import printable
from hpgcn.identity import changed, signature
from hpgcn.store import words
from hpgcn.store.models import CHECKPOINT, MODEL, PREDICTIONS
from hpgcn.store.reader import Reader
from hpgcn.store.schema import GRAPH, PARTITIONED
from hpgcn.store.stored import StoredGraph

KINDS = {GRAPH: "graph", PARTITIONED: "partitioned graph", MODEL: "model", PREDICTIONS: "predictions",
         CHECKPOINT: "checkpoint"}
RESULTS = {MODEL: words.model, PREDICTIONS: words.predictions, CHECKPOINT: words.checkpoint}
HIDDEN = ("format", "format_version", "creator", "created_utc", "complete", "source_sha256")
CLASSES_SHOWN = 10
ROWS_AT_ONCE = 1 << 22


def describe(path, *, verify=False, memory=None):
    """Say what a graph, partitioned graph, model or predictions file holds.

    Parameters
    ----------
    verify : bool
        Read everything and compare every checksum; otherwise only what is looked at.
    memory : int, optional
        Bytes that may be read at once; default as in `load`.

    Returns
    -------
    str
        Aligned lines, no line feed at the end.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `load`.
    """
    reader = Reader(path, tuple(KINDS), memory=memory)
    try:
        written = f"{reader.field('created_utc', str)} by {reader.field('creator', str)}"
        rows = [("file", f"{reader.path} ({size(os.path.getsize(path))})"), ("kind", KINDS[reader.format])]
        if reader.format in (GRAPH, PARTITIONED):
            with StoredGraph(path, memory=memory) as stored:
                if signature(stored.reader.opened) != signature(reader.opened):
                    raise changed(path)
                rows += _graph(stored, reader)
                if verify:
                    stored.check_whole(_slabs(stored))
        else:
            rows += _result(reader)
        reader.verify_attributes()
        rows += [("written", written)]
        source = reader.attributes().get("source_sha256")
        if source:
            rows += [("made from", f"SHA-256 {source}")]
        rows += [("on disk", line) for line in _sizes(reader)]
        if verify:
            found = reader.distinct()
            for name in found:
                reader.verify_dataset(name)
            total = size(sum(entry.nbytes for entry in found.values()))
            rows += [("checksums", f"all match: {len(found)} datasets, {total}, and the attributes")]
        else:
            rows += [("checksums", "not all compared; --verify does")]
    finally:
        reader.close()
    return table(rows)


def _slabs(stored):
    """All rows, so many at a time that neither they nor their entries are many."""
    n, nnz = stored.header.num_nodes, stored.header.num_edges
    pointers = stored.pointers(0, n)
    cuts = np.searchsorted(pointers, np.arange(0, nnz, ROWS_AT_ONCE)), np.arange(0, n, ROWS_AT_ONCE >> 4), [0, n]
    for start, stop in pairwise(np.unique(np.concatenate(cuts)).tolist()):
        yield stored.slab(start, stop)


def size(nbytes):
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:,} bytes" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def table(rows):
    """Align (label, text) pairs; a label is shown once."""
    width = max(len(label) for label, _ in rows)
    lines, last = [], None
    for label, text in rows:
        lines.append(printable(f"{'' if label == last else label:<{width}}  {text}"))  # names come from the file
        last = label
    return "\n".join(lines)


def _graph(stored, reader):
    header = stored.header
    n, nnz = header.num_nodes, header.num_edges
    degree = np.diff(stored.pointers(0, n))
    loops = int(np.count_nonzero(reader.read("degree/loop")))
    weights = "all 1" if header.all_ones else "float32"
    rows = [
        ("name", header.name),
        ("vertices", f"{n:,}"),
        ("edges", f"{nnz:,} stored entries, {'directed' if header.directed else 'undirected'}, weights {weights}"),
        ("degrees", f"mean {nnz / n if n else 0:.2f}, max {degree.max(initial=0):,}; "
                    f"{_isolated(stored, reader, degree):,} vertices isolated, {loops:,} with a loop"),
        ("features", _features(stored, reader)),
        ("labels", _labels(stored, reader)),
        ("split", _split(stored, reader))]
    if "original_ids" in reader.entries:
        rows += [("ids", "relabelled; the input's own are kept")]
    if stored.offsets is not None:
        rows += _partition(stored, reader)
    return rows


def _isolated(stored, reader, degree):
    """Vertices without an entry in row or column, their own loop aside."""
    n = stored.header.num_nodes
    own = reader.read("degree/loop") != 0
    linked = degree > own
    if stored.header.directed:
        nnz = stored.header.num_edges
        read = np.zeros(n, np.int64)
        for start in range(0, nnz, ROWS_AT_ONCE):
            columns = reader.read("adjacency/indices_1", start, min(nnz, start + ROWS_AT_ONCE))
            check_range(columns, n, f"{reader.path}: adjacency/indices_1[{start}:]")
            read += np.bincount(columns, minlength=n)
        linked |= read > own
    return n - int(np.count_nonzero(linked))


def _features(stored, reader):
    header = stored.header
    if "features" in reader.entries:
        return f"{header.num_features:,} wide, dense float32"
    if not header.sparse_features:
        return "none"
    nnz, cells = reader.entries["features/indices_1"].rows, header.num_nodes * header.num_features
    return f"{header.num_features:,} wide, sparse, {nnz:,} stored ({nnz / cells if cells else 0:.2%})"


def _labels(stored, reader):
    c = stored.header.num_classes
    if "labels" not in reader.entries:
        return "none"
    labels = reader.read("labels")
    if labels.ndim == 2:
        counts = labels.sum(0, dtype=np.int64)
        return f"{c:,} labels per vertex (multi-label), each set {_spread(counts)} times"
    unknown = int(np.count_nonzero(labels < 0))
    check_range(np.where(labels < 0, 0, labels), max(c, 1), f"{reader.path}: labels")
    counts = np.bincount(labels[labels >= 0], minlength=c)
    each = f"of {', '.join(f'{k:,}' for k in counts)}" if c <= CLASSES_SHOWN else f"with {_spread(counts)}"
    return f"{c:,} classes {each} vertices" + (f", {unknown:,} unknown" if unknown else "")


def _split(stored, reader):
    if not stored.header.has_split:
        return "none"
    counts = [f"{key} {np.count_nonzero(reader.read(f'masks/{key}')):,}" for key in SPLIT]
    return f"{', '.join(counts)} ({stored.header.split})"


def _partition(stored, reader):
    made = stored.vertex_partition
    engine = f" by {made.engine} {made.engine_version}".rstrip() if made.engine else ""
    nonzeros = np.diff(reader.read("adjacency/pointers_to_1")[stored.offsets])
    rows = [("partition", f"{made.k:,} parts, method {made.method or 'unknown'}{engine}, seed {made.seed}, "
                          f"epsilon {made.epsilon:g}"),
            ("partition", f"rows per part {_spread(np.diff(stored.offsets), mean=True)}"),
            ("partition", f"entries per part {_spread(nonzeros, mean=True)}")]
    if "partition/edge_part" in reader.entries:
        rows += [("partition", f"vertex cut, edges per part {_spread(_edges_per_part(stored), mean=True)}")]
    for name, value in made.statistics.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
        rows += [("partition", f"{name} {text}")]
    return rows


def _edges_per_part(stored):
    """(k,) int64, counted part by part of the rows, so that few edges are in memory at once."""
    k = stored.offsets.size - 1
    blocks = zip(stored.offsets[:-1].tolist(), stored.offsets[1:].tolist())
    return sum(np.bincount(stored.edge_part(start, stop), minlength=k) for start, stop in blocks)


def _spread(counts, mean=False):
    if not counts.size:
        return "none"
    middle = f", mean {counts.mean():,.1f}" if mean else ""
    return f"min {counts.min():,}{middle}, max {counts.max():,}"


def _result(reader):
    """About what a run left behind."""
    arrays = {name: (entry.shape, entry.dtype.name) for name, entry in reader.entries.items()}
    attributes = {name: value for name, value in reader.attributes().items() if name not in HIDDEN}
    rows = RESULTS[reader.format](arrays, attributes)
    return rows + [(name, str(value)) for name, value in attributes.items()]


def _sizes(reader):
    entries = reader.distinct()
    width = max((len(name) for name in entries), default=0)
    for name in sorted(entries):
        entry = entries[name]
        packed = f" ({', '.join(entry.filters)})" if entry.filters else ""
        yield f"{name:<{width}}  {size(entry.stored):>12}{packed}"

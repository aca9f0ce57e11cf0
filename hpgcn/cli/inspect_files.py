"""Describe a file of hpgcn in text: a graph, a model, predictions or a checkpoint.

`model`, `predictions` and `checkpoint` take two arguments: the arrays of a file as name
-> (shape, dtype), and its attributes. They remove the attributes that they use. They
return the (label, text) pairs of its classes with their own.
"""

import json
import math
import os
from itertools import pairwise

import numpy as np

from hpgcn.config import Config, parse_toml
from hpgcn.errors import UsageError
from hpgcn.graphs.consistency import check_whole
from hpgcn.graphs.contents import NAMED as CALLED
from hpgcn.graphs.contents import title_targets
from hpgcn.graphs.partition import describe_nodes
from hpgcn.graphs.validation import SPLIT, check_range
from hpgcn.runtime.advice import resume_command
from hpgcn.runtime.files import changed, signature
from hpgcn.runtime.text_table import NAMED, join_first_names, label_list, table
from hpgcn.setting_words import score
from hpgcn.store.model_files import CHECKPOINT, MODEL, PREDICTIONS, SCALE
from hpgcn.store.reader import Reader
from hpgcn.store.schema import (
    CLASS_NAMES,
    FEATURE_NAMES,
    GRAPH,
    PARTITIONED,
    TARGET_NAMES,
    TARGETS,
    mask_name,
    read_names,
)
from hpgcn.store.stored import StoredGraph

KINDS = {GRAPH: "graph", PARTITIONED: "partitioned graph", MODEL: "model",
         PREDICTIONS: "predictions", CHECKPOINT: "checkpoint"}
HIDDEN = ("format", "format_version", "creator", "created_utc", "complete", "source_sha256")
CLASSES_SHOWN = 10
ROWS_AT_ONCE = 1 << 22
RANKS = "{ranks} x {threads} threads on {device}, strategy {strategy}, grid {grid}"
OF_A_CHECKPOINT = ("epoch", "graph_sha256", "ranks", "threads", "device", "strategy", "grid",
                   "max_sent_bytes", "layout_sha256")  # attributes of its provenance
# settings with their own descriptions
SAID = ("graph", "out", "model", "layers", "hidden", "dropout", "optimizer", "lr", "weight_decay",
        "decay_layers", "dtype", "seed", "epochs", "output_width", "decoder")
PREDICTED = {"value": "the predicted targets", "logits": "one score per class",
             "label": "the predicted label", "probabilities": "a probability for each class",
             "embedding": "input of the last layer", "original_ids": "ids of the input",
             "id": "the vertex's id in the input"}


def describe_file(path, *, verify=False):
    """Return aligned lines about the contents of any hpgcn file.

    With `verify` every checksum is compared.
    """
    reader = Reader(path, tuple(KINDS))
    try:
        # the contents of the file
        written = f"{reader.field('created_utc', str)} by {reader.field('creator', str)}"
        rows = [("file", f"{reader.path} ({size(os.path.getsize(path))})"),
                ("kind", KINDS[reader.format])]
        if reader.format in RESULTS:
            rows += _result(reader)
        else:
            with StoredGraph(path) as stored:
                if signature(stored.reader.opened) != signature(reader.opened):
                    raise changed(path)
                rows += _graph(stored, reader)
                if verify:
                    check_whole(stored, _slabs(stored))

        # the origin of the file, and its size on disk
        reader.verify_attributes()
        rows.append(("written", written))
        source = reader.attributes().get("source_sha256")
        if source:
            rows.append(("made from", f"SHA-256 {source}"))
        rows += [("on disk", line) for line in _sizes(reader)]
        rows.append(("checksums", _verify(reader) if verify else
                     "not all compared; use --verify"))
    finally:
        reader.close()

    return label_list(rows)


def _verify(reader):
    entries = reader.distinct()
    for name in entries:
        reader.verify_dataset(name)
    total = size(sum(entry.nbytes for entry in entries.values()))
    return f"all match: {len(entries)} datasets, {total}, and the attributes"


def _slabs(stored):
    """Yield all rows of a graph in slabs with limited numbers of rows and entries."""
    n = stored.header.num_nodes
    entries = np.arange(0, stored.header.num_edges, ROWS_AT_ONCE)
    by_entries = np.searchsorted(stored.pointers(0, n), entries)
    cuts = np.unique(np.concatenate([by_entries, np.arange(0, n, ROWS_AT_ONCE >> 4), [0, n]]))
    for start, stop in pairwise(cuts.tolist()):
        yield stored.slab(start, stop)


def size(nbytes):
    if nbytes < 1024:
        return f"{nbytes:,} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        nbytes /= 1024
        if nbytes < 1024:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:,.1f} TiB"


def _graph(stored, reader):
    # facts about the edges
    header = stored.header
    n = header.num_nodes
    nnz = header.num_edges
    degree = np.diff(stored.pointers(0, n))
    has_loop = reader.read("degree/loop") != 0
    isolated = _isolated(stored, reader, degree, has_loop)

    # what every graph has
    rows = [
        ("name", header.name),
        ("vertices", f"{n:,}"),
        ("edges", f"{nnz:,} stored entries, {'directed' if header.directed else 'undirected'}, "
                  f"weights {header.weights}"),
        ("degrees", f"mean {nnz / max(n, 1):.2f}, max {degree.max(initial=0):,}; {isolated:,} "
                    f"vertices isolated, {np.count_nonzero(has_loop):,} with a loop"),
        ("features", _features(header, reader)),
        *_feature_names(stored.feature_names),
        *_labels(stored, reader),
        ("split", _split(header, reader)),
        *((f"links of {key}", each.describe()) for key, each in (stored.links or {}).items())]

    # what some graphs have
    if header.num_edge_features:
        rows.insert(3, ("edge features", f"{header.num_edge_features:,} wide, dense float32"))
    if "original_ids" in reader.entries:
        named = reader.entries["original_ids"].dtype.kind == "S"
        rows.append(("ids", "names, which are stored" if named else
                     "relabeled; the ids of the input are stored"))
    if stored.ordered:
        rows.append(("order", "rows are reordered for caches; the original numbers are stored"))
    if stored.offsets is not None:
        rows += [("partition", text) for text in _partition(stored, reader)]

    return rows


def _isolated(stored, reader, degree, own):
    """Count the vertices without edges; self loops do not count as edges."""
    n = stored.header.num_nodes
    linked = degree > own
    if stored.header.directed:
        nnz = stored.header.num_edges
        column_degree = np.zeros(n, np.int64)
        for start in range(0, nnz, ROWS_AT_ONCE):
            columns = reader.read("adjacency/indices_1", start, min(nnz, start + ROWS_AT_ONCE))
            check_range(columns, n, f"{reader.path}: adjacency/indices_1[{start}:]")
            column_degree += np.bincount(columns, minlength=n)
        linked |= column_degree > own
    return n - int(np.count_nonzero(linked))


def _features(header, reader):
    if "features" in reader.entries:
        drawn = f", random ({header.random_features})" if header.random_features else ""
        return f"{header.num_features:,} wide, dense float32{drawn}"
    if not header.sparse_features:
        return "none"
    nnz = reader.entries["features/indices_1"].rows
    share = nnz / max(1, header.num_nodes * header.num_features)
    return f"{header.num_features:,} wide, sparse, {nnz:,} stored ({share:.2%})"


def _feature_names(names):
    return [("features", f"called {join_first_names(names)}")] if names else []


def _labels(stored, reader):
    """Return (label, text) pairs on the labels and each class with a name."""
    c = stored.header.num_classes
    if stored.header.num_targets:
        return _targets(reader.read(TARGETS), stored.target_names)
    if "labels" not in reader.entries:
        return [("labels", "none")]
    labels = reader.read("labels")
    counts = _counts(labels, c, reader.path)

    if labels.ndim == 2:
        text = f"{c:,} labels per vertex (multi-label), each set {_spread(counts)} times"
    else:
        shown = f"with {_spread(counts)}"
        if c <= CLASSES_SHOWN:
            shown = f"of {', '.join(f'{count:,}' for count in counts)}"
        unknown = np.count_nonzero(labels < 0)
        text = f"{c:,} classes {shown} vertices" + (f", {unknown:,} unknown" if unknown else "")
        drawn = stored.header.random_labels
        text += f", random ({drawn})" if drawn else ""

    return [("labels", text), *classes(stored.class_names or (), counts)]


def _targets(targets, names):
    """Return (label, text) pairs on targets (n, t): a line for each of the first."""
    titles = title_targets(names, targets.shape[1])
    rows = [("targets", f"{len(titles):,} value{'s' * (len(titles) > 1)} per vertex")]
    for title, values in zip(titles[:NAMED], targets.T):
        known = values[~np.isnan(values)]
        spread = ""
        if known.size:
            spread = f", mean {known.mean():.5g}, {known.min():.5g} to {known.max():.5g}"
        rows.append(("targets", f"{title}: {known.size:,} known{spread}"))
    more = len(titles) - NAMED
    return rows + [("targets", f"and {more:,} more")] * (more > 0)


def _counts(labels, c, where):
    """Return the number of vertices with each of c labels, (c,) int64."""
    if labels.ndim == 2:
        return labels.sum(0, dtype=np.int64)
    known = labels[labels >= 0]
    check_range(known, max(c, 1), f"{where}: labels")
    return np.bincount(known, minlength=c)


def _split(header, reader):
    splits = range(header.num_splits)
    if not splits:
        return "none"
    shown = []
    for key in SPLIT:
        counts = [np.count_nonzero(reader.read(mask_name(key, split))) for split in splits]
        least, most = min(counts), max(counts)
        shown.append(f"{key} {least:,}" + (f" to {most:,}" if least < most else ""))
    several = f"{len(splits):,} splits, each of " * (len(splits) > 1)
    return f"{several}{', '.join(shown)} ({header.split})"


def _partition(stored, reader):
    partition = stored.vertex_partition
    offsets = stored.offsets
    entries = np.diff(reader.read("adjacency/pointers_to_1")[offsets])
    yield (f"{partition.k:,} parts, method {partition.title or 'unknown'}"
           f"{' ' * bool(partition.work)}{partition.work}, "
           f"seed {partition.seed}, epsilon {partition.epsilon:g}"
           + (f", effort {partition.effort}" if partition.effort else ""))
    if partition.node_sizes:
        yield describe_nodes(partition.node_sizes)
    if partition.batch:
        yield f"for mini-batches {partition.batch}"
    yield f"rows per part {_spread(np.diff(offsets), mean=True)}"
    yield f"entries per part {_spread(entries, mean=True)}"
    if "partition/edge_part" in reader.entries:
        # counted part by part of the rows, so that few edges are in memory at once
        edges = sum(np.bincount(stored.edge_part(start, stop), minlength=partition.k)
                    for start, stop in pairwise(offsets.tolist()))
        yield f"vertex cut, edges per part {_spread(edges, mean=True)}"
    for name, value in partition.statistics.items():
        yield f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value:,}"


def _spread(counts, mean=False):
    if not counts.size:
        return "none"
    middle = f", mean {counts.mean():,.1f}" if mean else ""
    return f"min {counts.min():,}{middle}, max {counts.max():,}"


def _result(reader):
    arrays = {name: (entry.shape, "text" if entry.dtype.kind == "S" else entry.dtype.name)
              for name, entry in reader.entries.items() if name not in CALLED}
    attributes = {name: value for name, value in reader.attributes().items() if name not in HIDDEN}
    names = read_names(reader, CLASS_NAMES) or ()
    label = reader.entries.get("label")
    counts = None
    if names and label and label.dtype.kind in "iu" and label.shape[1:] in ((), (len(names),)):
        counts = _counts(reader.read("label"), len(names), reader.path)
    rows = RESULTS[reader.format](arrays, attributes, classes(names, counts))
    rows += _feature_names(read_names(reader, FEATURE_NAMES))
    rows += _scale(attributes, read_names(reader, TARGET_NAMES))
    return rows + [(name, str(value)) for name, value in attributes.items()]


def _scale(attributes, names):
    """Return (label, text) pairs on the targets of a model or of predictions."""
    if "target_mean" not in attributes:
        return [("targets", join_first_names(names))] if names else []
    mean, deviation = (np.ravel(attributes.pop(name)) for name in SCALE)
    titles = title_targets(names, mean.size)
    return [("targets", f"{title}: mean {mean[k]:.5g}, deviation {deviation[k]:.5g}")
            for k, title in enumerate(titles[:NAMED]) if k < deviation.size]


def _sizes(reader):
    """Return a line for each dataset: its name, its size and its compression."""
    rows = [(name, size(entry.stored), f"({', '.join(entry.filters)})" if entry.filters else "")
            for name, entry in sorted(reader.distinct().items())]
    return table(rows, left=(0, 2), widths=(0, 12)).split("\n") if rows else []


def classes(names, counts=None):
    """Return a (label, text) pair for each class.

    The text has the class's number of vertices, if that is known.
    """
    rows = [("classes", f"{k} {name}" + ("" if counts is None else f": {counts[k]:,} vertices"))
            for k, name in enumerate(names[:NAMED])]
    more = len(names) - len(rows)
    return rows + [("classes", f"and {more:,} more")] * bool(more)


def scores(metrics, metric):
    validation, test = (score(metrics.get(f"{key}_acc"), metric) for key in ("val", "test"))
    named = "" if metric in ("accuracy", "auto", "score") else f"{metric} "
    return f"validation {named}{validation}, test {test}"


def settings(config):
    """Return (label, text) pairs on the settings in a hpgcn.Config."""
    usual = Config(**{name: getattr(config, name) for name in SAID})
    others = [f"{name} = {value!r}" for name, value in vars(config).items()
              if value != getattr(usual, name)]

    kind = config.model
    if config.aggregator != Config.aggregator:
        kind += f"-{config.aggregator}"
    decoder = f", output width {config.output_width:,}, decoder {config.decoder}"
    decayed = "the first layer" if config.decay_layers == "first" else "all layers"

    return [
        ("model", f"{kind}, layers {config.layers:,}, hidden {config.hidden:,}, "
                  f"dropout {config.dropout:g}" + decoder * (config.task == "links")),
        ("training", f"{config.optimizer}, learning rate {config.lr:g}, weight decay "
                     f"{config.weight_decay:g} on {decayed}, {config.dtype}, seed {config.seed}, "
                     f"at most {config.epochs:,} epochs"),
        ("settings", "; ".join([*([", ".join(others)] if others else []),
                                "all other settings have their defaults"])),
        ("graph", config.graph or "in memory")]


def _settings(attributes):
    """Return (label, text) pairs on the attribute config_toml, and its Config.

    The Config is None if the attribute cannot be read.
    """
    try:
        text = str(attributes.pop("config_toml", ""))
        config = Config(**parse_toml(text.encode(), "config_toml"))
    except UsageError as error:
        return [("settings", f"cannot be read: {error}")], None
    return settings(config), config


def model(arrays, attributes, of_classes):
    rows, _ = _settings(attributes)
    return [("best epoch", f"{attributes.pop('epoch', 'unknown')}, which has the stored "
                           "weights"), *rows,
            ("trained by", f"strategy {attributes.pop('strategy', 'unknown')}"),
            *_weights(arrays, "weights", "weights"), *of_classes,
            ("next", "use hpgcn predict to apply it to a graph")]


def predictions(arrays, attributes, of_classes):
    n = next((shape[0] for shape, _ in arrays.values() if shape), 0)
    return [("vertices", f"{n:,}, in their original order"),
            ("graph", str(attributes.pop("graph", "unknown"))),
            ("by", f"the model in {attributes.pop('model', 'unknown')}"),
            *((name, f"{PREDICTED.get(name, 'unknown')}, {_size(shape)} {dtype}")
              for name, (shape, dtype) in arrays.items()), *of_classes]


def checkpoint(arrays, attributes, of_classes):
    metrics, best, installed = (_object(attributes.pop(name, ""))
                                for name in ("metrics", "best_metrics", "versions"))
    rows, config = _settings(attributes)
    out = config.out if config and config.out else "RUN"
    facts = {name: attributes.pop(name, "unknown") for name in OF_A_CHECKPOINT}
    best_epoch = attributes.pop("best_epoch", 0)
    metric = config.metric if config else "auto"
    if metric == "auto":
        metric = next((name for name in ("rmse", "auc") if f"val_{name}" in best), metric)
    memory = attributes.pop("memory", "")
    return [
        ("after epoch", f"{facts['epoch']}, loss {metrics.get('loss', 'unknown')}"),
        ("best epoch", f"{best_epoch}, {scores(best, metric)}" if best_epoch else "none so far"),
        *rows,
        ("data", f"SHA-256 {facts['graph_sha256']}"),
        ("ranks", RANKS.format_map(facts) + f", memory {memory}" * bool(memory)),
        *_weights(arrays, "weights", "weights"), *_weights(arrays, "best", "best weights"),
        *_weights(arrays, "optimizer", "optimizer"), *_lasting(arrays),
        ("versions", versions(installed)),
        ("next", f"{resume_command(config and config.graph, out, facts['ranks'])} continues")]


def versions(installed):
    if not isinstance(installed, dict):
        return "unknown"
    return ", ".join(f"{name} {value}" for name, value in installed.items()) or "unknown"


def _weights(arrays, group, label):
    inside = {name.partition("/")[2]: array for name, array in arrays.items()
              if name.startswith(f"{group}/")}
    if not inside:
        return []
    count = sum(math.prod(shape) for shape, _ in inside.values())
    shapes = ", ".join(f"{name} {_size(shape)}" for name, (shape, _) in inside.items())
    dtypes = ", ".join(sorted({dtype for _, dtype in inside.values()}))
    return [(label, f"{count:,} numbers ({dtypes}): {shapes}")]


def _lasting(arrays):
    return [("earlier steps", f"{_size(arrays['lasting'][0])} numbers on all ranks that later "
                              "steps read")] if "lasting" in arrays else []


def _size(shape):
    return " x ".join(f"{length:,}" for length in shape) or "1"


def _object(text):
    """Parse a JSON object; return {} if the text is not one."""
    try:
        values = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


RESULTS = {MODEL: model, PREDICTIONS: predictions, CHECKPOINT: checkpoint}

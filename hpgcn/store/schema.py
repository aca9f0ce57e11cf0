"""Check names, dtypes and shapes of all arrays in a graph file before any is read.

Names of classes and features are a dataset of text, (c,), in files of graphs, models
and predictions.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.graphs.contents import NAMED, check_names
from hpgcn.graphs.header import Header
from hpgcn.graphs.links import ARRAYS
from hpgcn.graphs.validation import (
    MAX_NAME,
    MAX_SPLITS,
    MAX_TARGETS,
    MAX_WIDTH,
    SPLIT,
    most_classes,
)
from hpgcn.store.csr_arrays import expect_csr

if TYPE_CHECKING:
    from hpgcn.store.reader import Reader
    from hpgcn.store.writer import Writer

GRAPH = "hpgcn-graph"
PARTITIONED = "hpgcn-partitioned-graph"
CLASS_NAMES, FEATURE_NAMES, TARGET_NAMES = NAMED
TARGETS = "targets"
EDGE_FEATURES = "adjacency/edge_features"
LINKS = "links"
DEGREES = ("row", "column", "loop")
ORDER = "order/perm"  # new -> original row, in graphs without parts
PARTITION_FIELDS = {
    "method": str, "engine": str, "engine_version": str, "seed": int, "epsilon": float}
# attributes of a partition that older files and some methods lack
PARTITION_OPTIONS = {
    "batch": str, "winner": str, "effort": str, "divided": str, "start": str, "seconds": float}


def mask_name(key: str, split: int) -> str:
    """Return the name of a mask's dataset; split 0 has that of files with one split."""
    return f"masks/{split}/{key}" if split else f"masks/{key}"


def read_header(reader: Reader) -> Header:
    """Check dtype and shape of every dataset in an open file; return its Header."""
    # read sizes and names, whose checksum is verified below
    n, num_edges, f, c = (reader.field(f"num_{name}", int)
                          for name in ("nodes", "edges", "features", "classes"))
    name, sha256, split = (reader.field(name, str)
                           for name in ("source_name", "source_sha256", "split"))
    base = reader.field("base", int) if "base" in reader.attributes() else 0
    directed = reader.field("directed", int) == 1
    reader.verify_attributes()

    most = max(most_classes(n), MAX_WIDTH)
    for kind, number, limit in (("features", f, MAX_WIDTH), ("classes", c, most)):
        if number > limit:
            raise reader.error(f"/: attribute num_{kind} is {number}, expected at most {limit}")

    # check the datasets whose shapes follow from the sizes
    ones, nnz = expect_csr(reader, "adjacency", (n, n))
    if nnz != num_edges:
        raise reader.error(f"adjacency has {nnz} entries, but num_edges is {num_edges}")
    num_edge_features = _expect_edge_features(reader, nnz)
    sparse = _expect_features(reader, n, f)
    multilabel = _expect_labels(reader, n, c)
    num_targets = _expect_targets(reader, n)
    num_splits = _expect_masks(reader, n)
    _expect_links(reader)
    for degree in DEGREES:
        reader.expect(f"degree/{degree}", (n,), np.float64)

    # check optional datasets
    if "original_ids" in reader.entries:
        text = reader.entries["original_ids"].dtype
        kinds = [np.int64] if text.kind != "S" or text.itemsize > MAX_NAME else [text]
        reader.expect("original_ids", (n,), *kinds)
    if reader.format == GRAPH and ORDER in reader.entries:
        reader.expect(ORDER, (n,), np.int64)

    # make the name safe to print and to use in file names
    name = "".join(letter if letter.isprintable() and letter not in "/\\" else "_"
                   for letter in name)

    # read optional attributes
    random = {name: reader.field(name, str) if name in reader.attributes() else ""
              for name in ("random_features", "random_labels")}
    parallel = "parallel_edges" in reader.attributes() and reader.field("parallel_edges", int) == 1
    return Header(name, n, nnz, f, c, directed, ones, multilabel, sparse, num_splits, split,
                  sha256, base, parallel and not ones, **random,
                  num_edge_features=num_edge_features, num_targets=num_targets)


def _expect_features(reader: Reader, n: int, f: int) -> bool:
    """Check the datasets of features; return whether they are sparse."""
    sparse = "features/pointers_to_1" in reader.entries
    if sparse:
        expect_csr(reader, "features", (n, f))
        reader.expect("features/values", (None,), np.float32)
    elif "features" in reader.entries:
        reader.expect("features", (n, f), np.float32)
    elif f:
        raise reader.error(f"dataset features is missing, but num_features is {f}")
    return sparse


def _expect_edge_features(reader: Reader, nnz: int) -> int:
    """Check the dataset of edge features; return its number of columns, 0 without it."""
    if EDGE_FEATURES not in reader.entries:
        return 0
    width = reader.expect(EDGE_FEATURES, (nnz, None), np.float32).shape[1]
    if not 1 <= width <= MAX_WIDTH:
        raise reader.error(f"{EDGE_FEATURES} has {width} columns, expected 1 to {MAX_WIDTH}")
    return width


def _expect_labels(reader: Reader, n: int, c: int) -> bool:
    """Check the dataset of labels; return whether vertices may have several labels."""
    labels = reader.entries.get("labels")
    if labels is None:
        if c:
            raise reader.error(f"dataset labels is missing, but num_classes is {c}")
        return False
    multilabel = len(labels.shape) == 2
    if multilabel:
        reader.expect("labels", (n, c), np.float32)
    else:
        reader.expect("labels", (n,), np.int64)
    return multilabel


def _expect_targets(reader: Reader, n: int) -> int:
    """Check the dataset of targets; return its number of columns, 0 without it."""
    if TARGETS not in reader.entries:
        return 0
    if "labels" in reader.entries:
        raise reader.error("has datasets labels and targets, expected one of them")
    width = reader.expect(TARGETS, (n, None), np.float64).shape[1]
    if not 1 <= width <= MAX_TARGETS:
        raise reader.error(f"{TARGETS} has {width} columns, expected 1 to {MAX_TARGETS}")
    return width


def _expect_masks(reader: Reader, n: int) -> int:
    """Check the datasets of masks; return the number of splits."""
    masked = any(mask_name(key, 0) in reader.entries for key in SPLIT)
    count = int(masked)
    if "num_splits" in reader.attributes():  # several splits
        count = reader.field("num_splits", int)
        if not masked <= count <= MAX_SPLITS:
            raise reader.error(f"/: attribute num_splits is {count}, expected 1 to {MAX_SPLITS}")
    for split in range(count):
        for key in SPLIT:
            reader.expect(mask_name(key, split), (n,), np.uint8)
    return count


def link_name(key: str, field: str) -> str:
    """Return the name of the dataset of a field of the links of a set."""
    return f"{LINKS}/{key}/{field}"


def _expect_links(reader: Reader) -> None:
    """Check the datasets of links."""
    names = {name for name in reader.entries if name.startswith(f"{LINKS}/")}
    for key in SPLIT:
        positive, negative, targets, weight = (link_name(key, field) for field in ARRAYS)
        if not names & {positive, negative, targets, weight}:
            continue
        k = reader.expect(positive, (None, 2), np.int64).rows
        for name, shape, dtype in ((negative, (None, 2), np.int64), (targets, (k, None), np.int64),
                                   (weight, (k,), np.float32)):
            if name in names:
                reader.expect(name, shape, dtype)
        if negative in names and targets in names:
            raise reader.error(f"has datasets {negative} and {targets}, expected one of them")


def read_offsets(reader: Reader, header: Header) -> np.ndarray:
    """Check the shapes of a partition; return the first row of each part, and the end.

    The result is (k + 1,) int64.
    """
    n = header.num_nodes
    k = reader.field("k", int, "/partition")
    reader.expect("partition/offsets", (k + 1,), np.int64)
    for name, dtype in (("part", np.int32), ("perm", np.int64), ("iperm", np.int64)):
        reader.expect(f"partition/{name}", (n,), dtype)
    if "partition/edge_part" in reader.entries or "partition/owner" in reader.entries:
        reader.expect("partition/edge_part", (header.num_edges,), np.int32)
        owner = reader.expect("partition/owner", (n,), np.int32)
        if owner.address != reader.entries["partition/part"].address:
            raise reader.error("partition/owner is a separate dataset, expected a hard link to "
                               "partition/part")

    offsets = reader.read("partition/offsets")
    wrong = np.diff(offsets, prepend=0) < 0
    wrong[[0, -1]] |= offsets[[0, -1]] != [0, n]
    if wrong.any():
        i = int(np.argmax(wrong))
        raise reader.error(f"partition/offsets[{i}] is {offsets[i]}, expected offsets that rise "
                           f"from 0 to {n}")
    return offsets


def node_fields(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the HDF5 attributes with the number of parts of each node; {} for ()."""
    uneven = len(set(sizes)) > 1
    return {"nodes": len(sizes) or None,
            "ranks_per_node": ",".join(map(str, sizes)) if uneven else None}


def read_node_sizes(reader: Reader, k: int) -> tuple[int, ...]:
    """Return the parts of each node, a tuple of int; () if the file names no nodes.

    DataError unless they are whole numbers from 1 whose sum is k.
    """
    attributes = reader.attributes("/partition")
    if "nodes" not in attributes:
        return ()
    nodes = reader.field("nodes", int, "/partition")
    text = ""
    if "ranks_per_node" in attributes:
        text = reader.field("ranks_per_node", str, "/partition")
    if not text:
        if not 1 <= nodes <= k or k % nodes:
            raise reader.error(f"/partition: attribute nodes is {nodes}, expected a divisor of the "
                               f"{k} parts")
        return (k // nodes,) * nodes
    sizes = tuple(int(each) if each.isdecimal() and len(each) < 10 else 0
                  for each in text.split(","))
    if len(sizes) != nodes or min(sizes) < 1 or sum(sizes) != k:
        raise reader.error(f"/partition: attribute ranks_per_node is {text!r:.80}, expected "
                           f"{nodes} numbers from 1 with sum {k}")
    return sizes


def read_names(reader: Reader, field: str, count: int | None = None) -> tuple[str, ...] | None:
    """Return the names of `field` in an open file, a tuple of str (c,), or None.

    `field` is one of NAMED. DataError unless names are distinct text, `count` of them;
    None means any number.
    """
    entry = reader.entries.get(field)
    if entry is None:
        return None
    if entry.dtype.kind != "S" or entry.dtype.itemsize > MAX_NAME:
        raise reader.error(f"{field} has dtype {entry.dtype.name}, expected text of at most "
                           f"{MAX_NAME} bytes")
    reader.expect(field, (count,), entry.dtype)
    names = reader.read(field).tolist()
    return check_names(field, names, len(names), len(names), reader.path)


def write_names(writer: Writer, named: dict[str, Any]) -> None:
    """Write the names of each field of `named`, a dict by NAMED; do nothing for None."""
    for field, names in named.items():
        if names is not None:
            writer.dataset(field, np.array(names))

"""What a graph file must hold: names, dtypes and shapes, checked before any array is read."""
from __future__ import annotations

import numpy as np

from hpgcn.check import MAX_WIDTH, SPLIT, most_classes
from hpgcn.errors import DataError
from hpgcn.graph import Header
from hpgcn.store.csr import expect_csr

GRAPH, PARTITIONED = "hpgcn-graph", "hpgcn-partitioned-graph"
DEGREES = ("row", "column", "loop")
PARTITION_FIELDS = {"method": str, "engine": str, "engine_version": str, "seed": int, "epsilon": float}


def read_header(reader):
    """Return the Header of an open file, once its attributes, and dtype and shape of every dataset, are found right.

    Raises
    ------
    DataError
        Something is missing, of another dtype or shape, or contradicts the attributes.
    StorageError
        The checksum of the attributes does not match.
    """
    numbers = {name: reader.field(name, int) for name in ("num_nodes", "num_edges", "num_features", "num_classes")}
    texts = {name: reader.field(name, str) for name in ("source_name", "source_sha256", "split")}
    directed = reader.field("directed", int) == 1
    reader.verify_attributes()
    n, f, c = numbers["num_nodes"], numbers["num_features"], numbers["num_classes"]
    for name, most in (("num_features", MAX_WIDTH), ("num_classes", max(most_classes(n), MAX_WIDTH))):
        if numbers[name] > most:
            raise DataError(f"{reader.path}: /: attribute {name} is {numbers[name]}, expected at most {most}")
    ones, nnz = expect_csr(reader, "adjacency", (n, n))
    if nnz != numbers["num_edges"]:
        raise DataError(f"{reader.path}: adjacency has {nnz} entries, but num_edges is {numbers['num_edges']}")
    sparse = "features/pointers_to_1" in reader.entries
    if sparse:
        expect_csr(reader, "features", (n, f))
        reader.expect("features/values", (None,), np.float32)
    elif "features" in reader.entries:
        reader.expect("features", (n, f), np.float32)
    elif f:
        raise DataError(f"{reader.path}: dataset features is missing, but num_features is {f}")
    multilabel = "labels" in reader.entries and len(reader.entries["labels"].shape) == 2
    if multilabel:
        reader.expect("labels", (n, c), np.float32)
    elif "labels" in reader.entries:
        reader.expect("labels", (n,), np.int64)
    elif c:
        raise DataError(f"{reader.path}: dataset labels is missing, but num_classes is {c}")
    split = any(f"masks/{key}" in reader.entries for key in SPLIT)
    for key in SPLIT if split else ():
        reader.expect(f"masks/{key}", (n,), np.uint8)
    for name in DEGREES:
        reader.expect(f"degree/{name}", (n,), np.float64)
    if "original_ids" in reader.entries:
        reader.expect("original_ids", (n,), np.int64)
    return Header(_plain_name(texts["source_name"]), n, nnz, f, c, directed, ones, multilabel, sparse, split,
                  texts["split"], texts["source_sha256"])


def read_offsets(reader, header):
    """Return where the parts of a partitioned graph begin, (k + 1,) int64, once all of its partition is of right shape.

    Raises
    ------
    DataError
        Something is missing or of another dtype or shape; offsets that do not rise from 0 to n.
    """
    n, k = header.num_nodes, reader.field("k", int, "/partition")
    reader.expect("partition/offsets", (k + 1,), np.int64)
    for name, dtype in (("part", np.int32), ("perm", np.int64), ("iperm", np.int64)):
        reader.expect(f"partition/{name}", (n,), dtype)
    if "partition/edge_part" in reader.entries or "partition/owner" in reader.entries:
        reader.expect("partition/edge_part", (header.num_edges,), np.int32)
        owner = reader.expect("partition/owner", (n,), np.int32)
        if owner.address != reader.entries["partition/part"].address:
            raise DataError(f"{reader.path}: partition/owner is a dataset of its own, expected another name of "
                            "partition/part")
    offsets = reader.read("partition/offsets")
    wrong = np.diff(offsets, prepend=0) < 0
    wrong[[0, -1]] |= offsets[[0, -1]] != [0, n]
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(f"{reader.path}: partition/offsets[{i}] is {offsets[i]}, expected offsets that rise "
                        f"from 0 to {n}")
    return offsets


def _plain_name(name):
    """A name that is safe to print, and as part of a file name."""
    return "".join(letter if letter.isprintable() and letter not in "/\\" else "_" for letter in name)

"""Read and validate rows of the arrays in an open graph file.

`reader` is the Reader of the file, `header` its Header; the rows are [start, stop).
Invalid data raises a DataError that names file, dataset and index.
"""
from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.validation import ALL, LARGEST_TARGET, SPLIT, check_csr, first_true
from hpgcn.store.csr_arrays import all_finite, read_csr
from hpgcn.store.schema import DEGREES, ORDER, TARGETS, mask_name

if TYPE_CHECKING:
    from hpgcn.graphs.header import Header
    from hpgcn.store.reader import Reader

DENSE = ("features", "labels", TARGETS, "original_ids", "partition/perm", ORDER,
         *(f"degree/{name}" for name in DEGREES))


def check_rows(reader: Reader, header: Header, start: int, stop: int) -> None:
    """Raise DataError for rows outside of the file."""
    if not 0 <= start <= stop <= header.num_nodes:
        raise reader.error(f"rows {start}..{stop} requested, but the file has "
                           f"0..{header.num_nodes}")


def reserve_rows(reader: Reader, header: Header, start: int, stop: int, num_splits: int) -> None:
    """Raise DataError if the rows [start, stop) of all datasets exceed the memory budget."""
    entries = reader.entries
    need = sum((stop - start) * entries[name].row_bytes for name in DENSE if name in entries)
    need += (stop - start) * num_splits * len(SPLIT)
    for group in ["adjacency"] + ["features"] * header.sparse_features:
        entry = entries[f"{group}/indices_1"]
        first, last = read_ends(reader, group, start, stop)
        # limit wrong pointers, which `read_csr` refuses later
        nnz = max(0, min(last, entry.rows) - max(first, 0))
        values = 0 if group == "adjacency" and header.all_ones else 4
        need += nnz * (entry.row_bytes + values) + (stop + 1 - start) * 8
    reader.reserve(need, f"rows {start}..{stop}")


def read_ends(reader: Reader, group: str, start: int, stop: int) -> list[int]:
    """Return the row pointers at `start` and at `stop` of a CSR group."""
    name = f"{group}/pointers_to_1"
    return [int(reader.read(name, row, row + 1)[0]) for row in (start, stop)]


def read_pointers(reader: Reader, start: int, stop: int) -> np.ndarray:
    """Read row pointers of the adjacency, (m + 1,) int64."""
    pointers = reader.read("adjacency/pointers_to_1", start, stop + 1)
    if (k := first_true(np.diff(pointers, prepend=0) < 0)) is not None:
        before = pointers[k - 1] if k else 0
        raise reader.error(f"adjacency: row pointers decrease from {before} to {pointers[k]} at "
                           f"row {start + max(k - 1, 0)}")
    return pointers


def read_degrees(reader: Reader, start: int, stop: int) -> dict[str, Any]:
    """Read row sums, column sums and weights of self loops, a dict of (m,) float64."""
    return {name: read_finite(reader, f"degree/{name}", start, stop) for name in DEGREES}


def read_features(reader: Reader, header: Header, start: int, stop: int) -> Any:
    """Read features, (m, f) float32, an array or a csr_array; None without features."""
    if "features" in reader.entries:
        return read_finite(reader, "features", start, stop)
    if not header.sparse_features:
        return None
    f = header.num_features
    features = sp.csr_array((stop - start, f), dtype=np.float32)
    features.indptr, features.indices, features.data = read_csr(
        reader, "features", start, stop, header.num_nodes, f, False)
    return features


def read_feature_pointers(reader: Reader, header: Header) -> np.ndarray | None:
    """Read all row pointers of sparse features, (n + 1,) int64; None without sparse features."""
    if not header.sparse_features:
        return None
    pointers = reader.read("features/pointers_to_1")
    check_csr(pointers, np.empty(0, np.int32), reader.entries["features/indices_1"].rows,
              header.num_features, f"{reader.path}: features")
    return pointers


def read_labels(reader: Reader, header: Header, start: int, stop: int) -> np.ndarray | None:
    """Read labels, (m,) int64 or (m, t) float32; None without labels."""
    if "labels" not in reader.entries:
        return None
    labels = reader.read("labels", start, stop)
    if labels.ndim == 2:
        refuse_where(reader, (labels != 0) & (labels != 1), start, "labels", "is neither 0 nor 1")
    else:
        c = header.num_classes
        refuse_where(reader, (labels < -1) | (labels >= c), start, "labels",
                     f"is outside 0..{c - 1}, and not -1 (unknown)")
    return labels


def read_targets(reader: Reader, start: int, stop: int) -> np.ndarray | None:
    """Read targets, (m, t) float64 with NaN for unknown; None without targets."""
    if TARGETS not in reader.entries:
        return None
    targets = reader.read(TARGETS, start, stop)
    refuse_where(reader, np.abs(targets) > LARGEST_TARGET, start, TARGETS,
                 f"is infinite, or larger than {LARGEST_TARGET:g}")
    return targets


def read_masks(reader: Reader, header: Header, start: int, stop: int, splits: list[int] | range,
               labels: np.ndarray | None = None) -> dict[str, np.ndarray] | None:
    """Read the masks of some splits like `Graph.masks`; None if `splits` is empty.

    With labels (m,), a vertex without a label must be in no mask.
    """
    if not splits:
        return None
    read = [_read_split(reader, header, start, stop, split, labels) for split in splits]
    if len(read) == 1:
        return read[0]
    return {key: np.stack([masks[key] for masks in read], axis=1) for key in SPLIT}


def _read_split(reader: Reader, header: Header, start: int, stop: int, split: int,
                labels: np.ndarray | None) -> dict[str, np.ndarray]:
    names = {key: mask_name(key, split) for key in SPLIT}
    masks = {key: reader.read(name, start, stop) for key, name in names.items()}
    for key, mask in masks.items():
        refuse_where(reader, mask > 1, start, names[key], "is neither 0 nor 1")
    for a, b in combinations(SPLIT, 2):
        if header.split == ALL:
            refuse_where(reader, masks[a] != masks[b], start, names[a],
                         f"differs from {names[b]}, which split all has not")
        else:
            refuse_where(reader, (masks[a] & masks[b]) > 0, start, names[a],
                         f"is set, and in {names[b]} too")
    masks = {key: mask.view(bool) for key, mask in masks.items()}
    if labels is not None and labels.ndim == 1:
        for key, mask in masks.items():
            refuse_where(reader, mask & (labels < 0), start, names[key],
                         "is set, but the vertex has no label")
    return masks


def read_numbers(reader: Reader, name: str, start: int, stop: int, end: int) -> np.ndarray:
    """Read integers; DataError unless all are in [0, end)."""
    array = reader.read(name, start, stop)
    refuse_where(reader, (array < 0) | (array >= end), start, name, f"is outside 0..{end - 1}")
    return array


def read_finite(reader: Reader, name: str, start: int, stop: int) -> np.ndarray:
    """Read numbers; DataError for NaN and Inf."""
    array = reader.read(name, start, stop)
    if not all_finite(array):
        refuse_where(reader, ~np.isfinite(array), start, name, "is not a finite number")
    return array


def refuse_where(reader: Reader, wrong: np.ndarray, start: int, name: str, problem: str) -> None:
    """Raise DataError for the first True in `wrong`, (m,) or (m, w), from row `start` on."""
    if wrong.any():
        row, *rest = map(int, np.unravel_index(np.argmax(wrong), wrong.shape))
        place = ", ".join(map(str, (row + start, *rest)))
        raise reader.error(f"{name}[{place}] {problem}")

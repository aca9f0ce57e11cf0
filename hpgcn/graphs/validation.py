"""Check graphs before kernels trust them; errors name the first invalid entry."""
from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, UsageError, warn
from hpgcn.graphs.classes import targets_hint
from hpgcn.graphs.edge_weights import count_rounded
from hpgcn.runtime.machine import memory_budget

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SPLIT = ("train", "val", "test")
ALL = "all"  # the split in which all three masks have every labeled vertex
MAX_WIDTH = 1 << 24
MAX_SPLITS = 1000
MAX_TARGETS = 4096
LARGEST_TARGET = 1e100  # sums of squares of larger ones would overflow
VERTEX_BYTES = 48  # memory of a graph per vertex, without features and labels
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f]")  # control characters except the tab
MAX_NAME = 1000  # bytes of a name in UTF-8
INT32_MAX = int(np.iinfo(np.int32).max)  # larger numbers take 64 bits


def index_dtype(n: int) -> np.dtype:
    """Return int32 if column numbers below n and row pointers up to n fit it, else int64."""
    return np.dtype(np.int32 if n <= INT32_MAX else np.int64)


def first_true(wrong: np.ndarray) -> int | None:
    """Return the position of the first True of (k,) bool; None if all are False."""
    places = np.flatnonzero(wrong)
    return int(places[0]) if places.size else None


def check_csr(indptr: np.ndarray, indices: np.ndarray, nnz: int, num_columns: int, where: str,
              first_row: int = 0) -> None:
    """Refuse an invalid CSR, because kernels trust it; name its first invalid entry.

    `indptr`, (m + 1,), must end at `nnz`. It is relative to the first row checked, or
    absolute. `indices` are the entries from indptr[0] on.
    """
    # row pointers rise from 0 to the number of entries
    if indptr.ndim != 1 or indptr.size < 1:
        raise DataError(f"{where}: row pointers have shape {indptr.shape}, expected (n + 1,)")
    if first_row == 0 and indptr[0] != 0:
        raise DataError(f"{where}: row pointers start at {indptr[0]}, expected 0")
    if (row := first_true(indptr[1:] < indptr[:-1])) is not None:
        raise DataError(f"{where}: row pointers decrease from {indptr[row]} to {indptr[row + 1]} "
                        f"at row {first_row + row}")
    if indptr[-1] != nnz:
        raise DataError(f"{where}: row pointers end at {indptr[-1]}, but there are {nnz} entries")

    # columns lie inside the matrix
    if indices.size and not 0 <= indices.min() <= indices.max() < num_columns:
        k = first_true((indices < 0) | (indices >= num_columns))
        raise DataError(f"{where}: entry {int(indptr[0]) + k} has column {indices[k]}, "
                        f"expected 0..{num_columns - 1}")

    # columns increase within each row
    rises = indices[1:] > indices[:-1]
    starts = indptr[1:-1] - indptr[0]
    starts = starts[(starts > 0) & (starts < indices.size)]
    rises[starts - 1] = True  # a row may begin anywhere
    if not rises.all():
        k = first_true(~rises) + 1
        row = first_row + int(np.searchsorted(indptr - indptr[0], k, side="right")) - 1
        raise DataError(f"{where}: row {row} has column {indices[k]} after {indices[k - 1]}: "
                        "columns must increase, without duplicates")


def check_csr_arrays(indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int],
                     where: str) -> None:
    """Refuse an invalid CSR like `check_csr`, but accept columns in any order."""
    for key, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(f"{where} {key}: dtype {array.dtype} and shape {array.shape}, "
                            "expected integers (k,)")
    if indptr.size != shape[0] + 1:
        raise DataError(f"{where} indptr: {indptr.size} row pointers, "
                        f"expected {shape[0] + 1} for {shape[0]} rows")
    check_csr(indptr, indices[:0], indices.size, shape[1], f"{where} indptr")
    check_range(indices, shape[1], f"{where} indices")


def check_range(numbers: np.ndarray, stop: int, where: str, hint: str = "") -> None:
    """Refuse integers outside [0, stop); the error names the first of them."""
    if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= stop):
        k = int(np.flatnonzero((numbers < 0) | (numbers >= stop))[0])
        raise DataError(f"{where}: entry {k} is {numbers[k]}, expected 0..{stop - 1}{hint}")


def check_sparse(A: Any, where: str) -> None:
    """Refuse a SciPy sparse matrix with values that are not numbers, or with invalid indices."""
    if A.dtype.kind not in "fiub":
        raise DataError(f"{where} have dtype {A.dtype}, expected numbers")
    if A.format in ("csr", "csc", "bsr"):
        shape = A.shape
        if A.format == "csc":
            shape = A.shape[::-1]
        elif A.format == "bsr":
            shape = tuple(size // block for size, block in zip(A.shape, A.blocksize))
        check_csr_arrays(A.indptr, A.indices, shape, where)
        if A.data.shape[0] != A.indices.size:
            raise DataError(f"{where} data: {A.data.shape[0]} values, expected {A.indices.size}")
    elif A.format == "coo":
        for axis, numbers in enumerate(A.coords):
            if numbers.shape != A.data.shape:
                raise DataError(f"{where} coords[{axis}]: shape {numbers.shape}, "
                                f"expected {A.data.shape}")
            check_range(numbers, A.shape[axis], f"{where} coords[{axis}]")


def check_adjacency(A: Any, name: str) -> Any:
    """Return a square matrix as coo_array; refuse other shapes and values that are not numbers."""
    A = A if sp.issparse(A) else _as_array(A, f"{name}: adjacency")
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise DataError(f"{name}: adjacency has shape {A.shape}, expected a square matrix")
    if A.dtype.kind not in "fiub":
        raise DataError(f"{name}: adjacency has dtype {A.dtype}, expected numbers")
    check_num_vertices(A.shape[0], name)
    if sp.issparse(A):
        check_sparse(A, f"{name}: adjacency")
        return sp.coo_array(A)
    return sp.coo_array(A.astype(np.float64))  # SciPy takes no float16 and no foreign byte order


def check_num_vertices(n: int, name: str) -> None:
    """Refuse a graph without vertices, or with more than the memory can hold."""
    if not n:
        raise DataError(f"{name}: no vertices")
    need, budget = VERTEX_BYTES * n, memory_budget()
    if need > budget:
        raise DataError(f"{name}: {n} vertices: needs {need / 1e9:,.0f} GB of memory, but the "
                        f"limit is {budget / 1e9:,.1f} GB. If vertex numbers are ids with gaps, "
                        "number them first: np.unique(edge_index, return_inverse=True)")


def count_rows(features: Any, labels: Any, edge_index: ArrayLike, name: str) -> int | None:
    """Return the number of rows of the features, or else of the labels; None without both.

    Warn if there are more rows than the highest vertex number and 1.
    """
    for kind, array in (("features", features), ("labels", labels)):
        if array is not None and np.shape(array):
            count = np.shape(array)[0]
            edges = _as_array(edge_index, f"{name}: edge_index")
            if edges.size and edges.dtype.kind in "iu" and edges.max() < count - 1:
                warn(f"{name}: {kind} have {count} rows, but the highest vertex number is "
                     f"{edges.max()}: the last vertices have no edges (num_nodes={count} says so)")
            return count
    return None


def check_edges(edge_index: Any, edge_weight: Any, num_nodes: Any, name: str) -> tuple:
    """Check edges; return sources, targets, weights, (e,) each, and the number of vertices."""
    edges, weights = check_edge_arrays(edge_index, edge_weight, name)
    low, high = (int(edges.min()), int(edges.max())) if edges.size else (0, -1)

    # number of vertices: the largest number plus 1 unless their count is given
    if num_nodes is None:
        num_nodes = min(high + 1, np.iinfo(np.int64).max)
        if low == 1:
            warn(f"{name}: ids begin at 1, and vertex 0 is in no edge: pass edge_index - 1")
    elif (not isinstance(num_nodes, (int, np.integer)) or isinstance(num_nodes, bool)
          or not 0 <= num_nodes < 1 << 63):
        raise DataError(f"{name}: num_nodes is {num_nodes!r}, expected an integer from 0")

    hint = "; ids begin at 1: pass edge_index - 1" if low == 1 and high == num_nodes else ""
    for row, numbers in enumerate(edges):
        check_range(numbers, num_nodes, f"{name}: edge_index row {row}", hint)
    check_num_vertices(num_nodes, name)
    return *edges.astype(np.int64, copy=False), weights, int(num_nodes)


def check_edge_arrays(edge_index: ArrayLike, edge_weight: ArrayLike,
                      name: str) -> tuple[np.ndarray, np.ndarray]:
    """Check dtypes and shapes of edges; return their ends (2, e) and their weights (e,)."""
    where = f"{name}: edge_index"
    edges = _as_array(edge_index, where)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{where} has dtype {edges.dtype} and shape {edges.shape}, "
                        "expected integers (2, e)")

    # weights, all 1 unless some are given
    num_edges = edges.shape[1]
    weights = np.ones(num_edges, np.uint8)
    if edge_weight is not None:
        weights = _as_array(edge_weight, f"{name}: edge_weight")
        if weights.shape not in ((num_edges,), (num_edges, 1)) or weights.dtype.kind not in "fiub":
            raise DataError(f"{name}: edge_weight has dtype {weights.dtype} and shape "
                            f"{weights.shape}, expected numbers ({num_edges},)")
        weights = weights.reshape(-1).astype(np.float64)
        check_finite(weights, f"{name}: edge_weight")
    return edges, weights


def check_finite(array: np.ndarray, where: str) -> None:
    """Refuse NaN and Inf; the error names the first position."""
    finite = np.isfinite(array)
    if not finite.all():
        position = tuple(int(i) for i in np.argwhere(~finite)[0])
        place = position[0] if len(position) == 1 else position
        raise DataError(f"{where} at {place} is {array[position]}, expected a finite number")


def check_features(X: Any, n: int, name: str) -> Any:
    """Check features; return them as float32, dense in C order or CSR."""
    # refuse wrong shapes and types
    if X is None:
        return None
    X = X if sp.issparse(X) else _as_array(X, f"{name}: features")
    if len(X.shape) != 2 or X.shape[0] != n or X.shape[1] > MAX_WIDTH:
        raise DataError(f"{name}: features have shape {tuple(X.shape)}, expected ({n}, f), "
                        f"f at most {MAX_WIDTH}")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{name}: features have dtype {X.dtype}, expected numbers")

    # sparse features: sorted, without zeros, indices as narrow as they can be
    with np.errstate(over="ignore"):
        if sp.issparse(X):
            check_sparse(X, f"{name}: features")
            X = sp.csr_array(X)
            _warn_of_rounding(X.data, name)
            X = X.astype(np.float32)
            X.sum_duplicates()
            X.eliminate_zeros()
            X.indices = X.indices.astype(index_dtype(X.shape[1]))
            X.indptr = X.indptr.astype(np.int64)
            if (k := first_true(~np.isfinite(X.data))) is not None:
                row = int(np.searchsorted(X.indptr, k, side="right")) - 1
                raise DataError(f"{name}: feature at ({row}, {X.indices[k]}) is {X.data[k]}, "
                                "expected a finite number")
            return X

        # dense features
        _warn_of_rounding(X, name)
        X = np.ascontiguousarray(X, np.float32)
    check_finite(X, f"{name}: feature")
    return X


def _warn_of_rounding(X: np.ndarray, name: str) -> None:
    """Warn of whole numbers beyond 2^24 among features, which float32 rounds."""
    if X.dtype.kind in "iu" and (lost := count_rounded(X)):
        warn(f"{name}: {lost} features are beyond 2^24, so float32 rounds them: are they times or "
             "ids?")


def check_labels(y: Any, n: int, name: str) -> tuple:
    """Check labels; return them as int64 (n,) or float32 (n, t), and the number of classes.

    NaN among labels (n,) or (n, 1) means unlabeled, like -1.
    """
    # refuse wrong shapes and types
    if y is None:
        return None, 0
    y = _as_array(y, f"{name}: labels")
    if y.shape[:1] != (n,) or y.ndim > 2:
        raise DataError(f"{name}: labels have shape {y.shape}, expected ({n},) or ({n}, t)")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "fiub":
        raise DataError(f"{name}: labels have dtype {y.dtype}, expected integers")

    if y.ndim == 1 and y.dtype.kind == "f":
        y = np.where(np.isnan(y), -1, y)  # unlabeled
    check_finite(y, f"{name}: label")

    # multi-label: each entry is 0 or 1
    if y.ndim == 2:
        wrong = np.argwhere((y != 0) & (y != 1))
        if wrong.size:
            u, t = wrong[0]
            raise DataError(f"{name}: multi-label entry at ({u}, {t}) is {y[u, t]}, expected 0 or "
                            "1; if each column has classes, pass one column, such as y[:, 0]; if "
                            f"they are values to predict, {targets_hint()}")
        return np.ascontiguousarray(y, np.float32), y.shape[1]

    # one class per vertex, -1 for unlabeled
    labels = y.astype(np.int64)
    most = most_classes(n)
    if (u := first_true((labels != y) | (labels < -1) | (labels >= most))) is not None:
        raise DataError(f"{name}: label of vertex {u} is {y[u]}, "
                        f"expected an integer in 0..{most - 1}, or -1 or NaN for unknown; if "
                        f"labels are values to predict, {targets_hint()}")
    return labels, int(labels.max(initial=-1)) + 1


def check_targets(targets: Any, n: int, name: str) -> np.ndarray | None:
    """Check values to predict; return them as float64 (n, t), NaN for unknown, or None."""
    if targets is None:
        return None
    values = _as_array(targets, f"{name}: targets")
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[0] != n or not 1 <= values.shape[1] <= MAX_TARGETS:
        raise DataError(f"{name}: targets have shape {np.shape(targets)}, expected ({n},) or "
                        f"({n}, t), t at most {MAX_TARGETS}")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{name}: targets have dtype {values.dtype}, expected numbers")
    values = np.ascontiguousarray(values, np.float64)
    if (place := wrong_target(values)) is not None:
        raise DataError(f"{name}: target at {place} is {values[place]}, expected a number of at "
                        f"most {LARGEST_TARGET:g} in size, or NaN for unknown")
    return values


def wrong_target(values: np.ndarray) -> tuple[int, ...] | None:
    """Return the position of the first infinite or too large target; NaN is allowed."""
    wrong = np.argwhere(np.abs(values) > LARGEST_TARGET)
    return tuple(wrong[0].tolist()) if wrong.size else None


def most_classes(n: int) -> int:
    """Return the largest number of classes that is accepted for n vertices."""
    return max(n, 1 << 16)


def check_ids(ids: ArrayLike, n: int, name: str) -> np.ndarray | None:
    """Check the input's vertex ids; return them as (n,) int64 or text (kind U), or None."""
    if ids is None:
        return None
    where = f"{name}: original_ids"
    ids = _as_array(ids, where)
    if ids.shape != (n,) or ids.dtype.kind not in "iuU":
        raise DataError(f"{where} have dtype {ids.dtype} and shape {ids.shape}, expected integers "
                        f"or text ({n},)")

    if ids.dtype.kind != "U":
        if ids.dtype == np.uint64:
            check_range(ids, 1 << 63, where)
        _refuse_equal(ids, where)
        return ids.astype(np.int64, copy=False)

    # names must fit into a file
    try:
        encoded = np.char.encode(ids, "utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: {error.object!r} is not valid text ({error.reason})") from error
    if encoded.itemsize > MAX_NAME:
        sizes = np.char.str_len(encoded)
        k = int(sizes.argmax())
        raise DataError(f"{where}: name {k} has {sizes[k]} bytes, expected at most {MAX_NAME}")
    if CONTROL.search("".join(ids.tolist())):
        k, name = next((k, name) for k, name in enumerate(ids.tolist()) if CONTROL.search(name))
        raise DataError(f"{where}: name {k} is {name!r:.80}, expected no control characters")
    _refuse_equal(ids, where)

    return ids


def _refuse_equal(ids: np.ndarray, where: str) -> None:
    if (ids[1:] > ids[:-1]).all():
        return
    order = np.argsort(ids, kind="stable")
    if (k := first_true(ids[order[1:]] == ids[order[:-1]])) is not None:
        raise DataError(f"{where}: vertices {order[k]} and {order[k + 1]} are both "
                        f"{ids[order[k]]}, expected distinct ids")


def num_splits(masks: dict[str, np.ndarray] | None) -> int:
    """Return the number of splits in masks of shape (n,) or (n, s); 0 for None."""
    if masks is None:
        return 0
    shape = masks["train"].shape
    return shape[1] if len(shape) == 2 else 1


def check_masks(masks: Any, n: int, labels: np.ndarray | None, name: str,
                split: str = "") -> dict[str, np.ndarray] | None:
    """Check masks; return a dict under SPLIT of bool (n,), or (n, s) for s > 1 splits, or None.

    Refuse overlaps, and vertices in a mask without a label. A mask (n,) beside others
    (n, s) belongs to all splits; test vertices are often the same in each. If `split`
    is ALL, the three masks may overlap, but must be equal.
    """
    # name the three masks
    if masks is None:
        return None
    if not isinstance(masks, dict):
        masks = tuple(masks) if isinstance(masks, (tuple, list)) else (masks,)
        if len(masks) != len(SPLIT):
            raise DataError(f"{name}: {len(masks)} masks, expected three: {', '.join(SPLIT)}")
        masks = dict(zip(SPLIT, masks))
    unknown = sorted(map(str, masks.keys() - set(SPLIT)))
    if unknown:
        raise DataError(f"{name}: mask {unknown[0]!r} is unknown, expected {', '.join(SPLIT)}")

    # masks of one split
    result = {key: _as_mask(masks.get(key), n, f"{name}: {key} mask") for key in SPLIT}
    counts = {key: mask.shape[1] for key, mask in result.items() if mask.ndim == 2}
    if not counts:
        _check_split(result, labels, name, split)
        return result

    # masks of several splits: repeat those that all splits share
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {key} masks" for key, count in counts.items())
        raise DataError(f"{name}: {listed}, expected the same number of each")
    count = counts.popitem()[1]
    result = {key: mask if mask.ndim == 2 else np.repeat(mask[:, None], count, axis=1)
              for key, mask in result.items()}

    for i in range(count):
        masks = {key: mask[:, i] for key, mask in result.items()}
        _check_split(masks, labels, f"{name}: split {i}", split)
    return result


def _check_split(masks: dict[str, np.ndarray], labels: np.ndarray | None, name: str,
                 split: str) -> None:
    """Refuse an empty train mask, overlapping masks and masked vertices without a label."""
    if not masks["train"].any():
        raise DataError(f"{name}: train mask is empty")
    equal = all(np.array_equal(masks[key], masks["train"]) for key in SPLIT)
    for a, b in combinations(() if split == ALL and equal else SPLIT, 2):
        both = np.flatnonzero(masks[a] & masks[b])
        if both.size:
            raise DataError(f"{name}: vertex {both[0]} is in both the {a} and the {b} mask "
                            f"({both.size} vertices in total)")
    if labels is not None and labels.ndim == 1:
        for key in SPLIT:
            unknown = np.flatnonzero(masks[key] & (labels < 0))
            if unknown.size:
                raise DataError(f"{name}: vertex {unknown[0]} is in the {key} mask but has no "
                                f"label ({unknown.size} vertices in total)")


def _as_mask(mask: ArrayLike, n: int, where: str) -> np.ndarray:
    """Return a mask as (n,) bool, or as (n, s) bool if there are s > 1 splits."""
    mask = _as_array([] if mask is None else mask, where)
    if mask.shape == (0,):
        return np.zeros(n, bool)
    full = mask.ndim == 2 or mask.shape == (n,)
    is_01 = mask.dtype.kind in "ui" and full and np.isin(mask, (0, 1)).all()
    # with three vertices or more, 0s and 1s alone cannot be numbers of distinct vertices
    if is_01 and mask.ndim == 1 and n <= 2 and mask.dtype != np.uint8:
        raise DataError(f"{where} is {mask.tolist()}, which may be a mask or vertex numbers: "
                        "expected bool, or numbers of another length")
    if mask.dtype == bool or is_01:
        if mask.shape[:1] != (n,) or mask.ndim > 2:
            raise DataError(f"{where} has shape {mask.shape}, expected ({n},) or ({n}, s)")
        if mask.ndim == 2 and not 1 <= mask.shape[1] <= MAX_SPLITS:
            raise DataError(f"{where} has shape {mask.shape}, expected 1 to {MAX_SPLITS} splits")
        return mask.astype(bool).reshape((n,) if mask.size == n else mask.shape)
    if mask.ndim != 1 or mask.dtype.kind not in "ui":
        raise DataError(f"{where} has dtype {mask.dtype} and shape {mask.shape}, "
                        f"expected bool ({n},) or ({n}, s), or vertex numbers")
    if (k := first_true((mask < 0) | (mask >= n))) is not None:
        raise DataError(f"{where}: entry {k} is vertex {mask[k]}, expected 0..{n - 1}")
    result = np.zeros(n, bool)
    result[mask] = True
    return result


def _as_array(values: ArrayLike, where: str) -> np.ndarray:
    if np.ma.is_masked(values):
        raise DataError(f"{where}: a masked array with {np.ma.count_masked(values)} masked values, "
                        "expected a plain array, such as values.filled(VALUE)")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # e.g. ragged rows, or a tensor on a GPU
        raise DataError(f"{where}: not an array: {error}") from error


def numbers(flag: str, text: str, most: int) -> tuple[int, ...]:
    """Parse whole numbers from 1 to `most`, separated by commas; UsageError for other text."""
    words = text.split(",")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 20 and 1 <= int(word) <= most):
            raise UsageError(f"{flag} {text}: {word!r} is not a whole number from 1 to {most}")
    return tuple(map(int, words))


def layer_widths(text: str) -> tuple[int, ...]:
    """Parse the text of --widths: number of features, hidden widths, number of classes."""
    widths = numbers("--widths", text, MAX_WIDTH)
    if len(widths) < 2:
        raise UsageError(f"--widths {widths[0]}: expected features, hidden widths and classes, "
                         "e.g. 128,16,40")
    return widths

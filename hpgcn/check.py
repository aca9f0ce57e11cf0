"""Refusals of malformed graphs: what passes here, kernels trust. Each error names the first offender."""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, UsageError

SPLIT = ("train", "val", "test")
MAX_WIDTH = 1 << 24
INT32_MAX = int(np.iinfo(np.int32).max)  # counts and numbers beyond take 64 bits


def index_dtype(n):
    """int32 for column numbers below n and pointers up to n, int64 only where n needs it."""
    return np.dtype(np.int32 if n <= INT32_MAX else np.int64)


def check_csr(indptr, indices, nnz, num_columns, where, first_row=0):
    """Refuse a CSR that is not valid: kernels trust what passes here.

    Parameters
    ----------
    indptr : (m + 1,) integers
        Row pointers, relative to the first row checked or absolute; `indices` are the entries from indptr[0] on.
    nnz : int
        Entries that indptr must end at.

    Raises
    ------
    DataError
        Naming `where` (file and dataset) and the first offending row or entry.
    """
    if indptr.ndim != 1 or indptr.size < 1:
        raise DataError(f"{where}: row pointers have shape {indptr.shape}, expected (n + 1,)")
    if first_row == 0 and indptr[0] != 0:
        raise DataError(f"{where}: row pointers start at {indptr[0]}, expected 0")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        row = falls[0]
        raise DataError(f"{where}: row pointers fall from {indptr[row]} to {indptr[row + 1]} at row {first_row + row}")
    if indptr[-1] != nnz:
        raise DataError(f"{where}: row pointers end at {indptr[-1]}, but there are {nnz} entries")
    outside = np.flatnonzero((indices < 0) | (indices >= num_columns))
    if outside.size:
        k = outside[0]
        raise DataError(f"{where}: entry {int(indptr[0]) + k} has column {indices[k]}, expected 0..{num_columns - 1}")
    if indices.size > 1:
        rises = indices[1:] > indices[:-1]
        starts = indptr[1:-1] - indptr[0]
        starts = starts[(starts > 0) & (starts < indices.size)]
        rises[starts - 1] = True
        flat = np.flatnonzero(~rises)
        if flat.size:
            k = flat[0] + 1
            row = first_row + int(np.searchsorted(indptr - indptr[0], k, side="right")) - 1
            raise DataError(f"{where}: row {row} has column {indices[k]} after {indices[k - 1]}: "
                            "columns must increase, without duplicates")


def check_csr_arrays(indptr, indices, shape, where):
    """Check the pointers and columns of a CSR; columns may be in any order.

    Raises
    ------
    DataError
        Not integers; pointers that fall, or do not start at 0 and end at the number of entries; a column out of range.
    """
    for key, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(f"{where} {key}: dtype {array.dtype} and shape {array.shape}, expected integers (k,)")
    if indptr.size != shape[0] + 1:
        raise DataError(f"{where} indptr: {indptr.size} row pointers, expected {shape[0] + 1} for {shape[0]} rows")
    check_csr(indptr, indices[:0], indices.size, shape[1], f"{where} indptr")
    check_range(indices, shape[1], f"{where} indices")


def check_range(numbers, stop, where):
    """Refuse integers outside [0, stop), naming the first."""
    if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= stop):
        k = int(np.flatnonzero((numbers < 0) | (numbers >= stop))[0])
        raise DataError(f"{where}: entry {k} is {numbers[k]}, expected 0..{stop - 1}")


def check_sparse(A, where):
    """Refuse a SciPy sparse matrix with numbers outside of it, which SciPy would follow out of its arrays.

    Raises
    ------
    DataError
        As `check_csr_arrays`; no numbers, or not one for each entry.
    """
    if A.dtype.kind not in "fiub":
        raise DataError(f"{where} have dtype {A.dtype}, expected numbers")
    if A.format in ("csr", "csc", "bsr"):
        shape = A.shape[::-1] if A.format == "csc" else A.shape
        if A.format == "bsr":
            shape = tuple(size // block for size, block in zip(A.shape, A.blocksize))
        check_csr_arrays(A.indptr, A.indices, shape, where)
        if A.data.shape[0] != A.indices.size:
            raise DataError(f"{where} data: {A.data.shape[0]} values, expected {A.indices.size}")
    elif A.format == "coo":
        for axis, numbers in enumerate(A.coords):
            if numbers.shape != A.data.shape:
                raise DataError(f"{where} coords[{axis}]: shape {numbers.shape}, expected {A.data.shape}")
            check_range(numbers, A.shape[axis], f"{where} coords[{axis}]")


def check_adjacency(A, name):
    """Return a square matrix as coo_array; refuse another shape, what is no number, and what `check_sparse` refuses."""
    A = A if sp.issparse(A) else _as_array(A, f"{name}: adjacency")
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise DataError(f"{name}: adjacency has shape {A.shape}, expected a square matrix")
    if A.dtype.kind not in "fiub":
        raise DataError(f"{name}: adjacency has dtype {A.dtype}, expected numbers")
    if sp.issparse(A):
        check_sparse(A, f"{name}: adjacency")
        return sp.coo_array(A)
    return sp.coo_array(A.astype(np.float64))  # SciPy takes no float16 and no foreign byte order


def check_finite(array, where):
    """Refuse NaN and Inf, naming the first position."""
    finite = np.isfinite(array)
    if not finite.all():
        position = tuple(int(i) for i in np.argwhere(~finite)[0])
        place = position[0] if len(position) == 1 else position
        raise DataError(f"{where} at {place} is {array[position]}, expected a finite number")


def check_features(X, n, name):
    """Return features as float32 (dense, C order, native) or CSR; refuse wrong shapes, NaN and Inf."""
    if X is None:
        return None
    X = X if sp.issparse(X) else _as_array(X, f"{name}: features")
    if len(X.shape) != 2 or X.shape[0] != n or X.shape[1] > MAX_WIDTH:
        raise DataError(f"{name}: features have shape {tuple(X.shape)}, expected ({n}, f), f at most {MAX_WIDTH}")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{name}: features have dtype {X.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        if sp.issparse(X):
            check_sparse(X, f"{name}: features")
            X = sp.csr_array(X).astype(np.float32)
            X.sum_duplicates()
            X.eliminate_zeros()
            X.indices, X.indptr = X.indices.astype(index_dtype(X.shape[1])), X.indptr.astype(np.int64)
            if not np.isfinite(X.data).all():
                k = int(np.flatnonzero(~np.isfinite(X.data))[0])
                row = int(np.searchsorted(X.indptr, k, side="right")) - 1
                raise DataError(f"{name}: feature at ({row}, {X.indices[k]}) is {X.data[k]}, expected a finite number")
            return X
        X = np.ascontiguousarray(X, np.float32)
    check_finite(X, f"{name}: feature")
    return X


def check_labels(y, n, name):
    """Return labels as int64 (n,) or float32 (n, t), and the number of classes; refuse what is neither."""
    if y is None:
        return None, 0
    y = _as_array(y, f"{name}: labels")
    if y.shape[:1] != (n,) or y.ndim > 2:
        raise DataError(f"{name}: labels have shape {y.shape}, expected ({n},) or ({n}, t)")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "fiub":
        raise DataError(f"{name}: labels have dtype {y.dtype}, expected integers")
    check_finite(y, f"{name}: label")
    if y.ndim == 2:
        wrong = np.argwhere((y != 0) & (y != 1))
        if wrong.size:
            u, t = wrong[0]
            raise DataError(f"{name}: multi-label entry at ({u}, {t}) is {y[u, t]}, expected 0 or 1")
        return np.ascontiguousarray(y, np.float32), y.shape[1]
    labels = y.astype(np.int64)
    most = most_classes(n)
    wrong = np.flatnonzero((labels != y) | (labels < -1) | (labels >= most))
    if wrong.size:
        raise DataError(f"{name}: label of vertex {wrong[0]} is {y[wrong[0]]}, "
                        f"expected an integer in 0..{most - 1}, or -1 for unknown")
    return labels, int(labels.max(initial=-1)) + 1


def most_classes(n):
    """Classes of n vertices at most: one stray label must not make a model of billions of classes."""
    return max(n, 1 << 16)


def check_masks(masks, n, labels, name):
    """Return {"train", "val", "test"} as bool (n,), or None; refuse overlaps, and members without a label."""
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
    result = {}
    for key in SPLIT:
        result[key] = _as_mask(masks.get(key), n, f"{name}: {key} mask")
    if not result["train"].any():
        raise DataError(f"{name}: train mask is empty")
    for a, b in (("train", "val"), ("train", "test"), ("val", "test")):
        both = np.flatnonzero(result[a] & result[b])
        if both.size:
            raise DataError(f"{name}: vertex {both[0]} is in both the {a} and the {b} mask ({both.size} such)")
    if labels is not None and labels.ndim == 1:
        for key in SPLIT:
            unknown = np.flatnonzero(result[key] & (labels < 0))
            if unknown.size:
                raise DataError(f"{name}: vertex {unknown[0]} is in the {key} mask but has no label "
                                f"({unknown.size} such)")
    return result


def _as_mask(mask, n, where):
    if mask is None:
        return np.zeros(n, bool)
    mask = _as_array(mask, where)
    if mask.shape == (0,):
        return np.zeros(n, bool)
    if mask.dtype == bool or (mask.dtype.kind in "ui" and mask.shape == (n,) and np.isin(mask, (0, 1)).all() and n > 2):
        if mask.shape != (n,):
            raise DataError(f"{where} has shape {mask.shape}, expected ({n},)")
        return mask.astype(bool)
    if mask.ndim != 1 or mask.dtype.kind not in "ui":
        raise DataError(f"{where} has dtype {mask.dtype} and shape {mask.shape}, "
                        f"expected bool ({n},) or vertex numbers")
    outside = np.flatnonzero((mask < 0) | (mask >= n))
    if outside.size:
        raise DataError(f"{where}: entry {outside[0]} is vertex {mask[outside[0]]}, expected 0..{n - 1}")
    result = np.zeros(n, bool)
    result[mask] = True
    return result


def _as_array(values, where):
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{where}: no array: {error}") from error


def numbers(flag, text, most):
    """Whole numbers from 1 to `most` out of a list with commas, a tuple; UsageError naming the flag and the word."""
    words = text.split(",")
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 20 and 1 <= int(word) <= most):
            raise UsageError(f"{flag} {text}: {word!r} is not a whole number from 1 to {most}")
    return tuple(map(int, words))


def layer_widths(text):
    """What --widths says: features, hidden widths and classes; two numbers or more."""
    widths = numbers("--widths", text, MAX_WIDTH)
    if len(widths) < 2:
        raise UsageError(f"--widths {widths[0]}: expected features, hidden widths and classes, e.g. 128,16,40")
    return widths

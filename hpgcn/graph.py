"""A graph in memory: adjacency, features, labels, split; its validation and normalisation.

Legend used throughout: n vertices, m owned rows, g ghost rows, f features, c classes, P ranks, nnz nonzeros.
Row i of the adjacency aggregates its columns: a[u, v] is the weight with which u reads v.
"""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError

SPLIT = ("train", "val", "test")


@dataclass(frozen=True)
class Header:
    """What a graph is, in a few numbers: known without reading its arrays.

    Attributes
    ----------
    name : str
        Name of the source, free of any path.
    num_nodes, num_edges, num_features, num_classes : int
        n, stored nonzeros of the whole adjacency, f and c (0 where there are no features or labels).
    directed : bool
        False only if pattern and values of the adjacency are symmetric.
    all_ones : bool
        Every stored weight is 1; `Graph.data` is then None.
    multilabel : bool
        Labels are a float32 (n, t) matrix rather than a class id.
    sparse_features : bool
        Features are CSR.
    has_split : bool
        Train, validation and test masks exist.
    split : str
        How the split was made, e.g. "file", "planetoid" or "random:60/20/20:0".
    source_sha256 : str
        SHA-256 of the input that the graph was made from (hexadecimal; empty if made in memory).
    """

    name: str
    num_nodes: int
    num_edges: int
    num_features: int = 0
    num_classes: int = 0
    directed: bool = False
    all_ones: bool = False
    multilabel: bool = False
    sparse_features: bool = False
    has_split: bool = False
    split: str = ""
    source_sha256: str = ""


@dataclass(frozen=True, eq=False)
class Graph:
    """A contiguous range of rows of a graph: all of them (start 0, m == n), or the slab of one rank.

    Attributes
    ----------
    header : Header
        Of the whole graph.
    start : int
        Number of the first row held.
    indptr : (m + 1,) int64, starting at 0
    indices : (nnz,) int32 or int64
        Global column numbers, increasing within each row, no duplicates.
    data : (nnz,) float32 or None
        Weights; None if all are 1.
    features : (m, f) float32, scipy.sparse.csr_array (m, f) float32, or None
    labels : (m,) int64 with -1 for unknown, (m, t) float32, or None
    masks : dict of (m,) bool under "train", "val" and "test", or None
    degree_row, degree_column, degree_loop : (m,) float64
        Row and column sums of the whole adjacency as stored; weight of the vertex's own loop, 0 if none.
    vertex : (m,) int64
        ORIGINAL number of each row: its row in the graph before any partition.
    original_ids : (m,) int64 or None
        The input's own ids, where reading relabelled them.
    offsets : (k + 1,) int64 or None
        First row of each part, where the rows are in the order of a partition.
    """

    header: Header
    start: int
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray | None
    features: np.ndarray | sp.csr_array | None
    labels: np.ndarray | None
    masks: dict[str, np.ndarray] | None
    degree_row: np.ndarray
    degree_column: np.ndarray
    degree_loop: np.ndarray
    vertex: np.ndarray
    original_ids: np.ndarray | None = None
    offsets: np.ndarray | None = None

    @property
    def num_rows(self):
        """Rows held here (m)."""
        return self.indptr.size - 1

    @property
    def adjacency(self):
        """The rows held, as scipy.sparse.csr_array (m, n), float32."""
        data = np.ones(self.indices.size, np.float32) if self.data is None else self.data
        return sp.csr_array((data, self.indices, self.indptr), shape=(self.num_rows, self.header.num_nodes))

    @staticmethod
    def from_scipy(A, X=None, y=None, masks=None, *, name="graph", symmetrize=False, unweighted=False,
                   original_ids=None, split="file", source_sha256=""):
        """Make a graph from a sparse matrix and arrays.

        Parameters
        ----------
        A : scipy sparse array or matrix, or ndarray, (n, n)
            Duplicates are summed, or dropped if all weights are 1; explicit zeros are dropped.
        X : ndarray or scipy sparse, (n, f), optional
            Features, cast to float32. Sparse ones stay sparse.
        y : (n,) integers (-1: unknown), or (n, t) multi-label, optional
        masks : (train, val, test) or a dict of them, optional
            Each (n,) bool, or an array of vertex numbers. They must not overlap.
        symmetrize : bool
            Take max(A, A^T).
        unweighted : bool
            Set all weights to 1.

        Raises
        ------
        DataError
            Not square, NaN or Inf, wrong row counts, labels below -1, overlapping masks.
        """
        shape = A.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise DataError(f"{name}: adjacency has shape {shape}, expected a square matrix")
        A = sp.coo_array(A)
        kept = A.data != 0
        rows, columns = (axis[kept] for axis in A.coords)
        values = None if unweighted else A.data[kept]
        indptr, indices, data, _ = build_adjacency(rows, columns, values, shape[0], symmetrize=symmetrize, name=name)
        return assemble(indptr, indices, data, X, y, masks, name=name, original_ids=original_ids, split=split,
                        source_sha256=source_sha256)

    def slab(self, start, stop):
        """Return the rows [start, stop) of the whole graph (views, no copies); they must be held here."""
        lo, hi = start - self.start, stop - self.start
        if not 0 <= lo <= hi <= self.num_rows:
            raise DataError(f"{self.header.name}: rows {start}..{stop} asked for, {self.start}.."
                            f"{self.start + self.num_rows} held")
        cut = slice(self.indptr[lo], self.indptr[hi])

        def rows(array):
            return None if array is None else array[lo:hi]

        return dataclasses.replace(
            self, start=start, indptr=self.indptr[lo:hi + 1] - self.indptr[lo], indices=self.indices[cut],
            data=None if self.data is None else self.data[cut], features=rows(self.features), labels=rows(self.labels),
            masks=None if self.masks is None else {key: rows(mask) for key, mask in self.masks.items()},
            degree_row=rows(self.degree_row), degree_column=rows(self.degree_column),
            degree_loop=rows(self.degree_loop), vertex=rows(self.vertex), original_ids=rows(self.original_ids))

    def permuted(self, perm, offsets=None):
        """Return the whole graph with rows and columns in the order `perm` (new -> old, (n,) int64).

        `offsets` (k + 1,) says where the parts begin, if the order comes from a partition.
        """
        inverse = np.empty_like(perm)
        inverse[perm] = np.arange(perm.size, dtype=perm.dtype)
        counts = np.diff(self.indptr)[perm]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # entry k of the result comes from entry source[k]: rows moved whole, then columns sorted within each
        source = np.repeat(self.indptr[perm] - indptr[:-1], counts) + np.arange(indptr[-1])
        matrix = sp.csr_array((source, inverse[self.indices[source]].astype(self.indices.dtype), indptr),
                              shape=(perm.size, self.header.num_nodes))
        matrix.sort_indices()

        def rows(array):
            return None if array is None else array[perm]

        return dataclasses.replace(
            self, indptr=indptr, indices=matrix.indices.astype(self.indices.dtype, copy=False),
            data=None if self.data is None else self.data[matrix.data], features=rows(self.features),
            labels=rows(self.labels),
            masks=None if self.masks is None else {key: rows(mask) for key, mask in self.masks.items()},
            degree_row=rows(self.degree_row), degree_column=rows(self.degree_column),
            degree_loop=rows(self.degree_loop), vertex=rows(self.vertex), original_ids=rows(self.original_ids),
            offsets=offsets)


@dataclass
class Counts:
    """What building an adjacency met and did, for the reader's report."""

    duplicates: int = 0
    zeros: int = 0
    loops: int = 0
    asymmetric: int = 0
    notes: list[str] = field(default_factory=list)


def index_dtype(n):
    """int32 for column numbers, int64 only where n needs it."""
    return np.dtype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)


def build_adjacency(rows, columns, values, n, *, symmetrize=False, name="graph"):
    """Make a valid CSR adjacency from entries in any order.

    Parameters
    ----------
    rows, columns : (e,) integers in [0, n)
    values : (e,) numbers, or None for all ones
    symmetrize : bool
        Take max(A, A^T), after duplicates are merged.

    Returns
    -------
    indptr (n + 1,) int64, indices (nnz,), data (nnz,) float32 or None if all are 1, Counts.

    Raises
    ------
    DataError
        A weight is NaN or infinite, or does not fit float32.
    """
    counts = Counts()
    dtype = index_dtype(n)
    if values is not None:
        values = np.asarray(values, np.float64)
        check_finite(values, f"{name}: weight")
        if np.all(values == 1):
            values = None
    data = np.ones(len(rows), np.uint8) if values is None else values
    matrix = sp.csr_array((data, (np.asarray(rows, dtype), np.asarray(columns, dtype))), shape=(n, n))
    matrix.sum_duplicates()
    counts.duplicates = len(rows) - matrix.nnz
    if values is None:
        matrix.data = np.ones(matrix.nnz, np.uint8)  # 0/1 input: a duplicate is the same edge, weight 1
    else:
        stored = matrix.nnz
        matrix.eliminate_zeros()
        counts.zeros = stored - matrix.nnz
    if symmetrize:
        before = matrix.nnz
        matrix = sp.csr_array(matrix.maximum(matrix.T.tocsr()))
        matrix.eliminate_zeros()  # max(0, negative) leaves none, but be sure of the pattern
        matrix.sort_indices()
        counts.asymmetric = matrix.nnz - before
    counts.loops = int(np.count_nonzero(matrix.diagonal()))
    data = None
    if values is not None:
        with np.errstate(over="ignore"):
            data = matrix.data.astype(np.float32)
        check_finite(data, f"{name}: weight (as float32)")
        if np.all(data == 1):
            data = None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype, copy=False), data, counts


def assemble(indptr, indices, data, X=None, y=None, masks=None, *, name, original_ids=None, split="file",
             source_sha256=""):
    """Make a whole Graph from a valid CSR adjacency and unchecked features, labels and masks.

    Raises
    ------
    DataError
        As `Graph.from_scipy`.
    """
    n = indptr.size - 1
    ones = np.ones(indices.size, np.float32) if data is None else data
    matrix = sp.csr_array((ones, indices, indptr), shape=(n, n))
    features = check_features(X, n, name)
    labels, num_classes = check_labels(y, n, name)
    masks = check_masks(masks, n, labels, name)
    weights = matrix.data.astype(np.float64)
    row_of = np.repeat(np.arange(n), np.diff(indptr))
    header = Header(
        name=name, num_nodes=n, num_edges=indices.size, num_features=0 if features is None else features.shape[1],
        num_classes=num_classes, directed=not is_symmetric(matrix), all_ones=data is None,
        multilabel=labels is not None and labels.ndim == 2, sparse_features=sp.issparse(features),
        has_split=masks is not None, split=split if masks is not None else "", source_sha256=source_sha256)
    return Graph(
        header, 0, indptr, indices, data, features, labels, masks,
        # without entries bincount forgets the dtype of its weights
        degree_row=np.bincount(row_of, weights, n).astype(np.float64, copy=False),
        degree_column=np.bincount(indices, weights, n).astype(np.float64, copy=False),
        degree_loop=matrix.diagonal().astype(np.float64), vertex=np.arange(n, dtype=np.int64),
        original_ids=original_ids)


def is_symmetric(matrix):
    """Whether pattern and values of a CSR matrix with sorted columns are symmetric."""
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    return (np.array_equal(matrix.indptr, transposed.indptr) and np.array_equal(matrix.indices, transposed.indices)
            and np.array_equal(matrix.data, transposed.data))


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
    if len(X.shape) != 2 or X.shape[0] != n:
        raise DataError(f"{name}: features have shape {tuple(X.shape)}, expected ({n}, f)")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{name}: features have dtype {X.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        if sp.issparse(X):
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
    y = np.asarray(y)
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
    most = max(n, 1 << 16)  # a class needs a vertex: one stray label must not make a model of billions of classes
    wrong = np.flatnonzero((labels != y) | (labels < -1) | (labels >= most))
    if wrong.size:
        raise DataError(f"{name}: label of vertex {wrong[0]} is {y[wrong[0]]}, "
                        f"expected an integer in 0..{most - 1}, or -1 for unknown")
    return labels, int(labels.max(initial=-1)) + 1


def check_masks(masks, n, labels, name):
    """Return {"train", "val", "test"} as bool (n,), or None; refuse overlaps, and members without a label."""
    if masks is None:
        return None
    if not isinstance(masks, dict):
        masks = dict(zip(SPLIT, masks, strict=True))
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
    mask = np.asarray(mask)
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


def with_self_loops(slab):
    """Return (indptr, indices, data, added) of a slab's rows with a loop of weight 1 where a row has none.

    A loop of the input is kept as it is. `added` is bool (m,): rows that got one; `data` stays None if all are 1.
    """
    m = slab.num_rows
    own = slab.start + np.arange(m)
    row_of = np.repeat(np.arange(m), np.diff(slab.indptr))
    added = np.ones(m, bool)
    added[row_of[slab.indices == own[row_of]]] = False
    before = np.bincount(row_of[slab.indices < own[row_of]], minlength=m)  # entries left of the diagonal
    where = (slab.indptr[:-1] + before)[added]
    indices = np.insert(slab.indices, where, own[added].astype(slab.indices.dtype))
    data = None if slab.data is None else np.insert(slab.data, where, np.float32(1))
    indptr = slab.indptr + np.concatenate([[0], np.cumsum(added)])
    return indptr, indices, data, added


def inverse_sqrt(degree):
    """degree^-1/2 in float64, 0 where the degree is not positive."""
    positive = degree > 0
    return np.where(positive, 1 / np.sqrt(np.where(positive, degree, 1)), 0.0)

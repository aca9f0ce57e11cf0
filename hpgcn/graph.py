"""A graph in memory: adjacency, features, labels, split; its validation.

Legend used throughout: n vertices, m owned rows, g ghost rows, f features, c classes, P ranks, nnz nonzeros.
Row i of the adjacency aggregates its columns: a[u, v] is the weight with which u reads v.
"""
from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from hpgcn.check import check_adjacency, check_features, check_finite, check_labels, check_masks, index_dtype
from hpgcn.errors import DataError


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

    def __str__(self):
        words = [repr(self.name), f"{self.num_nodes:,} vertices", f"{self.num_edges:,} stored entries",
                 "directed" if self.directed else "undirected"]
        if self.num_features:
            words += [f"{self.num_features:,} features"]
        if self.num_classes:
            words += [f"{self.num_classes:,} {'labels per vertex' if self.multilabel else 'classes'}"]
        if self.has_split:
            words += ["split"]
        return ", ".join(words)


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

    def __repr__(self):
        whole = self.num_rows == self.header.num_nodes
        return f"Graph({self.header}{'' if whole else f', rows {self.start:,} to {self.start + self.num_rows:,}'})"

    def save(self, path, *, overwrite=False):
        """Write the whole graph, in its ORIGINAL order, to a file that `hpgcn.load` and the commands read (.h5).

        Raises
        ------
        DataError
            Only some rows are held.
        OutputError, StorageError
            The file exists and `overwrite` is false, or it cannot be created; the disk is full.
        """
        from hpgcn import store

        graph = self
        if self.num_rows == self.header.num_nodes and np.any(np.diff(self.vertex) < 0):
            graph = self.permuted(np.argsort(self.vertex))
        store.write_graph(path, graph, overwrite=overwrite)

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
            Not square, columns or row pointers that leave the matrix, NaN or Inf, wrong row counts, labels below -1,
            overlapping masks.
        """
        A = check_adjacency(A, name)
        shape = A.shape
        if original_ids is not None and np.shape(original_ids) != shape[:1]:
            raise DataError(f"{name}: original_ids have shape {np.shape(original_ids)}, expected {shape[:1]}")
        kept = A.data != 0
        rows, columns = (axis[kept] for axis in A.coords)
        values = None if unweighted else A.data[kept]
        indptr, indices, data, _ = build_adjacency(rows, columns, values, shape[0], symmetrize=symmetrize, name=name)
        return assemble(indptr, indices, data, X, y, masks, name=name, original_ids=original_ids, split=split,
                        source_sha256=source_sha256)

    def blocks(self):
        """Yield (dtype and shape, bytes as 1-D uint8) of every array that a model is trained on, in a fixed order."""
        X = self.features
        parts = (X.indptr, X.indices, X.data) if sp.issparse(X) else (X,)
        for array in (self.indptr, self.indices, self.data, *parts, self.labels, *(self.masks or {}).values()):
            if array is not None:
                yield f"{array.dtype.str} {array.shape}", np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def checksum(self):
        """CRC32 of what a model is trained on: graphs that differ differ in it, short of chance."""
        crc = 0
        for kind, data in self.blocks():
            crc = zlib.crc32(data, zlib.crc32(kind.encode(), crc))
        return crc

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

    def adjacency_rows(self, start, stop):
        """(indptr from 0, indices, data or None) of the rows [start, stop)."""
        rows = self.slab(start, stop)
        return rows.indptr, rows.indices, rows.data

    def pointers(self, start, stop):
        """Row pointers of the rows [start, stop), (m + 1,) int64; their differences count."""
        return self.slab(start, stop).indptr

    def degrees(self):
        """Row sums, column sums and loops: dict of (n,) float64 under "row", "column" and "loop"."""
        return {"row": self.degree_row, "column": self.degree_column, "loop": self.degree_loop}

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
    degree_row, degree_column = row_and_column_sums(indptr, indices, data)
    header = Header(
        name=name, num_nodes=n, num_edges=indices.size, num_features=0 if features is None else features.shape[1],
        num_classes=num_classes, directed=not is_symmetric(matrix), all_ones=data is None,
        multilabel=labels is not None and labels.ndim == 2, sparse_features=sp.issparse(features),
        has_split=masks is not None, split=split if masks is not None else "", source_sha256=source_sha256)
    return Graph(
        header, 0, indptr, indices, data, features, labels, masks,
        degree_row=degree_row, degree_column=degree_column,
        degree_loop=matrix.diagonal().astype(np.float64), vertex=np.arange(n, dtype=np.int64),
        original_ids=original_ids)


def row_and_column_sums(indptr, indices, data):
    """Sums of a CSR (n, n), data None for ones: two (n,) float64, added in the order of the entries."""
    n = indptr.size - 1
    weights = np.ones(indices.size) if data is None else data.astype(np.float64)
    row_of = np.repeat(np.arange(n), np.diff(indptr))
    # without entries bincount forgets the dtype of its weights
    return tuple(np.bincount(numbers, weights, n).astype(np.float64, copy=False) for numbers in (row_of, indices))


def is_symmetric(matrix):
    """Whether pattern and values of a CSR matrix with sorted columns are symmetric."""
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    return (np.array_equal(matrix.indptr, transposed.indptr) and np.array_equal(matrix.indices, transposed.indices)
            and np.array_equal(matrix.data, transposed.data))

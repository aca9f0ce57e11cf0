"""A graph in memory: adjacency, features, labels and split, with their validation.

Legend of all shapes: n vertices, m owned rows, g ghost rows, f features, c classes, P ranks, nnz
nonzeros. Row i of the adjacency aggregates its columns: a[u, v] is the weight with which u reads v.
"""
from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, UsageError
from hpgcn.graphs import validation
from hpgcn.graphs.adjacency import adjacency_of, is_symmetric, permuted_entries, row_and_column_sums
from hpgcn.graphs.contents import check_contents
from hpgcn.graphs.edge_features import features_of_entries
from hpgcn.graphs.graph_source import DIGESTS, GraphSource
from hpgcn.graphs.header import Header
from hpgcn.graphs.links import Links, check_links, permuted_links
from hpgcn.graphs.partition import Partition

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hpgcn.graphs.links import LinkSet

    Masks = Mapping[str, ArrayLike] | Sequence[ArrayLike]

ROW_ARRAYS = ("features", "labels", "targets", "degree_row", "degree_column", "degree_loop",
              "vertex", "original_ids")  # fields of a Graph with one entry a row, besides the masks
ENTRY_ARRAYS = "data", "edge_parts", "edge_features"  # fields with one entry a nonzero


@dataclass(frozen=True, eq=False)
class Graph(GraphSource):
    """Consecutive rows of a graph in memory: all (start 0, m == n), or those of a rank.

    Attributes
    ----------
    header : Header of the whole graph
    start : int, the number of the first row here
    indptr : (m + 1,) int64, starting at 0
    indices : (nnz,) int32 or int64
        Global column numbers, increasing within each row, no duplicates.
    data : (nnz,) float32; weights, or None if all are 1
    features : (m, f) float32, scipy.sparse.csr_array (m, f) float32, or None
    labels : (m,) int64 with -1 for unknown, (m, t) float32, or None
    masks : dict under "train", "val" and "test", or None
        Each (m,) bool; of s > 1 splits (m, s).
    degree_row : (m,) float64
        Row sums of the adjacency as stored.
    degree_column : (m,) float64
        Column sums of the whole adjacency as stored.
    degree_loop : (m,) float64
        Weight of the own loop, 0 if there is none.
    vertex : (m,) int64
        ORIGINAL number of each row: its row in the graph before any partition.
    original_ids : (m,) int64, or text, or None
        Ids or names in the input, if vertices were numbered anew.
    offsets : (k + 1,) int64 or None
        First row of each part, where the rows are in the order of a partition.
    edge_parts : (nnz,) int32 or None
        Part of each entry, where entries have parts of their own.
    class_names : tuple of str (c,), or None
        What the input calls each class, or label of multi-label data.
    feature_names : tuple of str (f,), or None
        What the input calls each feature.
    edge_features : (nnz, d) float32 or None
        Features of each entry, which model gine reads.
    targets : (m, t) float64 with NaN for unknown, or None
        Values to predict, in place of labels. `target_names` are a tuple of str (t,), or None.
    links : dict of hpgcn.graphs.links.LinkSet under "train", "val" and "test", or None
        Pairs to predict, of the whole graph: their vertices are rows in the present order.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_scipy([[0, 1], [1, 0]])
    >>> graph.indptr, graph.indices
    (array([0, 1, 2]), array([1, 0], dtype=int32))
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
    edge_parts: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    edge_features: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    targets: np.ndarray | None = None
    target_names: tuple[str, ...] | None = None
    links: Links | None = None

    def __repr__(self) -> str:
        text = str(self.header)
        if self.links:
            text += f", links {'/'.join(f'{len(each):,}' for each in self.links.values())}"
        if self.num_rows != self.header.num_nodes:
            text += f", rows {self.start:,} to {self.start + self.num_rows:,}"
        return f"Graph({text})"

    def _repr_html_(self) -> str:
        held = ""
        if self.num_rows != self.header.num_nodes:
            held = f"{self.start:,} to {self.start + self.num_rows:,}"
        counts = {key: np.count_nonzero(mask) for key, mask in (self.masks or {}).items()}
        return self.header.html(held, counts)

    def in_original_order(self) -> Graph:
        if self.num_rows != self.header.num_nodes:
            raise DataError(f"{self.header.name}: only rows "
                            f"{self.start}..{self.start + self.num_rows} are in memory, but all "
                            f"{self.header.num_nodes} are needed")
        if np.any(np.diff(self.vertex) < 0):
            return self.permuted(np.argsort(self.vertex))
        return self

    @property
    def num_rows(self) -> int:
        """Number of rows in this object (m)."""
        return self.indptr.size - 1

    @property
    def adjacency(self) -> sp.csr_array:
        """These rows of the adjacency, scipy.sparse.csr_array (m, n), float32."""
        data = np.ones(self.indices.size, np.float32) if self.data is None else self.data
        return sp.csr_array((data, self.indices, self.indptr),
                            shape=(self.num_rows, self.header.num_nodes))

    @staticmethod
    def from_scipy(A: ArrayLike | sp.sparray | sp.spmatrix,
                   X: ArrayLike | sp.sparray | sp.spmatrix | None = None,
                   y: ArrayLike | None = None, masks: Masks | None = None, *, name: str = "graph",
                   symmetrize: bool = False, unweighted: bool = False,
                   duplicates: str | None = None,
                   original_ids: ArrayLike | None = None, split: str = "file",
                   source_sha256: str = "", class_names: Sequence[str] | None = None,
                   edge_features: ArrayLike | None = None,
                   feature_names: Sequence[str] | None = None, classes: bool = False,
                   targets: ArrayLike | None = None,
                   target_names: Sequence[str] | None = None,
                   links: Mapping[str, LinkSet | ArrayLike] | None = None,
                   allow_leakage: bool = False) -> Graph:
        """Make a graph from a sparse matrix and arrays.

        Parameters
        ----------
        A : scipy sparse array or matrix, or ndarray, (n, n)
            Weights; explicit zeros are no edges and dropped, which a DataWarning says.
        X : ndarray, scipy sparse or DataFrame, (n, f), optional
            Features, cast to float32. Sparse ones stay sparse. An array of float32 in C order is
            not copied: change it no more. A DataFrame brings the names of its columns.
        y : (n,) integers (-1 or NaN: unknown) or text, or (n, t) multi-label, optional
        masks : (train, val, test) or a dict of them, optional
            Each (n,) bool or uint8, or an array of vertex numbers; or (n, s) bool of s splits.
            Training takes one (`Config.split_index`). Masks of a split must not overlap.
        symmetrize : bool
            Take max(A, A^T).
        unweighted : bool
            Set all weights to 1.
        classes : bool
            Take numbers in y that look like values to predict as classes.
        duplicates : "merge", "sum" or "sum-edges", optional
            How entries that occur several times are merged. "merge": weights are summed, but if
            all are 1 the entry is 1. "sum": weights are summed. "sum-edges": the same, but of the
            loops of a vertex the last counts. By default "merge", with a DataWarning.
        class_names : sequence of str, (c,), optional
            Names of the classes 0, 1, ..; there may be more than classes with vertices.
        feature_names : sequence of str, (f,), optional
            Names of the columns of X. A model is applied to graphs with the same ones.
        edge_features : (e, d) or (e,) numbers, optional
            Features of each entry of A, in its order (an ndarray: row by row); cast to float32. No
            entry may occur twice. `symmetrize` gives an edge's features to both directions.
        targets : (n,) or (n, t) numbers or DataFrame, optional
            Values to predict, in place of y; NaN is unknown. `target_names`, (t,), are theirs.
        links : dict of (k, 2) integers or hpgcn.graphs.links.LinkSet, optional
            Pairs [source, target] to predict, under "train", "val" and "test". The adjacency has
            no edges of validation and test, unless `allow_leakage`. See
            `hpgcn.graphs.links.check_links`.

        Raises
        ------
        DataError
            Not square, no vertices or more than fit the memory, columns or row pointers that leave
            the matrix, NaN or Inf, wrong row counts, labels below -1, overlapping masks, class
            names that are too few or not distinct, ids that are not distinct, vertex names with
            control characters.

        Examples
        --------
        >>> hpgcn.Graph.from_scipy([[0, 1], [1, 0]], np.eye(2)).header.num_features
        2
        """
        # the edges
        A = validation.check_adjacency(A, name)
        indptr, indices, data, parallel = adjacency_of(
            A, name, symmetrize=symmetrize, unweighted=unweighted, duplicates=duplicates)
        edge_features = features_of_entries(A.coords, edge_features, indptr, indices, name)

        # the arrays of vertices, and the checks of both together
        ids = validation.check_ids(original_ids, indptr.size - 1, name)
        return assemble(indptr, indices, data, X, y, masks, name=name, original_ids=ids,
                        split=split, source_sha256=source_sha256, class_names=class_names,
                        parallel_edges=parallel, edge_features=edge_features,
                        feature_names=feature_names, classes=classes, targets=targets,
                        target_names=target_names, links=links, allow_leakage=allow_leakage)

    @classmethod
    def from_edge_index(cls, edge_index: ArrayLike, edge_weight: ArrayLike | None = None,
                        features: ArrayLike | sp.sparray | sp.spmatrix | None = None,
                        labels: ArrayLike | None = None, masks: Masks | None = None, *,
                        num_nodes: int | None = None, name: str = "graph",
                        **options: Any) -> Graph:
        """Make a graph from edges in the form of PyG and DGL: NumPy arrays, or CPU tensors.

        Parameters
        ----------
        edge_index : (2, e) integers from 0
            Row 0 the source of each edge, row 1 its target, which aggregates the source: edge
            (u, v) is the entry a[v, u] of the adjacency. An undirected graph has each edge twice.
        edge_weight : (e,) or (e, 1) numbers, optional; by default all are 1
        features, labels, masks, name, **options
            As X, y and the others of `from_scipy`; `edge_features` in the order of the edges.
        num_nodes : int, optional
            By default rows of the features, else of the labels, else the highest number + 1.

        Raises
        ------
        DataError
            An array of another dtype or shape, a vertex number below 0 or past num_nodes - 1, and
            whatever `from_scipy` refuses. A DataWarning points out numbers that begin at 1.

        Examples
        --------
        >>> hpgcn.Graph.from_edge_index([[0], [1]]).indptr  # the edge 0 -> 1 is in row 1
        array([0, 0, 1])
        """
        if num_nodes is None:
            known = options.get("targets") if labels is None else labels
            num_nodes = validation.count_rows(features, known, edge_index, name)

        # row v of the adjacency holds the edges into vertex v
        source, target, weights, n = validation.check_edges(
            edge_index, edge_weight, num_nodes, name)
        A = sp.coo_array((weights, (target, source)), shape=(n, n))
        return cls.from_scipy(A, features, labels, masks, name=name, **options)

    def _contents(self) -> Iterator[tuple[str, Any]]:
        """Yield dtype and shape, and bytes (1-D uint8), of each array that training reads."""
        X = self.features
        parts = (X.indptr, X.indices, X.data) if sp.issparse(X) else (X,)
        masks = (self.masks or {}).values()
        for array in (self.indptr, self.indices, self.data, self.edge_features, *parts,
                      self.labels, self.targets, *masks):
            if array is not None:
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                yield f"{array.dtype.str} {array.shape}", content
        if self.feature_names is not None:
            yield "names", np.frombuffer("\n".join(self.feature_names).encode(), np.uint8)
        for key, links in (self.links or {}).items():
            for name, array in links.read().arrays().items():
                yield f"links {key} {name} {array.shape}", array.reshape(-1).view(np.uint8)

    def checksum(self) -> int:
        """Return the CRC32 of the training data, which identifies it up to chance."""
        crc = 0
        for kind, data in self._contents():
            crc = zlib.crc32(data, zlib.crc32(kind.encode(), crc))
        return crc

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of the training data under each name of DIGESTS."""
        digest = hashlib.sha256()
        for kind, data in self.in_original_order()._contents():  # independent of partitions
            digest.update(kind.encode())
            digest.update(data)
        return dict.fromkeys(DIGESTS, digest.hexdigest())

    def of_split(self, index: int) -> Graph:
        """Return the graph with the masks, (m,), of split `index` only, counted from 0.

        Raises
        ------
        ConfigError
            There is no such split.
        """
        self.header.check_split(index)
        if self.header.num_splits < 2:
            return self
        masks = {key: np.ascontiguousarray(mask[:, index]) for key, mask in self.masks.items()}
        return dataclasses.replace(
            self, header=dataclasses.replace(self.header, num_splits=1), masks=masks)

    def slab(self, start: int, stop: int, split: int | None = None) -> Graph:
        """Return rows [start, stop) as views of these arrays, of one split or of all."""
        low = start - self.start
        high = stop - self.start
        if not 0 <= low <= high <= self.num_rows:
            raise DataError(f"{self.header.name}: rows {start}..{stop} requested, but only "
                            f"{self.start}..{self.start + self.num_rows} are in memory")
        entries = slice(self.indptr[low], self.indptr[high])
        rows = dataclasses.replace(
            self, start=start, indptr=self.indptr[low:high + 1] - self.indptr[low],
            indices=self.indices[entries], **self._arrays_of_entries(entries),
            **self._arrays_of_rows(slice(low, high)))
        return rows if split is None else rows.of_split(split)

    def _arrays_of_entries(self, chosen: np.ndarray | slice) -> dict[str, Any]:
        return {name: array[chosen] for name in ENTRY_ARRAYS
                if (array := getattr(self, name)) is not None}

    def _arrays_of_rows(self, chosen: np.ndarray | slice) -> dict[str, Any]:
        fields = {name: array[chosen] for name in ROW_ARRAYS
                  if (array := getattr(self, name)) is not None}
        if self.masks is not None:
            fields["masks"] = {key: mask[chosen] for key, mask in self.masks.items()}
        return fields

    def adjacency_rows(self, start: int, stop: int) -> tuple[
            np.ndarray, np.ndarray, np.ndarray | None]:
        rows = self.slab(start, stop)
        return rows.indptr, rows.indices, rows.data

    def pointers(self, start: int, stop: int) -> np.ndarray:
        return self.slab(start, stop).indptr + self.indptr[start - self.start]

    def vertices(self, start: int, stop: int) -> np.ndarray:
        return self.slab(start, stop).vertex

    def ids(self) -> np.ndarray:
        return self.vertex + self.header.base if self.original_ids is None else self.original_ids

    def edge_part(self, start: int, stop: int) -> np.ndarray | None:
        return self.slab(start, stop).edge_parts

    def read_edge_features(self, first: int, last: int) -> np.ndarray:
        return self.edge_features[first:last]

    def degrees(self) -> dict[str, np.ndarray]:
        return {"row": self.degree_row, "column": self.degree_column, "loop": self.degree_loop}

    def split_masks(self, split: int) -> dict[str, np.ndarray] | None:
        return self.of_split(split).masks

    def feature_pointers(self) -> np.ndarray | None:
        return self.features.indptr if sp.issparse(self.features) else None

    def pattern(self) -> Graph:
        return dataclasses.replace(self, data=None, features=None, labels=None, targets=None,
                                   masks=None, links=None, edge_parts=None, edge_features=None)

    def read(self) -> Graph:
        """Return the graph itself."""
        return self

    @property
    def vertex_partition(self) -> Partition | None:
        """The Partition that determines the order of rows; None without parts."""
        if self.offsets is None:
            return None
        inverse, part = np.empty_like(self.vertex), np.empty(self.num_rows, np.int32)
        inverse[self.vertex] = np.arange(self.num_rows)
        part[self.vertex] = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        return Partition(part, self.vertex, inverse, self.offsets)

    def merged(self, k: int) -> Graph:
        """Return the graph in one part (k = 1); UsageError for any other k."""
        if k != 1:
            raise UsageError(f"{self.header.name}: k = {k}, but a graph in memory can only be "
                             "merged to 1 part")
        edge_parts = None if self.edge_parts is None else np.zeros_like(self.edge_parts)
        return dataclasses.replace(self, offsets=np.array([0, self.num_rows]),
                                   edge_parts=edge_parts)

    def order_sums(self, start: int, stop: int) -> np.ndarray:
        """Return (4,) zeros: in memory the order of rows is always valid."""
        return np.zeros(4)

    def check_order(self, total: np.ndarray) -> None:
        """Do nothing: in memory the order of rows is always valid."""

    def close(self) -> None:
        """Do nothing: a graph in memory has no file."""

    def reserve(self, nbytes: int, what: str) -> None:
        """Do nothing: a graph in memory has no budget."""

    def permuted(self, perm: np.ndarray, offsets: np.ndarray | None = None) -> Graph:
        """Return the whole graph in the order `perm` (new -> old); its parts begin at `offsets`."""
        with_source = any(getattr(self, name) is not None for name in ENTRY_ARRAYS)
        indptr, indices, source = permuted_entries(self.indptr, self.indices, perm,
                                                   with_source=with_source)
        return dataclasses.replace(self, indptr=indptr, indices=indices, offsets=offsets,
                                   links=permuted_links(self.links, perm),
                                   **self._arrays_of_entries(source), **self._arrays_of_rows(perm))


def assemble(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None, X: Any = None,
             y: ArrayLike = None, masks: Any = None, *, symmetric: bool = False,
             **facts: Any) -> Graph:
    """Build a Graph from a valid CSR, and vertex data that is checked here.

    With `symmetric` the CSR is known to be symmetric; else it is tested. `facts` are
    keyword arguments of `describe_rows`. See also `Graph.from_scipy`.
    """
    n = indptr.size - 1
    weights = np.ones(indices.size, np.uint8) if data is None else data
    loops = sp.csr_array((weights, indices, indptr), shape=(n, n)).diagonal().astype(np.float64)
    symmetric = symmetric or is_symmetric(indptr, indices, data)
    sums = row_and_column_sums(indptr, indices, data, symmetric=symmetric)
    return describe_rows((indptr, indices, data), (*sums, loops), X, y, masks,
                         directed=not symmetric, vertex=np.arange(n, dtype=np.int64), **facts)


def describe_rows(csr: tuple, degrees: tuple, X: Any, y: ArrayLike, masks: Any, *, name: str,
                  directed: bool, vertex: np.ndarray | None = None,
                  original_ids: np.ndarray | None = None, split: str = "file",
                  source_sha256: str = "", parallel_edges: bool = False,
                  edge_features: np.ndarray | None = None, links: Any = None,
                  allow_leakage: bool = False, **names: Any) -> Graph:
    """Build a Graph from all arrays of its adjacency, in memory or on disk.

    `degrees` are sums of rows and columns, and weights of loops. `names` are keyword
    arguments of `check_contents`.
    """
    for field, text in (("name", name), ("split", split), ("source_sha256", source_sha256)):
        if not isinstance(text, str):
            raise UsageError(f"{field} is of type {type(text).__name__}, expected str")
    indptr, indices, data = csr
    n = indptr.size - 1
    arrays, fields = check_contents(X, y, masks, n, name, split, **names)
    width = 0 if edge_features is None else edge_features.shape[1]
    header = Header(name=name, num_nodes=n, num_edges=indices.size, directed=directed,
                    all_ones=data is None, source_sha256=source_sha256,
                    parallel_edges=parallel_edges, num_edge_features=width, **fields)
    row, column, loop = degrees
    return Graph(header, 0, *csr, degree_row=row, degree_column=column, degree_loop=loop,
                 vertex=vertex, original_ids=original_ids, edge_features=edge_features,
                 links=check_links(links, csr, directed, name, allow_leakage, original_ids),
                 **arrays)

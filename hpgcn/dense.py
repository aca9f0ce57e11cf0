"""The dense step: linear maps and their gradients, loss and metrics over all ranks; once for all strategies.

Rows are distributed, W is on every rank. Nothing communicates but the sums over ranks in `Loss`; gradients of weights
are partial sums over this rank's rows until the trainer reduces them all at once.
"""
from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.check import SPLIT, index_dtype
from hpgcn.device import HOST
from hpgcn.layout import split


class SparseRows:
    """Distributed rows of sparse features (m, f), with their transpose for the gradient of W.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array (m, f)
        Columns increasing in each row.
    """

    def __init__(self, matrix):
        narrow = index_dtype(max(*matrix.shape, matrix.nnz))  # equal types keep SciPy from widening column numbers
        self.indptr, self.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(narrow, copy=False)
        self.data, self.shape = matrix.data, matrix.shape
        entries = sp.csr_array((np.arange(matrix.nnz), self.indices, matrix.indptr.astype(narrow)),
                               shape=matrix.shape).T.tocsr()
        self.transposed_indptr = entries.indptr.astype(np.int64)
        self.transposed_indices = entries.indices
        self.order = entries.data  # entry k of the transpose is entry order[k] of the matrix
        self.device, self.parts = HOST, {}  # the latter by identity of their row numbers

    def on(self, device):
        """The same matrix in the memory of a device, which all else that is asked of it then has to be in."""
        other = object.__new__(SparseRows)
        other.__dict__.update(self.__dict__, device=device, parts={})
        for name in ("indptr", "indices", "data", "transposed_indptr", "transposed_indices", "order"):
            setattr(other, name, device.put(getattr(self, name)))
        return other

    def rows(self, numbers):
        """Some of the rows, (r,) increasing; SparseRows."""
        return SparseRows(sp.csr_array((self.data, self.indices, self.indptr), shape=self.shape)[numbers])

    def part(self, numbers):
        """As `rows`, for numbers that are asked for in every step: what depends on them alone is kept."""
        if id(numbers) not in self.parts:
            indices, indptr, rows = map(self.device.get, (self.indices, self.indptr, numbers))
            entries = sp.csr_array((np.arange(self.data.size), indices, indptr), shape=self.shape)[rows]
            self.parts[id(numbers)] = numbers, SparseRows(entries).on(self.device)
        _, part = self.parts[id(numbers)]
        return part.with_data(self.data[part.data])

    def with_data(self, data):
        """The same pattern with other values."""
        other = object.__new__(SparseRows)
        other.__dict__.update(self.__dict__)
        other.data = data
        return other

    def dropout(self, vertex, **key):
        """Keyed dropout of the stored entries: the bits that their dense form would get."""
        ops = kernels.backend(self.data)
        return self.with_data(ops.dropout_csr(self.indptr, self.indices, self.data, vertex, **key))

    def times(self, W, out=None):
        """X W: (m, f) by (f, f') to (m, f')."""
        return kernels.backend(W).spmm(self.indptr, self.indices, self.data, W, out)

    def transposed_times(self, G):
        """X^T G: (f, m) by (m, f') to (f, f')."""
        return kernels.backend(G).spmm(self.transposed_indptr, self.transposed_indices, self.data[self.order], G)


def take_rows(X, rows):
    """Some rows of features, dense, SparseRows or a pair of either; all of them if `rows` is None."""
    if rows is None:
        return X
    if isinstance(X, tuple):
        return tuple(take_rows(each, rows) for each in X)
    return X.rows(rows) if isinstance(X, SparseRows) else X[rows]


def on(device, X):
    """Features in the memory of a device: dense, SparseRows or a pair of either."""
    if isinstance(X, tuple):
        return tuple(on(device, each) for each in X)
    return X.on(device) if isinstance(X, SparseRows) else device.put(X)


def dropout(X, vertex, take, **key):
    """Keyed dropout of features, dense or SparseRows; keywords: seed, epoch, layer, p.

    `take` is that of hpgcn.model.Buffers: dense features go to the work array "X".
    """
    if isinstance(X, SparseRows):
        return X.dropout(vertex, **key)
    return kernels.backend(X).dropout(X, vertex, out=take("X", *X.shape), **key)


def times(X, W, out=None):
    """X W, X dense or SparseRows."""
    return X.times(W, out) if isinstance(X, SparseRows) else kernels.backend(X).matmul(X, W, out)


class Columns:
    """The dense step where C ranks share my rows, each with its own columns; with C = 1 nothing communicates.

    T and H are distributed by `grid`, W and b are on every rank. Names: f columns in, f' out; f_j, f'_j this rank's.

    Parameters
    ----------
    grid : hpgcn.layout.Grid
    comm : hpgcn.comm.SerialComm or MpiComm
    """

    def __init__(self, grid, comm):
        self.grid, self.comm, self.device = grid, comm, comm.device
        self.row = comm.group(grid.row_ranks.tolist())
        self.column = comm.group(grid.column_ranks.tolist())
        self.buffers = {}

    def of(self, width):
        """Columns of a matrix of some width that this rank owns, a slice."""
        return self.grid.columns_of(width)

    def width(self, width):
        """How many they are."""
        columns = self.of(width)
        return columns.stop - columns.start

    def linear(self, T, W, out=None):
        """T W: (m, f_j) of this rank by (f, f') to (m, f'_j); partial products are summed over the row of ranks."""
        if self.row.size == 1:
            return times(T, W, out)
        W, m = W[self.of(W.shape[0])], T.shape[0]
        out = self.device.empty((m, self.width(W.shape[1])), W.dtype) if out is None else out
        cuts = split(W.shape[1], self.row.size)
        packed, ordered = self._flat("packed", m * W.shape[1], W.dtype), self.device.xp.ascontiguousarray
        with self.comm.clock("dense"):
            for first, last in pairwise(cuts.tolist()):
                times(T, ordered(W[:, first:last]), packed[m * first:m * last].reshape(m, last - first))
        work = self._flat("whole", (self.row.size - 1) * out.size, W.dtype)
        self.row.start_reduce_scatter(packed, out.reshape(-1), (m * np.diff(cuts)).tolist(), "dense", work=work).wait(
            "a dense product")
        return out

    def gathered(self, G, width):
        """All columns of a matrix: (m, f'_j) of each rank of the row to (m, f'); valid until the next call."""
        if self.row.size == 1:
            return G
        m, cuts = G.shape[0], split(width, self.row.size)
        packed = self._flat("packed", m * width, G.dtype)
        self.row.start_allgather(G.reshape(-1), packed, (m * np.diff(cuts)).tolist(), "dense").wait("a dense gradient")
        whole = self._flat("whole", m * width, G.dtype).reshape(m, width)
        for first, last in pairwise(cuts.tolist()):
            whole[:, first:last] = packed[m * first:m * last].reshape(m, last - first)
        return whole

    def reduce(self, gradient):
        """Sum the gradients of all weights and biases over ranks, in place.

        Each rank holds the sums of its rows for W[its columns, :] and b[its columns]: these are added up over the ranks
        that share the columns, then collected from the others.

        Parameters
        ----------
        gradient : hpgcn.model.Parameters
        """
        if self.row.size == 1:
            self.comm.allreduce(gradient.flat, "weights")
            return
        arrays = [*gradient.weights, *gradient.biases]
        blocks = [[array[slice(*cut)] for array in arrays for cut in [split(array.shape[0], self.row.size)[j:j + 2]]]
                  for j in range(self.row.size)]
        own = np.concatenate([block.ravel() for block in blocks[self.row.rank]])
        self.column.allreduce(own, "weights")
        sizes = [sum(block.size for block in part) for part in blocks]
        every = self.device.empty(sum(sizes), own.dtype)
        self.row.start_allgather(own, every, sizes, "weights").wait("gradients of weights")
        first = 0
        for part in blocks:
            for block in part:
                block[...] = every[first:first + block.size].reshape(block.shape)
                first += block.size

    def close(self):
        """Free the communicators."""
        for comm in (self.row, self.column):
            comm.close()

    def _flat(self, name, size, dtype):
        if name not in self.buffers or self.buffers[name].size < size:
            self.buffers[name] = self.device.empty(size, dtype)
        return self.buffers[name][:size]


def masked_rows(masks, columns):
    """Rows of this rank in each mask, on its device, and how many there are over all ranks: two dicts by mask."""
    rows = {key: columns.device.put(np.flatnonzero(masks[key])) for key in SPLIT}
    own = columns.row.rank == 0  # one of the ranks that share a row counts it
    totals = columns.comm.sum([own * rows[key].size for key in SPLIT])
    return rows, {key: int(total) for key, total in zip(SPLIT, totals)}


class Loss:
    """Softmax cross-entropy, its mean taken over the GLOBAL number of masked vertices.

    Parameters
    ----------
    labels : (m,) int64
    masks : dict of (m,) bool
        Of this rank's rows; every row has one owner a column, so no vertex counts twice.
    columns : Columns
    num_classes : int
        Width of the logits over all ranks.
    """

    def __init__(self, labels, masks, columns, num_classes):
        self.labels, self.columns, self.comm = columns.device.put(labels), columns, columns.comm
        self.first = columns.of(num_classes).start
        self.rows, self.count = masked_rows(masks, columns)

    def gradient(self, logits, out=None):
        """Return this rank's share of the SUM of training losses, and the gradient of their global mean (m, c_j)."""
        grad = np.empty_like(logits) if out is None else out
        scale = 1 / self.count["train"]
        if self.columns.row.size == 1:
            total, _ = kernels.backend(logits).softmax_cross_entropy(logits, self.labels, self.rows["train"],
                                                                     scale=scale, grad=grad)
            return total, grad
        return self._spread(logits, self._moments(logits), "train", scale, grad), grad

    def evaluate(self, logits):
        """Return train_acc, val_acc, test_acc and val_loss over all ranks; None where a mask is empty."""
        if self.columns.row.size == 1:
            ops = kernels.backend(logits)
            found = [ops.softmax_cross_entropy(logits, self.labels, self.rows[key]) for key in SPLIT]
        else:
            moments = self._moments(logits)
            right = self._right(logits, moments[0])
            found = [(self._spread(logits, moments, key, 1.0, None), right[self.rows[key]].sum()) for key in SPLIT]
        sums = self.comm.sum(self.columns.device.numbers([number for pair in found for number in pair]))
        result = {f"{key}_acc": float(sums[2 * i + 1] / self.count[key]) if self.count[key] else None
                  for i, key in enumerate(SPLIT)}
        result["val_loss"] = float(sums[2] / self.count["val"]) if self.count["val"] else None
        return result

    def _moments(self, logits):
        """Maximum, and sum of exp(z - maximum), of each row over the ranks that share it."""
        ops, row = kernels.backend(logits), self.columns.row
        largest = ops.spread_max(logits)
        row.allreduce(largest, "dense", op="max")
        total = ops.spread_sum(logits, largest)
        row.allreduce(total, "dense")
        return largest, total

    def _spread(self, logits, moments, key, scale, grad):
        """Return what this block adds to the losses of a mask, and to their gradient."""
        return kernels.backend(logits).spread_gradient(logits, self.labels, self.first, self.rows[key], *moments,
                                                       scale=scale, grad=grad)

    def _right(self, logits, largest):
        """Which rows are classified rightly, counted by the first of the ranks that share them."""
        row = self.columns.row
        where = -kernels.backend(logits).spread_argmax(logits, self.first, largest)
        row.allreduce(where, "dense", op="max")
        return (-where == self.labels) & (row.rank == 0)


class MultiLabelLoss:
    """Sigmoid cross-entropy, its mean taken over the GLOBAL number of masked vertices and over all t labels.

    `gradient` and `evaluate` as of Loss; in place of accuracies they give micro-averaged F1, under the same names:
    2 TP / (2 TP + FP + FN) over all vertices and labels of a mask, a label being predicted where its logit is positive,
    and 0 where nothing is predicted nor true.

    Parameters
    ----------
    labels : (m, t) of 0 and 1
    masks : dict of (m,) bool
    columns : Columns
    num_labels : int
        t.
    """

    def __init__(self, labels, masks, columns, num_labels):
        self.labels = columns.device.put(np.ascontiguousarray(labels[:, columns.of(num_labels)]))
        self.comm, self.num_labels = columns.comm, num_labels
        self.rows, self.count = masked_rows(masks, columns)

    def gradient(self, logits, out=None):
        """Return this rank's share of the SUM over vertices of their mean losses, and the gradient (m, t_j)."""
        grad = np.empty_like(logits) if out is None else out
        total, *_ = kernels.backend(logits).sigmoid_cross_entropy(
            logits, self.labels, self.rows["train"], scale=1 / (self.count["train"] * self.num_labels), grad=grad)
        return total / self.num_labels, grad

    def evaluate(self, logits):
        """Return train_acc, val_acc, test_acc (micro-F1) and val_loss over all ranks; None where a mask is empty."""
        kernel = kernels.backend(logits).sigmoid_cross_entropy
        found = [number for key in SPLIT for number in kernel(logits, self.labels, self.rows[key])]
        found = self.comm.sum(self.comm.device.numbers(found))
        result = {}
        for key, (_, true, false, missed) in zip(SPLIT, found.reshape(-1, 4).tolist()):
            result[f"{key}_acc"] = 2 * true / max(2 * true + false + missed, 1) if self.count[key] else None
        count = self.count["val"] * self.num_labels
        result["val_loss"] = float(found[4] / count) if count else None
        return result

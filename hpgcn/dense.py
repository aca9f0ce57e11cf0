"""The dense step: linear maps and their gradients, loss and metrics over all ranks; once for all strategies.

Rows are distributed, W is on every rank. Nothing communicates but the sums over ranks in `Loss`; gradients of weights
are partial sums over this rank's rows until the trainer reduces them all at once.
"""
from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hpgcn import kernels
from hpgcn.check import SPLIT


class SparseRows:
    """Distributed rows of sparse features (m, f), with their transpose for the gradient of W.

    Parameters
    ----------
    matrix : scipy.sparse.csr_array (m, f)
        Columns increasing in each row.
    """

    def __init__(self, matrix):
        self.indptr, self.indices = matrix.indptr.astype(np.int64), matrix.indices
        self.data, self.shape = matrix.data, matrix.shape
        entries = sp.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape).T.tocsr()
        self.transposed_indptr = entries.indptr.astype(np.int64)
        self.transposed_indices = entries.indices
        self.order = entries.data  # entry k of the transpose is entry order[k] of the matrix

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


def dropout(X, vertex, **key):
    """Keyed dropout of features, dense or SparseRows; keywords: seed, epoch, layer, p."""
    if isinstance(X, SparseRows):
        return X.dropout(vertex, **key)
    return kernels.backend(X).dropout(X, vertex, **key)


def times(X, W, out=None):
    """X W, X dense or SparseRows."""
    return X.times(W, out) if isinstance(X, SparseRows) else np.matmul(X, W, out=out)


def transposed_times(X, G):
    """X^T G, X dense or SparseRows: this rank's part of the gradient of W."""
    return X.transposed_times(G) if isinstance(X, SparseRows) else X.T @ G


class Loss:
    """Softmax cross-entropy, its mean taken over the GLOBAL number of masked vertices.

    Parameters
    ----------
    labels : (m,) int64
    masks : dict of (m,) bool
        Of this rank's rows; every row has one owner, so no vertex counts twice.
    comm : hpgcn.comm.SerialComm or MpiComm
    """

    def __init__(self, labels, masks, comm):
        self.labels, self.comm = labels, comm
        self.rows = {key: np.flatnonzero(masks[key]) for key in SPLIT}
        totals = comm.sum([self.rows[key].size for key in SPLIT])
        self.count = {key: int(total) for key, total in zip(SPLIT, totals)}

    def gradient(self, logits, out=None):
        """Return this rank's share of the SUM of training losses, and the gradient of their global mean (m, c)."""
        grad = np.empty_like(logits) if out is None else out
        total, _ = kernels.backend(logits).softmax_cross_entropy(
            logits, self.labels, self.rows["train"], scale=1 / self.count["train"], grad=grad)
        return total, grad

    def evaluate(self, logits):
        """Return train_acc, val_acc, test_acc and val_loss over all ranks; None where a mask is empty."""
        found = [kernels.backend(logits).softmax_cross_entropy(logits, self.labels, self.rows[key]) for key in SPLIT]
        sums = self.comm.sum([number for pair in found for number in pair])
        result = {f"{key}_acc": float(sums[2 * i + 1] / self.count[key]) if self.count[key] else None
                  for i, key in enumerate(SPLIT)}
        result["val_loss"] = float(sums[2] / self.count["val"]) if self.count["val"] else None
        return result

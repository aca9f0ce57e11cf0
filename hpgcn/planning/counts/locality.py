"""Estimate the reuse of rows in sparse products with a graph."""
from functools import cached_property

import numpy as np

from hpgcn.kernels import orders

ENTRY = 8  # bytes of an entry of a sparse matrix: its column and its value


class Locality:
    """Reuse distance, in bytes, of rows of x in products with a sparse matrix.

    The footprint of a window of T reads is the integral of the miss ratio for all t up
    to T. The miss ratio at t is the share of reads whose row was not among the last t
    reads.

    Source: Xiang, Ding, Luo and Bao, HOTL: a higher order theory of locality, 2013,
    section 3.

    Reads are counted in the stored order of a graph; in a large graph only samples are
    counted.

    Parameters
    ----------
    matrix : scipy.sparse matrix, (n, n)
        Only the pattern is read.
    """

    SPANS = 1 << np.arange(2, 25, 2)  # reads
    SAMPLES, SAMPLE = 4, 1 << 20

    def __init__(self, matrix):
        self.indptr = np.asarray(matrix.indptr, np.int64)
        self.indices = matrix.indices
        self.num_rows = matrix.shape[0]

    @cached_property
    def missed(self):
        """Share of reads whose row was not among the last SPANS reads, an array."""
        reads = self.indices.size
        starts = np.zeros(1, np.int64)
        spans = self.SPANS
        if reads > self.SAMPLES * (self.SAMPLE + spans[-1]):
            places = np.arange(self.SAMPLES) * reads // self.SAMPLES
            starts = np.searchsorted(self.indptr, places, side="right") - 1
            reads = self.SAMPLE
        order = np.arange(self.num_rows)
        *missed, _, looked_at = orders.far_reads(self.indptr, self.indices, order, starts, reads,
                                                 spans, 1, 1)
        return np.array(missed) / max(looked_at, 1)

    def distances(self, row_bytes):
        """Group reads by reuse distance.

        Return the share of each group, and the bytes read since the last reuse. If a
        row was not among the last SPANS[-1] reads, all of x is assumed to have been
        read in between.
        """
        rows = self.num_rows
        spans = np.concatenate([[1], self.SPANS]).astype(float)
        missed = np.concatenate([[1.0], self.missed])
        means = (missed[1:] + missed[:-1]) / 2
        seen = np.minimum(1 + np.cumsum(np.diff(spans) * means), rows)
        sizes = seen * row_bytes + spans[1:] * ENTRY
        last = rows * row_bytes
        return np.append(-np.diff(missed), missed[-1]), np.append(np.minimum(sizes, last), last)

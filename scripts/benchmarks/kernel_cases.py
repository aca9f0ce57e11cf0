"""How each public kernel is called to be timed, and the bytes that it must move.

CASES say it of `Arrays`, by name: what is read, updated (read and written), written, and pulled (a
row for each nonzero). Bytes follow from their sizes: `bytes_of`. Arrays of a number a column, and
the pointers of chunks, are left out. UNTIMED are kernels that are not timed, and why.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from hpgcn.bench.host import stores_past
from benchmarks.roofline import pulled_bytes
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cpu.tuning import last_level_cache
from hpgcn.runtime.device import HOST

HEADS = 4  # of attention, where they divide the width
DROPOUT = {"seed": 1, "epoch": 1, "layer": 0, "p": 0.5}
STEP = {"step": 1, "lr": 1e-3}
UNTIMED = {
    "attention_bits": "the bits that attend draws itself, for tests",
    "dropout_scale": "a number", "philox": "a generator that kernels have within them",
    "transpose_pattern": "made once a matrix, by SciPy"}


class Arrays:
    """What kernels are given: n rows of some width, and the entries of a matrix of (n, n).

    Each array is made when it is first asked for. x and y hold draws and are only read; z, out,
    above and others are written.
    """

    def __init__(self, A, width, seed):
        self.indptr, self.indices, self.values = A.indptr, A.indices, A.values
        self.n = A.scale.size
        self.nnz = A.indices.size
        self.width = width
        self.heads = HEADS if width % HEADS == 0 else 1
        self.rng = np.random.default_rng(seed)

    def drawn(self, *shape):
        array = HOST.empty(shape, np.float32)
        return self.rng.standard_normal(dtype=np.float32, out=array)

    def filled(self, value, *shape, dtype=np.float32):
        array = HOST.empty(shape, dtype)
        array[...] = value
        return array

    def __getattr__(self, name):
        """Make an array of one of the plain kinds."""
        n, width, heads, nnz = self.n, self.width, self.heads, self.nnz
        if name in ("x", "y", "z"):
            array = self.drawn(n, width)
        elif name in ("out", "above"):
            array = self.filled(0, n, width)
        elif name == "variance":
            array = self.filled(1, n, width)
        elif name in ("row_score", "col_score"):
            array = self.drawn(n, heads)
        elif name in ("lse", "share", "dscore"):
            array = self.filled(1, n, heads)
        elif name in ("edge", "edge_grad"):
            array = self.drawn(nnz, heads)
        elif name == "edge_out":
            array = self.filled(0, nnz, heads)
        elif name in ("mean", "inv_std", "total"):
            array = self.filled(1, n, dtype=np.float64)
        elif name in ("column_mean", "column_inv_std"):
            array = self.filled(1, width, dtype=np.float64)
        elif name in ("gain", "bias"):
            array = self.filled(1e-3, width)
        else:
            raise AttributeError(name)
        setattr(self, name, array)
        return array

    @cached_property
    def vertex(self):
        return np.arange(self.n)

    @cached_property
    def index(self):
        return self.rng.permutation(self.n)

    @cached_property
    def labels(self):
        return self.rng.integers(0, self.width, self.n)

    @cached_property
    def mask(self):
        return self.rng.integers(0, 256, (self.n, -(-self.width // 8)), np.uint8)

    @cached_property
    def bits(self):
        return np.zeros_like(self.mask)

    @cached_property
    def narrow(self):
        return self.filled(0, self.n, self.width, dtype=BF16)

    @cached_property
    def kept(self):
        return np.zeros_like(self.values)

    @cached_property
    def top(self):
        return self.x.max(1)

    @cached_property
    def moments(self):
        return self.filled(0, self.n, 2, dtype=np.float64)

    @cached_property
    def column_moments(self):
        return self.filled(0, 2, self.width, dtype=np.float64)

    @cached_property
    def weight(self):
        return self.drawn(self.width, self.width)

    @cached_property
    def pulled(self):
        return self.drawn(self.n, self.width + 3 * self.heads)

    @cached_property
    def sent(self):
        return np.zeros_like(self.pulled)

    @cached_property
    def arg(self):
        """Entries chosen of each row and column, as by a maximum; -1 in an empty row."""
        begin, end = self.indptr[:-1, None], self.indptr[1:, None]
        chosen = self.rng.integers(begin, np.maximum(end, begin + 1), (self.n, self.width))
        return np.where(begin < end, chosen, -1)

    @cached_property
    def transposed(self):
        """Of a matrix whose pattern is symmetric; edge numbers are not those of its transpose."""
        return self.indptr, self.indices, np.arange(self.nnz)


def product_past(a):
    return stores_past(a.indptr, a.indices, None, a.x, a.out)


def gather_past(a):
    """Whether `gather` stores past the cache, as it decides itself."""
    begins = a.out.ctypes.data | a.out.strides[0]
    return begins % 16 == 0 and a.out.nbytes > last_level_cache() // 2


class Case(NamedTuple):
    """A call, the arrays it moves, and what it takes time by."""

    call: object  # of the kernels and Arrays
    reads: str = ""
    updates: str = ""
    writes: str = ""
    pulls: str = ""
    counts: str = "rows"  # numbers of a call: rows x width, entries x width, or x heads, or entries
    arithmetic: bool = False  # whether arithmetic is expected to take longer than memory
    past: object = None  # of Arrays: whether what is written goes past the cache


ROWS = "indptr indices"
CASES = {
    "spmm": Case(lambda k, a: k.spmm(a.indptr, a.indices, a.values, a.x, a.out),
                 ROWS + " values", pulls="x", writes="out", counts="entries", past=product_past),
    "sspmm": Case(lambda k, a: k.sspmm(a.indptr, a.indices, a.values, a.x, a.mask, a.out),
                  ROWS + " values mask", pulls="x", writes="out", counts="entries",
                  past=product_past),
    "aggregate sum": Case(lambda k, a: k.aggregate(a.indptr, a.indices, a.x, out=a.out),
                          ROWS, pulls="x", writes="out", counts="entries", past=product_past),
    "aggregate max": Case(
        lambda k, a: k.aggregate(a.indptr, a.indices, a.x, out=a.out, reduce="max"),
        ROWS, pulls="x", writes="out arg", counts="entries"),
    "aggregate_backward sum": Case(
        lambda k, a: k.aggregate_backward(a.x, a.indptr, a.indices, a.y, op="copylhs", reduce="sum",
                                          transposed=a.transposed),
        ROWS, pulls="x", writes="out", counts="entries"),
    "aggregate_backward max": Case(
        lambda k, a: k.aggregate_backward(a.x, a.indptr, a.indices, a.y, op="copylhs", reduce="max",
                                          arg=a.arg),
        "indices x arg", "out"),
    "edge_dot": Case(
        lambda k, a: k.edge_dot(a.indptr, a.indices, a.x, a.y, a.edge_out, heads=a.heads),
        ROWS + " x", pulls="y", writes="edge_out", counts="entries"),
    "edge_softmax": Case(lambda k, a: k.edge_softmax(a.indptr, a.edge, a.edge_out),
                         "indptr edge", writes="edge_out", counts="heads", arithmetic=True),
    "edge_softmax_backward": Case(
        lambda k, a: k.edge_softmax_backward(a.indptr, a.edge, a.edge_grad, a.edge_out),
        "indptr edge edge_grad", writes="edge_out", counts="heads"),
    "attend": Case(
        lambda k, a: k.attend(a.indptr, a.indices, a.x, a.row_score, a.col_score, a.out, a.lse,
                              above=a.above, share=a.share),
        ROWS + " row_score", pulls="x col_score", writes="out lse above share", counts="entries",
        arithmetic=True),
    "attend dropout": Case(
        lambda k, a: k.attend(a.indptr, a.indices, a.x, a.row_score, a.col_score, a.out, a.lse,
                              above=a.above, share=a.share, vertex=a.vertex, neighbour=a.vertex,
                              **DROPOUT),
        ROWS + " row_score vertex", pulls="x col_score", writes="out lse above share",
        counts="entries", arithmetic=True),
    "attend_merge": Case(
        lambda k, a: k.attend_merge(a.out, a.lse, a.x, a.row_score, above=a.above, share=a.share,
                                    part_above=a.y, part_share=a.col_score),
        "x y row_score col_score", "out lse above share"),
    "attend_dots": Case(
        lambda k, a: k.attend_dots(a.x, a.y, a.above, a.share, a.row_score, a.lse, a.sent,
                                   a.dscore),
        "x y above share row_score lse", writes="sent dscore"),
    "attend_backward": Case(
        lambda k, a: k.attend_backward(a.indptr, a.indices, a.pulled, a.x, a.col_score, a.out,
                                       a.dscore),
        ROWS + " x col_score", pulls="pulled", writes="out dscore", counts="entries",
        arithmetic=True),
    "gather": Case(lambda k, a: k.gather(a.x, a.index, a.out), "x index", writes="out",
                   past=gather_past),
    "scatter_add": Case(lambda k, a: k.scatter_add(a.x, a.index, a.out), "x index", "out"),
    "matmul": Case(lambda k, a: k.matmul(a.x, a.weight, a.out), "x", writes="out",
                   arithmetic=True),
    "activate": Case(lambda k, a: k.activate(a.z, a.bias, mask=a.bits), "", "z", "bits"),
    "activate dropout": Case(
        lambda k, a: k.activate(a.z, a.bias, a.vertex, mask=a.bits, **DROPOUT),
        "vertex", "z", "bits", arithmetic=True),
    "activate_smooth elu": Case(
        lambda k, a: k.activate_smooth(a.z, a.bias, kind="elu", slopes=a.out),
        "", "z", "out", arithmetic=True),
    "activate_smooth gelu": Case(
        lambda k, a: k.activate_smooth(a.z, a.bias, kind="gelu", slopes=a.out),
        "", "z", "out", arithmetic=True),
    "activate_smooth elu dropout": Case(
        lambda k, a: k.activate_smooth(a.z, a.bias, a.vertex, kind="elu", mask=a.bits, slopes=a.out,
                                       **DROPOUT),
        "vertex", "z", "out bits", arithmetic=True),
    "activate_smooth gelu dropout": Case(
        lambda k, a: k.activate_smooth(a.z, a.bias, a.vertex, kind="gelu", mask=a.bits,
                                       slopes=a.out, **DROPOUT),
        "vertex", "z", "out bits", arithmetic=True),
    "elu_backward": Case(lambda k, a: k.elu_backward(a.z, a.x, a.mask), "x mask", "z"),
    "add": Case(lambda k, a: k.add(a.x, a.out), "x", "out"),
    "convert": Case(lambda k, a: k.convert(a.x, a.narrow), "x", writes="narrow"),
    "apply_mask": Case(lambda k, a: k.apply_mask(a.z, a.mask), "mask", "z"),
    "dropout": Case(lambda k, a: k.dropout(a.x, a.vertex, out=a.out, **DROPOUT),
                    "x vertex", writes="out", arithmetic=True),
    "dropout_bits": Case(lambda k, a: k.dropout_bits(a.vertex, a.width, **DROPOUT),
                         "vertex", writes="bits", arithmetic=True),
    "dropout_csr": Case(
        lambda k, a: k.dropout_csr(a.indptr, a.indices, a.values, a.vertex, out=a.kept, **DROPOUT),
        ROWS + " values vertex", writes="kept", counts="values", arithmetic=True),
    "softmax_cross_entropy": Case(
        lambda k, a: k.softmax_cross_entropy(a.x, a.labels, a.vertex, grad=a.out),
        "x labels vertex", writes="out", arithmetic=True),
    "sigmoid_cross_entropy": Case(
        lambda k, a: k.sigmoid_cross_entropy(a.x, a.y, a.vertex, grad=a.out),
        "x y vertex", writes="out", arithmetic=True),
    "spread_max": Case(lambda k, a: k.spread_max(a.x), "x", writes="top"),
    "spread_sum": Case(lambda k, a: k.spread_sum(a.x, a.top), "x top", writes="total",
                       arithmetic=True),
    "spread_gradient": Case(
        lambda k, a: k.spread_gradient(a.x, a.labels, 0, a.vertex, a.top, a.total, grad=a.out),
        "x labels vertex top total", writes="out", arithmetic=True),
    "spread_argmax": Case(lambda k, a: k.spread_argmax(a.x, 0, a.top), "x top", writes="labels"),
    "row_sum": Case(lambda k, a: k.row_sum(a.x), "x", writes="mean"),
    "row_squares": Case(lambda k, a: k.row_squares(a.x, a.mean), "x mean", writes="inv_std"),
    "layer_norm": Case(
        lambda k, a: k.layer_norm(a.x, a.mean, a.inv_std, a.gain, a.bias, a.out, xhat=a.z),
        "x mean inv_std", writes="out z"),
    "layer_norm_backward_sums": Case(
        lambda k, a: k.layer_norm_backward_sums(a.x, a.y, a.gain), "x y", writes="moments"),
    "layer_norm_backward": Case(
        lambda k, a: k.layer_norm_backward(a.x, a.y, a.inv_std, a.gain, a.moments, a.out),
        "x y inv_std moments", writes="out"),
    "column_sum": Case(lambda k, a: k.column_sum(a.x), "x"),
    "column_squares": Case(lambda k, a: k.column_squares(a.x, a.column_mean), "x"),
    "batch_norm": Case(
        lambda k, a: k.batch_norm(a.x, a.column_mean, a.column_inv_std, a.gain, a.bias, a.out,
                                  xhat=a.z),
        "x", writes="out z"),
    "batch_norm_backward": Case(
        lambda k, a: k.batch_norm_backward(a.x, a.y, a.column_inv_std, a.gain, a.column_moments,
                                           a.out),
        "x y", writes="out"),
    "inner": Case(lambda k, a: k.inner(a.x, a.y), "x y"),
    "adam": Case(
        lambda k, a: k.adam(*(array.reshape(-1) for array in (a.z, a.x, a.out, a.variance)),
                            **STEP),
        "x", "z out variance"),
    "sgd": Case(lambda k, a: k.sgd(a.z.reshape(-1), a.x.reshape(-1), lr=1e-3), "x", "z"),
}


def bytes_of(case, arrays, cache_bytes):
    """Return the bytes that a call must move, and without reuse of the rows that it pulls.

        least   = read + 2 updated + 2 written (1 where stored past the cache) + pulled, once each
        traffic = the same, with a row of what is pulled, in whole cache lines, for each nonzero
                  where it does not fit the cache

    What is written counts twice because a processor reads a line before it stores to it.
    """
    def size(names):
        return sum(getattr(arrays, name).nbytes for name in names.split())

    past = case.past is not None and case.past(arrays)
    rest = size(case.reads) + 2 * size(case.updates) + (1 if past else 2) * size(case.writes)
    traffic = rest
    for name in case.pulls.split():
        array = getattr(arrays, name)
        row = array.nbytes // len(array)
        traffic += pulled_bytes(array.nbytes, array.nbytes, arrays.nnz, row, cache_bytes)
    return rest + size(case.pulls), traffic


def numbers_of(case, arrays):
    """Return how many numbers a call makes or takes in: what a rate of arithmetic counts."""
    return {"rows": arrays.n * arrays.width, "entries": arrays.nnz * arrays.width,
            "heads": arrays.nnz * arrays.heads, "values": arrays.nnz}[case.counts]

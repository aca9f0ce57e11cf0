"""The number of bytes that each public kernel must move.

CASES name the arrays of a call of CALLS: read, updated (read and written), written, and pulled (a
row for each nonzero). `bytes_of` takes the bytes from their sizes. Arrays with one number a column
and the pointers of chunks are left out. UNTIMED has the kernels that are not timed, and why.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from benchmarks.roofline import pulled_bytes, stores_past
from hpgcn.bench import kernel_calls
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.cpu.tuning import last_level_cache

UNTIMED = {
    "attention_bits": "the bits that attend draws itself, for tests",
    "dropout_scale": "a number", "philox": "a generator inside other kernels",
    "transpose_pattern": "made once a matrix, by SciPy"}
FEATURES = 8  # numbers that an edge has


def chosen_entries(a):
    """Return a random entry of each row for each column, or -1.

    A maximum chooses such entries; -1 stands for an empty row.
    """
    begin, end = a.indptr[:-1, None], a.indptr[1:, None]
    chosen = a.rng.integers(begin, np.maximum(end, begin + 1), (a.n, a.width))
    return np.where(begin < end, chosen, -1)


class Arrays(kernel_calls.Arrays):
    """The arguments for calls of all kernels."""

    MADE: ClassVar = {
        **kernel_calls.Arrays.MADE, "weight": lambda a: a.drawn(a.width, a.width),
        **dict.fromkeys(("edge", "edge_grad"), lambda a: a.drawn(a.nnz, a.heads)),
        "edge_out": lambda a: a.filled(0, a.nnz, a.heads),
        "entry": lambda a: np.arange(a.nnz), "features": lambda a: a.drawn(a.nnz, FEATURES),
        "projection": lambda a: a.drawn(FEATURES, a.width),
        "bias": lambda a: a.drawn(1, a.width)[0],
        "narrow": lambda a: a.filled(0, a.n, a.width, dtype=BF16),
        "arg": chosen_entries,
        # the transposed pattern if it is symmetric; its edge numbers are not those of entries
        "transposed": lambda a: (a.indptr, a.indices, np.arange(a.nnz))}


CALLS = kernel_calls.ROW_CALLS | kernel_calls.ENTRY_CALLS | {
    "spmm": lambda k, a: k.spmm(a.indptr, a.indices, a.values, a.x, a.out),
    "sspmm": lambda k, a: k.sspmm(a.indptr, a.indices, a.values, a.x, a.mask, a.out),
    "aggregate sum": lambda k, a: k.aggregate(a.indptr, a.indices, a.x, out=a.out),
    "aggregate max": lambda k, a: k.aggregate(a.indptr, a.indices, a.x, out=a.out, reduce="max"),
    "aggregate_backward sum": lambda k, a: k.aggregate_backward(
        a.x, a.indptr, a.indices, a.y, op="copylhs", reduce="sum", transposed=a.transposed),
    "aggregate_backward max": lambda k, a: k.aggregate_backward(
        a.x, a.indptr, a.indices, a.y, op="copylhs", reduce="max", arg=a.arg),
    "edge_dot": lambda k, a: k.edge_dot(a.indptr, a.indices, a.x, a.y, a.edge_out, heads=a.heads),
    "edge_relu": lambda k, a: k.edge_relu(a.indptr, a.indices, a.entry, a.x, a.features,
                                          a.projection, a.bias, a.out),
    "edge_relu_backward": lambda k, a: k.edge_relu_backward(
        a.indptr, a.indices, a.entry, a.x, a.features, a.projection, a.bias, a.y, a.out),
    "edge_softmax": lambda k, a: k.edge_softmax(a.indptr, a.edge, a.edge_out),
    "edge_softmax_backward": lambda k, a: k.edge_softmax_backward(a.indptr, a.edge, a.edge_grad,
                                                                  a.edge_out),
    "matmul": lambda k, a: k.matmul(a.x, a.weight, a.out),
    "convert": lambda k, a: k.convert(a.x, a.narrow),
    "dropout_bits": lambda k, a: k.dropout_bits(a.vertex, a.width, **kernel_calls.DROPOUT),
    "spread_argmax": lambda k, a: k.spread_argmax(a.x, 0, a.top),
    "sgd": lambda k, a: k.sgd(a.z.reshape(-1), a.x.reshape(-1), lr=1e-3)}


def product_past(a):
    return stores_past(a.indptr, a.indices, None, a.x, a.out)


def gather_past(a):
    """Return whether `gather` stores its result past the cache."""
    begins = a.out.ctypes.data | a.out.strides[0]
    return begins % 16 == 0 and a.out.nbytes > last_level_cache() // 2


class Case(NamedTuple):
    """The arrays that a kernel call moves, and whether arithmetic or memory limits it."""

    reads: str = ""
    updates: str = ""
    writes: str = ""
    pulls: str = ""
    counts: str = "rows"  # numbers of a call: rows x width, entries x width, or x heads, or entries
    arithmetic: bool = False  # whether arithmetic is expected to take longer than memory
    past: object = None  # function of Arrays: whether the results are stored past the cache


ROWS = "indptr indices"
CASES = {
    "spmm": Case(ROWS + " values", pulls="x", writes="out", counts="entries", past=product_past),
    "sspmm": Case(ROWS + " values mask", pulls="x", writes="out", counts="entries",
                  past=product_past),
    "aggregate sum": Case(ROWS, pulls="x", writes="out", counts="entries", past=product_past),
    "aggregate max": Case(ROWS, pulls="x", writes="out arg", counts="entries"),
    "aggregate_backward sum": Case(ROWS, pulls="x", writes="out", counts="entries"),
    "aggregate_backward max": Case("indices x arg", "out"),
    "edge_dot": Case(ROWS + " x", pulls="y", writes="edge_out", counts="entries"),
    "edge_relu": Case(ROWS + " entry features", pulls="x", writes="out", counts="entries",
                      arithmetic=True),
    "edge_relu_backward": Case(ROWS + " entry features x", pulls="y", writes="out",
                               counts="entries", arithmetic=True),
    "edge_softmax": Case("indptr edge", writes="edge_out", counts="heads", arithmetic=True),
    "edge_softmax_backward": Case("indptr edge edge_grad", writes="edge_out", counts="heads"),
    "attend": Case(ROWS + " row_score", pulls="x col_score", writes="out lse above share",
                   counts="entries", arithmetic=True),
    "attend dropout": Case(ROWS + " row_score vertex", pulls="x col_score",
                           writes="out lse above share", counts="entries", arithmetic=True),
    "attend_merge": Case("x y row_score col_score", "out lse above share"),
    "attend_dots": Case("x y above share row_score lse", writes="sent dscore"),
    "attend_backward": Case(ROWS + " x col_score", pulls="pulled", writes="out dscore",
                            counts="entries", arithmetic=True),
    "gather": Case("x index", writes="out", past=gather_past),
    "scatter_add": Case("x index", "out"),
    "matmul": Case("x", writes="out", arithmetic=True),
    "activate": Case("", "z", "bits"),
    "activate dropout": Case("vertex", "z", "bits", arithmetic=True),
    "activate_smooth elu": Case("", "z", "out", arithmetic=True),
    "activate_smooth gelu": Case("", "z", "out", arithmetic=True),
    "activate_smooth elu dropout": Case("vertex", "z", "out bits", arithmetic=True),
    "activate_smooth gelu dropout": Case("vertex", "z", "out bits", arithmetic=True),
    "elu_backward": Case("x mask", "z"),
    "add": Case("x", "out"),
    "convert": Case("x", writes="narrow"),
    "apply_mask": Case("mask", "z"),
    "dropout": Case("x vertex", writes="out", arithmetic=True),
    "dropout_bits": Case("vertex", writes="bits", arithmetic=True),
    "dropout_csr": Case(ROWS + " values vertex", writes="kept", counts="values", arithmetic=True),
    "softmax_cross_entropy": Case("x labels vertex", writes="out", arithmetic=True),
    "sigmoid_cross_entropy": Case("x y vertex", writes="out", arithmetic=True),
    "spread_max": Case("x", writes="top"),
    "spread_sum": Case("x top", writes="total", arithmetic=True),
    "spread_gradient": Case("x labels vertex top total", writes="out", arithmetic=True),
    "spread_argmax": Case("x top", writes="labels"),
    "row_sum": Case("x", writes="mean"),
    "row_squares": Case("x mean", writes="inv_std"),
    "layer_norm": Case("x mean inv_std", writes="out z"),
    "layer_norm_backward_sums": Case("x y", writes="moments"),
    "layer_norm_backward": Case("x y inv_std moments", writes="out"),
    "column_sum": Case("x"),
    "column_squares": Case("x"),
    "batch_norm": Case("x", writes="out z"),
    "batch_norm_backward": Case("x y", writes="out"),
    "inner": Case("x y"),
    "adam": Case("x", "z out variance"),
    "sgd": Case("x", "z")}


def bytes_of(case, arrays, cache_bytes):
    """Return the bytes that a call must move, with and without reuse.

    Without reuse each pulled row is read again.

        least   = read + 2 updated + 2 written (1 where stored past the cache) + pulled, once each
        traffic = the same, with a row of what is pulled, in whole cache lines, for each nonzero
                  where it does not fit the cache

    Written bytes count twice because a processor reads a line before it stores to it.
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
    """Return the number of numbers that a call processes, for its rate of arithmetic."""
    return {"rows": arrays.n * arrays.width, "entries": arrays.nnz * arrays.width,
            "heads": arrays.nnz * arrays.heads, "values": arrays.nnz}[case.counts]

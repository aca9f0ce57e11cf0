"""Valid arguments for every kernel, and options that tests of several kernels share."""
import functools

import numpy as np
import pytest

from hpgcn.kernels import pack_mask, reference


def long(*values):
    """Return a test case marked long, because it compiles its own kernels."""
    return pytest.param(*values, marks=pytest.mark.long)


DTYPES = pytest.mark.parametrize("dtype", [np.float64, long(np.float32)])
CUTS = [[], [0], [5], [0, 0, 3, 3, 8, 11], [*range(1, 11)]]  # cuts of 11 columns into blocks
KEY = {"seed": 3, "epoch": 2, "layer": 1, "p": 0.5}
CSR = {"indptr": "indptr", "indices": "indices"}
SPMM = {**CSR, "data": "data", "x": "x", "out": "out", "row_scale": "row", "col_scale": "col",
        "rows": "rows", "mask": "mask"}
ROWS = {"logits": "z", "labels": "labels", "rows": "rows", "grad": "out"}
NORM = {"inv_std": "wide", "gain": "f", "out": "out", "xhat": "xhat"}
STEP = {"w": "w", "g": "slope", "lr": 0.1, "decay": 0.1, "decayed": 5}
SCORES = {"row_score": "l3", "col_score": "r3", "vertex": "vertex", "neighbour": "number"}
MESSAGE = {"x": "x", "features": "e3", "weight": "W3", "bias": "f"}
CASES = {  # kernel: argument to the name of an array of `arrays`, or to itself
    "activate": {"z": "z", "bias": "f", "vertex": "vertex", "mask": "bits", **KEY},
    "activate_smooth": {"z": "z", "bias": "f", "vertex": "vertex", "mask": "bits", "slopes": "out",
                        "kind": "gelu", **KEY},
    "add": {"x": "g", "out": "z"},
    "adam": {**STEP, "mean": "average", "variance": "v", "step": 2},
    "aggregate": {**CSR, "x": "x", "e": "e", "out": "out", "op": "mul", "reduce": "max"},
    "aggregate_backward": {**CSR, "x": "x", "e": "e", "grad": "g", "op": "div", "reduce": "mean"},
    "apply_mask": {"x": "z", "mask": "mask"},
    "attend": {**CSR, **SCORES, "x": "x", "out": "out", "lse": "z3", "above": "g", "share": "share",
               **KEY},
    "attend_backward": {"indptr": "indptr_t", "indices": "indices_t", "pulled": "pulled", "x": "x",
                        "col_score": "r3", "vertex": "vertex", "neighbour": "number", "dx": "y",
                        "dcol_score": "n3", **KEY},
    "attend_dots": {"grad": "g", "out": "z", "above": "xhat", "share": "share", "row_score": "l3",
                    "lse": "high", "pulled": "wider", "drow_score": "z3"},
    "attend_merge": {"out": "out", "lse": "l3", "part": "z", "part_lse": "z3", "above": "xhat",
                     "share": "share", "part_above": "g", "part_share": "high"},
    "attention_bits": {"vertex": "vertex", "neighbour": "index", "heads": 9, **KEY},
    "batch_norm": {"x": "z", "mean": "f8", "bias": "f", **NORM, "inv_std": "g8"},
    "batch_norm_backward": {"g": "g", "means": "pair", **NORM, "xhat": "z", "inv_std": "g8"},
    "column_squares": {"x": "z", "mean": "f8"},
    "column_sum": {"x": "x"},
    "convert": {"x": "z", "out": "out"},
    "dropout": {"x": "z", "vertex": "vertex", "out": "out", **KEY},
    "dropout_bits": {"vertex": "vertex", "width": 9, **KEY},
    "dropout_csr": {**CSR, "data": "data", "vertex": "vertex", "out": "values", **KEY},
    "dropout_scale": {"p": 0.5},
    "edge_dot": {**CSR, "x": "z", "y": "x", "out": "k3", "heads": 3},
    "edge_relu": {**CSR, **MESSAGE, "edge": "entry", "out": "out"},
    "edge_relu_backward": {"indptr": "indptr_t", "indices": "indices_t", "edge": "entry",
                           **MESSAGE, "grad": "g", "out": "y"},
    "edge_softmax": {"indptr": "indptr", "values": "k3", "out": "out3"},
    "edge_softmax_backward": {"indptr": "indptr", "alpha": "k3", "grad": "e3",
                              "out": "out3"},
    "elu_backward": {"g": "g", "out": "z", "mask": "mask", "scale": 2.0},
    "gather": {"x": "x", "index": "index", "out": "out"},
    "inner": {"x": "x", "y": "y"},
    "layer_norm": {"x": "z", "mean": "row", "bias": "f", **NORM},
    "layer_norm_backward": {"g": "g", "means": "means", **NORM, "xhat": "z"},
    "layer_norm_backward_sums": {"g": "g", "xhat": "z", "gain": "f"},
    "matmul": {"x": "z", "y": "W", "out": "z4", "mask": "mask4"},
    "philox": {"counter": "counter", "key": "key"},
    "row_squares": {"x": "z", "mean": "wide"},
    "row_sum": {"x": "x"},
    "scatter_add": {"x": "z", "index": "index", "out": "x"},
    "sgd": STEP,
    "sigmoid_cross_entropy": {**ROWS, "labels": "many"},
    "softmax_cross_entropy": {**ROWS, "target": "target"},
    "spmm": SPMM,
    "spread_argmax": {"logits": "z", "first": 3, "top": "row"},
    "spread_gradient": {**ROWS, "first": 3, "top": "row", "total": "row", "target": "classes"},
    "spread_max": {"logits": "z"},
    "spread_sum": {"logits": "z", "top": "row"},
    "sspmm": SPMM,
    "transpose_pattern": {**CSR, "n": 10},
}


def tolerance(dtype):
    single = dtype == np.float32
    return {"rtol": 2e-6 if single else 1e-13, "atol": 1e-7 if single else 1e-14}


@functools.cache
def arrays(scale):
    """Return arrays by name for the arguments in CASES: 12 `scale` rows, 10 columns, 9 features."""
    rng = np.random.default_rng(0)
    m, n, f, k = 12 * scale, 10, 9, 40 * scale
    shapes = {
        "x": (n, f), "y": (n, f), "z": (m, f), "g": (m, f), "out": (m, f), "col": n, "row": m,
        "f": f, "e": (k, f), "w": 20 * scale, "v": 20 * scale, "average": 20 * scale,
        "slope": 20 * scale, "W": (f, 4), "data": k, "values": k, "z4": (m, 4), "xhat": (m, f),
        "l3": (m, 3), "z3": (m, 3), "share": (m, 3), "high": (m, 3), "r3": (n, 3), "n3": (n, 3),
        "k3": (k, 3), "e3": (k, 3), "out3": (k, 3), "pulled": (m, f + 9), "wider": (m, f + 9),
        "W3": (3, f)}
    reals = {name: rng.random(shape) + 0.5 for name, shape in shapes.items()}
    ends = np.array([5, 5, 9, 12, 13, 20, 22, 25, 30, 33, 36, 40])  # the second row is empty
    indptr = np.r_[0, (ends + 40 * np.arange(scale)[:, None]).ravel()]
    indices = rng.integers(0, n, k).astype(np.int32)
    indptr_t, indices_t, _ = reference.transpose_pattern(indptr, indices, n)
    return {**reals, "indptr": indptr, "indices": indices, "indptr_t": indptr_t,
            "indices_t": indices_t, "entry": np.arange(k)[::-1].copy(),
            "number": rng.permutation(n),
            "rows": rng.permutation(m)[:5 * scale], "index": np.sort(rng.integers(0, n, m)),
            "vertex": rng.permutation(m), "mask": pack_mask(rng.random((m, f)) < 0.5),
            "mask4": np.arange(m, dtype=np.uint8)[:, None] % 16,
            "labels": rng.integers(0, f, m), "wide": rng.random(m) + 1,
            "bits": np.zeros((m, 2), np.uint8), "means": rng.random((m, 2)),
            "f8": rng.random(f), "g8": rng.random(f) + 1, "pair": rng.random((2, f)),
            "many": rng.integers(0, 2, (m, f)).astype(np.float32),
            "counter": rng.integers(0, 99, (3, 4)), "key": np.array([3, 4]),
            "target": rng.random((3, f)), "classes": rng.random((3, f + 3))}


def case(name, scale=1):
    """Return valid arguments of the kernel `name`, with new copies of all arrays."""
    known = arrays(scale)
    return {key: known[value].copy() if isinstance(value, str) and value in known else value
            for key, value in CASES[name].items()}


def outcome(kernels, name, given):
    """Run a kernel; return its results, then its arguments after the call, as float64 arrays."""
    result = getattr(kernels, name)(**given)
    results = result if isinstance(result, tuple) else (result,)
    numbers = [np.asarray(value) for value in (*results, *given.values())
               if isinstance(value, (np.ndarray, np.generic, float, int))
               and not isinstance(value, np.ma.MaskedArray)]
    return [array.astype(np.float64) for array in numbers if array.dtype.kind in "biuf"]

"""Calls of the kernels of a training step except sparse products, and arrays for these calls."""

from typing import ClassVar

import numpy as np

from hpgcn.runtime.device import HOST

HEADS = 4  # heads of attention, if they divide the width
DROPOUT = {"seed": 1, "epoch": 1, "layer": 0, "p": 0.5}
ADAM = {"step": 1, "lr": 1e-3}


class Arrays:
    """Arguments for kernels that are timed.

    Arrays of n rows, and of the nnz entries of an (n, n) matrix.

    An array is made at its first use. Kernels only read x and y, which have normal
    draws; they may write z, out and above.
    """

    MADE: ClassVar = {  # name -> function of Arrays that makes the array
        **dict.fromkeys(("x", "y", "z"), lambda a: a.drawn(a.n, a.width)),
        **dict.fromkeys(("row_score", "col_score"), lambda a: a.drawn(a.n, a.heads)),
        "pulled": lambda a: a.drawn(a.n, a.width + 3 * a.heads),
        **dict.fromkeys(("out", "above"), lambda a: a.filled(0, a.n, a.width)),
        "variance": lambda a: a.filled(1, a.n, a.width),
        **dict.fromkeys(("lse", "share", "dscore"), lambda a: a.filled(1, a.n, a.heads)),
        **dict.fromkeys(("gain", "bias"), lambda a: a.filled(1e-3, a.width)),
        **dict.fromkeys(("mean", "inv_std", "total"), lambda a: a.filled(1, a.n, dtype=float)),
        **dict.fromkeys(("column_mean", "column_inv_std"),
                        lambda a: a.filled(1, a.width, dtype=float)),
        "moments": lambda a: a.filled(0, a.n, 2, dtype=float),
        "column_moments": lambda a: a.filled(0, 2, a.width, dtype=float),
        "vertex": lambda a: np.arange(a.n),
        "index": lambda a: a.rng.permutation(a.n),
        "labels": lambda a: a.rng.integers(0, a.width, a.n),
        "mask": lambda a: a.rng.integers(0, 256, (a.n, -(-a.width // 8)), np.uint8),
        "bits": lambda a: np.zeros_like(a.mask),
        "kept": lambda a: np.zeros_like(a.values),
        "sent": lambda a: np.zeros_like(a.pulled),
        "top": lambda a: a.x.max(1)}

    def __init__(self, indptr, indices, values, width, seed):
        self.indptr, self.indices, self.values = indptr, indices, values
        self.n = indptr.size - 1
        self.nnz = indices.size
        self.width = width
        self.heads = HEADS if width % HEADS == 0 else 1
        self.rng = np.random.default_rng(seed)

    def drawn(self, *sizes):
        array = HOST.empty(sizes, np.float32)
        return self.rng.standard_normal(dtype=np.float32, out=array)

    def filled(self, value, *sizes, dtype=np.float32):
        array = HOST.empty(sizes, dtype)
        array[...] = value
        return array

    def __getattr__(self, name):
        if name not in self.MADE:
            raise AttributeError(name)
        array = self.MADE[name](self)
        setattr(self, name, array)
        return array


# name -> call of kernels k with Arrays a, whose time grows with the rows
ROW_CALLS = {
    "activate": lambda k, a: k.activate(a.z, a.bias, mask=a.bits),
    "activate dropout": lambda k, a: k.activate(a.z, a.bias, a.vertex, mask=a.bits, **DROPOUT),
    "activate_smooth elu": lambda k, a: k.activate_smooth(a.z, a.bias, kind="elu", slopes=a.out),
    "activate_smooth elu dropout": lambda k, a: k.activate_smooth(
        a.z, a.bias, a.vertex, kind="elu", mask=a.bits, slopes=a.out, **DROPOUT),
    "activate_smooth gelu": lambda k, a: k.activate_smooth(a.z, a.bias, kind="gelu", slopes=a.out),
    "activate_smooth gelu dropout": lambda k, a: k.activate_smooth(
        a.z, a.bias, a.vertex, kind="gelu", mask=a.bits, slopes=a.out, **DROPOUT),
    "elu_backward": lambda k, a: k.elu_backward(a.z, a.x, a.mask),
    "dropout": lambda k, a: k.dropout(a.x, a.vertex, out=a.out, **DROPOUT),
    "apply_mask": lambda k, a: k.apply_mask(a.z, a.mask),
    "gather": lambda k, a: k.gather(a.x, a.index, a.out),
    "scatter_add": lambda k, a: k.scatter_add(a.x, a.index, a.out),
    "add": lambda k, a: k.add(a.x, a.out),
    "column_sum": lambda k, a: k.column_sum(a.x),
    "column_squares": lambda k, a: k.column_squares(a.x, a.column_mean),
    "row_sum": lambda k, a: k.row_sum(a.x),
    "row_squares": lambda k, a: k.row_squares(a.x, a.mean),
    "inner": lambda k, a: k.inner(a.x, a.y),
    "layer_norm": lambda k, a: k.layer_norm(a.x, a.mean, a.inv_std, a.gain, a.bias, a.out,
                                            xhat=a.z),
    "layer_norm_backward_sums": lambda k, a: k.layer_norm_backward_sums(a.x, a.y, a.gain),
    "layer_norm_backward": lambda k, a: k.layer_norm_backward(a.x, a.y, a.inv_std, a.gain,
                                                              a.moments, a.out),
    "batch_norm": lambda k, a: k.batch_norm(a.x, a.column_mean, a.column_inv_std, a.gain, a.bias,
                                            a.out, xhat=a.z),
    "batch_norm_backward": lambda k, a: k.batch_norm_backward(
        a.x, a.y, a.column_inv_std, a.gain, a.column_moments, a.out),
    "softmax_cross_entropy": lambda k, a: k.softmax_cross_entropy(a.x, a.labels, a.vertex,
                                                                  grad=a.out),
    "sigmoid_cross_entropy": lambda k, a: k.sigmoid_cross_entropy(a.x, a.y, a.vertex, grad=a.out),
    "spread_max": lambda k, a: k.spread_max(a.x),
    "spread_sum": lambda k, a: k.spread_sum(a.x, a.top),
    "spread_gradient": lambda k, a: k.spread_gradient(a.x, a.labels, 0, a.vertex, a.top, a.total,
                                                      grad=a.out),
    "attend_dots": lambda k, a: k.attend_dots(a.x, a.y, a.above, a.share, a.row_score, a.lse,
                                              a.sent, a.dscore),
    "attend_merge": lambda k, a: k.attend_merge(a.out, a.lse, a.x, a.row_score, above=a.above,
                                                share=a.share, part_above=a.y,
                                                part_share=a.col_score),
    "adam": lambda k, a: k.adam(*(array.reshape(-1) for array in (a.z, a.x, a.out, a.variance)),
                                **ADAM)}

# the same for calls whose time grows with the entries and the rows
ENTRY_CALLS = {
    "attend": lambda k, a: k.attend(a.indptr, a.indices, a.x, a.row_score, a.col_score, a.out,
                                    a.lse, above=a.above, share=a.share),
    "attend dropout": lambda k, a: k.attend(
        a.indptr, a.indices, a.x, a.row_score, a.col_score, a.out, a.lse, above=a.above,
        share=a.share, vertex=a.vertex, neighbor=a.vertex, **DROPOUT),
    "attend_backward": lambda k, a: k.attend_backward(a.indptr, a.indices, a.pulled, a.x,
                                                      a.col_score, a.out, a.dscore),
    "dropout_csr": lambda k, a: k.dropout_csr(a.indptr, a.indices, a.values, a.vertex, out=a.kept,
                                              **DROPOUT)}

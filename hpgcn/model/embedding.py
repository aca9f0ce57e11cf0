"""Learned rows of vertices: the input of a model, alone or to the right of features.

A rank stores the rows of its vertices, and of these the columns that it owns. They lie
behind the weights in its flat array of parameters, so that optimizers update both.
Gradients of rows are never sent, because each row has one owner.
"""
from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.model.keyed_values import keyed_uniform

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec
    from hpgcn.model.stages import ForwardContext
    from hpgcn.parallel.shared_rows import SharedRows
    from hpgcn.parallel.workspace import Workspace

NAME = "embedding"  # name of the rows in files, and key of their first values
BLOCK = 1 << 14  # vertices whose rows are drawn at a time


def own_columns(spec: ModelSpec, columns: slice) -> slice:
    """Return which columns of learned rows lie in `columns` of the model's input."""
    return slice(*(max(place, spec.num_features) - spec.num_features
                   for place in (columns.start, columns.stop)))


def initial_rows(spec: ModelSpec, vertex: np.ndarray, columns: slice) -> np.ndarray:
    """Return the first rows of some vertices, (m, d_j), keyed by (seed, vertex, column).

    Numbers are uniform with mean 0 and variance 1 / d, so a row has a norm of about 1.
    `vertex`, (m,), are ORIGINAL numbers. `columns` are those of the d that are needed.
    """
    d = spec.embedding
    rows = np.empty((vertex.size, columns.stop - columns.start), spec.dtype)
    if rows.size:
        order = np.argsort(vertex, kind="stable")
        blocks, first = np.unique(vertex[order] // BLOCK, return_index=True)
        for block, own in zip(blocks.tolist(), np.split(order, first[1:])):
            start = block * BLOCK
            drawn = keyed_uniform(spec.seed, NAME, BLOCK * d, start * d).reshape(BLOCK, d)
            rows[own] = (2 * drawn[vertex[own] - start, columns] - 1) * np.sqrt(3 / d)
    return rows


class EmbeddingStage:
    """The stage that writes learned rows into the input, and draws its dropout.

    The input has columns for them to the right of the features. `rows`, (m_0,), are the
    rows of this rank that the model reads; None for all. `vertex`, (m_0,), are their
    ORIGINAL numbers.
    """

    def __init__(self, spec: ModelSpec, parameters: Parameters, rows: Array | None,
                 vertex: Array, columns: SharedRows, workspace: Workspace) -> None:
        self.learned = parameters.rows
        self.rows = rows
        self.columns = columns
        self.buffer = workspace.buffer
        first = columns.of(spec.widths[0])
        self.features = first.stop - first.start - self.learned.shape[1]  # columns of this rank
        self.p = spec.first_dropout
        self.drop = {"seed": spec.seed, "layer": 0, "p": self.p}
        self.first = first.start
        self.vertex = vertex

    def forward(self, H: Array, context: ForwardContext) -> tuple:
        ops = kernels.backend(H)
        mask, width = None, self.learned.shape[1]
        with self.columns.comm.clock("dense"):
            if width:
                rows = self.learned
                if self.rows is not None:
                    rows = ops.gather(rows, self.rows, self.buffer("learned", H.shape[0], width))
                repeat(operator.setitem, H, (slice(None), slice(self.features, None)), rows)
            if context.keep and self.p:
                drawn = {**self.drop, "epoch": context.step}
                if width:
                    bits = ops.dropout_bits(self.vertex, width, first=self.first + self.features,
                                            **drawn)
                    mask = self.buffer("mask0", *bits.shape, dtype=np.uint8)
                    repeat(operator.setitem, mask, ALL, bits)
                H = ops.dropout(H, self.vertex, out=self.buffer("X", *H.shape), first=self.first,
                                **drawn)
        return H, partial(self._backward, H, mask)

    def _backward(self, H: Array, mask: Array | None, G: Array, gradient: Parameters) -> None:
        """Write the gradient of the learned rows, 0 for those that the model does not read."""
        ops = kernels.backend(G)
        width = self.learned.shape[1]
        with self.columns.comm.clock("dense"):
            if width:
                own = self.buffer("learned", G.shape[0], width)
                # a layer may leave out the columns of features
                repeat(operator.setitem, own, ALL, G[:, G.shape[1] - width:])
                if mask is not None:
                    ops.apply_mask(own, mask, ops.dropout_scale(self.p))
                if self.rows is None:
                    repeat(operator.setitem, gradient.rows, ALL, own)
                else:
                    repeat(operator.setitem, gradient.rows, ALL, 0)
                    ops.scatter_add(own, self.rows, gradient.rows)

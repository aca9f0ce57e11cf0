"""Graph attention on a rank: out_i = sum over j of softmax_j(LeakyReLU(l_i + r_j)) x_j.

There are K heads of width f; l = <x, a> and r = <x, b>, head by head. A subclass of
`Attention` receives the rows of other ranks: hpgcn.strategies.distributed_attention
exchanges rows, hpgcn.strategies.mixture.mop_attention exchanges columns.

Source: Velickovic et al. 2018.
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.record import repeat

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.runtime.clock import Clock
    from hpgcn.runtime.device import Host

SLOPE = 0.2  # slope of LeakyReLU below 0
TILE = 1 << 13  # rows that are added at a time: a tile of them stays in a cache


@dataclass(frozen=True, eq=False)
class Heads:
    """Input of an attention layer on this rank, and the keys of its dropout.

    Attributes
    ----------
    layer, count : int
        Number of the layer; K.
    vertex_in, vertex_out : (m_in,) and (m,) int64
        ORIGINAL numbers of the rows that it reads and computes, on the device.
    self_rows : (m,) int64 or None
        Positions of the computed rows among the read ones; None if both are equal.
    p, seed : float, int
        Rate and seed of dropout of the entries of the softmax.
    buffer : callable
        Arrays by name, rows and width: see hpgcn.parallel.workspace.
    """

    layer: int
    count: int
    vertex_in: np.ndarray
    vertex_out: np.ndarray
    self_rows: np.ndarray | None
    p: float
    seed: int
    buffer: object

    def array(self, name: str, rows: int, width: int, keep: bool = True) -> Array:
        """Return a work array: this layer's own if `keep`, else a shared one."""
        return self.buffer(f"{name}{self.layer}" if keep else name, rows, width)

    def drawn(self, epoch: int) -> dict:
        """Return slope, dropout rate and dropout keys for the kernels.

        The rate is 0 if `epoch` is 0.
        """
        return {"slope": SLOPE, "seed": self.seed, "epoch": epoch, "layer": self.layer,
                "p": self.p if epoch else 0.0}


class Attention:
    """Base class of attention on a rank.

    Subclasses exchange rows with other ranks in `attend` and `return_`. `heads` is a
    Heads.
    """

    row_numbers: Sequence[Array] = ()  # arrays of row numbers, if they are those of all rows

    def __init__(self, device: Host, clock: Clock, heads: Heads) -> None:
        self.device = device
        self.clock = clock
        self.heads = heads
        self.count = heads.count  # number of heads here
        self.rows_in, self.rows_out = heads.vertex_in.size, heads.vertex_out.size

    def forward(self, x: Array, a: Array, b: Array, *, W: Array | None = None,
                epoch: int = 0) -> tuple:
        """Return the result out (m, K f), and a function for the backward.

        x is (m_in, K f). `a` and `b`, (K, f), are the attention vectors of l and r. `W`
        is the matrix that x was multiplied by, if rows of other ranks were stored
        (`keep_rows`). `epoch` is a key of dropout, 0 outside of training. The function
        takes the gradient of out and returns those of x, a and b. The gradient of x is
        the work array "scratch".
        """
        heads, keep = self.heads, epoch > 0
        K, width = heads.count, x.shape[1]
        matmul = kernels.backend(x).matmul
        spread_a, spread_b = (self._spread(each, x) for each in (a, b))

        # what a training step keeps
        state = [heads.array("attended", self.rows_out, width, keep),
                 heads.array("lse", self.rows_out, K, keep), None, None]
        if keep:
            state[2:] = (heads.array("above", self.rows_out, width),
                         heads.array("share", self.rows_out, K))

        # scores of rows, then the product
        with self.clock("dense"):
            r = matmul(x, spread_b, heads.array("r", self.rows_in, K, keep))
            own = self._own(x)
            l = matmul(own, spread_a, heads.array("l", self.rows_out, K, keep))  # noqa: E741
        self.attend((x, r), l, state, heads.drawn(epoch), spread_b, W)
        return state[0], partial(self._backward, x, l, r, state, spread_a, spread_b, epoch)

    def _backward(self, x: Array, l: Array, r: Array, state: list,  # noqa: E741
                  spread_a: Array, spread_b: Array, epoch: int, G: Array) -> tuple:
        heads = self.heads
        K, width = heads.count, x.shape[1]
        out, lse, above, share = state
        ops = kernels.backend(G)
        with self.clock("dense"):
            pulled, dl = ops.attend_dots(
                G, out, above, share, l, lse, heads.buffer("pulled", self.rows_out, width + 3 * K),
                heads.buffer("dl", self.rows_out, K), slope=SLOPE)
        dx, dr = heads.buffer("scratch", self.rows_in, width), heads.buffer("dr", self.rows_in, K)
        self.return_(pulled, (x, r), (dx, dr), heads.drawn(epoch))

        with self.clock("dense"):
            own = self._own(x)
            da, db = (self.of_heads(ops.matmul(d.T, rows)) for d, rows in ((dl, own), (dr, x)))
            self._add(dr, spread_b, dx)
            self._add(dl, spread_a, dx, heads.self_rows)
        return dx, da, db

    def _add(self, scores: Array, spread: Array, dx: Array, rows: Array | None = None) -> None:
        """Add the gradient through `scores` to the gradient `dx` of x.

        `scores`, (m', K), are those of `rows` of x, None for all. A tile of rows is
        computed at a time, without a second array of the size of x.
        """
        ops = kernels.backend(dx)
        m, width = len(scores), dx.shape[1]
        tile = TILE if self.device.in_tiles else max(m, 1)
        room = self.heads.buffer("tile", min(tile, m), width)
        for lo in range(0, m, tile):
            part = scores[lo:lo + tile]
            added = ops.matmul(part, spread.T, room[:len(part)])
            if rows is None:
                ops.add(added, dx[lo:lo + tile])
            else:  # the order of an index array is computed once
                ops.scatter_add(added, rows if m <= tile else rows[lo:lo + tile], dx)
        self.device.discard(room)

    def keep_rows(self, X: Array, width: int) -> None:
        """Store the received rows of X, which never change. By default does nothing."""

    def attend(self, rows: tuple, l: Array, state: list, drawn: dict,  # noqa: E741
               spread: Array, W: Array | None) -> None:
        """Compute attention into the arrays `state`.

        Out, lse, above and share of kernels.attend. The last two may be None.

        `rows`: x and r of own rows. `spread`: (K f, K), the matrix by which x of other
        ranks is multiplied to get their r.
        """
        raise NotImplementedError

    def return_(self, pulled: Array, rows: tuple, gradients: tuple, drawn: dict) -> None:
        """Compute the gradients of x and r into `gradients`.

        They are those of kernels.attend_backward: the gradient of x lacks the part
        through r. `pulled` is the result of kernels.attend_dots for own rows, and
        `rows` is as in `attend`.
        """
        raise NotImplementedError

    def _own(self, x: Array) -> Array:
        """Select the rows of x that this layer computes results for."""
        if self.heads.self_rows is None:
            return x
        to = self.heads.buffer("part", self.rows_out, x.shape[1])
        return kernels.backend(x).gather(x, self.heads.self_rows, to)

    def _spread(self, vectors: Array, x: Array) -> Array:
        """Return a matrix (K f, K) of attention vectors.

        Column h has the vector of head h, and 0 for other heads.
        """
        K, f = vectors.shape
        rows = self.device.xp.zeros((K * K, f), x.dtype)
        repeat(operator.setitem, rows, slice(None, None, K + 1), vectors)
        return rows.reshape(K, K * f).T

    def of_heads(self, products: Array) -> Array:
        """Return each head's own columns of `products` (K, K f), as (K, f)."""
        K = self.count
        return products.reshape(K * K, products.shape[1] // K)[::K + 1]

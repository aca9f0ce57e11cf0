"""Graph attention on a rank: out_i = sum over j of softmax_j(LeakyReLU(l_i + r_j)) x_j.

K heads of width f; l = <x, a> and r = <x, b>, head by head. The rows of other ranks
come by a subclass of `Attention`: hpgcn.strategies.distributed_attention exchanges
rows, hpgcn.strategies.mixture.mop_attention exchanges columns.

Source: Velickovic et al. 2018.
"""
from dataclasses import dataclass
from functools import partial

import numpy as np

from hpgcn import kernels

SLOPE = 0.2  # slope of LeakyReLU below 0
TILE = 1 << 13  # rows that are added at a time: a tile of them stays in a cache


@dataclass(frozen=True, eq=False)
class Heads:
    """Input of an attention layer on this rank, and the keys of its draws.

    Attributes
    ----------
    layer, count : int
        Number of the layer; K.
    vertex_in, vertex_out : (m_in,) and (m,) int64
        ORIGINAL numbers of the rows that it reads and computes, on the device.
    self_rows : (m,) int64 or None
        Where the latter lie among the former; None where they are the same.
    p, seed : float, int
        Of dropout of the entries of the softmax.
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

    def array(self, name, rows, width, keep=True):
        """Take an array of the layer's own; or, if it is not kept, one that layers share."""
        return self.buffer(f"{name}{self.layer}" if keep else name, rows, width)

    def drawn(self, epoch):
        """Return the keys of a draw in a training step except vertices; none outside of one."""
        return {"slope": SLOPE, "seed": self.seed, "epoch": epoch, "layer": self.layer,
                "p": self.p if epoch else 0.0}


class Attention:
    """Base class for own rows; subclasses receive the rows of others: `attend` and `return_`.

    `device`, `clock` : of the ranks; `heads` : Heads
    """

    def __init__(self, device, clock, heads):
        self.device = device
        self.clock = clock
        self.heads = heads
        self.count = heads.count  # number of heads here
        self.rows_in, self.rows_out = heads.vertex_in.size, heads.vertex_out.size

    def forward(self, x, a, b, *, W=None, epoch=0):
        """Return out (m, K f) of x (m_in, K f), and its backward in a training step.

        a, b: (K, f), of l and r. W: the matrix that x was multiplied by, where rows of
        others were kept (`keep_rows`). epoch: keys dropout; 0: no training step. The
        backward takes the gradient of out and returns those of x, a and b: x's is the
        work array "scratch".
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

    def _backward(self, x, l, r, state, spread_a, spread_b, epoch, G):  # noqa: E741
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
            da, db = (self._gathered(ops.matmul(d.T, rows)) for d, rows in ((dl, own), (dr, x)))
            self._add(dr, spread_b, dx)
            self._add(dl, spread_a, dx, heads.self_rows)
        return dx, da, db

    def _add(self, scores, spread, dx, rows=None):
        """Add the gradient through the scores (m', K) to the rows of x's gradient; None: all rows.

        A tile of rows at a time: no second array of the size of x is held.
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
            else:
                ops.scatter_add(added, rows[lo:lo + tile], dx)

    def keep_rows(self, X, width):
        """Store the received rows of X, which never change. By default does nothing."""

    def attend(self, rows, l, state, drawn, spread, W):  # noqa: E741
        """Fill `state`: out, lse, above and share, as kernels.attend; the last two may be None.

        rows: x and r of own rows. spread: (K f, K), by which r of others is formed.
        """
        raise NotImplementedError

    def return_(self, pulled, rows, gradients, drawn):
        """Fill the gradients of x and r like kernels.attend_backward; x's gradient is
        without r's share.

        pulled: of own rows, as kernels.attend_dots; rows: as `attend`.
        """
        raise NotImplementedError

    def _own(self, x):
        """Select the input rows that are computed."""
        if self.heads.self_rows is None:
            return x
        to = self.heads.buffer("part", self.rows_out, x.shape[1])
        return kernels.backend(x).gather(x, self.heads.self_rows, to)

    def _spread(self, vectors, x):
        """Return a matrix (K f, K): column h has the attention vector of head h, and 0
        for other heads.
        """
        K, f = vectors.shape
        spread = self.device.xp.zeros((K * f, K), x.dtype)
        for h in range(K):
            spread[h * f:(h + 1) * f, h] = vectors[h]
        return spread

    def _gathered(self, products):
        """Return (K, f): of (K, K f) each head's own columns."""
        f = products.shape[1] // self.count
        gathered = self.device.empty((self.count, f), products.dtype)
        for h in range(self.count):
            gathered[h] = products[h, h * f:(h + 1) * f]
        return gathered

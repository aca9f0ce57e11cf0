"""Graph attention on distributed rows: out_i = sum over j of softmax_j(LeakyReLU(l_i + r_j)) x_j.

There are K heads of width f; l = <x, a> and r = <x, b>, head by head. The owner of a
row pulls x of its neighbors, K f numbers each, and computes their r itself. It adds
one block after another to the softmax of its rows as they arrive (online softmax). The
backward pulls rows of `attend_dots` along A^T: gradient, l, lse and dot of a row, K f +
3 K numbers. No array has the size of the nonzeros. If A is symmetric, no partial sum is
sent.

If A is not symmetric, the owner of row i computes gradients for x_j of other ranks from
the rows that it pulled and stored. These gradients are pushed: K f + K numbers. If
other ranks hold nonzeros of a row, its l is sent to them, K numbers. They return their
sums and lse, and the owner merges them.

Source: Velickovic et al. 2018; demirci-2022, section 4.4; Milakov and Gimelshein 2018.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.accesses import accessed
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.parallel.csr import rows_of
from hpgcn.parallel.spooled_exchange import await_with_rows
from hpgcn.parallel.transfers import LOCAL, tiles_of
from hpgcn.parallel.workspace import Workspace
from hpgcn.strategies.attention import Attention
from hpgcn.strategies.strategy import product_name

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.parallel.csr import Csr
    from hpgcn.parallel.transfers import Transfer
    from hpgcn.strategies.attention import Heads
    from hpgcn.strategies.rows import RowStrategy


class RowAttention(Attention):
    """Attention for a RowStrategy: ranks pull rows of x from their owners.

    All ranks make it together. With dropout, ranks exchange ORIGINAL vertex numbers
    once, because these key the draws.
    """

    def __init__(self, strategy: RowStrategy, heads: Heads) -> None:
        super().__init__(strategy.comm.device, strategy.comm.clock, heads)
        self.strategy = strategy
        self.blocks = strategy.product.blocks
        ends = strategy.product.pull, strategy.product.push
        self.pull, self.push = (end.message_transfer for end in ends)

        self.constant = None  # constant rows of other ranks, by source, if they never change
        self.work = Workspace(strategy.dtype, self.device)  # work arrays of results for other ranks
        self.ghosts = {}  # (x, r) by source, of the last step
        self.returns = strategy.returns_gradients  # then rows of other ranks are stored
        self.numbers = {}  # ORIGINAL numbers of rows of x, by source
        self.others = {}  # rows of out, by target; by source of the backward

        # vertex numbers key the draws of dropout
        if heads.p:
            self.numbers = self._numbers(self.pull, heads.vertex_in)
            pull = self.push if self.returns else strategy.back.pull
            self.others = self.numbers
            if pull is not self.pull:
                self.others = self._numbers(pull, heads.vertex_out)

    @property
    def arrays(self) -> list:
        """Arrays stored between steps, except those of `Heads`."""
        return [*self.work.arrays.values(), *(self.constant or {}).values(),
                *self.numbers.values(), *self.others.values()]

    def _numbers(self, transfer: Transfer, own: Array) -> dict[int, np.ndarray]:
        """Return the vertex numbers of rows of other ranks, by source.

        `own`, (m,) int64, are the numbers of own rows. They are sent as rows of floats
        with the same bits.
        """
        if not transfer.adds:
            return {}
        what = "exchange of vertex numbers"
        dtype = self.strategy.dtype
        xp = self.device.xp
        accessed((own,))
        rows = xp.ascontiguousarray(own).view(dtype).reshape(own.size, 8 // dtype.itemsize)
        return {source: derived(xp.ascontiguousarray, part).view(np.int64).ravel().copy()
                for source, part in self._received_rows(transfer, rows, what)}

    def _received_rows(self, transfer: Transfer, rows: np.ndarray,
                       what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, rows received from it) for all other ranks.

        The rows are views of buffers.
        """
        transfer.start(rows, what)
        yield from self._received(transfer, rows, what)

    def _received(self, transfer: Transfer, rows: np.ndarray,
                  what: str) -> Iterator[tuple[int, np.ndarray]]:
        for source, part in transfer.received_rows(transfer.sources, what):
            if part is not rows:
                yield source, part
                transfer.multiplied(source)

    def keep_rows(self, X: Array, width: int) -> None:
        # Pull rows of X (m_in, f) in slices of columns.
        device = self.device
        self.constant = self.strategy.cached_ghost_rows
        if self.constant is not None:  # by another view of the same rows
            return
        self.constant = self.strategy.cached_ghost_rows = {}
        for first in range(0, X.shape[1], width):
            part = derived(device.xp.ascontiguousarray, X[:, first:first + width])
            for source, rows in self._received_rows(self.pull, part, "exchange of features"):
                if source not in self.constant:
                    self.constant[source] = device.empty((len(rows), X.shape[1]), X.dtype)
                repeat(operator.setitem, self.constant[source],
                       (ALL, slice(first, first + width)), rows)

    def attend(self, rows: tuple, l: Array, state: list, drawn: dict,  # noqa: E741
               spread: Array, W: Array | None) -> None:
        what = product_name(self.clock)
        kept = 0 if self.constant is None else W.shape[0]
        waits = self.strategy.waits_of(rows[0].shape[1], False, self.count, kept)
        self.ghosts = {}
        self.push.start(l, what)
        if self.constant is None:
            self.pull.start(rows[0], what)
        waits.first(self.pull, what)
        pulls = waits.twice and self.constant is None
        if pulls:
            await_with_rows(self.push, lambda: self.pull.senders)
        far = {target: derived(np.copy, part)
               for target, part in self._received(self.push, l, what)}
        if pulls:
            self.pull.collect(what)

        if self.push.adds:  # 1. for others first, with what has arrived by then
            width = sum(array.shape[1] for array in state if array is not None)
            for target, buffer in self.push.send_buffers(width):
                part = [array if array is None else self.work.buffer(
                    f"partial {place}", len(buffer), array.shape[1])
                        for place, array in enumerate(state)]
                blocks = self._rows(target, rows, spread, W, what, keep=part[2] is not None)
                self._attend(target, blocks, rows, far[target], part, self.others.get(target),
                             drawn)
                pack(part, buffer)
                self.device.discard(*(array for array in part if array is not None))
                self.push.send(target)

        # own rows, as rows of other ranks arrive
        waits.resume()
        blocks = self._rows(LOCAL, rows, spread, W, what, keep=state[2] is not None,
                            own_read=waits.last)
        self._attend(LOCAL, blocks, rows, l, state, self.heads.vertex_out, drawn)

        if self.push.adds:  # 2. what returns, in the order of ranks
            for numbers, sums in self.push.received_sums(what):
                with self.clock("comm"):
                    self._merge(state, numbers, sums)
        waits.end()

    def _attend(self, target: int, blocks: Iterator, own: tuple, l: Array,  # noqa: E741
                state: list, vertex: Array | None, drawn: dict) -> None:
        """Add the nonzeros in all blocks of `target` to the softmax in `state`."""
        out, lse, above, share = state
        attend = kernels.backend(out).attend
        accumulate = False
        for source, x, r in blocks:
            block = self.blocks[target][source]
            neighbor = self.heads.vertex_in if x is own[0] else self.numbers.get(source)
            for lo, hi, indptr, _ in tiles_of(block, self.pull, self.push):
                with self.clock("spmm"):
                    attend(indptr, block.indices, x, rows_of(l, lo, hi), r, rows_of(out, lo, hi),
                           rows_of(lse, lo, hi), above=rows_of(above, lo, hi),
                           share=rows_of(share, lo, hi), vertex=rows_of(vertex, lo, hi),
                           neighbor=neighbor, accumulate=accumulate, **drawn)
            accumulate = True

    def _rows(self, target: int, rows: tuple, spread: Array,
              W: Array | None, what: str, *, keep: bool,
              own_read: Callable = lambda: None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (source, x, r) of own rows, and of rows of other ranks as they arrive.

        `own_read` is called after own rows.
        """
        wanted = self.blocks[target]
        local = target == LOCAL

        if self.constant is not None:
            received = self._constant(wanted, rows[0], W)
        else:
            received = self.pull.rows_for(target, wanted, what)

        keep = keep and self.returns
        for source, x in received:
            if x is rows[0]:
                yield source, *rows
                own_read()
                continue

            if source not in self.ghosts:
                with self.clock("dense"):
                    if keep and self.constant is None:
                        x = derived(np.copy, x)
                    r = kernels.backend(x).matmul(x, spread)
                self.ghosts[source] = x, r
            yield source, *self.ghosts[source]
            if local and self.constant is None:
                self.pull.multiplied(source)
            if local and not keep:
                del self.ghosts[source]

    def _constant(self, wanted: dict[int, Csr], own: Array,
                  W: Array) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (source, rows of that source times W) from the rows that `keep_rows` stored."""
        for source in wanted:
            if source not in self.constant:
                yield source, own
            elif source in self.ghosts:
                yield source, self.ghosts[source][0]
            else:
                with self.clock("dense"):
                    X = self.constant[source]
                    x = kernels.backend(X).matmul(X, W)
                yield source, x

    def _merge(self, state: list, numbers: np.ndarray, sums: np.ndarray) -> None:
        """Merge partial results of own rows, received from another rank, into `state`."""
        parts = unpack(sums, [each if each is None else each.shape[1] for each in state],
                       self.device.xp)
        rows = [each if each is None else derived(operator.getitem, each, numbers)
                for each in state]
        out, lse, above, share = rows
        kernels.backend(out).attend_merge(out, lse, *parts[:2], above=above, share=share,
                                          part_above=parts[2], part_share=parts[3])
        for each, merged in zip(state, rows):
            if each is not None:
                repeat(operator.setitem, each, numbers, merged)

    def return_(self, pulled: Array, rows: tuple,
                gradients: tuple, drawn: dict) -> None:
        what = product_name(self.clock)
        back = self.strategy.attention_back
        pull, push = back.pull.message_transfer, back.push.message_transfer
        back = replace(back, pull=pull, push=push)
        dx, dr = gradients
        packed = None
        if push.adds:
            packed = self.work.buffer("returned", self.rows_in, dx.shape[1] + dr.shape[1])

        # form gradients, those of other ranks' rows first
        waits = self.strategy.waits_of(rows[0].shape[1], True, self.count)
        if push.adds and not waits.twice:
            await_with_rows(pull, lambda: push.rows)
        for target, Z, blocks in back.partial_sums(pulled, packed, what, waits):
            local = Z is packed
            x, r = rows if local else self.ghosts[target]
            to = gradients if local else [self.work.buffer(f"to {name}", *array.shape)
                                         for name, array in (("x", x), ("r", r))]
            neighbor = self.heads.vertex_in if local else self.numbers.get(target)
            for source, block, P, accumulate in blocks:
                vertex = self.heads.vertex_out if P is pulled else self.others.get(source)
                for lo, hi, indptr, _ in tiles_of(block, pull, push):
                    with self.clock("spmm"):
                        kernels.backend(P).attend_backward(
                            indptr, block.indices, P, *(rows_of(array, lo, hi) for array in (x, r)),
                            *(rows_of(array, lo, hi) for array in to), vertex=vertex,
                            neighbor=rows_of(neighbor, lo, hi), accumulate=accumulate, **drawn)
            if Z is not None:
                pack(to, Z)
            if not local:
                self.device.discard(*to)
        push.finish(packed, what)

        # take the sums of all ranks apart
        if packed is not None:
            for array, part in zip(gradients, unpack(packed, [dx.shape[1], dr.shape[1]], None)):
                repeat(operator.setitem, array, ALL, part)
            self.device.discard(packed)
        self.ghosts = {}
        waits.end()


def pack(arrays: Sequence, packed: np.ndarray) -> None:
    """Copy arrays side by side into the columns of `packed`; skip None."""
    first = 0
    for array in arrays:
        if array is not None:
            repeat(operator.setitem, packed, (ALL, slice(first, first + array.shape[1])), array)
            first += array.shape[1]


def unpack(packed: np.ndarray, widths: list, xp: ModuleType | None) -> list:
    """Split the columns of `packed` into arrays of `widths`.

    The array for a width None is None. With `xp`, the arrays are in C order.
    """
    parts = []
    first = 0
    for width in widths:
        part = None if width is None else packed[:, first:first + width]
        parts.append(derived(xp.ascontiguousarray, part) if xp and part is not None else part)
        first += width or 0
    return parts

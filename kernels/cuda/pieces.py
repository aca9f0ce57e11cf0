"""Long rows cut into pieces, so that no thread takes much longer than the others."""
from typing import Any, NamedTuple

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import cached, current

PIECE = 512  # nonzeros of a piece, at most: other threads may wait for its threads


class Cut(NamedTuple):
    """Rows cut into pieces, the longest first, as int64 arrays of the device."""

    pieces: Any  # (s, 4): row, first and last nonzero + 1, place among slots (-1: a whole row)
    slots: int
    rows: Any  # (c,) rows in several pieces
    firsts: Any  # (c + 1,) place of the first piece of each


def pieces_of(indptr: Array, rows: Array) -> Cut | None:
    """Return the Cut of rows into pieces of at most PIECE nonzeros; None for equal rows.

    Pieces of similar length are adjacent, the longest first. So the rows of a warp end
    at about the same time, and no long piece starts last. Rows of about equal length
    are not cut.
    """
    xp = current().xp
    rows = xp.arange(indptr.size - 1) if rows is None else rows.astype(xp.int64)

    # leave rows of about equal length whole
    starts, stops = indptr[rows].astype(xp.int64), indptr[rows + 1].astype(xp.int64)
    count = stops - starts
    if int(count.max()) <= min(PIECE, max(32, 4 * float(count.mean()))):
        return None

    # begin and end of each piece
    parts = xp.maximum(1, -(-count // PIECE))
    ends = xp.cumsum(parts)
    piece = xp.arange(int(ends[-1]))
    owner = xp.searchsorted(ends, piece, side="right")
    begin = starts[owner] + (piece - (ends - parts)[owner]) * PIECE
    end = xp.minimum(begin + PIECE, stops[owner])

    # pieces of a cut row have slots for their sums
    shared = parts[owner] > 1
    slot = xp.where(shared, xp.cumsum(shared.astype(xp.int64)) - 1, -1)

    # the longest first
    order = xp.argsort(-xp.ceil(xp.log2(end - begin + 1)), kind="stable")
    several = xp.flatnonzero(parts > 1)
    firsts = xp.zeros(several.size + 1, xp.int64)
    firsts[1:] = xp.cumsum(parts[several])
    pieces = xp.stack([rows[owner], begin, end, slot], 1)[order]
    return Cut(xp.ascontiguousarray(pieces), int(firsts[-1]), rows[several], firsts)


def items_of(indptr: Array) -> tuple[Cut | None, int]:
    """Return the Cut of all rows, or None, and the number of pieces or rows.

    The Cut is cached as long as indptr exists, so its contents must not change.
    """
    m = indptr.size - 1
    cut = cached(pieces_of, indptr, None) if m else None
    return cut, m if cut is None else cut.pieces.shape[0]


def room_for_pieces(cut: Cut | None, width: int, dtype: np.dtype) -> Array | None:
    """Return an array for the sums of pieces, (slots, width); None without any."""
    return None if cut is None else current().xp.empty((cut.slots, width), dtype)


def add_pieces(cut: Cut | None, carries: Array | None, out: Array, *,
               accumulate: bool = False) -> None:
    """Sum the pieces of each cut row, in order, and store the sum in `out`."""
    if cut is not None and cut.slots:
        width = out.shape[1]
        current().launch("reductions", "piece_sums", cut.rows.size * width, carries, cut.rows,
                         cut.firsts, cut.rows.size, out, width, int(accumulate), REAL=out.dtype)

"""Sparse times dense on a GPU: each group of threads computes a row, or a piece of a
long row.
"""
from typing import Any, NamedTuple

from hpgcn.kernels.bits16 import BF16, ROUNDED_ONCE, number_dtype
from hpgcn.kernels.cuda.gpu_device import current, kept, rows_of

PIECE = 512  # nonzeros: what one group may take while others wait
PADDED = 4  # nonzeros per row of x from which on a copy of x pays whose rows are loaded by 128 bits


def spmm(indptr, indices, data, x, out=None, *, row_scale=None, col_scale=None, rows=None,
         mask=None, accumulate=False):
    """Multiply; if degrees are skewed, cut long rows into pieces.

    The pieces are cached as long as indptr (and rows) exist, so their contents must not
    change.
    """
    device = current()
    xp = device.xp
    m = indptr.size - 1
    width = x.shape[1]
    dtype = number_dtype(x.dtype)
    if accumulate and out is not None and out.dtype == BF16:
        raise ValueError(ROUNDED_ONCE)
    if out is None:
        out = (xp.empty if rows is None and not accumulate else xp.zeros)((m, width), dtype)
    if m == 0 or width == 0 or (rows is not None and rows.size == 0):
        return out

    # operands; rows of x are padded if that pays for their loads
    pack = 16 // dtype.itemsize  # columns of a thread's load
    unit = 16 // x.dtype.itemsize
    full = -(-width // unit) * unit
    x = device.ordered(x)
    row_scale = device.ordered(row_scale, dtype)
    col_scale = device.ordered(col_scale, dtype)
    aligned = device.aligned(x)
    if not aligned and indices.size >= PADDED * x.shape[0] and 2 * full <= 3 * width:
        padded = xp.empty((x.shape[0], full), x.dtype)  # what lies past width is read, never stored
        padded[:, :width] = x
        x = padded
        aligned = device.aligned(padded)

    # skewed rows are cut into pieces, which carry their sums
    cut = kept(pieces_of, indptr, rows)
    items = m if rows is None else rows.size
    pieces, carries = None, None
    if cut is not None:
        items = cut.pieces.shape[0]
        pieces = cut.pieces
        carries = xp.empty((cut.slots, width), dtype)

    # multiply
    name, threads = shape_of(width, pack, items, device.team > 1)
    mask = device.ordered(mask)
    types = rows_of(x.dtype) | {"INDEX": indices.dtype, "POINTER": indptr.dtype}
    if out.dtype != dtype:
        types["OUT"] = out.dtype
    device.launch(
        "spmm", name, threads, device.ordered(indptr), device.ordered(indices),
        device.ordered(data, dtype), x, x.shape[1], out, width, row_scale, col_scale,
        device.ordered(rows, xp.int64), pieces, mask, int(accumulate), carries, items, int(aligned),
        int(device.aligned(out, carries)), **types)

    # add the carried sums
    if cut is not None and cut.slots:
        device.launch("spmm", "spmm_carries", cut.rows.size * width, carries, cut.rows, cut.firsts,
                      cut.rows.size, out, width, row_scale, mask, int(accumulate), **types)
    return out


def sspmm(indptr, indices, data, x, mask, out=None, *, row_scale=None, col_scale=None, rows=None,
          accumulate=False):
    return spmm(indptr, indices, data, x, out, row_scale=row_scale, col_scale=col_scale, rows=rows,
                mask=mask, accumulate=accumulate)


def shape_of(width, pack, items, warps):
    """Return the name of the kernel, and the number of threads, for `items` rows or
    pieces of `width` columns.

    A load reads `pack` columns, a pack. Without warps, a thread computes 8 columns.
    With warps, a power of two of threads shares a row. One thread suffices for two
    packs; from 33 packs on, a warp computes 64, two in each thread.
    """
    packs = -(-width // pack)
    if not warps:
        return "spmm_thread", items * -(-width // 8)
    if packs <= 2:
        return "spmm_2", items
    if packs > 32:
        return "spmm_64", items * -(-packs // 64) * 32
    lanes = max(4, 1 << (packs - 1).bit_length())
    return f"spmm_{lanes}", items * lanes


class Cut(NamedTuple):
    """Rows cut into pieces, as int64 arrays of the device, with the longest pieces
    first.
    """

    pieces: Any  # (s, 4): row, first and last nonzero + 1, place among slots (-1: a whole row)
    slots: int
    rows: Any  # (c,) rows in several pieces
    firsts: Any  # (c + 1,) place of the first piece of each


def pieces_of(indptr, rows):
    """Return the Cut of rows into pieces of at most PIECE nonzeros; None if all rows
    are about equally long.

    Pieces of similar length are adjacent, the longest first. So the rows of a warp end
    at about the same time, and no long piece starts last.
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

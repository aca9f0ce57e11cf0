"""Sparse times dense on a GPU: a group of threads for each row, or piece of a long row."""
import operator

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, ROUNDED_ONCE, number_dtype
from hpgcn.kernels.cuda.gpu_device import cached, current, rows_of
from hpgcn.kernels.cuda.pieces import pieces_of
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.kernels.masks import with_mask

PADDED = 4  # with this number of nonzeros per row of x, a copy of x for 128-bit loads pays


def spmm(indptr: Array, indices: Array, data: Array, x: Array, out: Array | None = None, *,
         row_scale: Array | None = None, col_scale: Array | None = None, rows: Array | None = None,
         mask: Array | None = None, accumulate: bool = False) -> Array:
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
        complete = rows is None and not accumulate
        out = xp.empty((m, width), dtype) if complete else derived(xp.zeros, (m, width), dtype)
    if m == 0 or width == 0 or (rows is not None and rows.size == 0):
        return out

    # operands; rows of x are padded if that pays for their loads
    pack = 16 // x.dtype.itemsize  # columns of a thread's load
    full = -(-width // pack) * pack
    x = device.ordered(x)
    row_scale = device.ordered(row_scale, dtype)
    col_scale = device.ordered(col_scale, dtype)
    aligned = device.aligned(x)
    if not aligned and indices.size >= PADDED * x.shape[0] and 2 * full <= 3 * width:
        padded = xp.empty((x.shape[0], full), x.dtype)  # columns past width are not stored
        repeat(operator.setitem, padded, (ALL, slice(width)), x)
        x = padded
        aligned = device.aligned(padded)

    # skewed rows are cut into pieces, which carry their sums
    cut = cached(pieces_of, indptr, rows)
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
        int(width % pack == 0 and device.aligned(out, carries)), **types)

    # add the carried sums
    if cut is not None and cut.slots:
        device.launch("spmm", "spmm_carries", cut.rows.size * width, carries, cut.rows, cut.firsts,
                      cut.rows.size, out, width, row_scale, mask, int(accumulate), **types)
    return out


sspmm = with_mask(spmm)


def shape_of(width: int, pack: int, items: int, warps: bool) -> tuple[str, int]:
    """Return the name and the number of threads of the kernel for `items` rows or pieces.

    The rows have `width` columns. A load reads `pack` columns, a pack. Without warps, a
    thread computes 8 columns. With warps, a power of two of threads shares a row. One
    thread suffices for two packs; from 33 packs on, a warp computes 64, two in each
    thread.
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

"""Graph attention on a GPU, with a team of threads for 32 columns of a row or piece of a row."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import Device, current
from hpgcn.kernels.cuda.pieces import add_pieces, items_of, room_for_pieces
from hpgcn.kernels.cuda.step_words import words_of_step
from hpgcn.kernels.host.record import derived
from hpgcn.kernels.reference.attend import attention_key
from hpgcn.kernels.reference.random import dropout_scale, dropout_threshold


def attend(indptr: Array, indices: Array, x: Array, row_score: Array, col_score: Array,
           out: Array | None = None, lse: Array | None = None, *, above: Array | None = None,
           share: Array | None = None, slope: float = 0.2, vertex: Array | None = None,
           neighbor: Array | None = None, seed: int = 0, epoch: int = 0, layer: int = 0,
           p: float = 0.0, first: int = 0, accumulate: bool = False) -> tuple[Array, Array]:
    device = current()
    dtype = x.dtype
    m, heads = row_score.shape
    out = device.xp.empty((m, x.shape[1]), dtype) if out is None else out
    lse = device.xp.empty((m, heads), dtype) if lse is None else lse
    width = x.shape[1] // heads
    team, span = _shares(device, width)
    cut, items = items_of(indptr)
    carries = room_for_pieces(cut, heads * (2 * width + 3), dtype)
    before = derived(lse.copy) if accumulate else None
    device.launch(
        "attend", "attend", items * heads * span, device.ordered(indptr, np.int64),
        device.ordered(indices), None if cut is None else cut.pieces, carries,
        device.ordered(x), device.ordered(row_score, dtype),
        device.ordered(col_score, dtype), out, lse, above, share, dtype.type(slope),
        *_draws(device, vertex, neighbor, seed, epoch, layer, p, first, dtype),
        before, items, heads, width, span, team, REAL=dtype, INDEX=indices.dtype)
    if cut is not None and cut.slots:
        device.launch("attend", "attend_pieces", cut.rows.size * heads * span, carries, cut.rows,
                      cut.firsts, out, lse, above, share, before, cut.rows.size, heads, width, span,
                      REAL=dtype, INDEX=indices.dtype)
    return out, lse


def attend_merge(out: Array, lse: Array, part: Array, part_lse: Array, *,
                 above: Array | None = None, share: Array | None = None,
                 part_above: Array | None = None, part_share: Array | None = None) -> None:
    current().launch("attend", "attend_merge", lse.size, out, lse, part, part_lse, above, share,
                     part_above, part_share, lse.size, out.shape[1] // lse.shape[1],
                     REAL=out.dtype)


def attend_dots(grad: Array, out: Array, above: Array, share: Array, row_score: Array, lse: Array,
                pulled: Array | None = None, drow_score: Array | None = None, *,
                slope: float = 0.2) -> tuple[Array, Array]:
    device = current()
    m, heads = share.shape
    drow_score = device.xp.empty_like(share) if drow_score is None else drow_score
    if pulled is None:
        pulled = device.xp.empty((m, grad.shape[1] + 3 * heads), grad.dtype)
    arrays = map(device.ordered, (grad, out, above, share, row_score, lse))
    width = grad.shape[1] // heads
    team, _ = _shares(device, width)
    device.launch("attend", "attend_dots", share.size * team, *arrays, float(slope), pulled,
                  drow_score, share.size, heads, width, team, REAL=grad.dtype)
    return pulled, drow_score


def attend_backward(indptr: Array, indices: Array, pulled: Array, x: Array, col_score: Array,
                    dx: Array | None = None, dcol_score: Array | None = None, *, slope: float = 0.2,
                    vertex: Array | None = None, neighbor: Array | None = None, seed: int = 0,
                    epoch: int = 0, layer: int = 0, p: float = 0.0, first: int = 0,
                    accumulate: bool = False) -> tuple[Array, Array]:
    """Compute sums along the rows of A^T in an array twice as wide as x, then the gradients."""
    device = current()
    xp = device.xp
    dtype = x.dtype
    n, heads = col_score.shape

    # results, and room for the sums
    dx = xp.empty(x.shape, dtype) if dx is None else dx
    dcol_score = xp.empty((n, heads), dtype) if dcol_score is None else dcol_score
    width = x.shape[1] // heads
    team, span = _shares(device, width)
    cut, items = items_of(indptr)
    sums = xp.empty((n, heads * (2 * width + 1)), dtype)
    carries = room_for_pieces(cut, sums.shape[1], dtype)

    # sums along rows, then gradients of them
    device.launch(
        "attend", "attend_backward", items * heads * span, device.ordered(indptr, np.int64),
        device.ordered(indices), None if cut is None else cut.pieces, carries,
        device.ordered(pulled, dtype), device.ordered(col_score, dtype), sums, dtype.type(slope),
        *_draws(device, vertex, neighbor, seed, epoch, layer, p, first, dtype), items, heads,
        width, span, team, REAL=dtype, INDEX=indices.dtype)
    add_pieces(cut, carries, sums)
    device.launch("attend", "attend_gradients", n * heads * team, sums, device.ordered(x),
                  dtype.type(slope), dx, dcol_score, n * heads, heads, width, int(accumulate), team,
                  REAL=dtype, INDEX=indices.dtype)
    return dx, dcol_score


def attention_bits(vertex: Array, neighbor: Array, heads: int, *, seed: int, epoch: int,
                   layer: int, p: float) -> Array:
    device = current()
    out = device.xp.empty((vertex.size, heads), np.uint8)
    device.launch("attend", "attention_bits", out.size, device.ordered(vertex, np.int64),
                  device.ordered(neighbor, np.int64), vertex.size, heads,
                  *_words(seed, epoch, layer, p), out)
    return out.view(bool)


def _shares(device: Device, width: int) -> tuple[int, int]:
    """Return the threads of a team that shares a head of a row, and those of all its columns."""
    team = min(device.team, 1 << max(0, width - 1).bit_length())
    return team, -(-max(1, width) // team) * team


def _words(seed: int, epoch: int, layer: int, p: float) -> tuple:
    """Return arguments of draws: where key words in memory are, the words, the threshold."""
    now = words_of_step(_key_words, epoch, seed, layer) if p else None
    return now, *map(np.uint32, (*_key_words(epoch, seed, layer), dropout_threshold(p)))


def _key_words(epoch: int, seed: int, layer: int) -> tuple:
    return attention_key(seed, epoch, layer)


def _draws(device: Device, vertex: Array, neighbor: Array, seed: int, epoch: int, layer: int,
           p: float, first: int, dtype: np.dtype) -> tuple:
    """Return arguments of dropout: vertex numbers, key words, threshold, first head, scale."""
    return (device.ordered(vertex, np.int64), device.ordered(neighbor, np.int64),
            *_words(seed, epoch, layer, p), np.uint32(first), dtype.type(dropout_scale(p)))

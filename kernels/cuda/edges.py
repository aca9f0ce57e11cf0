"""Dot products, softmax and sums of messages of stored entries on a GPU."""
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.cuda.pieces import Cut, add_pieces, items_of, room_for_pieces
from hpgcn.kernels.cuda.reductions import total
from hpgcn.kernels.host.record import derived

HELD = 8  # weights of a column that a thread holds, as in edges.cu
THREADS = 1 << 18  # threads that sum gradients of weights, at most: they fill a GPU
SUMS = 1 << 24  # numbers in the sums of all chunks, at most


def edge_dot(indptr: Array, indices: Array, x: Array, y: Array, out: Array | None = None, *,
             heads: int = 1) -> Array:
    device = current()
    out = derived(device.xp.zeros, (indices.size, heads), x.dtype) if out is None else out
    first = int(indptr[0])
    count = int(indptr[-1]) - first
    device.launch("edges", "edge_dot", count * heads, device.ordered(indptr, np.int64),
                  indptr.size - 1, device.ordered(indices), device.ordered(x),
                  device.ordered(y, x.dtype), out, heads, x.shape[1] // heads, first, count,
                  REAL=x.dtype, INDEX=indices.dtype)
    return out


def edge_softmax(indptr: Array, values: Array, out: Array | None = None) -> Array:
    return _by_row("edge_softmax", indptr, out, values)


def edge_softmax_backward(indptr: Array, alpha: Array, grad: Array,
                          out: Array | None = None) -> Array:
    return _by_row("edge_softmax_backward", indptr, out, alpha, grad)


def _by_row(name: str, indptr: Array, out: Array, *arrays: Array | None) -> Array:
    """Run a kernel with one thread for each row and head."""
    device = current()
    dtype = arrays[0].dtype
    out = device.xp.empty(arrays[0].shape, dtype) if out is None else out
    heads = out.shape[1]
    items = (indptr.size - 1) * heads if out.size else 0
    device.launch("edges", name, items, device.ordered(indptr, np.int64),
                  *(device.ordered(array, dtype) for array in arrays), out, items, heads,
                  REAL=dtype)
    return out


def edge_relu(indptr: Array, indices: Array, edge: Array, x: Array, features: Array, weight: Array,
              bias: Array, out: Array | None = None, *, accumulate: bool = False) -> Array:
    xp = current().xp
    m, width = indptr.size - 1, weight.shape[1]
    out = xp.empty((m, width), x.dtype) if out is None else out
    cut, items = items_of(indptr)
    carries = room_for_pieces(cut, width, x.dtype)
    _on_messages("edge_relu", items * width, indptr, indices, edge, x, features, weight, bias,
                 cut, items, carries, out, int(accumulate))
    add_pieces(cut, carries, out, accumulate=accumulate)
    return out


def edge_relu_backward(indptr: Array, indices: Array, edge: Array, x: Array, features: Array,
                       weight: Array, bias: Array, grad: Array, out: Array | None = None, *,
                       accumulate: bool = False) -> tuple[Array, ...]:
    """Sum the gradients of weights over chunks of rows; a second kernel adds the chunks."""
    xp = current().xp
    d, width = weight.shape
    out = xp.empty(x.shape, x.dtype) if out is None else out
    cut, items = items_of(indptr)
    carries = room_for_pieces(cut, width, x.dtype)

    # sums of chunks, whose number depends on shapes only
    chunks = max(1, min(items, THREADS // max(1, width), SUMS // max(1, (d + 1) * width)))
    sums = xp.empty((chunks, (d + 1) * width))
    given = (indptr, indices, edge, x, features, weight, bias, cut, items, carries,
             current().ordered(grad, x.dtype), out, int(accumulate), sums, chunks)
    _on_messages("edge_relu_backward", chunks * width, *given, 1)
    blocks = -(-d // HELD) - 1
    if blocks > 0:
        _on_messages("edge_relu_weights", chunks * blocks * width, *given, blocks)

    # add the pieces of long rows, and the chunks
    add_pieces(cut, carries, out, accumulate=accumulate)
    totals = total(sums).reshape(d + 1, width)
    return out, totals[:d], totals[d]


def _on_messages(name: str, threads: int, indptr: Array, indices: Array, edge: Array, x: Array,
                 features: Array, weight: Array, bias: Array, cut: Cut | None,
                 *others: Any) -> None:
    device = current()
    arrays = (device.ordered(array, x.dtype) for array in (x, features, weight, bias))
    device.launch("edges", name, threads, device.ordered(indptr, np.int64),
                  device.ordered(indices), device.ordered(edge), *arrays, *weight.shape,
                  None if cut is None else cut.pieces, *others,
                  REAL=x.dtype, INDEX=indices.dtype, EDGE=edge.dtype)

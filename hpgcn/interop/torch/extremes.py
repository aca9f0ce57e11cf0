"""A PyTorch operator for the max or min of the messages of a row, like
`torch.sparse.mm` with `reduce`.
"""
import torch
from torch import Tensor

from hpgcn.errors import UsageError
from hpgcn.interop.torch.ops import check_rows
from hpgcn.interop.torch.views import WIDE, pattern_of, queued, rows_of, tensor_of


def extreme(A, x, reduce):
    """Return the max or min of A_ij x_j over the entries of each row i, 0 for empty rows.

    Among equal messages the first gets the gradient, as in torch. A is an Adjacency, x
    (n, f).
    """
    check_rows(A, x, A.shape[1])
    learns = x.is_cuda and torch.is_grad_enabled()  # CPUs add gradients to chosen rows
    *arrays, _, order = A.arrays(learns and (x.requires_grad or A.learns))
    indptr, indices, values, _, indptr_t, indices_t = arrays
    return _extreme(indptr, indices, values, indptr_t, indices_t, order, x, reduce)[0]


@torch.library.custom_op("hpgcn::extreme", mutates_args=())
def _extreme(indptr: Tensor, indices: Tensor, values: Tensor | None, indptr_t: Tensor | None,
             indices_t: Tensor | None, order: Tensor | None, x: Tensor, reduce: str
             ) -> tuple[Tensor, Tensor]:
    """Return the max or min of each row, (m, f), and the position of its entry, -1 in
    rows without entries.
    """
    wide = WIDE[x.dtype]
    with queued(x) as kernels:
        out, arg = kernels.aggregate(pattern_of(indptr), pattern_of(indices), rows_of(x, wide),
                                     _column(values, wide), op=_op(values), reduce=reduce)
        return tensor_of(out, x).to(x.dtype), tensor_of(arg, x)


@_extreme.register_fake
def _(indptr, indices, values, indptr_t, indices_t, order, x, reduce):
    shape = indptr.shape[0] - 1, x.shape[1]
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _keep(ctx, inputs, output):
    *arrays, x, ctx.reduce = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*arrays, x, output[1])


def _backward(ctx, grad, _):
    saved = ctx.saved_tensors
    values = saved[2]
    dx, dvalues = _extreme_backward(*saved, grad, ctx.reduce)
    dvalues = dvalues.to(values.dtype) if ctx.needs_input_grad[2] else None
    return None, None, dvalues, None, None, None, dx if ctx.needs_input_grad[6] else None, None


_extreme.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("hpgcn::extreme_backward", mutates_args=())
def _extreme_backward(indptr: Tensor, indices: Tensor, values: Tensor | None,
                      indptr_t: Tensor | None, indices_t: Tensor | None, order: Tensor | None,
                      x: Tensor, arg: Tensor, grad: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of the values, (nnz,); the second is empty if there
    are no values.
    """
    wide = WIDE[x.dtype]
    flipped = None if order is None else tuple(map(pattern_of, (indptr_t, indices_t, order)))
    with queued(x) as kernels:
        dx, de = kernels.aggregate_backward(
            rows_of(grad, wide), pattern_of(indptr), pattern_of(indices), rows_of(x, wide),
            _column(values, wide), op=_op(values), reduce=reduce, arg=pattern_of(arg),
            transposed=flipped)
        dvalues = x.new_empty(0) if de is None else tensor_of(de, x)[:, 0].to(x.dtype)
        return tensor_of(dx, x).to(x.dtype), dvalues


@_extreme_backward.register_fake
def _(indptr, indices, values, indptr_t, indices_t, order, x, arg, grad, reduce):
    return torch.empty_like(x), x.new_empty(0 if values is None else indices.shape[0])


def _refuse(ctx, *grads):
    raise UsageError("max and min have no second derivative here")


_extreme_backward.register_autograd(_refuse)


def _op(values):
    return "copylhs" if values is None else "mul"


def _column(values, dtype):
    return None if values is None else rows_of(values, dtype)[:, None]

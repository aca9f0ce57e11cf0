"""PyTorch operators on sparse matrices: products with dense ones, and row extremes.

Products have derivatives of any order. All operators work in torch.compile.

Operators take plain tensors: pattern, values and scale of A, pattern and values of A^T,
the order of A's entries there. Values of A^T repeat those of A, so the gradient of
values goes to A's. Every derivative is another product by A or A^T, or dot products at
the entries of A.
"""
from typing import Any

import torch
from torch import Tensor

from hpgcn.errors import UsageError
from hpgcn.interop.torch.torch_adjacency import Adjacency, adjacency_of, traced_without_sparse
from hpgcn.interop.torch.views import WIDE, empty, pattern_of, queued, rows_of, tensor_of

NONE = (None,) * 8  # gradients of the arrays


@traced_without_sparse
def spmm(A: Tensor | Adjacency, x: Tensor, *, transposed: bool = False) -> Tensor:
    """Multiply sparse by dense, A x, or A^T x; differentiable in x and in the values of A.

    Parameters
    ----------
    A : sparse tensor (m, n) in CSR or CSC, or Adjacency
        A tensor is checked, and transposed for the gradient, once as long as it lives;
        see `adjacency_of` on changes in place.
    x : (n, f) or (n,) tensor, float32, float64, bfloat16 or float16
        Of A's dtype, if A has values. Half precision is summed in float32.
    transposed : bool
        Multiply by A^T: x is then (m, f).

    Returns
    -------
    (m, f) or (m,) tensor of x's dtype; with `transposed` (n, f)

    Raises
    ------
    UsageError
        A or x of another kind, shape, dtype or device.

    Examples
    --------
    >>> import torch
    >>> from hpgcn.interop.torch import spmm
    >>> A = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).to_sparse_csr()
    >>> x = torch.tensor([[1.0], [2.0]])
    >>> spmm(A, x)
    tensor([[3.],
            [2.]])
    >>> spmm(A, x, transposed=True)
    tensor([[1.],
            [3.]])
    """
    # a tensor in CSC is stored as its transpose
    A, flipped = adjacency_of(A)
    return product(A, x, transposed != flipped)


def product(A: Adjacency, x: Tensor, transposed: bool = False) -> Tensor:
    """Return the same as `spmm`, for an Adjacency."""
    check_rows(A, x, A.shape[0 if transposed else 1])
    if x.dim() == 1:
        return product(A, x[:, None], transposed)[:, 0]
    transposes = transposed or (x.requires_grad and torch.is_grad_enabled())
    return _spmm(*A.arrays(transposes), x, transposed)


def check_rows(A: Adjacency, x: Tensor, rows: int) -> None:
    """Raise UsageError if x has a dtype, device or shape that does not fit A."""
    if x.layout is not torch.strided or x.dtype not in WIDE or x.device != A.device:
        raise UsageError(f"x is {x.layout} of {x.dtype} on {x.device}, expected torch.strided, "
                         f"floating, on {A.device}")
    if A.values is not None and WIDE[A.values.dtype] is not WIDE[x.dtype]:
        raise UsageError(f"x has dtype {x.dtype}, expected that of A's values, {A.values.dtype}")
    if x.dim() not in (1, 2) or x.shape[0] != rows:
        raise UsageError(f"x has shape {tuple(x.shape)}, expected ({rows}, f)")


@torch.library.custom_op("hpgcn::spmm", mutates_args=())
def _spmm(indptr: Tensor, indices: Tensor, values: Tensor | None, scale: Tensor | None,
          indptr_t: Tensor | None, indices_t: Tensor | None, values_t: Tensor | None,
          order: Tensor | None, x: Tensor, transposed: bool) -> Tensor:
    """Return diag(scale) A x, or A^T diag(scale) x."""
    wide = WIDE[x.dtype]
    side = "col_scale" if transposed else "row_scale"
    if transposed:
        indptr, indices, values = indptr_t, indices_t, values_t
    with queued(x) as kernels:
        out, array = empty((indptr.numel() - 1, x.shape[1]), wide, x)
        kernels.spmm(pattern_of(indptr), pattern_of(indices), rows_of(values, wide),
                     rows_of(x, wide), array, **{side: rows_of(scale, wide)})
    return out.to(x.dtype)


@_spmm.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, values: torch.Tensor | None, scale: Any,
      indptr_t: Any, indices_t: Any, values_t: Any, order: Any, x: Any, transposed: bool) -> Any:
    rows = (indptr_t if transposed else indptr).shape[0] - 1
    return x.new_empty((rows, x.shape[1]))


def _keep_for_spmm(ctx: Any, inputs: tuple, output: Any) -> None:
    *arrays, x, ctx.transposed = inputs
    ctx.save_for_backward(*arrays, x if ctx.needs_input_grad[2] else None)


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple:
    """Return the gradients of the values of A and of x, for `_spmm`."""
    *arrays, x = ctx.saved_tensors
    indptr, indices, values, scale, indptr_t, indices_t, _, order = arrays
    dvalues, dx = None, None
    if ctx.needs_input_grad[8]:
        dx = _spmm(*arrays, grad, not ctx.transposed)
    if ctx.needs_input_grad[2]:
        rows, columns = (x, grad) if ctx.transposed else (grad, x)
        dvalues = _edge_dot(indptr, indices, scale, indptr_t, indices_t, order, rows, columns)
        dvalues = dvalues.to(values.dtype)
    return None, None, dvalues, *NONE[3:], dx, None


_spmm.register_autograd(_spmm_backward, setup_context=_keep_for_spmm)


@torch.library.custom_op("hpgcn::edge_dot", mutates_args=())
def _edge_dot(indptr: Tensor, indices: Tensor, scale: Tensor | None, indptr_t: Tensor | None,
              indices_t: Tensor | None, order: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
    """Return scale_i times the dot product of x_i and y_j for each entry (i, j), (nnz,)."""
    wide = WIDE[x.dtype]
    if scale is not None:
        x = x * scale[:, None]
    with queued(x) as kernels:
        out = kernels.edge_dot(pattern_of(indptr), pattern_of(indices), rows_of(x, wide),
                               rows_of(y, wide))
        return tensor_of(out, x)[:, 0].to(y.dtype)


@_edge_dot.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, scale: Any, indptr_t: Any, indices_t: Any,
      order: Any, x: Any, y: Any) -> Any:
    return y.new_empty(indices.shape)


def _keep_for_dots(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _dots_backward(ctx: Any, grad: Tensor) -> tuple:
    """Return the gradients of x and y, as autograd expects from `_edge_dot`."""
    indptr, indices, scale, indptr_t, indices_t, order, x, y = ctx.saved_tensors
    dx, dy = None, None
    grad_t = None if order is None else grad.detach()[order]
    arrays = indptr, indices, grad, scale, indptr_t, indices_t, grad_t, order
    if ctx.needs_input_grad[6]:
        dx = _spmm(*arrays, y, False)
    if ctx.needs_input_grad[7]:
        dy = _spmm(*arrays, x, True)
    return *NONE[:6], dx, dy


_edge_dot.register_autograd(_dots_backward, setup_context=_keep_for_dots)


def extreme(A: Adjacency, x: Tensor, reduce: str) -> Tensor:
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
    """Return the max or min of each row, (m, f), and its entry, -1 in empty rows."""
    wide = WIDE[x.dtype]
    with queued(x) as kernels:
        out, arg = kernels.aggregate(pattern_of(indptr), pattern_of(indices), rows_of(x, wide),
                                     _column(values, wide), op=_op(values), reduce=reduce)
        return tensor_of(out, x).to(x.dtype), tensor_of(arg, x)


@_extreme.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, values: torch.Tensor | None, indptr_t: Any,
      indices_t: Any, order: Any, x: Any, reduce: str) -> Any:
    shape = indptr.shape[0] - 1, x.shape[1]
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


def _keep_for_extremes(ctx: Any, inputs: tuple, output: tuple) -> None:
    *arrays, x, ctx.reduce = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*arrays, x, output[1])


def _extreme_gradients(ctx: Any, grad: Tensor, _: Any) -> tuple:
    saved = ctx.saved_tensors
    values = saved[2]
    dx, dvalues = _extreme_backward(*saved, grad, ctx.reduce)
    dvalues = dvalues.to(values.dtype) if ctx.needs_input_grad[2] else None
    return None, None, dvalues, None, None, None, dx if ctx.needs_input_grad[6] else None, None


_extreme.register_autograd(_extreme_gradients, setup_context=_keep_for_extremes)


@torch.library.custom_op("hpgcn::extreme_backward", mutates_args=())
def _extreme_backward(indptr: Tensor, indices: Tensor, values: Tensor | None,
                      indptr_t: Tensor | None, indices_t: Tensor | None, order: Tensor | None,
                      x: Tensor, arg: Tensor, grad: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and of the values, (nnz,); the second is empty without values."""
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
def _(indptr: torch.Tensor, indices: torch.Tensor, values: torch.Tensor | None, indptr_t: Any,
      indices_t: Any, order: Any, x: Any, arg: Any, grad: Tensor, reduce: str) -> Any:
    return torch.empty_like(x), x.new_empty(0 if values is None else indices.shape[0])


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise UsageError("max and min have no second derivative here")


_extreme_backward.register_autograd(_refuse)


def _op(values: Tensor | None) -> str:
    return "copylhs" if values is None else "mul"


def _column(values: Tensor | None, dtype: torch.dtype) -> Any:
    return None if values is None else rows_of(values, dtype)[:, None]

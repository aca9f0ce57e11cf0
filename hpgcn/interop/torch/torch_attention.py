"""Graph attention as a PyTorch operator, without arrays of the size of the entries.

Each direction is one pass over the entries. See `hpgcn.kernels.reference.attend` for
the formulas.
"""
from typing import Any

import torch
from torch import Tensor

from hpgcn.errors import UsageError
from hpgcn.interop.torch.ops import check_rows
from hpgcn.interop.torch.torch_adjacency import Adjacency, adjacency_of, traced_without_sparse
from hpgcn.interop.torch.views import WIDE, empty, pattern_of, queued, rows_of


@traced_without_sparse
def attend(A: Tensor | Adjacency, x: Tensor, row_score: Tensor, col_score: Tensor, *,
           slope: float = 0.2, p: float = 0.0, seed: int = 0) -> Tensor:
    """Compute graph attention: sums over (i, j) of softmax(LeakyReLU(l_i + r_j)) x_j.

    The softmax is over the entries of row i, for each of the K heads separately. Only
    the pattern of A counts. The result is differentiable once in x, l and r. No array
    has the size of the entries.

    Parameters
    ----------
    A : sparse tensor (m, n) in CSR, or Adjacency
    x : (n, K f) tensor; head h has the columns h f to (h + 1) f
    row_score, col_score : (m, K) and (n, K) tensors of x's dtype; l and r
    slope : float; of LeakyReLU below 0
    p : float
        Probability of dropping an entry of a head after the softmax; others are divided
        by 1 - p.
    seed : int
        Seed of the draw, which depends only on it, row, column and head. Use another
        seed in each step and layer.

    Returns
    -------
    (m, K f) tensor; 0 in rows without entries

    Raises
    ------
    UsageError
        A tensor of another kind, shape or dtype; or a second derivative.

    Examples
    --------
    >>> import torch
    >>> from hpgcn.interop.torch import attend
    >>> A = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).to_sparse_csr()
    >>> scores = torch.zeros(2, 1)
    >>> attend(A, torch.tensor([[1.0], [2.0]]), scores, scores)
    tensor([[1.5000],
            [2.0000]])
    """
    # only the pattern of A is used
    A, flipped = adjacency_of(A)
    if flipped:
        raise UsageError("A is torch.sparse_csc, expected torch.sparse_csr or an Adjacency")
    A = A.with_values(None)

    # check shapes, types and ranges
    check_rows(A, x, A.shape[1])
    for name, score, rows in (("row_score", row_score, A.shape[0]),
                              ("col_score", col_score, A.shape[1])):
        check_rows(A, score, rows)
        if score.dim() != 2 or score.dtype is not x.dtype or score.shape[1] != row_score.shape[1]:
            raise UsageError(f"{name} has shape {tuple(score.shape)} and dtype {score.dtype}, "
                             f"expected ({rows}, K) of {x.dtype}")
    if x.dim() != 2 or not row_score.shape[1] or x.shape[1] % row_score.shape[1]:
        raise UsageError(f"x has shape {tuple(x.shape)}, expected columns for each of "
                         f"{row_score.shape[1]} heads")
    if not (0 <= p < 1 - 2.0**-17 and slope >= 0 and 0 <= seed < 1 << 63):
        raise UsageError(f"p = {p}, slope = {slope}, seed = {seed}: expected 0 <= p < 1 and no "
                         "negative number")

    # the transpose is needed for a backward pass only
    learns = x.requires_grad or row_score.requires_grad or col_score.requires_grad
    learns = learns and torch.is_grad_enabled()
    indptr, indices, _, _, indptr_t, indices_t, _, _ = A.arrays(learns)
    return _attend(indptr, indices, indptr_t, indices_t, x, row_score, col_score, float(slope),
                   float(p), seed, learns)[0]


@torch.library.custom_op("hpgcn::attend", mutates_args=())
def _attend(indptr: Tensor, indices: Tensor, indptr_t: Tensor | None, indices_t: Tensor | None,
            x: Tensor, row_score: Tensor, col_score: Tensor, slope: float, p: float, seed: int,
            keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the result of attention, and with `keep` three arrays for the backward pass.

    These are lse (log of the sum of exponentials), above (sums over positive scores)
    and share.
    """
    wide = WIDE[x.dtype]
    m, heads = row_score.shape
    with queued(x) as kernels:
        made = [empty(shape, wide, x) for shape in _kept_shapes(m, heads, x.shape[1], keep)]
        (out, a), (lse, b), (above, c), (share, d) = made
        kernels.attend(pattern_of(indptr), pattern_of(indices),
                       *(rows_of(each, wide) for each in (x, row_score, col_score)), a,
                       b if keep else None, above=c if keep else None, share=d if keep else None,
                       slope=slope, **_dropout_options(m, x, p, seed))
    return out.to(x.dtype), lse, above, share


@_attend.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, indptr_t: Any, indices_t: Any, x: Any,
      row_score: Any, col_score: Any, slope: Any, p: float, seed: int, keep: Any) -> Any:
    m, heads = row_score.shape
    wide = WIDE[x.dtype]
    out, *rest = _kept_shapes(m, heads, x.shape[1], keep)
    return x.new_empty(out), *(x.new_empty(shape, dtype=wide) for shape in rest)


def _kept_shapes(m: int, heads: int, width: int, keep: bool) -> tuple[tuple[int, int], ...]:
    rows = m if keep else 0
    return (m, width), (rows, heads), (rows, width), (rows, heads)


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.mark_non_differentiable(*output[1:])
    _, _, indptr_t, indices_t, x, row_score, col_score, ctx.slope, ctx.p, ctx.seed, _ = inputs
    ctx.save_for_backward(indptr_t, indices_t, x, row_score, col_score, *output)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple:
    gradients = _attend_backward(*ctx.saved_tensors, grad, ctx.slope, ctx.p, ctx.seed)
    given = (each if needed else None for each, needed in zip(gradients, ctx.needs_input_grad[4:]))
    return None, None, None, None, *given, None, None, None, None


_attend.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("hpgcn::attend_backward", mutates_args=())
def _attend_backward(indptr_t: Tensor, indices_t: Tensor, x: Tensor, row_score: Tensor,
                     col_score: Tensor, out: Tensor, lse: Tensor, above: Tensor, share: Tensor,
                     grad: Tensor, slope: float, p: float, seed: int
                     ) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, row_score and col_score."""
    wide = WIDE[x.dtype]
    with queued(x) as kernels:
        made = [empty(array.shape, wide, x) for array in (x, row_score, col_score)]
        (dx, a), (drow, b), (dcol, c) = made
        pulled, _ = kernels.attend_dots(
            *(rows_of(array, wide) for array in (grad, out, above, share, row_score, lse)),
            drow_score=b, slope=slope)
        kernels.attend_backward(pattern_of(indptr_t), pattern_of(indices_t), pulled,
                                rows_of(x, wide), rows_of(col_score, wide), a, c, slope=slope,
                                **_dropout_options(len(row_score), x, p, seed))
    return dx.to(x.dtype), drow.to(x.dtype), dcol.to(x.dtype)


@_attend_backward.register_fake
def _(indptr_t: Any, indices_t: Any, x: Any, row_score: Any, col_score: Any, out: Any, lse: Any,
      above: Any, share: Any, grad: Tensor, slope: Any, p: float, seed: int) -> Any:
    return tuple(each.new_empty(each.shape) for each in (x, row_score, col_score))


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise UsageError("attend has no second derivative here")


_attend_backward.register_autograd(_refuse)


def _dropout_options(m: int, x: Tensor, p: float, seed: int) -> dict[str, Any]:
    """Return the kernel arguments for dropout, with rows and columns numbered by position."""
    if not p:
        return {}
    numbers = (torch.arange(size, device=x.device) for size in (m, x.shape[0]))
    vertex, neighbor = map(rows_of, numbers)
    return {"vertex": vertex, "neighbor": neighbor, "seed": seed, "p": p}

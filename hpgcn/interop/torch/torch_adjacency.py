"""A sparse matrix as tensors, together with everything that repeated products reuse."""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from copy import copy
from typing import Any

import torch

from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.validation import index_dtype
from hpgcn.interop.torch.views import WIDE, pattern_of, queued, tensor_of

LAYOUTS = (torch.sparse_csr, torch.sparse_csc)
_known = {}  # by the identity of sparse tensors: a weak reference, their state, an Adjacency


class Adjacency:
    """Sparse matrix (m, n) in CSR that is validated once and keeps its transpose.

    `spmm` and `attend` accept it in place of a sparse tensor, which `torch.compile`
    cannot trace.

    Parameters
    ----------
    indptr : (m + 1,) int32 or int64 tensor; row pointers, from 0
    indices : (nnz,) int32 or int64 tensor; columns, narrowed to int32 where these do
    values : (nnz,) floating tensor, optional
        None: ones, which are not read. Unless they require a gradient they must not
        change.
    shape : (m, n), optional; by default square
    transpose : bool
        Make the transpose now; else where a gradient first needs it.

    Raises
    ------
    DataError
        Pointers do not rise from 0 to nnz, or a column is none of the n.
    UsageError
        Tensors of another kind, shape or device.

    Examples
    --------
    >>> import torch
    >>> from hpgcn.interop.torch import Adjacency, spmm
    >>> A = Adjacency(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]))
    >>> A.shape
    (2, 2)
    >>> spmm(A, torch.tensor([1.0, 2.0]))
    tensor([3., 2.])
    """

    def __init__(self, indptr: torch.Tensor, indices: torch.Tensor,
                 values: torch.Tensor | None = None, shape: tuple[int, int] | None = None, *,
                 transpose: bool = True) -> None:
        m = indptr.numel() - 1
        shape = (m, m) if shape is None else tuple(map(int, shape))
        check(indptr, indices, values, shape)
        self.pattern = TensorPattern(indptr.detach(), indices.detach(), shape)
        # torch.compile cannot trace a view of a sparse tensor, such as `A.values()`
        fixed = values is not None and not values.requires_grad
        self.values = values.detach() if fixed else values
        self.values_t = None
        self.scale = None  # (m,): the matrix is diag(scale) times the stored one
        self.means = {}  # results of `averaging`, by dtype
        if transpose:
            self.arrays(True)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.pattern.shape

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.pattern.indices.device

    @property
    def learns(self) -> bool:
        """Whether the values require a gradient."""
        return self.values is not None and self.values.requires_grad

    def with_values(self, values: torch.Tensor) -> Adjacency:
        """Return a matrix of the same pattern with other values, (nnz,), or None for ones."""
        check_values(values, self.pattern.indices)
        other = copy(self)
        other.values, other.values_t, other.means = values, None, {}
        return other

    def averaging(self, dtype: torch.dtype) -> Adjacency:
        """Return the matrix with each row divided by the number of its entries."""
        if dtype not in self.means:
            with torch.inference_mode(False):
                count = self.pattern.indptr.diff().clamp_(min=1).to(WIDE[dtype])
                other = copy(self)
                other.scale, other.means = count.reciprocal_(), {}
            self.means[dtype] = other
        return self.means[dtype]

    def arrays(self, transposes: bool) -> tuple[torch.Tensor | None, ...]:
        """Return the arguments of operators.

        Pattern, values and scale of A, then those of its transpose.
        """
        indptr_t, indices_t, order = self.pattern.transpose() if transposes else (None,) * 3
        values_t = None
        if transposes and self.learns:
            values_t = self.values.detach()[order]
        elif transposes and self.values is not None:
            if self.values_t is None:
                with torch.inference_mode(False):
                    self.values_t = self.values[order]
            values_t = self.values_t
        return (self.pattern.indptr, self.pattern.indices, self.values, self.scale, indptr_t,
                indices_t, values_t, order)


class TensorPattern:
    """The sparsity pattern of a matrix (m, n), shared by all matrices that have it."""

    def __init__(self, indptr: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int]) -> None:
        narrow = getattr(torch, index_dtype(max(shape)).name)
        self.indptr = indptr.to(torch.int64).contiguous()
        self.indices = indices.to(narrow).contiguous()
        self.shape = shape
        self.transposed = None

    def transpose(self) -> list[torch.Tensor]:
        """Return the pattern of the transpose, and where its entries are here.

        It is computed once.
        """
        if self.transposed is None:
            with torch.inference_mode(False), queued(self.indices) as kernels:
                arrays = kernels.transpose_pattern(
                    pattern_of(self.indptr), pattern_of(self.indices), self.shape[1])
                self.transposed = [tensor_of(array, self.indices) for array in arrays]
        return self.transposed


def check(indptr: torch.Tensor, indices: torch.Tensor, values: torch.Tensor | None,
          shape: tuple) -> None:
    """Refuse invalid CSR tensors, because kernels trust them."""
    for name, tensor in (("indptr", indptr), ("indices", indices)):
        if tensor.dim() != 1 or tensor.dtype not in (torch.int32, torch.int64):
            raise UsageError(f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, "
                             "expected one axis of torch.int32 or torch.int64")

    if indptr.device != indices.device:
        raise UsageError(f"indptr is on {indptr.device}, indices on {indices.device}")
    check_values(values, indices)

    # row pointers, then columns
    if len(shape) != 2 or min(shape) < 0 or indptr.numel() != shape[0] + 1:
        raise UsageError(f"indptr has {indptr.numel()} numbers, expected one more than the rows of "
                         f"shape {shape}")
    nnz = indices.numel()
    whole = int(indptr[0]) == 0 and int(indptr[-1]) == nnz
    if not whole or not bool((indptr[1:] >= indptr[:-1]).all()):
        raise DataError(f"indptr must increase from 0 to {nnz}, the length of indices")
    if nnz and not (int(indices.min()) >= 0 and int(indices.max()) < shape[1]):
        raise DataError(f"indices has columns {int(indices.min())}..{int(indices.max())}, expected "
                        f"0..{shape[1] - 1}")


def check_values(values: torch.Tensor | None, indices: torch.Tensor) -> None:
    """Refuse values unless each entry has one floating-point number."""
    if values is None:
        return
    if values.shape != indices.shape or values.dtype not in WIDE:
        raise UsageError(f"values has shape {tuple(values.shape)} and dtype {values.dtype}, "
                         f"expected ({indices.numel()},) floating numbers")
    if values.device != indices.device:
        raise UsageError(f"values is on {values.device}, indices on {indices.device}")


def adjacency_of(A: Any) -> tuple[Adjacency, bool]:
    """Return the Adjacency of a sparse tensor, and whether it is transposed.

    The Adjacency is cached as long as A lives. A is in CSR, or in CSC, which is the CSR
    of the transpose. Changes in place through A, or its own `A.values()`, are detected
    by its version. Changes through a tensor from which A was arrays, or through `.data`,
    are not.
    """
    # refuse other types and layouts
    if isinstance(A, Adjacency):
        return A, False
    if not isinstance(A, torch.Tensor) or A.layout not in LAYOUTS or A.dim() != 2:
        kind = getattr(A, "layout", type(A).__name__)
        raise UsageError(f"A is {kind}, expected a matrix in torch.sparse_csr or torch.sparse_csc, "
                         "or an Adjacency")
    flipped = A.layout is torch.sparse_csc

    # an inference tensor has no version, so its adjacency is not kept
    if A.is_inference():
        return _build(A, flipped), flipped

    # reuse the adjacency while the tensor and its version are the same
    key = id(A)
    state = A._version, A.requires_grad
    held, seen, adjacency = _known.get(key, (None, None, None))
    if held is None or held() is not A or seen != state:
        with torch.inference_mode(False):  # to allow gradients later
            adjacency = _build(A, flipped)
        _known[key] = weakref.ref(A, lambda _: _known.pop(key, None)), state, adjacency
    if A.requires_grad:  # its values are part of a graph that one backward uses up
        adjacency = adjacency.with_values(A.values())
    return adjacency, flipped


def traced_without_sparse(function: Callable) -> Callable:
    """Wrap a function of (A, ...) so that `torch.compile` skips it for sparse tensors A."""
    aside = torch.compiler.disable(function)

    @functools.wraps(function)
    def call(A: Any, *args: Any, **options: Any) -> Any:
        return (function if isinstance(A, Adjacency) else aside)(A, *args, **options)

    return call


def _build(A: torch.Tensor, flipped: bool) -> Adjacency:
    """Build the Adjacency of a sparse tensor, without a reference to it.

    Values that are all 1 become None.
    """
    values = None
    bare = A.detach()
    if not A.requires_grad:
        values = bare.values().to(WIDE.get(A.dtype, A.dtype))
        values = None if bool((values == 1).all()) else values
    shape: Any = tuple(A.shape)
    pattern = (bare.ccol_indices(), bare.row_indices()) if flipped else (
        bare.crow_indices(), bare.col_indices())
    return Adjacency(*pattern, values, shape[::-1] if flipped else shape, transpose=False)

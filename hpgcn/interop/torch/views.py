"""Convert tensors to NumPy or CuPy arrays for kernels, and back, without a copy."""
from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from hpgcn import kernels
from hpgcn.runtime.device import HOST, find

if TYPE_CHECKING:
    from hpgcn.kernels import Array

WIDE = {torch.float32: torch.float32, torch.float64: torch.float64,  # dtype of kernels' results
        torch.bfloat16: torch.float32, torch.float16: torch.float32}
LARGE = 1 << 16  # number of elements from which NumPy's memory is better, because it has huge pages
_lasting = {}  # by the identity of tensors: weak references, and their arrays


def rows_of(tensor: torch.Tensor | None, dtype: torch.dtype | None = None) -> Any:
    """Return a tensor as an array in C order, maybe converted to `dtype`; None stays None."""
    if tensor is None:
        return None
    if dtype is not None and tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    tensor = tensor.detach().contiguous()
    return _cupy(tensor.device.index).from_dlpack(tensor) if tensor.is_cuda else tensor.numpy()


def pattern_of(tensor: torch.Tensor | None) -> Any:
    """Return row pointers or columns as an array; None stays None.

    On a GPU the same tensor always gives the same array object, by which kernels
    recognize it.
    """
    if tensor is None or not tensor.is_cuda:
        return None if tensor is None else tensor.numpy()
    key = id(tensor)
    held, array = _lasting.get(key, (None, None))
    if held is None or held() is not tensor:
        array = rows_of(tensor)
        _lasting[key] = weakref.ref(tensor, lambda _: _lasting.pop(key, None)), array
    return array


def empty(shape: tuple[int, ...], dtype: torch.dtype,
          like: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Return an uninitialized tensor on the device of `like`, and an array in its memory."""
    if like.is_cuda:
        tensor = torch.empty(shape, dtype=dtype, device=like.device)
        return tensor, rows_of(tensor)
    if math.prod(shape) < LARGE:
        tensor = torch.empty(shape, dtype=dtype)
        return tensor, tensor.numpy()
    array = HOST.empty(shape, str(dtype).removeprefix("torch."))
    return torch.from_numpy(array), array


def tensor_of(array: Array, like: torch.Tensor) -> torch.Tensor:
    """Convert an array that a kernel returned to a tensor."""
    return torch.from_dlpack(array) if like.is_cuda else torch.from_numpy(array)


def queued(like: torch.Tensor) -> AbstractContextManager:
    """Context manager that gives the kernels for a tensor, on torch's current stream."""
    return _on_stream(like) if like.is_cuda else _on_host()


@functools.cache
def _on_host() -> AbstractContextManager:
    return nullcontext(kernels.backend(HOST.xp.empty(0)))


@contextmanager
def _on_stream(like: torch.Tensor) -> Iterator[None]:
    cupy = _cupy(like.device.index)
    stream = torch.cuda.current_stream(like.device).cuda_stream
    with cupy.cuda.Device(like.device.index), cupy.cuda.ExternalStream(stream):
        yield kernels.backend(cupy.empty(0))


@functools.cache
def _cupy(number: int) -> ModuleType:
    return find(number)

"""Tensors as the arrays of kernels, and back, without a copy: NumPy's on a CPU, CuPy's on a GPU."""
import functools
import weakref
from contextlib import contextmanager

import torch

from hpgcn import kernels
from hpgcn.runtime.device import HOST, find

WIDE = {torch.float32: torch.float32, torch.float64: torch.float64,  # what kernels compute in
        torch.bfloat16: torch.float32, torch.float16: torch.float32}
_lasting = {}  # by the identity of tensors: weak references, and their arrays


def rows_of(tensor, dtype=None):
    """Return a tensor as an array in C order, of another dtype if one is given; None of None."""
    if tensor is None:
        return None
    tensor = tensor.detach()
    if dtype is not None:
        tensor = tensor.to(dtype)
    tensor = tensor.contiguous()
    return _cupy(tensor.device.index).from_dlpack(tensor) if tensor.is_cuda else tensor.numpy()


def pattern_of(tensor):
    """Return row pointers or columns as an array: kernels on a GPU know it again by its identity.

    None of None.
    """
    if tensor is None or not tensor.is_cuda:
        return None if tensor is None else tensor.numpy()
    key = id(tensor)
    held, array = _lasting.get(key, (None, None))
    if held is None or held() is not tensor:
        array = rows_of(tensor)
        _lasting[key] = weakref.ref(tensor, lambda _: _lasting.pop(key, None)), array
    return array


def empty(shape, dtype, like):
    """Return (tensor, the same as an array) on the device of another tensor, with any contents."""
    if like.is_cuda:
        tensor = torch.empty(shape, dtype=dtype, device=like.device)
        return tensor, rows_of(tensor)
    array = HOST.empty(shape, str(dtype).removeprefix("torch."))
    return torch.from_numpy(array), array


def tensor_of(array, like):
    """Return an array that a kernel made as a tensor."""
    return torch.from_dlpack(array) if like.is_cuda else torch.from_numpy(array)


@contextmanager
def queued(like):
    """Yield the kernels for a tensor; on a GPU they follow what is on torch's current stream."""
    if not like.is_cuda:
        yield kernels.backend(HOST.xp.empty(0))
        return
    cupy = _cupy(like.device.index)
    stream = torch.cuda.current_stream(like.device).cuda_stream
    with cupy.cuda.Device(like.device.index), cupy.cuda.ExternalStream(stream):
        yield kernels.backend(cupy.empty(0))


@functools.cache
def _cupy(number):
    return find(number)

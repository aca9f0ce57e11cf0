"""The GPU that kernels.cuda runs on: its arrays, and the launch of CUDA kernels.

Kernels use only the device `current()`: its array module `xp`, which is CuPy, and
`launch`. Another device can replace it (`using`), with NumPy arrays and kernels
compiled for the CPU. So everything except the machine code can be tested without a GPU.

A source is compiled when a kernel of it is first called, for the types of its arguments
(-DREAL=float and so on), with HPGCN_GPU_ONLY defined. Without it, every thread of a
kernel depends on its number only and writes outputs of its own. With it, threads of a
warp also exchange registers. Neither has atomics: the same call gives the same bits.
"""
from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import number_dtype
from hpgcn.kernels.host.accesses import accessed, is_observed
from hpgcn.kernels.host.record import derived, recording

BLOCK = 256  # threads; whole warps, and 8 blocks fill a multiprocessor
CHUNKS = 1024  # partial sums of a column, and threads that compute them
TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long",
         "uint16": "Bf16"}
HEADER = Path(__file__).with_name("common.cuh")
# Only explicit calls of fma are fused: else kernels of two shapes would differ in bits.
OPTIONS = ("-std=c++17", "--fmad=false")


def source_text(source: str) -> str:
    """Return the text of a .cu file, preceded by the common header."""
    return HEADER.read_text() + Path(__file__).with_name(f"{source}.cu").read_text()


@functools.cache
def written_places(source: str, name: str) -> tuple[int, ...]:
    """Return the places of a kernel's parameters that it writes: pointers without `const`."""
    text = source_text(source)
    macros = dict(re.findall(r"^#define (PARAMETERS) +((?:.*\\\n)*.*)", text, re.MULTILINE))
    found = re.search(rf"__global__ void {name}\(([^)]*)\)", text)
    parameters = found[1].replace("PARAMETERS", macros.get("PARAMETERS", "")).split(",")
    return tuple(place for place, each in enumerate(parameters)
                 if "*" in each and not re.match(r"[\s\\]*const\b", each))


def rows_of(dtype: np.dtype) -> dict:
    """Return the macros for a kernel on rows of a dtype: REAL, and ROW if it differs."""
    number = number_dtype(dtype)
    return {"REAL": number} if dtype == number else {"REAL": number, "ROW": dtype}


class Device:
    """Base class of devices: their array module, and the launch of functions in .cu files.

    A subclass defines three methods:

    - function(source, name, macros) returns a compiled kernel.
    - start(function, grid, block, arguments) runs it with arrays and NumPy scalars.
    - address(array) returns the address of the first element in device memory.
    """

    xp = np  # or CuPy
    team = 1  # threads that share a row in sums over its columns: a warp, or 1 without warps

    def launch(self, source: str, name: str, threads: int, *arguments: Any, **types: Any) -> None:
        """Run kernel `name` of the file `source`.cu on at least `threads` threads.

        Arguments are converted to parameters of the kernel: arrays and None to
        pointers, Python integers to long long, Python floats to double. NumPy scalars
        keep their type. `types` maps macros of the source to dtypes; a dtype without a
        C type raises TypeError. An array that is not in C order raises ValueError.
        """
        macros = []
        for macro, dtype in types.items():
            if np.dtype(dtype).name not in TYPES:
                raise TypeError(f"{name}: no kernel for {macro} of dtype {dtype}: known are "
                                f"{', '.join(TYPES)}")
            macros.append(f"-D{macro}={TYPES[np.dtype(dtype).name]}")
        if threads:
            if is_observed():
                accessed(arguments, [arguments[place] for place in written_places(source, name)])
            call = (self.function(source, name, tuple(macros)), -(-threads // BLOCK), BLOCK,
                    [self._argument(name, argument) for argument in arguments])
            self.start(*call)
            if (active := recording()) is not None:
                active.note(self.start, call)

    def ordered(self, array: Array, dtype: np.dtype | None = None) -> Array | None:
        """Return an array in C order and with `dtype`, copied only if needed; None for None."""
        return None if array is None else derived(self.xp.ascontiguousarray, array, dtype)

    def aligned(self, *arrays: Array | None) -> bool:
        """Return whether all rows begin at multiples of 16 bytes, as 128-bit loads need."""
        return all(self.address(array) % 16 == 0 and array.shape[-1] * array.itemsize % 16 == 0
                   for array in arrays if array is not None)

    def _argument(self, name: str, value: Any) -> Any:
        if isinstance(value, self.xp.ndarray):
            if not value.flags.c_contiguous:
                raise ValueError(f"{name}: an array of shape {value.shape} is not in C order")
            return value
        if isinstance(value, np.generic):
            return value
        if value is None:
            return np.uint64(0)
        return np.float64(value) if isinstance(value, float) else np.int64(value)


class CupyDevice(Device):
    """The current GPU of CuPy.

    Without `warps` kernels are compiled without HPGCN_GPU_ONLY. They are then slower,
    but tests compare both.
    """

    def __init__(self, warps: bool = True) -> None:
        import cupy

        self.xp = cupy
        self.team = 32 if warps else 1
        self.modules, self.functions = {}, {}

    def function(self, source: str, name: str, macros: tuple[str, ...]) -> Any:
        """Return the kernel compiled by CuPy, which keeps the binary in its cache on disk."""
        key = source, name, macros
        if key not in self.functions:
            if (source, macros) not in self.modules:
                text = source_text(source)
                options = (*OPTIONS, *["-DHPGCN_GPU_ONLY"] * (self.team > 1), *macros)
                self.modules[source, macros] = self.xp.RawModule(code=text, options=options)
            self.functions[key] = self.modules[source, macros].get_function(name)
        return self.functions[key]

    def start(self, function: Any, grid: int, block: int, arguments: list) -> None:
        function((grid,), (block,), tuple(arguments))

    def address(self, array: Array) -> int:
        return array.data.ptr


cupy_device = functools.cache(CupyDevice)
_used = []


def current() -> Device:
    """Return the device of kernels: that of `using`, else CuPy's current GPU."""
    return _used[-1] if _used else cupy_device()


@contextmanager
def using(device: Device) -> Iterator[None]:
    _used.append(device)
    try:
        yield device
    finally:
        _used.pop()


_results = {}


def cached(make: Any, *arrays: Array | None) -> Any:
    """Return make(*arrays), cached for these arrays until one of them is freed.

    The contents of the arrays must not change between calls. None stands for an absent
    array.
    """
    key = (make, *map(id, arrays))
    if key not in _results:
        accessed(arrays)
        _results[key] = make(*arrays)
        for array in arrays:
            if array is not None:
                weakref.finalize(array, _results.pop, key, None).atexit = False
    return _results[key]

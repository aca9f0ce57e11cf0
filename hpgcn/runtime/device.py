"""The device on which a rank stores matrices and computes: the host, or a GPU."""
from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import MissingError, UsageError, agreed, setting
from hpgcn.kernels.disk import current_files, in_memory
from hpgcn.runtime.advice import install_command
from hpgcn.runtime.disk.mapped_pages import forget, leave_memory
from hpgcn.runtime.gpu import current_arena
from hpgcn.runtime.launcher import launched_local_rank
from hpgcn.runtime.machine import size

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.kernels.host.record import Call

log = logging.getLogger("hpgcn")
PIECE = 1 << 25  # bytes of two arrays that `reordered` has in memory at a time
LIMIT = "CUPY_GPU_MEMORY_LIMIT"  # the variable by which CuPy limits the memory that it allocates
ALIGNMENT = 64  # bytes of a cache line, so that a row lies in as few lines as possible


class Host:
    name = "cpu"
    xp = np  # the module whose functions make arrays here: NumPy or CuPy
    in_tiles = True  # products run tile by tile, because the host serves messages between tiles
    exhausted = ()  # exception types that say that the GPU is out of memory
    late = False  # whether MPI started before the CUDA context of this process

    def empty(self, shape: Any, dtype: DTypeLike) -> np.ndarray:
        """Return an uninitialized array whose address is a multiple of ALIGNMENT bytes."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        files = current_files.get()
        if files is not None and size >= files.threshold and not in_memory.get():
            return np.empty(shape, dtype)  # so large that it begins at a page
        memory = np.empty(size + ALIGNMENT, np.uint8)
        return memory[-memory.ctypes.data % ALIGNMENT:][:size].view(dtype).reshape(shape)

    def put(self, array: np.ndarray | None) -> Array:
        """Return a host array as an array of this device; None stays None.

        It is the same object on the host, else a copy. An array of this device stays.
        """
        return array

    def get(self, array: Array) -> np.ndarray:
        """Return an array of this device as a host array: the same on the host, else a copy."""
        return array

    @property
    def in_files(self) -> bool:
        """Whether large arrays of this thread are in files of a scratch folder."""
        return current_files.get() is not None

    def in_memory(self) -> AbstractContextManager:
        """Return a context manager in which this thread allocates no arrays in files."""
        files = current_files.get()
        return nullcontext() if files is None else files.in_memory()

    def keep(self, array: Array) -> Array:
        """Return an array that is in memory: the same, or a copy if arrays are in files."""
        if not self.in_files:
            return array
        with self.in_memory():
            return array.copy()

    def take(self, array: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the rows `rows`, (r,), of an array; only their pages of a file are read."""
        files = current_files.get()
        return array[rows] if files is None else files.take(array, rows)

    def reordered(self, array: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return the rows of an array in another order; few of a file are in memory at a time."""
        if not self.in_files:
            return array[order]
        out = np.empty_like(array, order="C")
        rows = max(1, PIECE // max(1, 2 * array[:1].nbytes))
        for first in range(0, len(order), rows):
            piece = out[first:first + rows]
            piece[...] = self.take(array, order[first:first + rows])
            leave_memory(piece)
        return out

    def discard(self, *arrays: np.ndarray) -> None:
        """Drop the contents of arrays that are overwritten before they are read again.

        Arrays in files of a scratch folder then need no write.
        """
        if self.in_files:
            for array in arrays:
                forget(array)

    def numbers(self, values: list[float]) -> list[float]:
        """Return numbers of kernels as Python numbers, with one wait for the GPU."""
        return values

    def lasting(self, known: dict, key: Hashable, array: np.ndarray) -> np.ndarray:
        """Return a device array for a constant host array, cached in `known` under `key`.

        A GPU stores a copy, because its kernels recognize row pointers and reuse their
        division of the rows.
        """
        return array

    def synchronize(self) -> None:
        """Wait until all queued work of this device is complete."""

    def capture(self, calls: list[Call]) -> list[Call]:
        """Return fewer calls that do the same as recorded calls, if this device can."""
        return calls

    def arithmetic(self) -> dict[str, bool]:
        """Return fields of summary.json on numbers that are not those of the dtype."""
        return {}

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes are free; a host has its own answer for too many."""
        return True


class Cuda(Host):
    """GPU `number` of those visible to this process, used through CuPy.

    Several ranks may share it.
    """

    name = "cuda"
    in_tiles = False  # the host serves messages while the GPU multiplies

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.xp = find(number)
        self.exhausted = (self.xp.cuda.memory.OutOfMemoryError,)
        gpu = self.xp.cuda.Device(number)
        self.late = "mpi4py.MPI" in sys.modules and not has_context(self.xp)
        gpu.use()
        self.place = (socket.gethostname(), gpu.pci_bus_id)  # equal on all ranks of one GPU

    def memory(self) -> tuple[int, int]:
        """Return the bytes this rank may still allocate, and the GPU's bytes."""
        free, total = self.xp.cuda.Device(self.number).mem_info
        pool = self.xp.get_default_memory_pool()
        free += pool.free_bytes()
        limit = pool.get_limit()
        if limit:
            return min(free, limit - pool.used_bytes()), min(total, limit)
        return free, total

    def empty(self, shape: Any, dtype: DTypeLike) -> Array:
        """Return an uninitialized array, aligned for vector loads."""
        return self.xp.empty(shape, dtype)

    def put(self, array: np.ndarray) -> Array:
        if array is None or isinstance(array, self.xp.ndarray):
            return array
        return self.xp.asarray(np.ascontiguousarray(array))

    def get(self, array: Array) -> np.ndarray:
        return self.xp.asnumpy(array)

    in_files = False

    def discard(self, *arrays: Any) -> None:
        """Do nothing: arrays of a GPU are never in files."""

    def numbers(self, values: list[Array]) -> list:
        return self.xp.stack(values).tolist()

    def lasting(self, known: dict, key: Hashable, array: np.ndarray) -> Array:
        if key not in known:
            known[key] = array.copy()
        return known[key]

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    def capture(self, calls: list[Call]) -> list[Call]:
        from hpgcn.kernels.cuda.captured import capture

        return capture(calls)

    def arithmetic(self) -> dict[str, bool]:
        from hpgcn.kernels.cuda.cublas import takes_tf32

        return {"tf32": True} if takes_tf32() else {}

    def has_room(self, size: int) -> bool:
        return size <= self.memory()[0]

    def stream(self) -> Any:
        """Return a new stream, for copies that overlap with computing."""
        return self.xp.cuda.Stream(non_blocking=True)

    def event(self, stream: Any = None) -> Any:
        """Return an event that occurs when all work queued on a stream so far is complete."""
        event = self.xp.cuda.Event(disable_timing=True)
        event.record(self.xp.cuda.get_current_stream() if stream is None else stream)
        return event

    def wait(self, event: Any) -> None:
        """Make all later work on the current stream wait for an event."""
        self.xp.cuda.get_current_stream().wait_event(event)

    def pinned(self, size: int) -> np.ndarray:
        """Return pinned host memory, (size,) uint8, which the GPU can read and write directly."""
        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(size), np.uint8, size)

    def copy(self, target: int, source: int, size: int, stream: Any) -> None:
        """Queue a copy of `size` bytes on a stream, between GPU memory and pinned memory."""
        runtime = self.xp.cuda.runtime
        runtime.memcpyAsync(target, source, size, runtime.memcpyDefault, stream.ptr)


HOST = Host()


class _Context:
    """A store for the number of the GPU on which `start_gpu` created a context."""

    number = None


def start_gpu() -> None:
    """Create the CUDA context of this rank's GPU; call it before MPI starts.

    Open MPI maps the GPU memory of other ranks only if MPI_Init finds a context. The
    launcher's variables give the number of this rank on its node, and `choose` later
    takes the same GPU. Without a launcher, CuPy or a GPU nothing happens.
    """
    local_rank = launched_local_rank()
    if local_rank is None:
        return
    try:
        cupy = find()
        number = local_rank % cupy.cuda.runtime.getDeviceCount()
        cupy.cuda.Device(number).use()
        cupy.cuda.runtime.free(0)  # the first call that needs a context creates it
    except Exception as error:  # `choose` raises it later, on all ranks together
        log.debug("no CUDA context before MPI starts: %s", error)
        return
    _Context.number = number


def has_context(cupy: ModuleType) -> bool:
    """Return whether this thread has a CUDA context."""
    try:
        return bool(cupy.cuda.driver.ctxGetCurrent())
    except Exception:  # the driver was never used
        return False


def read_limit() -> None:
    """Replace the limit of GPU memory in CuPy's variable by bytes, because CuPy takes no units.

    UsageError for a text that is neither a size nor a share.
    """
    text = os.environ.get(LIMIT, "").strip()
    try:
        share = float(text[:-1]) if text.endswith("%") else None
        if not text or text.isdecimal() or (share is not None and 0 <= share <= 100):
            return
        os.environ[LIMIT] = str(size(text))
    except (ValueError, UsageError):
        raise agreed(UsageError(f"{LIMIT}={text}: expected bytes, a size such as 80M, or a share "
                                "such as 50%")) from None  # all ranks have the same environment


def find(number: int = 0) -> ModuleType:
    """Return the module cupy if it can use GPU `number`; else raise a MissingError."""
    read_limit()
    cuda = setting("device", "cuda")
    cpu = setting("device", "cpu")
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise MissingError(f"{cuda} needs cupy (extra cuda12): {install_command('cuda12')} "
                           f"({error})") from error
    except Exception as error:  # CuPy has an exception of its own for each of its libraries
        raise MissingError(f"{cuda}: no GPU can be used: {error}; "
                           f"use {cpu} to run without one") from error
    if number >= count:
        raise MissingError(f"{cuda}: GPU {number} is missing, this machine has {count}; use {cpu} "
                           "to run without one")
    return cupy


def address(array: np.ndarray) -> int:
    """Return the address of the first element of an array, in host or GPU memory."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def choose(name: str, comm: SerialComm) -> Host:
    """Choose the device of this rank; all ranks call it together.

    With `cuda` the ranks of a node share its GPUs in turn; MissingError if a rank finds
    none. With `auto` GPUs are used only if all ranks find one.
    """
    if name == "cpu":
        return HOST

    if (arena := current_arena.get()) is not None:
        return arena.device()

    gpu = None
    missing = None
    try:
        gpu = Cuda(comm.local_rank % find().cuda.runtime.getDeviceCount())
    except MissingError as error:
        missing = error
    if gpu is not None and _Context.number not in (None, gpu.number):
        log.warning("this rank uses GPU %d, but the launcher's variables named GPU %d: messages of "
                    "GPU memory may be slow", gpu.number, _Context.number)

    if name == "auto":
        return HOST if comm.max([missing is not None])[0] else gpu
    with comm.collective_errors():
        if missing is not None:
            raise missing
    return gpu

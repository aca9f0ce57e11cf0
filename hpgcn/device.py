"""Where a rank keeps its matrices and multiplies them: host memory and cores, or a GPU."""
from __future__ import annotations

import socket

import numpy as np

from hpgcn.errors import MissingError, setting

ALIGNMENT = 64  # bytes: a cache line, so that rows touch as few as they can


class Host:
    """Host memory.

    Attributes
    ----------
    name : str
        "cpu" or "cuda".
    xp : module
        Whose functions make arrays here: NumPy or CuPy.
    in_tiles : bool
        Whether a product is multiplied in tiles of rows while messages are under way: the host looks at them between.
    exhausted : tuple of exception types
        What is raised where a GPU has no memory left; () of the host.
    """

    name, xp, in_tiles, exhausted = "cpu", np, True, ()

    def empty(self, shape, dtype):
        """An array that begins at a multiple of ALIGNMENT bytes; its contents are anything."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        memory = np.empty(size + ALIGNMENT, np.uint8)
        return memory[-memory.ctypes.data % ALIGNMENT:][:size].view(dtype).reshape(shape)

    def put(self, array):
        """A host array as one of this device: itself here. None stays None."""
        return array

    def get(self, array):
        """An array of this device as one of the host: itself here, a copy from a GPU."""
        return array

    def numbers(self, values):
        """Numbers that kernels have found, as those of the host; a GPU is waited for once."""
        return values

    def lasting(self, known, key, array):
        """The array, whose contents are the same whenever it is asked for under this key of the dict `known`.

        A GPU keeps a copy: its kernels know an array of row pointers again, and how they have cut its rows.
        """
        return array

    def synchronize(self):
        """Wait until all that was queued here is done."""


class Cuda(Host):
    """One GPU, by CuPy; several ranks may share it.

    Parameters
    ----------
    number : int
        Of the GPU, among those that this process sees.

    Raises
    ------
    MissingError
        CuPy, a driver or this GPU is missing.
    """

    name, in_tiles = "cuda", False  # the host looks while the GPU multiplies

    def __init__(self, number=0):
        self.number, self.xp = number, find(number)
        self.exhausted = (self.xp.cuda.memory.OutOfMemoryError,)
        self.xp.cuda.Device(number).use()
        self.place = socket.gethostname(), self.xp.cuda.Device(number).pci_bus_id  # one and the same for all its ranks

    def memory(self):
        """Bytes that this rank may still put on the GPU, and those of the GPU."""
        free, total = self.xp.cuda.Device(self.number).mem_info
        return free + self.xp.get_default_memory_pool().free_bytes(), total

    def empty(self, shape, dtype):
        """An array; memory of GPUs is aligned beyond need. Its contents are anything."""
        return self.xp.empty(shape, dtype)

    def put(self, array):
        """Copy a host array to the GPU, in C order. None stays None."""
        return None if array is None else self.xp.asarray(np.ascontiguousarray(array))

    def get(self, array):
        """Copy to the host; waits for the copy."""
        return self.xp.asnumpy(array)

    def numbers(self, values):
        """Copy numbers, arrays without axes, to the host together."""
        return self.xp.stack(values).tolist()

    def lasting(self, known, key, array):
        """A copy, made when it is first asked for."""
        if key not in known:
            known[key] = array.copy()
        return known[key]

    def synchronize(self):
        """Wait until all that was queued on the current stream is done."""
        self.xp.cuda.get_current_stream().synchronize()

    def stream(self):
        """A stream of its own, for copies beside what is computed."""
        return self.xp.cuda.Stream(non_blocking=True)

    def event(self, stream=None):
        """An event after all that was queued on a stream so far (default: the current one)."""
        event = self.xp.cuda.Event(disable_timing=True)
        event.record(self.xp.cuda.get_current_stream() if stream is None else stream)
        return event

    def wait(self, event):
        """Let what is queued on the current stream from now on wait for an event; the host does not wait."""
        self.xp.cuda.get_current_stream().wait_event(event)

    def pinned(self, size):
        """Pinned host memory: an array of `size` uint8 that the GPU copies from and to while the host does else."""
        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(size), np.uint8, size)

    def copy(self, target, source, size, stream):
        """Queue a copy of `size` bytes between addresses, of pinned or of GPU memory, on a stream."""
        runtime = self.xp.cuda.runtime
        runtime.memcpyAsync(target, source, size, runtime.memcpyDefault, stream.ptr)


HOST = Host()


def find(number=0):
    """CuPy, where it can use GPU `number`.

    Raises
    ------
    MissingError
        Naming what is missing: CuPy, the driver, or that many GPUs.
    """
    cuda, cpu = setting("device", "cuda"), setting("device", "cpu")
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise MissingError(f"{cuda} needs cupy: pip install 'hpgcn[cuda12]' ({error})") from error
    except Exception as error:  # CuPy has an exception of its own for each of its libraries
        raise MissingError(f"{cuda}: no GPU can be used: {error}; {cpu} runs without one") from error
    if number >= count:
        raise MissingError(f"{cuda}: GPU {number} is missing, there are {count}; {cpu} runs without one")
    return cupy


def address(array):
    """Address of the first element of an array, in host or GPU memory."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def choose(name, comm):
    """The device of this rank; all ranks call it together.

    Parameters
    ----------
    name : "auto", "cpu" or "cuda"
        cuda: the ranks of a node take its GPUs in turn. auto: a GPU if every rank finds one.
    comm : hpgcn.comm.SerialComm or MpiComm

    Raises
    ------
    MissingError
        On all ranks, if "cuda" is asked for and one of them finds no GPU.
    """
    if name == "cpu":
        return HOST
    found = missing = None
    try:
        found = Cuda(comm.local_rank % find().cuda.runtime.getDeviceCount())
    except MissingError as error:
        missing = error
    if name == "auto":
        return HOST if comm.max([missing is not None])[0] else found
    with comm.together():
        if missing is not None:
            raise missing
    return found

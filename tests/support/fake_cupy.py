"""A fake CuPy without a GPU: separate arrays, and CUDA kernels compiled for the CPU.

Like CuPy, it never converts an array to NumPy implicitly, and no function takes both
kinds. `installed(folder)` replaces the module cupy. With late="all", kernels and copies
are delayed until their stream is synchronized or an event after them is queried. With
late="kernels", streams other than the null stream run as soon as their events allow.

A stream that captures computes nothing, and refuses what CUDA or CuPy refuses. Launches
are counted by name in `Stream.launches`: kernels, operations of arrays, and graphs.
"""
import contextlib
import copy
import ctypes
import itertools
import os
import sys
import threading
import time
import types
import weakref
from collections import Counter, deque
from typing import ClassVar

import numpy as np
from shim import ShimDevice

from hpgcn.kernels.bits16 import store, to_float32
from hpgcn.kernels.cuda import cublas
from hpgcn.kernels.cuda.gpu_device import using

METHODS = {
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumsum", "dot", "fill",
    "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape", "round", "searchsorted",
    "sort", "squeeze", "std", "sum", "swapaxes", "take", "transpose", "view"}
VIEWS = {"ravel", "reshape", "squeeze", "swapaxes", "transpose", "view"}
WITHOUT_CONTENTS = {"empty_like", "zeros_like", "may_share_memory"}
CHANGING = {"__setitem__", "fill", "copyto"}
NO_LAUNCHES = {"empty", "empty_like", *VIEWS}


def bare(value):
    """Return the NumPy arrays in fake arrays; a NumPy array raises an error, as in CuPy."""
    if isinstance(value, ndarray):
        return value.memory if is_capturing() or Graph.running else value.held
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}: a host array of shape {value.shape}")
    if isinstance(value, (tuple, list)):
        return type(value)(map(bare, value))
    if isinstance(value, slice):
        return slice(*map(bare, (value.start, value.stop, value.step)))
    return value


def dressed(value):
    """Return fake arrays for NumPy arrays and scalars; a scalar becomes an array without axes."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(allocated(np.asarray(value)))
    return type(value)(map(dressed, value)) if type(value) in (tuple, list) else value


def allocated(array):
    """Return an array as it is, or a copy in memory of this thread's allocator if it has one."""
    allocator = getattr(Allocator.of_thread, "malloc", None)
    if allocator is None or not array.nbytes or holder_of(array) is not None:
        return array
    flat = np.asarray(Held(allocator(array.nbytes), array.nbytes))
    current_stream().run()  # the memory may be that of an array that is still on its way home
    copied = flat.view(array.dtype).reshape(array.shape, order="F" if is_transposed(array) else "C")
    copied[...] = array
    return copied


def is_transposed(array):
    return array.flags.f_contiguous and not array.flags.c_contiguous


def holder_of(array):
    """Return the Held whose memory an array views, or None."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, Held) else None


class Held:
    """Memory that NumPy views, and the pointer that keeps it."""

    def __init__(self, pointer, nbytes):
        self.pointer = pointer
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "version": 3,
                                    "data": (pointer.ptr, False)}


class Allocator:
    """The allocator of each thread, and CuPy's own."""

    of_thread = threading.local()


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        assert all(isinstance(each, int) for each in (ptr, size, device_id))
        self.ptr = ptr
        self.size = size
        self.owner = owner


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem = mem
        self.ptr = mem.ptr + offset


class DefaultPool:
    """The pool of CuPy. Its memory is a block of NumPy's, and counts while arrays use it."""

    used = most = limit = 0

    def malloc(self, size):
        if self.get_limit() and self.used + size > self.get_limit():
            raise OutOfMemoryError(size, self.used, self.get_limit())
        memory = np.empty(size, np.uint8)
        DefaultPool.used += size
        DefaultPool.most = max(self.most, self.used)
        if Stream.late:  # streams may still use it
            Stream.alive.append(memory)
        lent = UnownedMemory(memory.ctypes.data, size, memory)
        weakref.finalize(lent, self.free, size).atexit = False
        return MemoryPointer(lent, 0)

    @staticmethod
    def free(size):
        DefaultPool.used -= size

    def get_limit(self):
        return self.limit or pool_limit()

    def set_limit(self, size):
        DefaultPool.limit = size

    def used_bytes(self):
        return self.used

    def free_bytes(self):
        return 0

    total_bytes = free_all_blocks = free_bytes


def is_capturing():
    return current_stream().captured is not None


def operate(function, args, options, out=None):
    """Apply a NumPy function to fake arrays, or capture that; return `out` or fake results."""
    name = getattr(function, "__name__", "")
    if name in ("matmul", "dot"):
        refuse_cublas()

    def compute():
        if name in WITHOUT_CONTENTS:
            args_ = [each.memory if isinstance(each, ndarray) else each for each in args]
            return function(*args_, **options)
        return function(*map(bare, args), **{key: bare(value) for key, value in options.items()})

    if name not in NO_LAUNCHES:
        Stream.count(name)
    if ndarray.check and name not in VIEWS:
        changed = args[:1] if name in CHANGING else ()
        for each in (*changed, out):
            if isinstance(each, ndarray):
                ndarray.check(each, True)
    if not is_capturing():
        result = compute()
        return dressed(result) if out is None else out
    if out is not None or name in ("fill", "copyto", "__setitem__"):
        current_stream().queue(compute)
        return out
    result = dressed(compute())
    assert isinstance(result, ndarray), f"{name} is not captured"
    if not any(np.may_share_memory(result.memory, each.memory)
               for each in args if isinstance(each, ndarray)):
        current_stream().queue(lambda: result.memory.__setitem__(..., compute()))
    return result


def refuse_cublas():
    if is_capturing():  # as all releases of CuPy do
        raise NotImplementedError("calling cuBLAS API during stream capture is unsupported")


def adapted(function):
    def call(*args, **options):
        out = options.get("out")
        return operate(function, args, options, out if isinstance(out, ndarray) else None)

    return call


def of_held(function):
    """Return a method that applies `function` to an array's contents after all queued work."""
    return lambda self, *args: function(self.held, *args)


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):  # noqa: N801 - the name is CuPy's
    """A fake GPU array.

    `memory` is its NumPy array; `held` is the same after all queued work is done. `check`
    is called before each access that is not of a kernel, with the array and whether it
    is written.
    """

    check: ClassVar = None

    __module__ = "cupy"
    __array_priority__ = 100

    def __init__(self, memory):
        given = getattr(Allocator.of_thread, "given", None)
        assert memory.base is not None or given or not is_capturing(), "allocated"
        self.memory = memory
        if Stream.late and holder_of(memory) is None:  # streams may still use it
            Stream.alive.append(memory)

    shape, dtype, size, ndim, nbytes, itemsize, strides, flags = (
        property(lambda self, name=name: getattr(self.memory, name))
        for name in ("shape", "dtype", "size", "ndim", "nbytes", "itemsize", "strides", "flags"))
    T = property(lambda self: ndarray(self.memory.T))

    @property
    def data(self):
        holder = holder_of(self.memory)
        return types.SimpleNamespace(ptr=self.__cuda_array_interface__["data"][0],
                                     mem=None if holder is None else holder.pointer.mem)

    base = property(lambda self: None if self.memory.base is None else ndarray(self.memory.base))

    @property
    def __cuda_array_interface__(self):
        return {**self.memory.__array_interface__, "version": 3}

    @property
    def held(self):
        if ndarray.check:
            ndarray.check(self, False)
        current_stream().run()
        return self.memory

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if out is None:
            return operate(ufunc if method == "__call__" else getattr(ufunc, method), inputs,
                           options)
        return operate(getattr(ufunc, method), inputs, options | {"out": out}, out[0])

    def __array_function__(self, function, _, args, options):
        return adapted(function)(*args, **options)

    def __getitem__(self, key):
        plain = type(None), type(...), int, np.integer, slice
        parts = key if isinstance(key, tuple) else (key,)
        if all(isinstance(part, plain) for part in parts):
            return ndarray(self.memory[parts if ... in parts else (*parts, ...)])  # never a scalar
        return operate(np.ndarray.__getitem__, (self, key), {})

    def __setitem__(self, key, value):
        operate(np.ndarray.__setitem__, (self, key, value), {})

    def __getattr__(self, name):
        if name not in METHODS:
            raise AttributeError(f"'ndarray' of CuPy: {name}")
        if name in VIEWS:
            return lambda *args, **options: self._view(name, args, options)

        def method(self, *args, **options):
            return adapted(getattr(bare(self), name))(*args, **options)

        return types.MethodType(method, self)

    def _view(self, name, args, options):
        view = getattr(self.memory, name)(*args, **options)
        if not np.may_share_memory(view, self.memory):  # a copy
            return operate(getattr(bare(self), name), args, options)
        return ndarray(view)

    def __len__(self):
        return len(self.memory)

    def __iter__(self):
        return (self[number] for number in range(len(self)))

    __bool__ = of_held(bool)
    __int__ = __index__ = of_held(int)
    __float__ = of_held(float)
    __repr__ = of_held("gpu {!r}".format)
    item = of_held(np.ndarray.item)
    tolist = of_held(np.ndarray.tolist)

    def get(self, stream=None, order="C", out=None, blocking=True):
        if out is None:
            return self.held.copy(order)
        out[...] = self.held
        return out

    def set(self, array, stream=None):
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype) == (self.shape, self.dtype)
        self.held[...] = array


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.stream = None
        self.place = 0

    def record(self, stream=None):
        self.stream = current_stream() if stream is None else stream
        self.place = self.stream.queued
        self.seconds = time.perf_counter()

    def now(self):
        """Return a copy of the event, which later records do not change."""
        return copy.copy(self)

    def behind(self):
        return self.stream and self.stream.queued - len(self.stream.tasks) < self.place

    @property
    def done(self):
        behind = self.behind()
        if behind:
            self.stream.step()
        return not behind

    def synchronize(self):
        with Stream.lock:
            while self.behind():
                self.stream.step()


class Stream:
    """A fake CUDA stream: a queue of operations, delayed as `late` says (see the module)."""

    current: ClassVar = []
    null = None
    late: ClassVar = ""
    alive: ClassVar = []
    known: ClassVar = {}
    numbers: ClassVar = itertools.count()
    launches: ClassVar = Counter()
    lock: ClassVar = threading.RLock()  # threads of the host may wait for events

    @staticmethod
    def count(name):
        """Count a launch, unless it is captured."""
        if not is_capturing():
            Stream.launches[name] += 1

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.captured = None
        self.synchronized = 0
        self.queued = 0
        self.tasks = deque()
        self.ptr = next(Stream.numbers)
        Stream.known[self.ptr] = self

    def __enter__(self):
        Stream.current.append(self)
        return self

    def __exit__(self, *_):
        Stream.current.pop()

    def use(self):
        Stream.current[:] = [self]
        return self

    def queue(self, task, after=None):
        """Append an operation to the queue, to run after the event `after`."""
        if self.captured is not None:
            assert after is None, "an event of another stream"
            self.captured.append(task)
            return
        with Stream.lock:
            self.tasks.append((task, after or Event()))
            self.queued += 1
            Stream.early()

    @staticmethod
    def early():
        """Run all queued operations that `late` does not delay."""
        for stream in Stream.known.values() if Stream.late != "all" else ():
            while stream.tasks and not (Stream.late and stream is Stream.null):
                if stream.tasks[0][1].behind():
                    break
                stream.tasks.popleft()[0]()

    def step(self):
        """Run the first operation, unless another thread has run it."""
        with Stream.lock:
            first = self.tasks[0] if self.tasks else (None, Event())
            first[1].synchronize()
            if self.tasks and self.tasks[0] == first:  # early work may have been it
                self.tasks.popleft()[0]()
            Stream.early()

    def run(self):
        if self.captured is not None:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: the host waits")
        while self.tasks:
            self.step()

    def begin_capture(self):
        assert self is not Stream.null, "the null stream cannot capture"
        self.captured = []

    def end_capture(self):
        tasks, self.captured = self.captured, None
        return Graph(tasks)

    def synchronize(self):
        self.synchronized += 1
        self.run()

    def wait_event(self, event):
        assert isinstance(event, Event)
        self.queue(lambda: None, event.now())

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event


Stream.null = Stream()


class Graph:
    """Captured operations, which a launch queues again."""

    running: ClassVar = False

    def __init__(self, tasks):
        self.tasks = tasks

    def launch(self, stream=None):
        Stream.count("graph")
        current_stream().queue(self.run)

    def run(self):
        Graph.running = True
        try:
            for task in self.tasks:
                task()
        finally:
            Graph.running = False


class MemoryPool:
    def malloc(self, size):
        raise NotImplementedError("arrays of the fake are NumPy's")


@contextlib.contextmanager
def using_allocator(malloc):
    """Use an allocator in this thread; of a MemoryPool arrays are NumPy's."""
    pooled = isinstance(getattr(malloc, "__self__", None), MemoryPool)
    own = Allocator.of_thread
    before = getattr(own, "given", None), getattr(own, "malloc", None)
    own.given, own.malloc = malloc, None if pooled else malloc
    try:
        yield
    finally:
        own.given, own.malloc = before


def current_stream():
    return Stream.current[-1] if Stream.current else Stream.null


def memcpy_async(target, source, size, kind, stream):
    assert kind in range(5)
    assert all(isinstance(number, int) for number in (target, source, size, stream))
    Stream.known[stream].queue(lambda: ctypes.memmove(target, source, size))


def pinned_memory(size):
    assert size > 0
    memory = bytearray(size)
    Stream.alive.append(memory)
    return memory


class Device:
    used: ClassVar = []  # numbers of the GPUs with a context
    mem_info = (2 << 30, 4 << 30)
    pci_bus_id = "0000:00:1E.0"
    cublas_handle = 7
    products: ClassVar = 0  # calls of cuBLAS

    def __init__(self, number=0):
        self.id = number

    def use(self):
        Device.used.append(self.id)
        return self


def numbers_at(address, columns, height, kind):
    """Return a matrix whose columns have `height` numbers each, at an address."""
    dtype = np.dtype({0: np.float32, 1: np.float64, 14: np.uint16}[kind])
    memory = (ctypes.c_char * (columns * height * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(columns, height).T


def gemm_ex(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb,
            beta, c, c_type, ldc, sums, algorithm):
    """Multiply column by column like cuBLAS."""
    assert (handle, a_type, algorithm) == (Device.cublas_handle, b_type, -1)
    tf32 = a_type == 0 and os.environ.get("CUPY_TF32") == "1"
    assert sums == (70 if a_type == 1 else 77 if tf32 else 68)
    assert [float(numbers_at(each, 1, 1, a_type % 14)[0, 0]) for each in (alpha, beta)] == [1, 0]

    def multiply():
        parts = []
        for address, op, down, across, height in (a, op_a, m, k, lda), (b, op_b, k, n, ldb):
            stored = numbers_at(address, down if op else across, height, a_type)
            parts.append(stored[:across].T if op else stored[:down])
        total = np.matmul(*(map(to_float32, parts) if a_type == 14 else parts))
        store(total, numbers_at(c, n, ldc, c_type)[:m])

    Device.products += 1
    Stream.count("gemm")
    current_stream().queue(multiply)


def refused_gemm_ex(*arguments):
    refuse_cublas()
    gemm_ex(*arguments)


class CublasLibrary:
    """The functions of cuBLAS that are called by their addresses."""

    @staticmethod
    def cublasSetStream_v2(handle, stream):
        assert handle.value == Device.cublas_handle
        assert Stream.known[stream.value or 0] is current_stream()

    @staticmethod
    def cublasGemmEx(*arguments):
        gemm_ex(*(each.value if isinstance(each, ctypes.c_void_p) else each
                  for each in arguments))
        return 0


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} "
                         "bytes).")


def pool_limit():
    """Return the limit in bytes as CuPy reads it; ValueError for a text with a unit."""
    text = os.environ.get("CUPY_GPU_MEMORY_LIMIT", "") or "0"
    if text.endswith("%"):
        return int(float(text[:-1]) / 100 * Device.mem_info[1])
    return int(text)


def module():
    cupy = types.ModuleType("cupy")
    cupy.__version__ = "0 (fake)"
    for name in dir(np):
        value = getattr(np, name)
        plain = isinstance(value, type) or not callable(value)
        setattr(cupy, name, value if plain else adapted(value))
    cupy.ndarray = ndarray

    def asarray(array, dtype=None, order=None, blocking=True):
        if not isinstance(array, ndarray):
            assert not is_capturing(), "a copy from the host"
            return ndarray(allocated(np.array(array, dtype)))
        same = dtype is None or array.dtype == dtype
        return array if same else array.astype(dtype)

    cupy.asarray = asarray
    cupy.asnumpy = lambda array: array.get() if isinstance(array, ndarray) else np.array(array)
    cupy.array = lambda array, dtype=None, copy=True: ndarray(
        allocated(asarray(array, dtype).held.copy()))

    def ascontiguousarray(array, dtype=None):
        same = array.flags.c_contiguous and array.ndim and (dtype is None or array.dtype == dtype)
        return array if same else operate(np.ascontiguousarray, (array, dtype), {})

    def get_array_module(*arrays):
        return cupy if any(isinstance(array, ndarray) for array in arrays) else np

    cupy.ascontiguousarray = ascontiguousarray
    cupy.get_array_module = get_array_module
    pool = DefaultPool()
    cupy.get_default_memory_pool = lambda: pool
    cupy.get_default_pinned_memory_pool = lambda: types.SimpleNamespace(
        free_all_blocks=lambda: None)
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, memGetInfo=lambda: Device.mem_info, driverGetVersion=lambda: 0,
        runtimeGetVersion=lambda: 0, memcpyAsync=memcpy_async, memcpyDefault=4,
        free=lambda address: None)
    driver = types.SimpleNamespace(ctxGetCurrent=lambda: len(Device.used))
    cupy.cuda = types.SimpleNamespace(
        runtime=runtime, driver=driver, Device=Device, Stream=Stream, Event=Event,
        MemoryPool=MemoryPool, using_allocator=using_allocator, UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        cublas=types.SimpleNamespace(gemmEx=refused_gemm_ex, getVersion=lambda handle: 120_500),
        get_current_stream=current_stream,
        get_elapsed_time=lambda begin, end: 1e3 * (end.seconds - begin.seconds),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        alloc_pinned_memory=pinned_memory)
    return cupy


class FakeGpu(ShimDevice):
    def __init__(self, folder, cupy, warps=False):
        super().__init__(folder, warps)
        self.xp = cupy

    def start(self, function, grid, block, arguments):
        Stream.count(function[0])
        # an array may end before its kernel runs
        arguments = [np.uint64(self.address(one)) if isinstance(one, ndarray) else bare(one)
                     for one in arguments]
        run = super().start
        current_stream().queue(lambda: run(function, grid, block, arguments))

    def address(self, array):
        return super().address(array.memory if isinstance(array, ndarray) else array)


@contextlib.contextmanager
def installed(folder, warps=False, late=""):
    """Replace the module cupy by the fake one for a while; yield the device of its kernels."""
    before = sys.modules.get("cupy")
    cupy = module()
    sys.modules["cupy"] = cupy
    Stream.late = late
    load, cublas.load_library = cublas.load_library, lambda major: CublasLibrary
    try:
        with using(FakeGpu(folder, cupy, warps)) as device:
            yield device
    finally:
        for stream in list(Stream.known.values()):
            stream.run()
        cublas.load_library = load
        Stream.late = ""
        Stream.known = {Stream.null.ptr: Stream.null}
        Stream.alive.clear()
        Device.used.clear()
        sys.modules.pop("cupy")
        if before is not None:
            sys.modules["cupy"] = before

"""Numba's compiler with a cache that is always writable and never stale.

Numba refuses to import a cached function when no place is writable, and keeps a cached kernel after
a helper in another file has changed. So the cache lies in a folder named by a hash of all sources.
"""
import fcntl
import functools
import hashlib
import os
import tempfile
import types
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock

import numba
from numba.core import config

# scalar operations from which on threads are worth waking: about a millisecond
_least_work = ContextVar("least_work", default=1 << 20)
# Numba's layer "workqueue" ends a process whose threads run parallel code at once
_parallel = Lock()


@functools.cache
def cache_dir():
    """Return the folder of compiled kernels: in NUMBA_CACHE_DIR, the user's cache, or temporary."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    name = f"numba-{digest.hexdigest()[:16]}"

    roots = (os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"), "~/.cache")
    for root in filter(None, roots):
        folder = Path(root).expanduser() / "hpgcn" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except OSError:
            continue
    return tempfile.mkdtemp(prefix="hpgcn-numba-")


def jit(**options):
    """Return a decorator like numba.njit(cache=True, nogil=True, **options)."""

    def decorate(function):
        before = config.CACHE_DIR
        config.CACHE_DIR = cache_dir()
        try:
            kernel = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        finally:
            config.CACHE_DIR = before
        if hasattr(kernel, "_cache"):  # not where NUMBA_DISABLE_JIT leaves it as it was
            save_one_by_one(kernel._cache._cache_file)
        return kernel

    return decorate


def save_one_by_one(cache_file):
    """Let one process at a time add to a cache: Numba numbers what was compiled.

    Of two processes that take the same number for different argument types, each would later load
    and call the other's code. A file system without locks is left as it is.
    """
    save = cache_file.save

    def save_alone(key, data):
        with open(f"{cache_file._index_path}.lock", "wb") as lock:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            save(key, data)

    cache_file.save = save_alone


class Threaded:
    """A kernel over chunks, compiled twice: for one thread and for all.

    Waking threads costs more than a small kernel takes, and on a busy machine a whole time slice.
    Both versions take the same chunks in the same order of sums, so they give the same bits.
    Python threads may call kernels at once: those that use all threads wait for each other.
    """

    def __init__(self, function):
        # Numba's cache tells functions apart by name and line, not by their options
        name = function.__name__ + "_alone"
        alone = types.FunctionType(function.__code__, function.__globals__, name)
        alone.__qualname__ = name
        alone.__module__ = function.__module__
        self.alone = jit()(alone)
        self.together = jit(parallel=True)(function)
        functools.update_wrapper(self, function)

    def __call__(self, work, *args):
        """Run on all threads if `work`, about the number of scalar operations, is worth it."""
        if not worth_threads(work):
            self.alone(*args)
            return
        # chunks go to threads as these come: one that lost its core takes fewer
        with _parallel, numba.parallel_chunksize(1):
            self.together(*args)


def worth_threads(work):
    """Whether so many scalar operations are worth waking threads."""
    return work >= _least_work.get()


@contextmanager
def threshold(work):
    """Within, in this thread, others are woken from `work` scalar operations on: 0 for always."""
    token = _least_work.set(work)
    try:
        yield
    finally:
        _least_work.reset(token)

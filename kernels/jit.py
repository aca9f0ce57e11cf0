"""Numba's compiler with a cache that is always writable and never stale.

Numba refuses to import a cached function when no place is writable, and keeps a cached kernel after a helper in
another file has changed. So the cache lies in a folder named by a hash of all kernel sources.
"""
import functools
import hashlib
import os
import tempfile
import types
from contextlib import contextmanager
from pathlib import Path

import numba
from numba.core import config


@functools.cache
def cache_dir():
    """Folder of compiled kernels: NUMBA_CACHE_DIR if set, else under the user's cache, else a temporary folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    name = f"numba-{digest.hexdigest()[:16]}"
    roots = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"), "~/.cache"]
    for root in (Path(root).expanduser() for root in roots if root):
        folder = root / "hpgcn" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except OSError:
            continue
    return tempfile.mkdtemp(prefix="hpgcn-numba-")


def jit(**options):
    """Return a decorator like numba.njit(cache=True, nogil=True, **options), cached in `cache_dir()`."""

    def decorate(function):
        before, config.CACHE_DIR = config.CACHE_DIR, cache_dir()
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        finally:
            config.CACHE_DIR = before

    return decorate


class Threaded:
    """A kernel over chunks, compiled twice: for one thread and for all.

    Waking threads costs more than a small kernel takes, and on a busy machine a whole time slice. Both versions take
    the same chunks in the same order of sums, so they give the same bits.
    """

    threshold = 1 << 20  # scalar operations from which on threads are worth waking: about a millisecond

    def __init__(self, function):
        # Numba's cache tells functions apart by name and line, not by their options
        alone = types.FunctionType(function.__code__, function.__globals__, function.__name__ + "_alone")
        alone.__qualname__, alone.__module__ = alone.__name__, function.__module__
        self.alone, self.together = jit()(alone), jit(parallel=True)(function)
        functools.update_wrapper(self, function)

    def __call__(self, work, *args):
        """Run on all threads if `work`, about the number of scalar operations, is worth it."""
        if work < self.threshold:
            self.alone(*args)
            return
        with numba.parallel_chunksize(1):  # chunks go to threads as these come: one that lost its core takes fewer
            self.together(*args)


@contextmanager
def threshold(work):
    """Within, threads are woken from `work` scalar operations on: 0 for always."""
    before, Threaded.threshold = Threaded.threshold, work
    try:
        yield
    finally:
        Threaded.threshold = before

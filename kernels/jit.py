"""Numba's compiler with a cache that is always writable and never stale.

Numba refuses to import a cached function when no place is writable, and keeps a cached kernel after
a helper in another file has changed. So the cache lies in a folder named by a hash of all sources.
"""
import fcntl
import functools
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numba
from numba.core import config


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

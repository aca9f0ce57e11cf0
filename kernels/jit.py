"""Numba's compiler with a cache that is always writable and never stale.

Numba refuses to import a cached function when no place is writable, and keeps a cached kernel after a helper in
another file has changed. So the cache lies in a folder named by a hash of all kernel sources.
"""
import functools
import hashlib
import os
import tempfile
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

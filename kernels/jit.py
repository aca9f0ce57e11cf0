"""Numba's compiler with a cache on disk that is always writable and never stale.

Numba refuses to import a cached function if no folder is writable. It keeps using a
cached kernel after a helper in another file has changed. So the cached kernels of a
file are stored in a folder named by a hash. The hash is over this file and all hpgcn
files that it imports, directly or not. Edits of other files leave them valid. The path
is not part of the hash, so that all copies of hpgcn share them.
"""
import fcntl
import functools
import hashlib
import logging
import os
import re
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numba
from numba.core import config
from numba.core.caching import IndexDataCacheFile

from hpgcn.kernels.user_cache import cache_roots

DEADLINE = 30.0  # seconds: to save a kernel takes milliseconds
TRY = 0.01  # seconds between two attempts to lock
IMPORT = re.compile(r"^from (hpgcn[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
NAME = re.compile(r"\w+")
log = logging.getLogger("hpgcn")


class _Stuck:
    """Flag of this process: once a wait for a lock has failed, later kernels do not
    wait.
    """

    said = False


@functools.cache
def cache_root():
    """Return the folder of all compiled kernels: in NUMBA_CACHE_DIR, the user's cache,
    or a temporary folder.
    """
    for root in cache_roots("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        folder = root / "hpgcn" / "numba"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="hpgcn-numba-"))


def cache_dir(file):
    """Return the cache folder of the compiled kernels of a source file.

    Its name is a hash of the source texts and the module names. Compiled code refers to
    module names, and a module may move without a change of its text.
    """
    return cache_root() / f"{Path(file).stem}-{_digest_of_sources(file)}"


@functools.cache
def _digest_of_sources(file):
    digest = hashlib.sha256(numba.__version__.encode())
    names = {getattr(module, "__file__", None): name for name, module in [*sys.modules.items()]
             if name.startswith("hpgcn.")}
    for source in sorted(sources_of(file)):
        digest.update(names.get(source, "").encode() + b"\0" + _read(source))
    return digest.hexdigest()[:16]


def sources_of(file):
    """Return the paths of a source file and of all hpgcn files that it imports,
    directly or not; a set of str.

    Only loaded modules count, because a kernel can only call functions that its file
    has imported before.
    """
    found, new = set(), [file]
    while new:
        source = new.pop()
        if source not in found:
            found.add(source)
            new += _imported_by(source)
    return found


@functools.cache
def _read(file):
    return Path(file).read_bytes()


@functools.cache
def _imported_by(file):
    """Return the files of the hpgcn modules that a file imports at its top."""
    names = []
    for module, imported in IMPORT.findall(_read(file).decode()):
        names += [module, *(f"{module}.{name}" for name in NAME.findall(imported))]
    return [sys.modules[name].__file__ for name in names if name in sys.modules]


def jit(inner=False, counted=True, **options):
    """Return a decorator like numba.njit(cache=True, nogil=True, **options), with this
    module's cache.

    An `inner` function, or one with `forceinline`, can be called from compiled code
    only: Numba compiles no wrapper, which may take longer than the function.

    If not `counted`, the function counts no references to its arrays, because that may
    take longer than its work. It can then neither make nor return arrays; Numba refuses to
    compile it.
    """
    options["no_cfunc_wrapper"] = True
    options["_nrt"] = counted
    options["no_cpython_wrapper"] = inner or "forceinline" in options

    def decorate(function):
        with cache_folder(function) as folder:
            kernel = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        if hasattr(kernel, "_cache"):  # not where NUMBA_DISABLE_JIT leaves it as it was
            keep_in(folder, kernel._cache)
        return kernel

    return decorate


@contextmanager
def cache_folder(function):
    """Context manager: make Numba use the cache folder of a function's file while it
    sets up a cache.
    """
    before = config.CACHE_DIR
    folder = config.CACHE_DIR = str(cache_dir(function.__code__.co_filename))
    try:
        yield folder
    finally:
        config.CACHE_DIR = before


def keep_in(folder, cache):
    """Make Numba store compiled code in `folder` itself, not in a subfolder for the
    source's path.

    The folder's name depends on the source text, so the time stamp of the source is not
    needed.
    """
    cache._cache_path = folder
    cache._cache_file = IndexDataCacheFile(folder, cache._impl.filename_base, None)
    save_one_by_one(cache._cache_file)


def save_one_by_one(cache_file):
    """Let only one process at a time write to a cache, because Numba numbers the files
    in it.

    Otherwise two processes could use the same number for different argument types, and
    later load each other's code. On a file system without locks nothing changes. If a
    process keeps the lock longer than DEADLINE, the kernel is not saved, and the log
    has one warning.
    """
    save = cache_file.save

    def save_alone(key, data):
        with open(f"{cache_file._index_path}.lock", "wb") as lock:
            if _locked(lock):
                save(key, data)

    cache_file.save = save_alone


def _locked(lock):
    """Wait until this process has the lock of a file; return False after DEADLINE
    seconds.
    """
    end = time.monotonic() + (0 if _Stuck.said else DEADLINE)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                break
            time.sleep(TRY)
        except OSError:  # a file system without locks
            return True
    if not _Stuck.said:
        _Stuck.said = True
        log.warning("%s: %s has held this lock for more than %g s, so compiled kernels are not "
                    "stored: end that process, or set NUMBA_CACHE_DIR to another folder", lock.name,
                    lock_holder(lock), DEADLINE)
    return False


def lock_holder(file, locks="/proc/locks"):
    """Return a description of the process that locks an open file; "another process" if
    it cannot be found.
    """
    found = os.fstat(file.fileno())
    node = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):
        for line in Path(locks).read_text().splitlines():
            fields = line.split()  # proc_locks(5): number, kind, mode, access, process, file, ...
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == node:
                with suppress(OSError):
                    command = Path(f"/proc/{fields[4]}/comm").read_text().strip()
                    return f"process {fields[4]} ({command})"
                return f"process {fields[4]}"
    return "another process"

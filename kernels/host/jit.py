"""Compile by Numba, with a cache on disk that never ends a command and is never stale.

Numba's own cache has three faults. Without a writable folder, a cached function cannot
be imported. A damaged file of the cache, or a full disk, raises an error. A cached
kernel stays in use after a helper in another file has changed.

So the compiled kernels of a file have a folder that is named by a hash. The hash is
that of the file and of all hpgcn files that it imports, directly or not. Edits of other
files leave the folder valid. Paths are not hashed, so all copies of hpgcn share it.
"""
import functools
import hashlib
import logging
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import sigutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from hpgcn.kernels.host.user_cache import INSIDE, SHARED, cache_roots, make_writable

DIGEST = 32  # bytes of SHA-256 at the beginning of a file of the cache
IMPORT = re.compile(r"^from (hpgcn[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
NAME = re.compile(r"\w+")
log = logging.getLogger("hpgcn")


@functools.cache
def cache_root() -> Path:
    """Return the folder of all compiled kernels.

    It lies in NUMBA_CACHE_DIR, in the user's cache, or else in a temporary folder. If
    no file can be written anywhere, nothing can be stored at the returned path.
    """
    for root in cache_roots("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        folder = root / INSIDE
        try:
            make_writable(folder)
            return folder
        except OSError:
            continue
    try:
        return Path(tempfile.mkdtemp(prefix="hpgcn-numba-"))
    except OSError:
        return folder


def cache_dir(file: str) -> Path:
    """Return the cache folder of the compiled kernels of a source file.

    Its name is a hash of the source texts and the module names. Compiled code refers to
    module names, and a module may move without a change of its text.
    """
    return cache_root() / f"{Path(file).stem}-{_digest_of_sources(file)}"


@functools.cache
def _digest_of_sources(file: str) -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    names = {getattr(module, "__file__", None): name for name, module in [*sys.modules.items()]
             if name.startswith("hpgcn.")}
    for source in sorted(sources_of(file)):
        digest.update(names.get(source, "").encode() + b"\0" + _read(source))
    return digest.hexdigest()[:16]


def sources_of(file: str) -> set[str]:
    """Return the paths of a source file and all hpgcn files that it imports, a set of str.

    Files that are imported indirectly count as well. Only loaded modules count, because
    a kernel can only call functions that its file has imported before.
    """
    found, new = set(), [file]
    while new:
        source = new.pop()
        if source not in found:
            found.add(source)
            new += _imported_by(source)
    return found


@functools.cache
def _read(file: str) -> bytes:
    return Path(file).read_bytes()


@functools.cache
def _imported_by(file: str) -> list[str]:
    """Return the files of the hpgcn modules that a file imports at its top."""
    names = []
    for module, imported in IMPORT.findall(_read(file).decode()):
        names += [module, *(f"{module}.{name}" for name in NAME.findall(imported))]
    return [sys.modules[name].__file__ for name in names if name in sys.modules]


def jit(inner: bool = False, counted: bool = True, **options: Any) -> Callable:
    """Return a decorator like numba.njit(cache=True, nogil=True), with this module's cache.

    An `inner` function, or one with `forceinline`, can only be called from compiled
    code. Numba then compiles no wrapper, which may take longer than the function.

    Without `counted`, the function does not count references to its arrays, because
    that may take longer than its work. It can then neither make nor return arrays;
    Numba refuses to compile it.
    """
    options["no_cfunc_wrapper"] = True
    options["_nrt"] = counted
    options["no_cpython_wrapper"] = inner or "forceinline" in options

    def decorate(function: Callable) -> Callable:
        kernel = numba.njit(nogil=True, error_model="numpy", **options)(function)
        if kernel is not function:  # NUMBA_DISABLE_JIT leaves it as it was
            kernel._cache = KernelCache(function)
        return kernel

    return decorate


def compile_c_function(function: Callable, signature: Any, kind: type[CFunc] = CFunc,
                       **options: Any) -> CFunc:
    """Compile a function for C code, or load it from the cache; return a CFunc."""
    compiled = kind(function, sigutils.normalize_signature(signature), {}, options)
    compiled._cache = KernelCache(function)
    compiled.compile()
    return compiled


class KernelCache(FunctionCache):
    """The compiled code of a function on disk, one file for each combination of argument types.

    A file begins with the SHA-256 of the rest, because damaged code could do anything.
    Code that cannot be loaded is compiled and stored again. Code that cannot be stored
    stays in memory. The process logs one warning that names the folder.
    """

    warned = False

    def __init__(self, function: Callable) -> None:
        code = function.__code__
        self._py_func = function
        self._name = f"{function.__qualname__.replace('<locals>.', '')}-{code.co_firstlineno}"
        self._cache_path = str(cache_dir(code.co_filename))
        shared = os.environ.get(SHARED)
        name = os.path.basename(self._cache_path)
        self._shared = str(Path(shared, INSIDE, name)) if shared else ""
        self.enable()

    def load_overload(self, sig: tuple, target_context: Any) -> CompileResult | None:
        """Return the stored code for a signature, or None; Numba calls this."""
        target_context.refresh()
        key, path = self._entry(sig, target_context.codegen())
        for folder in filter(None, (self._shared, self._cache_path)):
            found = self._load(os.path.join(folder, os.path.basename(path)), key, target_context)
            if found is not None:
                return found
        return None

    def _load(self, path: str, key: tuple, target_context: Any) -> CompileResult | None:
        try:
            with open(path, "rb") as file:
                digest, content = file.read(DIGEST), file.read()
            if hashlib.sha256(content).digest() != digest:
                raise ValueError("it is damaged")
            stored, reduced = pickle.loads(content)
            if stored == key:
                return CompileResult._rebuild(target_context, *reduced)
        except FileNotFoundError:
            pass
        except Exception as error:
            self._warn(path, error)
        return None

    def save_overload(self, sig: tuple, data: CompileResult) -> None:
        """Store a CompileResult, unless it refers to addresses of this process."""
        if data.library.has_dynamic_globals or not all(each.can_cache for each in data.lifted):
            return
        key, path = self._entry(sig, data.codegen)
        content = dumps((key, data._reduce()))
        temporary = None
        try:
            os.makedirs(self._cache_path, exist_ok=True)
            handle, temporary = tempfile.mkstemp(".tmp", dir=self._cache_path)
            with open(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)
            self._warn(path, error)

    def flush(self) -> None:
        """Do nothing: a key names all that the stored code depends on."""

    def _entry(self, sig: tuple, codegen: Any) -> tuple[tuple, str]:
        """Return the key of compiled code, and the path of its file, named by a hash of the key."""
        version = "py{}{}{}".format(*sys.version_info[:2], sys.abiflags)
        name = f"{self._name}.{version}"
        key = os.path.basename(self._cache_path), name, self._index_key(sig, codegen)
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return key, os.path.join(self._cache_path, f"{name}-{digest}.nbc")

    def _warn(self, path: str, error: Exception) -> None:
        if not KernelCache.warned:
            KernelCache.warned = True
            reason = getattr(error, "strerror", None) or error
            folder, name = os.path.split(path)
            log.warning("%s: kernels are compiled in memory if their code here cannot be loaded "
                        "or stored, as %s (%s); empty this folder, or set NUMBA_CACHE_DIR to "
                        "another one", folder, name, reason)

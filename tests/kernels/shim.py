"""A device that runs the CUDA kernels without a GPU: they are compiled as C++ (see shim.hpp)."""
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import time
import types
from pathlib import Path

import numpy as np

import hpgcn.kernels.cpu
from hpgcn.kernels import reference
from hpgcn.kernels.cuda import gpu_device as cuda_device
from hpgcn.kernels.host.jit import cache_root

KERNELS = Path(cuda_device.__file__).parent
SOURCES = sorted(path.stem for path in KERNELS.glob("*.cu"))
FAMILIES = ("bits16", "spmm", "gather", "random", "elementwise", "aggregate", "loss", "norm",
            "attend", "attend_edges", "messages", "checks")
# parts of names of tests of the CPU alone
OF_THE_CPU = ("past_the_cache", "the_name_is_the_function", "in_any_place", "begin_anywhere",
              "takes_each_kind_of_array")
# families whose kernels are the same without warps
WITHOUT_WARPS = ("gather", "messages", "checks")
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")


class ShimDevice(cuda_device.Device):
    """A device that runs CUDA kernels on the CPU, one thread after the other.

    With `warps`, kernels are compiled with HPGCN_GPU_ONLY as for a GPU, and the threads
    of a block run as fibers. Each source is compiled once into `folder`.
    """

    def __init__(self, folder, warps=False):
        self.folder = folder
        self.team = 32 if warps else 1
        self.libraries = {}
        self.launched = []

    def function(self, source, name, macros):
        key = (source, macros)
        if key not in self.libraries:
            self.libraries[key] = ctypes.CDLL(build(source, self.folder, self.team > 1, macros))
        self.launched.append(name)
        return name, getattr(self.libraries[key], f"launch_{name}")

    def start(self, function, grid, block, arguments):
        """Run all threads of a kernel; raise if the number or size of arguments is wrong."""
        name, call = function
        held = [np.uint64(self.address(each)).tobytes() if isinstance(each, np.ndarray)
                else each.tobytes() for each in arguments]
        count = len(held)
        failed = call(grid, block, (ctypes.c_char_p * count)(*held),
                      (ctypes.c_int * count)(*map(len, held)), count)
        assert failed == 0, f"{name}: argument {failed} of {count}, or another number of them"

    def address(self, array):
        return array.__array_interface__["data"][0]


@functools.cache
def shared_folder():
    """Return the folder of compiled libraries, which all processes share.

    Its name is a hash of the sources, the compiler and this file. Folders of other
    sources are deleted after a day.
    """
    here = Path(__file__)
    compiler = f"{platform.machine()} {COMPILER} {os.stat(COMPILER).st_mtime_ns}"
    digest = hashlib.sha256(compiler.encode())
    for path in (*sorted(KERNELS.glob("*.cu*")), here, here.with_name("shim.hpp")):
        digest.update(path.read_bytes())
    folder = cache_root() / "shim" / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            if other.stat().st_mtime < time.time() - 24 * 3600:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def without_warps(text):
    """Remove the sections for HPGCN_GPU_ONLY from the text of a .cu file."""
    return re.sub(r"#ifdef HPGCN_GPU_ONLY\n.*?#(else|endif)", "", text, flags=re.DOTALL)


def names_of(source):
    """Return two lists of kernel names in a .cu file: without HPGCN_GPU_ONLY, and with it."""
    text = (KERNELS / f"{source}.cu").read_text()
    return [re.findall(r'extern "C" __global__ void (\w+)\(', part)
            for part in (without_warps(text), text)]


def build(source, folder, warps, macros):
    """Compile a .cu file as a C++ library unless it exists; return the library's path."""
    path = folder / (re.sub(r"\W+", "-", "_".join((source, "warps" * warps, *macros))) + ".so")
    once(path, compile_source, source, path, warps, macros)
    return str(path)


def once(path, make, *args):
    """Call `make` to write the file `path` if it is missing, under a lock between processes."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_name(f"{path.name}.part")
            make(part, *args)
            part.replace(path)


def compile_source(part, source, path, warps, macros):
    code = [f'#include "{name}"' for name in (cuda_device.HEADER, KERNELS / f"{source}.cu")]
    code += [f'extern "C" int launch_{name}(unsigned grid, unsigned block, void **arguments, '
             f"const int *sizes, int count) "
             f"{{ return launch({name}, grid, block, arguments, sizes, count); }}"
             for name in names_of(source)[warps]]
    path.with_suffix(".cpp").write_text("\n".join(code) + "\n")
    header = path.parent / f"shim{'-warps' * warps}.hpp"
    compiled = header.with_suffix(".hpp.gch")
    once(compiled, compile_header, header, warps)
    run_compiler(warps, "-shared", *macros, "-include", header, path.with_suffix(".cpp"), "-o",
                 part)


def compile_header(part, header, warps):
    """Compile shim.hpp in advance, because parsing it takes half of a compilation."""
    shutil.copy(Path(__file__).with_name("shim.hpp"), header)
    run_compiler(warps, "-x", "c++-header", header, "-o", part)


def run_compiler(warps, *options):
    # no fused operations, so that only the order decides the bits
    subprocess.run([COMPILER, "-std=c++17", "-O0", "-fPIC", "-ffp-contract=off",
                    *["-DHPGCN_GPU_ONLY"] * warps, *options], check=True)


def twins(kernels):
    """Return the tests of CPU kernels by name, loaded with `kernels` in the place of `cpu`."""
    tests = {}
    for family in FAMILIES:
        file = Path(__file__).with_name(f"test_{family}.py")
        spec = importlib.util.spec_from_file_location(f"twin_{family}", file)
        module = importlib.util.module_from_spec(spec)
        before = hpgcn.kernels.cpu
        hpgcn.kernels.cpu = kernels
        try:
            spec.loader.exec_module(module)
        finally:
            hpgcn.kernels.cpu = before
        for name, test in vars(module).items():
            if name.startswith("test_") and not any(part in name for part in OF_THE_CPU):
                for mark in getattr(test, "pytestmark", ()):
                    if mark.name == "parametrize" and reference in mark.args[1]:
                        mark.args[1].remove(reference)  # tested with the CPU kernels
                tests[f"{name}_of_{family}"] = test
    return tests


def host_twin(kernels, xp):
    """Wrap kernels of the array library `xp` so that they take and return NumPy arrays."""

    def adapt(function):
        @functools.wraps(function)
        def call(*args, **options):
            copies = {}

            def there(value):
                if not isinstance(value, np.ndarray):
                    return tuple(map(there, value)) if isinstance(value, tuple) else value
                if id(value) not in copies:
                    copies[id(value)] = value, xp.asarray(value)
                return copies[id(value)][1]

            def back(value):
                for mine, theirs in copies.values():
                    if value is theirs:
                        return mine
                if isinstance(value, tuple):
                    return tuple(map(back, value))
                return value.get() if isinstance(value, xp.ndarray) else value

            result = function(*map(there, args),
                              **{key: there(value) for key, value in options.items()})
            for mine, theirs in copies.values():
                if mine.flags.writeable:
                    mine[...] = theirs.get()
            return back(result)

        return call

    adapted = {name: adapt(getattr(kernels, name)) for name in kernels.__all__}
    adapted["dropout_scale"] = kernels.dropout_scale
    return types.SimpleNamespace(__all__=kernels.__all__, **adapted)

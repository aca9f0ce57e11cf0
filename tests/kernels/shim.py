"""A device for kernels.cuda without a GPU: NumPy arrays, and kernels compiled by a C++ compiler (see shim.hpp)."""
import ctypes
import fcntl
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np

import hpgcn.kernels.cpu
from hpgcn.kernels import reference
from hpgcn.kernels.cuda import device as cuda_device

KERNELS = Path(cuda_device.__file__).parent
SOURCES = sorted(path.stem for path in KERNELS.glob("*.cu"))
FAMILIES = ("spmm", "gather", "random", "elementwise", "aggregate", "loss", "norm", "checks")
OF_THE_CPU = ("thread", "past_the_cache", "the_name_is_the_function", "in_any_place")  # of names of tests
COMPILER = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")


class ShimDevice(cuda_device.Device):
    """Runs kernels on the CPU, thread after thread.

    Parameters
    ----------
    folder : pathlib.Path
        Where libraries are built, each once.
    warps : bool
        Compile what the GPU compiles, with HPGCN_GPU_ONLY, and run the threads of a block as fibers.
    """

    def __init__(self, folder, warps=False):
        self.folder, self.team, self.libraries, self.launched = folder, 32 if warps else 1, {}, []

    def function(self, source, name, macros):
        """Return the launcher of a kernel."""
        key = source, macros
        if key not in self.libraries:
            self.libraries[key] = ctypes.CDLL(str(build(source, self.folder, self.team > 1, macros)))
        self.launched.append(name)
        return name, getattr(self.libraries[key], f"launch_{name}")

    def start(self, function, grid, block, arguments):
        """Run all threads; a number of arguments or a size that is not the kernel's is an error."""
        name, call = function
        values = [np.uint64(self.address(a)) if isinstance(a, np.ndarray) else a for a in arguments]
        held = [value.tobytes() for value in values]
        failed = call(grid, block, (ctypes.c_char_p * len(held))(*held),
                      (ctypes.c_int * len(held))(*map(len, held)), len(held))
        assert failed == 0, f"{name}: argument {failed} of {len(held)}" if failed > 0 else f"{name}: {len(held)} given"

    def address(self, array):
        """Address of the first element."""
        return array.__array_interface__["data"][0]


def names_of(source):
    """Names of the kernels that a .cu file has without HPGCN_GPU_ONLY, and with it."""
    text = (KERNELS / f"{source}.cu").read_text()
    plain = re.sub(r"#ifdef HPGCN_GPU_ONLY\n.*?#(else|endif)", "", text, flags=re.DOTALL)
    return [re.findall(r'extern "C" __global__ void (\w+)\(', part) for part in (plain, text)]


def build(source, folder, warps, macros):
    """Compile a .cu file as C++ into a shared library with a launcher for each kernel, once; return its path."""
    path = folder / (re.sub(r"\W+", "-", "_".join((source, "warps" * warps, *macros))) + ".so")
    with path.with_suffix(".lock").open("w") as lock:  # ranks share a folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            compile_source(source, path, warps, macros)
    return path


def compile_source(source, path, warps, macros):
    """Compile a .cu file to a library."""
    code = [f'#include "{KERNELS / source}.cu"']
    code += [f'extern "C" int launch_{name}(unsigned grid, unsigned block, void **arguments, const int *sizes, '
             f"int count) {{ return launch({name}, grid, block, arguments, sizes, count); }}"
             for name in names_of(source)[warps]]
    path.with_suffix(".cpp").write_text("\n".join(code) + "\n")
    options = ["-DHPGCN_GPU_ONLY"] * warps + list(macros)
    # nothing contracted, so that order alone decides the bits
    subprocess.run([COMPILER, "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", *options, "-include",
                    str(Path(__file__).with_name("shim.hpp")), str(path.with_suffix(".cpp")), "-o", str(path)],
                   check=True)


def twins(kernels):
    """Tests of the CPU kernels as tests of other kernels, by name: `cpu` in them stands for `kernels`."""
    found = {}
    for family in FAMILIES:
        spec = importlib.util.spec_from_file_location(f"twin_{family}", Path(__file__).with_name(f"test_{family}.py"))
        module, before = importlib.util.module_from_spec(spec), hpgcn.kernels.cpu
        hpgcn.kernels.cpu = kernels
        try:
            spec.loader.exec_module(module)
        finally:
            hpgcn.kernels.cpu = before
        for name, test in vars(module).items():
            if name.startswith("test_") and not any(part in name for part in OF_THE_CPU):
                for mark in getattr(test, "pytestmark", ()):
                    if reference in mark.args[1]:
                        mark.args[1].remove(reference)  # tested where the CPU kernels are
                found[f"{name}_of_{family}"] = test
    return found


def host_twin(kernels, xp):
    """Kernels for NumPy arrays by kernels for those of xp: operands are copied there, and what they become back."""

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

            result = function(*map(there, args), **{key: there(value) for key, value in options.items()})
            for mine, theirs in copies.values():
                if mine.flags.writeable:
                    mine[...] = theirs.get()
            return back(result)

        return call

    names = {name: adapt(getattr(kernels, name)) for name in kernels.__all__ if name != "dropout_scale"}
    return types.SimpleNamespace(__all__=kernels.__all__, dropout_scale=kernels.dropout_scale, **names)

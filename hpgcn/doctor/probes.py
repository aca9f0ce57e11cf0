"""What a process of its own finds out: `python -m hpgcn.doctor.probes NAME`; prints [status, text] as JSON.

Status is "ok", "warn", "fail", or "missing" where a module is not installed.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from importlib import import_module

from hpgcn.comm import route
from hpgcn.doctor import GIB, version
from hpgcn.machine import die_with_parent
from hpgcn.temporary import temporary_folder

THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def libraries():
    """NumPy, SciPy, Numba."""
    names = ("numpy", "scipy", "numba")
    for name in names:
        import_module(name)
    return "ok", ", ".join(f"{name} {version(name)}" for name in names)


def hdf5():
    """h5py and the HDF5 it was built with."""
    import h5py

    kind = "parallel (not needed)" if h5py.get_config().mpi else "serial, which is what hpgcn uses"
    return "ok", f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}, {kind}"


def mpi():
    """mpi4py, the library it found, its thread level."""
    from mpi4py import MPI

    vendor, number = MPI.get_vendor()
    level = [MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE].index(
        MPI.Query_thread())
    both = [name for name in ("mpich", "openmpi") if version(name) != "none"]
    text = (f"mpi4py {version('mpi4py')}, {vendor} {'.'.join(map(str, number))}, MPI "
            f"{'.'.join(map(str, MPI.Get_version()))}, thread level {THREAD_LEVELS[level]}, {takes_gpu_memory(MPI)}")
    if len(both) > 1:
        return "warn", f"{text}; the packages {' and '.join(both)} are both installed: keep one"
    return "ok", text


def takes_gpu_memory(MPI):
    """In words: whether messages leave a GPU straight, and why; a claim is put to the proof where CuPy is installed."""
    claimed, reason = route.asked(MPI)
    if not claimed or not installed():
        return f"GPU memory {'as it is' if claimed else 'by way of the host'} ({reason})"
    failure = route.probe(0)
    return f"GPU memory by way of the host ({reason}, but {failure})" if failure else f"GPU memory as it is ({reason})"


def installed():
    """Names of the packages of CuPy that are installed."""
    return [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if version(name) != "none"]


def gpu():
    """What CuPy tells."""
    names = installed()
    if not names:
        return "ok", "none used: no CuPy installed (extras cuda12, cuda13)"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
        free, total = cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return "warn", f"{names[0]} {version(names[0])}, but no GPU: {error}"
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return "ok", (f"{count} x {name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, {names[0]} {version(names[0])}")


def engine(name):
    """One partitioner: can it be loaded?"""
    from hpgcn.partition.engines import ENGINES

    import_module(ENGINES[name].module)
    return "ok", f"{ENGINES[name].package} {version(ENGINES[name].package)}"


def files(folder):
    """What the file system of a folder (empty: of temporary files) does: free space, fsync, rename, locks."""
    folder = folder or tempfile.gettempdir()
    text = f"{folder}: {shutil.disk_usage(folder).free / GIB:.1f} GiB free"
    try:
        with temporary_folder(folder) as scratch:
            with open(os.path.join(scratch, "a"), "wb") as file:
                file.write(b"hpgcn")
                file.flush()
                os.fsync(file.fileno())
            os.rename(os.path.join(scratch, "a"), os.path.join(scratch, "b"))
            directory = os.open(scratch, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            with open(os.path.join(scratch, "b"), "rb") as file:
                locks = True
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    locks = False
    except OSError as error:
        return "warn", f"{text}; cannot be written to: {error.strerror}"
    return "ok", f"{text}; fsync and rename work, locks {'too' if locks else 'do not (not needed)'}"


PROBES = {"libraries": libraries, "hdf5": hdf5, "mpi": mpi, "gpu": gpu, "files": files,
          **{name: lambda name=name: engine(name) for name in ("mtkahypar", "metis", "kahypar")}}


def main(name, *arguments):
    """Print what a probe finds."""
    die_with_parent()
    with contextlib.redirect_stdout(sys.stderr):  # engines print what they like
        try:
            answer = PROBES[name](*arguments)
        except ImportError as error:
            answer = "missing", " ".join(str(error).split())[:200]
        except Exception as error:
            answer = "fail", " ".join(f"{type(error).__name__}: {error}".split())[:200]
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])

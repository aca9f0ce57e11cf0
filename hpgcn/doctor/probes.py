"""Checks, each of which runs in a process of its own.

`python -m hpgcn.doctor.probes NAME` prints the result as JSON: a status and a text. The
status is "ok", "warn", "fail", or "missing" if a module is not installed.
"""

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
from hpgcn.runtime.machine import die_with_parent
from hpgcn.runtime.temporary import temporary_folder

THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def libraries():
    names = ("numpy", "scipy", "numba")
    for name in names:
        import_module(name)
    return "ok", ", ".join(f"{name} {version(name)}" for name in names)


def hdf5():
    import h5py

    kind = "parallel (not needed)" if h5py.get_config().mpi else "serial, which hpgcn uses"
    return "ok", f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}, {kind}"


def mpi():
    from mpi4py import MPI

    vendor, number = MPI.get_vendor()
    levels = {getattr(MPI, f"THREAD_{name.upper()}"): name for name in THREAD_LEVELS}
    text = (f"mpi4py {version('mpi4py')}, {vendor} {'.'.join(map(str, number))}, MPI "
            f"{'.'.join(map(str, MPI.Get_version()))}, thread level {levels[MPI.Query_thread()]}, "
            f"{takes_gpu_memory(MPI)}")
    if "none" not in (version("mpich"), version("openmpi")):
        return "warn", f"{text}; the packages mpich and openmpi are both installed: remove one"
    return "ok", text


def takes_gpu_memory(MPI):
    """Return a text: whether MPI sends GPU memory directly, and the reason.

    With CuPy a message is tried.
    """
    claimed, reason = route.query_gpu_support(MPI)
    failure = route.probe(0) if claimed and cupy_packages() else None
    if failure:
        reason += f", but {failure}"
    way = "directly" if claimed and not failure else "through the host"
    return f"GPU memory is sent {way} ({reason})"


def cupy_packages():
    return [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if version(name) != "none"]


def gpu():
    names = cupy_packages()
    if not names:
        return "ok", "none used: no CuPy installed (extras cuda12, cuda13)"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
        free, total = cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return "warn", f"{names[0]} {version(names[0])}, but no GPU: {error}"
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return "ok", (f"{count} x {name}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, {names[0]} "
                  f"{version(names[0])}")


def engine(name):
    from hpgcn.partition.engines.engine_registry import ENGINES

    import_module(ENGINES[name].module)
    return "ok", f"{ENGINES[name].package} {version(ENGINES[name].package)}"


def files(folder):
    """Test fsync, rename and locks in a folder.

    An empty name stands for the folder of temporary files.
    """
    folder = folder or tempfile.gettempdir()
    text = f"{folder}: {shutil.disk_usage(folder).free / GIB:.1f} GiB free"
    try:
        with temporary_folder(folder) as scratch:
            # write, rename, and make the folder durable
            path = scratch / "a"
            with open(path, "wb") as file:
                file.write(b"hpgcn")
                file.flush()
                os.fsync(file.fileno())
            path = path.rename(scratch / "b")
            directory = os.open(scratch, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

            # locks guard run directories where they work
            locks = "too"
            try:
                with open(path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                locks = "do not (not needed)"
    except OSError as error:
        return "warn", f"{text}; cannot be written to: {error.strerror}"
    return "ok", f"{text}; fsync and rename work, locks {locks}"


PROBES = {"libraries": libraries, "hdf5": hdf5, "mpi": mpi, "gpu": gpu, "files": files,
          **{name: lambda name=name: engine(name) for name in ("mtkahypar", "metis", "kahypar")}}


def main(name, *arguments):
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

"""Runs the command line as a user does: a process, or several under mpiexec."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def clean_environment():
    """Without a launcher's variables: a test may itself be a rank, its children must not take themselves for one."""
    launcher = ("PMI", "HYD", "MPI_", "OMPI_COMM", "OMPI_UNIVERSE", "OMPI_MCA", "MPIR_")
    return {key: value for key, value in os.environ.items() if not key.startswith(launcher)}


def hpgcn(*args, ranks=None, cwd=None, timeout=120, **environment):
    """Return the finished process; ranks=None runs without a launcher."""
    command = [sys.executable, "-m", "hpgcn", *map(str, args)]
    if ranks is not None:
        if MPIEXEC is None:
            pytest.skip("no mpiexec: pip install 'hpgcn[mpi,mpich]'")
        command = [MPIEXEC, "-n", str(ranks), *command]
    return subprocess.run(command, cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False,
                          env={**clean_environment(), "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", **environment})


def succeed(*args, **options):
    """As `hpgcn`, but a failure fails the test; returns standard output."""
    done = hpgcn(*args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_notice(text):
    """Standard error without the line that the first run of a kernel on a machine gets."""
    return text.replace("hpgcn: compiling kernels, once per machine and version\n", "")


def refused(code, *args, **options):
    """The one line on standard error of a command that must fail with this exit code."""
    done = hpgcn(*args, **options)
    lines = [line for line in without_notice(done.stderr).splitlines() if line.startswith("hpgcn: ")]
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]

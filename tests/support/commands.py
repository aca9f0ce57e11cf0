"""Functions that run commands in a process, under mpiexec, or within this process."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from hpgcn.__main__ import main
from hpgcn.runtime import machine
from hpgcn.runtime.launcher import without_launcher

PLACES = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
MPIEXEC = shutil.which("mpiexec", path=PLACES)
HPGCN = [sys.executable, "-m", "hpgcn"]  # tests may replace it by a forked command


def clean_environment():
    """Return the environment without variables of an MPI launcher, under which a test may run."""
    return {key: value for key, value in without_launcher(os.environ).items()
            if not key.startswith(("MPI_", "MPIR_"))}


def process(*words, ranks=None, cwd=None, timeout=120, **environment):
    """Run a command, under mpiexec if `ranks` is given; return the finished process."""
    command = [*map(str, words)]
    if ranks is not None:
        if MPIEXEC is None:
            pytest.skip("no mpiexec: pip install '.[mpi,mpich]'")
        command = [MPIEXEC, "-n", str(ranks), *command]
    environment = {**clean_environment(), "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", **environment}
    return subprocess.run(command, cwd=cwd, timeout=timeout, capture_output=True, text=True,
                          check=False, env=environment)


def python(*words, **options):
    """Run Python with these arguments; return the finished process."""
    return process(sys.executable, *words, **options)


def hpgcn(*args, **options):
    """Run `python -m hpgcn` with these arguments; return the finished process."""
    return process(*HPGCN, *args, **options)


def run(*args, cwd=None, program=main):
    """Run `hpgcn` or another `program` within this process, which is faster than a new process."""
    out = io.StringIO()
    err = io.StringIO()
    # the number of threads would stay for all later tests
    with mock.patch.object(machine, "limit_threads"), contextlib.chdir(cwd or "."), \
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program([str(word) for word in args])
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def ended(*args, **options):
    return (hpgcn if options.keys() - {"cwd", "program"} else run)(*args, **options)


def succeed(*args, **options):
    """Run a command that must succeed; return its standard output."""
    done = ended(*args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_notice(text):
    """Remove progress lines, which appear on slow machines, from standard error."""
    return re.sub(r"hpgcn: (compiling kernels, once per|set-up: |[\d,]+ of [\d,]+ ).*\n", "", text)


def refused(code, *args, **options):
    """Run a command that must fail with exit code `code`; return its only line of error."""
    done = ended(*args, **options)
    said = without_notice(done.stderr).splitlines()
    lines = [line for line in said if line.startswith("hpgcn: ")]
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]


def peak_of_group(text):
    """Return the peak bytes of a control group, from the standard error of limit_memory.sh."""
    return int(re.search("^peak ([0-9]+) of ", text, re.MULTILINE)[1])

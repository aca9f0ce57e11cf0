"""If standard output is full or closed, a command reports it in one line and exits with code 74."""
import os
import socket
import subprocess
import sys
import time

import pytest
from commands import clean_environment
from in_process import succeed

COMMANDS = {
    "convert": ("convert", "karate", "new.h5"),
    "partition": ("partition", "karate.h5", "-k", "2", "--method", "block", "-o", "new.h5"),
    "plan --json": ("plan", "karate.h5", "--json"),
    "train": ("train", "karate.h5", "--epochs", "2", "--out", "new"),
    "train --ranks": ("train", "karate.h5", "--epochs", "2", "--out", "new", "--ranks", "2",
                      "--strategy", "1d"),
    "predict": ("predict", "done", "-o", "new.h5"), "report": ("report", "done"),
    "--help": ("--help",), "--version": ("--version",)}
# commands that write like `train` and `report`
ALIKE = ("convert", "partition", "predict", "--version")


def run(redirected, *args, unbuffered="", **options):
    """Run hpgcn in a shell with a redirection; return the finished process."""
    command = 'exec "$@" ' + redirected
    return subprocess.run(["sh", "-c", command, "sh", sys.executable, "-m", "hpgcn", *args],
                          text=True, check=False, timeout=300, stderr=subprocess.PIPE,
                          env={**clean_environment(), "PYTHONUNBUFFERED": unbuffered}, **options)


@pytest.mark.long
@pytest.mark.parametrize("place, name", [
    pytest.param(place, name, marks=[pytest.mark.release] * (name in ALIKE))
    for place, name in enumerate(COMMANDS)])
def test_output_that_goes_nowhere(trained, tmp_path, place, name):
    """A command whose standard output is full or closed exits with 74 and names the reason.

    Commands alternate between /dev/full and a closed stream; every third one is
    unbuffered.
    """
    redirected, reason = ((">&-", "Bad file descriptor") if place % 2
                          else (">/dev/full", "No space left on device"))
    for given in ("karate.h5", "done"):
        (tmp_path / given).symlink_to(trained / given)
    done = run(redirected, *COMMANDS[name], unbuffered="1" if place % 3 == 0 else "")
    assert done.returncode == 74, done.stderr
    assert done.stderr.splitlines()[-1] == f"hpgcn: standard output: writing failed: {reason}"
    assert "Traceback" not in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if (tmp_path / "new.h5").exists():
        succeed("inspect", tmp_path / "new.h5", "--verify")
    if (tmp_path / "new").exists():
        assert (tmp_path / "new" / "summary.json").exists()


def test_a_working_folder_that_is_gone(tmp_path):
    (tmp_path / "gone").mkdir()
    command = "convert", "karate", tmp_path / "new.h5"
    done = subprocess.run(["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh",
                           sys.executable, "-P", "-m", "hpgcn", *command], text=True, check=False,
                          timeout=60, stderr=subprocess.PIPE, cwd=tmp_path,
                          env=clean_environment())
    assert (done.returncode, done.stderr) == (
        74, "hpgcn: the working folder: No such file or directory; change to one that exists\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("redirected, code, args", [
    ("2>/dev/full", 66, ("inspect", "none.h5")),
    ("<&- >&- 2>&-", 74, ("convert", "karate", "b.h5")),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("2>/dev/full", 2, ("inspect",)), ("2>/dev/full", 0, ("inspect", "karate.h5")),
        ("2>&-", 0, ("inspect", "karate.h5")), ("2>&-", 66, ("report", "none")),
        ("2>/dev/full", 74, ("train", "karate.h5", "--resume", "--out", "new", "--epochs", "1")),
        (">/dev/full 2>/dev/full", 74, ("inspect", "karate.h5")),
        ("<&- >&- 2>&-", 0, ("convert", "karate", "a.h5", "-q"))))])
def test_errors_that_nobody_can_read(trained, tmp_path, redirected, code, args):
    """With a full or closed standard error a command still exits with the right code."""
    (tmp_path / "karate.h5").symlink_to(trained / "karate.h5")
    done = run(redirected, *args)
    assert (done.returncode, done.stderr) == (code, "")
    for path in tmp_path.glob("?.h5"):
        succeed("inspect", path, "--verify")


@pytest.mark.long
def test_a_reader_that_leaves_is_no_error(trained):
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as pipe:
        done = run("", "inspect", trained / "karate.h5", stdout=pipe)
    assert (done.returncode, done.stderr) == (0, "")


SAID_LAST = """
import sys, time
from hpgcn.runtime.streams import wait_for_reader
sys.stderr.write("the last word")
sys.stderr.flush()
begin = time.monotonic()
wait_for_reader(float(sys.argv[1]))
print(time.monotonic() - begin)
"""


@pytest.mark.parametrize("make", [os.pipe, lambda: [s.detach() for s in socket.socketpair()]])
def test_a_reader_is_waited_for(make):
    """A rank waits until its launcher has read the output, which would be lost otherwise."""
    ours, theirs = make()
    waited = [sys.executable, "-c", SAID_LAST]
    with subprocess.Popen([*waited, "60"], stdout=subprocess.PIPE, stderr=theirs,
                          env=clean_environment()) as child:
        time.sleep(0.5)
        assert os.read(ours, 100) == b"the last word"
        first = float(child.communicate(timeout=60)[0])
    assert first < 60
    done = subprocess.run([*waited, "0.2"], stdout=subprocess.PIPE, stderr=theirs, check=True,
                          env=clean_environment(), timeout=60)  # a pipe without a reader
    assert float(done.stdout) >= 0.2
    assert os.read(ours, 100) == b"the last word"
    os.close(ours)
    os.close(theirs)

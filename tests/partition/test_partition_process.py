"""Partitioners that crash, hang, are missing or give wrong parts: one line, no files left."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from forked_engines import apart
from jobs import none_left, processes
from small_graphs import grid

from hpgcn.errors import InternalError, MissingError
from hpgcn.partition import make_partition
from hpgcn.runtime.advice import install_command


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Provide a temporary folder for engines in other processes; check that it ends empty."""
    apart(monkeypatch)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def partition(**options):
    return make_partition(grid(4), 2, method="graph", **options)


ENDINGS = [  # behavior of an engine, and the message; every run tests the first of each kind
    ("os.kill(os.getpid(), signal.SIGSEGV)", r"^metis was killed by signal 11 \(Segmentation f"),
    ("print('Error: bad', file=sys.stderr, flush=True); os._exit(255)",
     r"^metis exited with code 255 \(its last line: Error: bad\)$"),
    ("raise RuntimeError('two\\nlines')", "^metis failed with RuntimeError: two lines$"),
    ("return Cut([0] * (n - 1))",
     r"metis has dtype int64 and shape \(15,\), expected integers \(16,\)"),
    ("print('std::bad_alloc', file=sys.stderr, flush=True); os.abort()",
     r"^metis ran out of memory under a limit of .*killed by signal 6"),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("print('to stdout', flush=True); os._exit(3)",
         r"^metis exited with code 3 \(its last line: to stdout\)$"),
        ("os.kill(os.getpid(), signal.SIGKILL)",
         r"signal 9 \(Killed\), perhaps because the machine ran out of memory"),
        ("os._exit(0)", "^metis ended the process without a result$"),
        ("sys.exit(1)", "^metis failed with SystemExit: 1$"),
        ("return Cut([0] * (n - 1) + [2])", r"metis: vertex 15 has part 2, expected 0\.\.1"),
        ("return Cut([0.5] * n)", "metis has dtype float64"),
        ("return Cut([object()] * n)", "metis failed: Object arrays cannot be loaded"),
        ("print('x' * 10**6, flush=True); os._exit(9)", r"x\.\.\.\)$"),
        ("sys.stderr.buffer.write(b'\\xff\\x1b[31m\\n'); sys.stderr.flush(); os._exit(9)",
         "metis exited with code 9")))]


@pytest.mark.parametrize(("body", "message"), ENDINGS)
def test_engine_fails(fake_metis, body, message):
    fake_metis(body)
    with pytest.raises(InternalError, match=message) as caught:
        partition()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("body, limit, message", [
    ("time.sleep(600)", {"time_limit": 0.5}, "did not finish .* time limit of 0[.]5 s$"),
    ("bytearray(4 << 30)", {"memory": 1 << 30}, "ran out of memory .* limit of 1[.]00 GiB")],
    ids=["time", "memory"])
def test_limits(fake_metis, body, limit, message):
    fake_metis(f"{body}\nreturn Cut([0] * n)")
    with pytest.raises(InternalError, match=f"^metis {message}"):
        partition(**limit)


@pytest.mark.long
def test_an_engine_that_leaves_no_memory_at_all(fake_metis):
    fake_metis("hoard = globals().setdefault('hoard', [])\n"
               "for size in (1 << 24, 1 << 18, 1 << 12, 1 << 6):\n"
               "    try:\n"
               "        while True: hoard.append(bytearray(size))\n"
               "    except MemoryError:\n"
               "        pass\n"
               "raise MemoryError")
    with pytest.raises(InternalError, match=r"^metis ran out of memory .*failed with Mem"):
        partition(memory=1 << 30)


def test_default_memory_limit_leaves_room(fake_metis):
    fake_metis("import resource\n"
               "raise RuntimeError(str(resource.getrlimit(resource.RLIMIT_AS)[0]))")
    with pytest.raises(InternalError) as caught:
        partition()
    assert int(str(caught.value).split()[-1]) > 2**28


@pytest.mark.parametrize(("module", "extra", "arguments"), [
    ("pymetis", "partition", {"method": "graph"}), ("mtkahypar", "partition", {}),
    ("kahypar", "kahypar", {"engine": "kahypar"})])
def test_missing_engine(monkeypatch, module, extra, arguments):
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"{module} \(extra {extra}\): {re.escape(install_command(extra))} \(not installed\)"
    with pytest.raises(MissingError, match=message):
        make_partition(grid(4), 2, **arguments)


def test_engine_that_cannot_be_imported(tmp_path, monkeypatch):
    (tmp_path / "pymetis.py").write_text("raise ImportError('libmetis.so: cannot open it')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingError, match=r"pip install 'mtkahypar>=.*libmetis\.so: cannot open"):
        partition()


def test_engine_has_no_part_in_our_input_and_output(fake_metis, capfd):
    fake_metis("os.write(1, b'noise'); os.write(2, b'noise')\n"
               "assert sys.stdin.read() == ''\nreturn Cut([0, 1] * (n // 2))")
    assert partition().part.tolist() == [0, 1] * 8 and capfd.readouterr() == ("", "")


def test_launcher_variables_are_dropped(fake_metis, monkeypatch):
    launcher = ("PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "HYDI_CONTROL_FD",
                "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    for name in launcher:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PMU", "kept")
    fake_metis(f"left = set({launcher!r}) & set(os.environ)\n"
               "raise RuntimeError(str(sorted(left)) + os.environ['PMU'])")
    with pytest.raises(InternalError, match=r"RuntimeError: \[\]kept$"):
        partition()
    assert os.environ["PMI_RANK"] == "1"


PARENT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may ignore it
sys.path.insert(0, {fake!r})
import numpy as np, scipy.sparse as sp
from hpgcn.graphs.graph import Graph
from hpgcn.partition import make_partition
make_partition(Graph.from_scipy(np.ones((8, 8))), 2, method="graph")
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_child_dies_with_its_parent(fake_metis, tmp_path, number):
    mark = tmp_path / "child"
    fake_metis(f"mark = os.open({str(mark)!r}, os.O_CREAT | os.O_WRONLY)\n"
               "os.write(mark, b'%d ' % os.getpid())\ntime.sleep(600)")
    folder = tmp_path / "of-parent"
    folder.mkdir()
    code = PARENT.format(fake=str(tmp_path))
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL,
                              env={**os.environ, "TMPDIR": str(folder)})
    try:
        end = time.monotonic() + 30
        while not (mark.exists() and mark.read_text().endswith(" ")):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert int(mark.read_text()) in processes(str(folder))
        parent.send_signal(number)
        parent.wait(30)
    finally:
        parent.kill()
        parent.wait()
    assert none_left(str(folder))
    assert number != signal.SIGINT or list(folder.iterdir()) == []


def test_real_engine_under_a_small_memory_limit():
    pytest.importorskip("mtkahypar")
    with pytest.raises(InternalError, match=r"^mtkahypar ran out of memory .* limit of 0\.00 GiB.*"
                                            r"; the methods random and block need less$"):
        make_partition(grid(100), 2, memory=1 << 20)


@pytest.mark.long
def test_real_engine_under_a_launcher(monkeypatch):
    pytest.importorskip("mtkahypar")
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_FD", "77")
    assert np.bincount(make_partition(grid(10), 2).part).size == 2

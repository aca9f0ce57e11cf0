"""The benchmark of the CUDA kernels, without a GPU: its arithmetic and its order of events. No timing is judged."""
import json
import os
import stat
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from commands import refused

from hpgcn import bench
from hpgcn.bench import cuda, gpu, graphs
from hpgcn.bench.gpu import Gpu
from hpgcn.errors import InternalError, MissingError, UsageError
from hpgcn.kernels import reference

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
QUICK = {"graphs": "dense,road", "widths": "7,16", "scale_down": 4096, "repeats": 3}


class Host:
    """In place of a GPU: every call takes 1 ms, unless it says otherwise in `took`."""

    xp, kernels, took, free = np, reference, 1e-3, 1 << 40

    def __init__(self):
        self.buffers = np.ones(1000, np.uint32), np.ones(1000, np.uint32)

    def seconds(self, call):
        self.took = 1e-3
        call()
        return self.took, 2e-6

    def copy(self):
        self.took = 5e-4

    def fits(self, size, what):
        if size > self.free:
            raise UsageError(what)

    def is_cut(self, indptr):
        return indptr.size == 65  # dense

    def describe(self):
        return {"gpu": "none"}

    def release(self):
        pass

    def put(self, array):
        return np.array(array)

    def get(self, array):
        return np.asarray(array)


def some_peers(A, host, absent):
    """Peers that are right, right but slow, fast but wrong, and that fail: when prepared, and when called."""
    def taking(seconds, factor=1):
        def bind(x, out):
            def call():
                host.took = seconds
                return A.matrix @ x * np.float32(factor)
            return call
        return bind

    def unprepared(x, out):
        raise AttributeError("no such algorithm")

    absent["torch"] = "ImportError: torch finds no GPU"
    return {"right": taking(3e-3), "slow": taking(4e-3), "wrong": taking(1e-6, 1.01), "unprepared": unprepared,
            "fails": lambda x, out: partial_failure}


def partial_failure():
    raise RuntimeError("out of\n  memory")


@pytest.fixture(scope="module")
def report():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "peers", some_peers)
        patch.setattr(cuda, "Gpu", Host)
        return json.loads(json.dumps(bench.run("cuda", **QUICK)), parse_constant=pytest.fail)


def row_of(report, *names, rows="rows", keys=("graph", "width", "kernel")):
    return next(row for row in report[rows] if tuple(row[key] for key in keys) == names)


def test_products(report):
    assert {row["kernel"] for row in report["rows"] if row["graph"] == "dense"} == {
        "hpgcn", "hpgcn_scaled", "hpgcn_masked", "hpgcn_whole_rows", "right", "slow", "wrong"}
    assert not any(row["kernel"] == "hpgcn_whole_rows" for row in report["rows"] if row["graph"] == "road")
    assert report["limits"] == {"copy_bytes_per_s": pytest.approx(2 * 4000 / 5e-4), "copy_buffer_bytes": 4000}
    least = 257 * 8 + 1216 * 8 + 2 * 256 * 7 * 4  # pointers, columns and values, x and out
    for kernel, size, milliseconds in (("hpgcn", least, 1), ("hpgcn_masked", least + 256, 1),
                                       ("right", least - 257 * 4, 3),
                                       ("hpgcn_scaled", least - 1216 * 4 + 2 * 256 * 4, 1)):
        row = row_of(report, "road", 7, kernel)
        assert (row["vertices"], row["nonzeros"], row["least_bytes"]) == (256, 1216, size)
        assert row["time_ms"] == row["median_ms"] == pytest.approx(milliseconds)
        assert row["host_ms"] == pytest.approx(2e-3)
        assert row["share_of_copy"] == pytest.approx(size / (milliseconds * 1e-3) / 16e6)
        assert row["relative_error"] < 1e-6
    assert row_of(report, "road", 7, "wrong")["relative_error"] == pytest.approx(0.01, rel=1e-3)


def test_ratios_are_those_of_the_fastest_peer_that_is_right(report):
    assert row_of(report, "dense", 7, rows="ratios", keys=("graph", "width")) == pytest.approx({
        "graph": "dense", "width": 7, "fastest_peer": "right", "peer_ms": 3, "time_ms": 1, "peer_ratio": 3,
        "median_ratio": 3, "masked_ratio": 1, "whole_rows_ratio": 1})
    assert row_of(report, "road", 16, rows="ratios", keys=("graph", "width"))["whole_rows_ratio"] is None
    assert report["absent"] == {"torch": "ImportError: torch finds no GPU", "fails": "RuntimeError: out of memory",
                                "unprepared": "AttributeError: no such algorithm"}
    assert report["summary"]["right_mean_ratio"] == pytest.approx(3)
    assert report["summary"]["slow_mean_ratio"] == pytest.approx(4)
    assert "wrong_mean_ratio" not in report["summary"]


def line(graph, kernel, milliseconds, error=0.0):
    return {"graph": graph, "width": 8, "kernel": kernel, "time_ms": milliseconds, "median_ms": 2 * milliseconds,
            "relative_error": error}


def test_means_by_hand():
    rows = [line("a", "hpgcn", 2), line("a", "hpgcn_masked", 3), line("a", "hpgcn_whole_rows", 10), line("a", "x", 4),
            line("a", "y", 5), line("b", "hpgcn", 1), line("b", "hpgcn_masked", 1), line("b", "x", 9, None),
            line("b", "y", 8, 2e-3), line("b", "z", 8)]
    ratios = cuda.compare(rows)
    found = [(row["fastest_peer"], row["peer_ratio"], row["median_ratio"]) for row in ratios]
    assert found == [("x", 2, 2), ("z", 8, 8)]
    assert cuda.summarise(rows, ratios) == pytest.approx({
        "peer_mean_ratio": 4, "peer_least_ratio": 2, "peer_most_ratio": 8, "masked_mean_ratio": 1.5**0.5,
        "masked_least_ratio": 1, "masked_most_ratio": 1.5, "whole_rows_mean_ratio": 5, "whole_rows_least_ratio": 5,
        "whole_rows_most_ratio": 5, "x_mean_ratio": 2, "y_mean_ratio": 2.5, "z_mean_ratio": 8})
    alone = [row for row in rows if row["kernel"].startswith("hpgcn")]
    ratios = cuda.compare(alone)
    assert [(row["fastest_peer"], row["peer_ratio"], row["median_ratio"]) for row in ratios] == [(None,) * 3] * 2
    assert cuda.summarise(alone, ratios)["peer_mean_ratio"] is None


def test_gather_and_scatter_add_against_a_copy_of_as_many_rows(report):
    keys = ("operation", "order", "width", "kernel")
    assert {tuple(row[key] for key in keys[:3]) for row in report["copies"]} == {
        (operation, order, width) for operation in ("gather", "scatter_add") for order in ("random", "sorted")
        for width in (7, 16)}
    copied = 128 * 2 * 7 * 4
    for operation, size in (("gather", 128 * (8 + 2 * 28)), ("scatter_add", 128 * (8 + 3 * 28))):
        row = row_of(report, operation, "random", 7, "hpgcn", rows="copies", keys=keys)
        assert (row["rows"], row["bytes"], row["relative_error"]) == (128, size, 0)
        assert row["bytes_per_s"] == pytest.approx(size / 1e-3)
        assert row["share_of_copy"] == pytest.approx(size / copied)
    assert row_of(report, "gather", "sorted", 7, "copy", rows="copies", keys=keys)["bytes"] == copied


def test_table(report):
    text = bench.table(report)
    assert "without fails: RuntimeError: out of memory" in text
    headings = [line.split() for line in text.splitlines() if line.startswith(("graph ", "operation "))]
    assert [words[:2] for words in headings] == [["graph", "vertices"], ["graph", "width"], ["operation", "order"]]
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("peer least ratio")] == ["3.00"]


def test_a_wrong_kernel_and_one_that_fails_are_errors(monkeypatch):
    settings = bench.check("cuda", "road", "5", 4096, 1)
    for name in ("spmm", "sspmm", "scatter_add"):
        def wrong(*args, name=name, **options):
            getattr(reference, name)(*args, **options)[0] += 1
            return args[4 if name == "spmm" else 5 if name == "sspmm" else 2]

        host = Host()
        host.kernels = types.SimpleNamespace(**{**vars(reference), name: wrong})
        with pytest.raises(InternalError, match=r"the result of hpgcn(_masked)? has relative error"):
            cuda.measure(settings, host)
    with pytest.raises(RuntimeError, match="out of"):
        gpu.in_turns(Host(), {"hpgcn": partial_failure}, 1, "test", check=lambda name, result: 0.0)
    host = Host()
    host.free = 1000
    with pytest.raises(UsageError, match="cuda on road"):
        cuda.measure(settings, host)


def test_peers_that_are_not_there_are_named(monkeypatch):
    for name in ("cupyx", "cupyx.cusparse", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    absent = {}
    assert cuda.peers(graphs.operator(graphs.make("road", 4096)), Host(), absent) == {}
    assert set(absent) == {"cusparse", "torch"}


def test_turns_take_least_and_median():
    took = iter([9e-3, 1e-3, 2e-3])
    host = types.SimpleNamespace(seconds=lambda call: (next(took), 1e-6))
    seen = []
    found = gpu.in_turns(host, {"a": lambda: seen.append("call")}, 3, "test", prepare=lambda: seen.append("prepare"))
    assert seen == ["prepare", "call"]
    assert found["a"] == pytest.approx({"time_ms": 1, "median_ms": 2, "host_ms": 1e-3, "relative_error": None})


@pytest.fixture
def cupy(monkeypatch):
    """NumPy in CuPy's place, with a GPU of two multiprocessors; `events` is what was asked of it, in order."""
    events = []

    class Event:
        def record(self):
            events.append("record")

        def synchronize(self):
            events.append("synchronize")

    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 12090,
        getDeviceProperties=lambda number: {"name": b"A GPU", "multiProcessorCount": 2, "l2CacheSize": 1 << 20,
                                            "totalGlobalMem": 1 << 30})
    device = types.SimpleNamespace(id=0, compute_capability="90", mem_info=(8000, 1 << 30))
    pool = types.SimpleNamespace(free_bytes=lambda: 192, free_all_blocks=lambda: events.append("release"))
    module = types.ModuleType("cupy")
    module.__dict__.update(
        {name: getattr(np, name) for name in ("arange", "asarray", "empty_like", "ndarray", "uint32")},
        copyto=lambda target, source: events.append("copy"), get_default_memory_pool=lambda: pool, events=events,
        cuda=types.SimpleNamespace(Event=Event, Device=lambda: device, runtime=runtime,
                                   get_elapsed_time=lambda start, stop: 2.5))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_the_gpu_is_busy_while_a_call_is_queued(cupy):
    found = Gpu()
    assert found.seconds(lambda: cupy.events.append("call"))[0] == pytest.approx(2.5e-3)
    assert cupy.events == ["copy"] * 4 + ["record", "call", "record", "synchronize"]
    assert found.buffers[0].nbytes == 1024  # an eighth of what is free
    assert np.unique(found.buffers[1]).size == 256
    assert found.describe() == {
        "gpu": "A GPU", "compute_capability": "90", "multiprocessors": 2, "gpu_l2_bytes": 1 << 20,
        "gpu_memory_bytes": 1 << 30, "cuda_driver": "13000", "cuda_runtime": "12090"}
    found.fits(8192, "x")
    with pytest.raises(UsageError, match="bench: x need 8193 bytes of GPU memory, 8192 are free; use --scale-down"):
        found.fits(8193, "x")


def test_without_a_gpu(cupy, monkeypatch):
    def no_driver():
        raise RuntimeError("cudaErrorInsufficientDriver")

    cupy.cuda.runtime.getDeviceCount = lambda: 0
    with pytest.raises(MissingError, match=r"needs a GPU: CuPy \(extra cuda12 or cuda13\) finds none"):
        bench.run("cuda")
    cupy.cuda.runtime.getDeviceCount = no_driver
    with pytest.raises(MissingError, match=r"extra cuda12 or cuda13.*cudaErrorInsufficientDriver"):
        bench.run("cuda")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingError, match=r"pip install 'hpgcn\[cuda12\]'") as missing:
        bench.run("cuda")
    assert missing.value.code == 69


def test_rows_are_left_whole_within_a_call_only():
    module = gpu._spmm_module()
    before = module.pieces_of
    assert gpu.in_whole_rows(lambda: module.pieces_of(np.array([0, 5000]), None))() is None
    with pytest.raises(RuntimeError):
        gpu.in_whole_rows(partial_failure)()
    assert module.pieces_of is before


def check(*args, cwd, **environment):
    """Run scripts/gpu_check.sh where no GPU is seen."""
    done = subprocess.run([SCRIPT, *map(str, args)], cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", **environment})
    assert "Traceback" not in done.stderr
    return done


def test_the_script_says_that_there_is_no_gpu(tmp_path):
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    done = check(cwd=tmp_path)
    assert done.returncode == 69
    (said,) = done.stderr.splitlines()
    assert said.startswith("gpu_check: bench cuda")
    assert "cuda12" in said
    assert list(tmp_path.iterdir()) == []
    done = check("no/such/folder.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        73, f"gpu_check: cannot write {tmp_path}/no/such/folder.json: there is no such folder\n")


PYTHON = """#!/usr/bin/env bash
real() {{ PYTHONPATH=$PYTHONPATH:{packages} {python} -S "$@"; }}
case "$1 $2" in
    "-c import pytest") [ "$TESTS" != none ] || {{ echo "No module named 'pytest'" >&2; exit 1; }} ;;
    "-m pytest") echo "3 of 4 $TESTS"; exit "$TESTS" ;;
    "-m hpgcn") real -c "import hpgcn.datasets, hpgcn.kernels.cuda, os.path as p; print(*map(p.realpath, (
                         hpgcn.__file__, hpgcn.datasets.__path__[0], hpgcn.kernels.__path__[0])))" >&2
                echo "flags: ${{*:3}}" >&2; cat {report}; exit "$BENCH" ;;
    "- ") exit 0 ;;
    *) real "$@" ;;
esac
"""


@pytest.mark.parametrize(("tests", "code", "status"), [
    ("0", 0, 0), ("1", 0, 1), ("none", 0, 0), ("0", 70, 70), ("5", 70, 5)])
def test_the_script_writes_what_was_found(report, tmp_path, tests, code, status):
    """Its Python is one that knows nothing of an installed hpgcn; tests and times are made up."""
    python, times, out = tmp_path / "python", tmp_path / "report.json", tmp_path / "out" / "check.json"
    out.parent.mkdir()
    times.write_text(json.dumps(report))
    python.write_text(PYTHON.format(packages=Path(np.__file__).parents[1], python=sys.executable, report=times))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    done = check("out/check.json", "--graphs", "road", "--repeats", 3, cwd=tmp_path, PYTHON="./python", TESTS=tests,
                 BENCH=str(code))
    assert done.returncode == status, done.stderr
    assert f"{ROOT}/hpgcn/__init__.py {ROOT}/datasets {ROOT}/kernels\n" in done.stderr
    assert "flags: bench cuda --json --graphs road --repeats 3\n" in done.stderr
    assert "flags: bench cuda-epoch --json --repeats 3\n" in done.stderr
    assert ("the tests are left out: No module named 'pytest'" in done.stderr) == (tests == "none")
    assert ("gpu_check: failed: " in done.stderr) == (status != 0)
    found = json.loads(out.read_text())
    summary = {"exit_code": None, "summary": ""} if tests == "none" else {
        "exit_code": int(tests), "summary": f"3 of 4 {tests}"}
    assert (found["tests"], found["bench_exit_code"]) == (summary, code)
    assert found["bench"] == found["epochs"] == (None if code else report)
    assert ("peer mean ratio" in done.stdout) == (code == 0)


def test_the_command_says_so_too():
    assert "cuda12" in refused(69, "bench", "cuda", CUDA_VISIBLE_DEVICES="")

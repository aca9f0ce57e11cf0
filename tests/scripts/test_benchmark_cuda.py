"""The benchmark of CUDA kernels, without a GPU: its arithmetic and its order of events."""
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from checkout import ROOT
from commands import python

from benchmarks import benchmark_graphs, checks, cuda, gpu, peers, run
from benchmarks.gpu import Gpu
from benchmarks.processors import Processors
from hpgcn.bench import timing
from hpgcn.errors import InternalError, MissingError, UsageError
from hpgcn.kernels import reference

SCRIPT = ROOT / "scripts" / "gpu_check.sh"
QUICK = {"graphs": "dense,road", "widths": "7,16", "scale_down": 4096, "repeats": 3}


class Fake(Processors):
    """A fake GPU on which every call takes 1 ms, or the time set in `took`."""

    xp = np
    kernels = reference
    took = 1e-3

    def seconds(self, call):
        self.took = 1e-3
        call()
        return self.took, 2e-6

    def memory_limits(self, repeats):
        return {"memory_bytes_per_s": 16e6, "array_bytes": 4000}

    def product_peers(self, A, threads, absent):
        """Return peer libraries: a right one, a slow one, a wrong one, and two that fail."""
        def taking(seconds, factor=1):
            def bind(x, out):
                def call():
                    self.took = seconds
                    return A.matrix @ x * np.float32(factor)
                return call
            return bind

        def unprepared(x, out):
            raise AttributeError("no such algorithm")

        absent["torch"] = "ImportError: torch finds no GPU"
        return {"right": taking(3e-3), "slow": taking(4e-3), "wrong": taking(1e-6, 1.01),
                "unprepared": unprepared, "fails": lambda x, out: fail}


def fail():
    raise RuntimeError("out of\n  memory")


@pytest.fixture(scope="module")
def report():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "Gpu", Fake)
        text = json.dumps(run.measure(run.settings_of("cuda", **QUICK)))
        return json.loads(text, parse_constant=pytest.fail)


def row_of(report, *names, rows="rows", keys=("graph", "width", "kernel")):
    return next(row for row in report[rows] if tuple(row[key] for key in keys) == names)


def test_products(report):
    assert {row["kernel"] for row in report["rows"]} == {
        "hpgcn", "hpgcn_scaled", "hpgcn_masked", "right", "slow", "wrong"}
    least = 257 * 8 + 1216 * 8 + 2 * 256 * 7 * 4  # pointers, columns and values, x and out
    for kernel, size, milliseconds in (
            ("hpgcn", least, 1), ("hpgcn_masked", least + 256, 1), ("right", least, 3),
            ("hpgcn_scaled", least - 1216 * 4 + 2 * 256 * 4, 1)):
        row = row_of(report, "road", 7, kernel)
        assert (row["vertices"], row["nonzeros"], row["least_bytes"]) == (256, 1216, size)
        assert row["time_ms"] == row["median_ms"] == pytest.approx(milliseconds)
        assert row["host_ms"] == pytest.approx(2e-3)
        assert row["share_of_floor"] == pytest.approx(size / (milliseconds * 1e-3) / 16e6)
        assert row["relative_error"] < 1e-6
    assert row_of(report, "road", 7, "wrong")["relative_error"] == pytest.approx(0.01, rel=1e-3)


def test_ratios_are_those_of_the_fastest_peer_that_is_right(report):
    ratios = row_of(report, "dense", 7, rows="ratios", keys=("graph", "width"))
    assert ratios.pop("peer_ratios") == pytest.approx({"right": 3, "slow": 4})
    assert ratios == pytest.approx({"graph": "dense", "width": 7, "fastest_peer": "right",
                                    "peer_ratio": 3, "masked_ratio": 1})
    assert report["absent"] == {"torch": "ImportError: torch finds no GPU",
                                "fails": "RuntimeError: out of memory",
                                "unprepared": "AttributeError: no such algorithm"}


def test_means_by_hand():
    rows = [dict(zip(("graph", "width", "kernel", "time_ms", "relative_error"), (graph, 8, *row)))
            for graph, *row in (
                ("a", "hpgcn", 2, 0.0), ("a", "hpgcn_masked", 3, 0.0), ("a", "x", 4, 0.0),
                ("a", "y", 5, 0.0), ("b", "hpgcn", 1, 0.0), ("b", "hpgcn_masked", 1, 0.0),
                ("b", "x", 9, None), ("b", "y", 8, 2e-3), ("b", "z", 8, 0.0))]
    ratios = cuda.compare(rows)
    assert [(row["fastest_peer"], row["peer_ratio"]) for row in ratios] == [("x", 2), ("z", 8)]
    summary = cuda.summarise(ratios)
    masked = {"masked_mean_ratio": 1.5**0.5, "masked_least_ratio": 1, "masked_most_ratio": 1.5}
    assert {key: value for key, value in summary.items() if key[0] in "pm"} == pytest.approx({
        "peer_mean_ratio": 4, "peer_least_ratio": 2, "peer_most_ratio": 8, **masked})
    assert [summary[f"{name}_mean_ratio"] for name in "xyz"] == pytest.approx([2, 2.5, 8])

    ratios = cuda.compare([row for row in rows if row["kernel"].startswith("hpgcn")])
    assert [(row["fastest_peer"], row["peer_ratio"]) for row in ratios] == [(None, None)] * 2
    assert cuda.summarise(ratios) == pytest.approx(masked)


def test_gather_and_scatter_add_against_a_copy_of_as_many_rows(report):
    keys = ("operation", "order", "width", "kernel")
    copied = 128 * 2 * 7 * 4
    for operation, size in (("gather", 128 * (8 + 2 * 28)), ("scatter_add", 128 * (8 + 3 * 28))):
        row = row_of(report, operation, "random", 7, "hpgcn", rows="copies", keys=keys)
        assert (row["rows"], row["bytes"], row["relative_error"]) == (128, size, 0)
        assert row["bytes_per_s"] == pytest.approx(size / 1e-3)
        assert row["share_of_copy"] == pytest.approx(size / copied)


def test_table(report):
    text = run.format_report(report)
    assert "without fails:       RuntimeError: out of memory" in text
    headings = [line.split()[:2] for line in text.splitlines()
                if line.startswith(("graph ", "operation "))]
    assert headings == [["graph", "vertices"], ["graph", "width"], ["operation", "order"]]
    assert [line.split()[-1] for line in text.splitlines()
            if line.startswith("peer least ratio")] == ["3.00"]


@pytest.mark.parametrize(("name", "out"), [("spmm", 4), ("sspmm", 5), ("scatter_add", 2)])
def test_a_wrong_kernel_is_an_error(name, out):
    def wrong(*args, **options):
        getattr(reference, name)(*args, **options)[0] += 1
        return args[out]

    device = Fake()
    device.kernels = Namespace(**{**vars(reference), name: wrong})
    settings = run.settings_of("cuda", graphs="road", widths="5", scale_down=4096, repeats=1)
    with pytest.raises(InternalError, match=r"the result of hpgcn(_masked)? has relative error"):
        cuda.measure(settings, device, device.memory_limits(1))


def test_a_kernel_of_ours_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="out of"):
        checks.checked_turns(Fake(), {"hpgcn": fail}, 1, "test", absent={})


def test_peers_that_are_not_there_are_named(monkeypatch):
    for name in ("cupyx", "cupyx.cusparse", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    absent = {}
    A = benchmark_graphs.normalized(benchmark_graphs.make("road", 4096))
    assert peers.products_on_gpu(A, Fake(), absent) == {}
    assert set(absent) == {"cusparse", "torch"}


def test_turns_take_least_and_median():
    took = iter([9e-3, 1e-3, 2e-3])
    device = Namespace(seconds=lambda call: (next(took), 1e-6))
    timings = timing.in_turns(device, {"a": lambda: None}, 3, "test")
    assert timings["a"] == pytest.approx({"time_ms": 1, "median_ms": 2, "host_ms": 1e-3})


@pytest.fixture
def cupy(monkeypatch):
    """Replace CuPy by NumPy with a fake GPU; return the list of its recorded events."""
    events = []

    class Event:
        def record(self):
            events.append("record")

        def synchronize(self):
            events.append("synchronize")

    properties = {"name": b"A GPU", "multiProcessorCount": 2, "l2CacheSize": 1 << 20,
                  "totalGlobalMem": 1 << 30}
    runtime = Namespace(getDeviceCount=lambda: 1, driverGetVersion=lambda: 13000,
                        runtimeGetVersion=lambda: 12090, getDeviceProperties=lambda _: properties)
    device = Namespace(id=0, compute_capability="90", mem_info=(8000, 1 << 30))
    pool = Namespace(free_bytes=lambda: 192, free_all_blocks=lambda: events.append("release"))
    module = ModuleType("cupy")
    names = ("arange", "asarray", "empty_like", "ndarray", "uint32")
    module.__dict__.update(
        {name: getattr(np, name) for name in names}, events=events,
        copyto=lambda target, source: events.append("copy"), get_default_memory_pool=lambda: pool,
        cuda=Namespace(Event=Event, Device=lambda: device, runtime=runtime,
                       get_elapsed_time=lambda start, stop: 2.5))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_the_gpu_is_busy_while_a_call_is_queued(cupy):
    device = Gpu()
    assert device.seconds(lambda: cupy.events.append("call"))[0] == pytest.approx(2.5e-3)
    assert cupy.events == ["copy"] * 4 + ["record", "call", "record", "synchronize"]
    assert device.buffers[0].nbytes == 1024  # an eighth of the free memory
    assert np.unique(device.buffers[1]).size == 256
    limits = device.memory_limits(5)
    assert limits == pytest.approx({"memory_bytes_per_s": 2048 / 2.5e-3, "array_bytes": 1024})
    assert {key: value for key, value in device.describe().items() if "gpu" in key} == {
        "gpu": "A GPU", "gpu_l2_bytes": 1 << 20, "gpu_memory_bytes": 1 << 30}
    device.need(0, "x", 8192)
    message = "bench: x needs 8193 bytes of GPU memory, but 8192 are free; use --scale-down"
    with pytest.raises(UsageError, match=message):
        device.need(0, "x", 8193)


def test_without_a_gpu(cupy, monkeypatch):
    for count, message in ((lambda: 0, r"CuPy \(extra cuda12 or cuda13\) finds none"),
                           (fail, "cuda12 or cuda13.*out of")):
        cupy.cuda.runtime.getDeviceCount = count
        with pytest.raises(MissingError, match=message):
            run.measure(run.settings_of("cuda"))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingError, match=r"pip install 'cupy-cuda12x>=") as missing:
        run.measure(run.settings_of("cuda"))
    assert missing.value.code == 69


def check(*args, cwd, **environment):
    """Run scripts/gpu_check.sh without a visible GPU; return the finished process."""
    done = subprocess.run(
        [SCRIPT, *map(str, args)], cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", **environment})
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.long
def test_the_script_says_that_there_is_no_gpu(tmp_path):
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    done = check(cwd=tmp_path)
    line, = done.stderr.splitlines()
    assert done.returncode == 69 and line.startswith("gpu_check: bench cuda") and "cuda12" in line
    assert list(tmp_path.iterdir()) == []
    done = check("no/such/folder.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        73, f"gpu_check: cannot write {tmp_path}/no/such/folder.json: there is no such folder\n")


PYTHON = """#!/usr/bin/env bash
real() {{ PYTHONPATH=$PYTHONPATH:{packages} {python} -S "$@"; }}
case "$1 $2" in
    "-c import pytest")
        [ "$TESTS" != none ] || {{ echo "No module named 'pytest'" >&2; exit 1; }} ;;
    "-m pytest") echo "3 of 4 $TESTS"; exit "$TESTS" ;;
    "-m benchmarks.run")
        real -c "import hpgcn as h, hpgcn.datasets, hpgcn.kernels.cuda, os.path as p
print(*map(p.realpath, (h.__file__, h.datasets.__path__[0], h.kernels.__path__[0])))" >&2
        echo "flags: ${{*:3}}" >&2; cat {report}; exit "$BENCH" ;;
    "- ") exit 0 ;;
    *) real "$@" ;;
esac
"""


@pytest.mark.long
@pytest.mark.parametrize(("tests", "code", "status"), [
    ("0", 0, 0), ("none", 0, 0), ("5", 70, 5),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (("1", 0, 1), ("0", 70, 70)))])
def test_the_script_writes_what_was_found(report, tmp_path, tests, code, status):
    """gpu_check.sh writes its report, with fake tests and times, by a Python without hpgcn."""
    python, times, out = (tmp_path / name for name in ("python", "report.json", "out/check.json"))
    out.parent.mkdir()
    times.write_text(json.dumps(report))
    packages = Path(np.__file__).parents[1]
    python.write_text(PYTHON.format(packages=packages, python=sys.executable, report=times))
    python.chmod(0o755)
    done = check("out/check.json", "--graphs", "road", "--repeats", 3, cwd=tmp_path,
                 PYTHON="./python", TESTS=tests, BENCH=str(code))
    assert done.returncode == status, done.stderr
    assert f"{ROOT}/hpgcn/__init__.py {ROOT}/datasets {ROOT}/kernels\n" in done.stderr
    assert "flags: cuda --json --graphs road --repeats 3\n" in done.stderr
    assert "flags: cuda-epoch --json --repeats 3\n" in done.stderr
    left_out = "the tests are skipped: No module named 'pytest'" in done.stderr
    assert left_out == (tests == "none")
    assert ("gpu_check: failed: " in done.stderr) == (status != 0)
    written = json.loads(out.read_text())
    assert written["bench_exit_code"] == code
    told = (None, "") if left_out else (int(tests), f"3 of 4 {tests}")
    assert written["tests"] == dict(zip(("exit_code", "summary"), told))
    assert written["bench"] == written["epochs"] == (None if code else report)
    assert ("peer mean ratio" in done.stdout) == (code == 0)


@pytest.mark.long
def test_the_command_says_so_too(tmp_path):
    """The benchmark `cuda` without a GPU exits with 69, also from another folder."""
    done = python("-P", run.__file__, "cuda", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 69 and "cuda12" in done.stderr

"""The bytes of benchmark kernels, checked by hand, and timings beside a process that
copies memory.
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import succeed

from benchmarks import contended, kernels, processors, run
from benchmarks.kernel_cases import CALLS, CASES, UNTIMED, Arrays, bytes_of, numbers_of
from benchmarks.roofline import stores_past
from hpgcn.bench import host
from hpgcn.errors import UsageError
from hpgcn.kernels import reference
from hpgcn.kernels.cpu.emit import row_passes
from hpgcn.kernels.specs import SPECS

QUICK = {"scale_down": 1 << 14, "repeats": 1}
STARVED = {"starved_ms", "slower_ratio", "starved_share", "left_bytes_per_s", "stream_bytes_per_s"}


def test_each_public_kernel_is_timed_or_there_is_a_reason():
    timed = {name.split()[0] for name in CASES}
    assert timed | set(UNTIMED) == set(SPECS) and not timed & set(UNTIMED)
    assert all(UNTIMED.values())


def tiny(n, nnz, width):
    """Return arrays of a matrix with n rows whose nnz entries are all in row 0."""
    indptr = np.r_[0, np.full(n, nnz)]
    indices = (np.arange(nnz) % n).astype(np.int32)
    return Arrays(indptr, indices, np.ones(nnz, np.float32), width, 0)


# 100 rows of 16 numbers: x has 6,400 bytes, a mask 200, int64 a row 800, 4 heads a row 1,600;
# 300 entries: 101 pointers of 8, columns 1,200, values 1,200, their 4 heads 4,800
MATRIX = 101 * 8 + 1200


@pytest.mark.parametrize(("name", "least", "pulled"), [
    ("spmm", MATRIX + 1200 + 2 * 6400 + 6400, 6400),
    ("sspmm", MATRIX + 1200 + 200 + 2 * 6400 + 6400, 6400),
    ("aggregate sum", MATRIX + 2 * 6400 + 6400, 6400),
    ("aggregate max", MATRIX + 2 * 6400 + 2 * 12800 + 6400, 6400),
    ("edge_dot", MATRIX + 6400 + 2 * 4800 + 6400, 6400),
    ("edge_softmax", 808 + 4800 + 2 * 4800, 0),
    ("attend", MATRIX + 1600 + 2 * (6400 + 1600 + 6400 + 1600) + 6400 + 1600, (6400, 1600)),
    # 16 + 3 x 4 numbers a row are pulled, in two lines
    ("attend_backward", MATRIX + 6400 + 1600 + 2 * (6400 + 1600) + 11200, 11200),
    ("gather", 6400 + 800 + 2 * 6400, 0), ("scatter_add", 6400 + 800 + 2 * 6400, 0),
    ("matmul", 3 * 6400, 0), ("activate", 2 * 6400 + 2 * 200, 0),
    ("activate dropout", 2 * 6400 + 2 * 200 + 800, 0), ("apply_mask", 2 * 6400 + 200, 0),
    ("elu_backward", 2 * 6400 + 6400 + 200, 0), ("dropout_bits", 800 + 2 * 200, 0),
    ("dropout_csr", MATRIX + 1200 + 800 + 2 * 1200, 0), ("column_sum", 6400, 0),
    ("row_sum", 6400 + 2 * 800, 0), ("inner", 2 * 6400, 0), ("adam", 7 * 6400, 0),
    ("sgd", 3 * 6400, 0), ("layer_norm", 6400 + 2 * 800 + 4 * 6400, 0),
    ("softmax_cross_entropy", 6400 + 2 * 800 + 2 * 6400, 0)])
def test_bytes(name, least, pulled):
    arrays = tiny(100, 300, 16)
    assert bytes_of(CASES[name], arrays, 1 << 30) == (least, least)
    pulled = (pulled,) if isinstance(pulled, int) else pulled
    lines = sum(300 * 64 * -(-size // 6400) for size in pulled if size)
    assert bytes_of(CASES[name], arrays, 0) == (least, least - sum(pulled) + lines)


def test_what_is_stored_past_the_cache_is_counted_once(monkeypatch):
    arrays = tiny(100, 300, 16)
    for name in ("spmm", "gather"):
        case = CASES[name]
        once = bytes_of(case._replace(past=lambda a: True), arrays, 1 << 30)[0]
        assert once == bytes_of(case, arrays, 1 << 30)[0] - 6400
    assert not stores_past(arrays.indptr, arrays.indices, None, arrays.x, arrays.out)
    monkeypatch.setattr(row_passes, "last_level_cache", lambda: 1)
    assert stores_past(arrays.indptr, arrays.indices, None, arrays.x, arrays.out)
    wide = tiny(100, 300, 17)  # rows that begin anywhere
    assert not stores_past(wide.indptr, wide.indices, None, wide.x, wide.out)


@pytest.mark.parametrize("width", [5, 8])
@pytest.mark.parametrize("name", CASES)
def test_a_case_writes_what_it_says(name, width):
    """A benchmark case changes the arrays that it declares as written, and no others.

    The case runs on the reference kernels, which need no compilation.
    """
    arrays = tiny(40, 120, width)
    case = CASES[name]
    names = " ".join((case.reads, case.updates, case.writes, case.pulls)).split()
    arrays.top, arrays.variance, arrays.total  # noqa: B018 - made of others
    for array in (arrays.z, arrays.out, arrays.above, arrays.edge_out):
        array[...] = 3
    before = {each: getattr(arrays, each).copy() for each in names}
    results = CALLS[name](reference.trusted, arrays)
    made = results if isinstance(results, tuple) else (results,)
    changed = {each for each in names if not np.array_equal(before[each], getattr(arrays, each))}
    written = set((case.updates + " " + case.writes).split())
    assert changed <= written
    shapes = [getattr(result, "shape", None) for result in made]
    assert all(each in changed or before[each].shape in shapes for each in written)
    assert numbers_of(case, arrays) > 0


@pytest.fixture
def twice(monkeypatch):
    """Use one processor under two names, so that two processes share it."""
    class Twice(processors.Processors):
        def __init__(self):
            super().__init__()
            self.cpus = 2 * self.cpus[:1]
            self.cache_bytes = 1 << 20

    monkeypatch.setattr(processors, "Processors", Twice)
    for module in (host, contended):
        monkeypatch.setattr(module, "SMALLEST", 1 << 20)
    return Twice


SOME = {name: CASES[name] for name in ("spmm", "gather", "column_sum")}


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)])
def cases(request, monkeypatch):
    """Choose the benchmark kernels: all of them in long tests, otherwise a few."""
    chosen = CASES if request.param == "all" else SOME
    monkeypatch.setattr(kernels, "CASES", chosen)
    return chosen


def test_kernels(twice, cases):
    words = "--scale-down", 1 << 14, "--repeats", 1, "--widths", 8, "--threads", 1
    text = succeed("kernels", *words, "--json", program=run.main)
    report = json.loads(text, parse_constant=pytest.fail)
    assert [row["kernel"] for row in report["rows"]] == [*cases]
    for row in report["rows"]:
        floor_ms = 1e3 * row["bytes"] / row["memory_bytes_per_s"]
        assert row["floor_ms"] == pytest.approx(floor_ms)
        assert row["share_of_floor"] == pytest.approx(floor_ms / row["time_ms"])
        share = row["share_of_floor"] * row["traffic_bytes"] / row["bytes"]
        assert row["share_of_traffic"] == pytest.approx(share)
        assert row["bound"] in ("memory", "arithmetic") and row["width"] == 8
        assert not STARVED & set(row)
    sums = {row["kernel"]: row for row in report["rows"]}["column_sum"]
    assert sums["bytes"] == 64 * 8 * 4
    assert sums["numbers_per_s"] == pytest.approx(64 * 8 / (1e-3 * sums["time_ms"]))
    lines = run.format_report(report).splitlines()
    heading = next(line for line in lines if line.startswith("kernel"))
    assert "share of floor" in heading and "M/s" in lines[lines.index(heading) + 1]


@pytest.mark.long
@pytest.mark.parametrize(("command", "options"), [
    ("spmm", {"graphs": "road", "widths": "5"}), ("kernels", {"widths": "8"})])
def test_starved(command, options, twice, monkeypatch):
    monkeypatch.setattr(kernels, "CASES", SOME)
    before = os.sched_getaffinity(0)
    settings = run.settings_of(command, starved=True, **options, **QUICK)
    report = json.loads(json.dumps(run.measure(settings)), parse_constant=pytest.fail)
    assert os.sched_getaffinity(0) == before
    for row in report["rows"]:
        assert set(row) >= STARVED
        assert row["slower_ratio"] == pytest.approx(row["starved_ms"] / row["time_ms"])
        share = 1e3 * row.get("least_bytes", row.get("bytes")) / row["left_bytes_per_s"]
        assert row["starved_share"] == pytest.approx(share / row["starved_ms"])
        assert row["stream_bytes_per_s"] >= 0
    timed = {row["kernel"] for row in report["rows"]}
    assert timed >= ({"hpgcn", "scipy"} if command == "spmm" else set(SOME))
    assert "slower ratio" in run.format_report(report)


@pytest.mark.long
def test_the_copying_process_copies_when_asked_and_ends(twice):
    with contended.stream(twice()) as stream:
        assert stream.state[contended.MOVED] == 0
        with stream.running():
            begin = stream.state[contended.MOVED]
            deadline = time.monotonic() + 60
            while stream.state[contended.MOVED] <= begin and time.monotonic() < deadline:
                time.sleep(0.001)
        assert stream.bytes_per_s > 0
        process = stream.process
        assert process.is_alive()
    assert not process.is_alive()


def test_it_needs_two_processors(twice, monkeypatch):
    monkeypatch.setattr(host, "cores", lambda cpus: len(set(cpus)))
    with pytest.raises(UsageError, match="needs two processors, because another process copies"):
        lonely = twice()
        lonely.cpus = lonely.cpus[:1]
        with contended.stream(lonely):
            pass


def test_what_is_timed_and_what_copies_are_on_two_cores(monkeypatch):
    pairs = {0: 0, 1: 1, 2: 0, 3: 1}  # pairs of hyper-threads
    monkeypatch.setattr(contended, "cores", lambda cpus: len({pairs[cpu] for cpu in cpus}))
    assert contended.places([0, 1, 2, 3]) == (0, 3)
    assert contended.places([1, 2, 3]) == (2, 3)
    assert contended.places([1, 3]) == (1, 3)  # one core alone: the best there is


PARENT = """
import time
from benchmarks import contended
from benchmarks.processors import Processors
if __name__ == "__main__":
    one = Processors()
    one.cpus, one.cache_bytes, contended.SMALLEST = 2 * one.cpus[:1], 1 << 20, 1 << 20
    with contended.stream(one) as stream, stream.running():
        print(stream.process.pid, flush=True)
        time.sleep(600)
"""


@pytest.mark.long
def test_it_ends_when_its_parent_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    scripts = {**os.environ, "PYTHONPATH": str(Path(run.__file__).parents[1])}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True,
                          env=scripts) as parent:
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 60
        while running(child) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not running(child)


def running(process):
    """Return whether a process exists and is not a zombie."""
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False

"""Arrays in files of a scratch folder: results, plans, errors, and an empty folder."""
import ctypes
import errno
import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from arrays import assert_all, assert_none
from checkout import ROOT
from commands import clean_environment, peak_of_group, run, succeed
from graphs import make, scattered

from hpgcn import Config, load, predict, run_on_ranks, save, train
from hpgcn.comm import as_comm, run_on_disk, spool
from hpgcn.comm.local_mpi import Post, Request, as_bytes
from hpgcn.comm.turns import Turns
from hpgcn.errors import ConfigError, DataError, InternalError, StorageError
from hpgcn.parallel.workspace import Workspace
from hpgcn.partition import Partition, make_partition
from hpgcn.planning.answers import scratch_plan as plans
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.touches import Wait
from hpgcn.runtime import copy_rates, device
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.disk import mapped_pages, private_memory
from hpgcn.runtime.disk.mapped_pages import PAGE, bring_in, forget, pages_of, put_out
from hpgcn.runtime.disk.residency import Residency
from hpgcn.store import write_partitioned
from hpgcn.strategies import Product
from hpgcn.training.setup import run_partition
from hpgcn.training.steps.pass_arrays import PassArrays

pytestmark = pytest.mark.long

LIMIT = ROOT / "scripts" / "limit_memory.sh"
SETTINGS = {"layers": 3, "hidden": 32, "epochs": 2, "device": "cpu", "strategy": "p2p"}


def file_arrays(*arguments):
    """Return FileArrays; its import compiles, which not every process that collects tests does."""
    from hpgcn.kernels.disk.file_arrays import FileArrays

    return FileArrays(*arguments)


def test_arrays_in_files(tmp_path):
    """Large arrays are files without names, which grow and end with the arrays."""
    gc.collect()  # arrays of other tests may be in cycles
    files = file_arrays(tmp_path, 4096)
    others = files.nbytes
    with files.use():
        x = np.arange(1000)
        x.resize(5000)
        y = np.zeros((100, 100))
        few = np.ones(10)
        few.resize(1000)
        few.resize(10)
    assert not os.listdir(tmp_path)
    assert files.nbytes == others + x.nbytes + y.nbytes
    assert x[:1000].tolist() == list(range(1000))
    assert_none(x[1000:])
    assert_none(y)
    assert few.tolist() == [1] * 10
    del x, y
    assert files.nbytes == others


@pytest.fixture
def array(tmp_path):
    """Return an array of 1 MiB in a file, after all of it has left memory."""
    with file_arrays(tmp_path, PAGE).use():
        made = np.arange(1 << 17)
    put_out([pages_of(made)])
    return made


def in_memory(array):
    """Return the number of pages of an array that are in memory."""
    found = np.zeros(-(-array.nbytes // PAGE), np.uint8)
    ctypes.CDLL(None).mincore(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes),
                              ctypes.c_void_p(found.ctypes.data))
    return int((found & 1).sum())


def test_pages_leave_memory_and_come_back(array):
    """An array that was put out takes no memory; touched, or brought in, it has its contents."""
    if in_memory(array):
        pytest.skip("files of this folder are in memory")
    bring_in(array, 0, array.nbytes // 2)
    assert array.nbytes // PAGE // 2 <= in_memory(array) < array.nbytes // PAGE
    array[5] = -1
    put_out([pages_of(array)])
    assert in_memory(array) <= 16  # pages that the other core is adding to lists stay
    assert array[:7].tolist() == [0, 1, 2, 3, 4, -1, 6]
    assert_all(array[6:] == np.arange(6, array.size))


def test_rows_in_another_order_are_not_all_in_memory(array, monkeypatch, tmp_path):
    """Predictions of all vertices may be larger than memory."""
    if in_memory(array):
        pytest.skip("files of this folder are in memory")
    monkeypatch.setattr(device, "PIECE", 16 * PAGE)
    rows = array.reshape(-1, 64)
    order = np.random.default_rng(0).permutation(len(rows))
    with file_arrays(tmp_path, PAGE).use():
        found = device.Host().reordered(rows, order)
    assert in_memory(found) < 32 and in_memory(rows) < 32
    np.testing.assert_array_equal(found, rows[order])


def test_forgotten_contents(array):
    """Whole pages within the bytes are dropped, and later contents stay."""
    each = PAGE // array.itemsize
    forget(array[each // 2:3 * each + 1])
    assert_none(array[each:3 * each])
    assert_all(array[:each] == np.arange(each))
    assert_all(array[3 * each:] == np.arange(3 * each, array.size))
    array[each] = 7
    forget(array, array.nbytes // 2)
    put_out([pages_of(array)])
    assert array[each] == 7 and array[array.size // 2 - 1] == array.size // 2 - 1
    assert_none(array[array.size // 2:])
    forget(np.ones(9))  # in memory


class Passing:
    """Stand-in for PassArrays: an array is dead before segment 1, and maybe written."""

    last = 2

    def __init__(self, array, written=0):
        self.array = array
        self.written = written

    def check(self, segment, *product):
        pass

    def coming(self, segment):
        return [(self.array, self.array.nbytes, self.written)]

    def dead(self, segment):
        return [(self.array, 0)] * (segment == 1)


def test_contents_are_dropped_between_segments_alone(array):
    """Not in a segment, and not if the rank keeps its turn: it goes on and writes them."""
    disk = Residency(2, 2, "folder", list)
    disk.begin_pass(0, Passing(array))
    disk.begin_segment(0)

    def switch():
        disk.switch(0, 1)
        disk.switch(1, 0)

    switch()  # in segment 0
    assert array[1] == 1
    disk.end_segment(0, 8, False)
    Turns(2, disk)._switch(0, 0)
    assert array[1] == 1
    switch()
    assert array[1] == 0
    array[1] = 1
    disk.begin_segment(0)
    switch()  # in segment 1
    disk.close()
    assert array[1] == 1


def test_a_message_waits_for_an_array_that_moves(array, monkeypatch):
    """Else it would be copied to pages that are replaced."""
    disk = Residency(3, 3, "folder", list)
    disk.begin_pass(2, Passing(array, array.nbytes))
    read, call = threading.Event(), private_memory.system

    def system(name, *given):
        if name == "mremap":  # after the file was read
            read.set()
            time.sleep(0.05)
        return call(name, *given)

    monkeypatch.setattr(private_memory, "system", system)
    post = Post()
    post.observer = disk
    disk.switch(0, 1)
    read.wait()
    message = np.full(3 * PAGE, 255, np.uint8)
    for mine, others, buffer in ((post.sends, post.receives, message),
                                 (post.receives, post.sends, as_bytes(array)[PAGE:4 * PAGE])):
        post.message(mine, others, ("world", 1, 2, 0), buffer, Request())
    disk.switch(1, 2)
    disk.begin_segment(2)
    disk.switch(2, 0)
    disk.close()
    each = PAGE // array.itemsize
    assert_all(array[:each] == np.arange(each))
    assert_all(array[each:4 * each] == -1)


def test_a_disk_that_fails_ends_the_run(array, monkeypatch):
    disk = Residency(2, 2, "folder", list)
    def fail(*call):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(mapped_pages, "system", fail)
    disk.switch(0, 1)
    with pytest.raises(StorageError, match=r"^scratch='folder': Input/output error: arrays of "
                       "ranks$"):
        disk.switch(1, 0)
    disk.close()


def test_a_pass_that_differs_from_its_plan_is_refused():
    """Else contents that are read would be dropped."""
    waits = Wait(Product(0, 8, backward=True), True, True, False), Wait(None, True, True, False)
    turns = SimpleNamespace(segments=((), (), ()), waits=waits, results={})
    hop = SimpleNamespace(maps=[SimpleNamespace(sends_own_rows=True)])
    passed = PassArrays(turns, SimpleNamespace(
        field=SimpleNamespace(hops=[hop]), constant_arrays=dict, workspace=Workspace(np.float32),
        columns=SimpleNamespace(comm=as_comm(None), row=as_comm(None),
                                workspace=Workspace(np.float32))), ())
    passed.check(0, 8, True)
    passed.check(1, "sum")
    passed.check(2)
    for wrong in (0, 8, False), (0,), (0, "sum"), (1, 8, True), (1,), (2, "sum"), (3,):
        with pytest.raises(InternalError, match="planned"):
            passed.check(*wrong)


@pytest.mark.parametrize("settings", [
    {"strategy": "cover"}, {"strategy": "mop"}, {"strategy": "2d"}, {"norm": "batch"},
    {"strategy": "1.5d", "directed": True}, {"strategy": "3d:2x2x1", "norm": "layer"},
    {"model": "gat", "heads": 2}, {"directed": True},
    {"directed": True, "dtype": "bf16"}, {"strategy": "1d", "dtype": "bf16", "prune": False}],
    ids=str)
def test_results_are_those_in_memory(settings, small):
    """Losses and predictions are equal to the bit, and nothing remains in the folder."""
    settings = dict(settings)
    graph = make(n=601, f=33, degree=12, directed=settings.pop("directed", False))
    config = Config(**SETTINGS | settings)

    def work(comm):
        source = scattered(graph, as_comm(comm))
        result = train(source, config, comm)
        found = predict(source, result, comm)
        return result.history, found and found["logits"]

    expected = run_on_ranks(work, 4)[0]
    history, logits = run_on_disk(work, 4, small, kept=1)[0]
    assert [each["loss"] for each in history] == [each["loss"] for each in expected[0]]
    np.testing.assert_array_equal(logits, expected[1])
    assert not os.listdir(small)


def test_the_plan_chooses_ranks(small, monkeypatch, tmp_path):
    """A run that fits is not divided; else the fewest ranks that fit; else one line says so."""
    for module, name in ((plans, "PROCESS"), (plans, "RANK"), (spool, "WINDOW")):
        monkeypatch.setattr(module, name, 0)
    save(make(n=2001, f=64, degree=12), tmp_path / "g.h5")
    config = Config(**SETTINGS, memory="1G", scratch=str(small))
    path = str(tmp_path / "g.h5")
    assert plans.plan_scratch(path, config).ranks == 1
    monkeypatch.setattr(touches, "LEAST", 1 << 14)
    plan = plans.plan_scratch(path, config.replace(memory="2.75M"))
    assert plan.ranks > 1 and plans.TURNS * plan.turn + plan.messages <= 2.75 * 2**20
    assert sum(plan.nbytes) > plan.scratch > 0
    monkeypatch.setattr(plans, "RANK", 1 << 15)
    with pytest.raises(ConfigError, match=r"g\.h5: needs [\d,]+ bytes, but memory= is 10,240; "
                       "no other number of ranks from 2 to 512 needs less"):
        plans.plan_scratch(path, config.replace(memory="10K"))


@pytest.mark.parametrize("parts, features, process, rank, reason", [
    (4, 64, 0, 0, "more parts may need less"),
    (64, 3, 0, 1 << 20, "most of them are small arrays of each rank, so fewer parts may need less"),
    (4, 64, 1 << 20, 0, "the interpreter and its libraries take 1,048,576")])
def test_a_refusal_names_what_takes_the_memory(parts, features, process, rank, reason, monkeypatch,
                                               tmp_path):
    monkeypatch.setattr(plans, "PROCESS", process)
    monkeypatch.setattr(plans, "RANK", rank)
    monkeypatch.setattr(plans, "PAIR", 0)
    monkeypatch.setattr(touches, "LEAST", 1 << 14)
    monkeypatch.setattr(plans, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    path = str(tmp_path / "p.h5")
    write_partitioned(path, make(n=2001, f=features),
                      Partition.from_parts(np.arange(2001) % parts, parts))
    config = Config(layers=2, hidden=64, strategy="p2p", memory="20K", scratch=str(tmp_path))
    with pytest.raises(ConfigError, match=rf"p\.h5: needs [\d,]+ bytes, but memory= is 20,480; "
                       f"{reason}$"):
        plans.plan_scratch(path, config)


def test_a_disk_is_measured_by_files_of_the_sample(small, monkeypatch):
    """The size is that of the call, not of the import: tests write megabytes, not gigabytes."""
    made = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *given: made.append(given[2]))
    assert copy_rates.measure_disk(str(small)).both > 0
    assert made == [copy_rates.SAMPLE] * 2


def test_a_disk_with_little_space_is_measured_by_less(small, monkeypatch):
    made = []
    monkeypatch.setattr(copy_rates, "SAMPLE", 1 << 22)
    monkeypatch.setattr(copy_rates, "PIECE", 1 << 16)
    monkeypatch.setattr(os, "posix_fallocate", lambda *given: made.append(given[2]))
    for free, nbytes in ((1 << 20, 1 << 18), (300_000, 1 << 16), (1000, 1 << 16),
                         (1 << 30, 1 << 22)):
        monkeypatch.setattr(os, "statvfs", lambda _, free=free: SimpleNamespace(
            f_bavail=free, f_frsize=1))
        copy_rates.measure_disk(str(small))
        assert made[-2:] == [nbytes] * 2

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StorageError, match=r"^scratch=.*: No space left on device, measured with"):
        copy_rates.measure_disk(str(small))


@pytest.mark.parametrize("method", ["", "block", "vertex-cut"])
def test_owners_of_nonzeros_are_planned_on_any_file(method, monkeypatch, tmp_path):
    """As without files: each nonzero of a file without owners stays with its row."""
    monkeypatch.setattr(plans, "PROCESS", 0)
    monkeypatch.setattr(plans, "PAIR", 0)
    monkeypatch.setattr(plans, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    graph = make(n=2001, f=64)
    path = str(tmp_path / "p.h5")
    if method:
        write_partitioned(path, graph, make_partition(graph, 8, method=method, refine=False))
    else:
        save(graph, path)
    config = Config(layers=2, hidden=64, strategy="vertex-cut", memory="24M", scratch=str(tmp_path))
    plan = plans.plan_scratch(path, config, [8])
    assert (plan.ranks, plan.strategy) == (8, "vertex-cut")


def test_a_search_for_owners_that_does_not_fit_names_the_command(small, tmp_path):
    path = tmp_path / "g.h5"
    save(make(n=203), path)
    with pytest.raises(DataError, match=r"; `hpgcn partition .*g\.h5 -k 3 --method cover` makes "
                       "the parts beforehand"), load(path) as graph:
        run_partition.kept_partition(graph, 3, "cover", memory=1 << 20)


def test_errors_are_one_line(small, tmp_path):
    save(make(n=203), tmp_path / "g.h5")
    args = "train", tmp_path / "g.h5", "--out", tmp_path / "run"
    for code, more, line in (
            (2, ["--scratch", small], "hpgcn: --scratch {}: needs --memory\n"),
            *((2, [*given, "--scratch", small, "--memory", "1G"],
               " ".join(["hpgcn:", *given[-2:]]) + ": does not combine with --scratch {}, which "
               "takes one strategy for all layers, without a delay\n") for given in (
                ["--strategy", "p2p+p2p"],
                ["--strategy", "vertex-cut", "--delay", "2"])),
            (74, ["--scratch", "/proc", "--memory", "1G"], "hpgcn: --scratch /proc: "),
            (74, ["--scratch", small / "none", "--memory", "1G"],
             "hpgcn: --scratch {}/none: No such file or directory\n"),
            (78, ["--scratch", small, "--memory", "1M"], "hpgcn: ")):
        ended = run(*args, *more)
        assert ended.returncode == code
        assert ended.stderr.startswith(line.format(small)) and ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists() and not os.listdir(small)


def test_a_full_disk(small):
    """A disk that fills up ends the run with one line, on whatever rank it happens."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    graph = make(n=601, f=33)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        with pytest.raises(StorageError, match=r"^scratch='.*': File too large"):
            run_on_disk(lambda comm: train(scattered(graph, as_comm(comm)), Config(**SETTINGS),
                                           comm), 3, str(small))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_folder_that_is_removed(small):
    """The files have no names, so a folder can go at any time; new arrays then fail."""
    graph = make(n=601, f=33)

    def remove(metrics):
        shutil.rmtree(small, ignore_errors=True)

    with pytest.raises(StorageError, match="No such file or directory"):
        run_on_disk(lambda comm: train(scattered(graph, as_comm(comm)),
                                       Config(**SETTINGS | {"epochs": 9}), comm,
                                       callbacks=[remove]), 3, str(small))


def test_resume_in_memory(small, monkeypatch, tmp_path):
    """A run with files goes on in memory, and the reverse, to the same bits."""
    for module, name in ((plans, "PROCESS"), (plans, "RANK"), (spool, "WINDOW")):
        monkeypatch.setattr(module, name, 0)
    graph, config = make(n=601, f=33), Config(**SETTINGS, checkpoint_every=1)
    on_disk = config.replace(memory="900K", scratch=str(small))
    straight = train(graph, config.replace(epochs=4, checkpoint_every=0), ranks=3)
    for first, second, name in ((on_disk, config, "a"), (config, on_disk, "b")):
        out = str(tmp_path / name)
        train(graph, first.replace(out=out, trace=True), ranks=3)
        traced = (tmp_path / name / "trace.json").read_text()
        assert ('"wait for disk"' in traced) == (first is on_disk)
        resumed = train(graph, second.replace(out=out, epochs=4), ranks=3, resume=out)
        assert [each["loss"] for each in resumed.history] == [
            each["loss"] for each in straight.history]


def test_ranks_begin_in_order(small):
    """Collectives change the order of ranks; a pass through the model begins in rank order."""
    arrived = []

    def work(comm):
        comm = as_comm(comm)
        for _ in range(3):
            comm.max([comm.rank])
        comm.begin_pass()
        arrived.append(comm.rank)
        comm.max([comm.rank])

    run_on_disk(work, 5, small)
    assert arrived == [0, 1, 2, 3, 4]


def test_in_a_control_group(tmp_path):
    """A training that needs more memory than its control group allows succeeds there."""
    graph, scratch_dir, out = (tmp_path / name for name in ("g.h5", "scratch", "run"))
    scratch_dir.mkdir()
    succeed("generate", "sbm", "--scale", 15, "--features", 128, graph)
    succeed("partition", graph, "-k", 8, "--method", "stream", "--out", tmp_path / "p.h5")
    settings = ["--layers", 3, "--hidden", 128, "--epochs", 2, "--strategy", "p2p"]
    limit = 420 << 20
    ended = subprocess.run(list(map(str, [
        LIMIT, limit, sys.executable, "-m", "hpgcn", "train", tmp_path / "p.h5", *settings,
        "--memory", limit, "--scratch", scratch_dir, "--out", out])), capture_output=True,
        text=True, check=False, env=clean_environment(), timeout=600)
    if ended.returncode == 77:
        pytest.skip("no rights to make control groups")
    assert ended.returncode == 0, ended.stderr
    assert "killed 0" in ended.stderr and not os.listdir(scratch_dir)
    assert peak_of_group(ended.stderr) < limit
    expected = train(load(tmp_path / "p.h5"), Config(
        layers=3, hidden=128, epochs=2, strategy="p2p"), ranks=8)
    found = predict(str(tmp_path / "p.h5"), str(out), memory=str(limit), scratch=str(scratch_dir))
    np.testing.assert_array_equal(found["logits"], predict(str(tmp_path / "p.h5"), expected,
                                                   ranks=8)["logits"])


def test_a_killed_run_leaves_nothing(tmp_path):
    """After kill -9 in an epoch the folder is empty, and the run resumes."""
    scratch_dir, out = tmp_path / "scratch", tmp_path / "run"
    scratch_dir.mkdir()
    save(make(n=9001, f=64), tmp_path / "g.h5")
    words = [sys.executable, "-c", (
        "from hpgcn import *; from hpgcn.comm import run_on_disk; import sys\n"
        f"config = Config(out={str(out)!r}, epochs=10**6, strategy='p2p', checkpoint_every=1)\n"
        f"run_on_disk(lambda comm: train({str(tmp_path / 'g.h5')!r}, config, comm), 3, "
        f"{str(scratch_dir)!r})")]
    process = subprocess.Popen(words, env=clean_environment(), stderr=subprocess.DEVNULL)
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not os.listdir(scratch_dir)
    done = metrics.read_text().count("\n")
    resumed = train(str(tmp_path / "g.h5"), Config(strategy="p2p", epochs=done + 3, out=str(out),
                                                   checkpoint_every=1), ranks=3, resume=str(out))
    assert resumed["epochs"] == done + 3

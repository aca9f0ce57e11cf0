"""Files that do not stay in the page cache, by Linux's own count of their pages."""
import ctypes
import dataclasses
import mmap
import os

import numpy as np
import pytest
from arrays import assert_all
from commands import succeed
from graphs import make

from hpgcn import load, save, store
from hpgcn.planning.answers import scratch_plan
from hpgcn.runtime.copy_rates import CopyRates
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.disk.page_cache import DiskFile, drop_pages, nameless_file
from hpgcn.store.prediction_files import prediction_writer

pytestmark = pytest.mark.long

PART = 1 << 20  # bytes of a step in these tests
FEW = 1 << 18  # bytes that may stay, because the system uses their pages at that moment


def cached_bytes(path):
    """Return how many bytes of a file are in the page cache."""
    size = os.path.getsize(path)
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        begin = np.frombuffer(mapped, np.uint8)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(begin.ctypes.data),
                                           ctypes.c_size_t(size),
                                           ctypes.c_void_p(pages.ctypes.data))
        del begin
    assert not failed
    return int((pages & 1).sum()) * mmap.PAGESIZE


@pytest.fixture
def folder(tmp_path):
    """Return a folder of files that can leave the page cache."""
    path = tmp_path / "probe"
    path.write_bytes(bytes(1 << 16))
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        drop_pages(file.fileno())
    if not hasattr(os, "posix_fadvise") or cached_bytes(path):
        pytest.skip("files of this folder stay in the page cache")
    return tmp_path


@pytest.fixture(scope="module")
def graph():
    """Return a graph whose file has 12 MB."""
    return make(n=10007, f=300, degree=8)


class Watched:
    """Features that record how much of the growing files of a folder is cached."""

    def __init__(self, array, folder):
        self.array, self.folder = array, folder
        self.shape, self.dtype = array.shape, array.dtype
        self.seen = []

    def __getitem__(self, rows):
        self.seen.append(max(map(cached_bytes, self.folder.glob(".hpgcn-*.tmp"))))
        return self.array[rows]


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_file_leaves_as_it_is_written_and_read(folder, graph, monkeypatch, compress):
    """A few steps are cached at any time, and the contents stay the same."""
    monkeypatch.setattr(page_cache, "STEP", PART)
    monkeypatch.setattr(store.writer, "WRITE_BYTES", PART // 4)
    features = Watched(graph.features, folder)
    watched = dataclasses.replace(graph, features=features)
    path = folder / "g.h5"
    with page_cache.bypassed():
        store.write_graph(path, watched, compress=compress)
    assert max(features.seen) < 3 * PART
    assert cached_bytes(path) < FEW

    # the file is read in steps, and only the last one may stay
    with load(path, cached=False) as stored:
        for start in range(0, 10007, 2000):
            stored.slab(start, min(10007, start + 2000))
            assert cached_bytes(path) < FEW
        assert stored.sha256() and cached_bytes(path) < FEW
        np.testing.assert_array_equal(stored.read().features, graph.features)
    assert cached_bytes(path) < FEW
    with load(path) as stored:
        stored.read()
        assert cached_bytes(path) > 4 * PART  # without bypassing, it stays


def test_commands_with_a_memory_limit(folder, graph, monkeypatch):
    """Neither the graph nor a file of results remains in the page cache."""
    monkeypatch.setattr(scratch_plan, "measure_disk", lambda folder: CopyRates(1e9, 1e9, 1e9))
    path, parts, run = folder / "g.h5", folder / "p.h5", folder / "run"
    save(graph, path)
    with open(path, "rb") as file:
        drop_pages(file.fileno())
    memory = "--memory", "2G"
    succeed("partition", path, "-k", 2, "--method", "random", "--out", parts, *memory)
    assert max(cached_bytes(path), cached_bytes(parts)) < FEW
    scratch = "--scratch", folder
    succeed("train", parts, "--epochs", 1, "--hidden", 512, "--checkpoint-every", 1, "--out", run,
            *memory, *scratch)
    succeed("plan", parts, *memory, *scratch)
    assert cached_bytes(run / "model.h5") < FEW
    succeed("predict", run, *memory, *scratch)
    state, = run.glob("checkpoints/*/state.h5")
    for written in path, parts, run / "predictions.h5", state:
        assert os.path.getsize(written) > PART
        assert cached_bytes(written) < FEW


def test_conversions_with_a_memory_limit(folder):
    """A text larger than memory, its sorted entries and the new file leave the cache."""
    path, out = folder / "g.txt", folder / "g.h5"
    rng = np.random.default_rng(0)
    np.savetxt(path, rng.integers(0, 5000, (100_000, 2)), "%d")
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    succeed("convert", path, out, "--features", "random:64", "--memory", "5M")
    assert max(cached_bytes(path), cached_bytes(out)) < FEW


@pytest.mark.parametrize("name", ["p.csv", "p.npz", "p.h5"])
def test_predictions(folder, monkeypatch, name):
    monkeypatch.setattr(page_cache, "STEP", PART)
    n = 1 << 16
    arrays = {"id": np.arange(n), "logits": np.ones((n, 8), np.float32),
              "label": np.zeros(n, np.int64), "embedding": np.ones((n, 16), np.float32)}
    with page_cache.bypassed():
        prediction_writer(name)(folder / name, arrays, {})
    assert os.path.getsize(folder / name) > 2 * FEW
    assert cached_bytes(folder / name) < FEW


def test_pieces_of_a_file(folder, monkeypatch):
    """Arrays are written and read whole, in pieces of a step."""
    monkeypatch.setattr(page_cache, "STEP", 1000)
    rows = np.arange(999, dtype=np.int64)
    with page_cache.bypassed(), nameless_file(folder) as file:
        file.write_array(rows, 16)
        found = np.empty_like(rows)
        file.read_array(found, 16)
        assert_all(found == rows)
        with pytest.raises(OSError, match="ends at byte 8008, expected 8 bytes more"):
            file.read_array(found, 24)
    assert not any(path.name != "probe" for path in folder.iterdir())


def test_systems_without_these_calls(folder, monkeypatch):
    """Nothing leaves the page cache where Linux's calls are missing."""
    for name in ("posix_fadvise", "fdatasync"):
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(page_cache, "STEP", 1 << 16)
    with page_cache.bypassed(), DiskFile(folder / "file", "w+") as file:
        file.write_array(np.ones(PART, np.uint8), 0)
    assert cached_bytes(folder / "file") > PART // 2

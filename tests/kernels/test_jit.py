"""The cache of compiled kernels, to which several processes write at once."""
import fcntl
import importlib.util
import logging
import multiprocessing
import os
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile

from hpgcn.kernels import jit as module
from hpgcn.kernels.jit import jit, lock_holder, save_one_by_one
from hpgcn.kernels.user_cache import cache_roots


def save(folder, number, start):
    cache = IndexDataCacheFile(str(folder), "kernel", 0)
    save_one_by_one(cache)
    start.wait()
    cache.save(number, f"code {number}")


@pytest.mark.long
def test_no_process_takes_the_number_of_another(tmp_path):
    context = multiprocessing.get_context("fork")
    for turn in range(2):
        folder = tmp_path / str(turn)
        folder.mkdir()
        start = context.Barrier(8)
        processes = [context.Process(target=save, args=(folder, number, start))
                     for number in range(8)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
            assert each.exitcode == 0
        cache = IndexDataCacheFile(str(folder), "kernel", 0)
        assert [cache.load(number) for number in range(8)] == [f"code {number}"
                                                                for number in range(8)]


def test_kernels_are_saved_so():
    @jit()
    def twice(x):
        return 2 * x

    assert twice._cache._cache_file.save.__name__ == "save_alone"
    assert twice(np.float64(2)) == 4


def test_copies_of_a_file_share_what_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)
    hits = []
    for name in ("first", "second"):
        path = tmp_path / name / "made.py"
        path.parent.mkdir()
        path.write_text("from hpgcn.kernels.jit import jit\n\n\n"
                        "@jit()\ndef thrice(x):\n    return 3 * x\n")
        spec = importlib.util.spec_from_file_location("made", path)
        spec.loader.exec_module(made := importlib.util.module_from_spec(spec))
        assert made.thrice(2.0) == 6
        hits.append(sum(made.thrice.stats.cache_hits.values()))
    assert hits == [0, 1]


def test_a_lock_that_is_never_given_back_ends_saving(tmp_path, monkeypatch, caplog):
    """If the cache lock stays locked, one warning names its file; kernels are saved
    again once it is free.
    """
    monkeypatch.setattr(module, "DEADLINE", 0.05)
    monkeypatch.setattr(module._Stuck, "said", False)
    cache = IndexDataCacheFile(str(tmp_path), "kernel", 0)
    save_one_by_one(cache)
    lock = f"{cache._index_path}.lock"
    with open(lock, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with caplog.at_level(logging.WARNING, "hpgcn"):
            cache.save(1, "code 1")
            monkeypatch.setattr(module, "DEADLINE", 1e9)
            cache.save(2, "code 2")
    assert cache.load(1) is cache.load(2) is None
    message, = caplog.messages
    assert message.startswith(f"{lock}: ") and "NUMBA_CACHE_DIR" in message
    cache.save(3, "code 3")
    assert cache.load(3) == "code 3"


def test_the_process_that_holds_a_lock_is_named(tmp_path):
    locks = tmp_path / "locks"
    with open(tmp_path / "lock", "wb") as file:
        assert lock_holder(file, locks) == "another process"
        found = os.fstat(file.fileno())
        node = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        own = f"2: FLOCK  ADVISORY  WRITE {os.getpid()} {node} 0 EOF"
        for lines, process in (
                ([f"1: POSIX  ADVISORY  WRITE 1 {node} 0 EOF", "x", own], f"{os.getpid()} ("),
                ([f"1: FLOCK  ADVISORY  WRITE 999999999 {node} 0 EOF"], "999999999"),
                ([f"1: FLOCK  ADVISORY  WRITE 1 {node}1 0 EOF", f"1: -> {own[3:]}"], None)):
            locks.write_text("\n".join(lines))
            expected = f"process {process}" if process else "another process"
            assert lock_holder(file, locks).startswith(expected)


def test_kernels_survive_an_edit_of_a_file_that_theirs_does_not_import(tmp_path, monkeypatch):
    """Cached kernels expire only when their file, or a file it imports directly or
    indirectly, changes.
    """
    texts = {"kernel": "from hpgcn.made import (\n    helper, other)\n",
             "helper": "from hpgcn.made.deep import f  # by a step\n",
             "deep": "f = 1\n", "apart": "g = 1\n"}
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        monkeypatch.setitem(sys.modules, f"hpgcn.made.{name}", SimpleNamespace(__file__=str(path)))

    def folder():
        for cached in (module._read, module._imported_by, module._digest_of_sources):
            cached.cache_clear()
        return module.cache_dir(str(tmp_path / "kernel.py"))

    folders = [folder()]
    for name in ("apart", "kernel", "helper", "deep"):
        with open(tmp_path / f"{name}.py", "a") as file:
            file.write("# edited\n")
        folders.append(folder())
    assert folders[0] == folders[1]
    assert len({*folders[1:]}) == 4

    # what is compiled refers to modules by name: one that moved is compiled again
    monkeypatch.setitem(sys.modules, "hpgcn.moved", sys.modules["hpgcn.made.kernel"])
    monkeypatch.delitem(sys.modules, "hpgcn.made.kernel")
    assert folder() not in folders


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Remove the home folder, and use the test's folder for temporary files."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_without_a_home_kernels_are_kept_for_the_next_process(nowhere):
    folders = {module.cache_root.__wrapped__() for _ in range(2)}
    folder, = folders
    private = nowhere / f"hpgcn-{os.geteuid()}"
    assert folder == private / "hpgcn" / "numba"
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_a_folder_that_others_write_to_is_not_read(nowhere, kind):
    """A cache folder that is a link or that other users can write to is not used."""
    private = nowhere / f"hpgcn-{os.geteuid()}"
    if kind == "a link":
        (nowhere / "theirs").mkdir(0o700)
        private.symlink_to(nowhere / "theirs")
    else:
        private.mkdir()
        private.chmod(0o777)
    assert [*cache_roots("XDG_CACHE_HOME")] == []
    first, second = (module.cache_root.__wrapped__() for _ in range(2))
    assert first != second and private not in first.parents


def test_variables_come_before_the_home(nowhere, monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~", "/home/me"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "~/numba")
    private = f"{nowhere}/hpgcn-{os.geteuid()}"
    assert [*map(str, cache_roots("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"))] == [
        "/home/me/numba", "/home/me/.cache", private]

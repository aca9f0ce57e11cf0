"""The cache of compiled kernels, to which several processes write at once."""
import errno
import importlib.util
import multiprocessing
import os
import pickle
import shutil
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

from hpgcn.kernels.host import jit as module
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.user_cache import cache_roots


def twice(x):
    return 2 * x


def call_twice(x):
    """Return whether the kernel of `twice` for the type of x came from the cache."""
    kernel = jit()(twice)
    assert kernel(x) == 2 * x
    return sum(kernel.stats.cache_hits.values()) == 1


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return an empty cache; a warning is logged again."""
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(module.KernelCache, "warned", False)
    return tmp_path


def save_all(types, start):
    start.wait()
    for kind in types:
        call_twice(kind(3))


@pytest.mark.long
def test_processes_store_at_once(root):
    context = multiprocessing.get_context("fork")
    types = [np.int8, np.int16, np.uint8, np.uint16, np.float32, np.int64]
    start = context.Barrier(4)
    processes = [context.Process(target=save_all, args=(types[turn:] + types[:turn], start))
                 for turn in range(4)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
        assert each.exitcode == 0
    assert all(call_twice(kind(3)) for kind in types)
    folder, = root.iterdir()
    assert len(list(folder.iterdir())) == len(types)


def in_digest(content):
    return module.hashlib.sha256(content).digest() + content


DAMAGES = {
    "empty": lambda content: b"", "cut": lambda content: content[:len(content) // 2],
    "short": lambda content: content[:5], "longer": lambda content: content + b"x",
    "flipped": lambda content: content[:-99] + bytes([content[-99] ^ 4]) + content[-98:],
    "text": lambda content: b"no kernel\n" * 99,
    "another pickle": lambda content: in_digest(pickle.dumps((1, 2, 3))),
    "no pickle": lambda content: in_digest(b"no kernel"),
    "another key": lambda content: in_digest(pickle.dumps(("key", ())))}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_compiled_again(root, damage, caplog):
    assert not call_twice(2.0)
    folder, = root.iterdir()
    file, = folder.iterdir()
    content = file.read_bytes()
    file.write_bytes(DAMAGES[damage](content))
    assert not call_twice(2.0)
    assert [message.partition(":")[0] for message in caplog.messages] == (
        [str(folder)] * (damage != "another key"))
    assert call_twice(2.0)


@pytest.mark.parametrize("where", ["root", "folder", "file"])
def test_what_cannot_be_stored_stays_in_memory(root, where, caplog):
    """If a folder replaces a file, or a file a folder, there is one warning."""
    assert not call_twice(2.0)
    folder, = root.iterdir()
    file, = folder.iterdir()
    if where == "file":
        file.unlink()
        file.mkdir()
    else:
        shutil.rmtree(folder if where == "folder" else root)
        (folder if where == "folder" else root).write_text("a file")
    for x in (2.0, 2):
        assert not call_twice(x)
    message, = caplog.messages
    assert message.startswith(f"{folder}: ") and "NUMBA_CACHE_DIR" in message
    if where == "file":
        assert call_twice(2)
        assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("name, code", [
    ("fsync", errno.ENOSPC), ("replace", errno.EDQUOT), ("makedirs", errno.EROFS)])
def test_a_full_disk_leaves_no_file(root, name, code, monkeypatch, caplog):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        assert not call_twice(2.0)
        assert not call_twice(2)
    assert os.strerror(code) in caplog.messages[0]
    assert len(caplog.messages) == 1
    assert [path for path in root.rglob("*") if path.is_file()] == []
    assert not call_twice(2.0)
    assert call_twice(2.0)


@pytest.mark.parametrize("state", ["fit", "missing", "damaged"])
def test_kernels_of_the_site_come_first(root, state, tmp_path, monkeypatch, caplog):
    site, own = tmp_path / "site", tmp_path / "own"
    monkeypatch.setattr(module, "cache_root", lambda: site / module.INSIDE)
    assert not call_twice(2.0)
    monkeypatch.setattr(module, "cache_root", lambda: own)
    monkeypatch.setenv(module.SHARED, str(site))
    file, = site.rglob("*.nbc")
    if state == "missing":
        file.unlink()
    elif state == "damaged":
        file.write_bytes(b"damaged")
    assert call_twice(2.0) == (state == "fit")
    assert own.exists() == (state != "fit")  # what is compiled is stored for this user alone
    assert len(caplog.messages) == (state == "damaged")


def test_without_any_folder_kernels_are_compiled(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file"))

    def fail(**_):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(module.tempfile, "gettempdir", fail)
    monkeypatch.setattr(module.tempfile, "mkdtemp", fail)
    root = module.cache_root.__wrapped__()
    monkeypatch.setattr(module, "cache_root", lambda: root)
    assert not call_twice(2.0)


def test_copies_of_a_file_share_what_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)
    hits = []
    for name in ("first", "second"):
        path = tmp_path / name / "made.py"
        path.parent.mkdir()
        path.write_text("from hpgcn.kernels.host.jit import jit\n\n\n"
                        "@jit()\ndef thrice(x):\n    return 3 * x\n")
        spec = importlib.util.spec_from_file_location("made", path)
        spec.loader.exec_module(made := importlib.util.module_from_spec(spec))
        assert made.thrice(2.0) == 6
        hits.append(sum(made.thrice.stats.cache_hits.values()))
    assert hits == [0, 1]


def test_kernels_survive_an_edit_of_a_file_that_theirs_does_not_import(tmp_path, monkeypatch):
    """Cached kernels expire only when a file changes that they import, directly or not."""
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

    # compiled code refers to modules by name, so a moved module is compiled again
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

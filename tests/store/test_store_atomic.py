"""A written file is complete, or the old one remains; a full disk gives a one-line error."""
import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from stored_graphs import make_graph

from hpgcn import store
from hpgcn.errors import InputNotFoundError, OutputError, StorageError
from hpgcn.store.writer import create


class Interrupted:
    """An array-like of rows that raises an exception after the first slice."""

    shape = (30_000_000,)
    dtype = np.dtype(np.float32)

    def __init__(self, error):
        self.error = error

    def __getitem__(self, rows):
        if rows.start:
            raise self.error
        return np.ones(rows.stop, np.float32)


ERRORS = [ValueError("mine"), KeyboardInterrupt(), OSError(errno.EIO, "disk")]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("compress", ["none", "gzip"])
@pytest.mark.parametrize("before", [None, b"the old file"])
def test_a_writer_that_raises_leaves_everything_as_it_was(tmp_path, before, compress, error):
    path = tmp_path / "x.h5"
    if before:
        path.write_bytes(before)
    creating = create(path, "hpgcn-model", overwrite=True, compress=compress)
    with pytest.raises(type(error)), creating as writer:
        writer.dataset("weights/W", Interrupted(error))
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([before] if before else [])


@pytest.mark.parametrize("error", ERRORS[:2])
def test_atomic_write_that_raises(tmp_path, error):
    def write(file):
        file.write(b"half")
        raise error

    (tmp_path / "old").write_text("old")
    for name in ("old", "new"):
        with pytest.raises(type(error)):
            store.atomic_write(tmp_path / name, write, overwrite=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("old", "old")]


def test_atomic_write(tmp_path):
    text, link = tmp_path / "text", tmp_path / "link"
    before = os.umask(0o027)
    for name, content in {"bytes": b"\x00\xff", "text": "h\u00e9",
                          "npy": lambda file: np.save(file, np.arange(3))}.items():
        store.atomic_write(tmp_path / name, content)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    os.umask(before)
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff" and text.read_bytes() == b"h\xc3\xa9"
    assert np.load(tmp_path / "npy").tolist() == [0, 1, 2]
    with pytest.raises(OutputError, match="exists already"):
        store.atomic_write(text, b"new")
    store.atomic_write(text, b"new", overwrite=True)
    assert text.read_bytes() == b"new"
    link.symlink_to("text")
    store.atomic_write(link, b"through the link", overwrite=True)
    assert link.is_symlink() and text.read_bytes() == b"through the link"
    assert len(list(tmp_path.iterdir())) == 4


def test_outputs_that_cannot_be_created(tmp_path, graph_file):
    asked = []
    os.mkfifo(tmp_path / "fifo")
    for path, message in {
            graph_file: "exists already; use overwrite=True",
            tmp_path / "absent" / "x.h5": "there is no folder",
            graph_file / "x.h5": "cannot be created", "/proc/x.h5": "cannot be created",
            tmp_path / ("n" * 300): "cannot be created", "nul\0byte": "cannot be created"}.items():
        attempts = [(store.atomic_write, asked.append), (store.write_graph, make_graph())]
        if path != "/proc/x.h5":  # only an attempt reveals it
            attempts += [(store.refuse_existing, False)]
        for function, argument in attempts:
            with pytest.raises(OutputError, match=message) as refusal:
                function(path, argument)
            assert str(refusal.value).startswith(str(path))
    for path, kind in {tmp_path: "folder", tmp_path / "fifo": "special file",
                       "/dev/null": "special file"}.items():
        with pytest.raises(OutputError, match=f"is a {kind}"):
            store.atomic_write(path, asked.append, overwrite=True)
    assert not asked, "refused before any work"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="not writable"):
        store.write_graph(tmp_path / "g.h5", make_graph())


def test_a_target_that_appears_meanwhile_is_kept(tmp_path):
    def write(file):
        file.write(b"mine")
        (tmp_path / "x").write_text("theirs")

    with pytest.raises(OutputError, match="exists already"):
        store.atomic_write(tmp_path / "x", write)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["theirs"]


FULL = """
import resource, sys, os
import numpy as np
from hpgcn import store
from hpgcn.store.writer import create
from hpgcn.errors import StorageError
path, compress = sys.argv[1:3]
values = np.random.default_rng(0).random((4, 100_000))
for limit in (0, 40, 50, 300, 2000, 5000, 70_000, 800_000, 900_000, 2_500_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        with create(path, "hpgcn-model", compress=compress) as writer:
            for k in range(12):
                writer.attributes(f"group{k}", {f"a{i}": "x" * 20 * i for i in range(12)})
            for k, row in enumerate(values):
                writer.dataset(f"x{k}", row)
    except StorageError as error:
        os.write(1, f"{error}\\n".encode())
    assert not os.listdir(os.path.dirname(path)), limit
"""


@pytest.mark.parametrize("compress", ["none", pytest.param("gzip", marks=pytest.mark.long)])
def test_full_disk(tmp_path, compress):
    """Writing under a file size limit gives a one-line error and never a crash of HDF5."""
    path = tmp_path / "x.h5"
    child = subprocess.run([sys.executable, "-c", FULL, path, compress], capture_output=True,
                           text=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == [f"{path}: writing failed: File too large"] * 10


def test_file_sha256(tmp_path):
    (tmp_path / "abc").write_text("abc")
    # FIPS 180-2, appendix B.1
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert store.file_sha256(tmp_path / "abc") == expected
    for absent in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputNotFoundError, match=str(absent)):
            store.file_sha256(absent)


def test_device_errors_are_storage_errors(monkeypatch, tmp_path):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="x: writing failed: No space left"):
        store.atomic_write(tmp_path / "x", b"content")
    with pytest.raises(StorageError, match=r"g\.h5: writing failed: No space left"):
        store.write_graph(tmp_path / "g.h5", make_graph())
    assert not list(tmp_path.iterdir())

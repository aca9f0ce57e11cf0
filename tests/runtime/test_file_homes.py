"""Homes of blocks in a file, behind a pool of memory; without a GPU."""
import errno
import os
import signal
import threading
from concurrent.futures import wait
from types import SimpleNamespace

import numpy as np
import pytest
from arrays import assert_all
from commands import python

from hpgcn.errors import StorageError
from hpgcn.runtime.gpu import file_homes
from hpgcn.runtime.gpu.file_homes import PAGE, FileHomes

GPU = SimpleNamespace(pinned=lambda nbytes: np.empty(nbytes, np.uint8))


@pytest.fixture
def homes(monkeypatch, tmp_path):
    monkeypatch.setattr(file_homes, "PIECE", 2 * PAGE)
    monkeypatch.setattr(file_homes, "LEAST", 0)
    homes = FileHomes(str(tmp_path), 9 * PAGE, GPU)
    yield homes
    homes.close()
    assert not os.listdir(tmp_path)


def bytes_of(number, nbytes):
    return np.full(nbytes, number, np.uint8)


def test_contents_are_the_last_ones_stored(homes):
    """In any order of reads, writes and reads ahead, with more homes than the pool has room for."""
    rng = np.random.default_rng(0)
    held = [(homes.take(size), np.zeros(size, np.uint8))
            for size in (100, 5000, PAGE, 9 * PAGE + 7)]
    for home, known in held:
        home.store((0, known.size), known)
    for step in range(600):
        place = int(rng.integers(len(held)))
        home, known = held[place]
        begin, end = sorted(rng.integers(0, known.size, 2).tolist())
        end += 1
        kind = rng.integers(9)
        if kind < 3:
            known[begin:end] = step % 256
            home.store((begin, end), known[begin:end])
        elif kind < 6:
            assert_all(home.load((begin, end)) == known[begin:end])
        elif kind < 7:
            home.read_ahead((begin, end))
        elif kind < 8:
            homes.release_ahead()
        else:  # another home gets its place
            home.free()
            known[:] = 0
            held[place] = homes.take(known.size), known
            held[place][0].store((0, known.size), known)
    for home, known in held:
        assert_all(home.load((0, known.size)) == known)


def test_what_is_read_ahead_stays_until_it_has_been_used(homes):
    """Then it is read once; pieces that turns did not use make room after them."""
    home, other = homes.take(2 * PAGE), homes.take(16 * PAGE)
    home.store((0, 2 * PAGE), bytes_of(1, 2 * PAGE))
    other.store((0, 16 * PAGE), bytes_of(2, 16 * PAGE))
    home.read_ahead((0, 2 * PAGE))
    other.load((0, 16 * PAGE))
    before = dict(homes.moved)
    assert_all(home.load((0, 2 * PAGE)) == 1)
    assert homes.moved == before
    home.read_ahead((0, 2 * PAGE))
    homes.release_ahead()
    other.load((0, 16 * PAGE))
    assert_all(home.load((0, 2 * PAGE)) == 1)
    assert homes.moved["read"] == before["read"] + 18 * PAGE


def test_reading_ahead_leaves_room(homes):
    """Pieces that are read ahead leave each other alone, and a third of the pool to others."""
    home = homes.take(20 * PAGE)
    home.store((0, 20 * PAGE), bytes_of(3, 20 * PAGE))
    homes.release_ahead()
    home.read_ahead((0, 20 * PAGE))
    assert sum(piece.memory.size for piece in homes.ahead) == 4 * PAGE
    assert_all(home.load((0, 20 * PAGE)) == 3)


def test_what_was_written_is_read_again(homes):
    """So that the bytes of the disk do not depend on the size of the pool."""
    home = homes.take(2 * PAGE)
    home.store((0, 2 * PAGE), bytes_of(4, 2 * PAGE))
    assert_all(home.load((0, 2 * PAGE)) == 4)
    assert homes.moved == {"read": 2 * PAGE, "write": 2 * PAGE}


def test_reads_wait_for_writes_before_them(homes):
    """Also for the rest of a piece that a later write has replaced in part."""
    home, allowed = homes.take(2 * PAGE), threading.Event()
    homes.writer.submit(allowed.wait)
    home.store((0, 2 * PAGE), bytes_of(1, 2 * PAGE))
    home.store((PAGE, 2 * PAGE), bytes_of(2, PAGE))
    home.read_ahead((0, PAGE))
    piece, = homes.ahead
    assert wait([piece.disk], timeout=0.05).not_done
    allowed.set()
    assert_all(home.load((0, PAGE)) == 1)


def test_places_are_used_again(homes):
    for _ in range(3):
        home = homes.take(5 * PAGE + 1)
        home.store((0, 5 * PAGE + 1), bytes_of(1, 5 * PAGE + 1))
        home.free()
    assert homes.reserved == 6 * PAGE


def test_a_disk_that_fails_is_one_line(homes, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    home = homes.take(2 * PAGE)
    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StorageError, match=r"^scratch=.*: No space left on device: arrays of"):
        homes.take(2 * PAGE)
    monkeypatch.setattr(os, "pwrite", fail)
    home.store((0, 9), bytes_of(1, 9))
    with pytest.raises(StorageError, match=r"^scratch=.*: No space left on device: arrays of"):
        home.load((0, PAGE))  # more than the piece that was written


def test_a_killed_process_leaves_no_file(tmp_path):
    ended = python("-c", (
        "import os, signal, types, numpy as np\n"
        "from hpgcn.runtime.gpu.file_homes import FileHomes\n"
        "gpu = types.SimpleNamespace(pinned=lambda nbytes: np.empty(nbytes, np.uint8))\n"
        f"home = FileHomes({str(tmp_path)!r}, 0, gpu).take(1 << 20)\n"
        "home.store((0, 1 << 20), np.ones(1 << 20, np.uint8))\n"
        "home.written.result()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not os.listdir(tmp_path)

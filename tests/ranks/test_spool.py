"""Messages between ranks of a process that pass through a file."""
import errno
import os

import numpy as np
import pytest
from arrays import assert_none

from hpgcn.comm.spool import PAGE, WINDOW, Spool, buffer_bytes
from hpgcn.errors import StorageError


@pytest.fixture
def spool(tmp_path):
    spool = Spool(str(tmp_path), in_files=5, ranks=6)
    yield spool
    spool.close()
    assert not os.listdir(tmp_path)


def send(spool, source, target, number, rows=1000):
    message = spool.message(rows, 7, np.float32)
    message.array[...] = number
    spool.put(source, [target], message)


def take(spool, source, target):
    """Return the number that a message is full of."""
    message = spool.take(source, target)
    number, = np.unique(message.array)
    spool.release(message)
    return number


def test_messages_of_two_ranks_arrive_in_order(spool):
    """Also if several are under way, and memory is used again by shorter ones."""
    assert not spool.arrival(0, 2).done
    for number in range(9):
        send(spool, 0, 2, number, rows=1000 - 100 * number)
        send(spool, 0, 3, -number)
    spool.read_ahead([(0, 2)])
    assert spool.arrival(0, 2).Get_status()
    assert [take(spool, 0, 2) for _ in range(9)] == [*range(9)]
    assert [take(spool, 0, 3) for _ in range(9)] == [-number for number in range(9)]
    assert not spool.arrival(0, 3).done


def test_messages_to_the_next_rank_and_to_ranks_in_memory_are_not_written(spool):
    for source, target in ((5, 0), (0, 1), (0, 5)):
        send(spool, source, target, 3)
    assert spool.moved == {"read": 0, "write": 0}
    send(spool, 0, 2, 4)
    pages = -(-28_000 // PAGE) * PAGE
    assert [take(spool, *pair) for pair in ((0, 2), (0, 1), (5, 0), (0, 5))] == [4, 3, 3, 3]
    assert spool.moved == {"read": pages, "write": pages}


def test_messages_that_the_next_rank_has_not_taken_in_its_turn_are_written(spool):
    """Else memory would have a message of each rank, such as sums that follow rows."""
    for source in range(4):
        send(spool, source, source + 1, source)
    pages = 2 * 7 * PAGE
    assert spool.moved["write"] == pages  # those to ranks 1 and 2
    assert [take(spool, source, source + 1) for source in range(4)] == [0, 1, 2, 3]
    assert spool.moved == {"read": pages, "write": pages}


def test_memory_of_rows_of_many_ranks_is_not_taken_for_few(spool):
    """Else all memory would become as large as theirs."""
    spool.release(spool.message(10000, 7, np.float32))
    send(spool, 0, 2, 1)
    assert spool._writes[0].memory.size == 7 * PAGE


def test_memory_that_is_let_go_of_is_free_although_arrays_refer_to_it(spool):
    """Loops that wait still have the rows of a message in variables."""
    message = spool.message(1000, 7, np.float32)
    rows = message.array
    rows[...] = 1
    spool.release(message)
    spool.message(10000, 7, np.float32)
    assert_none(rows)


def test_messages_that_wait_for_all_ranks_are_written(spool):
    """Else memory has one from each rank."""
    for target in (1, 5):
        message = spool.message(1000, 7, np.float32)
        message.array[...] = target
        spool.put(0, [target], message, soon=False)
    assert spool.moved["write"] == 2 * -(-28_000 // PAGE) * PAGE
    assert [take(spool, 0, target) for target in (1, 5)] == [1, 5]


def test_stored_arrays_are_read_again_and_again(spool):
    stored = [spool.store(np.arange(first, first + 3000)) for first in range(0, 9000, 3000)]
    for some in (stored, stored[1:], stored[:1], []):
        found = [int(array[0]) for array in spool.loaded(some)]
        assert found == [3000 * stored.index(each) for each in some]
    assert spool.moved == {"read": 6 * 6 * PAGE, "write": 3 * 6 * PAGE}


def test_memory_and_the_file_are_used_again(spool):
    """However many messages there were, few are in memory, and the file has one place for each."""
    for _ in range(3):
        for target in range(1, 5):
            send(spool, 0, target, target)
        for target in range(1, 5):
            spool.read_ahead([(0, target % 4 + 1)])
            assert take(spool, 0, target) == target
    memory = [*spool._free, *(message.memory for message in spool._writes)]
    assert sum(map(len, memory)) <= buffer_bytes(7 * PAGE)
    assert os.fstat(spool.file.fileno()).st_size == 3 * 7 * PAGE


@pytest.mark.parametrize("rows, ahead", [(1000, 16), (10_000, WINDOW // (69 * PAGE)), (60_000, 2)])
def test_several_short_messages_are_read_at_a_time(spool, rows, ahead):
    """Long ones take memory, so two of these are."""
    sources = range(5) if rows > 1000 else range(20)
    for source in sources:
        send(spool, source, 4, source, rows)
    pairs = [(source, 4) for source in sources]
    spool.read_ahead(pairs[:spool.most_ahead])
    assert len(spool._ahead) == ahead
    assert [take(spool, *pair) for pair in pairs] == [*sources]
    assert not spool._reading


def test_a_full_disk_is_one_line(spool, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StorageError, match=r"^scratch=.*: No space left on device: messages"):
        send(spool, 0, 2, 1)
    monkeypatch.undo()
    monkeypatch.setattr(os, "pwrite", fail)
    send(spool, 0, 2, 1)
    with pytest.raises(StorageError, match=r"^scratch=.*: No space left on device: messages"):
        take(spool, 0, 2)
    spool._writes.clear()

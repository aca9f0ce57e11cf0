"""Messages of ranks that take turns on a GPU, in staging memory and in homes."""
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_ranks import cuda

from hpgcn.comm.gpu_spool import STAGED, GpuSpool
from hpgcn.runtime.disk.page_cache import PAGE
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.spans import EMPTY, joined

__all__ = ["cuda"]
FLOAT = np.dtype(np.float32)


@pytest.fixture
def turns(cuda):
    turns = GpuTurns(2, 1, 1 << 16)
    yield turns
    turns.close()


def filled(spool, rows, value):
    message = spool.message(rows, 2, FLOAT)
    message.array[...] = value
    return message


def test_messages_arrive_in_order_whatever_their_sizes(turns):
    """Staging memory is used again, also by larger messages, before any message is taken."""
    spool = GpuSpool(turns, None)
    for rows in range(1, 2 * STAGED + 2):
        spool.put(0, [1], filled(spool, rows, rows))
    for rows in range(1, 2 * STAGED + 2):
        assert spool.arrival(0, 1).done
        message = spool.take(0, 1)
        np.testing.assert_array_equal(message.array.get(), np.full((rows, 2), rows, FLOAT))
        spool.release(message)
    assert not spool.arrival(0, 1).done and not spool.arrival(0, 1, 2).done


def test_all_take_a_message_from_one_home(turns):
    spool = GpuSpool(turns, None)
    for value in (1, 2):
        spool.put(0, [1, 0], filled(spool, 3, value))
        for target in (1, 0):
            message = spool.take(0, target)
            np.testing.assert_array_equal(message.array.get(), np.full((3, 2), value, FLOAT))
            spool.release(message)
    assert turns.host.pinned.nbytes == PAGE


def test_stored_arrays_are_read_again_also_in_another_process(turns):
    spool = GpuSpool(turns, None)
    arrays = [np.full(size, size, np.int16) for size in (3, 700, 5, 1)]
    stored = [*map(spool.store, arrays)]
    for each in stored, [spool.keep(pickle.loads(pickle.dumps(one))) for one in stored]:
        for _ in range(2):
            for found, array in zip(spool.loaded(each), arrays, strict=True):
                np.testing.assert_array_equal(found.get(), array)
    assert spool.keep(stored[0]) is stored[0] and not [*spool.loaded([])]


def test_messages_of_another_process_keep_their_order(turns):
    """MPI may complete a later one before."""
    processes = SimpleNamespace(awaited={}, number=0, process_of=lambda rank: rank)
    spool = GpuSpool(turns, processes)
    arrival = spool.arrival(1, 0)
    assert processes.awaited == {(1, 0): 1}
    received = [processes.announced((1, 0), (2, 3, FLOAT.str)) for _ in range(2)]
    for value, (memory, arrive) in reversed([*enumerate(received)]):
        assert not arrival.done
        memory[0].view(FLOAT)[:] = value
        arrive()
    assert arrival.done and not processes.awaited
    for value in range(2):
        np.testing.assert_array_equal(spool.take(1, 0).array.get(), np.full((2, 3), value, FLOAT))


@pytest.mark.parametrize("spans, expected", [
    ([(4, 6), (0, 2), (2, 3)], [(0, 3), (4, 6)]), ([EMPTY, (1, 9), (3, 5)], [(1, 9)]), ([], [])])
def test_spans_that_adjoin_are_joined(spans, expected):
    assert joined(spans) == expected

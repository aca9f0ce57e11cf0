"""Communicators: collectives, counters, errors raised on all ranks, and deadlines."""
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpgcn.comm import MpiComm, SerialComm, as_comm, collectives, connection
from hpgcn.comm.slow_network import SlowNetwork
from hpgcn.errors import ConfigError, DataError, StoppedError
from hpgcn.runtime import launcher

pytestmark = pytest.mark.mpi


def test_collectives(comm):
    ranks = np.arange(comm.size)
    assert comm.sum([comm.rank, 1]).tolist() == [ranks.sum(), comm.size]
    assert comm.max([comm.rank, -comm.rank]).tolist() == [comm.size - 1, 0]
    assert comm.allgather(comm.rank) == ranks.tolist()
    assert comm.bcast(f"from {comm.rank}") == "from 0"


def test_alltoallv_with_empty_pairs(comm):
    sent = [np.arange(comm.rank * q) + 100 * comm.rank + q for q in range(comm.size)]
    for source, array in enumerate(comm.alltoallv(sent)):
        expected = np.arange(source * comm.rank) + 100 * source + comm.rank
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_gather_rows_in_rank_order(comm, dtype):
    mine = np.full((comm.rank % 3, 2), comm.rank, dtype)  # rank 0 and 3 have none
    rows = comm.gather_rows(mine)
    if comm.rank:
        assert rows is None
    else:
        ranks = np.arange(comm.size)
        np.testing.assert_array_equal(rows[:, 0], np.repeat(ranks, ranks % 3))
        assert rows.dtype == dtype


def test_counters_by_the_definitions(comm):
    comm.counters.phase = "definitions"
    comm.allreduce(np.zeros(10, np.float32), "weights")
    payload, messages = comm.counters.total("definitions")
    assert messages == 2 * (comm.size - 1)
    assert comm.sum([payload])[0] == 2 * 40 * (comm.size - 1)
    assert comm.counters.total("definitions") == (payload, messages)  # scalars are not counted


def test_an_error_on_one_rank_is_raised_on_all(comm):
    last = comm.size - 1
    where = rf" \(on rank {last} of {comm.size}\)" if last else ""
    with pytest.raises(DataError, match=f"bad row{where}") as caught, comm.collective_errors():
        if comm.rank == last:
            raise DataError("bad row")
    assert caught.value.collective
    with comm.collective_errors():
        pass


def test_the_lowest_rank_speaks(comm):
    with pytest.raises(DataError, match="error of 0"), comm.collective_errors():
        raise DataError(f"error of {comm.rank}")


def test_ranks_must_agree(comm):
    comm.assert_same({"a": 5, "b": 0}, "file")
    if comm.size > 1:
        with pytest.raises(ConfigError, match=r"rank 1 was started with another file than rank 0$"):
            comm.assert_same(comm.rank == 1, "file")
        with pytest.raises(ConfigError, match="another file than rank 0: b is 1, not 0"):
            comm.assert_same({"a": 5, "b": int(comm.rank == comm.size - 1)}, "file")
        with pytest.raises(ConfigError, match="a is None, not 5"):
            comm.assert_same({} if comm.rank else {"a": 5}, "file")


def test_who_does_not_wait_is_told_apart_from_who_does(comm):
    if comm.size < 3:
        pytest.skip("with two ranks there is nobody else who waits")
    last = comm.size - 1
    impatient = MpiComm(comm.mpi.Dup(), timeout=0.5)
    if comm.rank != last:
        request = impatient.mpi.Ibarrier()
        with pytest.raises(StoppedError) as caught:
            impatient.wait([request], lambda _: "a barrier")
        comm.barrier()
        assert str(caught.value) == (f"rank {comm.rank} waited 0.5 s for a barrier; "
                                     f"no word from rank(s) {last}")
    else:
        comm.barrier()
        request = impatient.mpi.Ibarrier()
    request.Wait()
    comm.barrier()
    impatient.close()
    impatient.mpi.Free()


@pytest.mark.parametrize("patient", [False, True])
def test_naps_lengthen_a_wait_by_a_small_share(monkeypatch, patient):
    """A patient rank sleeps longer the longer it waits; other ranks answer messages at once."""
    naps = []
    monkeypatch.setattr(collectives, "time", SimpleNamespace(monotonic=lambda: sum(naps),
                                                             sleep=naps.append))

    class Waiting(SerialComm):
        def test(self, requests, pending):
            if sum(naps) > 0.1:
                pending.clear()
            return not pending

    Waiting().wait([None], str, patient=patient)
    assert min(naps) == collectives.NAP and sum(naps) < 0.1 + 0.1 / 200
    assert (max(naps) > 0.1 / 300) == patient


def test_patience_is_longer_than_the_timeout(comm):
    impatient = MpiComm(comm.mpi.Dup(), timeout=0.3)
    with impatient.extended_timeout(60), impatient.collective_errors():
        if comm.rank == 0:
            time.sleep(1)
    assert impatient.timeout == 0.3
    comm.barrier()


def test_who_never_comes_does_not_come_to_an_agreement(comm):
    """If a rank misses the exchange of errors, the others raise their own.

    They do so after one deadline.
    """
    if comm.size == 1:
        pytest.skip("one rank waits for nobody")
    impatient = MpiComm(comm.mpi.Dup(), timeout=0.3)
    if comm.rank == 0:
        with pytest.raises(StoppedError, match=r"^one alone$"), impatient.collective_errors():
            raise StoppedError("one alone")
    comm.barrier()


@pytest.mark.parametrize("name, place, word", [
    ("start_allreduce", 0, "an allreduce"), ("start_allgather", 1, "messages"),
    ("start_alltoall", 2, "messages"), ("start_bcast", 0, "messages")])
def test_an_mpi_that_delivers_wrong_numbers_is_refused(comm, monkeypatch, name, place, word):
    if comm.size == 1:
        pytest.skip("needs several ranks")
    connection.check_messages(comm)
    real = getattr(comm, name)

    def damaged(*arguments):
        pending = real(*arguments)
        if arguments[place].size > 9 and comm.rank == comm.size - 1:
            pending.wait("the result")
            arguments[place][-1] += 1
        return pending

    monkeypatch.setattr(comm, name, damaged)
    with pytest.raises(ConfigError, match=f"does not deliver {word} of 1 MiB.*for all ranks"):
        connection.check_messages(comm)


def test_wrapping(comm):
    assert as_comm(comm) is comm and as_comm(None).size == 1
    if comm.mpi is not None:
        assert as_comm(comm.mpi).size == comm.size


def test_ranks_of_a_node_are_counted_by_mpi(comm, monkeypatch):
    """The number of ranks on a node comes from MPI, even if an environment variable differs."""
    if comm.size == 1:
        pytest.skip("one rank asks nobody")
    monkeypatch.setattr(launcher._Node, "ranks", None)
    monkeypatch.setattr(launcher._Node, "cores", None)
    monkeypatch.setenv("MPI_LOCALNRANKS", "1")
    as_comm(comm.mpi)
    assert launcher.ranks_on_node() == comm.mpi.Split_type(MPI.COMM_TYPE_SHARED).Get_size()
    cores, rank = launcher.cores_on_node()
    assert len(cores) == launcher.ranks_on_node() and cores[rank] == os.sched_getaffinity(0)


def test_slow_network_delays_messages_and_changes_nothing(comm):
    sent = np.full(50_000, comm.rank, np.uint8)
    sizes = [sent.size] * comm.size
    expected = np.repeat(np.arange(comm.size, dtype=np.uint8), sent.size)
    comm.network = SlowNetwork(bytes_per_s=1e6, latency_s=.02)
    try:
        comm.barrier()
        begin = time.perf_counter()
        gathered = np.empty(sent.size * comm.size, np.uint8)
        comm.start_allgather(sent, gathered, sizes, None).wait("a slow allgather")
        seconds = time.perf_counter() - begin
        total = np.array([1.0, comm.rank])
        comm.allreduce(total, None)
        assert not comm.network.under_way  # nothing is kept of messages that have arrived
    finally:
        comm.network = None

    # the blocks of all others share the link of this rank
    np.testing.assert_array_equal(gathered, expected)
    assert seconds >= (comm.size - 1) * .05 + (comm.size > 1) * .02
    np.testing.assert_array_equal(total, [comm.size, comm.size * (comm.size - 1) / 2])

"""Local ranks (threads of this process): order of turns, end of ranks, and order of sums."""
import signal
import threading
from itertools import combinations

import numpy as np
import pytest
from graphs import make, scattered

import hpgcn
from hpgcn.comm import as_comm, local, run_on_ranks
from hpgcn.comm.local_mpi import folded, reduced
from hpgcn.config import Config
from hpgcn.errors import ConfigError, DataError, DeadlockError, InternalError, UsageError


def test_ranks_take_turns_in_order():
    """A rank runs until it waits for a message; then the next rank that can continue runs."""
    visits = []

    def pass_on(mpi):
        comm = as_comm(mpi)
        visits.append(comm.rank)
        token = np.zeros(1)
        if comm.rank:
            comm.wait([mpi.Irecv(token, comm.rank - 1, 1)], lambda _: "the token")
        visits.append(comm.rank)
        if comm.rank + 1 < comm.size:
            comm.wait([mpi.Isend(token + 1, comm.rank + 1, 1)], lambda _: "the next rank")
        return token[0]

    for _ in range(2):
        assert run_on_ranks(pass_on, 4) == [0, 1, 2, 3]
    assert visits == 2 * [0, 0, 1, 1, 2, 2, 3, 3]


def test_results_of_groups_and_objects():
    def call(mpi, word):
        comm = as_comm(mpi)
        odd = comm.group([rank for rank in range(comm.size) if rank % 2 == comm.rank % 2])
        x = np.full(3, comm.rank, np.float32)
        odd.allreduce(x, "dense")
        again = comm.duplicate()
        highest = again.max([comm.rank])[0]
        again.close()
        odd.close()
        return x.tolist(), highest, comm.bcast(word * (comm.rank == 0)), comm.allgather(comm.rank)

    results = run_on_ranks(call, 5, word="word")
    sums = [6, 4, 6, 4, 6]
    assert results == [([total] * 3, 4, "word", [0, 1, 2, 3, 4]) for total in sums]


def omitted_send(mpi):
    comm = as_comm(mpi)
    comm.barrier()
    if comm.rank == 1:
        comm.wait([mpi.Irecv(np.zeros(4), 0, 7)], lambda _: "rank(s) 0 in layer 3 backward")
    elif comm.rank == 2:
        comm.barrier()


def test_scripts_exchange_python_objects():
    """Local ranks support mpi4py's collectives of Python objects, also on a subgroup."""
    MPI = pytest.importorskip("mpi4py.MPI", reason="needs mpi4py: pip install '.[mpi]'")

    def exchange(mpi):
        mpi.Barrier()
        pair = mpi.Create_group(mpi.Get_group().Incl([2, 0])) if mpi.rank != 1 else mpi
        return (mpi.bcast({"from": mpi.rank}, root=1), mpi.gather(mpi.rank, root=2),
                mpi.allreduce(mpi.rank + 0.5), mpi.allreduce(mpi.rank, MPI.MAX),
                pair.allgather(mpi.rank) if mpi.rank != 1 else None)

    found = run_on_ranks(exchange, 3)
    assert found == [({"from": 1}, [0, 1, 2] if rank == 2 else None, 4.5, 2,
                      None if rank == 1 else [2, 0]) for rank in range(3)]


def test_objects_are_copied():
    """What a rank changes stays with it, as under MPI."""
    def change(mpi):
        own = [mpi.rank]
        of_root = mpi.bcast(own, root=1)
        everything = mpi.allgather(own)
        total = mpi.allreduce(own, lambda left, right: left + right)
        gathered = mpi.gather(own, root=0) or []
        own.append("changed")
        for each in (of_root, total, *everything, *gathered):
            each.append(9)
        mpi.Barrier()
        return own, of_root, everything, total, gathered

    for rank, found in enumerate(run_on_ranks(change, 3)):
        pairs = [[other, 9] for other in range(3)]
        assert found == ([rank, "changed"], [1, 9], pairs, [0, 1, 2, 9], pairs * (rank == 0))


CALLS = {
    "Barrier": lambda mpi: mpi.Barrier(), "bcast": lambda mpi: mpi.bcast(1),
    "bcast with root 1": lambda mpi: mpi.bcast(1, root=1), "gather": lambda mpi: mpi.gather(1),
    "gather with root 1": lambda mpi: mpi.gather(1, root=1),
    "allgather": lambda mpi: mpi.allgather(1), "allreduce": lambda mpi: mpi.allreduce(1),
    "Ibarrier": lambda mpi: mpi.Ibarrier()}


@pytest.mark.parametrize("calls", [*combinations(CALLS, 2)], ids=" against ".join)
def test_different_calls_of_objects_are_refused(calls):
    ended = []

    def differ(mpi):
        try:
            mpi.Barrier()
            CALLS[calls[mpi.rank == 2]](mpi)
            ended.append("without an error")
            mpi.Barrier()
        finally:
            ended.append(mpi.rank)

    with pytest.raises(InternalError, match="ranks make different collective calls: rank 0 "):
        run_on_ranks(differ, 3)
    assert sorted(each for each in ended if each != "without an error") == [0, 1, 2]


@pytest.mark.parametrize("root", [-1, 3, None, 0.0])
def test_a_root_that_is_no_rank_is_refused(root):
    with pytest.raises(UsageError, match=r"root is .*, expected a rank from 0 to 2"):
        run_on_ranks(lambda mpi: mpi.bcast(1, root=root), 3)


def test_a_deadlock_names_all_ranks_and_what_they_wait_for():
    with pytest.raises(DeadlockError) as caught:
        run_on_ranks(omitted_send, 3)
    assert str(caught.value) == (
        "no rank can go on: rank 0 has returned; rank 1 waits for rank(s) 0 in layer 3 backward; "
        "rank 2 waits for a barrier (rank(s) 0, 1, 2)")


@pytest.mark.parametrize("error, kind, text", [
    (ValueError("odd"), InternalError, "ValueError: odd (on rank 2 of 4)"),
    (DataError("g.h5: broken"), DataError, "g.h5: broken (on rank 2 of 4)")])
def test_an_error_of_one_rank_ends_all(error, kind, text):
    ended = []

    def fail(mpi):
        comm = as_comm(mpi)
        try:
            comm.barrier()
            if comm.rank == 2:
                raise error
            comm.barrier()
        finally:
            ended.append(comm.rank)

    before = threading.active_count()
    with pytest.raises(kind) as caught:
        run_on_ranks(fail, 4)
    assert str(caught.value) == text
    assert caught.value.__cause__ is error
    assert sorted(ended) == [0, 1, 2, 3]
    assert threading.active_count() == before


@pytest.mark.parametrize("error", [OSError(28, "No space left"), BrokenPipeError(32, "gone")])
def test_an_error_of_the_system_keeps_its_kind(error):
    """Otherwise a full or closed standard output would be an internal error."""
    def fail(mpi):
        mpi.Barrier()
        if mpi.rank == 1:
            raise error
        mpi.Barrier()

    with pytest.raises(type(error)) as caught:
        run_on_ranks(fail, 3)
    assert caught.value is error and error.__notes__[-1] == "(on rank 1 of 3)"


def test_more_ranks_than_vertices_are_refused_before_they_start(tmp_path, monkeypatch):
    graph = make(n=20)
    run = hpgcn.train(graph, Config(epochs=1, hidden=4))
    monkeypatch.setattr(local, "run_on_ranks", None)  # it is not called
    for call in (lambda: hpgcn.train(graph, ranks=21), lambda: hpgcn.predict(graph, run, ranks=21)):
        with pytest.raises(DataError, match=r"21 ranks for 20 vertices, expected 1\.\.20"):
            call()


def test_an_error_that_ranks_agree_on_stays_as_it_is():
    def fail(mpi):
        with as_comm(mpi).collective_errors():
            raise ConfigError("settings contradict")

    with pytest.raises(ConfigError, match=r"^settings contradict$"):
        run_on_ranks(fail, 3)


def test_ctrl_c_ends_all_ranks():
    ended = []

    def wait(mpi):
        comm = as_comm(mpi)
        try:
            if comm.rank == 1:
                signal.raise_signal(signal.SIGINT)
            while True:
                comm.barrier()
        finally:
            ended.append(comm.rank)

    with pytest.raises(KeyboardInterrupt):
        run_on_ranks(wait, 3)
    assert sorted(ended) == [0, 1, 2]


def test_different_collectives_and_short_buffers_are_named():
    def differ(mpi):
        comm = as_comm(mpi)
        if comm.rank:
            comm.start_bcast(np.zeros(2), 0, None).wait("x")
        else:
            comm.barrier()

    with pytest.raises(InternalError, match="different collective calls: rank 0 barrier, rank 1 "):
        run_on_ranks(differ, 2)

    def overflow(mpi):
        if mpi.rank:
            mpi.Irecv(np.zeros(1), 0, 1)
        else:
            mpi.Isend(np.zeros(2), 1, 1)

    with pytest.raises(InternalError, match="16 bytes from rank 0 to rank 1, which has room for 8"):
        run_on_ranks(overflow, 2)


def named(left, right):
    return f"({left}{right})"


@pytest.mark.parametrize("ranks, order", [
    (1, "0"), (2, "(01)"), (3, "((01)2)"), (4, "((01)(23))"), (5, "(((01)2)(34))"),
    (7, "(((01)(23))((45)6))"), (8, "(((01)(23))((45)(67)))")])
def test_sums_are_taken_in_the_order_of_mpich(ranks, order):
    assert folded(map(str, range(ranks)), ranks, named) == order


@pytest.mark.parametrize("ranks, root, order", [
    (3, 0, "((01)2)"), (3, 1, "((12)0)"), (5, 0, "(((01)(23))4)"), (5, 3, "(((34)(01))2)"),
    (7, 2, "(((23)(45))((60)1))")])
def test_short_sums_at_a_root_start_there(ranks, root, order):
    class Short(str):
        itemsize, size = 4, 25

    assert reduced(map(Short, range(ranks)), ranks, lambda a, b: Short(named(a, b)),
                   root) == order


def test_training_and_prediction_take_a_number_of_ranks(tmp_path):
    graph = make(n=120)
    config = Config(epochs=3, hidden=8, strategy="p2p", effort="default")  # no blocks of rows
    alone = hpgcn.train(graph, config)
    several = hpgcn.train(graph, config.replace(out=str(tmp_path / "run")), ranks=3)
    assert (several["ranks"], several["sent_bytes_per_epoch"] > 0) == (3, True)
    np.testing.assert_allclose([row["loss"] for row in several.history],
                               [row["loss"] for row in alone.history], rtol=1e-5)
    given = run_on_ranks(lambda comm: hpgcn.train(scattered(graph, as_comm(comm)), config, comm), 3)
    assert len({tuple(row["loss"] for row in result.history) for result in given}) == 1
    labels = hpgcn.predict(graph, tmp_path / "run", ranks=2)["label"]
    np.testing.assert_array_equal(labels, hpgcn.predict(graph, several)["label"])
    with pytest.raises(UsageError, match=r"function is of type int, expected a function"):
        run_on_ranks(3, 2)
    for ranks in (0, -1, 2.0, "2", True, 2000):
        with pytest.raises(UsageError, match=r"ranks=.*expected a number from 1 to 1024"):
            hpgcn.train(graph, config, ranks=ranks)
    with pytest.raises(UsageError, match="ranks=2: starts ranks in each process"):
        run_on_ranks(lambda comm: hpgcn.train(graph, config, comm, ranks=2), 2)

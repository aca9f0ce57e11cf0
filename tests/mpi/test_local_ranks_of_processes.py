"""Local ranks of several processes give the bits and files of ranks of one process."""
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cuda_ranks import real_or_fake
from gpu_bytes import move_small_arrays, moved_and_planned, pinned_and_planned, write_parts
from graphs import make, scattered
from test_equal_local_ranks import contents, on_rank_0

import hpgcn
from hpgcn import Config, run_on_ranks
from hpgcn.comm import as_comm, run_on_gpu
from hpgcn.comm.processes import Processes
from hpgcn.errors import ConfigError, DataError, DivergedError, StoppedError, UsageError
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.mpi
SETTINGS = {"layers": 3, "hidden": 24, "epochs": 3, "eval_every": 2, "dropout": 0.3}
GAT = {"model": "gat", "heads": 2, "attention_dropout": 0.3}


def cases(*quick):
    """Mark all but the `quick` cases as long tests."""
    every = [("p2p", {}), ("p2p", GAT), *((name, {}) for name in (
        "mop", "2d", "vertex-cut", "cover", "1d", "1.5d", "3d"))]
    return pytest.mark.parametrize("strategy, changes", [
        pytest.param(*case, marks=[] if place in quick else pytest.mark.long)
        for place, case in enumerate(every)], ids=str)


@pytest.fixture
def gpu(monkeypatch):
    """Provide a fake GPU whose copies are late, and let most arrays have homes."""
    monkeypatch.setattr(gpu_turns, "THRESHOLD", 1 << 8)
    with real_or_fake(late="kernels") as device:
        yield device


def work(comm, graph, config):
    """Train and predict; return losses, counts, weights and logits."""
    result = hpgcn.train(scattered(graph, as_comm(comm)), config, comm)
    found = hpgcn.predict(scattered(graph, as_comm(comm)), result, comm, device=config.device)
    rows = [(row["loss"], row["val_loss"], row["sent_bytes"]) for row in result.history]
    weights = {name: array.tobytes() for name, array in result.weights.items()}
    return rows, weights, found and found["logits"].tobytes()


def check(comm, run, graph, config, ranks):
    """Compare `run`, by which each process has local ranks, with the same ranks of one process."""
    found = run(work, graph, config, processes=comm.mpi)
    expected = on_rank_0(comm, lambda: run_on_ranks(work, ranks * comm.size, graph, config))
    own = expected[comm.rank * ranks:(comm.rank + 1) * ranks]
    assert found == own


@cases(1)
def test_bits_on_cpus(comm, strategy, changes):
    config = Config(**SETTINGS | changes, strategy=strategy, device="cpu")
    check(comm, lambda *given, **options: run_on_ranks(given[0], 2, *given[1:], **options),
          make(n=301, f=33, degree=12, directed=True), config, 2)


@cases(0, 3)
def test_bits_on_gpus(comm, gpu, strategy, changes):
    """Three ranks of each process take turns in two slots."""
    config = Config(**SETTINGS | changes, strategy=strategy, device="cuda")
    turns = GpuTurns(3, 2, 4 << 20)
    check(comm, lambda *given, **options: run_on_gpu(given[0], turns, *given[1:], **options),
          make(n=301, f=33, degree=6), config, 3)
    assert all(sum(each) > 0 for each in turns.copied.values())


@pytest.mark.parametrize("strategy, model", [
    pytest.param(*case, marks=[] if case == ("p2p", "gat") else pytest.mark.long)
    for case in (*product(("p2p", "cover", "vertex-cut", "1d"), ("gcn", "gat", "gin")),
                 ("mop", "gin"), ("1.5d", "gin"), ("2d", "gcn"), ("3d", "gin"))])
def test_bytes_are_those_of_the_plan(comm, gpu, strategy, model, monkeypatch, tmp_path):
    """Each of two or three processes copies those of its ranks within 3%, both ways."""
    comm = as_comm(comm.mpi.Split(comm.rank < 3, comm.rank))
    if comm.size == 1:
        return
    move_small_arrays(monkeypatch, 1 << 11)
    path, ranks = comm.bcast(str(tmp_path / "p.h5")), 4 * comm.size
    if comm.rank == 0:
        write_parts(path, strategy, 1000 * ranks * (1 + STRATEGIES[strategy].sends_own_rows), ranks)
    comm.barrier()
    moved, planned = moved_and_planned(monkeypatch, path, strategy, model, ranks, comm=comm)
    assert moved == pytest.approx(planned, rel=0.03)


@pytest.mark.parametrize("strategy, model", [
    ("p2p", "gcn"), *(pytest.param(*case, marks=pytest.mark.long)
                      for case in (("cover", "gat"), ("1d", "gin")))])
def test_pinned_memory_is_at_most_that_of_the_plan(comm, gpu, strategy, model, monkeypatch,
                                                   tmp_path):
    """The plan counts messages that another process sends a round ahead."""
    move_small_arrays(monkeypatch, 1 << 14)
    path, ranks = comm.bcast(str(tmp_path / "p.h5")), 3 * comm.size
    if comm.rank == 0:
        write_parts(path, strategy, 1000 * ranks, ranks)
    comm.barrier()
    pinned, planned = pinned_and_planned(path, strategy, model, ranks, comm=comm)
    assert 0.2 * planned < pinned <= planned


def test_messages_in_pieces(comm):
    """Sender and receiver have a message in other pieces of memory."""
    processes = Processes(comm, 1)
    sent, received = np.arange(10 * comm.size, dtype=np.uint8), np.zeros(99, np.uint8)
    following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    own = sent[10 * comm.rank:][:10]
    places = slice(50, 51), slice(0, 2), slice(20, 27)
    processes.receive(before, "rows", [received[place] for place in places], lambda: None)
    processes.send(following, "rows", [own[4:], own[:4]], lambda: None)
    processes.close(failed=False)
    expected = np.roll(sent[10 * before:][:10], -4)
    np.testing.assert_array_equal(np.concatenate([received[place] for place in places]), expected)


def test_files_and_resume(comm, gpu, tmp_path):
    """A run goes on with fewer processes and without turns, and back, with the same files."""
    graph, folder = make(n=301, f=33, degree=6), Path(comm.bcast(str(tmp_path)))
    config = Config(**SETTINGS | {"epochs": 4}, strategy="p2p", device="cuda", checkpoint_every=1)

    def train(communicator, name, epochs, resume=False):
        out = str(folder / name)
        given = config.replace(out=out, epochs=epochs)
        result = hpgcn.train(scattered(graph, as_comm(communicator)), given, communicator,
                             resume=resume and out)
        return [row["loss"] for row in result.history]

    def in_processes(*given):
        found = run_on_gpu(train, GpuTurns(2, 2, 4 << 20), *given, processes=comm.mpi)[0]
        comm.barrier()
        return found

    def in_memory(*given):
        return on_rank_0(comm, lambda: run_on_ranks(train, 2 * comm.size, *given)[0])

    straight = in_memory("straight", 4)
    for name, first, then in (("a", in_processes, in_memory), ("b", in_memory, in_processes)):
        assert first(name, 2) == straight[:2]
        assert then(name, 4, True) == straight
        if comm.rank == 0:
            last = "checkpoints/step-00000004/state.h5", "metrics.jsonl", "model.h5"
            files, again = contents(folder / "straight"), contents(folder / name)
            for fields, others in ((files[path], again[path]) for path in last):
                if isinstance(fields, dict):  # the settings name the folder
                    fields, others = ({key: value for key, value in each.items()
                                       if key != "config_toml"} for each in (fields, others))
                assert fields == others


def test_nodes_are_those_of_processes(comm, monkeypatch):
    """With a node for each process, rows cross to each once, as with nodes of one process."""
    graph, config = make(n=301, degree=12), Config(
        layers=2, epochs=2, device="cpu", strategy="p2p", node_aware="always")
    monkeypatch.setattr(comm, "nodes", np.arange(comm.size, dtype=np.int32))
    found = run_on_ranks(work, 2, graph, config, processes=comm)
    expected = on_rank_0(comm, lambda: run_on_ranks(
        work, 2 * comm.size, graph, config, nodes=comm.size))
    assert found == expected[2 * comm.rank:2 * comm.rank + 2]


def test_objects_and_groups(comm):
    def call(mpi):
        ranks = as_comm(mpi)
        odd = ranks.group([rank for rank in range(ranks.size) if rank % 2 == ranks.rank % 2])
        x = np.full(3, ranks.rank, np.float32)
        odd.allreduce(x, "dense")
        odd.close()
        return (x.tolist(), ranks.allgather(ranks.rank), mpi.allgather("a" * ranks.rank),
                mpi.gather(ranks.rank, 1), mpi.bcast({ranks.rank}, ranks.size - 1))

    found = run_on_ranks(call, 2, processes=comm.mpi)
    expected = on_rank_0(comm, lambda: run_on_ranks(call, 2 * comm.size))
    assert found == expected[2 * comm.rank:2 * comm.rank + 2]


def test_errors(comm):
    """Errors of all ranks are raised in all processes, which then go on together."""
    graph, config = make(n=101), Config(epochs=3, strategy="p2p", device="cpu")
    for changes, ranks, kind, said in (
            ({"optimizer": "sgd", "lr": 1e30}, 2, DivergedError, "is nan|not finite|is inf"),
            ({}, 60, DataError, r"\d+ ranks for 101 vertices"),
            ({"checkpoint_every": 1}, 2, UsageError, "needs a run directory"),
            ({}, 2 + comm.rank % 2, ConfigError, "another number of local ranks than rank 0")):
        with pytest.raises(kind, match=said):
            hpgcn.train(graph, config.replace(**changes), comm.mpi, ranks=ranks)
        comm.barrier()


def test_a_message_that_never_comes(comm):
    """All processes wait for each other, until the timeout of a rank."""
    def call(mpi):
        ranks = as_comm(mpi, timeout=1)
        ranks.wait([mpi.Irecv(np.zeros(4), (ranks.rank + 2) % ranks.size, 7)], lambda _: "the row")

    with pytest.raises(StoppedError, match=r"process \d waited 1 s for other processes: rank \d "
                       "waits for the row; rank"):
        run_on_ranks(call, 2, processes=comm.mpi)

"""The number of ranks, and the partition, change nothing in the result but rounding."""
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make, scattered
from training import SETTINGS, assert_same_curves, loss_and_gradient, metrics_of, run, start

from hpgcn import store, train
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.model import Parameters
from hpgcn.parallel.halo_plan import build_all
from hpgcn.parallel.layout import BlockLayout
from hpgcn.partition import METHOD_ENGINES, NONZERO_METHODS, Partition, make_partition, statistics
from hpgcn.planning.dry_run import forecast
from hpgcn.strategies import STRATEGIES, Arrangement
from hpgcn.training.placement import assign_rows

pytestmark = pytest.mark.usefixtures("poisoned")
NEEDY = next(name for name, each in STRATEGIES.items() if each.needs_parts)
BOUNDS = {"float32": (1e-5, 1e-5), "float64": (1e-10, 1e-12)}  # of losses, of the gradient


def parts_of(kind, graph, comm):
    n, k, rng = graph.num_rows, comm.size, np.random.default_rng(5)
    if kind == "hypergraph":
        pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
        return comm.bcast(make_partition(graph, k, method=kind).part if comm.rank == 0 else None)
    if kind == "block":
        return np.arange(n) * k // n
    # the last part owns nothing, if it is not the only one
    return rng.integers(0, max(1, k - (kind == "empty")), n)


def distributed(part, graph, comm):
    partition = Partition.from_parts(part, comm.size)
    return graph.permuted(partition.perm, partition.offsets)


def check_against_the_oracle(graph, source, config, comm, epochs=3):
    trainer = start(source, config, comm)
    losses, expected = oracle.losses(graph, config, Parameters.initial(trainer.shard.spec),
                                     epochs)
    _, gradient = loss_and_gradient(trainer)
    history = metrics_of(trainer, epochs)
    trainer.shard.close()
    loss_bound, gradient_bound = BOUNDS[config.dtype]
    assert np.linalg.norm(gradient - expected) < gradient_bound * np.linalg.norm(expected)
    np.testing.assert_allclose([metrics["loss"] for metrics in history], losses, rtol=loss_bound)
    return history


@pytest.mark.parametrize("strategy, method", [
    *(pytest.param("vertex-cut", method, marks=[pytest.mark.long] * ("grain" in method))
      for method in NONZERO_METHODS),
    *((strategy, "vertex-cut") for strategy in ("p2p", "cover", "1d"))])
@pytest.mark.parametrize("directed, weighted", [(False, True), (True, True)])
def test_any_owners_of_nonzeros_equal_the_serial_oracle(comm, tmp_path, strategy, method, directed,
                                                        weighted):
    if METHOD_ENGINES[method]:
        pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    graph = make(n=80, directed=directed, weighted=weighted)  # nonzeros take long to partition
    path = comm.bcast(tmp_path / "parts.h5")
    if comm.rank == 0:
        store.write_partitioned(path, graph, make_partition(graph, comm.size, method=method))
    comm.barrier()
    config = Config(strategy=strategy, layers=3, hidden=10, dropout=0.4, dtype="float64", seed=3)
    with store.load(path) as stored:
        check_against_the_oracle(graph, stored, config, comm)
        summary = train(stored, config, comm.mpi)
        planned = forecast(assign_rows(stored, comm, config), config, comm)
    for what in ("bytes", "messages"):
        name = f"predicted_{what}_per_epoch"
        assert summary[f"sent_{what}_per_epoch"] == summary[name] == planned[name]
    comm.barrier()


CASES = [(kind, directed, weighted, sparse) for kind in ("hypergraph", "empty")
         for directed, weighted, sparse in ((False, False, True), (True, True, False),
                                            (True, False, True))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind, directed, weighted, sparse", CASES)
def test_any_partition_equals_the_serial_oracle(comm, kind, directed, weighted, sparse, dtype):
    graph = make(directed=directed, weighted=weighted, sparse=sparse)
    config = Config(strategy=NEEDY, layers=3, hidden=10, dropout=0.4, dtype=dtype, seed=3, lr=0.01)
    source = distributed(parts_of(kind, graph, comm), graph, comm)
    check_against_the_oracle(graph, source, config, comm)


@pytest.mark.parametrize("dtype, directed, weighted, sparse, input_dropout", [
    ("float32", False, False, True, -1), ("float32", True, True, False, 0),
    ("float64", True, True, False, -1),
    ("float64", True, False, True, -1), ("float64", False, True, False, 0)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_equals_the_serial_oracle(comm, strategy, directed, weighted, sparse,
                                                 input_dropout, dtype):
    graph = make(directed=directed, weighted=weighted, sparse=sparse)
    config = Config(strategy=strategy, layers=3, hidden=10, dropout=0.4, dtype=dtype, seed=3,
                    input_dropout=input_dropout)
    history = check_against_the_oracle(graph, scattered(graph, comm), config, comm)
    alone, _ = run(graph, config.replace(strategy=NEEDY), SerialComm(), 3)
    assert_same_curves(history[:3], alone, BOUNDS[dtype][0])


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_metrics_equal_those_of_one_rank(comm, directed, layers):
    graph = make(directed=directed, f=40)
    config = Config(strategy=NEEDY, layers=layers, hidden=7, dropout=0.5, dtype="float64",
                    input_dropout=0.2 if layers < 4 else 0)
    many, _ = run(scattered(graph, comm), config, comm)
    alone, _ = run(graph, config, SerialComm())
    assert_same_curves(many, alone, 1e-10)


@pytest.mark.parametrize("kind", ["random", "block", "empty"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("hidden, precomputed", [(4, False), (33, False), (33, True)])
def test_sent_by_hand(comm, kind, directed, hidden, precomputed):
    graph = make(directed=directed, sparse=hidden == 4)
    config = Config(strategy=NEEDY, layers=3, hidden=hidden, prune=False,
                    input_dropout=0 if precomputed else -1)
    part = parts_of(kind, graph, comm)
    history, _ = run(distributed(part, graph, comm), config, comm, 2)
    # rows that another part reads, once a part, times the width of every product of the step
    rows, columns = graph.adjacency.tocoo().coords
    pairs = {(part[u], v) for u, v in zip(rows, columns) if part[u] != part[v]}
    volume, neighbours = len(pairs), len({(reader, part[v]) for reader, v in pairs})
    # 13 -> 4 (sparse: W first), 4 -> 4, 4 -> 5 (A first);
    # 13 -> 33 (A first, so once only), 33 -> 33, 33 -> 5 (W first)
    width, products = (4 + 4 + 4 + 4 + 4 + 4, 6) if hidden == 4 else (13 + 33 + 33 + 5 + 5, 5)
    if precomputed:  # A X was formed before the first step
        width, products = width - 13, products - 1
    parameters = 13 * hidden + hidden * hidden + hidden * 5 + 2 * hidden + 5
    for metrics in history:
        assert metrics["sent_bytes"] == 4 * (volume * width + 2 * parameters * (comm.size - 1))
        assert metrics["sent_messages"] == products * neighbours + 2 * comm.size * (comm.size - 1)


@pytest.mark.parametrize("directed", [False, True])
def test_volume_is_what_one_exchange_of_width_1_sends(comm, directed):
    graph = make(directed=directed)
    part = parts_of("hypergraph", graph, comm)
    found = statistics(graph, part, comm.size)
    source = distributed(part, graph, comm)
    layout = BlockLayout(source.offsets, 1, comm.rank)
    strategy = STRATEGIES[NEEDY].build(
        NormalizedAdjacency(source, dtype=np.float64), Arrangement((comm.size,), layout, {}), comm)
    comm.counters.phase = "width 1"
    before = comm.counters.total("width 1")
    strategy.forward(np.ones((layout.rows.num_rows, 1)))
    sent = comm.sum(np.subtract(comm.counters.total("width 1"), before))
    assert tuple(sent) == (8 * found["volume"], found["messages"])
    moved = source.adjacency + sp.eye_array(graph.num_rows)
    planned = [plan.send_rows.size for plan in build_all(moved.indptr, moved.indices,
                                                         source.offsets)]
    assert (sum(planned), max(planned)) == (found["volume"], found["volume_max"])
    strategy.close()


@pytest.mark.parametrize("model", SETTINGS)
def test_same_command_same_bits(comm, model):
    source = scattered(make(directed=True), comm)
    config = Config(strategy=NEEDY, hidden=16, **SETTINGS[model])
    (first, flat), (again, flat_again) = (run(source, config, comm) for _ in range(2))
    assert [metrics["loss"] for metrics in first] == [metrics["loss"] for metrics in again]
    assert flat.tobytes() == flat_again.tobytes()

"""The number of ranks, and the partition, change nothing in the result but rounding."""
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.layout import Grid
from hpgcn.model import Parameters
from hpgcn.partition import Partition, make_partition, statistics
from hpgcn.plan import build_all
from hpgcn.strategies import STRATEGIES
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi


def parts_of(kind, graph, comm):
    n, k, rng = graph.num_rows, comm.size, np.random.default_rng(5)
    if kind == "hypergraph":
        pytest.importorskip("mtkahypar", reason="needs pip install 'hpgcn[partition]'")
        return comm.bcast(make_partition(graph, k, method=kind).part if comm.rank == 0 else None)
    if kind == "random":
        return rng.integers(0, k, n)
    if kind == "block":
        return np.arange(n) * k // n
    if kind == "empty":  # the last part owns nothing, but where it is the only one
        return rng.integers(0, max(1, k - 1), n)
    raise ValueError(kind)


def distributed(graph, part, k):
    partition = Partition.from_parts(part, k)
    return graph.permuted(partition.perm, partition.offsets)


def run(source, config, comm, epochs):
    """Losses of the first epochs, the gradient of the first (flat), and the metrics of all."""
    trainer = Trainer(source, config, comm, warm=False)
    comm.counters.phase = "other"
    logits, backward = trainer.training.model.forward(trainer.training.X, 1)
    gradient = backward(trainer.training.loss.gradient(logits)[1])
    trainer.rows.columns.reduce(gradient)
    gradient = gradient.flat
    metrics = [trainer.step(epoch) | trainer.evaluate() for epoch in range(1, epochs + 1)]
    predicted = trainer.predicted
    trainer.rows.close()
    return np.array([m["loss"] for m in metrics]), gradient, metrics, predicted


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


CASES = [(kind, directed, weighted, sparse) for kind in ("random", "hypergraph", "empty")
         for directed, weighted, sparse in ((False, False, True), (True, True, False), (True, False, True))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind, directed, weighted, sparse", CASES)
def test_equals_the_serial_oracle(comm, kind, directed, weighted, sparse, dtype):
    graph = make(directed=directed, weighted=weighted, sparse=sparse)
    config = Config(layers=3, hidden=10, dropout=0.4, dtype=dtype, seed=3, lr=0.01)
    source = distributed(graph, parts_of(kind, graph, comm), comm.size)
    widths = [graph.header.num_features, 10, 10, graph.header.num_classes]
    expected, slope = oracle.losses(graph, config, Parameters.initial(widths, dtype, 3), 20)
    found, gradient, _, _ = run(source, config, comm, 20)
    loss_bound, gradient_bound = (1e-5, 1e-5) if dtype == "float32" else (1e-10, 1e-12)
    assert distance(gradient, slope) < gradient_bound
    np.testing.assert_allclose(found, expected, rtol=loss_bound)


OTHERS = [name for name in STRATEGIES if name != "p2p"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("directed, weighted, sparse, input_dropout", [
    (False, False, True, -1), (True, True, False, -1), (True, False, True, -1), (False, True, False, 0)])
@pytest.mark.parametrize("strategy", OTHERS)
def test_every_strategy_equals_the_serial_oracle(comm, strategy, directed, weighted, sparse, input_dropout, dtype):
    graph = make(directed=directed, weighted=weighted, sparse=sparse)
    config = Config(strategy=strategy, layers=3, hidden=10, dropout=0.4, dtype=dtype, seed=3, lr=0.01,
                    input_dropout=input_dropout)
    source = distributed(graph, parts_of("random", graph, comm), comm.size)
    widths = [graph.header.num_features, 10, 10, graph.header.num_classes]
    expected, slope = oracle.losses(graph, config, Parameters.initial(widths, dtype, 3), 20)
    found, gradient, metrics, predicted = run(source, config, comm, 20)
    loss_bound, gradient_bound = (1e-5, 1e-5) if dtype == "float32" else (1e-10, 1e-12)
    assert distance(gradient, slope) < gradient_bound
    np.testing.assert_allclose(found, expected, rtol=loss_bound)
    assert (metrics[1]["sent_bytes"], metrics[1]["sent_messages"]) == (predicted.bytes, predicted.messages)
    _, _, one, _ = run(graph, config.replace(strategy="p2p"), SerialComm(), 3)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [m[key] for m in metrics[:3]] == [m[key] for m in one]
    np.testing.assert_allclose([m["val_loss"] for m in metrics[:3]], [m["val_loss"] for m in one], rtol=loss_bound)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_metrics_equal_those_of_one_rank(comm, directed, layers):
    graph = make(directed=directed, f=40)
    config = Config(layers=layers, hidden=7, dropout=0.5, dtype="float64", input_dropout=0.2 if layers < 4 else 0)
    source = distributed(graph, parts_of("random", graph, comm), comm.size)
    _, _, many, _ = run(source, config, comm, 8)
    _, _, one, _ = run(graph, config, SerialComm(), 8)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [m[key] for m in many] == [m[key] for m in one]
    np.testing.assert_allclose([m["val_loss"] for m in many], [m["val_loss"] for m in one], rtol=1e-10)


@pytest.mark.parametrize("kind", ["random", "block", "empty"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("hidden, constant", [(4, False), (33, False), (33, True)])
def test_sent_equals_predicted(comm, kind, directed, hidden, constant):
    graph = make(directed=directed, sparse=hidden == 4)
    config = Config(layers=3, hidden=hidden, input_dropout=0 if constant else -1, prune=False)
    source = distributed(graph, parts_of(kind, graph, comm), comm.size)
    _, _, metrics, predicted = run(source, config, comm, 3)
    for entry in metrics:
        assert (entry["sent_bytes"], entry["sent_messages"]) == (predicted.bytes, predicted.messages)
    # by hand: rows that another part reads, once a part, times the width of every product of the step
    part = parts_of(kind, graph, comm)
    rows, columns = graph.adjacency.tocoo().coords
    pairs = {(part[u], v) for u, v in zip(rows, columns) if part[u] != part[v]}
    volume, neighbours = len(pairs), len({(reader, part[v]) for reader, v in pairs})
    # 13 -> 4 (sparse: W first), 4 -> 4, 4 -> 5 (A first); 13 -> 33 (A first, so once only), 33 -> 33, 33 -> 5 (W first)
    width, products = (4 + 4 + 4 + 4 + 4 + 4, 6) if hidden == 4 else (13 + 33 + 33 + 5 + 5, 5)
    if constant:  # A X was formed before the first step
        width, products = width - 13, products - 1
    parameters = 13 * hidden + hidden * hidden + hidden * 5 + 2 * hidden + 5
    assert metrics[0]["sent_bytes"] == 4 * (volume * width + 2 * parameters * (comm.size - 1))
    assert metrics[0]["sent_messages"] == products * neighbours + 2 * comm.size * (comm.size - 1)


@pytest.mark.parametrize("directed", [False, True])
def test_volume_is_what_one_exchange_of_width_1_sends(comm, directed):
    graph = make(directed=directed)
    part = parts_of("hypergraph", graph, comm)
    found = statistics(graph, part, comm.size)
    source = distributed(graph, part, comm.size)
    grid = Grid(source.offsets, 1, comm.rank)
    strategy = PointToPoint(source, grid, comm, dtype=np.float64, max_width=1)
    comm.counters.phase = f"width 1 {directed}"
    strategy.forward(np.ones((grid.rows.num_rows, 1)), layer=0)
    sent = comm.sum(comm.counters.total(comm.counters.phase))
    assert tuple(sent) == (8 * found["volume"], found["messages"])
    moved = source.adjacency + sp.eye_array(graph.num_rows)
    planned = [plan.send_rows.size for plan in build_all(moved.indptr, moved.indices, source.offsets)]
    assert (sum(planned), max(planned)) == (found["volume"], found["volume_max"])
    strategy.close()


def test_same_command_same_bits(comm):
    graph = make(directed=True)
    source = distributed(graph, parts_of("random", graph, comm), comm.size)
    config = Config(layers=2, hidden=16)
    first, again = (run(source, config, comm, 10) for _ in range(2))
    assert first[0].tobytes() == again[0].tobytes()
    assert first[1].tobytes() == again[1].tobytes()

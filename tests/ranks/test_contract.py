"""The number of ranks and the partition change results by rounding errors only."""
from itertools import cycle

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import dealt, in_blocks, make, reading_nobody, scattered, several_labels
from simulated import halo_plans
from training import (
    WIDE,
    alone,
    assert_same_curves,
    loss_and_gradient,
    metrics_of,
    run,
    served,
    start,
)

from hpgcn import store
from hpgcn.config import Config
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.model import Parameters
from hpgcn.parallel.layout import BlockLayout
from hpgcn.partition import make_partition, statistics
from hpgcn.planning.answers.dry_run import forecast
from hpgcn.strategies import STRATEGIES, RankGrid
from hpgcn.training.setup.placement import assign_rows

pytestmark = pytest.mark.usefixtures("poisoned")
NEEDY = next(name for name, each in STRATEGIES.items() if each.requires_partition)
BOUNDS = {"float32": (1e-5, 1e-5), "float64": (1e-10, 1e-12)}  # bounds of losses, of the gradient


def check_against_the_oracle(graph, source, config, comm, epochs=3):
    trainer = start(source, config, comm)
    losses, expected = oracle.losses(graph, config, Parameters.initial(trainer.shard.spec),
                                     epochs)
    _, gradient = loss_and_gradient(trainer)
    history = metrics_of(trainer, epochs)
    trainer.close()
    loss_bound, gradient_bound = BOUNDS[config.dtype]
    assert np.linalg.norm(gradient - expected) < gradient_bound * np.linalg.norm(expected)
    np.testing.assert_allclose([metrics["loss"] for metrics in history], losses, rtol=loss_bound)
    return history


CASES = {  # owners of rows, of `make`, settings; hidden 12: W first in the first layer, 20: A first
    "float32": (scattered, {"sparse": True}, {"dtype": "float32"}),
    "float32, A X formed once": (in_blocks, {"directed": True, "weighted": True},
                                 {"dtype": "float32", "hidden": 20, "input_dropout": 0}),
    "A first": (dealt, {"directed": True, "weighted": True}, {"hidden": 20}),
    "sparse X": (scattered, {"directed": True, "sparse": True}, {"hidden": 20}),
    "fewer columns than ranks": (dealt, {"weighted": True}, {"hidden": 4, "input_dropout": 0}),
    "one layer": (scattered, {"directed": True},
                  {"layers": 1, "input_dropout": 0, "precompute": False}),
    "four layers": (in_blocks, {}, {"layers": 4, "hidden": 8}),
    "layer norm": (in_blocks, {"directed": True}, {"layer_norm": True}),
    "several labels": (dealt, {"directed": True, "labels": 3}, {"layer_norm": True, "layers": 2}),
    "no parts": (lambda graph, comm: graph, {"weighted": True}, {"effort": "fast"})}


def graph_of(labels=0, **kind):
    """Make a graph like `make`; in a directed one, 70 rows have no entries and are only read."""
    graph = make(**kind)
    graph = reading_nobody(graph, 70) if graph.header.directed else graph
    return several_labels(graph, labels) if labels else graph


@pytest.mark.parametrize("case", CASES)
@served(rare="long")
def test_every_strategy_and_model_equals_the_oracle_and_one_rank(comm, strategy, model, case):
    owners, kind, changes = CASES[case]
    graph = graph_of(**kind)
    config = Config(**{"strategy": strategy, "layers": 3, "hidden": 12, "dropout": 0.4, "seed": 3,
                       "dtype": "float64", "lr": 0.003, **WIDE[model], **changes})
    history = check_against_the_oracle(graph, owners(graph, comm), config, comm)
    assert_same_curves(history, alone(graph, config)[0], BOUNDS[config.dtype][0])


@pytest.mark.long
@pytest.mark.parametrize("comm", [2, 5], indirect=True)  # read like any other file
@pytest.mark.parametrize("strategy", [name for name, each in STRATEGIES.items()
                                      if each.accepts_partition])
def test_a_file_of_owners_of_nonzeros_equals_the_oracle(comm, tmp_path, strategy):
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    graph = make(n=80, directed=True, weighted=True)
    path = comm.bcast(tmp_path / "parts.h5")
    if comm.rank == 0:
        partition = make_partition(graph, comm.size, method="vertex-cut")
        store.write_partitioned(path, graph, partition)
    comm.barrier()
    config = Config(strategy=strategy, hidden=10, dropout=0.4, dtype="float64", seed=3)
    with store.load(path) as stored:
        history = check_against_the_oracle(graph, stored, config, comm)
        planned = forecast(assign_rows(stored, comm, config), config, comm)
    for what in ("bytes", "messages"):
        assert planned[f"predicted_{what}_per_epoch"] == history[-1][f"sent_{what}"]
    comm.barrier()


def part_of_each(source, comm):
    """Return the part of each row of a partitioned source, from its offsets."""
    return np.repeat(np.arange(comm.size), np.diff(source.offsets))


@pytest.mark.parametrize("owners", [scattered, in_blocks])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("hidden, precomputed", [(4, False), (33, False), (33, True)])
def test_sent_by_hand(comm, owners, directed, hidden, precomputed):
    graph = make(directed=directed, sparse=hidden == 4)
    config = Config(strategy=NEEDY, layers=3, hidden=hidden, prune=False,
                    input_dropout=0 if precomputed else -1)
    source = owners(graph, comm)
    part = part_of_each(source, comm)
    history, _ = run(source, config, comm, 2)
    # rows that another part reads, once a part, times the width of every product of the step
    rows, columns = source.adjacency.tocoo().coords
    pairs = {(part[u], v) for u, v in zip(rows, columns) if part[u] != part[v]}
    volume, neighbors = len(pairs), len({(reader, part[v]) for reader, v in pairs})
    # 13 -> 4 (sparse: W first), 4 -> 4, 4 -> 5 (A first);
    # 13 -> 33 (A first, so once only), 33 -> 33, 33 -> 5 (W first)
    width, products = (4 + 4 + 4 + 4 + 4 + 4, 6) if hidden == 4 else (13 + 33 + 33 + 5 + 5, 5)
    if precomputed:  # A X was formed before the first step
        width, products = width - 13, products - 1
    parameters = 13 * hidden + hidden * hidden + hidden * 5 + 2 * hidden + 5
    for metrics in history:
        assert metrics["sent_bytes"] == 4 * (volume * width + 2 * parameters * (comm.size - 1))
        assert metrics["sent_messages"] == products * neighbors + 2 * comm.size * (comm.size - 1)


@pytest.mark.parametrize("directed", [False, True])
def test_volume_is_what_one_exchange_of_width_1_sends(comm, directed):
    source = scattered(make(directed=directed), comm)
    found = statistics(source, part_of_each(source, comm), comm.size)
    layout = BlockLayout(source.offsets, 1, comm.rank)
    strategy = STRATEGIES[NEEDY].build(
        NormalizedAdjacency(source, dtype=np.float64), RankGrid((comm.size,), layout, {}), comm)
    comm.counters.phase = "width 1"
    before = comm.counters.total("width 1")
    strategy.forward(np.ones((layout.rows.num_rows, 1)))
    sent = comm.sum(np.subtract(comm.counters.total("width 1"), before))
    assert tuple(sent) == (8 * found["volume"], found["messages"])
    moved = source.adjacency + sp.eye_array(source.num_rows)
    planned = [plan.send_rows.size for plan in halo_plans(moved.indptr, moved.indices,
                                                         source.offsets)]
    assert (sum(planned), max(planned)) == (found["volume"], found["volume_max"])
    strategy.close()


@pytest.mark.parametrize("comm", [4], indirect=True)
@pytest.mark.parametrize("strategy, model", [
    pytest.param(name, model, marks=[pytest.mark.long] * (name in ("cover", "1d", "1.5d", "3d")))
    for name, model in zip(STRATEGIES, cycle(
        ["gcn", "sage-mean", "gat", "gin", "sgc", "appnp", "sage-gcn", "gat"]))])
def test_same_command_same_bits(comm, strategy, model):
    source = scattered(make(directed=True), comm)
    config = Config(strategy=strategy, hidden=12, dtype="float64", **WIDE[model])
    (first, flat), (again, flat_again) = (run(source, config, comm, 2) for _ in range(2))
    assert [metrics["loss"] for metrics in first] == [metrics["loss"] for metrics in again]
    assert flat.tobytes() == flat_again.tobytes()

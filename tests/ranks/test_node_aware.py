"""A node-aware exchange sends each row to a node once, and changes results by rounding only."""
import json

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all, assert_none
from commands import succeed
from graphs import make, scattered
from held import check_held, footprint_of, run_two_epochs
from training import WIDE, alone, assert_same_curves, run

import hpgcn
from hpgcn.comm import as_comm
from hpgcn.comm.nodes import layout_of, parsed
from hpgcn.config import Config
from hpgcn.errors import ConfigError, UsageError
from hpgcn.parallel.layout import BlockLayout, NodeLayout
from hpgcn.parallel.nodes.node_memory import VARIABLE, NodeMemory
from hpgcn.parallel.pattern import Pattern
from hpgcn.parallel.transfers import LOCAL
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES, RankGrid
from hpgcn.training.trainer import make_trainer

AWARE = [name for name, each in STRATEGIES.items() if each.supports_nodes]
# ranks, and their nodes
LAYOUTS = {"2 x 2 in turns": (4, [0, 1, 0, 1]), "2 x 1.5": (3, 2), "2 x 2": (4, 2),
           "1 x 4": (4, 1), "4 + 2": (6, [0, 0, 0, 1, 0, 1]), "2 x 3": (6, 2)}
on_layouts = pytest.mark.parametrize("comm, nodes", [
    pytest.param(*layout, marks=[pytest.mark.long] * (place > 1), id=name)
    for place, (name, layout) in enumerate(LAYOUTS.items())], indirect=["comm"])


def on_nodes(comm, nodes):
    """Take the ranks to run on these nodes."""
    comm.nodes = layout_of(nodes, comm.size, "nodes")
    return comm


@on_layouts
@pytest.mark.parametrize("strategy", AWARE)
@pytest.mark.parametrize("directed", [False, True])
def test_losses_are_those_of_one_rank(comm, nodes, strategy, directed):
    graph = make(n=90, directed=directed, weighted=directed, train=20)
    config = Config(strategy=strategy, layers=3, hidden=6, dropout=0.4, seed=3, dtype="float64")
    history, flat = run(scattered(graph, on_nodes(comm, nodes)), config, comm, 2)
    assert_same_curves(history, alone(graph, config, 2)[0], 1e-12)
    again, flat_again = run(scattered(graph, comm), config, comm, 2)
    assert [each["loss"] for each in again] == [each["loss"] for each in history]
    assert flat.tobytes() == flat_again.tobytes()


@on_layouts
@pytest.mark.parametrize("strategy", AWARE)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("aware, prune", [("always", True), ("always", False), ("never", True)])
def test_a_plan_predicts_both_tiers(comm, nodes, strategy, directed, aware, prune):
    graph = make(n=90, directed=directed, train=6)
    config = Config(strategy=strategy, layers=3, hidden=6, node_aware=aware, prune=prune)
    source = scattered(graph, on_nodes(comm, nodes))
    footprint = footprint_of(source, config, comm, PlanInput(source, config))
    trainer, metrics = run_two_epochs(source, config, comm)
    prediction = footprint.prediction
    total = prediction.total_bytes(), prediction.total_messages()
    assert all((one["sent_bytes"], one["sent_messages"]) == total for one in metrics)

    # what each rank sends to other nodes, in one more epoch
    before = comm.counters.between_nodes("train", comm.nodes, comm.rank)
    trainer.train_epoch(3)
    after = comm.counters.between_nodes("train", comm.nodes, comm.rank)
    sent = np.array(comm.allgather(np.subtract(after, before)))
    if comm.nodes.max():
        np.testing.assert_array_equal(sent.T, list(prediction.between.values()))
        assert trainer.run_info.predicted_between == prediction.per_epoch_between()
    assert sent.any() == comm.nodes.any()
    assert trainer.run_info.node_aware == (comm.nodes.any() and aware == "always")

    # the gateways of pruned rows may need larger buffers than those of all rows
    if not (trainer.run_info.node_aware and prune):
        check_held(footprint, trainer, comm.rank)
    trainer.close()


@on_layouts
def test_rows_cross_to_each_node_once(comm, nodes):
    graph = make(n=90, directed=True)
    config = Config(strategy="p2p", hidden=4, layers=1, input_dropout=0.5, prune=False)
    source = scattered(graph, on_nodes(comm, nodes))
    part = np.repeat(np.arange(comm.size), np.diff(source.offsets))
    rows, columns = source.adjacency.tocoo().coords
    pairs = {(comm.nodes[part[u]], v) for u, v in zip(rows, columns)
             if comm.nodes[part[u]] != comm.nodes[part[v]]}
    ranks = {(part[u], v) for u, v in zip(rows, columns) if part[u] != part[v]}
    history, _ = run(source, config, comm, 1)
    width = 5 + 5  # W first, forward and backward
    assert history[0].get("bytes_between_nodes", 0) == 4 * width * len(pairs)
    weights = 4 * 2 * (comm.size - 1) * (13 * 5 + 5)
    assert history[0]["sent_bytes"] == 4 * width * len(ranks) + weights


@pytest.mark.parametrize("strategy", [name for name in AWARE if name != "p2p"])
def test_rows_and_sums_cross_once_for_any_holders(strategy):
    rng = np.random.default_rng(5)
    n, nodes = 60, np.array([0, 1, 1, 0, 2, 1])
    offsets = np.array([0, 7, 20, 33, 33, 50, n])
    matrix = sp.random_array((n, n), density=0.2, rng=rng, format="csr")
    holder = rng.integers(0, 6, matrix.nnz)
    pattern = Pattern(matrix, symmetric=False).assign_holders(holder)
    grid = RankGrid((6,), BlockLayout(offsets, 1, 0), {}, NodeLayout(nodes, aware=True))
    traffic = STRATEGIES[strategy].Plan(pattern, grid).traffic
    owner = grid.layout.row_blocks
    for lines, transfer in ((pattern.indices, traffic.right), (pattern.rows, traffic.left)):
        pairs = {(nodes[h], line) for h, line in zip(holder, lines)
                 if nodes[h] != nodes[owner[line]]}
        first, second = transfer.message_transfer.pull(1)
        assert first.between[0].sum() == len(pairs)
        ranks = {(h, line) for h, line in zip(holder, lines) if h != owner[line]}
        assert first.bytes.sum() + second.bytes.sum() == transfer.sent.sum() == len(ranks)
        assert_none(second.between[0])


@pytest.mark.parametrize("comm, nodes", [(4, 2)], indirect=["comm"], ids=["2 x 2"])
@pytest.mark.parametrize("settings", [
    WIDE["gat"], *(pytest.param(case, marks=pytest.mark.long) for case in (
        {"dtype": "bf16"}, {"strategy": "vertex-cut", "dtype": "bf16"}, WIDE["gin"],
        WIDE["sage-mean"]))], ids=str)
def test_models_and_dtypes(comm, nodes, settings):
    graph = make(n=90, directed=True)
    config = Config(**{"strategy": "p2p", "hidden": 8, "dtype": "float64", **settings})
    history, _ = run(scattered(graph, on_nodes(comm, nodes)), config, comm, 2)
    bound = 1e-2 if config.dtype == "bf16" else 1e-10
    assert "bytes_between_nodes" in history[0]
    losses = [[each["loss"] for each in curve] for curve in (history, alone(graph, config, 2)[0])]
    np.testing.assert_allclose(*losses, rtol=bound)


@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name != "cover")) for name in AWARE])
def test_shared_memory_changes_no_bit(strategy, monkeypatch):
    graph = make(n=60, directed=True)
    config = Config(strategy=strategy, layers=2, hidden=4)
    made = []
    allocate = NodeMemory.allocate

    def trained(comm):
        comm = as_comm(comm)
        history, flat = run(scattered(graph, comm), config, comm, 2)
        return flat.tobytes(), [each["sent_messages"] for each in history]

    def results(allocate):
        monkeypatch.setattr(NodeMemory, "allocate", allocate)
        return hpgcn.run_on_ranks(trained, 4, nodes=[0, 1, 0, 1])

    shared = results(lambda *sizes: made.append(allocate(*sizes)) or made[-1])
    assert all(made)
    assert results(lambda *sizes: None) == shared  # no room for it
    monkeypatch.setenv(VARIABLE, "0")
    made.clear()
    assert results(lambda *sizes: made.append(sizes)) == shared
    assert not made


@pytest.mark.parametrize("comm", [4], indirect=True)
def test_rows_are_sent_on_before_the_last_of_them_are_used(comm):
    """Own rows come first, then those of the node, and nothing is passed on before all arrived."""
    config = Config(strategy="p2p", node_aware="always", layers=1, hidden=4, prune=False)
    source = scattered(make(n=90), on_nodes(comm, [0, 1, 0, 1]))
    with make_trainer(source, config, comm, warm=False) as trainer:
        exchange = trainer.shard.strategy.product.pull
        exchange.start(np.ones((trainer.shard.layout.rows.num_rows, 4), np.float32), "a test")
        seen = [(number, exchange.forwarded) for number, _ in
                exchange.received_rows([LOCAL, *exchange.sources], "a test")]
        exchange.release()

    # the other rank of the node, then two owners on the other one, then the gateway
    mate, *others = sorted(set(range(4)) - {comm.rank}, key=lambda rank: (rank - comm.rank) % 2)
    assert seen == [(LOCAL, False), (mate, False), (min(others), False), (max(others), True),
                    (mate + exchange.shift, True)]


def test_a_rank_waits_until_its_rows_are_read():
    def read(comm):
        comm = as_comm(comm)
        memory = NodeMemory(comm, (0, 1))
        arrays, = memory.allocate(8)
        for number in range(3):
            if comm.rank == 0:
                memory.wait_for_readers()
                arrays[0][:] = number
                memory.begin((), [1])
                comm.barrier()
            else:
                comm.barrier()
                memory.begin([0], ())
                ready = iter([False, *[True] * 9]).__next__
                comm.mpi.turns.wait(1, ready, str)  # rank 0 runs until it waits
                assert_all(arrays[0] == number)
                memory.release()
        memory.close()
        return memory.acknowledgments

    assert hpgcn.run_on_ranks(read, 2) == [[], []]


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_refused(comm):
    source = scattered(make(n=40), on_nodes(comm, [0, 1, 0]))
    for changes, words in (({"strategy": "1d"}, "does not apply to strategy 1d, expected one of"),
                           ({"batch": "vertices:9"}, "supports only full batches"),
                           ({"strategy": "mop+p2p"}, "does not apply to strategy mop[+]p2p, exp"),
                           ({"strategy": "vertex-cut", "delay": "2"}, "does not apply to delayed"),
                           ({"strategy": "cover", "model": "gat"}, "does not support it with")):
        config = Config(**{"strategy": "p2p", "node_aware": "always", **changes})
        with pytest.raises(ConfigError, match=words):
            run(source, config, comm, 1)

    # by default these are sent directly
    config = Config(strategy="p2p", batch="vertices:9")
    with make_trainer(source, config, comm, warm=False) as trainer:
        assert not trainer.plan.node_aware
        assert trainer.train_epoch(1)["bytes_between_nodes"] > 0


@pytest.mark.parametrize("comm", [4], indirect=True)
@pytest.mark.parametrize("settings, words", [
    ({"strategy": "auto", "model": "gat"}, "p2p on "), ({"strategy": "auto"}, ""),
    ({"strategy": "auto-per-layer"}, "on several nodes no mixtures are compared")])
def test_auto_chooses_a_strategy_that_supports_what_the_settings_ask_for(comm, settings, words):
    """By seconds alone, strategies without node-aware exchange would be taken here."""
    config = Config(hidden=4, node_aware="always", **settings)
    with make_trainer(scattered(make(n=80), on_nodes(comm, 2)), config, comm,
                      warm=False) as trainer:
        assert trainer.plan.node_aware and trainer.plan.config.strategy in AWARE
        assert words in trainer.plan.strategy_choice


def test_nodes_of_local_ranks():
    def nodes(comm):
        return as_comm(comm).nodes.tolist()

    assert hpgcn.run_on_ranks(nodes, 3, nodes=[7, 2, 7])[2] == [0, 1, 0]
    assert hpgcn.run_on_ranks(nodes, 3, nodes=2)[0] == [0, 0, 1]
    assert hpgcn.run_on_ranks(nodes, 3)[0] == [0, 0, 0]
    assert parsed("0,0,1", "--nodes") == [0, 0, 1]
    for wrong in (0, 4, [0, 1], [0.5, 1.0, 1.0]):
        with pytest.raises(UsageError, match="nodes="):
            hpgcn.run_on_ranks(nodes, 3, nodes=wrong)
    with pytest.raises(UsageError, match="expected a number of nodes"):
        parsed("2,x", "--nodes")


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_mpi_gives_the_same_bits_on_given_nodes(tmp_path):
    path = tmp_path / "graph.h5"
    hpgcn.save(make(n=120), path)
    summaries = {}
    for name, words, launch in (
            ("local", ["--ranks", 4, "--nodes", 2], {}),
            ("mpi", [], {"ranks": 4, "HPGCN_NODES": "2"}),
            ("apart", [], {"ranks": 4})):
        summaries[name] = json.loads(succeed(
            "train", path, "--out", tmp_path / name, "--strategy", "cover", "--epochs", 3,
            "--json", *words, **launch))
    local, mpi, apart = summaries.values()
    for name in ("final_loss", "nodes", "node_aware", "bytes_between_nodes_per_epoch",
                 "predicted_bytes_between_nodes_per_epoch", "sent_bytes_per_epoch"):
        assert mpi[name] == local[name], name
    assert mpi["node_aware"] and "nodes" not in apart
    assert mpi["sent_bytes_per_epoch"] == apart["sent_bytes_per_epoch"]
    assert mpi["final_loss"] == pytest.approx(apart["final_loss"], rel=1e-5)

"""Ranks that share nodes in `hpgcn plan`: bytes between nodes, seconds and machine files."""
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import make

from hpgcn import store
from hpgcn.bench import network
from hpgcn.comm import as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.parallel.counts import PairMessages, allreduce, broadcasts, reduces
from hpgcn.partition import given_partition, make_partition
from hpgcn.planning.answers.candidates import count_candidate
from hpgcn.planning.answers.choice import _choose
from hpgcn.planning.answers.options import Options, read_machine, single_node, with_nodes
from hpgcn.planning.answers.report import forecast, node_notes
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.counts.traffic import Prediction
from hpgcn.planning.seconds.message_seconds import (
    GroupsByNode,
    Tier,
    collective_seconds,
    even_share,
    of_collectives,
)
from hpgcn.planning.seconds.step_seconds import Machine, communication_seconds

NEAR, FAR = Tier(1.0, 100.0), Tier(50.0, 2.0, collective_bytes_per_s=5.0)
LIMITS = {"memory_bytes_per_s": 1e9, "gemm_float32_flops_per_s": 1e9,
          "gemm_float64_flops_per_s": 5e8}
NETWORK = {"latency_s": 1e-6, "bytes_per_s": 1e10}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiers") / "made.h5"
    store.write_graph(path, make())
    return path


def file(tmp_path, **objects):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"limits": LIMITS, **objects}))
    return path


def row_of(report, strategy, ranks, parts):
    row, = [row for row in report["rows"] if (row["strategy"], row["ranks"], row["parts"])
            == (strategy, ranks, parts)]
    return row


@pytest.mark.parametrize("kind", [broadcasts, reduces, allreduce])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("nodes", [[0] * 12, np.arange(12) // 4, np.arange(12) % 3,
                                   [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2]])
def test_collectives_have_two_levels(kind, axis, nodes):
    nodes = np.array(nodes)
    own = np.random.default_rng(0).integers(0, 50, (4, 3))
    own = np.broadcast_to(own.max(axis, keepdims=True), (4, 3)) if kind is allreduce else own
    call = kind(own, axis)
    found = of_collectives(call, nodes, FAR, NEAR)
    grid = nodes.reshape(4, 3)
    within = ("reduce", "broadcast") if kind is allreduce else (call.kind,)
    share = GroupsByNode(call, nodes).share_between().reshape(4, 3)
    for i in range(4):
        for j in range(3):
            members = grid[:, j] if axis == 0 else grid[i]
            sizes = own[:, j] if axis == 0 else own[i]
            sizes = sizes[:1] if kind is allreduce else sizes
            count, most = len(set(members)), int(np.bincount(members).max())
            far = collective_seconds(call.kind, count, sizes, 50.0, 1 / 5).sum()
            near = sum(collective_seconds(each, most, sizes, 1.0, 1 / 100).sum()
                       for each in within)
            assert found[0].reshape(4, 3)[i, j] == pytest.approx(far)
            assert found[1].reshape(4, 3)[i, j] == pytest.approx(near)
            assert share[i, j] == pytest.approx((count - 1) / (members.size - 1))


def test_messages_to_unknown_ranks_are_spread_evenly():
    assert even_share(np.array([0, 0, 0, 1])).tolist() == pytest.approx([1 / 3] * 3 + [1])


def test_rows_are_copied_within_a_node():
    away, whole = np.array([3, 0, 0, 0]), np.array([8, 4, 0, 0])
    machine = Machine(ranks_per_node=2, within=NEAR, memory_bytes_per_s=8.0)
    for shared, device, seconds in ((True, True, 1 + 5 * 2 / 8), (True, False, 1 + 5 / 100),
                                    (False, True, 1 + 5 / 100)):
        prediction = Prediction(4)
        ones = np.array([1, 0, 0, 0])
        prediction.add("aggregation", "forward", PairMessages(
            whole, 2 * ones, (away, ones), shared))
        found = communication_seconds(replace(machine, shared_memory=device), prediction)
        assert found[1].tolist() == pytest.approx([seconds] * 4)


def test_rows_cross_to_each_node_once(made):
    """The bytes of p2p between nodes are those that the partition counts."""
    graph = make()
    blocks = make_partition(graph, 6, method="block").part
    volumes = given_partition(graph, blocks, 6, nodes=3).statistics
    report = forecast(made, Options.parse("6", methods="block", ranks_per_node="2", prune=False,
                                          node_aware="always"))
    row = row_of(report, "p2p", 6, "block")
    width = sum(row["bytes"]["aggregation"].values()) / volumes["volume"]
    # both directions send the same rows; gradients are reduced over three nodes
    weights = row["bytes"]["weights"]["backward"] * (3 - 1) / (6 - 1)
    assert row["bytes_between_nodes"] == width * volumes["volume_between"] + weights
    assert row["bytes_between_nodes"] + row["bytes_within_nodes"] == row["bytes"]["total"]
    seconds = row["seconds"]
    assert seconds["between_nodes"] + seconds["within_nodes"] == pytest.approx(
        seconds["communication"])
    never = forecast(made, Options.parse("6", methods="block", ranks_per_node="2", prune=False,
                                         node_aware="never"))
    assert row_of(never, "p2p", 6, "block")["bytes_between_nodes"] > row["bytes_between_nodes"]


def test_one_node_costs_what_one_tier_costs(made, tmp_path):
    tiers = file(tmp_path, network={"latency_s": 1, "bytes_per_s": 1}, within_node=NETWORK,
                 ranks_per_node=4)
    together = forecast(made, Options.parse("4", methods="block", machine=tiers))
    flat = forecast(made, Options.parse("4", methods="block",
                                        machine=file(tmp_path, network=NETWORK)))
    for strategy in ("p2p", "2d", "1.5d", "mop"):
        ours, theirs = (row_of(each, strategy, 4, "block" if strategy == "p2p" else "stored")
                        for each in (together, flat))
        assert ours["seconds"]["between_nodes"] == ours["bytes_between_nodes"] == 0
        assert ours["bytes"] == theirs["bytes"]
        # an allreduce within a node is a reduce and a broadcast
        assert ours["seconds"]["communication"] >= theirs["seconds"]["communication"] * 0.99


def test_the_choice_depends_on_the_network_between_nodes(made, tmp_path):
    def chosen(latency):
        path = file(tmp_path, network={"latency_s": latency, "bytes_per_s": 1e10},
                    within_node={"latency_s": 1e-9, "bytes_per_s": 1e11}, ranks_per_node=4)
        return forecast(made, Options.parse("4,16", machine=path))["choice"]["ranks"]

    assert (chosen(1e-9), chosen(1.0)) == (16, 4)


def test_one_tier_measured_on_a_node_is_said(made, tmp_path):
    report = forecast(made, Options.parse("16", methods="block", machine="mg-gcn-dgx-a100"))
    assert row_of(report, "p2p", 16, "block")["nodes"] == 2

    # a file of two ranks side by side on one node
    machine, found = read_machine(file(tmp_path, network=NETWORK))
    measured = replace(machine, rates=(SimpleNamespace(ranks=2),))
    assert single_node(measured, found) == 2 and single_node(machine, found) == 0
    one = Options(machine=measured, network=True, single_node=2)
    assert not node_notes(one, 2)
    said, = node_notes(one, 64)
    assert "64 ranks" in said and "--ranks-per-node 2" in said

    # the flag settles it: the network of the node is that within nodes
    settled = replace(one, machine=with_nodes(measured, (2,), 2))
    assert "between nodes assumed: 2 us, 12 GB/s" in node_notes(settled, 64)[0]
    assert settled.machine.within == measured.network


@pytest.mark.parametrize("objects, words", [
    ({"within_node": NETWORK}, "'within_node', but no 'network'|ranks_per_node"),
    ({"within_node": NETWORK, "ranks_per_node": 4}, "no 'network' between nodes"),
    ({"network": NETWORK, "ranks_per_node": 4}, "within_node is None, expected an object"),
    ({"network": NETWORK, "within_node": NETWORK}, "ranks_per_node is None, expected"),
    ({"network": NETWORK, "within_node": NETWORK, "ranks_per_node": 0}, "ranks_per_node is 0"),
    ({"network": NETWORK, "within_node": {"latency_s": 1}, "ranks_per_node": 2},
     "within_node.bytes_per_s is missing")])
def test_machine_files_with_half_a_tier_are_refused(tmp_path, objects, words):
    with pytest.raises(DataError, match=words):
        read_machine(file(tmp_path, **objects))


@pytest.mark.parametrize("text", ["0", "x", "1.5", "4,x", "4,", "2,0"])
def test_ranks_per_node_is_a_whole_number(text):
    with pytest.raises(UsageError, match="--ranks-per-node"):
        Options.parse(ranks_per_node=text)


def test_ranks_of_each_node():
    for ranks in (None, "5"):
        found = Options.parse(ranks, ranks_per_node="2,3")
        assert found.ranks == (5,) and found.machine.nodes(5).tolist() == [0, 0, 1, 1, 1]
    for ranks in ("4", "4,5"):
        with pytest.raises(UsageError, match="--ranks-per-node 2,3: these nodes have 5 ranks"):
            Options.parse(ranks, ranks_per_node="2,3")


def test_bench_measures_both_tiers(monkeypatch):
    """Pairs on one node and pairs on different nodes are measured; the slowest group counts."""
    def measure(comm, repeats):
        base = float(sum(comm.ranks))
        return dict.fromkeys(network.KEYS, base)

    monkeypatch.setattr(network, "measure", measure)

    def tiers(ranks, nodes=None):
        return run_on_ranks(lambda comm: network.measure_tiers(as_comm(comm), 1), ranks,
                            nodes=nodes)

    found = tiers(5, [0, 0, 0, 1, 1])
    assert all(each == found[0] for each in found) and found[0]["ranks_per_node"] == 3
    # within: ranks 0, 1, 2 and 3, 4; between: 0, 3 and 1, 4
    assert found[0]["within_node"]["latency_s"] == 7
    assert found[0]["within_node"]["bytes_per_s"] == 3
    assert found[0]["network"]["latency_s"] == 5 and found[0]["network"]["bytes_per_s"] == 3
    assert set(tiers(2, [0, 1])[0]) == set(tiers(2)[0]) == {"network"}


def test_auto_counts_by_the_nodes_of_the_run(made, monkeypatch):
    counted = []
    monkeypatch.setattr("hpgcn.planning.answers.candidates.count_candidate",
                        lambda *arguments, nodes, **options: counted.append(nodes)
                        or count_candidate(*arguments, nodes=nodes, **options))
    with store.load(made) as source:
        _choose(PlanInput(source, Config(strategy="auto")), 4, np.array([0, 1, 0, 1]))
        assert all(nodes.tolist() == [0, 1, 0, 1] for nodes in counted)
        _choose(PlanInput(source, Config(strategy="auto")), 4, np.zeros(4, int))
    assert counted[-1] is None

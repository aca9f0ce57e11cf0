"""Factors of strategies, which `hpgcn bench machine` measures, in machine files and forecasts."""
import json
from types import SimpleNamespace

import pytest
from graphs import make, scattered

from hpgcn import store
from hpgcn.bench import rates, training_steps
from hpgcn.comm import as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.partition import make_partition
from hpgcn.planning.answers.choice import _choose
from hpgcn.planning.answers.options import Options, read_machine
from hpgcn.planning.answers.report import forecast
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine, corrected
from hpgcn.runtime.clock import PARTS
from hpgcn.training.trainer import make_trainer

LIMITS = {"memory_bytes_per_s": 1e9, "gemm_float32_flops_per_s": 1e9,
          "gemm_float64_flops_per_s": 5e8}
STEPS = {"p2p": {"computing": 2.0, "messages": 3.0}, "2d": {"computing": 1.0, "messages": 5.0},
         "p2p node-aware": {"computing": 4.0, "messages": 0.5}}


def file(tmp_path, **objects):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"limits": LIMITS, **objects}))
    return path


def test_seconds_are_those_of_the_kernels_times_the_factors(tmp_path):
    store.write_graph(tmp_path / "g.h5", make())

    def rows(**objects):
        options = Options.parse("1,4", methods="block", machine=file(tmp_path, **objects))
        return {(row["strategy"], row["ranks"]): row["seconds"]
                for row in forecast(tmp_path / "g.h5", options)["rows"]}

    found, plain = rows(steps=STEPS), rows()
    for case, computing, messages in ((("p2p", 4), 2, 3), (("2d", 4), 1, 5), (("cover", 4), 1, 1),
                                      (("p2p", 1), 1, 1)):
        assert found[case]["compute"] == pytest.approx(computing * plain[case]["compute"])
        assert found[case]["communication"] == pytest.approx(
            messages * plain[case]["communication"])


@pytest.mark.parametrize("strategy, node_aware, ranks, factors", [
    ("p2p", False, 4, (2, 3)), ("p2p", True, 4, (4, 0.5)), ("p2p+2d", False, 4, (1.5, 4)),
    ("p2p+mop", False, 4, (2, 3)), ("mop", False, 4, (1, 1)), ("p2p", False, 1, (1, 1))])
def test_the_factors_of_a_case(tmp_path, strategy, node_aware, ranks, factors):
    machine, _ = read_machine(file(tmp_path, steps=STEPS))
    case = SimpleNamespace(strategy=strategy, node_aware=node_aware,
                           rows=SimpleNamespace(size=ranks))
    found = corrected(machine, case)
    assert (found.compute_factor, found.communication_factor) == factors


def test_files_without_factors_have_none(tmp_path):
    assert read_machine(file(tmp_path))[0].steps == Machine().steps == {}


@pytest.mark.parametrize("steps, words", [
    ([], "steps is "), ({"p2p": 2}, "steps.p2p is 2"),
    ({"p2p": {"computing": 1}}, "p2p.messages is missing"),
    ({"p2p": {"computing": -1, "messages": 1}}, "p2p.computing is -1"),
    ({"p2p": {"computing": 1, "messages": 1, "more": 1}}, "p2p.more is unknown")])
def test_factors_that_are_none_are_refused(tmp_path, steps, words):
    with pytest.raises(DataError, match=words):
        read_machine(file(tmp_path, steps=steps))


@pytest.mark.parametrize("layout, cases", [
    (None, {"p2p", "cover", "1d", "vertex-cut"}),
    ([0, 0, 1, 1], {"p2p", "p2p node-aware", "cover", "cover node-aware", "1d", "vertex-cut",
                    "vertex-cut node-aware"})])
def test_each_strategy_is_trained_and_compared(monkeypatch, layout, cases):
    monkeypatch.setattr(training_steps, "SCALE", 6)
    monkeypatch.setattr(training_steps, "step_seconds", lambda machine, footprint: (2.0, 4.0))
    trained = []

    def brief_history(graph, config, comm, least, seconds):
        if comm.rank == 0:
            trained.append((config.strategy, config.node_aware))
        return epochs((9.0, 1.0), (4.0, 3.0), (4.0, 3.0))

    monkeypatch.setattr(training_steps, "brief_history", brief_history)
    machine = Machine(layout=tuple(layout or ()))
    found, *_ = run_on_ranks(lambda comm: training_steps.measure(machine, as_comm(comm)), 4,
                             nodes=layout)
    assert cases <= set(found) and "1d node-aware" not in found
    assert all(each == {"computing": 1.5, "messages": 0.25} for each in found.values())

    # each twice, but one after the other in turns
    assert trained == 2 * trained[:len(found)] and len(set(trained)) == len(found)


def epochs(*seconds):
    """Return metrics of epochs, of which `seconds` are pairs: the epoch, and computing in it."""
    return [{"epoch_s": whole, **dict.fromkeys((f"mean_{part}_s" for part in PARTS), 0.0),
             "mean_spmm_s": 0.5, "mean_gemm_s": computing - 0.5,
             "mean_dense_comm_s": whole - computing} for whole, computing in seconds]


def test_medians_of_epochs_count_and_messages_of_dense_work_are_messages():
    history = epochs((1.0, 0.75), (4.0, 1.5), (2.0, 1.0), (9.0, 3.0), (3.0, 2.0))
    assert training_steps.median_seconds(history) == (1.5, 1.5)
    assert training_steps.median_seconds(epochs((1.0, 2.0))) == (2.0, 0.0)


@pytest.mark.parametrize("seconds, calls", [(1e-6, 1 + 5), (0.06, 1 + 2), (1.0, 1 + 1)])
def test_long_calls_are_repeated_less(seconds, calls):
    made = []
    host = SimpleNamespace(comm=None, seconds=lambda call: call() or (seconds,))
    found = rates.least(host, {"a": lambda: made.append(1)}, SimpleNamespace(repeats=5), "label")
    assert found == {"a": seconds} and len(made) == calls


def two_tiers(tmp_path, aware):
    """Return a machine file of two nodes, with a factor of messages in node-aware exchanges."""
    network = {"latency_s": 1e-9, "bytes_per_s": 1e6}
    names = ("p2p node-aware", "cover node-aware", "vertex-cut node-aware")
    return file(tmp_path, network=network, within_node=network, ranks_per_node=2,
                steps={name: {"computing": 1, "messages": aware} for name in names})


@pytest.mark.parametrize("factor, aware", [(1, True), (10, False)])
@pytest.mark.parametrize("strategy", ["auto", "p2p", "vertex-cut"])
def test_exchange_is_node_aware_if_that_is_faster(tmp_path, factor, aware, strategy):
    machine = str(two_tiers(tmp_path, factor))
    assert is_node_aware(Config(strategy=strategy, machine=machine)) is aware


def is_node_aware(config):
    """Return whether a run on two nodes of two ranks is node-aware."""
    graph = make(n=200)

    def made(comm):
        comm = as_comm(comm)
        with make_trainer(scattered(graph, comm), config, comm, warm=False) as trainer:
            return trainer.plan.node_aware

    found = run_on_ranks(made, 4, nodes=2)
    assert len(set(found)) == 1
    return found[0]


def test_settings_decide_before_a_file(tmp_path):
    slow = str(two_tiers(tmp_path, 10))
    for settings, aware in (({}, True), ({"node_aware": "always", "machine": slow}, True),
                            ({"node_aware": "never"}, False)):
        assert is_node_aware(Config(strategy="vertex-cut", **settings)) is aware


def test_plan_counts_the_faster_exchange(tmp_path):
    store.write_graph(tmp_path / "g.h5", make(n=200))
    for factor, aware in ((1, True), (10, False)):
        options = Options.parse("4", methods="block", machine=two_tiers(tmp_path, factor))
        rows = {row["strategy"]: row for row in forecast(tmp_path / "g.h5", options)["rows"]}
        assert rows["p2p"]["node_aware"] is rows["cover"]["node_aware"] is aware
        assert not rows["1d"]["node_aware"]


def test_auto_may_send_more_rows_if_measured_seconds_are_fewer(tmp_path):
    """vertex-cut sends fewer rows than cover here, and the file says that it waits longer."""
    graph = make(n=600, degree=2)
    partition = make_partition(graph, 4, method="cover")
    store.write_partitioned(tmp_path / "g.h5", graph, partition)
    slow = file(tmp_path, network={"latency_s": 1e-9, "bytes_per_s": 1e6},
                steps={"vertex-cut": {"computing": 1, "messages": 10},
                       "p2p": {"computing": 1, "messages": 20}})
    with store.load(tmp_path / "g.h5") as source:
        for machine, strategy in (("", "vertex-cut"), (str(slow), "cover")):
            assert _choose(PlanInput(source, Config(machine=machine)), 4)[0] == strategy

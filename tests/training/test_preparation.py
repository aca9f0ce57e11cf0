"""A run chooses the partition that it makes first by its number of epochs."""
import dataclasses

import numpy as np
import pytest
from graphs import make

from hpgcn import Config, store
from hpgcn.partition import make_partition
from hpgcn.partition.effort import DEFAULT, FAST, SHARE, column_sizes
from hpgcn.planning.answers.preparation import Preparation, choose_preparation, epoch_seconds
from hpgcn.training.setup import run_partition


class Large:
    """A graph source of two million vertices, 16 entries in each column."""

    header = dataclasses.replace(make().header, num_nodes=1 << 21, num_features=64, num_classes=8)

    def degrees(self):
        sizes = np.full(1 << 21, 15)
        return {"column": sizes, "loop": np.zeros_like(sizes)}


def choose(source, method, epochs, effort=Config.effort):
    return choose_preparation(source.header, column_sizes(source), method, 4,
                              Config(epochs=epochs, effort=effort))


@pytest.mark.parametrize("method", ["hypergraph", "cover"])
def test_effort_follows_the_epochs(method):
    made = {epochs: choose(Large(), method, epochs) for epochs in (1, 450, 100_000)}
    assert [(each.method, each.effort) for each in made.values()] == [
        ("block", FAST), (method, FAST), (method, DEFAULT)]
    assert "for 450 epochs of about" in made[450].reason
    assert "effort= asks for other parts" in made[1].reason
    asked = choose(Large(), method, 1, effort=FAST)
    assert (asked.method, asked.effort) == (method, FAST)


def test_methods_without_effort_stay():
    assert choose(Large(), "block", 1) == ("block", DEFAULT, "")


def test_small_graphs_take_the_method_of_their_strategy_unless_they_train_for_an_instant():
    made = {epochs: choose(make(), "hypergraph", epochs) for epochs in (1, 200)}
    assert [(each.method, each.effort) for each in made.values()] == [
        ("block", FAST), ("hypergraph", DEFAULT)]
    assert "effort= asks for other parts" in made[1].reason


def test_epochs_are_shorter_on_more_ranks():
    assert epoch_seconds(100, 10, (8, 4, 2), 4) == epoch_seconds(100, 10, (8, 4, 2), 1) / 4
    assert 0 < SHARE < 1


def test_a_partition_of_less_effort_is_made_again(tmp_path):
    graph = make()
    path = tmp_path / "g.h5"
    store.write_graph(path, graph)
    with store.load(path) as stored:
        store.write_partitioned(tmp_path / "g.p2.h5", graph,
                                make_partition(graph, 2, method="graph", effort=FAST),
                                source=stored)
        for effort, name in ((FAST, "g.p2.h5"), (DEFAULT, "g.p2-graph-0.h5"), (FAST, "g.p2.h5")):
            kept, _ = run_partition.kept_partition(stored, 2, "graph",
                                                   chosen=Preparation("graph", effort, "asked"))
            assert kept == str(tmp_path / name)

        # blocks do not replace the parts of the strategy's method
        kept, _ = run_partition.kept_partition(stored, 2, "graph",
                                               chosen=Preparation("block", FAST, ""))
        assert kept == str(tmp_path / "g.p2.h5")

"""Training on one of several splits has the bits of training on a graph with only this split."""
import numpy as np
import pytest
from graphs import make, scattered
from training import on_ranks

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import ConfigError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition

SPLIT = 3


@pytest.fixture(scope="module")
def graph():
    graph = make(train=40)
    masks = {key: np.stack([np.roll(mask & (graph.labels >= 0), 7 * i) & (graph.labels >= 0)
                            for i in range(5)], axis=1) for key, mask in graph.masks.items()}
    return Graph.from_scipy(graph.adjacency, graph.features, graph.labels, masks)


def losses(source, comm, split=0, **settings):
    result = hpgcn.train(source, Config(epochs=2, hidden=10, dtype="float64", split_index=split,
                                        **settings), comm)
    return [(row["loss"], row["val_loss"], row["train_acc"], row["test_acc"])
            for row in result.history]


@on_ranks(1, 4)
@pytest.mark.parametrize("strategy", ["p2p", *(
    pytest.param(name, marks=pytest.mark.long) for name in ("cover", "1d", "2d", "mop"))])
def test_in_memory(comm, graph, strategy):
    whole = scattered(graph, comm)
    alone = losses(scattered(graph.of_split(SPLIT), comm), comm, strategy=strategy)
    assert losses(whole, comm, SPLIT, strategy=strategy) == alone
    assert losses(whole, comm, strategy=strategy) != alone


@pytest.mark.long
@on_ranks(1, 4)
def test_in_a_partitioned_file(comm, graph, tmp_path):
    folder = comm.bcast(tmp_path)
    if comm.rank == 0:
        part = np.random.default_rng(5).integers(0, comm.size, graph.num_rows)
        partition = Partition.from_parts(part, comm.size)
        store.write_partitioned(folder / "whole.h5", graph, partition)
        store.write_partitioned(folder / "alone.h5", graph.of_split(SPLIT), partition)
    comm.barrier()
    alone = losses(folder / "alone.h5", comm, strategy="p2p")
    assert losses(folder / "whole.h5", comm, SPLIT, strategy="p2p") == alone
    assert losses(folder / "whole.h5", comm, 1, strategy="p2p") != alone


@pytest.mark.long
@on_ranks(1, 4)
def test_auto_partitions_all_of_them(comm, graph, tmp_path):
    folder = comm.bcast(tmp_path)
    if comm.rank == 0:
        hpgcn.save(graph, folder / "g.h5")
        hpgcn.save(graph.of_split(SPLIT), folder / "alone.h5")
    comm.barrier()
    settings = {"strategy": "vertex-cut"} if comm.size == 1 else {"strategy": "p2p"}
    alone = losses(folder / "alone.h5", comm, **settings)
    assert losses(folder / "g.h5", comm, SPLIT, **settings) == alone
    if comm.size > 1:
        with hpgcn.load(folder / f"g.p{comm.size}.h5") as kept:
            assert kept.header.num_splits == 5


@on_ranks(1, 4)
def test_refused_on_all_ranks(comm, graph):
    with pytest.raises(ConfigError, match="split_index=5, but the graph has 5 splits, 0 to 4"):
        hpgcn.train(graph, Config(split_index=5, epochs=1), comm)

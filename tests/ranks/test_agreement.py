"""Ranks that were started with different arguments or files raise an error before training."""
from dataclasses import replace

import pytest
from graphs import make

import hpgcn
from hpgcn import store
from hpgcn.errors import ConfigError


@pytest.mark.parametrize("comm", [2, 5], indirect=True)
def test_a_file_of_another_content_on_one_rank(comm, tmp_path):
    """A graph file that differs in one feature on one rank is refused by all ranks."""
    graph = make(n=30, f=4)
    if comm.rank == comm.size - 1:
        X = graph.features.copy()
        X[3, 2] += 1
        graph = replace(graph, features=X)
    store.write_graph(tmp_path / "g.h5", graph)
    found = hpgcn.load(tmp_path / "g.h5")
    assert comm.allgather(found.header) == [found.header] * comm.size
    said = rf"rank {comm.size - 1} was started with another .*checksum"
    with pytest.raises(ConfigError, match=said):
        hpgcn.train(found, hpgcn.Config(epochs=1, strategy="1d"), comm.mpi)

"""Vertex names survive in a partitioned file and in predictions on several ranks."""
import dataclasses

import numpy as np
import pytest
from graphs import make
from training import on_ranks

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.partition import Partition


@pytest.mark.long
@on_ranks(1, 3)
@pytest.mark.parametrize("strategy, options", [
    ("p2p", {}), ("mop", {}), ("2d", {}), ("vertex-cut", {}), ("vertex-cut", {"delay": "2"})])
def test_they_come_back_in_the_original_order(comm, tmp_path, strategy, options):
    folder = comm.bcast(tmp_path)
    if comm.rank == 0:
        graph = make()
        n = graph.num_rows
        names = np.array([f"é{'x' * (k % 7)}{k}" for k in range(n)])
        graph = dataclasses.replace(graph, original_ids=names)
        partition = Partition.from_parts(np.arange(n) * 7 % comm.size, comm.size)
        store.write_partitioned(folder / "g.h5", graph, partition)
    comm.barrier()
    with store.load(folder / "g.h5") as source:
        config = Config(epochs=1, hidden=10, strategy=strategy, dtype="float64", **options)
        result = hpgcn.train(source, config, comm)
        found = hpgcn.predict(source, result, comm)
    if comm.rank == 0:
        assert found["original_ids"].tolist() == names.tolist()
        store.write_predictions(folder / "p.h5", found)
        assert store.read_predictions(folder / "p.h5")[0]["original_ids"].tolist() == names.tolist()

"""If rows of one rank in a file contradict each other, all ranks refuse.

This holds with every strategy.
"""
import h5py
import pytest
from graphs import make

import hpgcn
from hpgcn import store
from hpgcn.errors import DataError
from hpgcn.partition import make_partition
from hpgcn.strategies import STRATEGIES


def put(name, index, value):
    def apply(file):
        file[name][index] = value
    return apply


def directed(file):
    file.attrs["directed"] = 0


def swapped(file):
    file["partition/perm"][3:5] = file["partition/perm"][3:5][::-1]


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name in ("cover", "1d", "1.5d", "3d")))
    for name in STRATEGIES])
@pytest.mark.parametrize(("change", "message"), [
    (None, ""), (directed, "directed is 0, but the adjacency is not symmetric: the entry at"),
    (put("degree/column", 40, 99), r"degree/column\[40\] is 99, but the weights of column 40 sum"),
    (put("degree/row", 40, 99), r"degree/row\[40\] is 99, but"),
    (swapped, r"partition/perm\[3\] is not undone by iperm")])
def test_all_ranks_refuse(comm, tmp_path, strategy, change, message):
    graph, path = make(n=60, f=4, directed=True), tmp_path / "graph.h5"
    store.write_partitioned(path, graph, make_partition(graph, comm.size, method="block"))
    if change:
        with h5py.File(path, "r+") as file:
            change(file)
    found = hpgcn.load(path, verify=False)
    config = hpgcn.Config(epochs=1, strategy=strategy, hidden=4)
    if change is None:
        assert hpgcn.train(found, config, comm.mpi)["epochs"] == 1
        return
    with pytest.raises(DataError, match=message) as refusal:
        hpgcn.train(found, config, comm.mpi)
    assert refusal.value.collective

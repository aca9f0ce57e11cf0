"""Targets in files: written, read by rows, carried along by partitions, and checked."""
import h5py
import numpy as np
import pytest
from graphs import make, with_targets

import hpgcn
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition
from hpgcn.store import write_partitioned

GRAPH = with_targets(make(), 3)


@pytest.fixture
def path(tmp_path):
    hpgcn.save(GRAPH, tmp_path / "g.h5")
    return tmp_path / "g.h5"


def test_written_and_read(path):
    with hpgcn.load(path) as stored:
        assert stored.header.num_targets == 3 and stored.target_names == ("t0", "t1", "t2")
        assert stored.header.num_classes == 0 and stored.header.num_outputs == 3
        np.testing.assert_array_equal(stored.targets, GRAPH.targets)
        rows = stored.slab(5, 9)
        np.testing.assert_array_equal(rows.targets, GRAPH.targets[5:9])
        assert rows.target_names == stored.target_names and "3 targets" in repr(rows)
        np.testing.assert_array_equal(stored.to_scipy()[2], GRAPH.targets)
    text = describe_file(path, verify=True)
    known = np.count_nonzero(~np.isnan(GRAPH.targets[:, 0]))
    assert "3 values per vertex" in text and f"t0: {known} known, mean " in text
    with h5py.File(path) as file:
        assert "labels" not in file and file["targets"].dtype == np.float64


@pytest.mark.parametrize("from_file", [False, True])
def test_parts_carry_them_along(path, tmp_path, from_file):
    part = np.random.default_rng(0).integers(0, 3, GRAPH.num_rows)
    partition, out = Partition.from_parts(part, 3), tmp_path / "p.h5"
    with hpgcn.load(path) as source:
        write_partitioned(out, None if from_file else GRAPH, partition,
                          source=source if from_file else None)
    with hpgcn.load(out) as stored:
        np.testing.assert_array_equal(stored.targets, GRAPH.targets[partition.perm])
        np.testing.assert_array_equal(stored.in_original_order().targets, GRAPH.targets)
        assert stored.target_names == GRAPH.target_names


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e101])
def test_infinite_and_too_large_ones_are_refused(path, value):
    y = GRAPH.targets.copy()
    y[7, 1] = value
    with pytest.raises(DataError, match=r"graph: target at \(7, 1\) is .*, expected a number of at "
                                        r"most 1e\+100 in size, or NaN for unknown"):
        Graph.from_scipy(GRAPH.adjacency, GRAPH.features, targets=y)
    with h5py.File(path, "r+") as file:
        file["targets"][7, 1] = value
    with hpgcn.load(path, verify=False) as stored, \
            pytest.raises(DataError, match=r"targets\[7, 1\] is infinite, or larger than 1e\+100"):
        stored.slab(0, 9)


@pytest.mark.parametrize("arguments, message", [
    ({"y": np.zeros(5)}, "has labels and targets, expected one of them"),
    ({"targets": np.zeros(4)}, r"targets have shape \(4,\), expected \(5,\) or \(5, t\)"),
    ({"targets": np.array(["a"] * 5)}, "targets have dtype <U1, expected numbers"),
    ({"targets": np.zeros((5, 0))}, r"targets have shape \(5, 0\)"),
    ({"target_names": ["a", "b"]}, "target_names: 2 names, but there are 1 targets"),
    ({"target_names": ["a"], "targets": None}, "target_names: 1 names, but there are 0 targets")])
def test_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(np.ones((5, 5)), **{"targets": np.arange(5), **arguments})


def test_a_frame_brings_its_names():
    pandas = pytest.importorskip("pandas", reason="needs pip install pandas")
    frame = pandas.DataFrame({"price": [1.5, None, 2], "size": [1, 2, 3]})
    graph = Graph.from_scipy(np.ones((3, 3)), targets=frame)
    assert graph.target_names == ("price", "size") and np.isnan(graph.targets[1, 0])


def test_labels_that_are_values_name_targets():
    hint = r"give them with targets= \(in from_pyg: task='regression'\)"
    for y in (np.array([0.5, 1, 2]), np.array([[0.5, 1], [1, 0], [0, 0]])):
        with pytest.raises(DataError, match=hint):
            Graph.from_scipy(np.ones((3, 3)), y=y)

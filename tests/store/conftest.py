"""Small graph files to read and to damage: 60 vertices, weights, features, labels and masks."""
import pytest
from stored_graphs import make_graph, make_partition

from hpgcn import store


@pytest.fixture
def graph_file(tmp_path):
    """Return the path of a graph file without parts."""
    path = tmp_path / "graph.h5"
    store.write_graph(path, make_graph())
    return path


@pytest.fixture
def parts_file(tmp_path):
    """Return the path of a graph file with three parts."""
    path = tmp_path / "graph.p3.h5"
    store.write_partitioned(path, make_graph(), make_partition())
    return path


@pytest.fixture
def cut_file(tmp_path):
    """Return the path of a graph file with three parts.

    It has a separate partition of its 360 entries.
    """
    path = tmp_path / "graph.c3.h5"
    store.write_partitioned(path, make_graph(), make_partition(edges=360))
    return path

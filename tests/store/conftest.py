"""Small files to read and to damage: 60 vertices with weights, dense features, labels and masks."""
import pytest
from stored_graphs import make_graph, make_partition

from hpgcn import store


@pytest.fixture
def graph_file(tmp_path):
    """Return the path of the graph."""
    path = tmp_path / "graph.h5"
    store.write_graph(path, make_graph())
    return path


@pytest.fixture
def parts_file(tmp_path):
    """Return the path of the graph in three parts."""
    path = tmp_path / "graph.p3.h5"
    store.write_partitioned(path, make_graph(), make_partition())
    return path


@pytest.fixture
def cut_file(tmp_path):
    """Return the path of the graph in three parts, whose 360 entries are partitioned separately."""
    path = tmp_path / "graph.c3.h5"
    store.write_partitioned(path, make_graph(), make_partition(edges=360))
    return path

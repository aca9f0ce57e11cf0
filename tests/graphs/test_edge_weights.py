"""Edge attributes that become weights, and notes on other attributes, for graphs in Python."""
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import hpgcn
from hpgcn.errors import DataError, DataWarning
from hpgcn.graphs.edge_weights import is_weight

EDGES = np.array([[0, 1, 2], [1, 2, 0]])
RELATIONS = np.array([3, 0, 1])


class Frame(dict):
    """A fake DGL frame: the data of vertices or edges."""


def of_pyg(**arrays):
    return SimpleNamespace(edge_index=EDGES, num_nodes=4, **arrays)


def of_dgl(**arrays):
    return SimpleNamespace(ndata=Frame(_ID=np.arange(4)), edata=Frame(**arrays),
                           is_homogeneous=True, edges=lambda order: EDGES, num_nodes=lambda: 4,
                           formats=lambda: {"created": ["coo"], "not created": ["csr", "csc"]})


def of_networkx(**arrays):
    networkx = pytest.importorskip("networkx")
    G = networkx.DiGraph()
    G.add_nodes_from(range(4))
    for k, (u, v) in enumerate(EDGES.T.tolist()):
        G.add_edge(u, v, **{name: array[k].item() for name, array in arrays.items()})
    return G


LIBRARIES = {"pyg": of_pyg, "dgl": of_dgl, "networkx": of_networkx}


def weights_of(graph):
    """Return the weights of the edges EDGES in a graph."""
    return graph.adjacency.toarray()[EDGES[1], EDGES[0]].tolist()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name, array", [
    ("edge_attr", RELATIONS), ("etype", RELATIONS > 0), ("time", RELATIONS + 1600000000),
    ("distance", RELATIONS / 2)])
def test_what_is_not_called_a_weight_is_none_unless_asked_for(library, name, array):
    read = getattr(hpgcn, f"from_{library}")
    with pytest.warns(DataWarning, match=rf'{name} .*edge_weight="{name}" reads it') as caught:
        graph = read(LIBRARIES[library](**{name: array}))
    assert caught[0].filename == __file__ and len(caught) == 1
    assert graph.header.all_ones and graph.header.num_edges == 3
    with warnings.catch_warnings(action="ignore"):
        graph = read(LIBRARIES[library](**{name: array}), edge_weight=name)
    assert weights_of(graph) == array.astype(np.float32).tolist()
    with warnings.catch_warnings(action="error"):
        assert read(LIBRARIES[library](**{name: array}), edge_weight=None).header.all_ones


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["edge_weight", "weight", "Weight", "w", "VALUE", "Edge Weights"])
def test_names_of_weights_in_any_case(library, name):
    with warnings.catch_warnings(action="error"):
        graph = getattr(hpgcn, f"from_{library}")(LIBRARIES[library](**{name: RELATIONS + 1}))
    assert weights_of(graph) == [4, 1, 2]


@pytest.mark.parametrize("library", LIBRARIES)
def test_several_weights_and_unknown_names_are_refused(library):
    made = LIBRARIES[library](weight=RELATIONS, Value=RELATIONS)
    read = getattr(hpgcn, f"from_{library}")
    with pytest.raises(DataError, match='weight, Value all look like edge weights, expected '
                                        'one: edge_weight="weight" selects the first'):
        read(made)
    with pytest.raises(DataError, match="edges have no attribute time, expected one of: weight"):
        read(made, edge_weight="time")
    assert is_weight("Value") and not is_weight("edge_attr") and not is_weight("volume")


def test_arrays_and_vertices_that_are_not_read_are_named():
    with pytest.warns(DataWarning, match="graph: not used: pos$"):
        hpgcn.from_pyg(of_pyg(pos=np.ones((4, 2))))
    g = of_dgl()
    g.ndata["year"] = np.arange(4)
    with pytest.warns(DataWarning, match="arrays of vertices are not used: year$"):
        hpgcn.from_dgl(g)


def test_edges_of_networkx_that_lack_the_weight_of_others():
    G = of_networkx(weight=RELATIONS + 2)
    G.add_edge(3, 0)
    with pytest.warns(DataWarning, match="1 of 4 edges have no weight: their weight is 1"):
        assert hpgcn.from_networkx(G).adjacency[0, 3] == 1
    G.edges[3, 0]["weight"] = 10**400
    with pytest.raises(DataError, match="weight of an edge does not fit in float64"):
        hpgcn.from_networkx(G)

"""JSON graphs of NetworkX (node-link 2 and 3, adjacency) and d3, as NetworkX or json reads them."""
import json

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import read

networkx = pytest.importorskip("networkx")


def some(kind, names):
    """Return a weighted NetworkX graph of 12 nodes with a loop; parallel edges if
    `kind` allows them.
    """
    G = networkx.gnp_random_graph(12, 0.2, seed=3, directed=kind.endswith("DiGraph"))
    G = getattr(networkx, kind)(G)
    G.add_edge(3, 3)
    if G.is_multigraph():
        G.add_edge(3, 5)
        G.add_edge(3, 5)
    for k, (*_, attributes) in enumerate(G.edges(data=True)):
        attributes["weight"] = k + 0.5
    order = {node: f"v {node}é" if names else (7 * node + 5) % 61 for node in G}
    return networkx.relabel_nodes(G, order)


def written(G, form):
    if form == "adjacency":
        return networkx.adjacency_data(G)
    return networkx.node_link_data(G, edges=form)


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
@pytest.mark.parametrize("form", ["links", "edges", "adjacency"])
@pytest.mark.parametrize("names", [False, True])
def test_what_networkx_wrote(tmp_path, kind, form, names):
    G = some(kind, names)
    path = put(tmp_path / "g.json", json.dumps(written(G, form)))
    graph, notes = read(path)
    order = {str(node): node for node in G}
    ids = [order[str(name)] for name in graph.original_ids.tolist()]
    A = networkx.to_numpy_array(G, nodelist=ids)
    np.testing.assert_array_equal(graph.adjacency.toarray(), A.T)
    assert names or ids == sorted(ids)
    directed = kind.endswith("DiGraph")
    assert ("row target aggregates source" in notes) == directed == graph.header.directed
    assert ("edges read in both directions" in notes) != directed


D3 = {"nodes": [{"name": "Myriel", "group": 1}, {"name": "Napoleon", "group": 1},
                {"name": "Valjean", "group": 2}],
      "links": [{"source": 1, "target": 0, "value": 1}, {"source": 2, "target": 0, "value": 8}]}
BY_PLACE = [[0, 1, 8], [1, 0, 0], [8, 0, 0]]


def changed(nodes=None, **changes):
    nodes = D3["nodes"] if nodes is None else nodes
    return {**D3, "nodes": nodes, **changes}


@pytest.mark.parametrize("content, ids, note", [
    (D3, ["Myriel", "Napoleon", "Valjean"],
     "links give the positions of nodes in their list, from 0"),
    (changed([{}, {}, {}]), None, "links give the positions of nodes in their list, from 0"),
    (changed([{"id": name["name"], "group": 1} for name in D3["nodes"]], links=[
        {"source": "Napoleon", "target": "Myriel", "value": 1},
        {"source": "Valjean", "target": "Myriel", "value": 8}]),
     ["Myriel", "Napoleon", "Valjean"], "attributes of nodes are not read: group"),
    (changed(["a", "b", "c"], links=[{"from": "b", "to": "a", "value": 1},
                                     {"from": "a", "to": "c", "value": 8}]), ["a", "b", "c"],
     "edges read in both directions, because the file gives no direction")])
def test_d3(tmp_path, content, ids, note):
    graph, notes = read(put(tmp_path / "g.json", json.dumps(content)))
    assert rows(graph) == BY_PLACE
    assert (graph.original_ids is None) if ids is None else graph.original_ids.tolist() == ids
    assert note in notes


def test_weights_are_chosen_by_name(tmp_path):
    links = [{"source": 0, "target": 1, "Weight": 3, "year": 1999}]
    path = put(tmp_path / "g.json", json.dumps(changed([{}, {}], links=links, directed=True)))
    graph, notes = read(path)
    assert rows(graph) == [[0, 0], [3, 0]] and "attributes of edges are not read: year" in notes
    assert rows(read(path, weights="year")[0]) == [[0, 0], [1999, 0]]
    assert rows(read(path, unweighted=True)[0]) == [[0, 0], [1, 0]]


@pytest.mark.parametrize("content, message", [
    ('{"nodes": [1, 1], "links": []}', "node 1 occurs twice"),
    ('{"nodes": [1, "1"], "links": []}', "id '1' occurs twice"),
    ('{"nodes": [{"id": true}], "links": []}', "node 0: id is True, expected a number or text"),
    ('{"nodes": [1, 2], "links": [{"source": 1, "target": 3}]}',
     "a link ends at 3, expected the id of a node"),
    ('{"nodes": [1, 2], "links": [{"source": 0, "target": 1}]}', "a link ends at 0, expected the"),
    ('{"nodes": [{}, {}], "links": [{"source": 0, "target": 2}]}',
     "a link ends at 2, expected the place of a node"),
    ('{"nodes": ["a"], "links": [{"source": "b", "target": "a"}]}', "ends at 'b', expected the id"),
    ('{"nodes": ["a"], "links": [{"source": "b"}]}', r"links\[0\]: expected an object with source"),
    ('{"nodes": ["a"], "links": [3]}', r"links\[0\]: expected an object with source"),
    ('{"nodes": ["a"]}', "0 lists called links or edges"),
    ('{"nodes": ["a"], "links": [], "edges": []}', "2 lists called links or edges"),
    ('{"nodes": [], "links": []}', "JSON with nodes, links, expected an object with nodes"),
    ('{"directed": 1, "nodes": ["a"], "links": []}', "directed is 1, expected true or false"),
    ('{"nodes": ["a"], "nodes": ["b"], "links": []}', "'nodes' occurs twice in one object"),
    ('{"nodes": [0, 1], "links": [{"source": 0, "target": 1, "weight": NaN}]}', "weight at 0 is"),
    ('{"nodes": [0, 1], "links": [{"source": 0, "target": 1, "weight": "x"}]}',
     "edge '0' - '1': weight is 'x', expected a number"),
    ('{"nodes": [0], "adjacency": []}', "0 lists of neighbors for 1 nodes"),
    ('{"nodes": [0], "adjacency": [[3]]}', r"adjacency\[0\]: 3, expected objects with id"),
    ('{"nodes": [{"name": 0}], "adjacency": [[]]}', "node 0 has no id"),
    ("[[0, 1], [1, 2]]", "JSON of a list, expected an object with nodes and links"),
    ('{"nodes": [0', "broken JSON"), ("[" * 9999, "broken JSON"),
    ('{"source": 0, "target": 1}\n{"source": 1, "target": 2}\n', "is lines of JSON")])
def test_refused(tmp_path, content, message):
    refused(rf"g\.json: .*{message}", put(tmp_path / "g.json", content))
    refused("needs .* bytes of memory", put(tmp_path / "h.json", "{" + " " * 9999), memory=9999)

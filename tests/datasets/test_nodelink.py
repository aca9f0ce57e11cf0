"""JSON graphs of NetworkX (node-link 2 and 3, adjacency) and d3, as NetworkX or json reads them."""
import json

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import read
from hpgcn.errors import UsageError

networkx = pytest.importorskip("networkx")


def some(kind, names):
    """Return a weighted NetworkX graph of 12 nodes with a loop.

    It has parallel edges if `kind` allows them.
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
    assert any(said.startswith(note) for said in notes)


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
    ("[]", r"no edges, expected an object with nodes"),
    ("[[0, 1], [1, 2, 3, 4]]", r"\[1\] is \[1, 2, 3, 4\], expected two ids"),
    ('[[0, 1], {"a": 1}]', r"\[1\]: expected an object with source and target"),
    ('{"edge_index": [[0, 1]]}', "edge_index: expected two lists of one length"),
    ('{"graphs": [{"nodes": {}}, {"nodes": {}}]}', "2 graphs, expected one"),
    ('{"elements": [{"data": {"id": "a"}}, {"x": 1}]}', "elements: node 1: expected an"),
    ('{"options": {"type": "x"}, "nodes": [{"key": 1}], "edges": []}', "options.type is x, exp"),
    ('{"nodes": [0', "broken JSON"), ("[" * 9999, "broken JSON"),
    ('{"source": 0, "target": 1}\n{"source": 1, "target": 2}\n', "is lines of JSON")])
def test_refused(tmp_path, content, message):
    refused(rf"g\.json: .*{message}", put(tmp_path / "g.json", content))
    refused("needs .* bytes of memory", put(tmp_path / "h.json", "{" + " " * 9999), memory=9999)


def links_of(graph):
    """Return {(row, column): weight} by the ids of vertices."""
    ids = np.arange(graph.num_rows) if graph.original_ids is None else graph.original_ids
    A = graph.adjacency.tocoo()
    return {(ids[u].item(), ids[v].item()): w.item() for u, v, w in zip(*A.coords, A.data)}


def cytoscape(**data):
    return {"data": data}


FORMS = [  # document, entries (row, column): weight, a note
    ([[0, 1], [1, 2]], {(0, 1): 1, (1, 2): 1}, "row u aggregates v"),
    ([[1, 2], [2, 3]], {(1, 2): 1, (2, 3): 1}, "ids begin at 1, and vertex 0 is in no edge"),
    ([["a", "b", 0.5], ["b", "c", "2"]], {("a", "b"): 0.5, ("b", "c"): 2}, "is text in 1 edges"),
    ([{"u": 0, "v": 1}], {(0, 1): 1}, "row u aggregates v"),
    ({"nodes": {"a": {}, "b": {}}, "edges": [["a", "b", 2]], "directed": True}, {("b", "a"): 2},
     "weights read from weight"),
    ([[0, 1, {"weight": 3}]], {(0, 1): 3}, "weights read from weight"),
    ([{"source": "a", "target": "b", "w": 2}], {("b", "a"): 2}, "row target aggregates source"),
    ({"edges": [[0, 1]], "name": "x"}, {(0, 1): 1}, "not read: name"),
    ({"links": [{"from": 0, "to": 1}]}, {(1, 0): 1}, "row target aggregates source"),
    ({"edge_index": [[0, 1], [1, 2]], "y": [0, 0, 1]}, {(1, 0): 1, (2, 1): 1}, "not read: y"),
    ({"0": [1, 2], "1": [0], "2": []}, {(0, 1): 1, (0, 2): 1, (1, 0): 1}, "the neighbors of each"),
    ({"a": {"b": {"weight": 2}}}, {("a", "b"): 2}, "row u aggregates v"),
    ({"elements": {"nodes": [cytoscape(id="a"), cytoscape(id="b")],
                   "edges": [cytoscape(source="a", target="b", weight=2)]}},
     {("a", "b"): 2, ("b", "a"): 2}, "because the file gives no direction"),
    ([cytoscape(id="a"), cytoscape(id="b"), cytoscape(source="a", target="b")],
     {("a", "b"): 1, ("b", "a"): 1}, "because the file gives no direction"),
    ({"directed": True, "elements": [cytoscape(id="a"), cytoscape(id="b"),
                                     cytoscape(id="e", source="a", target="b")]},
     {("b", "a"): 1}, "row target aggregates source"),
    ({"graph": {"nodes": {"a": {"label": "A"}, "b": {}}, "edges": [
        {"source": "a", "target": "b", "relation": "x", "metadata": {"weight": 4}}]}},
     {("b", "a"): 4}, "attributes of edges are not read: relation"),
    ({"graph": {"directed": False, "nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "edges": [
        {"source": "a", "target": "b"}, {"source": "b", "target": "c", "directed": True}]}},
     {("a", "b"): 1, ("b", "a"): 1, ("c", "b"): 1}, "1 edges have a direction, and 1 are read in"),
    ({"options": {"type": "mixed"}, "nodes": [{"key": "a"}, {"key": "b"}, {"key": "c"}], "edges": [
        {"key": "e", "source": "a", "target": "b", "attributes": {"weight": 5}},
        {"source": "b", "target": "c", "undirected": True}]},
     {("b", "a"): 5, ("b", "c"): 1, ("c", "b"): 1}, "graphology: a graph of type mixed"),
    ({"options": {"type": "directed"}, "nodes": [{"key": 1}, {"key": 0}],
      "edges": [{"source": 1, "target": 0}]}, {(0, 1): 1}, "graphology: a graph of type directed"),
    ({"nodes": [{"key": "a"}, {"key": "b"}], "edges": [{"source": "a", "target": "b"}]},
     {("b", "a"): 1}, "graphology: a graph of type mixed"),
    ({"attributes": {}, "options": {"type": "undirected"}, "nodes": [{"key": "a"}, {"key": "b"}],
      "edges": [{"source": "a", "target": "b", "attributes": {"weight": 2}}]},
     {("a", "b"): 2, ("b", "a"): 2}, "graphology: a graph of type undirected")]


@pytest.mark.parametrize("document, entries, note", FORMS)
def test_other_forms(tmp_path, document, entries, note):
    graph, notes = read(put(tmp_path / "g.json", json.dumps(document)))
    assert links_of(graph) == entries
    assert any(note in said for said in notes)


def test_flags_of_edge_lists_are_for_edges_alone(tmp_path):
    path = put(tmp_path / "g.json", "[[1, 2], [2, 3]]")
    assert read(path, base=1)[0].header.num_nodes == 3
    assert read(path, num_nodes=9)[0].header.num_nodes == 9
    put(path, json.dumps(D3))
    with pytest.raises(UsageError, match=r"--base: .* has a list of nodes"):
        read(path, base=1)
    with pytest.raises(UsageError, match=r"--base 1: the ids of .* are names"):
        read(put(path, '[["a", "b"]]'), base=1)

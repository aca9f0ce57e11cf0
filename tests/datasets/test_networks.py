"""METIS, Pajek, GraphML, GEXF, GML and adjacency lists are read as by NetworkX, or refused."""
import gzip
import json
import sys

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import convert, read
from hpgcn.errors import MissingError, UsageError

networkx = pytest.importorskip("networkx")
WRITERS = {"graphml": networkx.write_graphml, "gexf": networkx.write_gexf,
           "gml": networkx.write_gml, "net": networkx.write_pajek,
           "adjlist": networkx.write_adjlist}
READERS = {"graphml": networkx.read_graphml, "gexf": networkx.read_gexf,
           "gml": networkx.read_gml, "net": networkx.read_pajek,
           "adjlist": networkx.read_adjlist}


def some(*, directed, weighted, names):
    G = networkx.gnp_random_graph(30, 0.1, seed=4, directed=directed)
    G.add_edge(3, 3)
    if weighted:
        for k, edge in enumerate(G.edges):
            G.edges[edge]["weight"] = k + 0.5
    order = {node: f"v {node}é" if names else (7 * node + 5) % 61 for node in G}
    return networkx.relabel_nodes(G, order)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_what_networkx_wrote(tmp_path, suffix, directed, weighted, names, packed):
    if suffix == "adjlist" and (directed or weighted or names):
        pytest.skip("says neither; names have no blanks")
    path = tmp_path / f"g.{suffix}"
    WRITERS[suffix](some(directed=directed, weighted=weighted, names=names), path)
    G = READERS[suffix](path)
    if packed:
        path = put(tmp_path / f"g.{suffix}.gz", gzip.compress(path.read_bytes()))
    graph, notes = read(path)
    ids = graph.original_ids.tolist()
    assert set(map(str, ids)) == set(map(str, G))
    assert names or ids == sorted(ids)
    order = {str(node): node for node in G}
    A = networkx.to_numpy_array(G, nodelist=[order[str(node)] for node in ids])
    np.testing.assert_array_equal(graph.adjacency.toarray(), A.T)
    assert ("edges read in both directions" in notes) != directed or suffix == "net"
    assert ("row target aggregates source" in notes) == directed
    convert(path, tmp_path / "g.h5")


def test_vertices_that_are_numbers_from_0_are_their_ids(tmp_path):
    put(tmp_path / "g.adjlist", "2 0\n0 1\n1\n")
    graph, _ = read(tmp_path / "g.adjlist")
    assert graph.original_ids is None and rows(graph) == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]


def test_gml_without_labels_and_with(tmp_path):
    text = 'graph [ node [ id 7 {} ] node [ id 3 {} ] edge [ source 7 target 3 ] ]'
    put(tmp_path / "g.gml", text.format("", "color 5"))
    graph, notes = read(tmp_path / "g.gml")
    assert graph.original_ids.tolist() == [3, 7]
    assert any("nodes are not read: color (--labels :NAME" in note for note in notes)
    put(tmp_path / "g.gml", text.format('label "b"', 'label "a"'))
    assert read(tmp_path / "g.gml")[0].original_ids.tolist() == ["b", "a"]


@pytest.mark.parametrize("space", ["www.gexf.net/1.3", "gexf.net/1.3", "www.gexf.net/1.2draft",
                                   "gexf.net/1.2"])
def test_versions_of_gexf(tmp_path, space):
    text = (f'<gexf xmlns="http://{space}" xmlns:viz="http://{space}/viz" version="1.3"><graph '
            'defaultedgetype="directed"><nodes><node id="0"><viz:size value="2"/></node>'
            '<node id="1"/></nodes><edges><edge id="0" source="0" target="1" weight="3.0"/>'
            '</edges></graph></gexf>')
    assert rows(read(put(tmp_path / "g.gexf", text))[0]) == [[0, 0], [3, 0]]


def test_gml_whose_edges_are_there_twice(tmp_path):
    text = ("graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] "
            "edge [ source 2 target 1 ] edge [ source 2 target 2 ] ]")
    graph, _ = read(put(tmp_path / "g.gml", text), duplicates="sum")
    assert rows(graph) == [[0, 2], [2, 1]]


@pytest.mark.parametrize("suffix", ["graphml", "gexf", "gml"])
def test_labels_of_nodes_that_are_not_their_names_are_said_to_be_left_out(tmp_path, suffix):
    G = networkx.path_graph(3)
    networkx.set_node_attributes(G, {0: "x", 1: "x", 2: "y"}, "label")
    path = tmp_path / f"g.{suffix}"
    if suffix == "gml":
        put(path, 'graph [ node [ id 0 label "x" ] node [ id 1 label "x" ] '
                  'edge [ source 0 target 1 ] ]')
    else:
        WRITERS[suffix](G, path)
    _, notes = read(path)
    assert any("nodes are not read: label (--labels :NAME" in note for note in notes)


def test_pajek_by_hand(tmp_path):
    text = ('% c\n*Network n\n*Vertices 4\n1 "a b" 0.1 0.2 ellipse\n2 c\n4 "d"\n*Arcs :1\n1 2 2.5\n'
            "*Edges\n2 4\n3 3 4\n")
    graph, notes = read(put(tmp_path / "g.net", text))
    assert graph.original_ids.tolist() == ["a b", "c", "3", "d"]
    assert rows(graph) == [[0, 0, 0, 0], [2.5, 0, 0, 1], [0, 0, 4, 0], [0, 1, 0, 0]]
    assert "1 edges have a direction, and 2 are read in both directions" in notes
    assert any("nodes are not read: x, y, shape (--labels" in note for note in notes)
    assert not any("after their weight" in note for note in notes)
    graph, notes = read(put(tmp_path / "g.net", "*vertices 2\n*edges\n1 2 3 c Blue"))
    assert "attributes of edges after their weight are not read" in notes
    graph, _ = read(put(tmp_path / "g.net", "*vertices 2\n*edges\n1 2"))
    assert graph.original_ids is None and rows(graph) == [[0, 1], [1, 0]]
    graph, notes = read(put(tmp_path / "g.net", '*vertices 2\n1 "x"\n2 "x"\n*arcs\n1 2'))
    assert graph.original_ids is None and rows(graph) == [[0, 0], [1, 0]]
    assert any("nodes are not read: label (--labels" in note for note in notes)


GRAPHML = ('<?xml version="1.0" encoding="UTF-8"?>{}<graphml '
           'xmlns="http://graphml.graphdrawing.org/xmlns">'
           '<key id="w" for="edge" attr.name="weight" attr.type="{}"/>'
           '<graph edgedefault="undirected"><node id="a"/><node id="b"/>'
           '<edge source="a" target="b"><data key="w">{}</data></edge></graph></graphml>')
BOMB = '<!DOCTYPE z [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n'
REFUSED = [
    ("g.graphml", GRAPHML.format(BOMB, "double", "1"), "line 1: <!DOCTYPE, which is not allowed"),
    ("g.graphml", GRAPHML.format("\n<!ENTITY a 'b'>", "double", "1"), "line 2: <!ENTITY"),
    ("g.graphml", GRAPHML.format("", "double", "nan"), "weight at 0 is nan"),
    ("g.graphml", GRAPHML.format("", "string", "x"), "edge 'a' - 'b': weight is 'x'"),
    ("g.graphml", GRAPHML.format("", "double", "x"), "broken GraphML"),
    ("g.graphml", GRAPHML.format("", "double", "1")[:-20], "broken GraphML"),
    ("g.graphml", "<graphml/>", "broken GraphML|no vertices"),
    ("g.graphml", GRAPHML.replace("UTF-8", "cp037").format("", "double", "1"), "encoding cp037"),
    ("g.graphml", GRAPHML.format("", "double", "1").encode("latin1").replace(b'"a"', b'"\xff"'),
     "line 1: not UTF-8"),
    ("g.gexf", '<gexf version="1.2"><graph><nodes></gexf>', "broken GEXF"),
    ("g.gexf", f'{BOMB}<gexf version="1.2"/>', "line 1: <!DOCTYPE"),
    ("g.gml", "graph [\n node [ id 0 ]", "broken GML"), ("g.gml", "graph [ ]", "no vertices"),
    ("g.gml", "graph [ node [ id 0 ] edge [ source 0 target 1 ] ]", "broken GML .*target"),
    ("g.gml", "graph [ node [ id 0 ] node [ id 0 ] ]", "broken GML .*duplicated"),
    ("g.gml", "graph [ " + "a [ " * 100000, "broken GML"),
    ("g.gml", 'graph [ node [ id 0 ] edge [ source 0 target 0 weight "1x" ] ]', "weight is '1x'"),
    ("g.graphml", "<graphml><graph/><graph/></graphml>", "2 elements <graph>, expected one"),
    ("g.graphml", '<graphml><graph><node id="a"/><edge source="a" target="b"/></graph></graphml>',
     "an edge ends at 'b', expected the id of a node"),
    ("g.graphml", "<graphml><graph><hyperedge/></graph></graphml>", "a hyperedge, expected edges"),
    ("g.graphml", "<graphml><graph><node/></graph></graphml>", "broken GraphML .<node> without id"),
    ("g.gexf", '<gexf><graph><nodes><node id="0"><attvalues><attvalue for="7" value="1"/>'
               "</attvalues></node></nodes></graph></gexf>", "broken GEXF .no attribute 7"),
    ("g.adjlist", "", "no vertices|no edges"), ("g.adjlist", b"a \xff\n", "not UTF-8"),
    ("g.net", "*Vertices 2\n*Arcs\n1 3\n", r"line 3: vertex '3', expected 1\.\.2"),
    ("g.net", "*Vertices 2\n*Arcs\n0 1\n", "line 3: vertex '0'"),
    ("g.net", "*Vertices 2\n*Arcs\n-1 1\n", "line 3: vertex '-1'"),
    ("g.net", "*Vertices 2\n*Arcs\n1\n", r"line 3: 1 field\(s\)"),
    ("g.net", "*Vertices 2\n*Arcs\n1 2 x\n", "line 3: weight is 'x'"),
    ("g.net", "*Vertices 2\n*Arcs\n1 2 nan\n", "line 3: weight is 'nan'"),
    ("g.net", "*Vertices 2\n1 a\n1 b\n", "line 3: vertex 1 occurs twice"),
    ("g.net", "*Vertices 2\n1 \"a\n", "line 2: No closing quotation"),
    ("g.net", "*Vertices 2\n*Matrix\n0 1\n1 0\n", r"line 2: '\*Matrix', expected one"),
    ("g.net", "*Vertices 2\n*Vertices 2\n", r"line 2: '\*Vertices 2', expected one"),
    ("g.net", "*Arcs\n1 2\n", r"line 1: '\*Arcs', expected one"),
    ("g.net", "*Vertices 3 2\n", "line 1: .*and their number"),
    ("g.net", "*Vertices 999999999999\n", "line 1: 999999999999 vertices: needs"),
    ("g.net", "*Network x\n", r"no \*Vertices"), ("g.net", "*Vertices 0\n", "no vertices"),
    ("g.graph", "3 2\n2\n1\n",
     r"ends after line 3 with 2 vertices, but the header declares 3 \(if it"),
    ("g.graph", "2 1\n2\n1\n1\n", "line 4: more lines than the 2 vertices"),
    ("g.graph", "2 2\n2\n1\n", "2 neighbors, expected twice the 2 edges"),
    ("g.graph", "2 1\n2 2\n1\n", "line 3: more than twice the 1 edges"),
    ("g.graph", "3 2\n2 3\n1\n2\n", "vertex 1 lists 3 as a neighbor, but 3 does not list 1"),
    ("g.graph", "3 2\n2 2\n1 1\n\n", "vertex 1 lists its neighbor 2 twice"),
    ("g.graph", "2 1\n3\n1\n",
     r"line 2: neighbor 3 of vertex 1, expected another vertex in 1\.\.2"),
    ("g.graph", "2 1\n1\n2\n", "line 2: neighbor 1 of vertex 1"),
    ("g.graph", "2 1\n0\n1\n", "line 2: neighbor 0"), ("g.graph", "2 1\n-2\n1\n", "line 2: '-2'"),
    ("g.graph", "2 1\n2.0\n1\n", r"line 2: '2\.0', expected a whole number"),
    ("g.graph", "2 1 1\n2 5\n1 6\n", "edge 1 - 2 has weight 5 at one end and 6 at the other"),
    ("g.graph", "2 1 1\n2\n1 6\n", "line 2: 1 numbers, expected 0 of the vertex, then pairs"),
    ("g.graph", "2 1 10 2\n5\n1 6\n", "line 2: 1 numbers, expected 2 of the vertex"),
    ("g.graph", "2 1 7\n2\n1\n", "line 1: format 007"),
    ("g.graph", "2 1 0 2\n2\n1\n", "line 1: format 000 with 2 weights"),
    ("g.graph", "x\n", "line 1: expected the numbers"), ("g.graph", "", "expected the numbers"),
    ("g.graph", "99999999999 1\n2\n1\n", "line 1: 99999999999 vertices and 1 edges: needs"),
    ("g.graph", "2 99999999999\n2\n1\n", "line 1: 2 vertices and 99999999999 edges: needs"),
    ("g.graph", "9999 1\n2\n1\n", "declared, more than a file of"),
]


@pytest.mark.parametrize("name, content, message", REFUSED)
def test_refusals(tmp_path, name, content, message):
    fmt = {"graph": "metis", "net": "pajek"}.get(name.partition(".")[2], "auto")
    refused(rf"{name}: .*({message})", put(tmp_path / name, content), fmt, memory=1 << 30)


@pytest.mark.parametrize("name, content", [
    ("g.graphml", "<graphml>" + " " * 9999 + "</graphml>"), ("g.gml", "graph [" + " " * 9999 + "]"),
    ("g.net", "*Vertices 3\n" + "% c\n" * 3000), ("g.adjlist", "0 1\n" * 3000)])
@pytest.mark.parametrize("packed", [False, True])
def test_memory(tmp_path, name, content, packed):
    path = put(tmp_path / name, gzip.compress(content.encode()) if packed else content)
    refused("needs .* bytes of memory, but the limit is 100000", path, memory=100_000)


METIS = [  # content, upper triangle with weights
    ("% comment\n5 4\n2 3 4\n1\n1 4\n1 3\n\n", {(0, 1): 1, (0, 2): 1, (0, 3): 1, (2, 3): 1}),
    ("3 2 11\n1 2 1\n1 1 1 3 1\n1 2 1\n", {(0, 1): 1, (1, 2): 1}),
    ("3 2 001\n2 5\n1 5 3 7\n2 7\n", {(0, 1): 5, (1, 2): 7}),
    ("3 2 111 2\n9 1 1 2 5\n9 1 1 1 5 3 7\n9 1 1 2 7\n", {(0, 1): 5, (1, 2): 7}),
    ("3 2 100\n9 2\n9 1 3\n9 2\n\n% end\n", {(0, 1): 1, (1, 2): 1}),
    ("2 0\n\n\n", {}),
]


@pytest.mark.parametrize("content, entries", METIS)
@pytest.mark.parametrize("packed", [False, True])
def test_metis(tmp_path, content, entries, packed):
    path = put(tmp_path / "g.graph", gzip.compress(content.encode()) if packed else content)
    graph, notes = read(path)
    found = {(u, v): w for (u, v), w in graph.adjacency.todok().items() if u < v}
    assert found == entries and not graph.header.directed
    assert graph.header.num_nodes == int(content.split("\n")["%" in content[0]].split()[0])
    assert any("--format snap" in note for note in notes)


def test_a_metis_of_another_name_is_told_by_its_shape(tmp_path):
    graph, _ = read(put(tmp_path / "g.txt", METIS[0][0]))
    assert graph.header.num_nodes == 5
    refused("METIS, not mtx: --format metis|no %%MatrixMarket",
            put(tmp_path / "h.txt", METIS[0][0]), "mtx")


def test_without_networkx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingError, match=r"needs networkx \(extra io\): pip .*>=.* 'networkx"):
        read(put(tmp_path / "g.gml", "graph [ ]"))


def test_a_larger_metis(tmp_path):
    G = networkx.gnp_random_graph(300, 0.05, seed=2)
    lines = [f"{len(G)} {G.number_of_edges()}"]
    lines += [" ".join(str(v + 1) for v in G[u]) for u in G]
    graph, _ = read(put(tmp_path / "g.metis", "\n".join(lines)))
    np.testing.assert_array_equal(graph.adjacency.toarray(), networkx.to_numpy_array(G))


XML = ('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
       '<key id="w" for="edge" attr.name="{0}" attr.type="double"/>'
       '<key id="c" for="edge" attr.name="color" attr.type="string"/>'
       '<key id="a" for="node" attr.name="age" attr.type="int"/><graph edgedefault="directed">'
       '<node id="0"><data key="a">3</data></node><node id="1"/><edge source="0" target="1">'
       '<data key="w">2.5</data><data key="c">red</data></edge></graph></graphml>')
GML = ('graph [ directed 1 node [ id 0 age 3 ] node [ id 1 ] edge [ source 0 target 1 {} 2.5 '
       'color "red" ] ]')
GEXF = ('<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'
        '<graph defaultedgetype="directed"><attributes class="edge"><attribute id="0" title="{}" '
        'type="double"/><attribute id="1" title="color" type="string"/></attributes>'
        '<attributes class="node"><attribute id="2" title="age" type="integer"/></attributes>'
        '<nodes><node id="0"><attvalues><attvalue for="2" value="3"/></attvalues></node>'
        '<node id="1"/></nodes><edges><edge id="0" source="0" '
        'target="1"><attvalues><attvalue for="0" value="2.5"/><attvalue for="1" value="red"/>'
        '</attvalues></edge></edges></graph></gexf>')


@pytest.mark.parametrize("suffix, text", [("graphml", XML), ("gml", GML), ("gexf", GEXF)])
def test_attributes_by_name(tmp_path, suffix, text):
    path = tmp_path / f"g.{suffix}"
    for name, options, weight in (("Weight", {}, 2.5), ("value", {}, 2.5), ("length", {}, 1),
                                  ("length", {"weights": "Length"}, 2.5),
                                  ("value", {"unweighted": True}, 1)):
        graph, notes = read(put(path, text.format(name)), **options)
        assert rows(graph) == [[0, 0], [weight, 0]]
        assert any("nodes are not read: age (--labels :NAME" in note for note in notes)
        unread = next(note for note in notes if note.startswith("attributes of edges are not"))
        assert "color" in unread and ("length" in unread) == (name == "length" and weight == 1)
    refused("edges have no attribute x, expected one of: value, color", path, weights="x")
    with pytest.raises(UsageError, match="--weights w: excludes --unweighted, which"):
        read(path, weights="w", unweighted=True)
    put(tmp_path / "g.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    with pytest.raises(UsageError, match=r"--weights w: only for formats whose .*, not for mtx"):
        read(tmp_path / "g.mtx", weights="w")


NESTED = (
    '<graphml><key id="w" for="all" attr.name="weight" attr.type="double"><default>2</default>'
    '</key><graph edgedefault="undirected"><node id="a"/><node id="b">'
    '<graph edgedefault="directed">'
    '<node id="c"/><edge source="c" target="a"><data key="w">3</data></edge></graph></node>'
    '<edge source="a" target="b"/></graph></graphml>')


def test_graphml_with_a_graph_in_a_node_and_with_defaults(tmp_path):
    graph, notes = read(put(tmp_path / "g.graphml", NESTED))
    assert graph.original_ids.tolist() == ["a", "b", "c"]
    assert rows(graph) == [[0, 2, 3], [2, 0, 0], [0, 0, 0]]
    assert {"1 graphs within nodes are read as parts of the whole graph",
            "1 edges have a direction, and 1 are read in both directions",
            "weights read from weight (--unweighted sets them to 1)"} <= {*notes}


TIMED = ('<gexf><graph mode="dynamic" defaultedgetype="directed"><attributes class="edge" mode='
         '"{mode}"><attribute id="0" title="weight" type="double"/></attributes><attributes class='
         '"node"><attribute id="1" title="age" type="integer"><default>7</default></attribute>'
         '</attributes><nodes><node id="0" start="2000"/><node id="1"><attvalues><attvalue for="1" '
         'value="3" start="1"/><attvalue for="1" value="4" start="2"/></attvalues></node></nodes>'
         '<edges><edge source="0" target="1"><attvalues>{values}</attvalues>{spells}</edge></edges>'
         '</graph></gexf>')
ONE, TWO = (f'<attvalue for="0" value="{k}" start="{k}" end="{k + 1}"/>' for k in (5, 6))


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_gexf_over_time(tmp_path, mode):
    path = put(tmp_path / "g.gexf", TIMED.format(mode=mode, values=ONE + TWO, spells=""))
    refused("edge '0' - '1': weight has 2 values over time: keep one of them, or give --unwe", path)
    graph, notes = read(path, unweighted=True)
    assert rows(graph) == [[0, 0], [1, 0]]
    assert "times of 1 nodes are not read: these are in the graph at all times" in notes
    spells = '<spells><spell start="1"/></spells>'
    graph, notes = read(put(path, TIMED.format(mode=mode, values=TWO, spells=spells)))
    assert rows(graph) == [[0, 0], [6, 0]]
    assert "times of 1 edges are not read: these are in the graph at all times" in notes
    refused("attribute age of a vertex has 2 values over time, expected one", path, labels=":age")


def test_gexf_with_nodes_in_nodes_and_edges_of_their_own_type(tmp_path):
    nodes = '<node id="a"><nodes><node id="b"/></nodes></node><node id="c"/>'
    edges = ('<edge source="a" target="b"/><edge source="a" target="c" type="mutual"/>'
             '<edge source="b" target="c" type="undirected" weight="2"/>')
    text = (f'<gexf><graph defaultedgetype="directed"><nodes>{nodes}</nodes><edges>{edges}</edges>'
            '</graph></gexf>')
    graph, notes = read(put(tmp_path / "g.gexf", text))
    assert graph.original_ids.tolist() == ["a", "b", "c"]
    assert rows(graph) == [[0, 0, 1], [1, 0, 2], [1, 2, 0]]
    assert {"1 nodes with nodes in them are read as nodes of one graph",
            "3 of 4 edges have no weight: their weight is 1",
            "3 edges have a direction, and 1 are read in both directions"} <= {*notes}


def attributed(suffix):
    """Return a network whose nodes have a party, a place (x, y), and a size that one lacks."""
    nodes = [("p", "red", 0.5, 1, 3), ("q", "blue", 2.5, 0, 4), ("r", "red", 1.5, 2, None)]
    if suffix == "net":
        lines = [f'{k} "{name}" {x} {y} party {party}' + (f" size {size}" if size else "")
                 for k, (name, party, x, y, size) in enumerate(nodes, 1)]
        return "*Vertices 3\n" + "\n".join(lines) + "\n*Edges\n1 2\n2 3\n"
    G = networkx.Graph([("p", "q"), ("q", "r")])
    for name, party, x, y, size in nodes:
        G.nodes[name].update({"party": party, "x": x, "y": y} | ({"size": size} if size else {}))
    if suffix == "gml":
        return "\n".join(networkx.generate_gml(G))
    if suffix == "graphml":
        return "\n".join(networkx.generate_graphml(G))
    if suffix == "gexf":
        return "\n".join(networkx.generate_gexf(G))
    if suffix == "cyjs":
        return json.dumps(networkx.cytoscape_data(G))
    if suffix == "graphology":
        return json.dumps({"options": {"type": "undirected"}, "nodes": [
            {"key": name, "attributes": dict(G.nodes[name])} for name in G], "edges": [
            {"source": u, "target": v} for u, v in G.edges]})
    if suffix == "jgf":
        return json.dumps({"graph": {"directed": False, "nodes": {
            name: {"metadata": dict(G.nodes[name])} for name in G}, "edges": [
            {"source": u, "target": v} for u, v in G.edges]}})
    return json.dumps(networkx.node_link_data(G, edges="links"))


@pytest.mark.parametrize("suffix", ["graphml", "gexf", "gml", "net", "json", "cyjs", "graphology",
                                    "jgf"])
def test_labels_and_features_that_lie_in_the_graph_file(tmp_path, suffix):
    path = put(tmp_path / f"g.{suffix if suffix in WRITERS else 'json'}", attributed(suffix))
    graph, notes = read(path, labels=":party", features=":x,y")
    assert graph.labels.tolist() == [1, 0, 1] and graph.class_names == ("blue", "red")
    assert graph.features.tolist() == [[0.5, 1], [2.5, 0], [1.5, 2]]
    assert graph.original_ids.tolist() == ["p", "q", "r"]
    assert rows(graph) == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    unread, = [note for note in notes if "nodes are not read" in note]
    assert "size" in unread and "party" not in unread and ":NAME" in unread
    refused(r"g\.\w+: row 2: column size is empty, expected a finite number", path,
            features=":size")
    assert read(path, labels=":size")[0].labels[2] == -1
    refused("no column is called none|no vertex|none .--feature-columns.", path, features=":none")
    put(path, attributed(suffix).replace("red", "train").replace("blue", "test"))
    masks = read(path, labels=":y", split=":party", classes=True)[0].masks
    assert masks["train"].tolist() == [True, False, True] and masks["test"].tolist() == [
        False, True, False]
    put(path, attributed(suffix))
    turned = read(path, features=":y,x")[0].features
    assert turned[:, ::-1].tolist() == graph.features.tolist()


def test_attributes_in_objects(tmp_path):
    text = ("graph [ node [ id 0 graphics [ x 1.5 y 2 ] ] node [ id 1 graphics [ x 3 y 4 ] ] "
            "edge [ source 0 target 1 ] ]")
    graph, _ = read(put(tmp_path / "g.gml", text), features=":graphics.*")
    assert graph.features.tolist() == [[1.5, 2], [3, 4]]


def test_files_without_attributes_have_no_labels_in_them(tmp_path):
    path = put(tmp_path / "g.txt", "0 1\n")
    refused("g.txt: vertices have no attributes, of which party should be one", path,
            labels=":party")

"""Reader of graphs in JSON: nodes and links of NetworkX and d3, adjacency lists of
NetworkX.

    {"directed": .., "nodes": [{"id": ..}], "links": [{"source": .., "target": .., ..}]}
    {"directed": .., "nodes": [{"id": ..}], "adjacency": [[{"id": ..}, ..], ..]}

Links may be called edges.
"""
import numpy as np

from hpgcn.datasets.raw_graph import ROW_FIRST, TARGET_FIRST, Raw
from hpgcn.datasets.readers.json_text import parse_json
from hpgcn.datasets.source import truncate
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import attribute_names, listed, weights_of
from hpgcn.graphs.validation import check_finite

NAMES = ("id", "key", "name", "label")  # what a node is called by, the first that all links use
LINKS = ("links", "edges")  # keys of NetworkX up to 3.3 and d3, and of NetworkX from 3.4 on
ENDS = (("source", "target"), ("from", "to"))
FORM = "an object with nodes and links (or edges, or adjacency)"


def read(source, memory, weights=None):
    """Read the links between nodes, which they call by id, else by name, else by
    position in `nodes`.

    A directed link u -> v is A[v, u]. A link is read in both directions unless the file
    says that it is directed. Parallel links are duplicates.
    """
    # nodes, and links in either form
    document = parse_json(source, memory, dict, FORM)
    nodes = _nodes(document, source)
    notes = []
    if isinstance(document.get("adjacency"), list):
        links, both_listed = _adjacency(document["adjacency"], nodes, source), True
    else:
        links, both_listed = _links(document, source), False

    # number the vertices in the order of their names
    names, number = _numbering(nodes, links, source, notes)
    vertices = Nodes(names or [str(k) for k in range(len(nodes))], source)
    place = np.empty(len(nodes), np.int64)
    place[vertices.order] = np.arange(len(nodes))

    # ends and weights of the links
    u, v = (place[[number[link[end]] for link in links]] for end in range(2))
    w, said = weights_of(links, weights, source, "--weights {}".format)
    check_finite(w, f"{source}: weight")
    unread = [key for key in attribute_names((None, node) for node in nodes) if key not in NAMES]
    notes += said + [f"attributes of nodes are not read: {listed(unread)}"] * bool(unread)

    # a link without direction is read both ways
    directed = document.get("directed", False)
    if not isinstance(directed, bool):
        raise DataError(f"{source}: directed is {truncate(directed, 40)}, expected true or false")
    if not directed:
        said = "" if "directed" in document else ", because the file gives no direction"
        notes.append(f"edges read in both directions{said}")
        if not both_listed:
            off = u != v
            u, v, w = (np.concatenate(pair) for pair in ((u, v[off]), (v, u[off]), (w, w[off])))
    return Raw(len(nodes), v, u, w, original_ids=vertices.original_ids, notes=notes,
               symmetrize=both_listed and not directed,
               reads=TARGET_FIRST if directed else ROW_FIRST)


def _nodes(found, where):
    """Return the nodes of a document as a list of dict; a node that is just an id
    becomes {"id": id}.
    """
    nodes = found.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        names = listed(found) or "nothing"
        raise DataError(f"{where}: JSON with {names}, expected {FORM}")
    nodes = [node if isinstance(node, dict) else {"id": node} for node in nodes]
    for k, node in enumerate(nodes):
        for key in NAMES:
            if key in node:
                node[key] = _hashable(node[key], f"{where}: node {k}: {key}")
    return nodes


def _hashable(value, where):
    """Return an id in hashable form: a number, a text, or a tuple for a list."""
    if isinstance(value, list):
        return tuple(_hashable(item, where) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DataError(f"{where} is {truncate(value, 40)}, expected a number or text")
    return value


def _links(found, where):
    """Return (start, end, attributes) of each link of a document."""
    keys = [key for key in LINKS if isinstance(found.get(key), list)]
    if len(keys) != 1:
        raise DataError(f"{where}: {len(keys)} lists called links or edges, expected {FORM}")
    links = []
    for k, link in enumerate(found[keys[0]]):
        place = f"{where}: {keys[0]}[{k}]"
        ends = next((ends for ends in ENDS if isinstance(link, dict) and link.keys() >= {*ends}),
                    None)
        if ends is None:
            raise DataError(f"{place}: expected an object with source and target")
        attributes = {key: link[key] for key in link if key not in (*ends, "key")}
        links.append((*(_hashable(link[end], f"{place} {end}") for end in ends), attributes))
    return links


def _adjacency(lists, nodes, where):
    """Return (start, end, attributes) of each entry of the adjacency lists."""
    absent = next((k for k, node in enumerate(nodes) if "id" not in node), None)
    if len(lists) != len(nodes) or absent is not None:
        reason = f"node {absent} has no id" if absent is not None else (
            f"{len(lists)} lists of neighbors for {len(nodes)} nodes")
        raise DataError(f"{where}: {reason}, expected a list for each node with an id")

    links = []
    for k, (node, entries) in enumerate(zip(nodes, lists)):
        for entry in entries if isinstance(entries, list) else [entries]:
            if not isinstance(entry, dict) or "id" not in entry:
                raise DataError(f"{where}: adjacency[{k}]: {truncate(entry, 40)}, expected objects "
                                "with id")
            attributes = {key: entry[key] for key in entry if key not in ("id", "key")}
            links.append((node["id"], _hashable(entry["id"], f"{where}: adjacency[{k}] id"),
                          attributes))

    return links


def _numbering(nodes, links, where, notes):
    """Return the names of the nodes, or None, and a dict from each end of a link to its
    position in `nodes`.
    """
    # ids and names may call the nodes, if each is there once
    n = len(nodes)
    ends = {end for start, stop, _ in links for end in (start, stop)}
    names = {}  # ids of all nodes, by what they are called
    for key in NAMES:
        values = [node.get(key) for node in nodes]
        if None not in values:
            if key == "id" and len(set(values)) < n:
                seen = set()
                again = next(name for name in values if name in seen or seen.add(name))
                raise DataError(f"{where}: node {truncate(repr(again), 40)} occurs twice")
            if len(set(values)) == n:
                names[key] = values

    # take the first that all links use
    for values in names.values():
        number = {value: k for k, value in enumerate(values)}
        if ends <= number.keys():
            return [str(value) for value in values], number

    # else links use positions; refuse an invalid end
    first = next(iter(names.values()), None)
    common = ends.intersection(first or ())

    def is_place(end):
        return type(end) is int and 0 <= end < n

    if common or not all(map(is_place, ends)):
        wrong = next(end for link in links for end in link[:2]
                     if (end not in first if common else not is_place(end)))
        called = next(iter(names), "place")
        raise DataError(f"{where}: a link ends at {truncate(repr(wrong), 40)}, expected the "
                        f"{called} of a node")

    # places are the numbers
    notes.append("links give the positions of nodes in their list, from 0")
    return None if first is None else [str(value) for value in first], {k: k for k in range(n)}

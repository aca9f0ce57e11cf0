"""The forms in which libraries write a graph as JSON, brought into one."""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.column_names import DIRECTED, end_names, find_ends
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import join_names

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

LINKS = ("links", "edges")  # keys of NetworkX < 3.4 and d3, and of NetworkX >= 3.4
INDEX = "edge_index"
ENDS = (("source", "target"), ("from", "to"))
INNER = ("attributes", "metadata")  # keys of the attributes of a node or a link
KINDS = ("directed", "undirected", "mixed")  # types of graphs in graphology
FORM = ("an object with nodes and links (or edges, or adjacency), Cytoscape's elements, JGF's "
        "graph, or a list of edges")


class Form(NamedTuple):
    """The nodes and links of a document."""

    nodes: list[dict] | None  # None if only links have ids
    links: list[tuple]  # start, end, attributes, and whether it is directed or None
    directed: bool | None  # default for links with None
    both_listed: bool = False  # whether undirected links are listed at both ends
    pairs: bool = False  # whether ends are u and v rather than source and target
    notes: tuple[str, ...] = ()


def find_form(document: Any, where: Source) -> Form:
    """Return the Form of a JSON document; raise DataError for another one."""
    if isinstance(document, list):
        if _are_elements(document):
            return _cytoscape({"elements": document}, where)
        return _list_of_edges(document, "", where)
    if "nodes" not in document:
        if "elements" in document:
            return _cytoscape(document, where)
        graphs = document.get("graphs", [document.get("graph")])
        if isinstance(graphs, list) and len(graphs) > 1:
            raise DataError(f"{where}: {len(graphs)} graphs, expected one")
        if isinstance(graphs, list) and graphs and isinstance(graphs[0], dict) and (
                "nodes" in graphs[0] or "edges" in graphs[0]):
            return _jgf(graphs[0], where)
        keys = [key for key in (*LINKS, INDEX) if isinstance(document.get(key), list)]
        if len(keys) == 1:
            read = _edge_index if keys[0] == INDEX else _list_of_edges
            form = read(document[keys[0]], keys[0], where)
            others = join_names(key for key in document if key != keys[0])
            return form._replace(notes=(f"not read: {others}",) * bool(others))
        if document and all(isinstance(each, list | dict) for each in document.values()):
            return _neighbors(document, where)
        raise DataError(f"{where}: JSON with {join_names(document) or 'nothing'}, expected {FORM}")

    # read nodes and links, or nodes and adjacency lists
    nodes = _nodes(_as_list(document["nodes"]), where, document)
    directed = _flag(document, "directed", where)
    if isinstance(document.get("adjacency"), list):
        return Form(nodes, _adjacency(document["adjacency"], nodes, where), directed, True)
    keys = [key for key in LINKS if isinstance(document.get(key), list)]
    if len(keys) != 1:
        raise DataError(f"{where}: {len(keys)} lists called links or edges, expected {FORM}")
    links = [_link(link, f"{where}: {keys[0]}[{k}]") for k, link in enumerate(document[keys[0]])]
    return _graphology(Form(nodes, links, directed), document, where)


def _graphology(form: Form, document: dict[str, Any], where: Source) -> Form:
    """Return a Form in which links without a direction have that of graphology's options."""
    options = document.get("options")
    keyed = all("key" in node and "id" not in node for node in form.nodes)
    if not isinstance(options, dict) and not keyed:
        return form
    kind = options.get("type", "mixed") if isinstance(options, dict) else "mixed"
    if kind not in KINDS:
        raise DataError(f"{where}: options.type is {truncate(kind, 40)}, expected "
                        f"{', '.join(KINDS)}")
    if form.directed is not None:
        return form
    return form._replace(directed=kind != "undirected",
                         notes=(f"graphology: a graph of type {kind}",))


def _cytoscape(document: dict[str, Any], where: object) -> Form:
    elements = document["elements"]
    if isinstance(elements, list):
        parts = {"nodes": [], "edges": []}
        for element in elements:
            data = element.get("data") if isinstance(element, dict) else None
            group = "edges" if isinstance(data, dict) and "source" in data else "nodes"
            parts[element.get("group", group) if isinstance(element, dict) else group].append(
                element)
        elements = parts
    if not isinstance(elements, dict) or not isinstance(elements.get("nodes"), list):
        raise DataError(f"{where}: elements without nodes, expected Cytoscape's nodes and edges")
    nodes = []
    for k, element in enumerate(elements["nodes"]):
        data = _object(element, "data", f"{where}: elements: node {k}")
        position = element.get("position")
        nodes.append((position if isinstance(position, dict) else {}) | data)
    links = [_link(_object(element, "data", f"{where}: elements: edge {k}"),
                   f"{where}: elements: edge {k}")
             for k, element in enumerate(elements.get("edges", []))]
    return Form(_nodes(nodes, where, document), links, _flag(document, "directed", where))


def _are_elements(document: list) -> bool:
    return bool(document) and all(isinstance(element, dict) and isinstance(
        element.get("data"), dict) for element in document)


def _jgf(graph: dict[str, Any], where: object) -> Form:
    """Return the Form of JSON Graph Format, whose edges are directed unless it says otherwise."""
    nodes = _as_list(graph.get("nodes"))
    edges = graph.get("edges", [])
    if not isinstance(edges, list):
        raise DataError(f"{where}: graph: edges is no list")
    links = [_link(link, f"{where}: edges[{k}]", own="directed") for k, link in enumerate(edges)]
    directed = _flag(graph, "directed", where)
    return Form(None if nodes is None else _nodes(nodes, where, graph), links,
                True if directed is None else directed)


def _as_list(nodes: Any) -> Any:
    """Return an object from ids to nodes as a list of nodes."""
    if not isinstance(nodes, dict):
        return nodes
    return [{"id": key} | (node if isinstance(node, dict) else {}) for key, node in nodes.items()]


def _list_of_edges(entries: list, key: str, where: object) -> Form:
    """Return the Form of edges alone: objects with ends, or lists of ends and a weight."""
    links = [_link(entry, f"{where}: {key}[{k}]") for k, entry in enumerate(entries)]
    if not links:
        raise DataError(f"{where}: no edges, expected {FORM}")
    return Form(None, links, True, pairs=not any(map(_has_direction, entries)))


def _has_direction(entry: Any) -> bool:
    """Return whether the members of an edge are called source and target, or similarly."""
    return isinstance(entry, dict) and end_names(_ends(entry)) == DIRECTED


def _ends(link: dict[str, Any]) -> Sequence[str] | None:
    """Return the names of the members that are the ends of a link, or None."""
    known = next((ends for ends in ENDS if link.keys() >= {*ends}), None)
    return known or find_ends([key for key in link if key != "id"])


def _edge_index(ends: list, key: str, where: object) -> Form:
    """Return the Form of sources and targets in two lists, as in PyG."""
    if len(ends) != 2 or not all(isinstance(end, list) for end in ends) \
            or len(ends[0]) != len(ends[1]):
        raise DataError(f"{where}: {key}: expected two lists of one length, sources and targets")
    links = [(_hashable(start, f"{where}: {key}"), _hashable(end, f"{where}: {key}"), {}, None)
             for start, end in zip(*ends)]
    return Form(None, links, True)


def _neighbors(document: dict[str, Any], where: object) -> Form:
    """Return the Form of an object from each vertex to its neighbors, a list or an object."""
    links = []
    for vertex, entries in document.items():
        for entry in entries:
            more = entries[entry] if isinstance(entries, dict) else {}
            if isinstance(entry, list | dict) or not isinstance(more, dict):
                raise DataError(f"{where}: {truncate(vertex, 40)}: {truncate(entry, 40)}, expected "
                                "ids of neighbors")
            links.append((vertex, str(entry), more, None))
    nodes = {end: {"id": end} for link in links for end in link[:2]}
    nodes = {vertex: {"id": vertex} for vertex in document} | nodes
    return Form(list(nodes.values()), links, True, pairs=True,
                notes=("the object has the neighbors of each vertex",))


def _flag(document: dict[str, Any], key: str, where: object) -> bool | None:
    """Return a flag of a document; None if it is missing."""
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise DataError(f"{where}: {key} is {truncate(value, 40)}, expected true or false")
    return value


def _object(element: Any, key: str, where: object) -> dict[str, Any]:
    data = element.get(key) if isinstance(element, dict) else None
    if not isinstance(data, dict):
        raise DataError(f"{where}: expected an object with {key}")
    return data


def _nodes(nodes: Any, where: Source, document: dict[str, Any]) -> list[dict]:
    """Return nodes as a list of dict with their attributes.

    A node that is just an id becomes {"id": id}.
    """
    if not isinstance(nodes, list) or not nodes:
        raise DataError(f"{where}: JSON with {join_names(document) or 'nothing'}, expected {FORM}")
    nodes = [_flat(node) if isinstance(node, dict) else {"id": node} for node in nodes]
    for k, node in enumerate(nodes):
        for key in ("id", "key"):
            if key in node:
                node[key] = _hashable(node[key], f"{where}: node {k}: {key}")
    return nodes


def _flat(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return an object with those in INNER merged into it; its own members go first."""
    inner = [key for key in INNER if isinstance(attributes.get(key), dict)]
    merged = {}
    for key in inner:
        merged |= attributes[key]
    return merged | {key: value for key, value in attributes.items() if key not in inner}


def _hashable(value: Any, where: object) -> Hashable:
    """Return an id in hashable form: a number, a text, or a tuple for a list."""
    if isinstance(value, list):
        return tuple(_hashable(item, where) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DataError(f"{where} is {truncate(value, 40)}, expected a number or text")
    return value


def _link(link: Any, where: object, own: str = "undirected") -> tuple:
    """Return (start, end, attributes, whether it has a direction) of a link.

    The link is an object, or a list of two ids and maybe a weight. `own` is the member
    by which a link states whether it has a direction.
    """
    if isinstance(link, list):
        if not 2 <= len(link) <= 3 or isinstance(link[-1], list):
            raise DataError(f"{where} is {truncate(link, 40)}, expected two ids and optionally a "
                            "weight")
        more = link[2] if len(link) > 2 else {}
        more = more if isinstance(more, dict) else {"weight": more}
        return *(_hashable(end, where) for end in link[:2]), more, None
    ends = _ends(link) if isinstance(link, dict) else None
    if ends is None:
        raise DataError(f"{where}: expected an object with source and target")
    said = next((_flag(link, key, where) == (key == "directed") for key in (own, "directed")
                 if key in link), None)
    attributes = {key: value for key, value in _flat(link).items()
                  if key not in (*ends, "key", "undirected", "directed")}
    return *(_hashable(link[end], f"{where} {end}") for end in ends), attributes, said


def _adjacency(lists: list, nodes: list[dict], where: object) -> list[tuple]:
    """Return the link of each entry of the adjacency lists."""
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
            end = _hashable(entry["id"], f"{where}: adjacency[{k}] id")
            links.append((node["id"], end, attributes, None))
    return links

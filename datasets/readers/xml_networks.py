"""Readers of GraphML and GEXF.

NetworkX's readers leave out nested graphs, defaults of edges, all but the last of the
values over time, and edges of one id. XML that declares entities is refused.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from hpgcn.datasets.readers.network_graph import Network, OverTime
from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

TEXT_FACTOR = 50  # memory per byte of text
ENCODING = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")
ENCODINGS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")
NUMBERS = {"int": int, "integer": int, "long": int, "float": float, "double": float}
BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
TIMES = {"start", "end", "startopen", "endopen", "timestamp"}  # attributes of times in GEXF


class _Key(NamedTuple):
    """The declaration of an attribute."""

    name: str
    type: str
    default: str | None
    owner: str  # node, edge or all

    def value(self, text: str, where: str) -> Any:
        """Return the value that `text` spells; None for an empty number."""
        if self.type not in NUMBERS and self.type != "boolean":
            return text
        text = text.strip()
        if not text:
            return None
        try:
            return BOOLEANS[text.lower()] if self.type == "boolean" else NUMBERS[self.type](text)
        except (KeyError, ValueError):
            raise DataError(f"{where} ({self.name} is {truncate(text, 40)!r}, expected "
                            f"{self.type})") from None


def read_graphml(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read the only graph of a GraphML file, and graphs in its nodes."""
    where = f"{source}: broken GraphML"
    root = _root(source, memory, where)
    graphs = _children(root, "graph")
    if len(graphs) > 1:
        raise DataError(f"{source}: {len(graphs)} elements <graph>, expected one: keep the graph "
                        "to read in a file of its own")
    keys = {key.get("id"): _Key(key.get("attr.name") or key.get("id"), key.get("attr.type"),
                                _text(key, "default"), key.get("for", "all"))
            for key in _children(root, "key")}

    # graphs within nodes are part of the same graph
    network = Network()
    inner = [graph for graph in (graphs[0].iter() if graphs else ()) if _is(graph, "graph")]
    for graph in inner:
        if _children(graph, "hyperedge"):
            raise DataError(f"{source}: a hyperedge, expected edges with two ends")
        for node in _children(graph, "node"):
            network.add_node(_attribute(node, "id", where), _graphml_data(node, keys, where))
        default = graph.get("edgedefault") == "directed"
        for edge in _children(graph, "edge"):
            ends = _attribute(edge, "source", where), _attribute(edge, "target", where)
            network.add_link(*ends, _graphml_data(edge, keys, where),
                             BOOLEANS.get(edge.get("directed"), default))
    if len(inner) > 1:
        network.notes.append(f"{len(inner) - 1} graphs within nodes are read as parts of the whole "
                             "graph")
    return network.raw(source, options.asked_weights)


def read_gexf(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read GEXF of any version, with the nodes and edges within nodes."""
    where = f"{source}: broken GEXF"
    root = _root(source, memory, where)
    graphs = _children(root, "graph")
    if len(graphs) > 1:
        raise DataError(f"{source}: {len(graphs)} elements <graph>, expected one")
    keys = {"node": {}, "edge": {}}
    for table in (_children(graphs[0], "attributes") if graphs else ()):
        owner = table.get("class")
        keys[owner] = keys.get(owner, {}) | {
            key.get("id"): _Key(key.get("title") or key.get("id"), key.get("type"),
                                _text(key, "default"), owner)
            for key in _children(table, "attribute")}

    # read nodes and edges, also within nodes
    network = Network()
    lives = {"nodes": 0, "edges": 0}
    groups = 0  # nodes that contain nodes
    default = graphs[0].get("defaultedgetype") if graphs else None
    for element in (graphs[0].iter() if graphs else ()):
        if _is(element, "node"):
            attributes = {key: element.get(key) for key in ("label",) if key in element.attrib}
            network.add_node(_attribute(element, "id", where),
                             attributes | _gexf_data(element, keys["node"], where))
            lives["nodes"] += _has_life(element)
            groups += bool(_children(element, "nodes"))
        elif _is(element, "edge"):
            attributes = _gexf_data(element, keys["edge"], where)
            weight = _Key("weight", "double", None, "edge")
            if "weight" in element.attrib:
                attributes["weight"] = weight.value(element.get("weight"), where)
            attributes |= {key: element.get(key) for key in ("id", "label")
                           if key in element.attrib}
            ends = _attribute(element, "source", where), _attribute(element, "target", where)
            kind = element.get("type", default)
            network.add_link(*ends, attributes, kind in ("directed", "mutual"))
            if kind == "mutual":
                network.add_link(*ends[::-1], attributes, True)
            lives["edges"] += _has_life(element)
    if groups:
        network.notes.append(f"{groups} nodes with nodes in them are read as nodes of one graph")
    network.notes += [f"times of {count} {what} are not read: these are in the graph at all times"
                      for what, count in lives.items() if count]
    return network.raw(source, options.asked_weights)


def _root(source: Source, memory: int, where: str) -> ElementTree.Element:
    """Return the root of an XML file.

    DataError for XML that could expand entities, or hide them by its encoding.
    """
    text = whole_text(source, memory, TEXT_FACTOR)
    declared = ENCODING.match(text)
    if declared and declared[1].lower() not in ENCODINGS:
        raise DataError(f"{source}: encoding {truncate(declared[1].decode('latin1'), 40)}, "
                        "expected UTF-8")
    for word in (b"<!DOCTYPE", b"<!ENTITY"):
        if (at := text.find(word)) >= 0:
            line = text.count(b"\n", 0, at) + 1
            raise DataError(f"{source}: line {line}: {word.decode()}, which is not allowed: "
                            "entities may expand without end")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{where} ({truncate(error)})") from error


def _is(element: ElementTree.Element, tag: str) -> bool:
    return element.tag.rpartition("}")[2] == tag


def _children(element: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    return [child for child in element if _is(child, tag)]


def _text(element: ElementTree.Element, tag: str) -> str | None:
    """Return the text of the first child with this tag, or None."""
    found = _children(element, tag)
    return (found[0].text or "") if found else None


def _attribute(element: ElementTree.Element, name: str, where: str) -> str:
    """Return an attribute; raise DataError if it is missing."""
    if name not in element.attrib:
        raise DataError(f"{where} (<{element.tag.rpartition('}')[2]}> without {name})")
    return element.get(name)


def _graphml_data(element: ElementTree.Element, keys: dict, where: str) -> dict[str, Any]:
    """Return the attributes of a node or an edge, by name, with the defaults of their keys."""
    owner = element.tag.rpartition("}")[2]
    found = {key.name: key.value(key.default, where) for key in keys.values()
             if key.default is not None and key.owner in (owner, "all")}
    for data in _children(element, "data"):
        key = keys.get(data.get("key"))
        if key is None:
            raise DataError(f"{where} (no key {truncate(data.get('key'), 40)})")
        if len(data):  # yEd writes the label into a drawing of the node
            labels = [part.text for part in data.iter() if _is(part, f"{owner.title()}Label")]
            if labels and labels[0]:
                found["label"] = labels[0].strip()
        else:
            found[key.name] = key.value(data.text or "", where)
    return {name: value for name, value in found.items() if value is not None}


def _gexf_data(element: ElementTree.Element, keys: dict, where: str) -> dict[str, Any]:
    """Return the attributes of a node or an edge, by name; several values become OverTime."""
    found = {}
    for values in _children(element, "attvalues"):
        for each in _children(values, "attvalue"):
            key = keys.get(each.get("for", each.get("id")))
            if key is None:
                raise DataError(f"{where} (no attribute {truncate(each.get('for'), 40)})")
            found.setdefault(key.name, []).append(key.value(each.get("value", ""), where))
    found = {name: values[0] if len(values) == 1 else OverTime(values)
             for name, values in found.items()}
    for part in element:  # Gephi's drawing of the node
        if _is(part, "position"):
            found |= {axis: float(part.get(axis)) for axis in "xyz" if axis in part.attrib}
        elif _is(part, "size"):
            found["size"] = part.get("value")
    defaults = {key.name: key.value(key.default, where) for key in keys.values()
                if key.default is not None}
    return {name: value for name, value in (defaults | found).items() if value is not None}


def _has_life(element: ElementTree.Element) -> bool:
    """Return whether a node or an edge is in the graph at some times only."""
    return bool(element.attrib.keys() & TIMES) or any(
        _is(part, tag) for part in element for tag in ("spells", "slices"))

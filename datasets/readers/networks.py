"""Readers of GraphML, GEXF and GML by NetworkX, and of Pajek's networks by a parser of
this module.

NetworkX's Pajek reader mistakes arcs before edges for edges, merges vertices with equal
labels, and ignores weights that are not numbers. XML that declares entities is refused.
"""
import io
import re
import shlex
import warnings

import numpy as np

from hpgcn.datasets.edges.text import whole_text
from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.source import need, refused, truncate
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError, require
from hpgcn.graphs.edge_weights import attribute_names, listed
from hpgcn.graphs.validation import check_finite

TEXT_FACTOR = 50  # bytes of memory that a byte of text may become as a graph of NetworkX
ENCODING = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")
GEXF = re.compile(rb"""(\sxmlns\s*=\s*["'])http://(?:www\.)?gexf\.net/[^"'/]*(["'])""")
ENCODINGS = (b"utf-8", b"utf8", b"us-ascii", b"ascii")


def read_graphml(source, memory, weights=None):
    text = _xml(source, memory)
    return _read(source, lambda nx: nx.read_graphml(io.BytesIO(text)), "GraphML", weights)


def read_gexf(source, memory, weights=None):
    """Read GEXF of any version; its namespace is replaced by one that NetworkX
    supports.
    """
    text = GEXF.sub(rb"\1http://www.gexf.net/1.2draft\2", _xml(source, memory))
    return _read(source, lambda nx: nx.read_gexf(io.BytesIO(text)), "GEXF", weights)


def read_gml(source, memory, weights=None):
    """Read GML; vertices are named by their labels if these are distinct, else by their
    ids.
    """
    text = _text(source, memory).decode("utf-8")
    if not re.search(r"\bmultigraph\b", text):  # or NetworkX refuses an edge that is there twice
        text = re.sub(r"^(\s*graph\s*\[)", r"\1 multigraph 1 ", text, count=1, flags=re.MULTILINE)
    lines = text.splitlines()
    return _read(source, lambda nx: nx.parse_gml(lines, label=None), "GML", weights, labels=True)


def _text(source, memory):
    return whole_text(source, memory, TEXT_FACTOR)


def _xml(source, memory):
    """Return the text of an XML file; raise DataError if it could expand entities, or
    hide them by its encoding.
    """
    text = _text(source, memory)
    declared = ENCODING.match(text)
    if declared and declared[1].lower() not in ENCODINGS:
        raise DataError(f"{source}: encoding {truncate(declared[1].decode('latin1'), 40)}, "
                        "expected UTF-8")
    for word in (b"<!DOCTYPE", b"<!ENTITY"):
        if (at := text.find(word)) >= 0:
            line = text.count(b"\n", 0, at) + 1
            raise DataError(f"{source}: line {line}: {word.decode()}, which is not allowed: "
                            "entities may expand without end")
    return text


def _read(source, parse, kind, weights=None, *, labels=False):
    """Return the Raw of a graph that NetworkX parses."""
    # parse
    networkx = require("networkx", "io", f"reading {kind}")
    with refused(source, f"broken {kind}"), warnings.catch_warnings(action="ignore"):
        try:
            G = parse(networkx)
        except RecursionError as error:
            raise DataError(f"{source}: broken {kind} (nested too deep)") from error
    from hpgcn.interop.networkx import edge_arrays

    # labels are names if they are distinct, else ids are
    nodes = list(G)
    names = [str(node) for node in nodes]
    given = [G.nodes[node].get("label") for node in nodes]
    known = [name if label is None else str(label) for name, label in zip(names, given)]
    typed = all(isinstance(label, str | int) for label in given)
    if labels and typed and len(set(known)) == len(known):
        names = known

    # edges, and what is left out
    (u, v, w), notes = edge_arrays(G, weights, source, "--weights {}".format)
    check_finite(w, f"{source}: weight")
    if not G.is_directed():
        notes.append("edges read in both directions")
    unread = set(attribute_names(G.nodes(data=True)))
    if names == known:
        unread -= {"label"}
    if unread := sorted(unread, key=str):
        notes.append(f"attributes of nodes are not read: {listed(unread)}")
    return _raw(source, names, v, u, w, notes, directed=G.is_directed())


def _raw(source, names, rows, columns, values, notes, *, directed, base=0):
    """Return a Raw; vertices with whole numbers as ids are sorted, those with names
    keep the file's order.
    """
    nodes = Nodes(names, source, base)
    place = np.empty(len(names), np.int64)
    place[nodes.order] = np.arange(len(names))
    reads = ("target", "source") if directed else ("u", "v")
    return Raw(len(names), place[rows], place[columns], values, original_ids=nodes.original_ids,
               reads=reads, notes=notes, base=nodes.base)


def read_pajek(source, memory):
    """Read a Pajek file: *Vertices, then *Arcs (u -> v: v aggregates u) and *Edges
    (both directions).
    """
    # sections follow each other: vertices first
    lines = _text(source, memory).decode("utf-8").splitlines()
    labels, arcs, edges = {}, [], []
    longest = {"v": 0, "a": 0, "e": 0}  # words of a line
    n = section = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        where = f"{source}: line {number}"
        if not text or text[0] == "%":
            continue

        # a section begins
        if text[0] == "*":
            word, *rest = text.lower().split()
            section = {"*network": "", "*vertices": "v", "*arcs": "a", "*edges": "e"}.get(word)
            if section is None or (section == "v") != (n is None and section != ""):
                raise DataError(f"{where}: {truncate(text, 40)!r}, expected one *Vertices, then "
                                "*Arcs or *Edges: one network")
            if section == "v":
                if len(rest) != 1 or not rest[0].isdecimal() or len(rest[0]) > 18:
                    raise DataError(f"{where}: {truncate(text, 40)!r}, expected *Vertices and "
                                    "their number")
                n = int(rest[0])
                need(200 * n, memory, f"{where}: {n} vertices")
            continue

        # split a line of the section
        if not section:
            raise DataError(f"{where}: {truncate(text, 40)!r}, expected *Vertices")
        try:
            words = shlex.split(text) if section == "v" else text.split()
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
        longest[section] = max(longest[section], len(words))

        # a vertex
        if section == "v":
            k = _vertex(words[0], n, where)
            if k in labels:
                raise DataError(f"{where}: vertex {k + 1} occurs twice")
            labels[k] = words[1] if len(words) > 1 else words[0]
            continue

        # an arc or an edge
        if len(words) < 2:
            raise DataError(f"{where}: 1 field(s), expected two vertices and optionally a weight")
        weight = _weight(words[2], where) if len(words) > 2 else 1.0
        (arcs if section == "a" else edges).append(
            (_vertex(words[0], n, where), _vertex(words[1], n, where), weight))
    if n is None:
        raise DataError(f"{source}: no *Vertices in {len(lines)} lines")

    # an edge has both directions
    images = [(v, u, w) for u, v, w in edges if u != v]
    u, v, w = np.array(arcs + edges + images, np.float64).reshape(-1, 3).T

    # say what is left out; labels name vertices if they are distinct
    notes = [f"{len(arcs)} arcs, and {len(edges)} edges read in both directions"]
    if longest["v"] > 2:
        notes.append("coordinates and shapes of vertices are not read")
    if max(longest["a"], longest["e"]) > 3:
        notes.append("attributes of edges after their weight are not read")
    names = [labels.get(k, str(k + 1)) for k in range(n)]
    if len(set(names)) < n:
        names = [str(k + 1) for k in range(n)]
        notes.append("vertex labels are not read, because some are equal")
    return _raw(source, names, v.astype(np.int64), u.astype(np.int64), w, notes,
                directed=bool(arcs), base=1)


def _vertex(word, n, where):
    if not word.isdecimal() or len(word) > 18 or not 1 <= int(word) <= n:
        raise DataError(f"{where}: vertex {truncate(word, 40)!r}, expected 1..{n}")
    return int(word) - 1


def _weight(word, where):
    try:
        weight = float(word) if "_" not in word else np.nan
    except ValueError:
        weight = np.nan
    if not np.isfinite(weight):
        raise DataError(f"{where}: weight is {truncate(word, 40)!r}, expected a finite number")
    return weight

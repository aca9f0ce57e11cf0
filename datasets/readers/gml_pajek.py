"""Readers of GML by NetworkX, and of Pajek's networks by a parser of this module.

NetworkX's Pajek reader mistakes arcs before edges for edges, merges vertices with equal
labels, and ignores weights that are not numbers.
"""
from __future__ import annotations

import re
import shlex
import warnings
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.readers.network_graph import Network, find_ends
from hpgcn.datasets.source import need, refused, truncate
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError, require

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

TEXT_FACTOR = 50  # memory per byte of text as a graph of NetworkX
SHAPE = re.compile(r"[A-Za-z]\w*")  # a word that begins the drawing of a Pajek vertex


def read_gml(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read GML; vertices are called by their labels if these are distinct, else by ids."""
    networkx = require("networkx", "io", "reading GML")
    text = whole_text(source, memory, TEXT_FACTOR).decode("utf-8")
    if not re.search(r"\bmultigraph\b", text):  # otherwise NetworkX refuses repeated edges
        text = re.sub(r"^(\s*graph\s*\[)", r"\1 multigraph 1 ", text, count=1, flags=re.MULTILINE)
    with refused(source, "broken GML"), warnings.catch_warnings(action="ignore"):
        try:
            G = networkx.parse_gml(text.splitlines(), label=None)
        except RecursionError as error:
            raise DataError(f"{source}: broken GML (nested too deep)") from error

    # name vertices by labels if these are distinct, else by ids
    ids = list(G)
    nodes = [dict(G.nodes[node]) for node in ids]
    names = [str(node) for node in ids]
    known = [str(attributes.get("label", name)) for name, attributes in zip(names, nodes)]
    typed = all(isinstance(attributes.get("label", ""), str | int) for attributes in nodes)
    if typed and len(set(known)) == len(known):
        names = known
        for attributes in nodes:
            attributes.pop("label", None)
    links = list(G.edges(data=True))
    ends = find_ends(links, {node: k for k, node in enumerate(ids)}, source)
    directed = [G.is_directed()] * len(links)
    return Network(names, nodes, links, directed, ends).raw(source, options.asked_weights)


def read_pajek(source: Source, memory: int) -> Raw:
    """Read a Pajek file.

    It has *Vertices, then *Arcs (u -> v: v aggregates u) and *Edges (both directions).
    """
    # read the sections, vertices first
    lines = whole_text(source, memory, TEXT_FACTOR).decode("utf-8").splitlines()
    labels, drawn, arcs, edges = {}, {}, [], []
    longest = 0  # most words of an edge
    n = section = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        where = f"{source}: line {number}"
        if not text or text[0] == "%":
            continue

        # begin a section
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

        # read a vertex
        if section == "v":
            k = _vertex(words[0], n, where)
            if k in labels:
                raise DataError(f"{where}: vertex {k + 1} occurs twice")
            labels[k] = words[1] if len(words) > 1 else words[0]
            drawn[k] = _drawing(words[2:])
            continue

        # read an arc or an edge
        if len(words) < 2:
            raise DataError(f"{where}: 1 field(s), expected two vertices and optionally a weight")
        longest = max(longest, len(words))
        attributes = {"weight": _weight(words[2], where)} if len(words) > 2 else {}
        ends = _vertex(words[0], n, where), _vertex(words[1], n, where)
        (arcs if section == "a" else edges).append((*ends, attributes))
    if n is None:
        raise DataError(f"{source}: no *Vertices in {len(lines)} lines")

    # note what is not read; name vertices by labels if these are distinct
    notes = ["attributes of edges after their weight are not read"] * (longest > 3)
    nodes = [drawn.get(k, {}) for k in range(n)]
    names = [labels.get(k, str(k + 1)) for k in range(n)]
    if len(set(names)) < n:
        nodes = [{"label": name} | node for name, node in zip(names, nodes)]
        names = [str(k + 1) for k in range(n)]
    ends = np.array([link[:2] for link in arcs + edges], np.int64).reshape(-1, 2).T
    directed = [True] * len(arcs) + [False] * len(edges)
    return Network(names, nodes, arcs + edges, directed, ends, base=1,
                   notes=notes).raw(source, None)


def _drawing(words: list[str]) -> dict[str, str]:
    """Return the attributes after a vertex's label, by name.

    These are coordinates, a shape, and pairs of a parameter and its value.
    """
    count = next((k for k, word in enumerate(words) if SHAPE.fullmatch(word)), len(words))
    found = dict(zip("xyz", words[:min(count, 3)]))
    rest = words[count:]
    if len(rest) % 2:
        found["shape"] = rest.pop(0)
    return found | dict(zip(rest[::2], rest[1::2]))


def _vertex(word: str, n: int, where: object) -> int:
    if not word.isdecimal() or len(word) > 18 or not 1 <= int(word) <= n:
        raise DataError(f"{where}: vertex {truncate(word, 40)!r}, expected 1..{n}")
    return int(word) - 1


def _weight(word: str, where: str) -> float:
    try:
        weight = float(word) if "_" not in word else np.nan
    except ValueError:
        weight = np.nan
    if not np.isfinite(weight):
        raise DataError(f"{where}: weight is {truncate(word, 40)!r}, expected a finite number")
    return weight

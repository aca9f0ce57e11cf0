"""Nodes and links with attributes, as GraphML, GEXF, GML, JSON and Pajek have them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.raw_graph import ROW_FIRST, TARGET_FIRST, Raw
from hpgcn.datasets.source import truncate
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import attribute_names, choose_weight, join_names, weights_of
from hpgcn.graphs.validation import check_finite

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source


class OverTime(list):
    """The values of an attribute that changes over time."""

    def __str__(self) -> str:
        return f"{len(self)} values over time"


@dataclass
class Network:
    """The content of a network file, whole or as it is read.

    Attributes
    ----------
    names : list of str
        Names of the nodes.
    nodes : list of dict
        The attributes of each node, without its name.
    links : list of (start, end, dict)
        Names of the ends, for errors, and attributes.
    directed : sequence of bool, (e,)
        Whether a link is directed; other links are read in both directions.
    ends : (2, e) int64, or None
        Starts and ends of the links, as positions in `names`; None if links have names.
    """

    names: list[str] = field(default_factory=list)
    nodes: list[dict] = field(default_factory=list)
    links: list[tuple] = field(default_factory=list)
    directed: Sequence = field(default_factory=list)
    ends: np.ndarray | None = None
    base: int = 0  # the first id, if all ids are whole numbers
    both_listed: bool = False  # whether undirected links are listed twice
    unsaid: str = ""  # end of the note on links without direction
    notes: list[str] = field(default_factory=list)

    def add_node(self, name: str, attributes: dict[str, Any]) -> None:
        self.names.append(name)
        self.nodes.append(attributes)

    def add_link(self, start: str, end: str, attributes: dict, directed: bool) -> None:
        self.links.append((start, end, attributes))
        self.directed.append(directed)

    def raw(self, source: Source, weights: str | bool | None) -> Raw:
        """Return the network as a Raw.

        Vertices with whole numbers as ids are sorted; all others keep the file's order.
        """
        # number the vertices
        if not self.names:
            raise DataError(f"{source}: no vertices")
        ends = self.ends
        if ends is None:
            ends = find_ends(self.links, {name: k for k, name in enumerate(self.names)}, source)
        directed = np.array(self.directed, bool)
        if not directed.any():
            self.notes.append(f"edges read in both directions{self.unsaid}")
        vertices = Nodes(self.names, source, self.base)
        place = np.empty(len(self.names), np.int64)
        place[vertices.order] = np.arange(len(self.names))
        u, v = place[ends]

        # choose the weights
        names = attribute_names((None, attributes) for *_, attributes in self.links)
        name = choose_weight(names, weights, source, "--weights {}".format)
        for start, end, attributes in self.links:
            if isinstance(attributes.get(name), OverTime):
                raise DataError(f"{source}: edge {truncate(start, 40)!r} - {truncate(end, 40)!r}: "
                                f"{name} has {attributes[name]}: keep one of them, or give "
                                "--unweighted")
        w, name, notes = weights_of(self.links, weights, source, "--weights {}".format)
        check_finite(w, f"{source}: weight")
        if name is not None:
            notes.append(f"weights read from {join_names([name])} (--unweighted sets them to 1)")

        # add the reverse of undirected links
        both = ~directed & (u != v)
        if not self.both_listed and both.any():
            u, v = np.concatenate([u, v[both]]), np.concatenate([v, u[both]])
            w = np.concatenate([w, w[both]])
        count = int(np.count_nonzero(directed))
        if 0 < count < directed.size:
            notes.append(f"{count} edges have a direction, and {directed.size - count} are "
                         "read in both directions")
        if all(node.get("label", name) == name for node, name in zip(self.nodes, self.names)):
            for node in self.nodes:
                node.pop("label", None)
        nodes = [_flat(self.nodes[k]) for k in vertices.order.tolist()]
        return Raw(len(self.names), v, u, w, original_ids=vertices.original_ids,
                   base=vertices.base, notes=self.notes + notes,
                   symmetrize=self.both_listed and not count,
                   reads=TARGET_FIRST if count else ROW_FIRST,
                   attributes=nodes if any(nodes) else None)


def _flat(attributes: dict) -> dict[str, Any]:
    """Return attributes in which those of an object are called OBJECT.NAME."""
    found = {}
    for name, value in attributes.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def find_ends(links: list, number: dict, where: object) -> np.ndarray:
    """Return the ends of links as numbers of nodes, (2, e) int64; `number` has each name's."""
    for link in links:
        for end in link[:2]:
            if end not in number:
                raise DataError(f"{where}: an edge ends at {truncate(repr(end), 40)}, expected the "
                                "id of a node")
    return np.array([[number[link[end]] for link in links] for end in range(2)], np.int64)

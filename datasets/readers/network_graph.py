"""Nodes and links with attributes, as GraphML, GEXF, GML, JSON and Pajek have them."""
from dataclasses import dataclass, field

import numpy as np

from hpgcn.datasets.raw_graph import ROW_FIRST, TARGET_FIRST, Raw
from hpgcn.datasets.source import truncate
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.edge_weights import attribute_names, choose_weight, listed, weights_of
from hpgcn.graphs.validation import check_finite


class OverTime(list):
    """The values of an attribute that changes over time."""

    def __str__(self):
        return f"{len(self)} values over time"


@dataclass
class Network:
    """The content of a network file.

    Attributes
    ----------
    names : list of str
        What the nodes are called.
    nodes : list of dict
        The attributes of each node, without its name.
    links : list of (start, end, dict)
        Names of the ends, for errors, and attributes.
    ends : (2, e) int64
        Starts and ends of the links, as places in `names`.
    directed : (e,) bool
        Whether a link has a direction; others are read in both.
    """

    names: list[str]
    nodes: list[dict]
    links: list[tuple]
    ends: np.ndarray
    directed: np.ndarray
    base: int = 0  # the first id, if all ids are whole numbers
    both_listed: bool = False  # a link without direction is there twice
    notes: list[str] = field(default_factory=list)

    def raw(self, source, weights):
        """Return the Raw; vertices with whole numbers as ids are sorted, others keep the
        file's order.
        """
        # number the vertices
        vertices = Nodes(self.names, source, self.base)
        place = np.empty(len(self.names), np.int64)
        place[vertices.order] = np.arange(len(self.names))
        u, v = place[self.ends]

        # weights
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
            notes.append(f"weights read from {listed([name])} (--unweighted sets them to 1)")

        # a link without direction is read both ways
        both = ~self.directed & (u != v)
        if not self.both_listed and both.any():
            u, v = np.concatenate([u, v[both]]), np.concatenate([v, u[both]])
            w = np.concatenate([w, w[both]])
        count = int(np.count_nonzero(self.directed))
        if 0 < count < self.directed.size:
            notes.append(f"{count} edges have a direction, and {self.directed.size - count} are "
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


def _flat(attributes):
    """Return attributes in which those of an object are called OBJECT.NAME."""
    found = {}
    for name, value in attributes.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            found[name] = value
    return found


def find_ends(links, number, where):
    """Return the ends of links as numbers of nodes, (2, e) int64; `number` has each name's."""
    for link in links:
        for end in link[:2]:
            if end not in number:
                raise DataError(f"{where}: an edge ends at {truncate(repr(end), 40)}, expected the "
                                "id of a node")
    return np.array([[number[link[end]] for link in links] for end in range(2)], np.int64)

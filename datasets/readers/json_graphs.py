"""Reader of graphs in JSON: nodes and links, or lists of edges.

NetworkX, d3 and graphology, Cytoscape and JGF write such files. Examples:

    {"directed": .., "nodes": [{"id": ..}], "links": [{"source": .., "target": .., ..}]}
    {"directed": .., "nodes": [{"id": ..}], "adjacency": [[{"id": ..}, ..], ..]}

The module json_forms lists all forms.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.edges.columns import EdgeColumns
from hpgcn.datasets.edges.edge_arrays import read_edge_arrays
from hpgcn.datasets.edges.edge_stream import Stream
from hpgcn.datasets.edges.vertex_names import VertexNames
from hpgcn.datasets.raw_graph import ROW_FIRST
from hpgcn.datasets.readers.json_forms import find_form
from hpgcn.datasets.readers.network_graph import Network
from hpgcn.datasets.source import first_repeated, truncate
from hpgcn.datasets.text.column_names import DIRECTED
from hpgcn.datasets.text.json_files import parse_json
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import weights_of
from hpgcn.graphs.validation import check_finite

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.readers.json_forms import Form
    from hpgcn.datasets.source import Source

NAMES = ("id", "key", "name", "label")  # keys of a node; links use the first that fits all


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read the links between nodes.

    A link names its nodes by id, else by name, else by position in `nodes`. A directed
    link u -> v is A[v, u]. A link is read in both directions unless the file says that
    it is directed. Parallel links are duplicates. Edges without nodes are read like an
    edge list. Objects with source and target are like a list with these columns; all
    other edges are like one without a header.
    """
    form = find_form(parse_json(source, memory, dict | list, "an object or a list"), source)
    if form.nodes is None:
        return _edge_list(form, source, memory, options)
    if flags := options.flags("base", "num_nodes", "compact"):
        raise UsageError(f"{' and '.join(flags)}: {source} has a list of nodes, which are the "
                         "vertices")

    # number the nodes
    notes = [*form.notes]
    links = [link[:3] for link in form.links]
    key, number = _numbering(form.nodes, links, source, notes)
    ends = np.array([[number[link[end]] for link in links] for end in range(2)], np.int64)
    names = [str(node.pop(key, k)) for k, node in enumerate(form.nodes)]

    # add the reverse of undirected links
    default = form.directed or False
    directed = np.array([default if link[3] is None else link[3] for link in form.links], bool)
    unsaid = "" if form.directed is not None else (
        ", because the file gives no direction (with \"directed\": true in it they have one)")
    network = Network(names, form.nodes, links, directed, ends, both_listed=form.both_listed,
                      notes=notes, unsaid=unsaid)
    raw = network.raw(source, options.asked_weights)
    if form.pairs:
        raw.rows, raw.columns, raw.reads = raw.columns, raw.rows, ROW_FIRST
    return raw


def _edge_list(form: Form, source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Return the Raw of links alone, read like an edge list as text."""
    links = [link[:3] for link in form.links]
    w, name, notes = weights_of(links, options.asked_weights, source, "--weights {}".format)
    check_finite(w, f"{source}: weight")
    w = None if name is None else w
    notes = [*form.notes, *notes]
    notes += [f"weights read from {name} (--unweighted sets them to 1)"] * (name is not None)
    ends = [[link[end] for link in links] for end in range(2)]
    names = ("u", "v") if form.pairs else DIRECTED
    if all(type(end) is int and 0 <= end < 2**63 for end in ends[0] + ends[1]):
        ends = [np.array(end, np.int64) for end in ends]
        raw = read_edge_arrays(ends, w, None, options, memory, [f"{source}:", *names], names=names)
    else:
        options.refuse_for_names(source)
        known = VertexNames(source, memory)
        pairs = [[known.number(str(end), f"{source}: {word}") for word, end in zip(names, link)]
                 for link in links]
        ends = np.array(pairs, np.int64).T
        columns = EdgeColumns.of_ends(names, w is not None)
        raw = Stream(str(source), iter([(*ends, w)]), columns, base_known=True, names=known,
                     compact=options.compact).collect(memory)
    raw.notes = notes + raw.notes
    return raw


def _numbering(nodes: list[dict], links: list, where: Source,
               notes: list) -> tuple[str | None, dict]:
    """Return the member that names the nodes (or None), and the number of each end."""
    # find the keys whose values are distinct
    n = len(nodes)
    ends = {end for start, stop, _ in links for end in (start, stop)}
    names = {}  # key -> ids of all nodes
    for key in NAMES:
        values = [node.get(key) for node in nodes]
        if not any(value is None or isinstance(value, list | dict) for value in values):
            if key == "id" and len(set(values)) < n:
                again = repr(first_repeated(values))
                raise DataError(f"{where}: node {truncate(again, 40)} occurs twice")
            if len(set(values)) == n:
                names[key] = values

    # take the first key that all links use; nodes or links may write numbers as text
    for key, values in names.items():
        number = {value: k for k, value in enumerate(values)}
        if ends <= number.keys():
            return key, number
    for key, values in names.items():
        number = {str(value): k for k, value in enumerate(values)}
        if key in ("id", "key") and {str(end) for end in ends} <= number.keys():
            return key, {end: number[str(end)] for end in ends}

    # otherwise links use positions: refuse an invalid end
    key = next(iter(names), None)
    first = names.get(key)
    common = ends.intersection(first or ())

    def is_place(end: object) -> bool:
        return type(end) is int and 0 <= end < n

    if common or not all(map(is_place, ends)):
        wrong = next(end for link in links for end in link[:2]
                     if (end not in first if common else not is_place(end)))
        called = next(iter(names), "place")
        raise DataError(f"{where}: a link ends at {truncate(repr(wrong), 40)}, expected the "
                        f"{called} of a node")

    # positions are vertex numbers
    notes.append("links give the positions of nodes in their list, from 0")
    return key, {k: k for k in range(n)}

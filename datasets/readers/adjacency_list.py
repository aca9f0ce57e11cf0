"""Reader of adjacency lists: a line has a vertex and its neighbors, `u v1 .. vk` or `u
k v1 .. vk`.
"""
import numpy as np

from hpgcn.datasets.edges.columns import EdgeColumns
from hpgcn.datasets.edges.neighbor_lists import FormError, split_lists
from hpgcn.datasets.edges.stream import Stream
from hpgcn.datasets.edges.vertex_names import VertexNames
from hpgcn.datasets.raw_graph import ROW_FIRST, Raw
from hpgcn.datasets.text.lines import WHOLE, whole_text
from hpgcn.datasets.text.parse import U, V
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError

TEXT_FACTOR = 50  # bytes of memory that a byte of text may become


def read(source, memory, options):
    """Read each neighbor in a line as an edge in both directions; `split_lists` describes
    the lines.

    An edge that is listed at both ends, or twice, counts once. With the option `bipartite` the
    first words of lines are ids of one kind, and the others of another.
    """
    text = whole_text(source, memory, TEXT_FACTOR).decode()
    try:
        rows, notes = split_lists(text.splitlines())
    except FormError as error:
        raise DataError(f"{source}: not an adjacency list: {error}") from None
    if options.bipartite:
        return _of_two_kinds(rows, notes, source, memory)
    nodes = Nodes(list(dict.fromkeys(word for row in rows for word in row)), source)
    u = np.repeat([nodes.number[row[0]] for row in rows], [len(row) - 1 for row in rows])
    v = np.array([nodes.number[word] for row in rows for word in row[1:]], np.int64)
    ends = np.unique(np.stack([np.minimum(u, v), np.maximum(u, v)]), axis=1)
    images = ends[::-1, ends[0] != ends[1]]
    rows, columns = np.concatenate([ends, images], axis=1).astype(np.int64)
    return Raw(len(nodes.number), rows, columns, original_ids=nodes.original_ids,
               notes=["edges read in both directions", *notes])


def _of_two_kinds(rows, notes, source, memory):
    """Return the Raw of lists such as a user and the user's items."""
    whole = all(WHOLE.fullmatch(word) for row in rows for word in row)
    names = None if whole else VertexNames(source, memory, apart=True)

    def number(word, side):
        return int(word) if whole else names.number(word, f"{source}: id", side)

    pairs = [(number(row[0], U), number(word, V)) for row in rows for word in row[1:]]
    u, v = np.array(pairs, np.int64).reshape(-1, 2).T
    raw = Stream(str(source), iter([(u, v, None)]), EdgeColumns((U, V)), names=names,
                 base_known=True, sides=ROW_FIRST).collect(memory)
    raw.notes += notes
    return raw

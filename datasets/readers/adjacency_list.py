"""Reader of adjacency lists: a line has a vertex and its neighbors, `u v1 .. vk` or `u
k v1 .. vk`.
"""
import numpy as np

from hpgcn.datasets.edges.neighbor_lists import FormError, split_lists
from hpgcn.datasets.edges.text import whole_text
from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError

TEXT_FACTOR = 50  # bytes of memory that a byte of text may become


def read(source, memory):
    """Read each neighbor in a line as an edge in both directions; `split_lists` describes
    the lines.

    An edge that is listed at both ends, or twice, counts once.
    """
    text = whole_text(source, memory, TEXT_FACTOR).decode()
    try:
        rows, notes = split_lists(text.splitlines())
    except FormError as error:
        raise DataError(f"{source}: not an adjacency list: {error}") from None
    nodes = Nodes(list(dict.fromkeys(word for row in rows for word in row)), source)
    u = np.repeat([nodes.number[row[0]] for row in rows], [len(row) - 1 for row in rows])
    v = np.array([nodes.number[word] for row in rows for word in row[1:]], np.int64)
    ends = np.unique(np.stack([np.minimum(u, v), np.maximum(u, v)]), axis=1)
    images = ends[::-1, ends[0] != ends[1]]
    rows, columns = np.concatenate([ends, images], axis=1).astype(np.int64)
    return Raw(len(nodes.number), rows, columns, original_ids=nodes.original_ids,
               notes=["edges read in both directions", *notes])

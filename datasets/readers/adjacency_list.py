"""Reader of adjacency lists: a line has a vertex and its neighbours, `u v1 .. vk` or `u
k v1 .. vk`.
"""
import numpy as np

from hpgcn.datasets.edges.text import WHOLE, whole_text
from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError

TEXT_FACTOR = 50  # bytes of memory that a byte of text may become
MARKS = ("#", "%")  # first characters of a comment
FEW = 3  # lines, from which on counts are no accident


def read(source, memory):
    """Read each neighbour in a line as an edge in both directions; `_lines` describes
    comments.

    An edge that is listed at both ends, or twice, counts once.
    """
    rows, notes = _lines(whole_text(source, memory, TEXT_FACTOR).decode(), source)
    if (counted := _without_counts(rows)) is not None:
        rows = counted
        notes.append("the second number of each line is its number of neighbors")
    nodes = Nodes(list(dict.fromkeys(word for row in rows for word in row)), source)
    u = np.repeat([nodes.number[row[0]] for row in rows], [len(row) - 1 for row in rows])
    v = np.array([nodes.number[word] for row in rows for word in row[1:]], np.int64)
    ends = np.unique(np.stack([np.minimum(u, v), np.maximum(u, v)]), axis=1)
    images = ends[::-1, ends[0] != ends[1]]
    rows, columns = np.concatenate([ends, images], axis=1).astype(np.int64)
    return Raw(len(nodes.number), rows, columns, original_ids=nodes.original_ids,
               notes=["edges read in both directions", *notes])


def _lines(text, source):
    """Return the words of each line, and notes; marked lines above the first unmarked
    one are comments.

    A marked line begins with # or %. Below the first unmarked line it is a comment if
    all ids are whole numbers, else a vertex.
    """
    rows = [line.split() for line in text.splitlines()]
    rows = [row for row in rows if row]
    first = next((k for k, row in enumerate(rows) if row[0][0] not in MARKS), len(rows))
    above, rows = rows[:first], rows[first:]

    if not rows:
        raise DataError(f"{source}: no vertices, expected lines of a vertex and its neighbors")

    # marks below the first edge: comments, unless ids are words
    plain = [row for row in rows if row[0][0] not in MARKS]
    count = len(rows) - len(plain)
    numbers = all(WHOLE.fullmatch(word) for row in plain for word in row)
    read = "they are skipped as comments" if numbers else "they are read as vertices"

    notes = [f"{count} lines below the first edge begin with # or %: {read}"] * bool(count)
    count = 0 if numbers else sum(len(row[0]) > 1 for row in above)
    notes += [f"{count} lines above the first edge begin with # or %: they are skipped as "
              "comments"] * bool(count)

    return plain if numbers else rows, notes


def _without_counts(rows):
    """Return the rows without the number of neighbours after each vertex; None if they
    have no such numbers.

    The first line may be the number of vertices. Fewer than FEW lines may fit by
    accident: then each vertex must have a line of its own.
    """
    if rows[0] == [str(len(rows) - 1)]:
        rows = rows[1:]
    if not rows or any(len(row) < 2 or row[1] != str(len(row) - 2) for row in rows):
        return None
    firsts = {row[0] for row in rows}
    complete = len(firsts) == len(rows) and firsts >= {word for row in rows for word in row[2:]}
    return [[row[0], *row[2:]] for row in rows] if complete or len(rows) >= FEW else None

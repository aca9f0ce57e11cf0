"""Reader of adjacency lists: a line has a vertex and its neighbors.

The line is `u v1 .. vk` or, with the number of neighbors, `u k v1 .. vk`. Lines of
other forms are refused.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.edges.columns import EdgeColumns
from hpgcn.datasets.edges.edge_stream import Stream
from hpgcn.datasets.edges.vertex_names import VertexNames
from hpgcn.datasets.raw_graph import ROW_FIRST, Raw
from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.lines import WHOLE, whole_text
from hpgcn.datasets.text.parse import U, V
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.classes import NUMBER

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.source import Source

TEXT_FACTOR = 50  # memory per byte of text
MARKS = ("#", "%")  # first characters of a comment
FEW = 3  # with fewer lines, matching counts may be an accident
SEPARATORS = ";,"  # in addition to blanks
HEAD = re.compile(r"([^\s:]+)\s*:(?:\s+|$)|(\d+):(?=\d[^:]*$)")  # the vertex in `0: 1 2`
OWN_LINE = 0.25  # least share of names that begin a line; with fewer, lines are prose
SIGNS = re.compile(r"[-=]*>|--+|[|:=]+|[\[\](){}].*|.*[\[\](){}]")  # words that are no ids
COUNTS_FIRST = (
    "each line begins with the number of words after it, and nothing names its vertex: awk "
    "'{for (k = 2; k <= NF; k++) print NR - 1, $k}' FILE > edges.txt, then convert edges.txt "
    "(with --bipartite if lines are of another kind than the words in them)")


class FormError(Exception):
    """Error for lines that are not a vertex and its neighbors."""


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read each neighbor in a line as an edge in both directions.

    See `split_lists` for the lines. An edge that is listed at both ends, or twice,
    counts once. With the option `bipartite` the first words of lines are ids of one
    kind, and all other words are ids of another.
    """
    text = whole_text(source, memory, TEXT_FACTOR).decode()
    try:
        rows, notes = split_lists(text.splitlines())
    except FormError as error:
        raise DataError(f"{source}: not an adjacency list: {error}") from None
    if options.bipartite:
        return _read_two_kinds(rows, notes, source, memory)
    nodes = Nodes(list(dict.fromkeys(word for row in rows for word in row)), source)
    u = np.repeat([nodes.number[row[0]] for row in rows], [len(row) - 1 for row in rows])
    v = np.array([nodes.number[word] for row in rows for word in row[1:]], np.int64)
    ends = np.unique(np.stack([np.minimum(u, v), np.maximum(u, v)]), axis=1)
    images = ends[::-1, ends[0] != ends[1]]
    rows, columns = np.concatenate([ends, images], axis=1).astype(np.int64)
    return Raw(len(nodes.number), rows, columns, original_ids=nodes.original_ids,
               notes=["edges read in both directions", *notes])


def _read_two_kinds(rows: list[list[str]], notes: list[str], source: Source, memory: int) -> Raw:
    """Return the Raw of lists such as a user and the user's items."""
    whole = all(WHOLE.fullmatch(word) for row in rows for word in row)
    names = None if whole else VertexNames(source, memory, apart=True)

    def number(word: str, side: int) -> int:
        return int(word) if whole else names.number(word, f"{source}: id", side)

    pairs = [(number(row[0], U), number(word, V)) for row in rows for word in row[1:]]
    u, v = np.array(pairs, np.int64).reshape(-1, 2).T
    raw = Stream(str(source), iter([(u, v, None)]), EdgeColumns((U, V)), names=names,
                 base_known=True, sides=ROW_FIRST).collect(memory)
    raw.notes += notes
    return raw


def split_lists(lines: list[str]) -> tuple[list, list]:
    """Return the words of each line, and notes.

    A marked line begins with # or %. Marked lines above the first unmarked one are
    comments. Below it they are comments if all ids are whole numbers, else vertices. A
    second number in each line that counts its neighbors is left out. FormError if lines
    have another form.
    """
    lines = [text for line in lines if (text := line.strip())]
    first = next((k for k, text in enumerate(lines) if text[0] not in MARKS), len(lines))
    above, lines = lines[:first], lines[first:]
    if above and above[0].lower().startswith("%%matrixmarket"):
        raise FormError("a MatrixMarket file: use --format mtx")
    if not lines:
        raise FormError("no vertices, expected lines of a vertex and its neighbors")
    if lines[0][0] == "*":
        raise FormError(f"{truncate(lines[0], 40)!r} begins a section")
    rows, divided = _divide(lines)
    notes = [*divided]

    # marks below the first edge begin comments, unless ids are words
    plain = [row for row in rows if row[0][0] not in MARKS]
    count = len(rows) - len(plain)
    numbers = all(WHOLE.fullmatch(word) for row in plain for word in row)
    read = "they are skipped as comments" if numbers else "they are read as vertices"
    notes += [f"{count} lines below the first edge begin with # or %: {read}"] * bool(count)
    count = 0 if numbers else sum(len(text.split()[0]) > 1 for text in above)
    notes += [f"{count} lines above the first edge begin with # or %: they are skipped as "
              "comments"] * bool(count)
    rows = plain if numbers else rows

    # refuse other formats and counts of vertices or neighbors
    _refuse_other_forms(rows)
    if _is_count(rows):
        rows = rows[1:]
        notes.append("the first line is the number of vertices")
    if not divided and (counted := _without_counts(rows)) is not None:
        return counted, [*notes, "the second number of each line is its number of neighbors"]
    if _begin_with_counts(rows):
        raise FormError(COUNTS_FIRST)
    return rows, notes


def _divide(lines: list[str]) -> tuple[list, list]:
    """Return the words of each line, and notes on separators other than blanks."""
    notes = []
    heads = [HEAD.match(line) for line in lines]
    if all(heads):
        lines = [line[head.end():] for head, line in zip(heads, lines)]
        notes.append("a colon follows the vertex of each line")

    # split at commas or semicolons if blanks divide no words
    several = sum(len(re.split(r"[\s;,]+", line)) > 1 for line in lines)
    separator = next((each for each in SEPARATORS
                      if 2 * sum(each in line for line in lines) > several), None)
    if separator is None and not all(heads) and (found := _divide_neighbors(lines)) is not None:
        return found
    rows = [line.split(separator) for line in map(str.strip, lines)]
    if separator is not None:
        rows = [[word.strip() for word in row if word.strip()] for row in rows]
        if any(len(word.split()) > 1 for row in rows for word in row):
            raise FormError(f"{separator!r} divides some words, and blanks divide others")
        notes.append(f"{separator!r} divides the words of a line")
    if all(heads):
        rows = [[head[1] or head[2], *row] for head, row in zip(heads, rows)]
    return [row for row in rows if row], notes


def _divide_neighbors(lines: list[str]) -> tuple[list[list[str]], list[str]] | None:
    """Return the words of lines such as `0 1,2`, and a note; None for other lines."""
    pairs = [line.split(None, 1) for line in lines]
    tails = [pair[1] for pair in pairs if len(pair) > 1]
    for separator in SEPARATORS:
        parts = [[word.strip() for word in tail.split(separator)] for tail in tails]
        if any(len(part) > 1 for part in parts) and not any(
                len(word.split()) != 1 for part in parts for word in part):
            rows = [[pair[0], *(map(str.strip, pair[1].split(separator)) if pair[1:] else ())]
                    for pair in pairs]
            return rows, [f"{separator!r} divides the neighbors of a line"]
    return None


def _refuse_other_forms(rows: list[list]) -> None:
    """Raise FormError for signs that are no ids, matrices and prose."""
    words = [word for row in rows for word in row]
    sign = next((word for word in words if SIGNS.fullmatch(word)), None)
    if sign is not None:
        raise FormError(f"{truncate(sign, 40)!r} is no id of a vertex")
    _refuse_matrix(rows)
    if [len(rows) - 1, sum(map(len, rows[1:]))] in _sizes(rows[0]):
        raise FormError("the first line counts vertices and edges, and lines have neighbors "
                        "alone: METIS (--format metis) numbers them from 1")
    if not any(map(str.isdecimal, rows[0])) and len(rows) > 1 and all(
            word.isdecimal() for row in rows[1:] for word in row):
        raise FormError(f"the first line, {truncate(' '.join(rows[0]), 40)!r}, looks like a "
                        "header: remove it, or read a list of edges with --format csv")
    number = next((word for word in words if NUMBER.fullmatch(word) and not word.isdecimal()), None)
    if number is not None:
        raise FormError(f"{number} is no id of a vertex, expected whole numbers or names")

    # in lists of neighbors, many names begin a line
    names = set(words)
    firsts = {row[0] for row in rows}
    if not all(map(str.isdecimal, names)) and len(firsts) < OWN_LINE * len(names):
        raise FormError(f"only {len(firsts)} of {len(names)} names begin a line: is it prose? If "
                        "not, give more vertices lines of their own")


def _sizes(row: list[str]) -> list[list]:
    """Return the numbers of lines and of words that `vertices edges` may mean."""
    if len(row) != 2 or not all(map(str.isdecimal, row)):
        return []
    n, m = map(int, row)
    return [[n, m], [n, 2 * m]]


def _refuse_matrix(rows: list[list]) -> None:
    """Raise FormError for a matrix of numbers, (n, n) or of 0 and 1."""
    width = len(rows[0])
    words = {word for row in rows for word in row}
    if width < FEW or any(len(row) != width for row in rows) or not all(map(
            NUMBER.fullmatch, words)):
        return
    square = len(rows) == width and len({row[0] for row in rows}) < width
    if square or (words <= {"0", "1"} and len(rows) > 1):
        raise FormError(matrix_way(width))


def matrix_way(width: int, delimiter: str = "") -> str:
    """Return advice on a matrix of numbers in a text."""
    option = f", delimiter='{delimiter}'" if delimiter else ""
    return (f"{width} columns of numbers: for a matrix (n, n), A = scipy.sparse.csr_array("
            f"numpy.loadtxt(FILE{option})); scipy.sparse.save_npz('graph.npz', A), then convert "
            "graph.npz")


def _begin_with_counts(rows: list[list]) -> bool:
    """Return whether each line begins with the number of words after it, as in CiteULike."""
    return (len(rows) >= FEW or len({row[0] for row in rows}) < len(rows)) and all(
        row[0] == str(len(row) - 1) for row in rows)


def _is_count(rows: list[list]) -> bool:
    """Return whether the first line is the number of the lines below, which all begin anew."""
    n = len(rows) - 1
    firsts = {row[0] for row in rows[1:]}
    return rows[0] == [str(n)] and len(firsts) == n > 0 and (
        rows[0][0] not in firsts or "0" not in firsts)


def _without_counts(rows: list[list[str]]) -> list[list[str]] | None:
    """Return rows without the number of neighbors after each vertex, or None.

    None means that lines have no such number.
    """
    if any(len(row) < 2 or row[1] != str(len(row) - 2) for row in rows):
        return None
    counted = [[row[0], *row[2:]] for row in rows]
    if _list_both_ends(rows) and not _list_both_ends(counted):
        return None
    firsts = {row[0] for row in rows}
    complete = len(firsts) == len(rows) and firsts >= {word for row in counted for word in row}
    return counted if complete or len(rows) >= FEW else None


def _list_both_ends(rows: list[list[str]]) -> bool:
    """Return whether each vertex is a neighbor of its neighbors."""
    pairs = {(row[0], word) for row in rows for word in row[1:]}
    return all((v, u) in pairs for u, v in pairs)

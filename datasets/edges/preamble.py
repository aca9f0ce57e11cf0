"""Read the lines above an edge list: comments with facts, and counts.

SNAP, KONECT and hpgcn write facts into comments. Counts are lines such as `4 3` above
three edges.
"""
from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from typing import TYPE_CHECKING, NamedTuple

from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.column_names import is_header
from hpgcn.datasets.text.lines import BLANKS, MARKS, open_lines
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.text.lines import TextLines

VERTICES = re.compile(rb"[#%] hpgcn .*\bvertices (\d{1,18})\b")  # written by `hpgcn generate`
UNDIRECTED = re.compile(rb"[#%]\s*undirected (graph|network)\b", re.IGNORECASE)
COUNTED = re.compile(rb"[#%].*?\b(?:num_?)?(?:nodes|vertices)(?:\s*[:=]\s*|\s+)(\d{1,18})"
                     rb"(?![\d.,]*\d)", re.IGNORECASE)  # as in files of SNAP
WEIGHTS = (b"unweighted|positive|posweighted|signed|multisigned|weighted|multiweighted|"
           b"multiposweighted|dynamic")
KONECT = re.compile(rb"%\s*(sym|asym|bip)\s+(" + WEIGHTS + rb")\s*", re.IGNORECASE)
KONECT_SIZES = re.compile(rb"%\s*\d+\s+(\d{1,18})\s+(\d{1,18})\s*")  # edges, vertices twice
STATED = re.compile(rb'"?sep=.?"?')  # a line for Excel with the separator
DIRECTIONS = {"sym": "undirected, each edge listed once", "asym": "directed",
              "bip": "bipartite"}
MOST_WORDS = 16  # longer comments are no header
MOST_LINES = 1000  # comments that are remembered
FIELDS = re.compile(rb"[\s,;]+")
COUNT = re.compile(rb"\d{1,18}")
ROW = re.compile(rb"^[ \t\r]*[^#% \t\r\n]", re.MULTILINE)  # the first character of an edge


@dataclass
class Comments:
    """Facts that the comments above an edge list state."""

    num_nodes: int | None = None  # number of vertices, whose ids are 0..num_nodes - 1
    declared_nodes: int | None = None  # declared number of vertices, of any ids
    undirected: bool = False  # declared in files of SNAP
    konect: tuple[str, str] | None = None  # KONECT's words for the graph (sym, asym) and weights
    headers: dict[int, list[str]] = field(default_factory=dict)  # number of columns -> last header
    lines: deque = field(default_factory=lambda: deque(maxlen=MOST_LINES))  # other comments

    def take(self, text: bytes) -> None:
        """Extract the facts from one comment, bytes without surrounding blanks."""
        if declared := VERTICES.match(text):
            self.num_nodes = int(declared[1])
            return
        if konect := KONECT.fullmatch(text):
            self.konect = konect[1].decode().lower(), konect[2].decode().lower()
            return

        self.undirected |= UNDIRECTED.match(text) is not None
        if match := COUNTED.match(text):
            self.declared_nodes = int(match[1])
        elif self.konect and (sizes := KONECT_SIZES.fullmatch(text)):
            self.declared_nodes = int(sizes[1]) + (int(sizes[2]) if self.bipartite else 0)

        # keep a comment that may name the columns
        title = text.lstrip(b"#% \t").decode("utf-8", "replace")
        words = re.split(r"[\s,;]+", title, maxsplit=MOST_WORDS)
        if len(words) <= MOST_WORDS and is_header(words):
            self.headers[len(words)] = words
        else:
            self.lines.append(text)

    @property
    def bipartite(self) -> bool:
        return self.konect is not None and self.konect[0] == "bip"

    @property
    def listed_once(self) -> bool:
        return self.konect is not None and self.konect[0] == "sym"

    def notes(self, base: int | None) -> list[str]:
        """Return notes on how KONECT's first line was read.

        `base` is the user's --base, or None.
        """
        if not self.konect:
            return []
        shape, weights = self.konect
        note = f"KONECT's header: {DIRECTIONS[shape]}"
        if base is None:
            note += "; ids begin at 1"
        if weights in ("positive", "dynamic") or weights.startswith("multi"):
            note += "; parallel edges are merged, and their weights are summed unless all are 1"
        return [note]


def read_comments(table: TextLines) -> tuple[Comments, bytes]:
    """Read up to the first line that is no comment; return the Comments and that line."""
    comments = Comments()
    while (line := table.readline()) is not None:
        text = line.strip(BLANKS)
        if table.line == 1 and STATED.fullmatch(text):
            continue
        if text and text[:1] not in MARKS:
            return comments, line
        if text:
            comments.take(text)
    marked = "; lines above the first edge that begin with # or % are comments, unless quoted"
    raise DataError(f"{table.where}: no edges in {table.line} lines, expected lines of two ids"
                    + marked * bool(comments.lines))


class Sizes(NamedTuple):
    """Counts in the first lines of an edge list."""

    lines: int  # number of lines with counts
    num_nodes: int | None  # None if the counts lack it
    note: str


def find_sizes(line: bytes, following: list[bytes], source: Source, start: int, *,
               complete: bool) -> Sizes | None:
    """Return the Sizes at the top of an edge list; None if its first line is an edge.

    `line` has the number `start` in the file, and `following` are the lines below it,
    all of them if `complete`. One number of two, or the last of three, must be the
    number of edges, and the others must exceed all ids. Two numbers may be in the other
    order if each vertex has an edge. A lone number may be either. A third number 0 or 1 is
    a flag.
    """
    # expect one line of up to three numbers, or two lines of one
    counts = _fields(line)
    rows = [_fields(text) for text in following if text.strip(BLANKS)[:1] not in (b"", *MARKS)]
    lines = 1
    if len(counts) == 1 and rows and len(rows[0]) == 1:
        counts += rows.pop(0)
        lines = 2
    rows = [row for row in rows if len(row) > 1]
    if not (rows and 1 <= len(counts) <= 3 and all(map(COUNT.fullmatch, counts))):
        return None

    # an edge in both directions is no line of counts
    if len(rows) == 1 and rows[0][:2] == counts[::-1]:
        return None

    # compare counts with the first edges and the size, then with all edges
    counts = list(map(int, counts))
    length = sum(map(len, following)) / len(following) + 1
    if complete:
        shape = _shape(counts, rows, partial(eq, len(rows)))
    else:
        shape = _shape(counts, rows, lambda count: count > len(rows) and (
            source.packing or 0.5 < count * length / source.size < 2))
        shape = shape and _shape(counts, rows, partial(eq, _count_rows(source, start + lines - 1)))
    if shape is None:
        return None
    num_nodes, what = shape
    text = truncate(" ".join(map(str, counts)))
    where = f"line {start}" if lines == 1 else f"lines {start} and {start + 1}"
    option = ": use --no-header to read an edge" if len(_fields(line)) > 1 else ""
    return Sizes(lines, num_nodes, f"{where} ({text}) {'is' if lines == 1 else 'are'} read as "
                                   f"{what}{option}")


def _fields(line: bytes) -> list:
    return FIELDS.split(line.replace(b'"', b"").strip(BLANKS))


def _shape(counts: list[int], rows: list[list], is_rows: Callable) -> tuple[int | None, str] | None:
    """Return the number of vertices (or None) and the meaning of `counts`.

    Return None if the counts do not fit. `is_rows(count)` returns whether a count may
    be the number of edges. `rows` are the first edges.
    """
    def fits(count: int, ids: list[int]) -> bool:
        low, high = min(ids, default=1), max(ids, default=0)
        return count > high if low == 0 else count >= high

    ids = [[int(row[end]) for row in rows if COUNT.fullmatch(row[end])] for end in range(2)]
    both = ids[0] + ids[1]
    if len(counts) == 1:
        if is_rows(counts[0]):
            return None, "the number of edges"
        return (counts[0], "the number of vertices") if both and fits(counts[0], both) else None
    if len(counts) == 3 and counts[2] in (0, 1):
        found = _shape(counts[:2], rows, is_rows)
        return found and (found[0], f"{found[1]}, and a flag")
    if len(counts) == 3:
        if not (is_rows(counts[2]) and fits(counts[0], ids[0]) and fits(counts[1], ids[1])):
            return None
        same = counts[0] == counts[1]
        return counts[0] if same else None, "the numbers of rows, columns and edges"
    for (n, m), what in ((counts, "vertices and edges"), (counts[::-1], "edges and vertices")):
        # repeated edges or an unusual order make it doubtful
        every = n == len(set(both))
        usual = what == "vertices and edges"
        if fits(n, both) and (((usual or every) and is_rows(m)) or (every and is_rows(2 * m))):
            return n, f"the numbers of {what}"
    return None


def _count_rows(source: Source, start: int) -> int:
    """Return the number of edges below line `start` of a file."""
    with open_lines(source) as table:
        for _ in range(start):
            table.readline()
        return sum(len(ROW.findall(block)) for block in table.blocks())

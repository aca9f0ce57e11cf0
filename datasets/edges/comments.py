"""Comments above an edge list, and the facts that SNAP, KONECT and hpgcn write there."""
import re
from collections import deque
from dataclasses import dataclass, field

from hpgcn.datasets.text.column_names import is_header
from hpgcn.datasets.text.lines import BLANKS, MARKS
from hpgcn.errors import DataError

VERTICES = re.compile(rb"[#%] hpgcn .*\bvertices (\d{1,18})\b")  # as `hpgcn generate` writes it
UNDIRECTED = re.compile(rb"[#%]\s*undirected (graph|network)\b", re.IGNORECASE)
COUNTED = re.compile(rb"[#%].*?\b(?:num_?)?(?:nodes|vertices)(?:\s*[:=]\s*|\s+)(\d{1,18})"
                     rb"(?![\d.,]*\d)", re.IGNORECASE)  # SNAP
WEIGHTS = (b"unweighted|positive|posweighted|signed|multisigned|weighted|multiweighted|"
           b"multiposweighted|dynamic")
KONECT = re.compile(rb"%\s*(sym|asym|bip)\s+(" + WEIGHTS + rb")\s*", re.IGNORECASE)
KONECT_SIZES = re.compile(rb"%\s*\d+\s+(\d{1,18})\s+(\d{1,18})\s*")  # edges, vertices twice
STATED = re.compile(rb'"?sep=.?"?')  # a first line that Excel takes for the separator
DIRECTIONS = {"sym": "undirected, each edge listed once", "asym": "directed",
              "bip": "bipartite"}
MOST_WORDS = 16  # words of a comment that may be a header
MOST_LINES = 1000  # comment lines that are kept


@dataclass
class Comments:
    """Facts that the comments above an edge list state."""

    num_nodes: int | None = None  # vertices, numbered from 0, isolated ones included
    counted: int | None = None  # vertices that the edges are said to have, whatever their ids
    undirected: bool = False  # SNAP says that edges have no direction
    konect: tuple[str, str] | None = None  # its words for the graph (sym, asym) and for the weights
    headers: dict[int, list[str]] = field(default_factory=dict)  # by length: the last of each
    lines: deque = field(default_factory=lambda: deque(maxlen=MOST_LINES))  # those of no header

    def take(self, text):
        """Extract the facts from one comment, bytes without surrounding blanks."""
        if declared := VERTICES.match(text):
            self.num_nodes = int(declared[1])
            return
        if konect := KONECT.fullmatch(text):
            self.konect = konect[1].decode().lower(), konect[2].decode().lower()
            return

        self.undirected |= UNDIRECTED.match(text) is not None
        if counted := COUNTED.match(text):
            self.counted = int(counted[1])
        elif self.konect and (sizes := KONECT_SIZES.fullmatch(text)):
            self.counted = int(sizes[1]) + (int(sizes[2]) if self.bipartite else 0)

        # a comment may name the columns
        title = text.lstrip(b"#% \t").decode("utf-8", "replace")
        words = re.split(r"[\s,;]+", title, maxsplit=MOST_WORDS)
        if len(words) <= MOST_WORDS and is_header(words):
            self.headers[len(words)] = words
        else:
            self.lines.append(text)

    @property
    def bipartite(self):
        return self.konect is not None and self.konect[0] == "bip"

    @property
    def listed_once(self):
        return self.konect is not None and self.konect[0] == "sym"

    def notes(self, base):
        """Return notes on how KONECT's first line was read; `base` is the user's
        --base, or None.
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


def read_comments(table):
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

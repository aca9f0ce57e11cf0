"""Edge lists as text: SNAP's (.txt), KONECT's, and CSV, with two ids a line and maybe a weight.

Separators are blanks, commas or semicolons, or tabs under a header with tabs; #
and % begin lines of comments. A header says what the columns are, or --columns
does; without both, the line `u v w` is the entry a[u, v] of weight w.
"""
import re
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from hpgcn.datasets import columns
from hpgcn.datasets.parse import INT64_MAX, PASSED, U, V, W
from hpgcn.datasets.stream import Stream
from hpgcn.datasets.text import BLANKS, Grammar, Table, split_line
from hpgcn.errors import DataError

NUMERIC = re.compile("[-+.]?[0-9]")
GEPHI_TYPE = re.compile(rb'[,;\t]\s*"?undirected"?\s*[,;\t\r\n]', re.IGNORECASE)
VERTICES = re.compile(rb"[#%] hpgcn .*\bvertices (\d{1,18})\b")  # as `hpgcn generate` writes it
UNDIRECTED = re.compile(rb"[#%]\s*undirected (graph|network)\b", re.IGNORECASE)
COUNTED = re.compile(rb"[#%].*?\bnodes:?\s+(\d{1,18})\b", re.IGNORECASE)  # SNAP
WEIGHTS = (b"unweighted|positive|posweighted|signed|multisigned|weighted|multiweighted|"
           b"multiposweighted|dynamic")
KONECT = re.compile(rb"%\s*(sym|asym|bip)\s+(" + WEIGHTS + rb")\s*", re.IGNORECASE)
KONECT_SIZES = re.compile(rb"%\s*\d+\s+(\d{1,18})\s+\d+\s*")  # edges, vertices twice
KONECT_ROLES = (U, V, W, PASSED)  # the last is a time
MOST_WORDS = 16  # of a comment that may be a header


@dataclass
class Comments:
    """What the comments above an edge list say of it."""

    num_nodes: int | None = None  # vertices, numbered from 0, isolated ones included
    counted: int | None = None  # vertices that the edges are said to have, whatever their ids
    undirected: bool = False  # SNAP says that edges have no direction
    konect: tuple[str, str] | None = None  # its words for the graph (sym, asym) and for the weights
    headers: dict[int, list[str]] = field(default_factory=dict)  # by length: the last of each

    def take(self, text, where):
        """Take a comment; DataError where KONECT says in it that the graph is bipartite."""
        if declared := VERTICES.match(text):
            self.num_nodes = int(declared[1])
            return
        if konect := KONECT.fullmatch(text):
            self.konect = konect[1].decode().lower(), konect[2].decode().lower()
            if self.konect[0] == "bip":
                raise DataError(f"{where}: a bipartite graph, whose two sides are both numbered "
                                "from 1: number one side after the other, and leave this line out")
        self.undirected |= UNDIRECTED.match(text) is not None
        if counted := COUNTED.match(text) or (self.konect and KONECT_SIZES.fullmatch(text)):
            self.counted = int(counted[1])
        title = text.lstrip(b"#% \t").decode("utf-8", "replace")
        words = re.split(r"[\s,;]+", title, maxsplit=MOST_WORDS)
        if len(words) <= MOST_WORDS and columns.is_header(words):
            self.headers[len(words)] = words


def read(source, memory, **options):
    with stream(source, None, 1, **options) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, *, names=None, base=None):
    """Open an edge list; `base` is 1 in KONECT's files unless it is given, else 0."""
    with source.open(digest) as file:
        table = Table(file, source)
        comments = Comments()
        while (line := table.readline()) is not None:
            text = line.strip(BLANKS)
            if text and text[:1] not in b"#%":
                break
            if text:
                comments.take(text, f"{source}: line {table.line}")
        if line is None:
            raise DataError(f"{source}: no edges in {table.line} lines, expected lines of two ids")

        delimiter, fields, header = _first_line(line)
        named = _columns(fields, header, comments, names, f"{source}: line {table.line}")
        if not header:
            table.unread(line)
        first = int(comments.konect is not None) if base is None else base
        high = INT64_MAX if comments.num_nodes is None else first + comments.num_nodes - 1
        grammar = Grammar(named.roles, delimiter, low=first, high=high)
        notes = [*named.notes, *_notes(comments, base, header and source.head())]
        with closing(table.parts(grammar, threads)) as parts:
            yield Stream(str(source), parts, named, comments.num_nodes, comments.counted, first,
                         base_known=base is not None or comments.konect is not None,
                         undirected=comments.undirected,
                         listed_once=comments.konect is not None and comments.konect[0] == "sym",
                         notes=notes)


def _first_line(line):
    """Return the first line's delimiter, its fields as str, and whether they are a header."""
    delimiter = b","
    if b"," not in line:
        delimiter = b";" if b";" in line else b" "
    for tried in (b"\t", delimiter) if b"\t" in line else (delimiter,):
        fields = [word.decode("utf-8", "replace").strip("\"'") for word in split_line(line, tried)]
        if not any(map(NUMERIC.match, fields)):
            return tried, fields, True
    return delimiter, fields, False


def _columns(fields, header, comments, names, where):
    """Return columns by `names`, the header, a header among the comments, or their places."""
    count = len(fields)
    if names is not None:
        return columns.of_flag(names, fields if header else [""] * count, where)
    if header:
        return columns.of_header(fields, where)
    if comments.konect:
        if not 2 <= count <= len(KONECT_ROLES):
            raise DataError(f"{where}: {count} field(s), expected 2 to 4 of KONECT's: two ids, "
                            "weight, time")
        return columns.Columns(KONECT_ROLES[:count])
    if count in comments.headers:
        where = f"{where}: comment above it"
        return columns.of_header(comments.headers[count], where, comment=True)
    if count < 2:
        raise DataError(f"{where}: {count} field(s), expected two ids and maybe a weight")
    if count > 3:
        words = columns.spelled(["u", "v", *"-" * (count - 2)])
        raise DataError(f"{where}: {count} columns without a header: name each, as in --columns "
                        f"{words} (w for weights, - for what is not read)")
    return columns.of_place(count)


def _notes(comments, base, head):
    """Say how KONECT's first line was read, and what the lines under a header say of direction."""
    if head and GEPHI_TYPE.search(head):
        return ["edges that are called undirected are read in one direction: --symmetrize takes "
                "both"]
    if not comments.konect:
        return []
    shape, weights = comments.konect
    directions = {"sym": "undirected, each edge listed once", "asym": "directed"}
    note = f"KONECT's header: {directions[shape]}"
    if base is None:
        note += "; ids begin at 1"
    if weights in ("positive", "dynamic") or weights.startswith("multi"):
        note += "; parallel edges are one, their weights summed unless all are 1"
    return [note]

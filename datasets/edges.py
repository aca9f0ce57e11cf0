"""Edge lists as text: SNAP's (.txt), KONECT's, and CSV, with two ids a line and maybe a weight.

Separators are blanks, commas or semicolons, or tabs under a header with tabs; #
and % begin lines of comments. Ids are integers or, where most of the first lines have others,
names. A header says what the columns are, or --columns does; without both, the line `u v w` is
the entry a[u, v] of weight w.
"""
import re
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from hpgcn.datasets import columns
from hpgcn.datasets.names import Names, is_name, named_parts
from hpgcn.datasets.parse import INT64_MAX, PASSED, U, V, W
from hpgcn.datasets.stream import Stream
from hpgcn.datasets.text import BLANKS, Grammar, Table, split_line
from hpgcn.errors import DataError, UsageError
from hpgcn.runtime.machine import memory_budget

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
    with stream(source, None, 1, memory=memory, **options) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, *, names=None, base=None, memory=None):
    """Open an edge list; `base` is 1 in KONECT's files unless it is given, else 0.

    Names of vertices may take `memory` bytes.
    """
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
        where = f"{source}: line {table.line}"
        ahead = _until_edge(table) if header else []
        header = header and not _is_edge_of_names(fields, line, ahead)
        if not header:
            ahead = [line, *ahead]
            if b"\t" in line and any(map(is_name, fields)):
                delimiter = b"\t"  # names may have blanks in them
                fields = _fields(line, delimiter)
        named = _columns(fields, header, comments, names, where)
        table.unread(*ahead)
        if not comments.konect and _has_names(source.head(), header, delimiter, named.roles):
            yield _of_names(source, table, named, delimiter, comments, base, memory)
            return
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
        fields = _fields(line, tried)
        if not any(map(NUMERIC.match, fields)):
            return tried, fields, True
    return delimiter, fields, False


def _fields(line, delimiter):
    return [word.decode("utf-8", "replace").strip("\"'") for word in split_line(line, delimiter)]


def _until_edge(table):
    """Return the next lines up to the first that is no comment."""
    lines = []
    while (line := table.readline()) is not None:
        lines.append(line)
        text = line.strip(BLANKS)
        if text and text[:1] not in b"#%":
            break
    return lines


def _is_edge_of_names(fields, line, ahead):
    """Whether words without commas are no header but an edge, as the next line is."""
    if columns.is_header(fields) or re.search(b"[,;]", line):
        return False
    following = _fields(ahead[-1], b" ") if ahead else []
    return bool(following) and not NUMERIC.match(following[0])


def _has_names(head, header, delimiter, roles):
    """Whether most of the first edges have an end that is no number."""
    lines = [line for line in head.split(b"\n") if line.strip(BLANKS)[:1] not in (b"", b"#", b"%")]
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()  # may be cut
    edges = [_fields(line, delimiter) for line in lines[header:]]
    named = [len(fields) == len(roles) and any(
        is_name(field) for field, role in zip(fields, roles) if role in (U, V))
        for fields in edges]
    return 2 * sum(named) > len(edges)


def _of_names(source, table, named, delimiter, comments, base, memory):
    """Return the Stream of edges whose ids are names."""
    if base:
        raise UsageError(f"--base {base}: the ids of {source} are names, which have none")
    met = Names(source, memory_budget() if memory is None else memory)
    parts = named_parts(table, named.roles, delimiter, met)
    return Stream(str(source), parts, named, counted=comments.counted, base_known=True,
                  undirected=comments.undirected, notes=list(named.notes), names=met)


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

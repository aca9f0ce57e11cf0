"""Edge lists as text: SNAP's (.txt), KONECT's, and CSV, with two ids a line and maybe a weight.

Separators are blanks, commas or semicolons, or tabs under a header with tabs; # and % begin lines of comments. What a
column is, a header says, or --columns; without both, the line `u v w` is the entry a[u, v] of weight w.
"""
import re
from contextlib import closing, contextmanager

from hpgcn.datasets import columns
from hpgcn.datasets.comments import read_comments
from hpgcn.datasets.parse import INT64_MAX, PASSED, U, V, W
from hpgcn.datasets.stream import Stream
from hpgcn.datasets.text import Grammar, Table, split_line
from hpgcn.errors import DataError

NUMERIC = re.compile("[-+.]?[0-9]")
UNDIRECTED = re.compile(rb'[,;\t]\s*"?undirected"?\s*[,;\t\r\n]', re.IGNORECASE)  # Gephi's column Type
KONECT = (U, V, W, PASSED)  # the last is a time


def read(source, memory, **options):
    """Read an edge list; see `stream`.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw
    """
    with stream(source, None, 1, **options) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source, digest, threads, *, names=None, base=None):
    """Open an edge list: a context that gives a Stream.

    Parameters
    ----------
    source : Source
    digest : hash object or None
        The bytes of the file go through it.
    threads : int
        That parse.
    names : str, optional
        Names of the columns, as --columns takes them; default those of the header.
    base : int, optional
        Id of vertex 0; default 1 in KONECT's files, else 0.

    Raises
    ------
    DataError
        No edges; a header that does not say what the columns are; a line without two ids (`base` to 2^63 - 1) or, if it
        should have one, without a finite weight.
    UsageError
        `names` that do not say what the columns are.
    """
    with source.open(digest) as file:
        table = Table(file, source)
        comments, line = read_comments(table)
        if line is None:
            raise _empty(table)
        delimiter, fields, header = _first_line(line)
        found = _columns(fields, header, comments, names, f"{source}: line {table.line}")
        if not header:
            table.unread(line)
        first = base if base is not None else 1 if comments.konect else 0
        high = INT64_MAX if comments.num_nodes is None else first + comments.num_nodes - 1
        grammar = Grammar(found.roles, delimiter, low=first, high=high)
        with closing(_parts(table, grammar, threads)) as parts:
            yield Stream(str(source), parts, found, comments.num_nodes, comments.counted, first,
                         base_known=base is not None or comments.konect is not None, undirected=comments.undirected,
                         listed_once=comments.konect is not None and comments.konect[0] == "sym",
                         notes=[*found.notes, *_said(comments, base, header and source.head())])


def _parts(table, grammar, threads):
    found = 0
    for part in table.parts(grammar, threads):
        found += part[0].size
        yield part
    if not found:
        raise _empty(table)


def _empty(table):
    return DataError(f"{table.where}: no edges in {table.line} lines, expected lines of two ids")


def _first_line(line):
    """Delimiter, fields as str, and whether they are a header, of the first line that is no comment."""
    delimiter = b"," if b"," in line else b";" if b";" in line else b" "
    for tried in (b"\t", delimiter) if b"\t" in line else (delimiter,):
        fields = [field.decode("utf-8", "replace").strip("\"'") for field in split_line(line, tried)]
        if header := not any(map(NUMERIC.match, fields)):
            return tried, fields, header
    return delimiter, fields, False


def _columns(fields, header, comments, names, where):
    """What the columns are: by `names`, by the header, by a header among the comments, or by their places."""
    if names is not None:
        return columns.of_flag(names, fields if header else [""] * len(fields), where)
    if header:
        return columns.of_header(fields, where)
    if comments.konect:
        if not 2 <= len(fields) <= len(KONECT):
            raise DataError(f"{where}: {len(fields)} field(s), expected 2 to 4 of KONECT's: two ids, weight, time")
        return columns.Columns(KONECT[:len(fields)])
    if len(fields) in comments.headers:
        return columns.of_header(comments.headers[len(fields)], f"{where}: comment above it", comment=True)
    if len(fields) < 2:
        raise DataError(f"{where}: {len(fields)} field(s), expected two ids and maybe a weight")
    if len(fields) > 3:
        words = columns.spelled(["u", "v", *"-" * (len(fields) - 2)])
        raise DataError(f"{where}: {len(fields)} columns without a header: name each, as in --columns {words} (w for "
                        "weights, - for what is not read)")
    return columns.of_place(len(fields))


def _said(comments, base, head):
    """What was made of KONECT's first line, in words, and what the first lines under a header say of direction."""
    if head and UNDIRECTED.search(head):
        return ["edges that are called undirected are read in one direction: --symmetrize takes both"]
    if not comments.konect:
        return []
    shape, weights = comments.konect
    said = "KONECT's header: " + {"sym": "undirected, each edge listed once", "asym": "directed"}[shape]
    if base is None:
        said += "; ids begin at 1"
    if weights in ("positive", "dynamic") or weights.startswith("multi"):
        said += "; parallel edges are one, their weights summed unless all are 1"
    return [said]

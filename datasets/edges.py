"""Edge lists: SNAP text (.txt, .txt.gz) and CSV, two ids a line and maybe a weight.

Separators are blanks, commas or semicolons; lines that start with # or % are comments; CSV may begin with a line of
column names. The line `u v` is the entry a[u, v].
"""
import re
from contextlib import closing, contextmanager

import numpy as np

from hpgcn.datasets.raw import Raw, compact_ids
from hpgcn.datasets.source import need
from hpgcn.datasets.stream import Stream
from hpgcn.datasets.text import BLANKS, Grammar, Table, words
from hpgcn.errors import DataError

VERTICES = re.compile(rb"^[#%] hpgcn .*\bvertices (\d{1,18})\b")  # as hpgcn.datasets.generate writes it
UNDIRECTED = re.compile(rb"^[#%]\s*undirected graph\b", re.IGNORECASE)
NUMERIC = re.compile(rb"[-+.]?[0-9]")


def read_snap(source, memory):
    """Read an edge list without a line of column names; see `read_csv`."""
    return _read(source, memory, named=False)


def read_csv(source, memory):
    """Read an edge list that may begin with a line of column names.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw

    Raises
    ------
    DataError
        No edges; a line that is not two ids (0 to 2^63 - 1) and, if the first line has one, a finite weight.
    """
    return _read(source, memory, named=True)


def stream_snap(source, digest, threads):
    """As `read_snap`, block by block; see `stream_csv`."""
    return _stream(source, digest, threads, named=False)


def stream_csv(source, digest, threads):
    """Open an edge list that may begin with a line of column names: a context that gives a Stream.

    Parameters
    ----------
    source : Source
    digest : hash object
        The bytes of the file go through it.
    threads : int
        That parse.

    Raises
    ------
    DataError
        As `read_csv`.
    """
    return _stream(source, digest, threads, named=True)


def _read(source, memory, named):
    with _opened(source, None, named) as (table, grammar, num_nodes, undirected):
        rows, columns, values = table.columns(grammar, memory=memory)
        if not rows.size:
            raise _empty(table)
    ids = None
    if num_nodes is None:
        num_nodes, rows, columns, ids = compact_ids(rows, columns)
    need(64 * num_nodes, memory, f"{source}: {num_nodes} vertices")
    return Raw(num_nodes, rows, columns, values, original_ids=ids, undirected=undirected)


@contextmanager
def _stream(source, digest, threads, named):
    with (_opened(source, digest, named) as (table, grammar, num_nodes, undirected),
          closing(_parts(table, grammar, threads)) as parts):
        yield Stream(str(source), parts, grammar.fields == 3, num_nodes, undirected)


def _parts(table, grammar, threads):
    found = 0
    for part in table.parts(grammar, threads):
        found += part[0].size
        yield part
    if not found:
        raise _empty(table)


@contextmanager
def _opened(source, digest, named):
    """Give the table after its head, its grammar, declared vertices or None, and whether it calls itself undirected."""
    with source.open(digest) as stream:
        table = Table(stream, source)
        num_nodes, undirected, line = _comments(table)
        if line is None:
            raise _empty(table)
        delimiter = b"," if b"," in line else b";" if b";" in line else b" "
        fields = words(line) if delimiter == b" " else [field.strip(BLANKS) for field in line.split(delimiter)]
        if len(fields) not in (2, 3):
            raise DataError(f"{source}: line {table.line}: {len(fields)} field(s), expected two ids and maybe a weight")
        if not (named and not any(NUMERIC.match(field.strip(b"\"'")) for field in fields)):
            table.unread(line)
        high = np.iinfo(np.int64).max if num_nodes is None else num_nodes - 1
        yield table, Grammar(len(fields), delimiter, high=high), num_nodes, undirected


def _empty(table):
    return DataError(f"{table.where}: no edges in {table.line} lines, expected lines of two ids")


def _comments(table):
    """Skip blank lines and comments; return (declared vertices, declared undirected, the first other line)."""
    num_nodes, undirected = None, False
    while (line := table.readline()) is not None:
        if found := VERTICES.match(line):
            num_nodes = int(found[1])
        undirected = undirected or UNDIRECTED.match(line) is not None
        text = line.strip(BLANKS)
        if text and text[:1] not in b"#%":
            break
    return num_nodes, undirected, line

"""Reader of edge lists as text (SNAP, KONECT, CSV): two ids a line, maybe a weight.

Separators are blanks, commas or semicolons, or tabs under a header with tabs. Above the
first edge, # and % begin comments. Ids are integers, or names if most of the first
edges have names. A header or --columns names the columns. Without both, a line `u v w`
is the entry a[u, v] of weight w, unless all these weights are whole numbers.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from hpgcn.datasets.edges import columns
from hpgcn.datasets.edges.edge_stream import SIDE, Stream
from hpgcn.datasets.edges.first_line import (
    PADDED,
    adjacency_hint,
    count_like_edges,
    has_names,
    header_beside,
    read_first_line,
    refuse_neighbors,
    refuse_ragged,
    refuse_text,
)
from hpgcn.datasets.edges.neighbor_lists import matrix_way
from hpgcn.datasets.edges.preamble import find_sizes, read_comments
from hpgcn.datasets.edges.vertex_names import VertexNames, is_name, named_parts
from hpgcn.datasets.text.lines import BLANKS, MARKS, WHOLE, Grammar, TextLines
from hpgcn.datasets.text.parse import INT64_MAX, PASSED, U, V, W
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.classes import NUMBER
from hpgcn.runtime.machine import default_threads, memory_budget

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.edges.columns import EdgeColumns
    from hpgcn.datasets.edges.first_line import FirstLine
    from hpgcn.datasets.edges.preamble import Comments
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

GEPHI_TYPE = re.compile(rb'[,;\t]\s*"?undirected"?\s*[,;\t\r\n]', re.IGNORECASE)
KONECT_ROLES = (U, V, W, PASSED)  # the last column has times
SAMPLE = 1 << 16  # bytes of edges that decide whether ids are names


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    with stream(source, None, default_threads(), options, memory=memory) as edges:
        return edges.collect(memory)


@contextmanager
def stream(source: Source, digest: Any, threads: int, options: ConvertOptions, *,
           memory: int | None = None) -> Iterator:
    """Open an edge list; the context manager gives its Stream.

    Ids count from `options.base`, or else from 1 in KONECT's files and from 0 in others.
    Names of vertices may take `memory` bytes.
    """
    with source.open(digest) as file:
        # find the columns by comments and the first line
        table = TextLines(file, source)
        comments, line = read_comments(table)
        start = table.line
        following = table.readlines(SAMPLE)
        line, following, start, notes = _skip_sizes(
            line, following, source, start, comments, options)
        where = f"{source}: line {start}"
        refuse_neighbors([line, *following], where)
        first = read_first_line(line, following, options, where, header_beside(source, options))
        named = _columns(first, comments, options, where, [line, *following])
        roles = named.roles + (PASSED,) * first.ended
        table.unread(*following if first.header else (line, *following))

        # collect what ids of both kinds need
        bipartite = options.bipartite or comments.bipartite
        notes += [*first.notes, *named.notes]
        shared = {
            "notes": notes, "table": table, "declared_nodes": comments.declared_nodes,
            "undirected": comments.undirected, "listed_once": comments.listed_once,
            "compact": options.compact,
            "sides": named.sides if bipartite else None}

        # read ids that are names
        if not comments.konect and has_names(first, named.roles):
            options.refuse_for_names(source)
            notes += _comment_notes(comments, first)
            names = VertexNames(source, memory_budget() if memory is None else memory,
                                apart=bipartite)
            parts = named_parts(table, roles, first.delimiter, names,
                                line if first.header else None)
            yield Stream(str(source), parts, named, base_known=True, names=names, **shared)
            return

        # otherwise ids are numbers: find their range
        base = options.base
        low = int(comments.konect is not None) if base is None else base
        num_nodes = options.num_nodes
        if num_nodes is None and not (bipartite or options.compact):
            num_nodes = comments.num_nodes
        high = SIDE - 1 if bipartite else INT64_MAX
        if num_nodes is not None:
            high = low + num_nodes - 1

        # parse the edges
        grammar = Grammar(roles, first.delimiter, low=low, high=high, hint=True)
        notes += [*comments.notes(base), *_gephi_notes(first, following),
                  *_padding_notes(first, named.roles)]
        with closing(table.parts(grammar, threads)) as parts:
            yield Stream(str(source), parts, named, num_nodes, base=low, **shared,
                         base_known=base is not None or comments.konect is not None)


def _skip_sizes(line: bytes, following: list[bytes], source: Source, start: int, comments: Comments,
                options: ConvertOptions) -> tuple[bytes, list, int, list]:
    """Skip counts of vertices and edges above the list.

    Return the first line of the list, the lines below it, its number, and notes.
    """
    if options.header is not None or comments.konect:
        return line, following, start, []
    complete = sum(map(len, following)) + len(following) < SAMPLE
    sizes = find_sizes(line, following, source, start, complete=complete)
    if sizes is None:
        return line, following, start, []
    if comments.declared_nodes is None:
        comments.declared_nodes = sizes.num_nodes
    edges = [k for k, text in enumerate(following) if text.strip(BLANKS)[:1] not in (b"", *MARKS)]
    kept = edges[sizes.lines - 1]
    return following[kept], following[kept + 1:], start + 1 + kept, [sizes.note]


def _columns(first: FirstLine, comments: Comments, options: ConvertOptions, where: str,
             lines: list[bytes]) -> EdgeColumns:
    """Return the EdgeColumns of an edge list.

    They come from the first of these: --columns, a header, a header in a comment, the
    positions of the columns.
    """
    # flags take precedence, then declarations of the file
    count = len(first.fields)
    if options.columns is not None:
        names = first.fields if first.header else [""] * count
        return columns.from_flag(options.columns, names, where)
    whole = sum(map(len, lines)) < SAMPLE
    _refuse_named_matrix(first, where, whole=whole)
    if first.names is not None:
        body = list(zip(*(row for row in first.rows if len(row) == count)))
        fitting, numeric = ([k for k, cells in enumerate(body) if all(map(check, cells))]
                            for check in (_is_id, NUMBER.fullmatch))
        return columns.from_header(first.names, first.place, fitting=fitting, numeric=numeric,
                                   options=options)

    # KONECT fixes the columns; other files may name them in a comment
    if comments.konect and options.weights is None:
        if not 2 <= count <= len(KONECT_ROLES):
            raise DataError(f"{where}: {count} field(s), expected the 2 to 4 fields of KONECT: two "
                            "ids, weight, time")
        return columns.EdgeColumns(KONECT_ROLES[:count])
    if count in comments.headers:
        where = f"{where}: comment above it"
        return columns.from_header(comments.headers[count], where, comment=True, options=options)
    if options.weights is not None:
        raise UsageError(f"--weights {options.weights}: {where} has no header with column names: "
                         "use --columns u,v,w to name the column of weights")

    # without names, accept only two or three columns
    refuse_ragged(first.rows, lines, where)
    if count < 2:
        raise DataError(f"{where}: {count} field(s), expected two ids and optionally a weight")
    if count > 3:
        _refuse_matrix(first, where, whole=whole)
        hint = adjacency_hint(lines)
        if all(len(row) == count and all(map(_is_id, row[:2])) for row in first.rows):
            hint = (f": name each, as in {_spelled(count)} (w: weights, -: skip)"
                    f"{hint.replace(':', ';', 1)}")
        raise DataError(f"{where}: {count} columns without a header{hint}")
    if count == 3:
        refuse_text(first, where)
    return columns.from_position(count)


def _is_id(field: str) -> bool:
    return is_name(field) or WHOLE.fullmatch(field) is not None


def _refuse_named_matrix(first: FirstLine, where: str, *, whole: bool) -> None:
    """Raise DataError for a matrix with names of its rows and columns."""
    if not _are_named(first, whole=whole):
        return
    separator = first.delimiter.decode()
    option = {",": "", ";": ", sep=';'"}.get(separator, r", sep=r'\s+'")
    raise DataError(f"{where}: a matrix with names of rows and columns: M = pandas.read_csv(FILE, "
                    f"index_col=0{option}); M.rename_axis('u').melt(ignore_index=False, "
                    "var_name='v', value_name='weight').query('weight != 0').to_csv('edges.csv'), "
                    "then convert edges.csv")


def _refuse_matrix(first: FirstLine, where: str, *, whole: bool) -> None:
    """Raise DataError if the first rows look like a square matrix of numbers.

    With `whole` they are all rows of the file.
    """
    rows, count = first.rows, len(first.fields)
    square = len(rows) == count if whole else 1 < len(rows) <= count
    ids = all(_is_id(field) for row in rows for field in row[:2])
    if square and (whole or not ids or len(rows) > 16 or count > 100) and all(
            len(row) == count and all(map(NUMBER.fullmatch, row)) for row in rows):
        blanks = first.delimiter in (b" ", b"\t")
        listed = f"; for an edge list, name each column, as in {_spelled(count)}" * ids
        raise DataError(f"{where}: {matrix_way(count, '' if blanks else first.delimiter.decode())}"
                        f"{listed}")


def _spelled(count: int) -> str:
    return columns.spelled(["u", "v", *"-" * (count - 2)])


def _are_named(first: FirstLine, *, whole: bool) -> bool:
    """Return whether names stand above the columns of a matrix and before its rows."""
    body = first.rows if first.header else first.rows[1:]
    if len(body) < 2:
        return False
    corner = len(body[0]) == len(first.fields)
    above = first.fields[1:] if corner else first.fields
    before = [row[0] for row in body]
    named = any(map(is_name, above)) or (corner and not NUMBER.fullmatch(first.fields[0]))
    return named and before == (above if whole else above[:len(before)]) and all(
        NUMBER.fullmatch(field) for row in body for field in row[1:])


def _comment_notes(comments: Comments, first: FirstLine) -> list:
    count = 0 if first.header else count_like_edges(comments, first)
    if not count:
        return []
    return [f"{count} lines above the first edge begin with # or % and are read as comments: quote "
            "them to read edges"]


def _padding_notes(first: FirstLine, roles: tuple[int, ...]) -> list:
    """Return a note if ids with leading zeros are read as numbers, in a list."""
    padded = [field for fields in first.rows for field, role in zip(fields, roles)
              if role in (U, V) and PADDED.fullmatch(field)]
    if not padded:
        return []
    return [f"ids with leading zeros are read as numbers: {padded[0]} becomes {int(padded[0])}"]


def _gephi_notes(first: FirstLine, following: list[bytes]) -> list:
    """Return a note if a column, as Gephi writes it, declares edges undirected."""
    if first.header and GEPHI_TYPE.search(b"\n".join([*following, b""])):
        return ["edges declared undirected are read in one direction: use --symmetrize to read "
                "both"]
    return []

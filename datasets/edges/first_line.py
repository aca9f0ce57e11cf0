"""The first line of an edge list: its separator, and whether it is a header or an edge."""
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpgcn.datasets.edges import columns
from hpgcn.datasets.edges.columns import check_flag, spelled
from hpgcn.datasets.edges.neighbor_lists import COUNTS_FIRST, HEAD, FormError, split_lists
from hpgcn.datasets.edges.vertex_names import is_long, is_name
from hpgcn.datasets.source import Source, truncate
from hpgcn.datasets.text.column_names import is_header
from hpgcn.datasets.text.lines import BLANKS, MARKS, WHOLE, split_line, stripped
from hpgcn.datasets.text.parse import U, V
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.edges.preamble import Comments

NUMERIC = re.compile("[-+.]?[0-9]")
COMMA = re.compile(rb",[^ \d]|(?<!\d),\d")  # a separator, not within a decimal or before a blank
PADDED = re.compile("0[0-9]+")  # a name or a label, because weights are never padded with zeros


class FirstLine(NamedTuple):
    """The first line of an edge list, divided into fields, and the first edges."""

    delimiter: bytes
    fields: list[str]  # cells of the first line
    header: bool  # whether `fields` are names of columns
    rows: list[list[str]]  # cells of the first edges
    names: list[str] | None  # names of the columns, if there is a header
    place: str  # position of the names, for errors
    notes: tuple[str, ...] = ()
    ended: bool = False  # whether a separator ends each line, as if there were another column


def read_first_line(line: bytes, following: list[bytes], options: ConvertOptions, where: str,
                    beside: tuple | None = None) -> FirstLine:
    """Return the FirstLine of an edge list, judged by the lines `following` it.

    `beside` is a result of `header_beside`. Raise DataError if the line may be a header
    or an edge, and the ConvertOptions does not say which.
    """
    delimiter, fields, wordy = _split(line)
    mark = b"\t" if b"\t" in line else delimiter
    ended = _are_ended(mark, _fields(line, mark), following, options)
    if ended:
        following = [text.rstrip(BLANKS).removesuffix(mark) for text in following]
        line = line.rstrip(BLANKS).removesuffix(mark)
        delimiter, fields, wordy = _split(line)
    first = _read_first_line(line, delimiter, fields, wordy, following, options, where, beside)
    return first._replace(ended=ended and first.delimiter == mark)


def _read_first_line(line: bytes, delimiter: bytes, fields: list[str], wordy: bool,
                     following: list[bytes], options: ConvertOptions, where: str,
                     beside: tuple | None) -> FirstLine:
    # decide whether the line is a header
    header = options.header
    if header is None and beside is not None and not is_header(fields):
        header = False
    if header is None and wordy:
        rows = _rows(following, delimiter)
        header = _is_header(fields, rows, options, where, [line, *following])
    if header is False and wordy:
        header = _is_above_integers(fields, _rows(following, delimiter))

    # divide the line again if blanks or row numbers were misleading
    if not header and b"\t" in line and any(map(is_name, _fields(line, delimiter))):
        delimiter = b"\t"  # because names may contain blanks
        fields = _fields(line, delimiter)
    rows = _rows(following, delimiter)
    if header and rows and all(_is_numbered(text) for text in following if text.strip(BLANKS)) \
            and all(len(row) == len(fields) + 1 for row in rows):
        fields = ["", *fields]  # R writes no name above the row numbers
        rows = _rows(following, delimiter)

    # with a header: read the edges below it
    if header:
        weak = options.header is None and not _has_numbers(rows, len(fields)) and any(
            len(field) == 1 or "#" in _shape(field) for field in fields)
        notes = ("the first line is read as a header: use --no-header to read an "
                 "edge",) if weak else ()
        return FirstLine(delimiter, fields, True, rows, fields, where, notes)

    # without: the line is an edge, and another file may name the columns
    rows = [fields, *rows]
    if beside is not None:
        names, path = beside
        if len(names) != len(fields):
            raise DataError(f"{where}: {len(fields)} field(s), but {path.name} in the same folder "
                            f"names {len(names)}: use --no-header to ignore that file")
        note = f"the header is read from {path.name}"
        return FirstLine(delimiter, fields, False, rows, names, str(path), (note,))
    notes = ()
    if options.header is False and is_header(fields):
        notes = (f"{truncate(', '.join(fields))} is read as an edge because of --no-header",)
    return FirstLine(delimiter, fields, False, rows, None, where, notes)


def has_names(first: FirstLine, roles: tuple[int, ...]) -> bool:
    """Return whether ids of the first edges are names.

    They are if most edges have an id that is not a number. They also are if a tenth of
    the edges has a number that is too long for an integer.
    """
    rows = [[field for field, role in zip(fields, roles) if role in (U, V)]
            for fields in first.rows if len(fields) == len(roles)]
    named = sum(any(map(is_name, ends)) for ends in rows)
    long = sum(any(map(is_long, ends)) for ends in rows)
    return 2 * named > len(first.rows) or 10 * long >= max(1, len(first.rows))


def refuse_text(first: FirstLine, where: str) -> None:
    """Raise DataError if an unnamed third column has text, such as tails of triples."""
    third = [fields[2] for fields in first.rows if len(fields) == 3]
    texts = [field for field in third if is_name(field) or PADDED.fullmatch(field)]
    if 2 * len(texts) > len(third) and 2 * len(third) > len(first.rows):
        what = f"holds text ({truncate(texts[0], 40)!r})"
        raise columns.third_column_error(where, what, text=True)


def refuse_neighbors(lines: list[bytes], where: str) -> None:
    """Raise DataError if a colon after the first word of all `lines` shows an adjacency list."""
    texts = [text for line in lines if (text := line.decode("utf-8", "replace").strip())]
    if all(map(HEAD.match, texts)) and (hint := adjacency_hint(lines)):
        raise DataError(f"{where}: a colon follows the first word of each line{hint}")


def refuse_ragged(rows: list[list], lines: list[bytes], where: str) -> None:
    """Raise DataError if rows have more than two lengths, as adjacency lists have.

    `rows` are the fields of `lines`.
    """
    if len({len(fields) for fields in rows}) > 2:
        raise DataError(f"{where}: lines of {len(rows[0])} and of other numbers of fields"
                        f"{adjacency_hint(lines)}")


def adjacency_hint(lines: list[bytes]) -> str:
    """Return the end of an error for `lines`, bytes: how to read them as adjacency lists."""
    try:
        split_lists([line.decode("utf-8", "replace") for line in lines])
    except FormError as error:
        return f": {error}" if str(error) == COUNTS_FIRST else ""
    return (": use --format adjlist for lines of a vertex and its neighbors (with --bipartite if "
            "these are of another kind)")


def count_like_edges(comments: Comments, first: FirstLine) -> int:
    """Count the comments above named vertices that may be edges, such as `#tag name`."""
    marked = re.compile(rb"[#%][^#% \t,;!]")
    return sum(len(_fields(text, first.delimiter)) == len(first.fields)
               for text in comments.lines if marked.match(text))


def _are_ended(delimiter: bytes, fields: list[str], following: list[bytes],
               options: ConvertOptions) -> bool:
    """Return whether a separator ends each line below the first.

    The first line may lack it if it is a header.
    """
    if delimiter == b" ":
        return False
    lines = [text for line in following
             if (text := stripped(line, delimiter)) and text[:1] not in MARKS]
    if not fields[-1] and options.columns is not None:
        return len(check_flag(options.columns)) == len(fields) - 1  # else it names the last one too
    count = len(fields) + bool(fields[-1])
    return count > 2 and (bool(lines) or not fields[-1]) and all(
        text.endswith(delimiter) and len(_fields(text, delimiter)) == count for text in lines)


def _split(line: bytes) -> tuple[bytes, list, bool]:
    """Return the first line's delimiter, its fields, and whether no field is a number."""
    delimiter = b";" if b";" in line else b" "
    if b"," in line and (delimiter == b" " or COMMA.search(line)):
        delimiter = b","
    for tried in (b"\t", delimiter) if b"\t" in line else (delimiter,):
        fields = _fields(line, tried)
        if not any(map(NUMERIC.match, fields)):
            return tried, fields, True
    return delimiter, fields, False


def _fields(line: bytes, delimiter: bytes) -> list[str]:
    return [word.decode("utf-8", "replace").strip("\"'") for word in split_line(line, delimiter)]


def _rows(lines: list[bytes], delimiter: bytes) -> list[list]:
    """Return the fields of each line; skip comments, unless all lines are comments."""
    lines = [stripped(line, delimiter) for line in lines if line.strip(BLANKS)]
    lines = [text for text in lines if text[:1] not in MARKS] or lines
    return [_fields(text, delimiter) for text in lines]


def header_beside(source: Source, options: ConvertOptions) -> tuple[list[str], Path] | None:
    """Return the names in a header file such as `edges-header.csv`, and its path.

    Neo4j writes such files beside the lists. Return None without one, or if the
    ConvertOptions has `columns` or `header`.
    """
    if options.columns is not None or options.header is not None:
        return None
    stem, dot, suffix = source.path.name.removesuffix(".gz").rpartition(".")
    for mark in "-_.":
        path = source.path.with_name(f"{stem}{mark}header{dot}{suffix}")
        if stem and path.is_file():
            _, fields, wordy = _split(Source(path).head().partition(b"\n")[0].strip(BLANKS))
            if wordy and len(fields) > 1:
                return fields, path
    return None


def _is_above_integers(fields: list[str], rows: list[list]) -> bool:
    """Return whether all rows below the first line have only integers."""
    whole = [row for row in rows if len(row) == len(fields) and all(map(WHOLE.fullmatch, row))]
    return bool(rows) and len(whole) == len(rows)


def _has_numbers(rows: list[list], count: int) -> bool:
    """Return whether one of `count` columns has only numbers, so a word above is its name."""
    rows = [row for row in rows if len(row) == count]
    return bool(rows) and any(all(row[k] and not is_name(row[k]) for row in rows)
                              for k in range(count))


def _is_numbered(line: bytes) -> bool:
    """Return whether a line begins with a number in quotes, as R writes the names of rows."""
    return re.match(rb'"\d+"', line) is not None


def _shape(name: str) -> str:
    """Return a name in lower case with # for its number: node# for node1."""
    return re.sub(r"[0-9]+|(?<=_)[a-z]$", "#", name.lower())


def _is_header(fields: list[str], rows: list[list], options: ConvertOptions, where: str,
               lines: list[bytes]) -> bool:
    """Return whether `fields` are column names.

    Raise DataError if they may also be an edge between names.
    """
    if len(fields) < 2:
        return True
    if len(rows) > 1 and [row[0] for row in rows] == fields[:len(rows)] and (
            {len(row) for row in rows} == {len(fields) + 1}):
        return True  # a matrix with names of rows and columns
    if _has_numbers(rows, len(fields)):
        return True

    divided, rows = rows, [row for row in rows if len(row) == len(fields)]
    ends = range(len(fields))
    if options.columns is not None:
        words = check_flag(options.columns)
        ends = [k for k, word in enumerate(words[:len(fields)]) if word not in ("-", "w")]

    # names that recur below are vertices, not columns
    known = is_header(fields)
    above = {fields[k] for k in ends}
    below = {row[k] for row in rows for k in ends}
    again = bool(above & below)
    if known:  # e.g. user1,user2 above user3,user4
        again |= any("#" in shape for shape in set(map(_shape, above)) & set(map(_shape, below)))

    if known != again:
        return known

    refuse_ragged([fields, *divided], lines, where)
    words = ["source", "target"] if len(fields) == 2 else ["source", "-", "target"]
    words = "" if options.columns else " " + spelled([*words, *"-" * (len(fields) - 3)])
    edge = words if len(fields) > 2 else ""
    raise DataError(f"{where}: {truncate(', '.join(fields))}: is this line a header, or an edge "
                    f"between names? Give --header{words} for a header, or --no-header{edge} for "
                    "an edge")

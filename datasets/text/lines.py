"""Fast parser of text lines of two integers and maybe a number: millions a second."""
from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from hpgcn.datasets.source import BYTE_ORDER_MARK, LINE_LIMIT, need, not_utf8, truncate
from hpgcn.datasets.text import parse
from hpgcn.datasets.text.parse import INT64_MAX, U, V, W
from hpgcn.errors import DataError
from hpgcn.graphs.validation import first_true
from hpgcn.kernels.host.pools import start_pool
from hpgcn.runtime.progress_bar import bar

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

BLOCK = 1 << 22  # bytes of a block
LONGEST_NUMBER = 400  # most characters of a number
BLANKS = b" \t\r"
MARKS = (b"#", b"%")  # first characters of a comment
NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?")
WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")  # an id that is a number


@dataclass(frozen=True)
class Grammar:
    """The fields of a line: their roles, delimiter and limits."""

    roles: tuple[int, ...] = (U, V)  # each U, V (integers), W (weight) or PASSED (not read)
    delimiter: bytes = b" "  # a blank means any blanks; blanks around others are ignored
    low: int = 0
    high: int = INT64_MAX  # largest value of the two integers
    # names of U, V and W in errors
    names: tuple[str, str, str] = ("first id", "second id", "weight")
    integral: bool = False  # whether weights must be integers
    hint: bool = False  # whether errors suggest that ids may be names
    comments: bool = True  # whether lines that begin with # or % are skipped

    @property
    def weighted(self) -> bool:
        return W in self.roles


def words(line: bytes) -> list[bytes]:
    """Return the words of a line, as bytes; blanks separate them."""
    return re.findall(rb"[^ \t\r]+", line)


def finite(word: bytes, where: str, what: str = "") -> float:
    """Return the number that `word`, bytes, spells; DataError if it is not finite."""
    number = float(word) if NUMBER.fullmatch(word) else np.nan
    if not np.isfinite(number):
        text = truncate(word.decode("utf-8", "replace"), 40)
        raise DataError(f"{where}: {what}{text!r}, expected a finite number{point_hint(word)}")
    return number


def point_hint(word: bytes) -> str:
    """Return the end of an error message if `word` (bytes) has a decimal comma, or ""."""
    return " with a decimal point" if re.fullmatch(rb"[-+]?\d+,\d+", word) else ""


def whole_text(source: Source, memory: int, factor: int) -> bytes:
    """Return the whole text of a Source as UTF-8 bytes; DataError for other encodings.

    BudgetError if `factor` times its size exceeds `memory`.
    """
    limit = memory // factor
    with source.open() as stream:
        text = stream.read(limit + 1)
    if len(text) > limit:
        need(factor * max(source.size, len(text)), memory, source)
    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise not_utf8(f"{source}: line {line}", error) from error
    return text


def stripped(line: bytes, delimiter: bytes) -> bytes:
    """Return a line without surrounding blanks.

    A delimiting tab stays, because the last field may be empty.
    """
    return line.strip(b" \r" if delimiter == b"\t" else BLANKS)


def split_line(line: bytes, delimiter: bytes) -> list[bytes]:
    """Return the fields of a line without surrounding blanks.

    A delimiter within double quotes belongs to the field.
    """
    if delimiter == b" ":
        return re.findall(rb'"[^"]*"(?=[ \t\r]|$)|[^ \t\r]+', line)
    fields = []
    start = 0
    quoted = False
    for mark in re.finditer(b'["' + delimiter + b"]", line):
        if mark[0] == b'"':
            quoted = not quoted
        elif not quoted:
            fields.append(line[start:mark.start()])
            start = mark.end()
    fields.append(line[start:])
    return [field.strip(BLANKS) for field in fields]


@contextmanager
def open_lines(source: Source) -> Iterator[TextLines]:
    """Open the text of a Source as TextLines."""
    with source.open() as stream:
        yield TextLines(stream, source)


def read_columns(source: Source, grammar: Grammar, memory: int) -> list:
    """Parse a whole text into (u, v, w), see `TextLines.parts`, in `memory` bytes."""
    with open_lines(source) as table:
        return table.columns(grammar, memory)


class TextLines:
    """The lines of a binary stream, read one by one and then in blocks.

    Errors name the file `where`.
    """

    def __init__(self, stream: BinaryIO, where: Source | str) -> None:
        self.stream = stream
        self.where = where
        self.line = 0  # number of lines returned so far
        self.comments = 0  # number of parsed lines that begin with # or %
        self.pending = b""

    def readline(self) -> bytes | None:
        """Return the next line without its newline and byte-order mark; None at the end."""
        line = self.stream.readline(LINE_LIMIT)
        if not line:
            return None
        self.line += 1
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            raise self._too_long(self.line)
        if self.line == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        return line.rstrip(b"\r\n")

    def unread(self, *lines: bytes) -> None:
        """Put back `lines`, the last ones that were read, so that they are read again."""
        self.pending = b"".join(line + b"\n" for line in lines)
        self.line -= len(lines)

    def readlines(self, size: int) -> list[bytes]:
        """Return the next lines, at least `size` bytes of them, or all that are left."""
        lines = []
        while size > 0 and (line := self.readline()) is not None:
            lines.append(line)
            size -= len(line) + 1
        return lines

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest of the text in blocks of whole lines, as bytes."""
        rest = self.pending
        self.pending = b""
        # take the compressed file of a gzip file, because its length is known
        raw = getattr(self.stream, "fileobj", self.stream)
        total = getattr(self.where, "size", None)

        with bar(total=total, desc=str(self.where), unit="B", unit_scale=True, leave=False) as done:
            while block := self.stream.read(BLOCK):
                if self.line == 0 and not rest:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                block = rest + block
                cut = block.rfind(b"\n") + 1
                rest = block[cut:]
                if cut:
                    yield block[:cut]
                if len(rest) > LINE_LIMIT:
                    raise self._too_long(self.line + 1)
                done.update(raw.tell() - done.n)

        if rest:
            yield rest if rest.endswith(b"\n") else rest + b"\n"

    def rest(self) -> Iterator[bytes]:
        """Yield the remaining lines one by one, without newlines."""
        for block in self.blocks():
            for line in block.split(b"\n")[:-1]:
                self.line += 1
                yield line

    def _too_long(self, line: int) -> DataError:
        return DataError(f"{self.where}: line {line} has more than {LINE_LIMIT} bytes")

    def parts(self, grammar: Grammar, threads: int = 1) -> Generator:
        """Parse the rest of the text on `threads` threads; yield (u, v, w) of each block.

        Without weights w is None.
        """
        pending = deque()
        with start_pool(threads)[0] as pool:
            for block in self.blocks():
                lines = block.count(b"\n")
                pending.append(pool.submit(self._parse, block, grammar, self.line + 1, lines))
                self.line += lines
                if len(pending) > threads:
                    yield self._count_comments(pending.popleft().result())
            while pending:
                yield self._count_comments(pending.popleft().result())

    def _count_comments(self, parsed: tuple[tuple, int]) -> tuple:
        part, skipped = parsed
        self.comments += skipped
        return part

    def columns(self, grammar: Grammar, memory: int = INT64_MAX) -> list:
        """Parse the rest of the text into (u, v, w), see `parts`, in `memory` bytes."""
        with closing(self.parts(grammar)) as parts:
            return join_parts(parts, grammar.weighted, memory, self.where)

    def _parse(self, block: bytes, grammar: Grammar, line: int, rows: int) -> tuple[tuple, int]:
        """Return columns (u, v, w) of a block, and the number of comments in it.

        The block has `rows` lines, and the first of them has the number `line`.
        """
        text = np.frombuffer(block, np.uint8)
        roles = np.array(grammar.roles, np.int64)
        u, v = (np.empty(rows, np.int64) for _ in range(2))  # each can be freed alone
        w = np.empty(rows if grammar.weighted else 0)
        inexact = np.empty((w.size, 4), np.int64)

        status, at, field, line, count, rough, skipped = parse.parse(
            text, ord(grammar.delimiter), grammar.comments, roles, grammar.low, grammar.high,
            grammar.integral, line, u, v, w, inexact)
        if status != parse.DONE:
            reason = _complaint(status, block, at, field, grammar)
            raise DataError(f"{self.where}: line {line}: {reason}")
        if rough:
            w[inexact[:rough, 0]] = self._floats(text, inexact[:rough])
        columns = (u, v, w if grammar.weighted else None)
        if count < rows:
            columns = tuple(None if column is None else column[:count].copy()
                            for column in columns)
        return columns, skipped

    def _floats(self, text: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the values of numbers that the compiled loop could not round exactly."""
        _, start, end, line = tokens.T
        width = int((end - start).max())
        if width > LONGEST_NUMBER:
            longest = line[np.argmax(end - start)]
            raise DataError(f"{self.where}: line {longest} has a number of {width} characters")

        # cut all numbers out of the text at once
        at = start[:, None] + np.arange(width)
        letters = np.where(at < end[:, None], text[np.minimum(at, text.size - 1)], 0)
        strings = letters.astype(np.uint8).view(f"S{width}")[:, 0]
        values = strings.astype(np.float64)

        if (k := first_true(~np.isfinite(values))) is not None:
            raise DataError(f"{self.where}: line {line[k]}: weight {strings[k].decode()} is too "
                            "large for a number")
        return values


def join_parts(parts: Iterator, weighted: bool, memory: int, where: Source | str) -> list:
    """Join parts (u, v, w) into whole columns, of which two copies must fit into memory."""
    kept = []
    size = 0
    for part in parts:
        kept.append(list(part))
        size += part[0].size * (24 if weighted else 16)
        need(2 * size, memory, where)
    columns = [None, None, None]
    for k in range(3 if weighted else 2):
        columns[k] = np.concatenate([part[k] for part in kept]) if kept else np.empty(0, np.int64)
        for part in kept:
            part[k] = None  # free it early, because the result has a copy
    return columns


def _complaint(status: int, block: bytes, at: int, field: int, grammar: Grammar) -> str:
    expected = len(grammar.roles)
    separated = "" if grammar.delimiter == b" " else f" separated by {grammar.delimiter.decode()!r}"
    if status == parse.MISSING:
        return f"{field} field(s), expected {expected}{separated}"
    if status == parse.EXTRA:
        return f"more than {expected} fields, expected {expected}{separated}"

    rest = block[at:block.index(b"\n", at)]
    token = rest.split()[0].split(grammar.delimiter)[0][:40] if rest.strip() else b""
    within = f"{grammar.low} or more"
    if grammar.high < INT64_MAX:
        within = f"{grammar.low}..{grammar.high}"
    wanted = {
        parse.NOT_INTEGER: "an integer",
        parse.TOO_LARGE: "an integer of 64 bits",
        parse.OUT_OF_RANGE: within,
        parse.NOT_NUMBER: ("an integer" if grammar.integral
                           else f"a finite number{point_hint(token)}"),
    }[status]
    if status == parse.NOT_INTEGER and token[:1].isalpha() and grammar.hint:
        wanted += ("; ids are read as names if most edges have names, or if a column of Parquet "
                   "has text")
    name = grammar.names[grammar.roles[field]]
    return f"{name} is {token.decode('utf-8', 'replace')!r}, expected {wanted}"

"""Lines of two integers, and maybe a number, out of text: millions of edges per second."""
from __future__ import annotations

import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from hpgcn.bar import bar
from hpgcn.datasets import parse
from hpgcn.datasets.parse import INT64_MAX, PASSED, U, V, W
from hpgcn.datasets.source import LINE_LIMIT, need
from hpgcn.errors import DataError

BLOCK = 1 << 22  # bytes
MARK = b"\xef\xbb\xbf"  # of byte order, which some editors put before a text
BLANKS = b" \t\r"


@dataclass(frozen=True)
class Grammar:
    """What a line holds.

    Attributes
    ----------
    roles : tuple of int
        For each field U, V (the two integers), W (the weight) or PASSED (not read).
    delimiter : bytes
        b" " for any run of blanks, else one character with blanks around it allowed.
    low, high : int
        Range of the two integers.
    names : tuple of str
        What to call U, V and W in an error.
    integral : bool
        The weight must be an integer.
    comments : bool
        Lines that start with # or % are skipped.
    """

    roles: tuple[int, ...] = (U, V)
    delimiter: bytes = b" "
    low: int = 0
    high: int = INT64_MAX
    names: tuple[str, str, str] = ("first id", "second id", "weight")
    integral: bool = False
    comments: bool = True

    @property
    def weighted(self):
        """Whether a line holds a weight."""
        return W in self.roles


def words(line):
    """What blanks separate in a line: list of bytes."""
    return re.findall(rb"[^ \t\r]+", line)


def split_line(line, delimiter):
    """Fields of a line, without blanks around them: list of bytes. Double quotes hide a delimiter."""
    if delimiter == b" ":
        return words(line)
    fields, start, quoted = [], 0, False
    for found in re.finditer(b'["' + delimiter + b"]", line):
        if found[0] == b'"':
            quoted = not quoted
        elif not quoted:
            fields.append(line[start:found.start()])
            start = found.end()
    fields.append(line[start:])
    return [field.strip(BLANKS) for field in fields]


class Table:
    """Text lines of a stream, read first one by one and then all at once.

    Parameters
    ----------
    stream : binary file
    where : str
        The file, for errors.
    """

    def __init__(self, stream, where):
        self.stream, self.where = stream, where
        self.line = 0  # lines handed out so far
        self.pending = b""

    def readline(self):
        """Return the next line without its end, or None at the end of the file; a byte-order mark is dropped."""
        data = self.stream.readline(LINE_LIMIT)
        if not data:
            return None
        self.line += 1
        if len(data) == LINE_LIMIT and not data.endswith(b"\n"):
            raise DataError(f"{self.where}: line {self.line} has more than {LINE_LIMIT} bytes")
        if self.line == 1:
            data = data.removeprefix(MARK)
        return data.rstrip(b"\r\n")

    def unread(self, data):
        """Give back the line that was read last."""
        self.pending = data + b"\n"
        self.line -= 1

    def blocks(self):
        """Yield the rest in blocks of whole lines, as bytes."""
        rest, self.pending = self.pending, b""
        with progress(self.stream, self.where) as advance:
            while block := self.stream.read(BLOCK):
                if self.line == 0 and not rest:
                    block = block.removeprefix(MARK)
                block = rest + block
                cut = block.rfind(b"\n") + 1
                rest = block[cut:]
                if cut:
                    yield block[:cut]
                if len(rest) > LINE_LIMIT:
                    raise DataError(f"{self.where}: line {self.line + 1} has more than {LINE_LIMIT} bytes")
                advance()
        if rest:
            yield rest + b"\n"

    def columns(self, grammar, *, limit=INT64_MAX, memory=INT64_MAX):
        """Parse the rest.

        Parameters
        ----------
        limit : int
            Rows at most.
        memory : int
            Bytes that the columns may take.

        Returns
        -------
        u, v : (e,) int64
        w : (e,) float64, or None with two fields

        Raises
        ------
        DataError
            Naming the line and the field.
        """
        parts, count = [], 0
        for block in self.blocks():
            *part, self.line = self._parse(block, grammar, limit - count, self.line)
            count += part[0].size
            size = count * (24 if grammar.weighted else 16)
            need(2 * size, memory, f"{self.where}: line {self.line}")  # twice: joined at the end
            parts.append(part)
        u, v, w = (join_column(parts, k) for k in range(3))
        return u, v, w if grammar.weighted else None

    def parts(self, grammar, threads):
        """Parse the rest on several threads; yield (u, v, w) block by block, w as in `columns`.

        Raises
        ------
        DataError
            As `columns`: of the first line that is wrong.
        """
        pending = deque()
        with ThreadPoolExecutor(threads) as pool:
            for block in self.blocks():
                pending.append(pool.submit(self._parse, block, grammar, INT64_MAX, self.line))
                self.line += block.count(b"\n")
                if len(pending) > threads:
                    yield self._taken(pending.popleft(), grammar)
            while pending:
                yield self._taken(pending.popleft(), grammar)

    def _taken(self, future, grammar):
        u, v, w, _ = future.result()
        return u, v, w if grammar.weighted else None

    def _parse(self, block, grammar, limit, line):
        """Columns of a block of whole lines after line `line`, and the number of its last line."""
        text = np.frombuffer(block, np.uint8)
        roles = np.array(grammar.roles, np.int64)
        rows = text.size // (2 * roles.size - np.count_nonzero(roles == PASSED) - 1) + 1  # those may be empty
        u, v = np.empty(rows, np.int64), np.empty(rows, np.int64)
        w = np.empty(rows if grammar.weighted else 0)
        inexact = np.empty((w.size, 4), np.int64)
        status, at, field, line, count, rough = parse.parse(
            text, ord(grammar.delimiter), grammar.comments, roles, grammar.low, grammar.high, grammar.integral,
            limit, line + 1, u, v, w, inexact)
        if status != parse.DONE:
            raise DataError(f"{self.where}: line {line}: " + _complaint(status, block, at, field, grammar))
        if rough:
            w[inexact[:rough, 0]] = self._floats(text, inexact[:rough])
        return u[:count].copy(), v[:count].copy(), w[:count].copy(), line - 1

    def _floats(self, text, tokens):
        """Values of the numbers that the compiled loop could not round itself."""
        _, start, end, line = tokens.T
        width = int((end - start).max())
        if width > 400:
            raise DataError(f"{self.where}: line {line[np.argmax(end - start)]}: a number of {width} characters")
        at = start[:, None] + np.arange(width)
        letters = np.where(at < end[:, None], text[np.minimum(at, text.size - 1)], 0).astype(np.uint8)
        values = letters.view(f"S{width}")[:, 0].astype(np.float64)
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            token = letters[wrong[0]].tobytes().rstrip(b"\0").decode()
            raise DataError(f"{self.where}: line {line[wrong[0]]}: weight {token} is too large for a number")
        return values


@contextmanager
def progress(stream, where):
    """A progress bar over a file, on a terminal; call what it yields to bring it up to the bytes read so far."""
    raw = getattr(stream, "fileobj", stream)  # of gzip the compressed file, whose length is known
    total = getattr(where, "size", None)
    with bar(total=total, desc=str(where), unit="B", unit_scale=True, leave=False) as shown:
        yield lambda: shown.update(raw.tell() - shown.n)


def join_column(parts, k):
    """Column k of all parts; each part lets go of it."""
    column = np.concatenate([part[k] for part in parts]) if parts else np.empty(0, np.int64)
    parts[:] = [(*part[:k], None, *part[k + 1:]) for part in parts]
    return column


def _complaint(status, block, at, field, grammar):
    """What is wrong at block[at], in field number `field`, in words."""
    rest = block[at:block.index(b"\n", at)]
    expected = len(grammar.roles)
    name = grammar.names[grammar.roles[field]] if status not in (parse.MISSING, parse.EXTRA) else ""
    token = repr(rest.split()[0].split(grammar.delimiter)[0][:40].decode("utf-8", "replace") if rest.strip() else "")
    separated = "" if grammar.delimiter == b" " else f" separated by {grammar.delimiter.decode()!r}"
    return {
        parse.MISSING: f"{field} field(s), expected {expected}{separated}",
        parse.EXTRA: f"more than {expected} fields, expected {expected}{separated}",
        parse.NOT_INTEGER: f"{name} is {token}, expected an integer",
        parse.TOO_LARGE: f"{name} is {token}, expected an integer of 64 bits",
        parse.OUT_OF_RANGE: f"{name} is {token}, expected " + (
            f"{grammar.low}..{grammar.high}" if grammar.high < INT64_MAX else f"{grammar.low} or more"),
        parse.NOT_NUMBER: f"{name} is {token}, expected " + ("an integer" if grammar.integral else "a finite number"),
        parse.TOO_MANY: "more entries than the header says",
    }[status]

"""JSON read with care: of bounded size and depth, no key twice, fields of the right kind and range.

Every error is one line that names the file, the place and what was expected.
"""
from __future__ import annotations

import json
import math
import reprlib
from typing import NamedTuple

from hpgcn.errors import DataError, printable
from hpgcn.files import reading

MAX_BYTES = 1 << 20  # of a file, or of a line
MAX_DEPTH = 64
MAX_DIGITS = 19  # of an integer of 64 bits


class Field(NamedTuple):
    """What a field may hold: int, float (an integer, too), str or dict; numbers from low to high; None if optional.

    A number that may be absent may be NaN or infinite, too.
    """

    kind: type
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False

    def takes(self, value):
        """Whether the field may hold a value."""
        if value is None:
            return self.optional
        if self.kind not in (int, float):
            return isinstance(value, self.kind)
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else int | float):
            return False
        return self.low <= value <= self.high or (self.optional and type(value) is float and not math.isfinite(value))

    def __str__(self):
        name = {int: "an integer", float: "a number", str: "text", dict: "an object"}[self.kind]
        low = "" if self.low <= -1e12 else f" of at least {self.low:g}"
        high = "" if self.high >= 1e12 else f"{' and' if low else ' of'} at most {self.high:g}"
        return f"{name}{low}{high}" + ", or null" * self.optional


class Huge(float):
    """A number that 64 bits do not hold: infinite, and shown as it was written."""

    def __new__(cls, text):
        huge = super().__new__(cls, "-inf" if text.startswith("-") else "inf")
        huge.text = text if len(text) <= 24 else f"{text[:20]}... ({len(text)} characters)"
        return huge

    def __repr__(self):
        return self.text


def parse_json(text, where):
    """The object in a text.

    Parameters
    ----------
    text : bytes
    where : str or path-like
        File, and line of it, for errors.

    Returns
    -------
    dict
        NaN and Infinity are floats; see `check_fields`.

    Raises
    ------
    DataError
        Not UTF-8, not JSON, no object, a key twice, or nested too deeply.
    """
    try:
        found = DECODER.decode(text.decode())
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except RecursionError:
        raise DataError(f"{where}: not JSON that hpgcn writes: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{where}: {type(found).__name__}, expected one JSON object")
    if len(text) <= MAX_BYTES and text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise DataError(f"{where}: not JSON that hpgcn writes: nested too deeply")
    return found


def read_json(path, most=MAX_BYTES):
    """The one object in a file of at most so many bytes.

    Raises
    ------
    InputNotFoundError, StorageError
        It cannot be opened, or reading failed.
    DataError
        It is no regular file, is larger, or as `parse_json`.
    """
    with reading(path) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise DataError(f"{path}: more than {most:,} bytes, expected one JSON object")
    return parse_json(text, path)


def read_lines(path):
    """Yield (number from 1, bytes with the line feed) of the lines of a file; one past MAX_BYTES is cut in two.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `read_json`.
    """
    with reading(path) as file:
        yield from enumerate(iter(lambda: file.readline(MAX_BYTES), b""), 1)


def check_fields(values, fields, where, *, whole=True):
    """Refuse an object with a field of another kind or range.

    Parameters
    ----------
    values : dict
    fields : dict of str -> Field
    where : str or path-like
        As `parse_json`.
    whole : bool
        All of the fields must be there.

    Raises
    ------
    DataError
        Naming the first field that is wrong.
    """
    for name, field in fields.items():
        if name in values and not field.takes(values[name]):
            shown = printable(SHORT.repr(values[name]))
            raise DataError(f"{where}: {name} is {shown}, expected {field}")
        if whole and name not in values:
            raise DataError(f"{where}: {name} is missing, expected {field}")


def _object(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {printable(twice)!r:.60} is there twice")
    return found


def _integer(text):
    return int(text) if len(text) <= MAX_DIGITS else Huge(text)


def _fraction(text):
    return float(text) if math.isfinite(float(text)) else Huge(text)


def _depth(value):
    """Levels of lists and objects."""
    deepest, inside = 0, [value]
    while inside:
        deepest += 1
        inside = [each for outer in inside for each in (outer.values() if isinstance(outer, dict) else outer)
                  if isinstance(each, dict | list)]
    return deepest


SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 60
DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction)

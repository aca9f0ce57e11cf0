"""Read untrusted JSON: limits of size and depth, no repeated key, fields of known types.

Every error is a DataError of one line that names the file, the place and the expected
value.
"""
from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hpgcn.errors import DataError, printable
from hpgcn.runtime.files import reading

MAX_BYTES = 1 << 20  # bytes of a file, or of a line of JSON
MAX_DEPTH = 64
MAX_DIGITS = 19  # digits of an integer of 64 bits
NAMES = {int: "an integer", float: "a number", str: "text", dict: "an object"}


class Field(NamedTuple):
    """Expected type and range of a JSON field.

    `float` accepts integers; `optional` accepts None, NaN and Inf.
    """

    kind: type
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False

    def takes(self, value: Any) -> bool:
        if value is None:
            return self.optional
        if self.kind not in (int, float):
            return isinstance(value, self.kind)
        kinds = int if self.kind is int else int | float
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        undefined = type(value) is float and not math.isfinite(value)
        return self.low <= value <= self.high or (self.optional and undefined)

    def __str__(self) -> str:
        text = NAMES[self.kind]
        if self.low > -1e12:
            text += f" of at least {self.low:g}"
        if self.high < 1e12:
            text += f"{' and' if self.low > -1e12 else ' of'} at most {self.high:g}"
        return text + ", or null" * self.optional


class Huge(float):
    """A number that exceeds 64 bits: its value is infinite, but it prints as in the input."""

    def __new__(cls, text: str) -> Huge:
        huge = super().__new__(cls, "-inf" if text.startswith("-") else "inf")
        huge.text = text if len(text) <= 24 else f"{text[:20]}... ({len(text)} characters)"
        return huge

    def __repr__(self) -> str:
        return self.text


def parse_json(text: bytes, where: Path | str) -> dict[str, Any]:
    """Parse bytes that contain one JSON object.

    NaN and Infinity are floats. Errors begin with `where`.
    """
    try:
        values = DECODER.decode(text.decode())
        if len(text) <= MAX_BYTES and _depth(values) > MAX_DEPTH:
            raise RecursionError
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: not JSON: {error.msg} ({place})") from error
    except RecursionError:
        raise DataError(f"{where}: not JSON that hpgcn writes: nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error

    if not isinstance(values, dict):
        raise DataError(f"{where}: {type(values).__name__}, expected one JSON object")
    return values


def read_json(path: Path | str, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file of at most `most` bytes."""
    with reading(path) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise DataError(f"{path}: more than {most:,} bytes, expected one JSON object")
    return parse_json(text, path)


def read_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, bytes) for each line of a file, or piece of a very long line."""
    with reading(path) as file:
        yield from enumerate(iter(lambda: file.readline(MAX_BYTES), b""), 1)


def check_fields(values: dict[str, Any], fields: dict[str, Field], where: Path | str, *,
                 whole: bool = True) -> None:
    """Raise DataError if values in a dict do not match `fields`, or lack one if `whole`."""
    for name, field in fields.items():
        if name in values and not field.takes(values[name]):
            shown = printable(SHORT.repr(values[name]))
            raise DataError(f"{where}: {name} is {shown}, expected {field}")
        if whole and name not in values:
            raise DataError(f"{where}: {name} is missing, expected {field}")


def _object(pairs: list[tuple]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {printable(twice)!r:.60} occurs twice")
    return dict(pairs)


def _integer(text: str) -> int | Huge:
    return int(text) if len(text) <= MAX_DIGITS else Huge(text)


def _fraction(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else Huge(text)


def _depth(value: Any) -> int:
    """Return the depth of nested lists and objects."""
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [item for outer in level
                 for item in (outer.values() if isinstance(outer, dict) else outer)]
    return depth


SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 60
DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction)

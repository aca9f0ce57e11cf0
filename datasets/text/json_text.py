"""Parser of JSON that respects the memory limit."""
import json
from contextlib import suppress

from hpgcn.datasets.source import first_repeated, truncate
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError

GRAPH_FACTOR, TABLE_FACTOR = 30, 40  # bytes of memory that a byte of text may become


class JsonObject(list):
    """The members of a JSON object in their order, as (name, value) pairs."""


def parse_json(source, memory, kind, expected):
    """Return the value in a JSON file.

    Raise DataError if its type is not `kind` (list or dict), or if an object has a name
    twice.
    """
    def unique(pairs):
        if (again := first_repeated(name for name, _ in pairs)) is not None:
            raise DataError(f"{source}: {truncate(again, 40)!r} occurs twice in one object")
        return dict(pairs)

    value = _parsed(whole_text(source, memory, GRAPH_FACTOR).decode(), source, unique)
    if not isinstance(value, kind):
        raise DataError(f"{source}: JSON of a {type(value).__name__}, expected {expected}")
    return value


def read_json(source, memory):
    """Return the content of a JSON file; its objects become JsonObjects, which keep
    repeated names.

    A file of one JSON value a line, like .jsonl, becomes a list.
    """
    text = whole_text(source, memory, TABLE_FACTOR).decode()
    try:
        return _parsed(text, source, JsonObject)
    except DataError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].rstrip()[-1:] in "}]":
            with suppress(DataError):
                return [_parsed(line, source, JsonObject) for line in lines]
        raise


def _parsed(text, source, make_object):
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        reason = truncate(error) or "nested too deep"
        raise DataError(f"{source}: broken JSON ({reason})") from error

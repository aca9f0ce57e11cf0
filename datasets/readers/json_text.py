"""Parser of JSON that respects the memory limit and refuses repeated names in an
object.
"""
import json

from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError

TEXT_FACTOR = 30  # bytes of memory that a byte of text may become


def parse_json(source, memory, kind, expected):
    """Return the value in a JSON file; raise DataError if its type is not `kind` (list
    or dict).
    """
    text = whole_text(source, memory, TEXT_FACTOR).decode()

    def unique(pairs):
        value = dict(pairs)
        if len(value) < len(pairs):
            seen = set()
            again = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise DataError(f"{source}: {truncate(again, 40)!r} occurs twice in one object")
        return value

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        reason = truncate(error) or "nested too deep"
        raise DataError(f"{source}: broken JSON ({reason})") from error
    if not isinstance(value, kind):
        raise DataError(f"{source}: JSON of a {type(value).__name__}, expected {expected}")
    return value

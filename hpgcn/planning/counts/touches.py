"""Record which arrays a pass through a model reads and writes between its products with A.

Arrays count from their first byte: a pass touches a beginning of each.
"""
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

LEAST = 1 << 18  # bytes: smaller arrays are not counted


@dataclass
class Touch:
    """Bytes of an array that a segment of a pass touches."""

    touched: int = 0
    read: int = 0  # before the segment overwrites them
    fresh: int = 0  # overwritten before they are read
    written: int = 0

    def live(self, after):
        """Return the bytes whose contents matter before, if `after` bytes do after it."""
        return max(self.read, after if self.fresh < after else 0)


class Touches:
    """The arrays that a pass touches, in segments.

    A rank waits for others in each product with A, which ends a segment. So does the end
    of the pass.
    """

    def __init__(self):
        self.products = []
        self._segments = [defaultdict(Touch)]  # by id of an array
        self._bases = {}  # arrays by id, which must not end before
        self._rows = []  # ids of the own rows that each product reads
        self._results = {}  # bytes of arrays that are read after the pass, by id

    def call(self, read, *written):
        """Record a call that reads arrays, then overwrites others; leave other objects out."""
        for each in read:
            self._read(each)
        for made in written:
            for each in made if isinstance(made, tuple) else (made,):
                self._write(each)

    def product(self, product, rows, out, read_on=()):
        """Record a product with A.

        It reads rows before it waits, and `read_on` also after that. It adds to `out` then.
        """
        self.call((*rows, *read_on), out)
        self._rows.append([id(each.base) for each in rows])
        self.products.append(product)
        self._segments.append(defaultdict(Touch))
        out = out if isinstance(out, tuple) else (out,)
        self.call((*read_on, *out), *out)

    def finish(self, *results):
        """Record the end of the pass, after which only `results` are read."""
        for each in results:
            self._touch(each)
            self._results[id(each.base)] = _end(each)

    def write_part(self, array, read):
        """Record a call that reads arrays and overwrites a part of another one."""
        self.call(read)
        touch = self._touch(array)
        if touch:
            touch.written = max(touch.written, _end(array))

    def _touch(self, array):
        base = getattr(array, "base", None)
        if base is None:
            return None
        self._bases[id(base)] = base
        touch = self._segments[-1][id(base)]
        touch.touched = max(touch.touched, _end(array))
        return touch

    def _read(self, array):
        touch = self._touch(array)
        if touch and _end(array) > touch.fresh:
            touch.read = max(touch.read, _end(array))

    def _write(self, array):
        touch = self._touch(array)
        if touch:
            touch.written = max(touch.written, _end(array))
            if array.from_begin:
                touch.fresh = max(touch.fresh, array.nbytes)

    def segments(self, *, frees_rows=True):
        """Return the list of segments: a Touch by id of an array of at least LEAST bytes.

        Without `frees_rows` products read their rows also after they have waited.
        """
        found = [{key: touch for key, touch in segment.items()
                  if self._bases[key].nbytes >= LEAST} for segment in self._segments]
        if not frees_rows:
            for number, keys in enumerate(self._rows):
                for key in keys:
                    if key in found[number]:
                        nbytes = found[number][key].touched
                        touch = found[number + 1].get(key, Touch())
                        found[number + 1][key] = Touch(max(touch.touched, nbytes), nbytes,
                                                       touch.fresh, touch.written)
        return found


def _end(array):
    """Return the end of the bytes that a view touches: all, unless it begins at the begin."""
    return array.nbytes if array.from_begin else array.base.nbytes


class SegmentArray(NamedTuple):
    """An array of several segments in one of them; bytes from its begin."""

    key: object  # its name; None: it has none
    read: int  # bytes whose contents the segment needs
    touched: int
    written: int
    stored: int  # bytes that are written, and whose contents matter later
    dead: int  # first byte whose contents do not matter after the segment


class PassTurns(NamedTuple):
    """The products with A of a pass, and the arrays of each segment between them."""

    products: tuple  # hpgcn.strategies.Product each
    segments: tuple  # a tuple of SegmentArray each, one more than products
    dead: dict  # first byte, by name, whose contents do not matter before the pass

    @property
    def nbytes(self):
        """Bytes that each segment touches, reads and stores, a list of triples."""
        return [tuple(sum(getattr(each, name) for each in segment)
                      for name in ("touched", "read", "stored")) for segment in self.segments]


def pass_turns(passes, names, *, frees_rows=True):
    """Return the PassTurns of passes that follow each other in any order.

    `passes` are Touches. `names` has names by id of arrays that stay from pass to pass, or
    None. Other arrays count if several segments touch them; else they are freed before the
    rank waits.
    """
    all_segments = [each.segments(frees_rows=frees_rows) for each in passes]
    kept = set(names)
    for segments in all_segments:
        seen = set()
        for segment in segments:
            kept |= seen & segment.keys()
            seen |= segment.keys()

    # bytes that matter at the begin of any pass, by array, until nothing changes
    first = {}
    for _ in range(2):
        begins = []
        for touches, segments in zip(passes, all_segments):
            live = _join(first, touches._results)
            for segment in reversed(segments):
                live = _before(segment, live)
            begins.append(live)
        first = _join(*begins)

    found = []
    for touches, segments in zip(passes, all_segments):
        live, made = _join(first, touches._results), []
        for segment in reversed(segments):
            after, live = live, _before(segment, live)
            made.append(tuple(
                SegmentArray(names.get(key), min(live.get(key, 0), touch.touched), touch.touched,
                             touch.written, min(touch.written, after.get(key, 0)),
                             after.get(key, 0))
                for key, touch in segment.items() if key in kept))
        dead = {name: first.get(key, 0) for key, name in names.items() if name}
        found.append(PassTurns(tuple(touches.products), tuple(reversed(made)), dead))
    return tuple(found)


def _join(*all_live):
    joined = {}
    for live in all_live:
        for key, nbytes in live.items():
            joined[key] = max(nbytes, joined.get(key, 0))
    return joined


def _before(segment, live):
    """Return the bytes that matter before a segment, by array, from those after it."""
    return live | {key: touch.live(live.get(key, 0)) for key, touch in segment.items()}

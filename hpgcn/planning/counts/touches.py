"""Record which arrays a pass through a model reads and writes between its waits.

A rank waits for others in products with A, and in sums over ranks within a layer.

Arrays count from their first byte: a pass touches a beginning of each.
"""
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

LEAST = 1 << 18  # bytes: smaller arrays are not counted
SUM = "sum"  # a sum over ranks within a layer


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

    A rank waits for others in each product with A, once or twice, and in sums over ranks.
    Each wait ends a segment, and so does the end of the pass.
    """

    def __init__(self):
        # lists (arrays read, arrays overwritten, a part that is written), products, and sums
        self._calls = []
        # (bytes of each message that is read, whether all ranks read the same) by collective
        self.collectives = []
        self.results = ()  # arrays that are read after the pass

    def call(self, read, *written):
        """Record a call that reads arrays, then overwrites others; leave other objects out."""
        made = [each if isinstance(each, tuple) else (each,) for each in written]
        self._add(read, [array for part in made for array in part])

    def write_part(self, array, read):
        """Record a call that reads arrays and overwrites a part of another one."""
        self._add(read, (), (array,))

    def _add(self, *kinds):
        self._calls.append([[each for each in arrays if hasattr(each, "base")] for arrays in kinds])

    def product(self, product, rows, out, read_on=(), between=lambda: None):
        """Record a product with A.

        It reads rows, and `read_on` also after the last wait. It adds to `out` then. What
        `between()` records comes between its waits, if own rows are sent.
        """
        before, self._calls = self._calls, []
        between()
        before.append((product, rows, read_on, out if isinstance(out, tuple) else (out,),
                       self._calls))
        self._calls = before

    @property
    def products(self):
        """The products with A, in their order."""
        return [call[0] for call in self._calls if isinstance(call, tuple)]

    def sum(self):
        """Record that a sum over ranks is waited for."""
        self._calls.append(SUM)

    def messages(self, read, *, once):
        """Record the messages of a collective call that are read, bytes by source.

        `once`: all ranks read the same ones.
        """
        self.collectives.append((read, once))

    def finish(self, *results):
        """Record the end of the pass, after which only `results` are read."""
        self.results = results

    def segments(self, waits_of, *, sends_own_rows=False, finds_all=False):
        """Return the Waits, and the list of segments between them.

        A segment has a Touch by id of each array of at least LEAST bytes.
        `waits_of(product)` is the number of waits of a product, 1 or 2. Own rows are
        multiplied before the only one, or between two. With `sends_own_rows` they are read
        before the first one alone, and sums are written after the last one. A rank that
        `finds_all` messages completes a product with own rows before the last wait, as all
        do if rows of others are kept.
        """
        segments, waits = [_Segment()], []

        def wait(product=None, first=True, last=True, finds_all=False):
            waits.append(Wait(product, first, last, finds_all))
            segments.append(_Segment())

        for call in self._calls:
            if isinstance(call, list):
                segments[-1].call(*call)
            elif call is SUM:
                wait()
            else:
                product, rows, read_on, out, between = call
                twice = waits_of(product) > 1
                if sends_own_rows:
                    segments[-1].call((*rows, *read_on))
                    wait(product, last=not twice)
                    for each in between:
                        segments[-1].call(*each)
                    if twice:
                        wait(product, first=False)
                    segments[-1].call(read_on, out)
                    continue
                if twice:
                    segments[-1].call((*rows, *read_on))
                    wait(product, last=False)
                segments[-1].call((*rows, *read_on), out)
                finds = finds_all or (product.kept > 0 and not twice)  # others send no rows
                if finds:
                    segments[-1].call((*read_on, *out), out)
                wait(product, first=not twice, finds_all=finds)
                if not finds:
                    segments[-1].call((*read_on, *out), out)
        return waits, [{key: touch for key, touch in each.touches.items()
                        if each.bases[key].nbytes >= LEAST} for each in segments]


class _Segment:
    """The arrays of a segment."""

    def __init__(self):
        self.touches = defaultdict(Touch)  # by id of an array
        self.bases = {}  # arrays by id

    def call(self, read, written=(), parts=()):
        """Add a call that reads arrays, then overwrites others, or parts of them."""
        for each in read:
            touch = self._touch(each)
            if touch and each.end > touch.fresh:
                touch.read = max(touch.read, each.end)
        for each in (*written, *parts):
            touch = self._touch(each)
            if touch:
                touch.written = max(touch.written, each.end)
                if each.from_begin and not parts:
                    touch.fresh = max(touch.fresh, each.nbytes)

    def _touch(self, array):
        base = getattr(array, "base", None)
        if base is None:
            return None
        self.bases[id(base)] = base
        touch = self.touches[id(base)]
        touch.touched = max(touch.touched, array.end)
        return touch


class SegmentArray(NamedTuple):
    """An array of several segments in one of them; bytes from its begin."""

    key: object  # its name; None: it has none
    read: int  # bytes whose contents the segment needs
    touched: int
    written: int
    stored: int  # bytes that are written, and whose contents matter later
    dead: int  # first byte whose contents do not matter after the segment


class Wait(NamedTuple):
    """A wait in a product with A, or in a sum over ranks, which ends a segment."""

    product: Any  # hpgcn.strategies.Product; None: a sum
    first: bool  # whether it is the first one of the product
    last: bool
    finds_all: bool  # whether the rank has completed the product

    @property
    def ends(self):
        """What a rank says as it ends the segment: see `SerialComm.end_segment`."""
        return (self.product.width, self.product.backward) if self.product else (SUM,)


class PassTurns(NamedTuple):
    """The waits of a pass, and the arrays of each segment between them."""

    waits: tuple  # Wait each
    segments: tuple  # a tuple of SegmentArray each, one more than waits
    dead: dict  # first byte, by name, whose contents do not matter before the pass
    results: dict  # bytes, by name, that are read after the pass

    def without(self, key):
        """Return these PassTurns without an array."""
        return self._replace(segments=tuple(tuple(each for each in segment if each.key != key)
                                            for segment in self.segments))

    @property
    def nbytes(self):
        """Bytes that each segment touches, reads and stores, a list of triples."""
        return [tuple(sum(getattr(each, name) for each in segment)
                      for name in ("touched", "read", "stored")) for segment in self.segments]


def pass_turns(passes, names, waits_of, **how):
    """Return the PassTurns of passes that follow each other in any order.

    `passes` are Touches. `names` has names by id of arrays that stay from pass to pass, or
    None. Other arrays count if several segments touch them; else they are freed before the
    rank waits. For `waits_of` and `how` see `Touches.segments`.
    """
    all_waits, all_segments = zip(*(each.segments(waits_of, **how) for each in passes))
    results = [_results(each) for each in passes]
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
        for after, segments in zip(results, all_segments):
            live = _join(first, after)
            for segment in reversed(segments):
                live = _before(segment, live)
            begins.append(live)
        first = _join(*begins)

    found = []
    for waits, read_after, segments in zip(all_waits, results, all_segments):
        live, made = _join(first, read_after), []
        for segment in reversed(segments):
            after, live = live, _before(segment, live)
            made.append(tuple(
                SegmentArray(names.get(key), min(live.get(key, 0), touch.touched), touch.touched,
                             touch.written, min(touch.written, after.get(key, 0)),
                             after.get(key, 0))
                for key, touch in segment.items() if key in kept))
        dead = {name: first.get(key, 0) for key, name in names.items() if name}
        found.append(PassTurns(tuple(waits), tuple(reversed(made)), dead,
                               {names.get(key): nbytes for key, nbytes in read_after.items()}))
    return tuple(found)


def _results(touches):
    """Return the bytes of arrays that are read after a pass, by id."""
    return {id(each.base): each.end for each in touches.results}


def _join(*all_live):
    joined = {}
    for live in all_live:
        for key, nbytes in live.items():
            joined[key] = max(nbytes, joined.get(key, 0))
    return joined


def _before(segment, live):
    """Return the bytes that matter before a segment, by array, from those after it."""
    return live | {key: touch.live(live.get(key, 0)) for key, touch in segment.items()}

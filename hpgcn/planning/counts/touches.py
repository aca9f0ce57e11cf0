"""Record which arrays a step on shapes reads and writes between its products with A."""
from dataclasses import dataclass
from typing import NamedTuple

LEAST = 1 << 18  # bytes: smaller arrays are not counted


@dataclass
class Touch:
    """An array that a segment of a step touches."""

    array: object
    nbytes: int = 0  # bytes touched
    written: bool = False
    discarded: bool = False  # its content is dropped at the end


class Touches:
    """The arrays that a step touches, in segments.

    A rank waits for others in each product with A, which ends a segment.
    """

    def __init__(self):
        self.products = []
        self._segments = [{}]  # a Touch by id of an array
        self._freed = []  # by product the id of the rows that are read last; None: they stay

    def call(self, read, *written):
        """Record a call that reads and writes arrays; other objects are left out."""
        for each in read:
            self._touch(each, False)
        for made in written:
            for each in made if isinstance(made, tuple) else (made,):
                self._touch(each, True)

    def product(self, product, rows, out, last_use=False):
        """Record a product with A.

        It reads rows before it waits, and adds to `out` before and after that. With
        `last_use` the content of the rows is then dropped.
        """
        self.call(rows, out)
        if last_use:
            self.discard(*rows)
        self._freed.append(id(rows[0].base) if last_use else None)
        self.products.append(product)
        self._segments.append({})
        self.call((), out)

    def discard(self, *arrays):
        """Record that the contents of arrays are dropped."""
        for array in arrays:
            if array.base.nbytes >= LEAST:
                touch = self._segments[-1].setdefault(id(array.base), Touch(array.base))
                touch.discarded = True

    def _touch(self, array, written):
        base = getattr(array, "base", None)
        if base is not None and base.nbytes >= LEAST:
            touch = self._segments[-1].setdefault(id(base), Touch(base))
            touch.nbytes = max(touch.nbytes, array.nbytes)
            touch.written |= written
            touch.discarded = False

    def turns(self, lasting):
        """Return the TurnSizes.

        Arrays in the list `lasting` count, and others that several segments touch. All
        others are freed before the rank waits.
        """
        kept = {id(array.base) for array in lasting}
        seen = set()
        for segment in self._segments:
            kept |= seen & segment.keys()
            seen |= segment.keys()

        # what the step before has discarded is not read in this one
        dropped = set()
        for _ in range(2):
            sizes = []
            for segment in self._segments:
                sizes.append([0, 0, 0])
                for key in kept & segment.keys():
                    touch = segment[key]
                    written = touch.nbytes * (touch.written and not touch.discarded)
                    for place, nbytes in enumerate((
                            touch.nbytes, touch.nbytes * (key not in dropped), written)):
                        sizes[-1][place] += nbytes
                    (dropped.add if touch.discarded else dropped.discard)(key)

        freed = (segment[key].nbytes if key in segment else 0
                 for key, segment in zip(self._freed, self._segments))
        return TurnSizes(tuple(self.products), tuple(map(tuple, sizes)), tuple(freed))


class TurnSizes(NamedTuple):
    """Products with A of a step, and bytes that a rank touches before, between and after them."""

    products: tuple  # hpgcn.strategies.Product each
    segments: tuple  # (bytes touched, read, written), one more than products
    freed: tuple  # bytes of rows that each product need not keep

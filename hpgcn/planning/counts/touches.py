"""Record which arrays a step on shapes reads and writes between its products with A."""
from typing import NamedTuple

LEAST = 1 << 18  # bytes: smaller arrays are not counted


class Touches:
    """The arrays that a step touches, in segments; a rank waits for others in each
    product with A, which ends a segment.
    """

    def __init__(self):
        self.products = []
        self._segments = [{}]  # values: an array, its bytes touched, whether they are written

    def call(self, read, *written):
        """Record a call that reads and writes arrays; other objects are left out."""
        for each in read:
            self._touch(each, False)
        for made in written:
            for each in made if isinstance(made, tuple) else (made,):
                self._touch(each, True)

    def product(self, product, rows, out):
        """Record a product with A: it reads rows before it waits, and adds to `out`
        before and after.
        """
        self.call(rows, out)
        self.products.append(product)
        self._segments.append({})
        self.call((), out)

    def _touch(self, array, written):
        base = getattr(array, "base", None)
        if base is not None and base.nbytes >= LEAST:
            segment = self._segments[-1]
            _, nbytes, before = segment.get(id(base), (base, 0, False))
            segment[id(base)] = base, max(nbytes, array.nbytes), before or written

    def turns(self, lasting):
        """Return the TurnSizes; arrays in the list `lasting` count, and others that several
        segments touch. All others are freed before the rank waits.
        """
        kept = {id(array.base) for array in lasting}
        seen = set()
        for segment in self._segments:
            kept |= seen & segment.keys()
            seen |= segment.keys()
        sizes = [[(nbytes, nbytes * written) for key, (_, nbytes, written) in segment.items()
                  if key in kept] for segment in self._segments]
        return TurnSizes(tuple(self.products), tuple(
            tuple(map(sum, zip((0, 0), *each))) for each in sizes))


class TurnSizes(NamedTuple):
    """Products with A of a step, and bytes that a rank touches before, between and after them."""

    products: tuple  # hpgcn.strategies.Product each
    segments: tuple  # (bytes touched, bytes written), one more than products

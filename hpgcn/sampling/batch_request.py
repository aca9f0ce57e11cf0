"""The setting --batch: which sampler, and how much it draws."""
import re
from dataclasses import dataclass

from hpgcn.errors import UsageError

FULL = "full"
MOST = 1 << 31


@dataclass(frozen=True)
class BatchRequest:
    """A sampler by its name, and its numbers.

    Attributes
    ----------
    name : str
    size : int
        Vertices, or parts, of a batch.
    parts : str
        Of parts: their number, or the path of a partitioned file; "" for the file's
        own.
    fan_outs : tuple of int
        Of neighbours: how many are drawn, first for the last product with A; -1 for
        all.
    """

    name: str
    size: int
    parts: str = ""
    fan_outs: tuple[int, ...] = ()

    def fan_outs_for(self, hops):
        """Return the fan-out of each of `hops` products with A, the first product's first.

        One number counts for all; a UsageError if there are neither one nor `hops`
        numbers.
        """
        given = self.fan_outs * (hops if len(self.fan_outs) == 1 else 1)
        if len(given) != hops:
            raise UsageError(f"batch: {len(given)} numbers of neighbors, expected one, or one for "
                             f"each of {hops} products with A")
        return given[::-1]


def positive(word):
    """Return a number from 1 of the setting `batch`; a ValueError if the word is another."""
    if not re.fullmatch("[0-9]{1,10}", word) or not 1 <= int(word) < MOST:
        raise ValueError(f"{word!r}: expected a number from 1 to {MOST - 1}")
    return int(word)

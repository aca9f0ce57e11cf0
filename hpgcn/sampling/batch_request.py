"""The setting --batch: the name of a sampler, and the sizes that it samples."""
from __future__ import annotations

import re
from dataclasses import dataclass

from hpgcn.errors import UsageError

FULL = "full"
MOST = 1 << 31


@dataclass(frozen=True)
class BatchRequest:
    """A parsed setting --batch: the name of a sampler and its sizes.

    Attributes
    ----------
    name : str
    size : int
        Number of vertices, or of parts, in a batch.
    parts : str
        Number of parts for the sampler `parts`, or path of a partitioned file; "" for
        the parts of the training file.
    fan_outs : tuple of int
        Numbers of neighbors that the sampler `neighbors` draws for each row, first for
        the last product with A; -1 for all.
    """

    name: str
    size: int
    parts: str = ""
    fan_outs: tuple[int, ...] = ()

    def fan_outs_for(self, hops: int) -> tuple[int, ...]:
        """Return the fan-outs of `hops` products with A, in the order of the products.

        One number counts for all; a UsageError if there are neither one nor `hops`
        numbers.
        """
        given = self.fan_outs * (hops if len(self.fan_outs) == 1 else 1)
        if len(given) != hops:
            raise UsageError(f"batch: {len(given)} numbers of neighbors, expected one, or one for "
                             f"each of {hops} products with A")
        return given[::-1]


def positive(word: str) -> int:
    """Convert a word of the setting `batch` to an int of at least 1.

    Raise a ValueError if that fails.
    """
    if not re.fullmatch("[0-9]{1,10}", word) or not 1 <= int(word) < MOST:
        raise ValueError(f"{word!r}: expected a number from 1 to {MOST - 1}")
    return int(word)

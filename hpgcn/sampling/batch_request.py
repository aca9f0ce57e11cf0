"""The setting --batch: which sampler, and how much it draws."""
from __future__ import annotations

import re
from dataclasses import dataclass

from hpgcn.errors import UsageError

FULL = "full"
EXPECTED = ("full, vertices:B, parts:Q, parts:Q:K, parts:Q:FILE or neighbours:K,...,K:B, e.g. "
            "vertices:20000, parts:8:100 or neighbours:15,10:1024")
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
        Of parts: their number, or the path of a partitioned file; "" for the file's own.
    fan_outs : tuple of int
        Of neighbours: how many are drawn, first for the last product with A; -1 for all.
    """

    name: str
    size: int
    parts: str = ""
    fan_outs: tuple[int, ...] = ()

    def fan_outs_for(self, hops):
        """Return the fan-out of each of so many products with A, the first product's first.

        One number is for all of them; a UsageError if they are neither one nor as many.
        """
        given = self.fan_outs * (hops if len(self.fan_outs) == 1 else 1)
        if len(given) != hops:
            raise UsageError(f"batch: {len(given)} numbers of neighbours, expected one, or one for "
                             f"each of {hops} products with A")
        return given[::-1]


def parse(text):
    """Return the BatchRequest of a setting `batch`, None of "full"; a UsageError if it is none."""
    if text == FULL:
        return None
    name, *rest = text.split(":")
    if name == "vertices" and len(rest) == 1:
        return BatchRequest(name, _number(text, rest[0]))
    if name == "parts" and rest:
        made = ":".join(rest[1:])  # a path may have colons
        if len(rest) > 1 and not made:
            raise _wrong(text)
        if re.fullmatch("[0-9]+", made):
            made = str(_number(text, made))
        return BatchRequest(name, _number(text, rest[0]), made)
    if name == "neighbours" and len(rest) == 2:
        fan_outs = tuple(-1 if each == "-1" else _number(text, each)
                         for each in rest[0].split(","))
        return BatchRequest(name, _number(text, rest[1]), fan_outs=fan_outs)
    raise _wrong(text)


def smallest(text):
    """Return a setting that runs the same code on three vertices."""
    request = parse(text)
    if request is None:
        return FULL
    return "neighbours:1:2" if request.fan_outs else "vertices:2"


def _number(text, word):
    if not re.fullmatch("[0-9]{1,10}", word) or not 1 <= int(word) < MOST:
        raise _wrong(text)
    return int(word)


def _wrong(text):
    return UsageError(f"batch = {text!r:.80}: expected {EXPECTED}")

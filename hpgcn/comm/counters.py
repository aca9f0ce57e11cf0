"""Counters of the bytes and messages that a rank sends to other ranks, by phase and purpose."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np


class Counters:
    """Bytes that this rank sent to other ranks; hpgcn.parallel.counts defines them."""

    def __init__(self) -> None:
        self.phase = "setup"
        self.bytes = Counter()
        self.messages = Counter()
        self.sent = {}  # bytes by phase, then by destination
        self.sums = {}  # bytes in `sent` that are partial sums of the destination's rows
        self.sent_messages = {}  # messages by phase, then by destination, like `sent`
        self.masked_additions = 0  # additions whose results masks set to 0; maybe on a GPU

    def add(self, kind: str, payload: int, messages: int, to: Sequence = (),
            sums: Sequence = ()) -> None:
        """Count one call.

        `to` has pairs (rank, bytes), if the receivers are known. `sums` has the pairs
        of partial sums, which the receivers add up.
        """
        key = (self.phase, kind)
        self.bytes[key] += payload
        self.messages[key] += messages
        ones = [(rank, 1) for rank, _ in to]
        for counted, pairs in ((self.sent, to), (self.sums, sums), (self.sent_messages, ones)):
            _add_sizes(counted, self.phase, pairs)

    def include(self, other: Counters) -> None:
        """Add the counts of other Counters."""
        self.bytes.update(other.bytes)
        self.messages.update(other.messages)
        for ours, theirs in ((self.sent, other.sent), (self.sums, other.sums),
                             (self.sent_messages, other.sent_messages)):
            for phase, sizes in theirs.items():
                _add_sizes(ours, phase, sizes.items())

    def total(self, phase: str) -> tuple[int, ...]:
        """Return (bytes, messages) of a phase, summed over all kinds."""
        return tuple(sum(value for (of, _), value in counted.items() if of == phase)
                     for counted in (self.bytes, self.messages))

    def between_nodes(self, phase: str, nodes: np.ndarray, rank: int) -> tuple[int, ...]:
        """Return (bytes, messages) of a phase that went to other nodes.

        Calls whose receivers are unknown, such as reductions, are left out. `nodes`:
        (P,), the node of each rank; `rank`: this one.
        """
        return tuple(sum(amount for to, amount in counted.get(phase, {}).items()
                         if nodes[to] != nodes[rank])
                     for counted in (self.sent, self.sent_messages))


def _add_sizes(counted: dict[str, dict], phase: str, pairs: Sequence) -> None:
    """Add pairs (rank, bytes) to the messages sent in a phase."""
    sent = counted.setdefault(phase, {})
    for rank, size in pairs:
        sent[rank] = sent.get(rank, 0) + size

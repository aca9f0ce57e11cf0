"""Follow the ranks of a process through their passes of a model, as they take turns.

A pass is a training step or an evaluation. Where a rank waits for others, a segment ends:
in products with A, and in sums over ranks within a layer. What a segment reads, and which
contents nothing reads after it, is known before the run (hpgcn.training.steps.pass_arrays).
"""
from __future__ import annotations

from typing import Any


class PlannedTurns:
    """Base class of observers of turns, with the segment that each rank is in."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._passes: list = [None] * ranks  # the PassArrays of the pass of each rank, or None
        self._begun = [0] * ranks  # passes that each rank has begun
        self._segments = [0] * ranks  # segment of this pass that the rank is in, or begins next
        self._between = [True] * ranks  # whether it has not begun that segment yet

    def begin_pass(self, rank: int, arrays: Any) -> None:
        """Note that a rank begins a pass with some PassArrays; None: they are not known."""
        self._passes[rank], self._segments[rank], self._between[rank] = arrays, 0, True
        self._begun[rank] += 1

    def end_segment(self, rank: int, *ends: Any) -> bool:
        """Note that a rank ends a segment: `ends` as in `SerialComm.end_segment`.

        Return whether it was in one.
        """
        arrays = self._passes[rank]
        if arrays is None or self._between[rank]:
            return False
        arrays.check(self._segments[rank], *ends)
        self._segments[rank] += 1
        self._between[rank] = True
        return True

    def begin_segment(self, rank: int) -> None:
        """Note that a rank begins the next segment: with a pass, or after a wait."""
        self._between[rank] = False

    def is_in_order(self, rank: int) -> bool:
        """Return whether it is the turn of a rank to begin its next segment.

        The ranks before have begun that segment, and those after it the one before. It is
        true for a rank that does not wait between two segments of a pass.
        """
        arrays = self._next_arrays(rank)
        if arrays is None or self._segments[rank] >= arrays.last:
            return True
        places = [*zip(self._begun, self._segments, (not each for each in self._between))]
        begun, segment, _ = places[rank]
        return (all(other > places[rank] for other in places[:rank])
                and all(other > (begun, segment - 1, False) for other in places[rank + 1:]))

    def told(self) -> dict[str, Any]:
        """Return bytes that were moved and seconds of waits, by names of summary.json."""
        return {}

    def _dead(self, rank: int) -> list[tuple]:
        """Return contents that a rank will not read, a list of (array, first byte)."""
        arrays = self._next_arrays(rank)
        return [] if arrays is None else [*arrays.dead(self._segments[rank])]

    def _coming(self, rank: int) -> list[tuple]:
        """Return the arrays that the next turn of a rank touches, as `PassArrays.coming`.

        The list is empty if they are not known.
        """
        arrays = self._next_arrays(rank)
        return [] if arrays is None else arrays.coming(self._segments[rank])

    def _next_arrays(self, rank: int) -> Any:
        """Return the PassArrays of a rank between two segments; None: not known, or within one."""
        return self._passes[rank] if self._between[rank] else None

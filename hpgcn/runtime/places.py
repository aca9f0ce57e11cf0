"""Places in a file or in memory, which are taken and given back."""
import math
from bisect import bisect_left, insort


class Places:
    """Places within `limit` bytes: the smallest hole that is large enough, or the end."""

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.end = 0
        self.holes: dict[int, int] = {}  # bytes by the first one
        self._by_size: list[tuple[int, int]] = []  # (bytes, first one) of all holes, in order
        self._by_end: dict[int, int] = {}  # first byte of each hole by its end

    def take(self, size: int) -> int:
        """Return the first byte of a place of `size` bytes; -1 if all holes are too small."""
        number = bisect_left(self._by_size, (size, 0))
        if number == len(self._by_size):
            if self.end + size > self.limit:
                return -1
            self.end += size
            return self.end - size
        hole, place = self._by_size[number]
        self._remove(place)
        if hole > size:
            self._add(place + size, hole - size)
        return place

    def give(self, place: int, size: int) -> None:
        """Let a place be used again, together with the holes beside it."""
        size += self._remove(place + size)
        before = self._by_end.get(place, place)
        size += self._remove(before)
        if before + size == self.end:
            self.end = before
        else:
            self._add(before, size)

    def _add(self, place: int, size: int) -> None:
        self.holes[place] = size
        self._by_end[place + size] = place
        insort(self._by_size, (size, place))

    def _remove(self, place: int) -> int:
        """Remove the hole that begins at a place; return its bytes, or 0 without one."""
        size = self.holes.pop(place, 0)
        if size:
            del self._by_end[place + size]
            del self._by_size[bisect_left(self._by_size, (size, place))]
        return size

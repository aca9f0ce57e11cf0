"""Places in a file or in memory, which are taken and given back."""
import math


class Places:
    """Places within `limit` bytes: the smallest hole that is large enough, or the end."""

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.end = 0
        self.holes: dict[int, int] = {}  # bytes by the first one

    def take(self, size: int) -> int:
        """Return the first byte of a place of `size` bytes; -1 if all holes are too small."""
        large = [(hole, place) for place, hole in self.holes.items() if hole >= size]
        if not large:
            if self.end + size > self.limit:
                return -1
            self.end += size
            return self.end - size
        hole, place = min(large)
        del self.holes[place]
        if hole > size:
            self.holes[place + size] = hole - size
        return place

    def give(self, place: int, size: int) -> None:
        """Let a place be used again, together with the holes beside it."""
        size += self.holes.pop(place + size, 0)
        before = next((each for each, hole in self.holes.items() if each + hole == place), place)
        size += self.holes.pop(before, 0)
        if before + size == self.end:
            self.end = before
        else:
            self.holes[before] = size

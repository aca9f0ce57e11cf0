"""Numbers that nobody calls weights, and that look like something else."""
from __future__ import annotations

import numpy as np

from hpgcn.errors import DataError

RANGES = (  # least, largest, numbers at least, and what whole numbers in this range are
    (10**8, 10**10, 1, "Unix times"),
    (10**11, 10**13, 1, "Unix times in milliseconds"),
    (10**14, 10**16, 1, "Unix times in microseconds"),
    (10**17, 10**19, 1, "Unix times in nanoseconds"),
    (19000101, 21001231, 1, "dates"),
    (1900, 2100, 16, "years"),
)
MANY = 64  # numbers, from which an order is no accident


class Times:
    """Looks at a third column, block by block, for what is no weight."""

    def __init__(self):
        self.low, self.high, self.last = np.inf, -np.inf, -np.inf
        self.count, self.rises = 0, 0
        self.whole, self.ordered = True, True

    def add(self, numbers):
        """Take the next numbers, (k,) float64."""
        if not numbers.size or not self.whole:
            return
        self.whole = bool(np.all(numbers == np.floor(numbers)))
        steps = np.diff(numbers, prepend=self.last if self.count else numbers[0])
        self.ordered = self.ordered and bool(np.all(steps >= 0))
        self.rises += int(np.count_nonzero(steps))
        self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())
        self.count += numbers.size
        self.last = numbers[-1]

    def refuse(self, where):
        """Raise DataError where the numbers taken look like times, dates or a count of the lines."""
        if not self.whole or not self.count:
            return
        kinds = [kind for low, high, least, kind in RANGES
                 if low <= self.low <= self.high <= high and self.count >= least]
        if not kinds and self.ordered and self.count >= MANY and 4 * self.rises >= self.count:
            kinds = ["times or numbers of lines, they only grow"]
        if kinds:
            raise DataError(f"{where}: no header, and the third column ({self.low:.0f}..{self.high:.0f}) looks like "
                            f"{kinds[0]}: --columns u,v,- leaves it out, --columns u,v,w reads it as weights")

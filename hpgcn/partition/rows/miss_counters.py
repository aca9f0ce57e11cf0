"""Count for 64 parts at once the nets of a vertex that each part does not read.

Each part has a binary counter. Digit d of all counters is `planes[d]`, of (64,) uint64,
with a bit for each part. A counter overflows after the most misses with which a move
pays.
"""
import numpy as np

from hpgcn.kernels.host.jit import jit


@jit(inner=True)
def start_counters(misses, planes):
    """Set all counters so that they overflow after `misses`; return digits and start value."""
    digits = 1
    while misses >> digits:
        digits += 1
    begin = (np.int64(1) << digits) - 1 - misses
    for digit in range(digits):
        planes[digit] = ~np.uint64(0) if begin >> digit & 1 else np.uint64(0)
    return digits, begin


@jit(inner=True)
def count_misses(missing, digits, planes):
    """Add 1 to the counter of each part whose bit is set; return the parts that overflow."""
    for digit in range(digits):
        rest = planes[digit] & missing
        planes[digit] ^= missing
        missing = rest
    return missing


@jit(inner=True)
def counted_misses(q, digits, begin, planes):
    """Return the number of nets that part q misses, if its counter has not overflowed."""
    missed = -begin
    for digit in range(digits):
        missed += np.int64(planes[digit] >> np.uint64(q) & np.uint64(1)) << digit
    return missed

"""Compiled loops of BTER graphs: blocks, pairs within blocks, a matching of stubs.

Draws are hashes of seed and number, as in `keyed_sampling`. A stub is one end of a
future edge.
"""

import numpy as np

from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
PAIRS, ROUNDING, MATCHING, LABELS = (np.uint64(stream) for stream in (11, 12, 13, 14))
ONE, HALF, LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
ROUNDS = np.uint64(6)  # rounds of the Feistel network
BITS = 32  # binary digits of a probability


@jit()
def stream_key(seed: np.uint64, stream: int) -> np.uint64:
    """Return the key, uint64, of the stream of random numbers of one purpose."""
    return mix(mix(np.uint64(seed) * GOLDEN + ONE) + stream * GOLDEN)


@jit()
def block_starts(counts: np.ndarray) -> np.ndarray:
    """Divide vertices, ordered by degree, into affinity blocks of d + 1 vertices.

    Here d >= 2 is the least degree in a block. The last block has all vertices that are
    left. Return the first vertex of each block, and then n: (b + 1,) int64.
    """
    n = counts.sum()
    start = counts[:2].sum()
    starts = np.empty((n - start) // 3 + 2, np.int64)
    size = 0
    below = start  # number of vertices with degree at most d
    for d in range(2, counts.size):
        below += counts[d]
        while start < below:
            starts[size] = start
            size += 1
            start += d + 1
    starts[size] = n
    return starts[:size + 1]


@jit()
def pairs_within(key: np.uint64, starts: np.ndarray, pairs: np.ndarray, least: np.ndarray,
                 first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs first..last - 1 within blocks; return the ends of those that are edges.

    `pairs` (b + 1,) int64 has the number of pairs in all blocks before each. A pair of
    block b is an edge if its 32 random bits are below least[b], (b,) uint64.
    """
    u, v = np.empty((2, last - first), np.int64)
    size = 0
    at = first

    # go through the blocks, whose pairs are numbered consecutively
    block = np.searchsorted(pairs, first, side="right") - 1
    while at < last:
        stop = min(last, pairs[block + 1])

        # find the row and the column of the first pair in this block
        if least[block]:
            end = starts[block + 1]
            row = starts[block]
            skipped = at - pairs[block]
            while skipped >= end - 1 - row:
                skipped -= end - 1 - row
                row += 1
            column = row + 1 + skipped

            # draw the requested pairs of the block
            for number in range(at, stop):
                if mix(key + np.uint64(number) * GOLDEN) >> HALF < least[block]:
                    u[size] = row
                    v[size] = column
                    size += 1
                column += 1
                if column == end:
                    row += 1
                    column = row + 1
        at = stop
        block += 1
    return u[:size], v[:size]


@jit()
def round_stubs(key: np.uint64, excess: np.ndarray, ratio: np.ndarray,
                first_stub: np.ndarray) -> None:
    """Write the number of stubs before each vertex to first_stub[1:].

    A vertex has excess x ratio[excess] stubs, with `ratio` (k,) float64. A fractional
    number is rounded up or down at random.
    """
    total = np.int64(0)
    for vertex in range(excess.size):
        exact = excess[vertex] * ratio[excess[vertex]]
        stubs = np.int64(exact)
        share = np.uint64((exact - stubs) * 2.0**BITS)
        stubs += mix(key + np.uint64(vertex) * GOLDEN) >> HALF < share
        total += stubs
        first_stub[vertex + 1] = total


@jit()
def guide(first_stub: np.ndarray, shift: int) -> np.ndarray:
    """Return the vertex of every 2^shift-th stub, and the last vertex, to find stubs fast.

    `first_stub` is (n + 1,) int64, from 0 to the number of stubs.
    """
    total = first_stub[-1]
    table = np.empty((total >> shift) + 2, np.int64)
    vertex = 0
    for k in range(table.size):
        while vertex < first_stub.size - 2 and first_stub[vertex + 1] <= k << shift:
            vertex += 1
        table[k] = vertex
    return table


@jit(inner=True)
def _shuffled(number: np.uint64, count: np.uint64, half: np.uint64, columns: np.uint64,
              key: np.uint64) -> np.uint64:
    """Return the image of `number` under the permutation of 0..count - 1 that `key` selects.

    A Feistel network permutes 2^half x columns cells, the smallest number that covers
    all numbers. It is applied until the result is below `count`.

    Source: J. Black, P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
    """
    mask = (ONE << half) - ONE
    while True:
        low = number & mask
        high = number >> half
        step = key
        for _ in range(ROUNDS // np.uint64(2)):
            step += GOLDEN
            low = (low + mix(step ^ (high << HALF))) & mask
            step += GOLDEN
            high += (mix(step ^ (low << HALF)) >> HALF) * columns >> HALF
            if high >= columns:
                high -= columns
        number = high << half | low
        if number < count:
            return number


@jit(inner=True)
def _owner(stub: int, first_stub: np.ndarray, table: np.ndarray, shift: int) -> int:
    """Return the vertex that the stub number `stub` belongs to."""
    low = table[stub >> shift]
    high = table[(stub >> shift) + 1] + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if first_stub[middle] <= stub:
            low = middle
        else:
            high = middle
    return low


@jit()
def matched(key: np.uint64, first_stub: np.ndarray, table: np.ndarray, shift: int, first: int,
            last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges first..last - 1 of a random matching of all stubs; some are loops."""
    u, v = np.empty((2, last - first), np.int64)
    count = np.uint64(first_stub[-1])
    half = np.uint64(0)
    while ONE << (half + half) < count:
        half += ONE
    columns = ((count - ONE) >> half) + ONE
    for number in range(first, last):
        k = np.uint64(number) << ONE
        left = np.int64(_shuffled(k, count, half, columns, key))
        right = np.int64(_shuffled(k | ONE, count, half, columns, key))
        u[number - first] = _owner(left, first_stub, table, shift)
        v[number - first] = _owner(right, first_stub, table, shift)
    return u, v


@jit()
def block_labels(key: np.uint64, starts: np.ndarray, classes: int, labels: np.ndarray) -> None:
    """Write the class of each vertex to `labels` (n,) int64.

    Vertices of a block have one class; the classes of all other vertices are random.
    """
    for vertex in range(starts[0]):
        drawn = mix(key + np.uint64(vertex) * GOLDEN) >> HALF
        labels[vertex] = np.int64(drawn * np.uint64(classes) >> HALF)
    for block in range(starts.size - 1):
        drawn = mix(key + np.uint64(starts[block]) * GOLDEN) >> HALF
        labels[starts[block]:starts[block + 1]] = np.int64(drawn * np.uint64(classes) >> HALF)

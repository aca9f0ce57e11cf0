"""Keyed draws without replacement, which every rank can repeat by itself.

Many numbers are drawn by a bijection of [0, n), which gives the position of each number
without the others. It is a Feistel network of six rounds on the least power of two that
holds n. Its round function is the finalizer of SplitMix64. Results outside of [0, n) go
through it again (cycle walking, Black and Rogaway 2002). If n is small, numbers are
sorted by keyed draws instead: networks of few bits are far from uniform. Entries of a
row are drawn by Floyd's algorithm (Bentley and Floyd 1987).
"""
from __future__ import annotations

import numpy as np

from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit

ROUNDS = 6
SORTED = 4096  # numbers up to which draws are sorted
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MASK = (1 << 64) - 1


def key_of(seed: int, *words: int) -> np.uint64:
    """Return the key (uint64) of a draw: a hash of the seed and further words, all 0 or more."""
    key = seed * int(GOLDEN) & MASK
    for word in words:
        key = int(fold(np.uint64(key), np.uint64(word)))
    return np.uint64(key)


@jit()
def fold(key: np.uint64, word: np.uint64) -> np.uint64:
    return mix(mix(key + GOLDEN) + word * GOLDEN)


@jit()
def _permute(numbers: np.ndarray, n: int, key: int, out: np.ndarray) -> None:
    """Fill `out` with the images of numbers below n under the permutation network of a key."""
    # the least power of two that holds n, in two halves
    bits = 2
    while (np.int64(1) << bits) < n:
        bits += 1
    half = np.uint64(bits // 2)
    low_mask = (np.uint64(1) << half) - np.uint64(1)
    high_mask = (np.uint64(1) << (np.uint64(bits) - half)) - np.uint64(1)

    # walk until the value is below n
    for i in range(numbers.size):
        x = np.uint64(numbers[i])
        while True:
            low = x & low_mask
            high = x >> half
            for step in range(0, ROUNDS, 2):
                first = key + np.uint64(step) * GOLDEN
                high ^= mix(first + low) & high_mask
                low ^= mix(first + GOLDEN + (high << np.uint64(32))) & low_mask
            x = high << half | low
            if x < np.uint64(n):
                break
        out[i] = x


@jit()
def _draws(n: int, key: int, out: np.ndarray) -> None:
    for i in range(n):
        out[i] = mix(key + np.uint64(i + 1) * GOLDEN)


def permuted(numbers: np.ndarray, n: int, key: np.uint64) -> np.ndarray:
    """Return the positions of `numbers` in a keyed permutation of [0, n).

    `key` selects the permutation. The result is (m,) int64, on the device of `numbers`.
    """
    on_gpu = not isinstance(numbers, np.ndarray)
    if on_gpu:
        from hpgcn.kernels.cuda import submatrix  # late: most runs use no GPU

    if n <= SORTED:
        draws = np.empty(n, np.uint64)
        _draws(n, key, draws)
        table = np.empty(n, np.int64)
        table[np.argsort(draws, kind="stable")] = np.arange(n)
        return (submatrix.current().xp.asarray(table) if on_gpu else table)[numbers]
    if on_gpu:
        return submatrix.permuted(numbers, n, key)
    numbers = np.ascontiguousarray(numbers, np.int64)
    out = np.empty(numbers.size, np.int64)
    _permute(numbers, n, key, out)
    return out


def block_of(positions: np.ndarray, n: int, blocks: int) -> np.ndarray:
    """Return the block of each position below n, (m,) int64.

    Blocks are cut as by `hpgcn.parallel.layout.split`: their sizes differ by at most
    one, and the longer ones come first.
    """
    size, longer = divmod(n, blocks)
    first = longer * (size + 1)  # position of the first shorter block
    return np.where(positions < first, positions // (size + 1),
                    longer + (positions - first) // max(size, 1))

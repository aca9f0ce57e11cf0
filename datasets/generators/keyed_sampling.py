"""Compiled loops of generators: edges drawn by key, a sort into CSR, decimal text.

A draw is SplitMix64's output for a counter made of the seed, the edge's number and the
draw's number.
"""

from typing import Any

import numpy as np

from hpgcn.kernels.entries import mix
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.orders import sort_row

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
DRAWS = np.uint64(64)  # counters per edge
# cumulative probabilities of R-MAT
A, AB, ABC = (np.uint64(share * 2**32) for share in (0.57, 0.76, 0.95))
WITHIN = np.uint64(0.8 * 2**32)  # probability that an edge of `sbm` stays within a class


@jit(inner=True)
def _key(seed: np.uint64, edge: int) -> np.uint64:
    """Return the random counter of draw 0 of an edge, minus one step."""
    return mix(seed * GOLDEN + np.uint64(1)) + np.uint64(edge) * DRAWS * GOLDEN


@jit()
def rmat(seed: np.uint64, first: int, last: int, scale: int,
         classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges first..last - 1 of an R-MAT graph.

    For each bit of the ends a quadrant is drawn.

    Chakrabarti, Zhan and Faloutsos, R-MAT: A Recursive Model for Graph Mining, SDM
    2004.
    """
    u, v = np.empty((2, last - first), np.int64)
    for edge in range(first, last):
        key = _key(seed, edge)
        row = np.int64(0)
        column = np.int64(0)
        bits = np.uint64(0)
        for level in range(scale):
            if level % 2 == 0:  # a level takes 32 bits
                key += GOLDEN
                bits = mix(key)
            x = bits & LOW
            bits >>= HALF
            row = 2 * row + (x >= AB)
            column = 2 * column + ((A <= x < AB) or x >= ABC)
        u[edge - first] = row
        v[edge - first] = column
    return u, v


@jit()
def sbm(seed: np.uint64, first: int, last: int, scale: int,
        classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges first..last - 1 of a planted partition, 4 of 5 within a class."""
    u, v = np.empty((2, last - first), np.int64)
    n = np.int64(1) << scale
    mask = np.uint64(n - 1)
    for edge in range(first, last):
        key = _key(seed, edge) + GOLDEN
        row = np.int64(mix(key) & mask)
        other = np.int64(mix(key + GOLDEN) & mask)
        if mix(key + GOLDEN + GOLDEN) & LOW < WITHIN:
            label = row * classes // n
            low = -(-label * n // classes)  # first vertex of the class
            high = -(-(label + 1) * n // classes)  # first vertex of the next class
            other = low + other % (high - low)
        u[edge - first] = row
        v[edge - first] = other
    return u, v


@jit()
def grid(seed: np.uint64, first: int, last: int, scale: int,
         classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges to the right and down of vertices first..last - 1 of a lattice.

    A vertex at a border has a loop in place of the missing edge.
    """
    u, v = np.empty((2, 2 * (last - first)), np.int64)
    width = np.int64(1) << (scale // 2)
    n = np.int64(1) << scale
    for vertex in range(first, last):
        k = 2 * (vertex - first)
        u[k:k + 2] = vertex
        v[k] = vertex + 1 if (vertex + 1) % width else vertex
        v[k + 1] = vertex + width if vertex + width < n else vertex
    return u, v


KINDS = {"rmat": rmat, "sbm": sbm, "grid": grid}


@jit()
def renumber(u: np.ndarray, v: np.ndarray, order: np.ndarray) -> int:
    """Replace each end of an edge by order[end], in place, and drop loops.

    Return the number of edges left.
    """
    end = 0
    for k in range(u.size):
        if u[k] != v[k]:
            u[end] = order[u[k]]
            v[end] = order[v[k]]
            end += 1
    return end


@jit()
def count(u: np.ndarray, v: np.ndarray, degree: np.ndarray) -> None:
    """Add 1 to the `degree` of both ends of each edge; skip loops."""
    for k in range(u.size):
        if u[k] != v[k]:
            degree[u[k]] += 1
            degree[v[k]] += 1


@jit()
def place(u: np.ndarray, v: np.ndarray, position: np.ndarray, indices: np.ndarray) -> None:
    """Write each edge into the CSR rows of both ends; skip loops.

    position[v] is the next free place of row v; it is advanced.
    """
    for k in range(u.size):
        if u[k] != v[k]:
            indices[position[u[k]]] = v[k]
            position[u[k]] += 1
            indices[position[v[k]]] = u[k]
            position[v[k]] += 1


@jit()
def sort_rows(indptr: np.ndarray, indices: np.ndarray) -> Any:
    """Sort each row of a CSR and drop duplicates, in place.

    Return the number of entries left.
    """
    end = np.int64(0)
    start = np.int64(0)
    for row in range(indptr.size - 1):
        stop = indptr[row + 1]
        sort_row(indices[start:stop])
        for k in range(start, stop):
            if k == start or indices[k] != indices[k - 1]:
                indices[end] = indices[k]
                end += 1
        start = stop
        indptr[row + 1] = end
    return end


@jit(inner=True)
def _decimal(number: int, text: np.ndarray, at: int) -> int:
    """Write a non-negative number in decimal at `text[at]`; return the position after it."""
    digits = 1
    rest = number
    while rest >= 10:
        rest //= 10
        digits += 1
    for k in range(at + digits - 1, at - 1, -1):
        text[k] = 48 + number % 10
        number //= 10
    return at + digits


@jit()
def write_rows(indptr: np.ndarray, indices: np.ndarray, first: int, last: int,
               text: np.ndarray) -> int:
    """Write `u v` for each entry above the diagonal of rows; return the number of bytes.

    The rows are first..last - 1.
    """
    at = 0
    for row in range(first, last):
        for k in range(indptr[row], indptr[row + 1]):
            if indices[k] > row:
                at = _decimal(np.int64(row), text, at)
                text[at] = 32
                at = _decimal(np.int64(indices[k]), text, at + 1)
                text[at] = 10
                at += 1
    return at

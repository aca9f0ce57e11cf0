"""Which ranks hold which blocks of A, H and W under each strategy, and how many nonzeros the blocks hold (pure)."""
from __future__ import annotations

from itertools import pairwise

import numpy as np

from hpgcn.errors import UsageError
from hpgcn.layout import balanced, split, stages

STRATEGIES = ("p2p", "1d", "1.5d", "2d", "3d", "mop")
CHUNK = 1 << 22  # entries counted at a time


def default_grid(strategy, ranks):
    """Arrangement of P ranks.

    Parameters
    ----------
    strategy : str
        One of STRATEGIES.
    ranks : int
        P >= 1.

    Returns
    -------
    tuple of int
        (P,) for p2p, 1d and mop. (P / c, c) for 1.5d: groups and replicas, c the largest divisor of P with c c <= P.
        (R, C) for 2d: the most square, R >= C: columns cost more than rows, because A itself and the products
        with W travel along them, and features may be fewer than columns. (R, C, L) for 3d: the least R + C + L,
        then R >= L >= C for the same reason.

    Raises
    ------
    UsageError
        Unknown strategy; P < 1.
    """
    _known(strategy, ranks)
    if strategy in ("p2p", "1d", "mop"):
        return (ranks,)
    if strategy in ("1.5d", "2d"):
        small = max(d for d in divisors(ranks) if d * d <= ranks)
        return (ranks // small, small)
    rows, layers, columns = min(((r, layer, ranks // (r * layer)) for r in divisors(ranks)
                                 for layer in divisors(ranks // r) if r >= layer >= ranks // (r * layer)),
                                key=lambda grid: (sum(grid), grid[0]))
    return (rows, columns, layers)


def check_grid(strategy, ranks, grid):
    """Refuse a grid that does not fit the strategy and the number of ranks; return it as a tuple of int.

    Raises
    ------
    UsageError
        Unknown strategy, wrong number of axes, an axis below 1, or a product that is not P.
    """
    _known(strategy, ranks)
    grid = tuple(grid)
    wanted = {"1.5d": "(P/c)xc", "2d": "RxC", "3d": "RxCxL"}.get(strategy, "P")
    text = "x".join(map(str, grid))
    if len(grid) != wanted.count("x") + 1:
        raise UsageError(f"grid {text}: strategy {strategy} takes {wanted}")
    if any(int(axis) != axis or axis < 1 for axis in grid):
        raise UsageError(f"grid {text}: every axis must be a whole number of at least 1")
    product = int(np.prod([int(axis) for axis in grid], dtype=object))
    if product != ranks:
        raise UsageError(f"grid {text} holds {product} ranks, but there are {ranks}: expected {wanted} "
                         f"with product {ranks}, e.g. {'x'.join(map(str, default_grid(strategy, ranks)))}")
    return tuple(map(int, grid))


def cube(strategy, grid):
    """(R, L, C): the grid as big row blocks, pieces of each, and column blocks; ranks are numbered in this order."""
    if strategy == "3d":
        return grid[0], grid[2], grid[1]
    if strategy == "1.5d":
        return grid[0], grid[1], 1
    return grid[0], 1, grid[1] if strategy == "2d" else 1


def row_blocks(strategy, grid, indptr):
    """Cut the stored order of rows into the blocks that ranks own.

    Balanced by nonzeros; for mop by rows, since there every rank multiplies by all of A.

    Parameters
    ----------
    indptr : (n + 1,) integers
        Row pointers of the matrix that is multiplied (A + I).

    Returns
    -------
    (B + 1,) int64
        B = P for p2p, 1d, 1.5d and mop, R for 2d, R L for 3d. With replicas or layers, block i L + l is piece l of
        big block i.
    """
    rows, pieces, _ = cube(strategy, grid)
    if strategy == "mop":
        return split(indptr.size - 1, rows)
    return balanced(indptr, rows * pieces)


def block_nonzeros(indptr, indices, row_offsets, column_offsets):
    """Count the nonzeros of every block of a sparse matrix.

    Parameters
    ----------
    indptr : (n + 1,) integers
    indices : (nnz,) integers, anything that can be sliced
        Column numbers; read in pieces of 4 Mi entries.
    row_offsets, column_offsets : (R + 1,), (C + 1,) integers, rising from 0

    Returns
    -------
    (R, C) int64
    """
    width = len(column_offsets) - 1
    block_of = np.repeat(np.arange(width), np.diff(column_offsets))
    found = np.zeros((len(row_offsets) - 1, width), np.int64)
    for row, (first, last) in enumerate(pairwise(indptr[row_offsets].tolist())):
        for start in range(first, last, CHUNK):
            columns = indices[start:min(start + CHUNK, last)]
            found[row] += np.bincount(block_of[columns], minlength=width)
    return found


def stage_nonzeros(strategy, grid, offsets, indptr, indices, *, transposed=False):
    """Nonzeros of the blocks that 2d and 3d broadcast: what `predict` takes as nnz_blocks.

    Parameters
    ----------
    offsets : (R L + 1,) int64
        As `row_blocks`.
    indptr, indices
        CSR pattern of the whole matrix that is multiplied (A + I), rows in the stored order.
    transposed : bool
        Count blocks of the transpose.

    Returns
    -------
    (R, S) int64
        By big row block and stage; S = L (R + C - gcd(R, C)).
    """
    rows, pieces, columns = cube(strategy, grid)
    big, cuts = offsets[::pieces], stages(offsets, rows, pieces, columns).offsets
    return block_nonzeros(indptr, indices, cuts, big).T if transposed else block_nonzeros(indptr, indices, big, cuts)


def divisors(number):
    """Divisors of a positive number, increasing."""
    return [d for d in range(1, number + 1) if number % d == 0]


def _known(strategy, ranks):
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy = {strategy!r}: expected one of {', '.join(STRATEGIES)}")
    if ranks < 1:
        raise UsageError(f"{ranks} ranks: expected at least 1")

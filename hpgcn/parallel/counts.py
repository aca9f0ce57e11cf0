"""Bytes and messages of collective calls by rank, for counters and plans (pure).

Bytes are the payload that a rank contributes to OTHER ranks, for any algorithm of MPI.
A message is one non-empty (source, destination) pair of a call. Bytes of each call:

- broadcast of m bytes over q ranks: (q - 1) m at the root;
- allgather: (q - 1) times the own block;
- reduce and reduce_scatter: all but the own block;
- alltoallv: the blocks of other ranks;
- allreduce of m bytes: 2 m (q - 1) over all q ranks, and 2 (q - 1) messages a rank.

Scalars (losses, counts, times) are not counted, nor is setting up.

Counts are (bytes, messages), arrays of int64 in the shape of the grid of ranks. Those
of calls that MPI executes by itself are a Collective: their seconds are not those of
these messages.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hpgcn.runtime.disk.page_cache import whole_pages


class PairMessages(NamedTuple):
    """Count of messages between pairs of ranks."""

    bytes: np.ndarray
    messages: np.ndarray
    between: tuple | None = None  # (bytes, messages) of those between nodes, if they are known
    shared: bool = False  # whether ranks of a node read the rows in memory that they share


class Collective(NamedTuple):
    """Count of collectives of one kind that MPI executes by itself, one after the other."""

    bytes: np.ndarray
    messages: np.ndarray
    kind: str  # "broadcast", "reduce" or "allreduce"
    ranks: int  # ranks that take part in each collective
    # bytes of each collective in the shape of the grid, of length 1 along its ranks: (calls, ...)
    sizes: np.ndarray
    axis: int = 0  # axis of the grid along which these ranks are


def replicate(own: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Count an allgather along an axis; `own`: bytes of each rank's block."""
    others = own.shape[axis] - 1
    return own * others, (own > 0) * others


def broadcasts(own: np.ndarray, axis: int) -> Collective:
    """Count one broadcast by each rank along an axis.

    `own` has the bytes that each rank broadcasts.
    """
    return Collective(*replicate(own, axis), "broadcast", own.shape[axis], _by_call(own, axis),
                      axis)


def reduce_scatter(own: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Count a reduce_scatter along an axis; `own`: bytes that each rank keeps."""
    full = own > 0
    return own.sum(axis, keepdims=True) - own, full.sum(axis, keepdims=True) - full


def reduces(own: np.ndarray, axis: int) -> Collective:
    """Count a reduce to every rank in turn along an axis; `own`: bytes that it keeps."""
    return Collective(*reduce_scatter(own, axis), "reduce", own.shape[axis], _by_call(own, axis),
                      axis)


def _by_call(own: np.ndarray, axis: int) -> np.ndarray:
    """Return the `sizes` of a Collective that has one call for each rank along an axis."""
    return np.expand_dims(np.moveaxis(own, axis, 0), axis + 1)


def allreduce(size: np.ndarray, axis: int) -> Collective:
    """Count an allreduce along an axis; `size`: bytes, equal along the axis.

    The total over q ranks, 2 m (q - 1), is divided by q; the first ranks count the
    remainder.
    """
    ranks = size.shape[axis]
    shape = [1] * size.ndim
    shape[axis] = -1
    place = np.arange(ranks).reshape(shape)
    quotient, remainder = np.divmod(2 * size * (ranks - 1), ranks)
    return Collective(quotient + (place < remainder), (size > 0) * (2 * (ranks - 1)), "allreduce",
                      ranks, size[None], axis)


def spooled(sizes: np.ndarray, in_files: int, *, at_once: np.ndarray | bool = True,
            once: bool = False) -> np.ndarray:
    """Return the bytes of messages that ranks read from a Spool and write to it, (2, P).

    sizes[p, q] are the bytes of the message to rank p from rank q. With `once` all messages
    of a rank are one. A message takes whole pages. It stays in memory if only the next
    rank takes it, in its next turn, or one from `in_files` on. `at_once`, (P,) bool, are
    the ranks that take messages of the rank before in their next turn.
    """
    if once and len(sizes) > 2:
        return all_spooled(sizes, once=True)
    ranks = np.arange(len(sizes))
    sizes = sizes.copy()
    sizes[ranks, ranks - 1] *= ~np.broadcast_to(at_once, ranks.shape)
    sizes[in_files:] = 0
    return all_spooled(sizes)


def all_spooled(sizes: np.ndarray, in_files: int = 0, *, at_once: np.ndarray | bool = True,
                once: bool = False) -> np.ndarray:
    """Return the bytes of messages as `spooled`, if none stays in memory.

    So it is if all ranks send theirs before one takes them.
    """
    return copied(whole_pages(sizes), once=once)


def stored_bytes(sizes: np.ndarray, rule: Callable) -> np.ndarray:
    """Return the bytes that move if stored arrays are read, by the rule for messages."""
    return sizes if rule is copied else whole_pages(sizes)


def copied(sizes: np.ndarray, in_files: int = 0, *, at_once: np.ndarray | bool = True,
           once: bool = False) -> np.ndarray:
    """Return the bytes of messages that ranks copy to a GPU and from it, as `spooled` does."""
    return np.array([sizes.sum(1), sizes.max(0) if once else sizes.sum(0)])


def below_gpu(sizes: np.ndarray, in_files: int, *, at_once: np.ndarray | bool = True,
              once: bool = False) -> np.ndarray:
    """Return the bytes of a file below a GPU, as `spooled` does: not those that many ranks take."""
    several = np.count_nonzero(sizes, axis=0) > 1
    return spooled(sizes * ~(several & once), in_files)

"""Count and lower the rows that parts exchange, in passes over blocks of rows of a file.

Net j is read by the parts that own a row with column j, as in `rows.row_moves`. A vertex
needs two bits of memory a part: a part reads the net, and reads it from two rows or
more. These bits show most of the moves that save a row, without a pattern in memory.
"""
import numpy as np

from hpgcn.kernels.cpu.emit.entry_prefetch import fetch_later
from hpgcn.kernels.entries import bit_in_word
from hpgcn.kernels.host.jit import jit
from hpgcn.partition.partition_request import largest_load
from hpgcn.partition.quality import imbalance, totals
from hpgcn.partition.rows.miss_counters import count_misses, counted_misses, start_counters
from hpgcn.partition.rows.streaming import visits

WORD = 64  # parts of a word
GAIN_PASSES = 8  # passes that move vertices, at most
LITTLE = 0.005  # share of the volume that a pass must save for another one
NET_BYTES = 16  # bytes of a vertex for each word of parts


def num_words(k):
    """Return the number of words that have a bit for each of k parts."""
    return -(-k // WORD)


def lower_volume(level, part, k, epsilon, classes=1):
    """Move vertices while that lowers the volume; return the parts, (n,) int32.

    A pass visits vertices in the order of rows and moves them at once. Bits that a move
    does not determine keep their values, so all bits are set exactly before each pass.
    No part grows beyond (1 + epsilon) of the mean weight.

    Parameters
    ----------
    level : rows.streaming.Level
    part : (n,) int32
        Changed.
    k : int
    epsilon : float
    classes : int
        As of `stream_parts`.
    """
    cap = largest_load(level.weights, k, epsilon)
    load = np.bincount(part, level.weights, k).astype(np.int64)
    nets = np.zeros((part.size, num_words(k), 2), np.uint64)
    planes = np.empty(64, np.uint64)
    volume = _mark_all(level, part, nets)
    for _ in range(GAIN_PASSES):
        # move vertices, then set the bits exactly
        before = part.copy()
        for (start, indptr, indices, _), rows in visits(level, classes):
            move_rows(start, indptr, indices, rows, level.weights, part, load, cap, nets, planes)
        last, volume = volume, _mark_all(level, part, nets)

        # keep the pass if it has lowered the volume
        if volume >= last:
            return before
        if volume > (1 - LITTLE) * last:
            break
    return part


def _mark_all(level, part, nets):
    """Set the bits of all nets exactly, and return the volume."""
    nets[:] = 0
    for start, indptr, indices, _ in level.blocks():
        mark_readers(start, indptr, indices, part, 0, nets)
    return count_bits(nets) - part.size


def count_blocks(level, part, k, w0=0, train=None):
    """Count the statistics of parts that own whole rows, like `quality.count`.

    Shares of split vertices are not counted. Each pass over the blocks counts the rows
    that WORD parts read.

    Parameters
    ----------
    level : rows.streaming.Level
        Blocks of a pattern, whose rows weigh their entries and `w0`.
    part : (n,) int32
        Part of each row.
    k : int
    w0 : int
    train : (n,) bool, optional
        Rows to train on.
    """
    n = part.size
    sent, received = np.zeros((2, k), np.int64)
    pairs = np.zeros((k, k), np.bool_)
    for first in range(0, k, WORD):
        nets = np.zeros((n, 1, 2), np.uint64)
        for start, indptr, indices, _ in level.blocks():
            mark_readers(start, indptr, indices, part, first, nets)
        count_readers(nets, part, first, sent, received, pairs)

    # the numbers of `quality.statistics`
    volume = int(sent.sum())
    rows = np.bincount(part, minlength=k)
    nonzeros = np.bincount(part, level.weights, k).astype(np.int64) - w0 * rows
    counted = {**totals(sent, pairs.sum(axis=1)), "ghosts_max": int(received.max()),
               "replication_factor": (n + volume) / n, "imbalance_nnz": imbalance(nonzeros),
               "imbalance_rows": imbalance(rows)}
    if train is not None:
        counted["imbalance_train"] = imbalance(np.bincount(part[train], minlength=k))
    return counted


@jit(inner=True)
def _add_reader(nets, net, word, bit):
    """Count one more row of a part that reads a net."""
    nets[net, word, np.int64(nets[net, word, 0] & bit != 0)] |= bit


@jit()
def mark_readers(start, indptr, indices, part, first, nets):
    """Mark the parts of a block's rows in their columns, the diagonal included.

    Bit q of nets[j, word, 0] is set if part first + 64 word + q reads net j. The same
    bit of nets[j, word, 1] is set if the part reads the net from two rows or more.
    """
    for i in range(indptr.size - 1):
        v = start + i
        p = part[v] - first
        if 0 <= p < 64 * nets.shape[1]:
            _add_reader(nets, v, p >> 6, bit_in_word(p))
            for t in range(indptr[i], indptr[i + 1]):
                fetch_later(nets, indices, t)
                if indices[t] != v:
                    _add_reader(nets, indices[t], p >> 6, bit_in_word(p))


@jit()
def count_readers(nets, part, first, sent, received, pairs):
    """Add up the rows that parts send and receive; mark pairs of parts.

    `nets` has the bits of `mark_readers` in one word.
    """
    last = min(np.int64(64), sent.size - first)
    for j in range(part.size):
        p = part[j]
        for q in range(last):
            if nets[j, 0, 0] & bit_in_word(q) and first + q != p:
                sent[p] += 1
                received[first + q] += 1
                pairs[p, first + q] = True


@jit()
def count_bits(nets):
    """Return the number of pairs of a net and a part that reads it."""
    count = 0
    for j in range(nets.shape[0]):
        for word in range(nets.shape[1]):
            rest = nets[j, word, 0]
            while rest:
                rest &= rest - np.uint64(1)
                count += 1
    return count


@jit()
def move_rows(start, indptr, indices, rows, weights, part, load, cap, nets, planes):
    """Move vertices of a block to the part with room where they save most rows.

    `rows` are the rows of the block. A move saves each net in which the vertex is the
    only row of its part. It costs each of its nets that the new part does not read.
    `planes` (64,) is a work array. `part`, `load` and `nets` are changed.
    """
    k = load.size
    for i in rows:
        v = start + i
        p = part[v]
        own_word, own = p >> 6, bit_in_word(p)

        # the nets that a move saves
        saved = np.int64(nets[v, own_word, 1] & own == 0)
        for t in range(indptr[i], indptr[i + 1]):
            fetch_later(nets, indices, t)
            u = indices[t]
            saved += u != v and nets[u, own_word, 1] & own == 0
        if saved == 0:
            continue

        # the part that misses the fewest nets
        best = -1
        fewest = saved
        for word in range(nets.shape[1]):
            misses = fewest - 1
            if misses < 0:
                break
            digits, begin = start_counters(misses, planes)
            left = min(np.int64(64), k - 64 * word)
            open_parts = ~np.uint64(0) >> np.uint64(64 - left)
            if word == own_word:
                open_parts &= ~own
            open_parts &= ~count_misses(~nets[v, word, 0], digits, planes)
            for t in range(indptr[i], indptr[i + 1]):
                if open_parts == 0:
                    break
                if indices[t] != v:
                    open_parts &= ~count_misses(~nets[indices[t], word, 0], digits, planes)
            if open_parts == 0:
                continue
            for q in range(left):
                if open_parts & bit_in_word(q) and load[64 * word + q] + weights[v] <= cap:
                    missed = counted_misses(q, digits, begin, planes)
                    if missed < fewest:
                        fewest = missed
                        best = 64 * word + q
        if best < 0:
            continue

        # move, and set the bits that are certain
        part[v] = best
        load[p] -= weights[v]
        load[best] += weights[v]
        for t in range(indptr[i] - 1, indptr[i + 1]):
            u = v if t < indptr[i] else np.int64(indices[t])
            if t < indptr[i] or u != v:
                if nets[u, own_word, 1] & own == 0:
                    nets[u, own_word, 0] &= ~own
                _add_reader(nets, u, best >> 6, bit_in_word(best))

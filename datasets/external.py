"""An edge list larger than memory into CSR: runs on disk, then a range of rows after the other, sorted and merged.

The result is that of `hpgcn.graph.build_adjacency` and `assemble`, bit for bit, whatever the memory: equal edges meet
in the order of the input, and sums over rows and columns are taken in the order of the stored entries.
"""
from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from hpgcn.check import check_features, check_labels, check_masks, index_dtype
from hpgcn.datasets import fold
from hpgcn.datasets.ids import Ids
from hpgcn.datasets.raw import Numbering
from hpgcn.datasets.runs import RANGES, Runs
from hpgcn.datasets.source import need
from hpgcn.errors import DataError
from hpgcn.graph import Counts, Graph, Header

VERTEX_BYTES = 32  # of memory for each vertex, besides features and labels
SLACK = 96 << 20  # bytes that parsing, imports yet to come and the allocator take
RUN = 1 << 22  # entries in memory while the input is read: more are no faster
TOP = np.uint64(2**64 - 1)


@dataclass
class Entries:
    """All entries of an edge list, in runs on disk.

    Attributes
    ----------
    numbering : Numbering
    weighted : bool
        There are weights, and not all of them are 1.
    mirror : bool
        The image of each entry is there too.
    strict : bool
        Entries carry their numbers.
    tally : (6,) int64
        See hpgcn.datasets.fold.
    """

    where: str
    numbering: Numbering
    runs: Runs
    weighted: bool
    mirror: bool
    strict: bool
    tally: np.ndarray

    @property
    def num_nodes(self):
        """Vertices (n)."""
        return self.numbering.num_nodes

    @property
    def original_ids(self):
        """As in Raw."""
        return self.numbering.original_ids

    @property
    def zeros(self):
        """Entries of weight 0, which were left out."""
        return int(self.tally[fold.ZEROS])

    def merge(self, scratch, memory):
        """Sort the entries, merge equal ones, and lay them out as CSR; return Adjacency.

        Raises
        ------
        DataError
            Strict, and an edge is there twice; a sum of weights does not fit float32.
        StorageError
            The disk is full.
        """
        rows = _Rows(self, scratch)
        bucket = room(memory - 9 * self.num_nodes) // (2 * (24 + 32 * self.weighted + 24 * self.strict))
        source = _Sorted(self, max(8, min(bucket, max(RUN, len(self.runs) >> 8))))
        with ThreadPoolExecutor(1) as pool:  # one range is read and sorted while the one before it is written
            windows = source.windows()
            pending = pool.submit(next, windows, None)
            while (window := pending.result()) is not None:
                pending = pool.submit(next, windows, None)
                rows.take(*window)
        duplicates = int(self.tally[fold.KEPT] - rows.tally[fold.MERGED])
        if self.strict and duplicates:
            number, u, v = source.again
            raise DataError(f"{self.where}: {duplicates} duplicate edges, the first at entry {number}: {u} -> {v} "
                            "(--strict)")
        self.runs.spool.remove()
        return rows.adjacency(duplicates)


@dataclass
class Adjacency:
    """A CSR on disk: Spools indptr, indices and values (None if all are 1), and what goes with it, as in Graph."""

    indptr: object
    indices: object
    values: object
    degree_row: object
    degree_column: np.ndarray
    degree_loop: object
    directed: bool
    isolated: int
    counts: Counts

    def sums(self):
        """Row and column sums, two (n,) float64."""
        return self.degree_row[:], self.degree_column

    def assemble(self, X=None, y=None, masks=None, *, name, original_ids=None, split="file", source_sha256=""):
        """As `hpgcn.graph.assemble`, but the arrays of the Graph are Spools: it is fit to be written."""
        n = self.indptr.size - 1
        features = check_features(X, n, name)
        labels, num_classes = check_labels(y, n, name)
        masks = check_masks(masks, n, labels, name)
        header = Header(
            name=name, num_nodes=n, num_edges=self.indices.size,
            num_features=0 if features is None else features.shape[1], num_classes=num_classes,
            directed=self.directed, all_ones=self.values is None,
            multilabel=labels is not None and labels.ndim == 2, sparse_features=sp.issparse(features),
            has_split=masks is not None, split=split if masks is not None else "", source_sha256=source_sha256)
        return Graph(
            header, 0, self.indptr, self.indices, self.values, features, labels, masks,
            self.degree_row, self.degree_column, self.degree_loop, vertex=None, original_ids=original_ids)


def room(memory):
    """Bytes of the budget that are left for arrays: without what this process holds already."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        resident = 0
    return max(memory - resident - SLACK, memory // 4)


def collect(stream, scratch, memory, *, reverse=False, symmetrize=False, unweighted=False, strict=False):
    """Read a stream of edges into runs.

    Parameters
    ----------
    stream : Stream
    scratch : Scratch
    memory : int
        Bytes.
    reverse, symmetrize, unweighted, strict : bool
        As in `convert.read`.

    Returns
    -------
    Entries

    Raises
    ------
    DataError
        As the stream; more vertices than memory; strict, and a self loop.
    StorageError
        The disk is full.
    """
    limit = memory // VERTEX_BYTES
    mirror = symmetrize or stream.undirected

    def refuse(count):
        need(VERTEX_BYTES * count, memory, f"{stream.where}: {count} vertices")

    if stream.num_nodes is not None:
        refuse(stream.num_nodes)
    ids = Ids(limit, refuse) if stream.num_nodes is None else None
    weighted = stream.weighted and not unweighted
    size = max(8, min(RUN, room(memory) // (2 * (64 + 24 * weighted + 24 * strict))))  # the other half: distinct ids
    rows, columns = np.empty((2, size), np.uint64)
    weights, entries = np.empty(size if weighted else 0), np.empty(size if strict else 0, np.int64)
    runs, tally, at = Runs(scratch.spool()), np.zeros(6, np.int64), 0
    step = size // (2 if mirror else 1)
    for u, v, w in stream.edges():
        if ids is not None:
            ids.add(u)
            ids.add(v)
        w = np.empty(0) if w is None else w
        u, v = (v, u) if reverse else (u, v)
        for start in range(0, u.size, step):
            cut = slice(start, start + step)
            if at + u[cut].size * (2 if mirror else 1) > size:
                runs.add(rows[:at], columns[:at], weights[:at], entries[:at])
                at = 0
            at = fold.append(u[cut], v[cut], w[cut], mirror, rows, columns, weights, entries, at, tally)
    runs.add(rows[:at], columns[:at], weights[:at], entries[:at])
    del rows, columns, weights, entries
    numbering = Numbering(stream.num_nodes, None, stream.num_nodes, 0) if ids is None else ids.result(stream.counted)
    numbers = numbering.original_ids
    if strict and tally[fold.LOOPS]:
        u = tally[fold.LOOP_ID] + (0 if numbers is None else stream.base)
        raise DataError(f"{stream.where}: {tally[fold.LOOPS]} self loops, the first at entry {tally[fold.LOOP_ENTRY]}: "
                        f"{u} -> {u} (--strict)")
    weighted = bool(weighted and tally[fold.NOT_ONE])
    if numbers is not None:
        runs = runs.renumbered(numbers, scratch.spool(), size, weighted=weighted, numbered=strict)
    return Entries(stream.where, stream.restored(numbering), runs, weighted, mirror, strict, tally)


class _Sorted:
    """Entries in the order of their keys, a window of them after the other.

    A range of rows with more distinct keys than fit is read several times, a window of its keys each time.
    """

    def __init__(self, entries, capacity):
        self.entries, self.capacity, self.runs = entries, capacity, entries.runs
        n = entries.num_nodes
        self.bits = np.uint64(max(2, (2 * n - 1).bit_length()))
        self.shift = max(self.runs.shift, (n - 1).bit_length() - RANGES)
        self.sizes = self.runs.sizes(((n - 1) >> self.shift) + 1, self.shift)
        self.again = None

    def windows(self):
        """Yield (first row, row after the last, keys, weights, whether these rows end here)."""
        n, first = self.entries.num_nodes, 0
        while first < self.sizes.size:
            ends = np.cumsum(self.sizes[first:])
            stop = first + max(1, min(int(np.searchsorted(ends, self.capacity, side="right")),
                                      self.capacity >> self.shift))
            low, high = np.uint64(0), np.uint64(0)
            while high < TOP:
                keys, weights, high = self._window(first, stop, low)
                yield first << self.shift, min(n, stop << self.shift), keys, weights, high == TOP
                if high < TOP:
                    low = high + fold.ONE
            first = stop

    def _window(self, first, stop, low):
        """Distinct keys from `low` on of some ranges of rows, their weights, and the last key that could be there."""
        made, row, high, at = self.entries, np.uint64(first << self.shift), TOP, 0
        size = min(self.capacity, int(self.sizes[first:stop].sum()))
        keys = np.empty(size, np.uint64)
        weights, numbers = np.empty(size if made.weighted else 0), np.empty(size if made.strict else 0, np.int64)
        for piece in self.runs.pieces(first, stop, self.shift, max(1, self.capacity // 4), weighted=made.weighted,
                                      numbered=made.strict):
            if at + piece[0].size > size:
                at = self._fold(keys[:at], weights[:at], numbers[:at], row)
            if at + piece[0].size > size:  # still: keep the lower half of the keys, leave the others to the next window
                high = (keys[at // 2] & ~fold.ONE) - fold.ONE
                at = int(np.searchsorted(keys[:at], high, side="right"))
            at = fold.join(*piece, row, self.bits, low, high, keys, weights, numbers, at)
        at = self._fold(keys[:at], weights[:at], numbers[:at], row)
        return keys[:at], weights[:at], high

    def _fold(self, keys, weights, numbers, row):
        """Sort in place and merge equal keys; return how many are left."""
        if not weights.size and not numbers.size:
            keys.sort()
            return fold.unique(keys)
        merged, sums = np.empty_like(keys), np.empty_like(weights)
        end, again = fold.combine(keys, weights, numbers, np.argsort(keys), merged, sums)
        if again >= 0 and (self.again is None or again < self.again[0]):
            key = int(keys[np.flatnonzero((numbers == again) & ((keys & fold.ONE) == 0))[0]])
            ends = (key >> int(self.bits)) + int(row), (key & ((1 << int(self.bits)) - 1)) >> 1
            ids = self.entries.original_ids
            self.again = (int(again), *(end if ids is None else int(ids[end]) for end in ends))
        keys[:end], numbers[:end] = merged[:end], -1  # known: these come first from now on
        if weights.size:
            weights[:end] = sums[:end]
        return end


class _Rows:
    """Rows of the CSR as they are finished, one after the other."""

    def __init__(self, entries, scratch):
        n = entries.num_nodes
        self.entries, self.tally, self.refused = entries, np.zeros(7, np.int64), np.zeros(2)
        self.tally[[fold.INFINITE, fold.OVERFLOW]] = -1
        self.bits = np.uint64(max(2, (2 * n - 1).bit_length()))
        self.indptr, self.indices = scratch.spool(np.int64), scratch.spool(index_dtype(n))
        self.values = scratch.spool(np.float32) if entries.weighted else None
        self.row, self.loop = scratch.spool(np.float64), scratch.spool(np.float64)
        self.column, self.touched = np.zeros(n), np.zeros(n, bool)
        self.indptr.append(np.zeros(1, np.int64))
        self.keyed, self.fingerprint = np.frombuffer(os.urandom(16), np.uint64).copy(), np.zeros(2, np.uint64)
        self.open = None  # counts, row sums and loops of rows that are not finished

    def take(self, start, stop, keys, weights, last):
        """Take distinct keys of the rows start..stop - 1, in order; `last` finishes these rows."""
        if self.open is None:
            self.open = np.zeros(stop - start, np.int64), np.zeros(stop - start), np.zeros(stop - start)
            self.before = int(self.tally[fold.STORED])
        counts, row, loop = self.open
        columns = np.empty(keys.size, self.indices.dtype)
        values = np.empty(0 if self.values is None else keys.size, np.float32)
        end = fold.emit(keys, weights, self.bits, start, self.entries.mirror, self.refused, columns, values, counts,
                        row, loop, self.column, self.touched, self.tally, self.keyed, self.fingerprint)
        self.indices.append(columns[:end])
        if self.values is not None:
            self.values.append(values[:end])
        if last:
            self.indptr.append(np.cumsum(counts) + self.before)
            self.row.append(row)
            self.loop.append(loop)
            self.open = None

    def adjacency(self, duplicates):
        """Return the Adjacency, once all rows are finished."""
        tally = self.tally
        for k, what, found in ((fold.INFINITE, "weight", self.refused[0]),
                               (fold.OVERFLOW, "weight (as float32)", np.copysign(np.inf, self.refused[1]))):
            if tally[k] >= 0:
                raise DataError(f"{self.entries.where}: {what} at {tally[k]} is {found}, expected a finite number")
        merged, zeros, stored, valued, loops = map(int, tally[:fold.DIAGONAL + 1])
        asymmetric = stored - (merged - zeros) if self.entries.mirror else 0
        return Adjacency(self.indptr, self.indices, self.values if valued else None, self.row, self.column, self.loop,
                         not self.entries.mirror and bool(self.fingerprint.any()),
                         int(np.count_nonzero(~self.touched)), Counts(duplicates, zeros, loops, asymmetric))

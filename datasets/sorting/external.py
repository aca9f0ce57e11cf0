"""Conversion of edge lists larger than memory into CSR, by sorted runs on disk.

The runs are merged range by range of rows. The result equals that of `build_adjacency`
and `assemble` of hpgcn.graphs, bit for bit. Equal edges meet in the order of the input,
and sums are taken in the order of the stored entries.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.edges.ids import Ids, Numbering
from hpgcn.datasets.sorting import sort_kernels
from hpgcn.datasets.sorting.sorted_runs import RANGES, Runs
from hpgcn.datasets.source import need
from hpgcn.errors import DataError
from hpgcn.graphs.adjacency import Counts, check_duplicates
from hpgcn.graphs.edge_weights import count_rounded, stored_as_zero
from hpgcn.graphs.graph import describe_rows
from hpgcn.graphs.validation import index_dtype
from hpgcn.kernels.host.pools import start_pool

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.edges.edge_stream import Stream
    from hpgcn.datasets.sorting.disk_arrays import Scratch
    from hpgcn.graphs.graph import Graph

VERTEX_BYTES = 32  # memory per vertex, without features and labels
SLACK = 96 << 20  # bytes for parsing, later imports and the allocator
RUN = 1 << 22  # bound on the entries of a run; longer runs are no faster
TOP = np.uint64(2**64 - 1)


@dataclass
class Entries:
    """All entries of an edge list, stored as runs on disk."""

    where: str
    numbering: Numbering
    runs: Runs
    weighted: bool  # whether there are weights other than 1
    mirror: bool  # whether entries are stored with their images
    strict: bool  # whether entries have their numbers in the input
    last_loops: bool  # whether only the last loop of a vertex counts
    rounded: int  # number of weights that float32 rounds
    tally: np.ndarray  # (6,) int64, indexed as in `sort_kernels`
    scratch: object  # has the files of the runs
    size: int  # bound on the entries in memory

    @property
    def zeros(self) -> int:
        """The number of entries of weight 0, which were dropped."""
        return int(self.tally[sort_kernels.ZEROS])

    @property
    def key_bits(self) -> np.uint64:
        """The number of low bits of a key: a column number and a flag of mirrored entries."""
        return np.uint64(max(2, (2 * self.numbering.num_nodes - 1).bit_length()))

    def renumber(self, image: np.ndarray, num_nodes: int, original_ids: np.ndarray | None) -> None:
        """Change vertex v to image[v].

        Afterwards there are `num_nodes` vertices with the ids `original_ids` (or None).
        """
        if not np.array_equal(image, np.arange(image.size)):
            self.runs = self.runs.renumbered(image.__getitem__, self.scratch.new_array(), self.size,
                                             weighted=self.weighted, numbered=self.strict)
        self.numbering = self.numbering._replace(num_nodes=num_nodes, original_ids=original_ids)

    def merge(self, scratch: Scratch, memory: int) -> DiskAdjacency:
        """Sort all entries and merge equal ones; return a DiskAdjacency.

        Raise DataError if a sum overflows or, with `strict`, if an entry is repeated.
        """
        # merge windows of rows that fit into memory
        rows = _FinishedRows(self, scratch)
        entry = 2 * (24 + 32 * self.weighted + 24 * self.strict)
        capacity = room(memory - 9 * self.numbering.num_nodes) // entry
        keys = _SortedKeys(self, max(8, min(capacity, max(RUN, len(self.runs) >> 8))))
        with start_pool(1)[0] as pool:  # sorts one range while another is written
            windows = keys.windows()
            pending = pool.submit(next, windows, None)
            while (window := pending.result()) is not None:
                pending = pool.submit(next, windows, None)
                rows.take(*window)

        # refuse or count duplicates, then free the runs
        duplicates = int(self.tally[sort_kernels.KEPT] - rows.tally[sort_kernels.MERGED])
        if self.strict and duplicates:
            number, u, v = keys.repeated
            raise DataError(f"{self.where}: {duplicates} duplicate edges, the first at entry "
                            f"{number}: {u} -> {v} (--strict)")
        self.runs.stored.remove()
        adjacency = rows.adjacency(duplicates)
        loops = int(self.tally[sort_kernels.LOOPS] - rows.tally[sort_kernels.DIAGONAL])
        adjacency.counts.repeated_loops = loops
        adjacency.counts.ones = not (self.weighted and self.tally[sort_kernels.NOT_ONE])
        return adjacency


@dataclass
class DiskAdjacency:
    """A CSR on disk: DiskArrays indptr, indices and values (None if all are 1).

    Degrees are as in Graph.
    """

    indptr: object
    indices: object
    values: object
    degree_row: object
    degree_column: np.ndarray
    degree_loop: object
    directed: bool
    isolated: int
    counts: Counts

    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        return self.degree_row[:], self.degree_column

    def assemble(self, X: Any = None, y: np.ndarray | None = None,
                 masks: dict[str, np.ndarray] | None = None, **facts: Any) -> Graph:
        """Return a Graph of DiskArrays, ready to be written, like `graphs.graph.assemble`."""
        return describe_rows((self.indptr, self.indices, self.values),
                             (self.degree_row, self.degree_column, self.degree_loop), X, y, masks,
                             directed=self.directed, **facts)


def room(memory: int) -> int:
    """Return the bytes of `memory` that this process does not use yet, for arrays."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        resident = 0
    return max(memory - resident - SLACK, memory // 4)


def collect(stream: Stream, scratch: Scratch, memory: int, options: ConvertOptions) -> Entries:
    """Read a Stream into Entries, in `memory` bytes, by the user's ConvertOptions."""
    def refuse(count: int) -> None:
        need(VERTEX_BYTES * count, memory, f"{stream.where}: {count} vertices")

    # collect ids, unless their range is known
    ids = None
    if stream.num_nodes is None:
        ids = Ids(memory // VERTEX_BYTES, refuse)
    else:
        refuse(stream.num_nodes)

    # compute the size of a run, so that memory suffices to sort it
    mirror = options.symmetrize or stream.undirected
    duplicates = check_duplicates(options.duplicates)
    count_repeats = duplicates != "merge"
    weighted = count_repeats or (stream.weighted and not options.unweighted)
    entry = 2 * (64 + 24 * weighted + 24 * options.strict)  # twice, because distinct ids take half
    size = max(8, min(RUN, room(memory) // entry))

    # allocate the buffers of a run
    rows, columns = np.empty((2, size), np.uint64)
    weights = np.empty(size if weighted else 0)
    numbers = np.empty(size if options.strict else 0, np.int64)
    runs = Runs(scratch.new_array())
    tally = np.zeros(6, np.int64)
    step = size // 2 if mirror else size
    filled = 0
    rounded = 0

    # fill runs; a full one is sorted and written
    for u, v, w in stream.edges():
        if ids is not None:
            ids.add(u)
            ids.add(v)
        if options.reverse:
            u, v = v, u

        # weights: count those that float32 rounds, and drop zeros
        if w is not None:
            rounded += 0 if options.unweighted else count_rounded(w)
            w = np.where(stored_as_zero(w), 0, w)
        if count_repeats and (w is None or options.unweighted):
            w = np.ones(u.size) if w is None else (w != 0).astype(np.float64)
        w = np.empty(0) if w is None else w

        # append to the run, images beside their entries
        for start in range(0, u.size, step):
            part = slice(start, start + step)
            if filled + u[part].size * (2 if mirror else 1) > size:
                runs.add(rows[:filled], columns[:filled], weights[:filled], numbers[:filled])
                filled = 0
            filled = sort_kernels.append(u[part], v[part], w[part], mirror, rows, columns, weights,
                                         numbers, filled, tally)
    runs.add(rows[:filled], columns[:filled], weights[:filled], numbers[:filled])
    del rows, columns, weights, numbers

    # number the vertices, as all ids are known now
    numbering = Numbering(stream.num_nodes)
    if ids is not None:
        numbering = ids.result(**stream.numbering_options)
    original_ids = numbering.original_ids
    restored = stream.restored(numbering)

    # refuse loops by the ids of the input
    if options.strict and tally[sort_kernels.LOOPS]:
        u = tally[sort_kernels.LOOP_ID]
        if original_ids is not None:
            u = np.searchsorted(original_ids, u)
        u = u if restored.original_ids is None else restored.original_ids[u]
        raise DataError(f"{stream.where}: {tally[sort_kernels.LOOPS]} self loops, the first at "
                        f"entry {tally[sort_kernels.LOOP_ENTRY]}: {u} -> {u} (--strict)")

    # replace ids by vertex numbers in the runs
    weighted = bool(weighted and (count_repeats or tally[sort_kernels.NOT_ONE]))
    if original_ids is not None:
        runs = runs.renumbered(partial(np.searchsorted, original_ids), scratch.new_array(), size,
                               weighted=weighted, numbered=options.strict)
    return Entries(stream.where, restored, runs, weighted, mirror, options.strict,
                   duplicates == "sum-edges", rounded, tally, scratch, size)


class _SortedKeys:
    """The keys of Entries in increasing order, in windows of at most `capacity` keys.

    A range of rows with more distinct keys than that is read several times, once for
    each window.
    """

    def __init__(self, entries: Entries, capacity: int) -> None:
        self.entries = entries
        self.capacity = capacity
        self.runs = entries.runs
        n = entries.numbering.num_nodes
        self.shift = max(self.runs.shift, (n - 1).bit_length() - RANGES)
        self.sizes = self.runs.sizes(((n - 1) >> self.shift) + 1, self.shift)
        self.repeated = None  # if strict: number and ends of the first repeated entry

    def windows(self) -> Iterator[tuple]:
        """Yield (first row, end row, keys, weights, whether complete) of each window.

        Rows are complete if no later window has keys of them.
        """
        n = self.entries.numbering.num_nodes
        first = 0

        # find the next rows that fit into memory together
        while first < self.sizes.size:
            ends = np.cumsum(self.sizes[first:])
            fitting = int(np.searchsorted(ends, self.capacity, side="right"))
            stop = first + max(1, min(fitting, self.capacity >> self.shift))

            # divide the columns of rows that are too long
            low = np.uint64(0)
            high = np.uint64(0)
            while high < TOP:
                keys, weights, high = self._window(first, stop, low)
                last = high == TOP
                yield first << self.shift, min(n, stop << self.shift), keys, weights, last
                if not last:
                    low = high + sort_kernels.ONE

            first = stop

    def _window(self, first: int, stop: int, low: np.uint64) -> tuple:
        """Return keys of the ranges first..stop - 1, their weights, and the last key.

        Only keys from `low` up to the last key are included.
        """
        entries = self.entries
        row = np.uint64(first << self.shift)
        bits = entries.key_bits
        high = TOP
        filled = 0
        size = min(self.capacity, int(self.sizes[first:stop].sum()))
        keys = np.empty(size, np.uint64)
        weights = np.empty(size if entries.weighted else 0)
        numbers = np.empty(size if entries.strict else 0, np.int64)

        # join the sorted runs; duplicates are merged when the window is full
        for piece in self.runs.pieces(first, stop, self.shift, max(1, self.capacity // 4),
                                      weighted=entries.weighted, numbered=entries.strict):
            if filled + piece[0].size > size:
                filled = self._merge(keys[:filled], weights[:filled], numbers[:filled], row)
            if filled + piece[0].size > size:  # leave the upper half to the next window
                high = (keys[filled // 2] & ~sort_kernels.ONE) - sort_kernels.ONE
                filled = int(np.searchsorted(keys[:filled], high, side="right"))
            filled = sort_kernels.join(*piece, row, bits, low, high, keys, weights, numbers, filled)

        filled = self._merge(keys[:filled], weights[:filled], numbers[:filled], row)
        return keys[:filled], weights[:filled], high

    def _merge(self, keys: np.ndarray, weights: np.ndarray, numbers: np.ndarray,
               row: np.uint64) -> int:
        """Sort keys in place and merge equal ones; return the number of keys left."""
        if not weights.size and not numbers.size:
            keys.sort()
            return sort_kernels.unique(keys)

        merged = np.empty_like(keys)
        sums = np.empty_like(weights)
        entries = self.entries
        end, again = sort_kernels.combine(keys, weights, numbers, np.argsort(keys), merged, sums,
                                          entries.last_loops, entries.key_bits, row)

        # remember the first repeated entry
        if again >= 0 and (self.repeated is None or again < self.repeated[0]):
            originals = (keys & sort_kernels.ONE) == 0
            key = int(keys[np.argmax((numbers == again) & originals)])
            bits = int(self.entries.key_bits)
            ends = np.array([(key >> bits) + int(row), (key & ((1 << bits) - 1)) >> 1])
            ids = self.entries.numbering.original_ids
            self.repeated = (again, *(ends if ids is None else ids[ends]))

        keys[:end] = merged[:end]
        numbers[:end] = -1  # seen before: now an entry with these ends repeats another
        if weights.size:
            weights[:end] = sums[:end]

        return end


class _FinishedRows:
    """Writer of the finished rows of the CSR, in order, to DiskArrays."""

    def __init__(self, entries: Entries, scratch: Scratch) -> None:
        n = entries.numbering.num_nodes
        self.entries = entries
        self.tally = np.zeros(9, np.int64)
        self.tally[[sort_kernels.INFINITE, sort_kernels.OVERFLOW]] = -1
        self.refused = np.zeros(2)

        self.indptr = scratch.new_array(np.int64)
        self.indptr.append(np.zeros(1, np.int64))
        self.indices = scratch.new_array(index_dtype(n))
        self.values = scratch.new_array(np.float32) if entries.weighted else None
        self.degree_row = scratch.new_array(np.float64)
        self.degree_loop = scratch.new_array(np.float64)
        self.degree_column = np.zeros(n)
        self.touched = np.zeros(n, bool)

        self.hash_keys = np.frombuffer(os.urandom(16), np.uint64).copy()
        self.fingerprint = np.zeros(2, np.uint64)
        self.open = None  # counts, row sums and loops of unfinished rows

    def take(self, start: int, stop: int, keys: np.ndarray, weights: np.ndarray,
             last: bool) -> None:
        """Add the distinct, sorted keys of rows start..stop - 1, complete if `last`."""
        if self.open is None:
            count = stop - start
            self.open = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
            self.before = int(self.tally[sort_kernels.STORED])

        # continue rows of the last window
        counts, degree_row, degree_loop = self.open
        columns = np.empty(keys.size, self.indices.dtype)
        values = np.empty(0 if self.values is None else keys.size, np.float32)
        end = sort_kernels.emit(
            keys, weights, self.entries.key_bits, start, self.entries.mirror, self.refused, columns,
            values, counts, degree_row, degree_loop, self.degree_column, self.touched, self.tally,
            self.hash_keys, self.fingerprint)

        self.indices.append(columns[:end])
        if self.values is not None:
            self.values.append(values[:end])
        if last:
            self.indptr.append(np.cumsum(counts) + self.before)
            self.degree_row.append(degree_row)
            self.degree_loop.append(degree_loop)
            self.open = None

    def adjacency(self, duplicates: int) -> DiskAdjacency:
        tally = self.tally

        as_float32 = np.copysign(np.inf, self.refused[1])
        for k, name, weight in ((sort_kernels.INFINITE, "weight", self.refused[0]),
                                (sort_kernels.OVERFLOW, "weight (as float32)", as_float32)):
            if tally[k] >= 0:
                raise DataError(f"{self.entries.where}: {name} at {tally[k]} is {weight}, expected "
                                "a finite number")

        merged, zeros, stored, valued, loops = map(int, tally[:sort_kernels.DIAGONAL + 1])
        mirror = self.entries.mirror
        lost = int(tally[sort_kernels.LOST])
        added = stored - (merged - zeros - lost) if mirror else 0
        counts = Counts(duplicates, zeros, loops, added, lost=lost,
                        unequal=int(tally[sort_kernels.UNEQUAL]) // 2)

        return DiskAdjacency(
            self.indptr, self.indices, self.values if valued else None, self.degree_row,
            self.degree_column, self.degree_loop,
            directed=not mirror and bool(self.fingerprint.any()),
            isolated=int(np.count_nonzero(~self.touched)), counts=counts)

"""An edge list that is read block by block, and the same in memory."""
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hpgcn.datasets.columns import Columns
from hpgcn.datasets.ids import Numbering, compact_ids, ids_are_kept
from hpgcn.datasets.names import Names
from hpgcn.datasets.parse import W
from hpgcn.datasets.raw import ROW_FIRST, Raw
from hpgcn.datasets.source import need
from hpgcn.datasets.text import join_parts
from hpgcn.errors import DataError

TIMES = (  # least, largest, numbers at least, and what whole numbers in this range are
    (10**8, 10**10, 1, "Unix times"),
    (10**11, 10**13, 1, "Unix times in milliseconds"),
    (10**14, 10**16, 1, "Unix times in microseconds"),
    (10**17, 10**19, 1, "Unix times in nanoseconds"),
    (19000101, 21001231, 1, "dates"),
    (1900, 2100, 16, "years"),
)
MANY = 64  # numbers, from which an order is no accident


@dataclass
class Stream:
    """Edges in the order of a file.

    `parts` are read once: (u, v, w), (k,) int64 ids from `base` on, finite float64 or None.
    """

    where: str  # the file, for errors
    parts: Iterator
    columns: Columns
    num_nodes: int | None = None  # if the file says so: ids base..base + num_nodes - 1 are kept
    counted: int | None = None  # vertices that the file says it has, whatever their ids
    base: int = 0  # the id of vertex 0, where ids are kept
    base_known: bool = False  # the user or the format says what it is
    undirected: bool = False  # the file says so of edges, each listed once or in both directions
    listed_once: bool = False  # edges have no direction, one is listed: `edges` gives both
    notes: list[str] = field(default_factory=list)  # what a user should know; `raw` adds to them
    names: Names | None = None  # ids are numbers of these

    @property
    def weighted(self):
        return W in self.columns.roles

    def edges(self):
        """Yield (rows, columns, weights); ids begin at 0."""
        times = _Times() if self.columns.guessed else None
        empty = True
        for u, v, w in self.parts:
            empty = empty and not u.size
            if times is not None:
                times.add(w)
            if self.base:
                u = u - self.base
                v = v - self.base
            if self.undirected and w is not None and w.min(initial=0) < 0:
                raise DataError(f"{self.where}: says it is undirected, and has a negative weight: "
                                "max(A, A^T), which is taken then, would lose it")
            if self.listed_once:
                u, v, w = _both_directions(u, v, w)
            yield (u, v, w) if self.columns.reads == ROW_FIRST else (v, u, w)
        if empty:
            raise DataError(f"{self.where}: no edges, expected two ids each")
        if times is not None:
            times.refuse(self.where)

    def collect(self, memory):
        """Read all edges into memory, of which they may take `memory` bytes; return Raw."""
        rows, columns, values = join_parts(self.edges(), self.weighted, memory, self.where)
        numbering = Numbering(self.num_nodes)
        if self.num_nodes is None:
            numbering, rows, columns = compact_ids(rows, columns, self.counted)
        n = numbering.num_nodes
        need(64 * n, memory, f"{self.where}: {n} vertices")
        return self.raw(self.restored(numbering), rows, columns, values)

    def restored(self, numbering):
        """Return a Numbering with the file's own ids, where `edges` gave them from 0."""
        ids = numbering.original_ids
        return numbering if ids is None else numbering._replace(original_ids=ids + self.base)

    def raw(self, numbering, rows, columns, values):
        """Return the Raw of these edges, with notes on their ids."""
        ids = numbering.original_ids
        in_edges = numbering.num_nodes if ids is None else numbering.distinct
        if self.counted is not None and self.counted != in_edges:
            self.notes.append(f"the header counts {self.counted} vertices, {numbering.distinct} "
                              "are in an edge")
        elif ids is not None and ids_are_kept(int(ids[-1]) - self.base, numbering.distinct):
            self.notes.append(f"the header counts {self.counted} vertices, as many as are in an "
                              "edge: those alone are numbered")
        first = numbering.first if ids is None and not self.base_known else 0
        if first == 1:
            self.notes.append("ids begin at 1: vertex 0 is in no edge, --base 1 leaves it out")
        if self.names is not None:
            ids = self.names.array()
        return Raw(numbering.num_nodes, rows, columns, values, original_ids=ids, base=self.base,
                   first=first, reads=self.columns.reads, undirected=self.undirected,
                   notes=self.notes)


def _both_directions(u, v, w):
    """Return edges and, unless they are loops, their images, each after the edge itself."""
    times = 1 + (u != v)
    image = np.zeros(times.sum(), bool)
    image[np.cumsum(times) - 1] = times == 2
    u = np.repeat(u, times)
    v = np.repeat(v, times)
    w = None if w is None else np.repeat(w, times)
    return np.where(image, v, u), np.where(image, u, v), w


class _Times:
    """A third column that nobody calls weights, looked at block by block for what is none."""

    def __init__(self):
        self.low = np.inf
        self.high = -np.inf
        self.last = -np.inf
        self.count = 0
        self.rises = 0
        self.whole = True
        self.ordered = True

    def add(self, numbers):
        if not numbers.size or not self.whole:
            return
        self.whole = bool(np.all(numbers == np.floor(numbers)))
        steps = np.diff(numbers, prepend=self.last if self.count else numbers[0])
        self.ordered = self.ordered and bool(np.all(steps >= 0))
        self.rises += int(np.count_nonzero(steps))
        self.low = min(self.low, numbers.min())
        self.high = max(self.high, numbers.max())
        self.count += numbers.size
        self.last = numbers[-1]

    def refuse(self, where):
        if not self.whole or not self.count:
            return
        kinds = [kind for low, high, least, kind in TIMES
                 if low <= self.low <= self.high <= high and self.count >= least]
        if not kinds and self.ordered and self.count >= MANY and 4 * self.rises >= self.count:
            kinds = ["times or numbers of lines, they only grow"]
        if kinds:
            raise DataError(f"{where}: no header, and the third column ({self.low:.0f}.."
                            f"{self.high:.0f}) looks like {kinds[0]}: --columns u,v,- leaves it "
                            "out, --columns u,v,w reads it as weights")

"""An edge list that is read block by block, or at once into memory."""
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpgcn.datasets.edges.columns import EdgeColumns, third_column_error
from hpgcn.datasets.edges.ids import Numbering, compact_ids, ids_are_kept
from hpgcn.datasets.edges.vertex_names import VertexNames
from hpgcn.datasets.raw_graph import ROW_FIRST, Raw
from hpgcn.datasets.source import need
from hpgcn.datasets.text.lines import TextLines, join_parts
from hpgcn.datasets.text.parse import U, V, W
from hpgcn.errors import DataError

SIDE = 1 << 62  # added to ids of the second end if vertices are of two kinds
LATE = 10**8  # larger numbers are taken for Unix times, not weights


@dataclass
class Stream:
    """The edges of a file, in the file's order, read block by block.

    The iterator `parts` is consumed once. A part is (u, v, w): ids u and v, (k,) int64
    from `base` on, and weights w, finite float64 or None.
    """

    where: str  # path, for errors
    parts: Iterator
    columns: EdgeColumns
    num_nodes: int | None = None  # declared: ids are base..base + num_nodes - 1
    declared_nodes: int | None = None  # declared number of vertices, of any ids
    base: int = 0  # id of vertex 0, unless vertices are renumbered
    base_known: bool = False  # whether the user or the format sets `base`
    undirected: bool = False  # declared; an edge may be listed once or in both directions
    listed_once: bool = False  # undirected edges, listed once; `edges` yields both directions
    notes: list[str] = field(default_factory=list)  # notes for the user; `raw` adds to them
    names: VertexNames | None = None  # the names that ids stand for
    compact: bool = False  # whether only ids in edges are vertices
    sides: tuple[str, str] | None = None  # names of the two kinds of vertices
    table: TextLines | None = None  # counts lines that look like comments

    @property
    def weighted(self) -> bool:
        return W in self.columns.roles

    def edges(self) -> Iterator[tuple]:
        """Yield (rows, columns, weights) of each block of edges, with ids from 0."""
        third = _ThirdColumn() if self.columns.guessed else None
        empty = True

        # count ids from 0, and list each edge in all its directions
        for u, v, w in self.parts:
            empty = empty and not u.size
            if third is not None:
                third.add(w)
            if self.base:
                u = u - self.base
                v = v - self.base
            if self.undirected and w is not None and w.min(initial=0) < 0:
                raise DataError(f"{self.where}: is declared undirected, but has a negative weight, "
                                "which max(A, A^T) would lose")

            if self.sides:
                v = v + SIDE
            if self.listed_once or self.sides:
                u, v, w = _both_directions(u, v, w)

            yield (u, v, w) if self.columns.reads == ROW_FIRST else (v, u, w)

        if empty:
            raise DataError(f"{self.where}: no edges, expected two ids each")
        if third is not None:
            third.refuse(self.where)

    def collect(self, memory: int) -> Raw:
        """Read all edges into at most `memory` bytes; return their Raw."""
        rows, columns, values = join_parts(self.edges(), self.weighted, memory, self.where)
        numbering = Numbering(self.num_nodes)
        if self.num_nodes is None:
            largest = max(int(rows.max()), int(columns.max()))
            declared = self.declared_nodes
            if not self.compact and declared is not None and largest <= declared:
                need(64 * declared, memory, f"{self.where}: {declared} vertices")
            numbering, rows, columns = compact_ids(rows, columns, **self.numbering_options)
        n = numbering.num_nodes
        need(64 * n, memory, f"{self.where}: {n} vertices")
        return self.raw(self.restored(numbering), rows, columns, values)

    @property
    def numbering_options(self) -> dict[str, Any]:
        """The keyword arguments of `Ids.result` for the ids that `edges` yields."""
        return {"declared_nodes": self.declared_nodes, "from_one": not self.base_known,
                "compact": self.compact or self.sides is not None}

    def restored(self, numbering: Numbering) -> Numbering:
        """Return `numbering` with the ids of the file instead of those from 0."""
        ids = numbering.original_ids
        if self.sides:
            second = ids >= SIDE
            ids = np.concatenate([self._side_ids(ids[~second], U), self._side_ids(ids[second], V)])
        elif self.names is not None:
            ids = self.names.array()
        elif ids is not None:
            ids = ids + self.base
        return numbering._replace(original_ids=ids)

    def _side_ids(self, ids: np.ndarray, side: int) -> np.ndarray:
        """Return the ids of one side as texts SIDE:ID."""
        if self.names is not None:
            ids = self.names.array(side)
        else:
            ids = (ids - side * SIDE + self.base).astype(np.str_)
        return np.char.add(f"{self.sides[side]}:", ids)

    def raw(self, numbering: Numbering, rows: np.ndarray, columns: np.ndarray,
            values: np.ndarray | None) -> Raw:
        """Return the Raw of edges, with notes on their ids.

        `numbering` has the ids of the file, see `restored`.
        """
        ids = numbering.original_ids
        first = numbering.first if ids is None and not self.base_known else 0
        self.notes += self._notes_on_ids(numbering)
        in_edge = numbering.in_edge if self.num_nodes is None else None
        gaps = self._notes_on_gaps(numbering, first == 1)
        return Raw(numbering.num_nodes, rows, columns, values, original_ids=ids, base=self.base,
                   first=first, in_edge=in_edge, reads=self.columns.reads,
                   bipartite=self.sides is not None, undirected=self.undirected, notes=self.notes,
                   gap_notes=gaps)

    def _notes_on_ids(self, numbering: Numbering) -> list[str]:
        """Return notes on ids, lines and counts of vertices that may be meant otherwise."""
        n, ids, distinct, *_ = numbering
        notes = []

        # note lines and names that may have another meaning
        if self.table is not None and self.table.comments:
            read = "skipped as comments" if self.names is None else "read as edges"
            notes.append(f"{self.table.comments} lines below the first edge begin with # or %: "
                         f"they are {read}")
        if self.names is not None and (blanks := self.names.blanks()):
            notes.append(f"{' and '.join(blanks)} read as a vertex name: if it stands for an empty "
                         "cell, remove its lines")
        if self.sides:
            one, two = (f"{side}:ID" for side in self.sides)
            notes.append(f"two kinds of ids, {one} and {two}: edges are read in both directions")

        # compare the number of vertices with the declared one
        if self.num_nodes is not None:
            return notes
        if self.declared_nodes is not None and self.declared_nodes != n:
            named = self.names is not None or self.sides is not None
            kept = "" if named else ": use --num-nodes N for another count"
            if not named and ids is not None and distinct < self.declared_nodes:
                kept = (f": use --num-nodes {ids[-1] - self.base + 1} to keep all ids up to the "
                        "largest, with or without edges")
            notes.append(f"the header counts {self.declared_nodes} vertices, but {distinct} are in "
                         f"an edge{kept}")
        elif self.declared_nodes is not None and n > distinct:
            notes.append(f"the header counts {n} vertices: {n - distinct} of them are in no edge")
        elif (self.declared_nodes is not None and ids is not None and ids.dtype.kind == "i"
              and ids_are_kept(int(ids[-1]) - self.base, distinct)):
            notes.append(f"the header counts {n} vertices, which is the number of ids in edges: "
                         "only these ids are numbered")
        return notes

    def _notes_on_gaps(self, numbering: Numbering, from_one: bool) -> list[str]:
        """Return notes on isolated vertices whose ids are below the largest id."""
        n, ids, distinct, *_ = numbering
        notes = []
        if self.num_nodes is not None:
            return notes
        if from_one:
            notes.append("ids begin at 1, and vertex 0 is in no edge: use --base 1 to drop it")
        isolated = n - distinct - from_one
        if ids is None and self.declared_nodes != n and isolated:
            notes.append(f"{isolated} ids below the largest are in no edge, and are isolated "
                         "vertices: use --compact to drop them")
        return notes


def _both_directions(u: np.ndarray, v: np.ndarray,
                     w: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (u, v, w) with the reverse of each edge after it; loops have no reverse."""
    times = 1 + (u != v)
    image = np.zeros(times.sum(), bool)
    image[np.cumsum(times) - 1] = times == 2
    u = np.repeat(u, times)
    v = np.repeat(v, times)
    w = None if w is None else np.repeat(w, times)
    return np.where(image, v, u), np.where(image, u, v), w


class _ThirdColumn:
    """Check, block by block, whether an unnamed third column has weights."""

    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self.all_whole = True

    def add(self, numbers: np.ndarray) -> None:
        if numbers.size:
            self.low = min(self.low, numbers.min())
            self.high = max(self.high, numbers.max())
            self.all_whole = self.all_whole and bool(np.all(numbers == np.floor(numbers)))

    def refuse(self, where: str) -> None:
        """Raise DataError if the numbers look like times, or are whole and not all 1."""
        if self.low == self.high == 1 or self.low > self.high:
            return
        if self.low >= LATE:
            raise third_column_error(where, f"looks like times ({self.low:.16g}..{self.high:.16g})",
                                     whole=self.all_whole)
        if self.all_whole:
            raise third_column_error(where, f"holds whole numbers ({self.low:.16g}.."
                                     f"{self.high:.16g}), which may be weights, types or times")

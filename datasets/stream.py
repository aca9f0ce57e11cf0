"""An edge list that is read block by block, and the same in memory."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hpgcn.datasets.columns import Columns
from hpgcn.datasets.parse import W
from hpgcn.datasets.raw import ROW_FIRST, Numbering, Raw, compact_ids, ids_are_kept
from hpgcn.datasets.source import need
from hpgcn.datasets.text import join_column
from hpgcn.datasets.times import Times
from hpgcn.errors import DataError


@dataclass
class Stream:
    """Edges in the order of a file.

    Attributes
    ----------
    where : str
        The file, for errors.
    parts : iterator of (u, v, w)
        (k,) int64 ids, `base` or more, twice, and (k,) float64 finite weights, or None. Read once.
    columns : Columns
        Says whether the parts have weights, and which end of an edge is the row.
    num_nodes : int or None
        Where the file says which ids there are: base..base + num_nodes - 1. They are then kept.
    counted : int or None
        Vertices that the file says it has, whatever their ids.
    base : int
        The id of vertex 0, where ids are kept.
    base_known : bool
        The user or the format says what the base is.
    undirected : bool
        The file says of itself that its edges have no direction; each may be listed once or in both.
    listed_once : bool
        Edges have no direction, and each is listed once: `edges` gives both.
    notes : list of str
        What a user should know of how the file was read; `raw` adds to them.
    """

    where: str
    parts: Iterator
    columns: Columns
    num_nodes: int | None = None
    counted: int | None = None
    base: int = 0
    base_known: bool = False
    undirected: bool = False
    listed_once: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def weighted(self):
        """Whether the parts have weights."""
        return W in self.columns.roles

    def edges(self):
        """Yield (rows, columns, weights); ids begin at 0."""
        times = Times() if self.columns.guessed else None
        found = 0
        for u, v, w in self.parts:
            found += u.size
            if times is not None:
                times.add(w)
            if self.base:
                u, v = u - self.base, v - self.base
            if self.undirected and w is not None and w.min(initial=0) < 0:
                raise DataError(f"{self.where}: says it is undirected, and has a negative weight: max(A, A^T), which "
                                "is taken then, would lose it")
            if self.listed_once:
                u, v, w = _both_directions(u, v, w)
            yield (u, v, w) if self.columns.reads == ROW_FIRST else (v, u, w)
        if not found:
            raise DataError(f"{self.where}: no edges, expected two ids each")
        if times is not None:
            times.refuse(self.where)

    def collect(self, memory):
        """Read all edges into memory, of which they may take `memory` bytes; return Raw."""
        parts, size = [], 0
        for part in self.edges():
            parts.append(part)
            size += part[0].size * (24 if self.weighted else 16)
            need(2 * size, memory, self.where)  # twice: joined at the end
        rows, columns = join_column(parts, 0), join_column(parts, 1)
        values = join_column(parts, 2) if self.weighted else None
        numbering = Numbering(self.num_nodes, None, self.num_nodes, 0)
        if self.num_nodes is None:
            numbering, rows, columns = compact_ids(rows, columns, self.counted)
        need(64 * numbering.num_nodes, memory, f"{self.where}: {numbering.num_nodes} vertices")
        return self.raw(self.restored(numbering), rows, columns, values)

    def restored(self, numbering):
        """A Numbering with the file's own ids, where `edges` gave them from 0."""
        ids = numbering.original_ids
        return numbering if ids is None else numbering._replace(original_ids=ids + self.base)

    def raw(self, numbering, rows, columns, values):
        """Return the Raw of these edges, with notes on their ids."""
        ids, first = numbering.original_ids, 0
        if self.counted is not None and self.counted != (numbering.num_nodes if ids is None else numbering.distinct):
            self.notes.append(f"the header counts {self.counted} vertices, {numbering.distinct} are in an edge")
        elif ids is not None and ids_are_kept(int(ids[-1]) - self.base, numbering.distinct):
            self.notes.append(f"the header counts {self.counted} vertices, as many as are in an edge: those alone are "
                              "numbered")
        if ids is None and not self.base_known:
            first = numbering.first
        if first == 1:
            self.notes.append("ids begin at 1: vertex 0 is in no edge, --base 1 leaves it out")
        return Raw(numbering.num_nodes, rows, columns, values, original_ids=ids, base=self.base, first=first,
                   reads=self.columns.reads, undirected=self.undirected, notes=self.notes)


def _both_directions(u, v, w):
    """Edges and, unless they are loops, their images, each after the edge itself."""
    times = 1 + (u != v)
    image = np.zeros(times.sum(), bool)
    image[np.cumsum(times) - 1] = times == 2
    u, v = np.repeat(u, times), np.repeat(v, times)
    return np.where(image, v, u), np.where(image, u, v), None if w is None else np.repeat(w, times)

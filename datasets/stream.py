"""An edge list that is read block by block, and the same in memory."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hpgcn.datasets.raw import Raw, compact_ids
from hpgcn.datasets.source import need
from hpgcn.errors import DataError


@dataclass
class Stream:
    """Edges in the order of a file.

    Attributes
    ----------
    where : str
        The file, for errors.
    parts : iterator of (u, v, w)
        (k,) int64 ids that are not negative, twice, and (k,) float64 finite weights, or None. Read once.
    weighted : bool
        The parts have weights.
    num_nodes : int or None
        Where the file says so: ids are then below it, and kept.
    undirected : bool
        The file says of itself that its edges have no direction.
    rows_first : bool
        The line `u v` is the entry a[u, v]; otherwise a[v, u].
    extra : dict
        Other fields of Raw: features, labels, masks, split, notes.
    """

    where: str
    parts: Iterator
    weighted: bool = False
    num_nodes: int | None = None
    undirected: bool = False
    rows_first: bool = True
    extra: dict = field(default_factory=dict)

    def edges(self):
        """Yield (rows, columns, weights)."""
        found = 0
        for u, v, w in self.parts:
            found += u.size
            yield (u, v, w) if self.rows_first else (v, u, w)
        if not found:
            raise DataError(f"{self.where}: no edges, expected two ids each")

    def collect(self, memory):
        """Read all edges into memory, of which they may take `memory` bytes; return Raw."""
        parts, size = [], 0
        for part in self.edges():
            parts.append(part)
            size += part[0].size * (24 if self.weighted else 16)
            need(2 * size, memory, self.where)  # twice: joined at the end
        rows, columns, values = (np.concatenate([part[k] for part in parts]) if k < 2 or self.weighted else None
                                 for k in range(3))
        num_nodes, ids = self.num_nodes, None
        if num_nodes is None:
            num_nodes, rows, columns, ids = compact_ids(rows, columns)
        need(64 * num_nodes, memory, f"{self.where}: {num_nodes} vertices")
        return Raw(num_nodes, rows, columns, values, original_ids=ids, undirected=self.undirected, **self.extra)

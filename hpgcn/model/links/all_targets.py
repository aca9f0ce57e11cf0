"""The rank of links among all vertices as targets, with bounded memory.

The scores of a block of links and of a block of vertices are computed at a time. Each rank
broadcasts its rows once, and two blocks of rows are in memory. A score is that of the matrix
product. Those so near to the link's that rounding could decide are computed again as links are,
so that equal rows tie.
"""
from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.model.links.link_loss import blocks_of
from hpgcn.parallel.transfers import StagedRows

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.model.links.decoders import Dot
    from hpgcn.parallel.layout import RowPartition
    from hpgcn.parallel.workspace import Workspace

WHAT = "rows of all targets"
TARGETS = 1 << 12  # vertices that are scored at a time
SHARE = 8  # numbers of memory for a score of a linear decoder
ROUNDING = 1 << 10  # units of rounding within which a score is computed again


class AllTargets:
    """All vertices as targets of links, except for known ones.

    Parameters
    ----------
    known : (k', 2) int64
        Pairs that are no negatives: places of sources, and rows of targets in [0, n).
    layout : RowPartition
        The owners of rows.
    comm : SerialComm
    workspace : Workspace
        Rows of other ranks.
    """

    def __init__(self, known: np.ndarray, layout: RowPartition, comm: SerialComm,
                 workspace: Workspace) -> None:
        self.offsets = layout.offsets
        self.n = np.int64(self.offsets[-1])
        self.comm = comm
        self.keys = np.unique(known[:, 0] * self.n + known[:, 1])
        self.rows = StagedRows(np.diff(self.offsets).tolist(), 0, comm, workspace)

    def of(self, sources: np.ndarray) -> AllTargets:
        """Return the targets of links whose sources have these places among own rows, (k,)."""
        part = copy(self)
        part.sources = sources.astype(np.int64)
        part.places = self.comm.device.put(part.sources)
        return part

    def ranks(self, positive: np.ndarray, own: Array, decoder: Dot) -> np.ndarray:
        """Return the rank of each link, (k,) float64 from 1; collective.

        It is the mean of the best and the worst one that ties allow.

        Parameters
        ----------
        positive : (k,) floating
            Scores of the links.
        own : (m, d)
            Rows of this rank.
        decoder : Dot or another decoder
        """
        links = self.comm.device.put(positive)
        counts = np.zeros((2, positive.size), np.int64)  # scores above that of a link, and at it
        width = TARGETS * (SHARE if decoder.linear else own.shape[1])
        self.rows.start(own, WHAT)
        for stage, rows in self.rows.received_rows(range(self.comm.size), WHAT):
            for first in range(0, rows.shape[0], TARGETS):
                targets = rows[first:first + TARGETS]
                row = self.offsets[stage] + first
                for place in blocks_of(positive.size, width):
                    counts[:, place] += self._count(links[place], own, targets, row, place, decoder)
        return 1 + counts[0] + counts[1] / 2

    def _count(self, links: Array, own: Array, targets: Array, row: int, place: slice,
               decoder: Dot) -> np.ndarray:
        """Count the negatives among `targets`, rows from `row` on, above links and at them."""
        xp, get, put = self.comm.device.xp, self.comm.device.get, self.comm.device.put
        gather = kernels.backend(own).gather
        H = gather(own, self.places[place])
        scores = decoder.outer(H, targets)[0]
        largest = max(1, float(abs(scores).max()), float(abs(links).max()))
        margin = ROUNDING * np.finfo(scores.dtype).eps * largest

        # known links are no negatives
        known = self._known(place, row, row + targets.shape[0])
        scores[tuple(map(put, known))] = -np.inf

        # decide near ties as links are scored
        near = xp.nonzero(abs(scores - links[:, None]) <= margin)
        for part in blocks_of(near[0].size, H.shape[1]):
            rows, columns = (each[part] for each in near)
            scores[rows, columns] = decoder.forward(gather(H, rows) * gather(targets, columns))[0]
        return np.stack([get((scores > links[:, None]).sum(axis=1)),
                         get((scores == links[:, None]).sum(axis=1))])

    def _known(self, place: slice, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the known pairs of some links and the rows [start, stop), numbered from 0."""
        before = self.sources[place] * self.n
        first, last = np.searchsorted(self.keys, [before + start, before + stop])
        counts = last - first
        link = np.repeat(np.arange(counts.size), counts)
        number = np.arange(link.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
        return link, self.keys[number] - before[link] - start

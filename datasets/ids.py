"""Which ids an edge list uses, met one by one: how many vertices there are, and whether they are relabelled."""
from __future__ import annotations

import numpy as np

from hpgcn.datasets import fold
from hpgcn.datasets.raw import Numbering, ids_are_kept

FIRST = 1 << 20  # ids merged, or looked up, at once: fewer cost as much


class Ids:
    """Distinct ids of an edge list; as `raw.compact_ids`, of which only the ids are ever held.

    Parameters
    ----------
    limit : int
        Vertices at most.
    refuse : function of a number of vertices
        Called with more of them than that: raises.
    """

    def __init__(self, limit, refuse):
        self.limit, self.refuse, self.largest = limit, refuse, -1
        self.present = np.zeros(min(limit, FIRST), bool)  # of ids below its length
        self.others = np.empty(0, np.int64)  # increasing
        self.pending, self.waiting = [], 0  # other ids, not merged yet, and how many

    def add(self, ids):
        """Take ids, (k,) int64, not negative."""
        top = int(ids.max(initial=-1))
        self.largest = max(self.largest, top)
        if self.present.size <= top and self.present.size < self.limit:
            grown = np.zeros(min(self.limit, max(top + 1, 2 * self.present.size)), bool)
            grown[:self.present.size] = self.present
            self.present = grown
        if top >= self.present.size:
            small = ids < self.present.size
            self.pending.append(ids[~small])
            self.waiting += self.pending[-1].size
            ids = ids[small]
            if self.waiting > max(FIRST, min(self.others.size, self.limit)):  # a merge costs as much as all before it
                self._merge()
        fold.mark(ids, self.present)

    def _merge(self):
        ids = np.concatenate([self.others, *self.pending])
        self.pending, self.waiting = [], 0
        ids.sort()
        first = np.ones(ids.size, bool)
        np.not_equal(ids[1:], ids[:-1], out=first[1:])
        self.others = ids[first]
        if self.others.size > self.limit:
            self.refuse(self.others.size)

    def result(self, counted=None):
        """Return the Numbering; `counted` as in `raw.compact_ids`."""
        self._merge()
        distinct = int(np.count_nonzero(self.present) + self.others.size)
        kept = ids_are_kept(self.largest, distinct, counted)
        count = self.largest + 1 if kept else distinct
        if count > self.limit:
            self.refuse(count)
        ids = None if kept else np.concatenate([np.flatnonzero(self.present), self.others])
        first = int(np.argmax(self.present)) if self.present.any() else int(self.others[0])
        return Numbering(count, ids, distinct, first)

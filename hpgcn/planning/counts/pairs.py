"""Possible senders and receivers: lines of a matrix, each with a rank that holds some of it."""
from dataclasses import dataclass

import numpy as np

from hpgcn.parallel.halo_plan import HaloPlanSizes
from hpgcn.sampling.expectation import any_of


@dataclass(frozen=True, eq=False)
class Pairs:
    """Lines, rows or columns, and ranks that hold nonzeros of them but do not own them; m pairs."""

    line: np.ndarray  # (m,) int64
    owner: np.ndarray  # (m,) int64, of the line
    holder: np.ndarray  # (m,) int64
    entry: np.ndarray  # (e,) int64: nonzeros that are held so
    pair: np.ndarray  # (e,) int64: the pair of each
    other: np.ndarray  # (e,) int64: its number in the other direction

    @staticmethod
    def of(lines, others, owner, holder, k):
        """Find the pairs of nonzeros, (nnz,) each: line, other line, the line's owner, holder."""
        entry = np.flatnonzero(owner != holder)
        keys, first, pair = np.unique(lines[entry] * k + holder[entry], return_index=True,
                                      return_inverse=True)
        return Pairs(keys // k, owner[entry[first]].astype(np.int64), keys % k, entry, pair,
                     others[entry])

    @property
    def size(self):
        """Number of pairs (m)."""
        return self.line.size

    def readers(self, unit, units):
        """Count the other units whose vertices a pair's nonzeros lie with, each once.

        unit: (n,) of each vertex. Returns (m,) int64, and whether the line's own unit
        is among them, (m,) bool.
        """
        theirs = unit[self.other]
        own = theirs == unit[self.line][self.pair]
        keys = np.unique(self.pair[~own] * units + theirs[~own])
        return (np.bincount(keys // units, minlength=self.size),
                np.bincount(self.pair[own], minlength=self.size) > 0)

    def by_unit(self, unit, k):
        """Return the pairs of units in place of lines: a unit's lines of one owner, and a holder.

        unit: (n,) of each vertex; numbers of lines and others are those of units then.
        """
        keys, pair = np.unique((unit[self.line] * k + self.owner) * k + self.holder,
                               return_inverse=True)
        return Pairs(keys // k // k, keys // k % k, keys % k, self.entry, pair[self.pair],
                     unit[self.other])

    def hit(self, batch):
        """Return which pairs matter in an epoch, (m,) bool; batch: (n,) that of each vertex."""
        together = batch[self.other] == batch[self.line][self.pair]
        return np.bincount(self.pair[together], minlength=self.size) > 0

    def changes(self, unit, units):
        """Count what a unit may change by going to another batch, (units,): pairs that matter."""
        keys = np.unique(np.concatenate([self.pair * units + unit[self.other],
                                         np.arange(self.size) * units + unit[self.line]]))
        return np.bincount(keys % units, minlength=units)


def counted(pulled, pushed, hits, batch, batches, k):
    """Count what each rank sends in each batch of an epoch.

    Parameters
    ----------
    pulled, pushed : Pairs
        Of columns, and of rows.
    hits : pair of (m,) bool
        `Pairs.hit` of each.
    batch : (n,) int64
    batches, k : int
        Of an epoch; ranks.

    Returns
    -------
    list
        What `merge` of a plan takes: HaloPlanSizes of the two, and pairs of ranks at
        both ends; all (batches, k) int64.
    """
    # rows and messages of each rank, by batch
    sizes, links = [], []
    for pairs, hit in zip((pulled, pushed), hits):
        number = batch[pairs.line[hit]] * k
        owner, holder = pairs.owner[hit], pairs.holder[hit]
        links.append(np.unique((number + owner) * k + holder))
        sizes.append(HaloPlanSizes(*(
            np.bincount(keys, minlength=batches * k).reshape(batches, k)
            for keys in (number + owner, number + holder, *_ends(links[-1], k)))))

    # a rank sends one message if it pulls and pushes between the same two ranks
    back = links[1] // k  # sums go the other way
    ways = np.unique(np.concatenate([links[0], ((back - back % k) + links[1] % k) * k + back % k]))
    return [*sizes, *(np.bincount(keys, minlength=batches * k).reshape(batches, k)
                      for keys in _ends(ways, k))]


def _ends(links, k):
    """Return batch and source, and batch and destination, of links (batch, source, destination)."""
    source = links // k
    return source, source - source % k + links % k


def expected(pairs_of, chances, groups, group_chances, k):
    """Return what `counted` counts, expected of one batch; (k,) float64.

    Parameters
    ----------
    pairs_of : pair of Pairs
        Pulled and pushed.
    chances : pair of (m,)
        Of each pair to matter: rows are exact.
    groups, group_chances : as these
        That messages are formed of; an estimate, which takes those of two ranks as independent.
    """
    sizes, links = [], []
    for pairs, chance, group, some in zip(pairs_of, chances, groups, group_chances):
        ways, pair = np.unique(group.owner * k + group.holder, return_inverse=True)
        links.append((ways // k, ways % k, any_of(pair, some, ways.size)))
        sizes.append(HaloPlanSizes(np.bincount(pairs.owner, chance, k),
                                   np.bincount(pairs.holder, chance, k), *_sums(*links[-1], k)))
    source, target = (np.concatenate(ranks) for ranks in
                      ((links[0][0], links[1][1]), (links[0][1], links[1][0])))
    ways, pair = np.unique(source * k + target, return_inverse=True)
    some = any_of(pair, np.concatenate([links[0][2], links[1][2]]), ways.size)
    return [*sizes, *_sums(ways // k, ways % k, some, k)]


def _sums(source, target, chance, k):
    return np.bincount(source, chance, k), np.bincount(target, chance, k)

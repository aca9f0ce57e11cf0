"""What samplers have in common: which batch of an epoch a vertex is in, told for it alone."""
from __future__ import annotations

import numpy as np

from hpgcn.parallel.layout import split
from hpgcn.sampling.keyed_draws import block_of, key_of, permuted


class Sampler:
    """Deals units, vertices or parts of them, into the batches of an epoch; the same on all ranks.

    Each epoch goes through all units once, in a new order that seed and epoch key: a unit's place
    in it says its batch, so that no rank has to be asked.

    Parameters
    ----------
    units : int
        How many are dealt.
    size : int
        Units of a batch at most; batches of an epoch differ by one.
    seed : int

    Attributes
    ----------
    name : str
        What --batch calls it.
    stream : int
        Keys its draws apart from others'.
    induced : bool
        A batch trains on the matrix that its vertices induce; others on rows that their neighbours
        are drawn for.
    samples_parts : bool
        Units are parts of a partition; else vertices.
    batches : int
        Of an epoch.
    """

    name: str
    stream: int
    induced = True
    samples_parts = False

    def __init__(self, units, size, seed):
        self.units = units
        self.size = min(size, units)
        self.seed = seed
        self.batches = -(-units // self.size)

    def batch_of(self, units, epoch):
        """Return the batch of each unit, (m,) from 0, in an epoch, from 1."""
        order = permuted(units, self.units, key_of(self.seed, self.stream, epoch))
        return block_of(order, self.units, self.batches)

    def sizes(self):
        """Return the units of each batch, (batches,) int64, the same in all epochs."""
        return np.diff(split(self.units, self.batches))

    def share(self, batch):
        """Return the chance of a unit to be in this batch: its size over all units."""
        return self.sizes()[batch] / self.units

    def factor(self, batch):
        """Return what an entry between two units in the batch is multiplied by.

        By default that is 1 over the chance of the second unit to be there if the first one is: the
        matrix of a batch then estimates A-hat without bias.
        """
        others = self.sizes()[batch] - 1
        return (self.units - 1) / others if others else 1.0

"""Base class of samplers: the words of --batch, and the batch of each unit in an epoch."""
import numpy as np

from hpgcn.parallel.layout import split
from hpgcn.sampling.batch_request import BatchRequest, positive
from hpgcn.sampling.keyed_draws import block_of, key_of, permuted


class Sampler:
    """Base class of samplers, which assign units to batches.

    Units are vertices or parts. All ranks make the same assignment. Each epoch takes
    all units once, in a new order that seed and epoch key. The place of a unit in this
    order gives its batch, so every rank computes the batch of any unit without a
    message.

    Parameters
    ----------
    units : int
        Number of units.
    size : int
        Most units of a batch; batches of an epoch differ by at most one.
    seed : int

    Attributes
    ----------
    name : str
        The word that --batch begins with.
    stream : int
        Keys its draws; no two samplers have the same.
    forms : tuple of str
        Forms of the words after the name and a colon; errors list them.
    example, smallest : str
        Such words for errors, and for a run on three vertices.
    induced : bool
        A batch trains on the matrix that its vertices induce. If false, the units are
        training vertices, and their neighbors are drawn.
    samples_parts : bool
        Units are parts of a partition. If false, they are vertices or links.
    samples_links : bool
        Units are training links; with their negatives they are what a step scores.
    batches : int
        Number of batches of an epoch.
    """

    name: str
    stream: int
    forms: tuple[str, ...] = ("B",)
    example = "20000"
    smallest = "2"
    induced = True
    samples_parts = False
    samples_links = False

    @classmethod
    def parse(cls, words: list[str]) -> BatchRequest:
        """Return the BatchRequest of the words after the name.

        By default there is one word, the size of a batch. Raise a ValueError if the
        words are invalid.
        """
        size, = words
        return BatchRequest(cls.name, positive(size))

    def __init__(self, units: int, size: int, seed: int) -> None:
        self.units = units
        self.size = min(size, units)
        self.seed = seed
        self.batches = -(-units // self.size)

    def batch_of(self, units: np.ndarray, epoch: int) -> np.ndarray:
        """Return the batch of each unit in an epoch, (m,), from 0.

        Epochs count from 1.
        """
        order = permuted(units, self.units, key_of(self.seed, self.stream, epoch))
        return block_of(order, self.units, self.batches)

    def sizes(self) -> np.ndarray:
        """Return the number of units in each batch, (batches,) int64.

        It is the same in all epochs.
        """
        return np.diff(split(self.units, self.batches))

    def share(self, batch: int) -> float:
        """Return the chance that a unit is in this batch."""
        return self.sizes()[batch] / self.units

    def factor(self, batch: int) -> float:
        """Return the factor by which entries between two units of the batch are multiplied.

        By default it is 1 over the chance that the second unit is in the batch if the
        first one is. The matrix of a batch then estimates A-hat without bias.
        """
        others = self.sizes()[batch] - 1
        return (self.units - 1) / others if others else 1.0

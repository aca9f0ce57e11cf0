"""Negative pairs for the loss of links: pairs of vertices that are drawn, and rarely links.

A draw is keyed by the seed, the step, and the number of the positive or of the draw. So every
rank, and a plan, draws the same pairs without a message. Vertices have their ORIGINAL numbers.
"""
from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError, assigned, setting, suggestion
from hpgcn.kernels.host.jit import jit
from hpgcn.sampling import FULL, SAMPLERS, parse
from hpgcn.sampling.keyed_draws import GOLDEN, fold, key_of

if TYPE_CHECKING:
    from hpgcn.sampling.sampler import Sampler

# settings that links do not support
UNSUPPORTED = ("delay", "training_graph", "split_index", "scratch")
BY_PAIRS = ("auto", "auc", "ap")  # metrics of negatives that all links share
STREAMS = {"train": 101, "val": 102, "test": 103}  # no sampler of batches has these numbers
ENDS = 104  # stream of the ends of undirected links
MOST = 64  # draws of a target before a strict sampler gives up
DRAWN = 1 << 19  # pairs that a rank draws at a time
LARGEST = 1 << 30  # draws of a positive, or shared ones


class NegativeSampler:
    """A way to draw the negatives of an epoch among n vertices.

    With `strict` a target that is a link of its source is drawn again.
    """

    name: ClassVar[str]
    number: ClassVar[str] = "K"  # letter of the number that follows the name
    supports_strict: ClassVar[bool] = False
    shared: ClassVar[bool] = False  # whether all positives have the same negatives

    def __init__(self, count: int, n: int, seed: int, strict: bool = False) -> None:
        self.count = count
        self.n = n
        self.seed = seed
        self.strict = strict

    def draw(self, numbers: np.ndarray, epoch: int, key: str = "train",
             attempt: int = 0) -> np.ndarray:
        """Return the draws of these numbers in an epoch, (k,) int64 vertices."""
        out = np.empty(numbers.size, np.int64)
        _draw(numbers, self.n, key_of(self.seed, STREAMS[key], epoch, attempt), out)
        return out

    @abstractmethod
    def targets(self, sources: np.ndarray, numbers: np.ndarray, known: KnownLinks, epoch: int,
                key: str = "train") -> np.ndarray:
        """Return the negative targets of positives, or those of all of them.

        Parameters
        ----------
        sources, numbers : (k,) int64
            Sources of the positives, and their numbers among those of all ranks.
        known : KnownLinks
            Links of these sources, which strict samplers do not draw.
        epoch : int
            Or the training step, if an epoch has several.
        key : str
            The set of the positives.

        Returns
        -------
        (k, K) or (M,) int64
        """


class UniformTargets(NegativeSampler):
    """K random targets of each positive, keyed by its number.

    Examples
    --------
    >>> from hpgcn.sampling.negatives import KnownLinks, UniformTargets
    >>> known = KnownLinks(4, np.array([[0, 1], [0, 2]]))
    >>> source = np.zeros(3, np.int64)
    >>> UniformTargets(2, 4, seed=0, strict=True).targets(source, np.arange(3), known, 1).tolist()
    [[3, 3], [3, 3], [3, 3]]
    """

    name = "uniform"
    supports_strict = True

    def targets(self, sources: np.ndarray, numbers: np.ndarray, known: KnownLinks, epoch: int,
                key: str = "train") -> np.ndarray:
        numbers = (numbers[:, None] * self.count + np.arange(self.count)).ravel()
        sources = np.repeat(sources, self.count)
        targets = self.draw(numbers, epoch, key)
        if self.strict:
            self._redraw(targets, sources, numbers, known, epoch, key)
        return targets.reshape(-1, self.count)

    def _redraw(self, targets: np.ndarray, sources: np.ndarray, numbers: np.ndarray,
                known: KnownLinks, epoch: int, key: str) -> None:
        """Draw targets that are links or their own sources anew, in place."""
        wrong = np.arange(targets.size)
        for attempt in range(1, MOST + 1):
            wrong = wrong[known.holds(sources[wrong], targets[wrong])]
            if not wrong.size:
                return
            targets[wrong] = self.draw(numbers[wrong], epoch, key, attempt)
        wrong = wrong[known.holds(sources[wrong], targets[wrong])]
        if wrong.size:
            raise DataError(f"vertex {sources[wrong[0]]} has links with nearly all vertices, so "
                            f"that {MOST} draws found no negative of it")


class SharedTargets(NegativeSampler):
    """M random vertices that are the targets of all positives."""

    name = "shared"
    number = "M"
    shared = True

    def targets(self, sources: np.ndarray, numbers: np.ndarray, known: KnownLinks, epoch: int,
                key: str = "train") -> np.ndarray:
        return self.draw(np.arange(self.count), epoch, key)


NEGATIVES = {kind.name: kind for kind in (UniformTargets, SharedTargets)}


class KnownLinks:
    """The links of some sources, to look up pairs; a vertex counts as a link of itself.

    `tables`, (k, 2) each, are [source, target] of n vertices, and may repeat links.
    """

    def __init__(self, n: int, *tables: np.ndarray) -> None:
        self.n = np.int64(n)
        self.keys = np.concatenate([np.empty(0, np.int64),
                                    *(each[:, 0] * self.n + each[:, 1] for each in tables)])
        self.keys.sort()

    def holds(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return which pairs are links, (k,) bool."""
        keys = sources * self.n + targets
        found = sources == targets
        if self.keys.size:
            place = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
            found |= self.keys[place] == keys
        return found


class DrawnLinks:
    """The pairs of a training step: links, and the negatives that are drawn for them.

    `positive`, (k, 2), are [source, target] as ORIGINAL vertices; `numbers`, (k,), are theirs
    among the links of all ranks. `known` are links that strict samplers do not draw.
    """

    def __init__(self, positive: np.ndarray, numbers: np.ndarray, sampler: NegativeSampler,
                 known: KnownLinks) -> None:
        self.positive = positive
        self.numbers = numbers
        self.sampler = sampler
        self.known = known

    def in_batch(self, batches: Sampler, epoch: int, batch: int) -> DrawnLinks:
        """Return those of a batch in an epoch, which a sampler of links deals out."""
        return self.part(batches.batch_of(self.numbers, epoch) == batch)

    def part(self, place: slice | np.ndarray) -> DrawnLinks:
        """Return those of some of the links, with int64 numbers."""
        return DrawnLinks(self.positive[place].astype(np.int64),
                          self.numbers[place].astype(np.int64), self.sampler, self.known)

    def pairs(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return sources and targets of pairs, and targets that all sources share.

        The first k pairs are the links, and the other ones are negatives. Training step `step`,
        from 1, keys the draws; a full batch has one step an epoch.
        """
        sources, targets = self.positive.T
        drawn = self.sampler.targets(sources, self.numbers, self.known, step)
        if self.sampler.shared:
            return sources, targets, drawn if sources.size else drawn[:0]
        sources = np.concatenate([sources, np.repeat(sources, drawn.shape[1])])
        return sources, np.concatenate([targets, drawn.ravel()]), drawn.ravel()[:0]


def parse_negatives(text: str) -> tuple[type[NegativeSampler], int]:
    """Return the class and the number of a setting `negatives`, such as uniform:1.

    Raise a UsageError for an unknown name or an invalid number.

    Examples
    --------
    >>> from hpgcn.sampling.negatives import parse_negatives
    >>> parse_negatives("shared:256")[1]
    256
    """
    name, _, number = text.partition(":")
    if name not in NEGATIVES:
        forms = " or ".join(f"{kind.name}:{kind.number}" for kind in NEGATIVES.values())
        raise UsageError(f"{assigned('negatives', text)}: expected {forms}"
                         f"{suggestion(name, NEGATIVES)}")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= LARGEST):
        raise UsageError(f"{assigned('negatives', text)}: expected a number from 1 after "
                         f"{name}:, such as {name}:1")
    return NEGATIVES[name], int(number)


def parse_evaluation(text: str) -> tuple[str, int]:
    """Return the kind and the number of a setting `evaluation_negatives`.

    The kind is auto, pairs, targets or all. Raise a UsageError for other text.

    Examples
    --------
    >>> from hpgcn.sampling.negatives import parse_evaluation
    >>> parse_evaluation("targets:1000"), parse_evaluation("all")
    (('targets', 1000), ('all', 1))
    """
    name, colon, number = text.partition(":")
    if name in ("auto", "all") and not colon:
        return name, 1
    if not (name in ("pairs", "targets") and number.isascii() and number.isdecimal()
            and 1 <= int(number) <= LARGEST):
        raise UsageError(f"{assigned('evaluation_negatives', text)}: expected auto, pairs:Q, "
                         "targets:Q or all, with a number from 1 for Q")
    return name, int(number)


def turned(pairs: np.ndarray, numbers: np.ndarray, seed: int) -> np.ndarray:
    """Return undirected pairs, (k, 2), of which a keyed half is turned around.

    Negatives keep the first end. The order in which an input names ends, such as lower vertices
    first, thus does not decide which vertices have negatives.

    Examples
    --------
    >>> from hpgcn.sampling.negatives import turned
    >>> turned(np.array([[0, 1], [0, 2], [0, 3]]), np.arange(3), seed=0).tolist()
    [[1, 0], [0, 2], [3, 0]]
    """
    bits = np.empty(len(pairs), np.int64)
    _draw(numbers, 2, key_of(seed, ENDS), bits)
    return np.where(bits[:, None] == 1, pairs[:, ::-1], pairs)


def check_link_settings(config: Config) -> None:
    """Raise a UsageError for settings that do not suit the task, links or vertices."""
    links, request = config.task == "links", parse(config.batch)
    if request and SAMPLERS[request.name].samples_links != links:
        wanted = f"only for {setting('task', 'links')}"
        if links:
            wanted = f"not supported by {setting('task', 'links')}, expected {FULL} or links:B"
        raise UsageError(f"{assigned('batch', config.batch)}: {wanted}")
    if not links:
        return
    for name in UNSUPPORTED:
        value, default = getattr(config, name), getattr(Config, name)
        if value != default:
            expected = f", expected {default}" if default else ""
            raise UsageError(f"{assigned(name, value)}: not supported by "
                             f"{setting('task', 'links')}{expected}")
    if config.dtype != config.number_dtype:
        raise UsageError(f"{assigned('dtype', config.dtype)}: not supported by "
                         f"{setting('task', 'links')}, expected float32 or float64")
    if parse_evaluation(config.evaluation_negatives)[0] == "all" and config.metric in BY_PAIRS:
        raise UsageError(f"{assigned('evaluation_negatives', 'all')}: only for "
                         f"{setting('metric', 'mrr')} and hits@K, not {config.metric}")
    kind = parse_negatives(config.negatives)[0]
    if config.strict_negatives and not kind.supports_strict:
        raise UsageError(f"{assigned('strict_negatives', True)}: only for "
                         f"{setting('negatives', 'uniform:K')}, not {kind.name}")


@jit()
def _draw(numbers, n, key, out):  # type: ignore[no-untyped-def]
    """Fill `out` with a vertex below n for each number."""
    for i in range(numbers.size):
        word = fold(key, np.uint64(numbers[i]) + GOLDEN)
        out[i] = np.int64(word % np.uint64(n))

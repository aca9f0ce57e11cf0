"""Pairs of vertices to predict: the links of each set, and negatives that the input gives.

Pairs belong to the whole graph, not to rows, and keep their order in every partition.
"""
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError, DataWarning, setting
from hpgcn.graphs.validation import SPLIT, first_true

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CHECKED = 1 << 22  # given negatives of a set that are compared with links
ARRAYS = "positive", "negative", "negative_targets", "weight"  # fields of a LinkSet


@dataclass(frozen=True, eq=False)
class LinkSet:
    """The links of one set, with vertices numbered in the order of the graph's rows.

    Arrays are ndarrays, or objects with `shape`, `dtype` and `array[start:stop]` that read
    from a file: `read` makes ndarrays of them.

    Attributes
    ----------
    positive : (k, 2) int64
        Rows of [source, target]. An undirected graph has each link once, in either direction.
    negative : (m, 2) int64 or None
        Pairs that are no links, for all positives together.
    negative_targets : (k, q) int64 or None
        q targets of each positive that are no targets of its source, instead of `negative`.
    weight : (k,) float32 or None
        Weights of the positives as edges; None if all are 1.

    Examples
    --------
    >>> from hpgcn.graphs.links import LinkSet
    >>> LinkSet(np.array([[0, 1], [2, 0]]), negative=np.array([[1, 2]]))
    LinkSet(2 links, 1 negatives)
    """

    positive: np.ndarray
    negative: np.ndarray | None = None
    negative_targets: np.ndarray | None = None
    weight: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"LinkSet({self.describe()})"

    def __len__(self) -> int:
        return self.positive.shape[0]

    @property
    def has_negatives(self) -> bool:
        """Whether negatives are given."""
        return self.negative is not None or self.negative_targets is not None

    def describe(self) -> str:
        """Return the numbers of links and of given negatives, as text."""
        words = [f"{len(self):,} links"]
        if self.negative is not None:
            words.append(f"{self.negative.shape[0]:,} negatives")
        if self.negative_targets is not None:
            words.append(f"{self.negative_targets.shape[1]:,} negative targets of each")
        return ", ".join(words)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that are not None, by the names of ARRAYS."""
        return {name: array for name in ARRAYS if (array := getattr(self, name)) is not None}

    def read(self) -> LinkSet:
        """Return the set with all arrays in memory."""
        return LinkSet(**{name: array[0:array.shape[0]] for name, array in self.arrays().items()})

    def renumbered(self, number: np.ndarray) -> LinkSet:
        """Return the set with `number[u]`, (n,), in place of each vertex u, read on demand."""
        arrays: dict[str, Any] = {name: Renumbered(array, number)
                                  for name, array in self.arrays().items() if name != "weight"}
        return replace(self, **arrays)


class Renumbered:
    """An array of vertices with other numbers, which can only be sliced.

    Examples
    --------
    >>> from hpgcn.graphs.links import Renumbered
    >>> Renumbered(np.array([[0, 1]]), np.array([5, 7]))[0:1]
    array([[5, 7]])
    """

    dtype = np.dtype(np.int64)

    def __init__(self, array: Any, number: np.ndarray) -> None:
        self.array = array
        self.number = number
        self.shape = array.shape

    def __getitem__(self, pairs: slice) -> np.ndarray:
        return self.number[self.array[pairs]]


Links = dict[str, LinkSet]


def check_training(links: Sized, where: object) -> None:
    """Raise a DataError if there are no links to train on; `where` names the graph."""
    if not len(links):
        raise DataError(f"{where}: no links to train on; add them with links= in "
                        "Graph.from_scipy, or with `hpgcn convert --links 80/10/10`")


def permuted_links(links: Links | None, perm: np.ndarray) -> Links | None:
    """Return links in memory of a graph that is put into the order `perm`, (n,) new -> old."""
    if links is None:
        return None
    number = np.empty_like(perm)
    number[perm] = np.arange(perm.size)
    return {key: each.renumbered(number).read() for key, each in links.items()}


def check_links(links: Mapping[str, LinkSet | ArrayLike] | None, csr: tuple, directed: bool,
                name: str, allow_leakage: bool = False,
                ids: ArrayLike | None = None) -> Links | None:
    """Check the links of a graph in memory, and leave out self loops.

    DataWarnings count self loops, repeated links, links of validation that are tested, links
    that are edges in the other direction, and negatives that are links.

    Parameters
    ----------
    links : dict of LinkSet, or of (k, 2) integers, or None
        Under some of "train", "val" and "test".
    csr : (indptr, indices, data)
        The adjacency in memory.
    directed : bool
        [u, v] and [v, u] are different links.
    name : str
        Name of the graph, for errors.
    allow_leakage : bool
        Links of validation and test may be edges of the graph or links of training; a
        DataWarning counts them.
    ids : (n,) array_like, optional
        What the input calls the vertices, for errors.

    Returns
    -------
    dict of LinkSet, with int64 and float32 arrays; None without links

    Raises
    ------
    DataError
        Other names, shapes or dtypes, vertices below 0 or past n - 1, both kinds of negatives,
        weights that are not finite, leakage.
    """
    if links is None:
        return None
    if not isinstance(links, Mapping) or not links or set(links) - set(SPLIT):
        raise DataError(f"{name}: links: expected a dict under {', '.join(SPLIT)}")
    indptr, indices = csr[:2]
    n = indptr.size - 1
    checked = {key: _without_loops(_check_set(links[key], n, f"{name}: links of {key}"),
                                   f"{name}: links of {key}")
               for key in SPLIT if key in links}
    for key, each in checked.items():
        if again := count_repeated(each.positive, n, directed):
            warnings.warn(f"{name}: links of {key}: {again:,} of {len(each):,} occur before",
                          DataWarning, stacklevel=3)

    # refuse answers in the question: links of validation and test that training reads
    keys = {key: pair_keys(each.positive, n, directed) for key, each in checked.items()}
    for key in [key for key in checked if key != "train"]:
        pairs = checked[key].positive
        leaked = find_entries(indptr, indices, pairs[:, 1], pairs[:, 0])
        trained = ~leaked & np.isin(keys[key], keys.get("train", ()))
        for found, what in ((leaked, "edges of the graph"), (trained, "links of train")):
            if not found.any():
                continue
            text = (f"{name}: links of {key}: {np.count_nonzero(found):,} of {found.size:,} are "
                    f"{what}, the first {_name_pair(pairs[found.argmax()], ids)}")
            if not allow_leakage:
                raise DataError(f"{text}, so that models see what they predict; "
                                f"{setting('allow_leakage', True)} allows it")
            warnings.warn(text, DataWarning, stacklevel=3)

    # count what is odd, but may be meant
    for key in [key for key in checked if directed and key != "train"]:
        pairs = checked[key].positive
        if again := find_entries(indptr, indices, pairs[:, 0], pairs[:, 1]).sum():
            warnings.warn(f"{name}: links of {key}: {again:,} of {len(pairs):,} are edges in the "
                          "other direction, whose score is the same", DataWarning, stacklevel=3)
    if {"val", "test"} <= keys.keys() and (again := np.isin(keys["test"], keys["val"]).sum()):
        warnings.warn(f"{name}: links of test: {again:,} of {len(keys['test']):,} are links of val",
                      DataWarning, stacklevel=3)
    every = np.unique(np.concatenate([*keys.values()]))
    for key, each in checked.items():
        negatives = given_negatives(each)[:CHECKED]
        wrong = find_entries(indptr, indices, negatives[:, 1], negatives[:, 0])
        wrong |= np.isin(pair_keys(negatives, n, directed), every)
        if wrong.any():
            first = " of the first" * (negatives.shape[0] == CHECKED)
            warnings.warn(f"{name}: links of {key}: {np.count_nonzero(wrong):,} of{first} "
                          f"{wrong.size:,} negatives are edges or links, the first "
                          f"{_name_pair(negatives[wrong.argmax()], ids)}", DataWarning,
                          stacklevel=3)
    return checked


def _name_pair(pair: np.ndarray, ids: ArrayLike | None) -> list:
    return (pair if ids is None else np.asarray(ids)[pair]).tolist()


def given_negatives(links: LinkSet) -> np.ndarray:
    """Return the first CHECKED given negatives of a set or more, as pairs (m, 2)."""
    if links.negative_targets is None:
        return np.empty((0, 2), np.int64) if links.negative is None else links.negative
    targets = links.negative_targets
    targets = targets[:-(-CHECKED // max(targets.shape[1], 1))]
    sources = np.repeat(links.positive[:len(targets), 0], targets.shape[1])
    return np.stack([sources, targets.ravel()], axis=1)


def find_entries(indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray,
                 columns: np.ndarray) -> np.ndarray:
    """Return which of the entries (row, column) a CSR with sorted columns has, (k,) bool."""
    low, high = indptr[rows], indptr[rows + 1]
    stop = high
    while (low < high).any():
        middle = (low + high) // 2
        below = (low < high) & (indices[np.minimum(middle, indices.size - 1)] < columns)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    inside = low < stop
    inside[inside] = indices[low[inside]] == columns[inside]
    return inside


def count_repeated(pairs: np.ndarray, n: int, directed: bool) -> int:
    """Return how many of the pairs, (k, 2), occur before; both directions if not `directed`."""
    return len(pairs) - np.unique(pair_keys(pairs, n, directed)).size


def pair_keys(pairs: np.ndarray, n: int, directed: bool) -> np.ndarray:
    """Return a number of each pair, (k,) int64; [u, v] has that of [v, u] if not `directed`."""
    source, target = pairs.T if directed else (pairs.min(axis=1), pairs.max(axis=1))
    return source * np.int64(n) + target


def find_wrong(field: str, array: np.ndarray, n: int,
               loops: bool = False) -> tuple[int, str] | None:
    """Return the first wrong row of an array of a LinkSet and the problem; None if valid.

    Vertices must be in [0, n), the two of a positive distinct unless `loops`, and weights finite.
    """
    if field == "weight":
        problems = [(~np.isfinite(array), "is not a finite number")]
    else:
        problems = [(((array < 0) | (array >= n)).any(axis=1), f"has a vertex outside 0..{n - 1}")]
    if field == "positive" and not loops:
        problems.append((array[:, 0] == array[:, 1], "is a vertex with itself"))
    found = ((first_true(wrong), problem) for wrong, problem in problems)
    return next(((row, problem) for row, problem in found if row is not None), None)


def _check_set(links: Any, n: int, where: str) -> LinkSet:
    if not isinstance(links, LinkSet):
        links = LinkSet(links)
    arrays = {name: _as_integers(array, f"{where}: {name}")
              for name, array in links.arrays().items() if name != "weight"}
    positive = arrays["positive"]
    k = len(positive)

    # refuse shapes that do not fit
    if len(arrays) > 2:
        raise DataError(f"{where}: have negative and negative_targets, expected one of them")
    for field, array in arrays.items():
        expected = f"({k}, any)" if field == "negative_targets" else "(any, 2)"
        if array.ndim != 2 or (array.shape[1] != 2 if field != "negative_targets"
                               else len(array) != k):
            raise DataError(f"{where}: {field} has shape {array.shape}, expected {expected}")

    # refuse wrong numbers
    if links.weight is not None:
        arrays["weight"] = np.ascontiguousarray(links.weight, np.float32)
        if arrays["weight"].shape != (k,):
            raise DataError(f"{where}: weight has shape {arrays['weight'].shape}, expected ({k},)")
    for field, array in arrays.items():
        if wrong := find_wrong(field, array, n, loops=True):
            row, problem = wrong
            raise DataError(f"{where}: {field}[{row}] {problem}: {array[row].tolist()}")
    return LinkSet(**arrays)


def _without_loops(links: LinkSet, where: str) -> LinkSet:
    """Return a set without links of a vertex with itself; a DataWarning counts them."""
    kept = links.positive[:, 0] != links.positive[:, 1]
    if kept.all():
        return links
    warnings.warn(f"{where}: {np.count_nonzero(~kept):,} of {len(links):,} are self loops, which "
                  "are no links: left out", DataWarning, stacklevel=4)
    return LinkSet(**{name: array if name == "negative" else array[kept]
                      for name, array in links.arrays().items()})


def _as_integers(array: Any, where: str) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in "iu":
        raise DataError(f"{where} has dtype {array.dtype}, expected integers")
    return np.ascontiguousarray(array, np.int64)

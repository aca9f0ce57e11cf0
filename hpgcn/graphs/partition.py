"""A partition of the vertices into k parts, and the order of rows that makes parts contiguous."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.validation import first_true


@dataclass(frozen=True, eq=False)
class Partition:
    """The part of every vertex, and the order of rows in which each part is contiguous."""

    part: np.ndarray  # (n,) int32: part that owns ORIGINAL vertex i
    perm: np.ndarray  # (n,) int64: new -> old row numbers
    iperm: np.ndarray  # (n,) int64: old -> new
    offsets: np.ndarray  # (k + 1,) int64: part p owns the new rows [offsets[p], offsets[p + 1])
    method: str = ""  # the method, e.g. "best"
    engine: str = ""  # e.g. "mtkahypar"; empty if no engine was needed
    engine_version: str = ""
    seed: int = 0
    epsilon: float = 0.0  # imbalance of vertex weights that the engine may leave; 0 without one
    statistics: dict = field(default_factory=dict)  # numbers, from hpgcn.partition.statistics
    edge_part: np.ndarray | None = None  # (nnz,) int32: holder of each ORIGINAL stored entry
    # whether parts 2 p and 2 p + 1 make a part of k / 2 parts, and so on: see `merged`
    nested: bool = False
    batch: str = ""  # mini-batches that method stochastic serves, e.g. "vertices:20000"
    winner: str = ""  # e.g. "graph": the method that "best" chose
    effort: str = ""  # e.g. "default"; "" for methods that have no effort
    divided: str = ""  # what the engine divided: "vertices" or "78,493 clusters"; "" if unknown
    start: str = ""  # what the engine began with: "scratch", or parts by e.g. "metis"
    seconds: float = 0.0  # duration of the method; 0 if unknown
    # number of consecutive parts of each node; () if the parts were not made for nodes
    node_sizes: tuple[int, ...] = ()

    @property
    def k(self) -> int:
        """Number of parts, including empty ones."""
        return self.offsets.size - 1

    @property
    def title(self) -> str:
        """Name of the method, maybe with the winner, such as "best (graph)"; "" if unknown."""
        return f"{self.method} ({self.winner})" if self.winner else self.method

    @property
    def work(self) -> str:
        """Text on the engine, the input that it divided, its start, and the seconds; may be ""."""
        texts = []
        if self.engine:
            texts.append(f"by {self.engine} {self.engine_version}".rstrip())
        if self.divided:
            texts.append(f"on {self.divided}")
        if self.start:
            texts.append(f"from {'' if self.start == 'scratch' else 'parts of '}{self.start}")
        if self.seconds:
            texts.append(f"in {self.seconds:,.1f} s")
        return " ".join(texts)

    @property
    def merges(self) -> tuple[int, ...]:
        """Numbers of parts into which nested parts can be merged, descending."""
        return halves(self.k) if self.nested else ()

    def merged(self, k: int) -> Partition:
        """Return the partition in `k` parts, each a union of adjacent nested parts.

        Rows keep their order.

        Its `statistics` are empty. UsageError unless k is in `merges`, or equals the
        number of parts.
        """
        if k not in (self.k, *self.merges):
            raise UsageError(f"k = {k}: {self.k} {'nested ' * self.nested}parts can be merged only "
                             f"to {', '.join(map(str, self.merges)) or 'themselves'}")
        size = self.k // k
        if size == 1:
            return self
        edge_part = None if self.edge_part is None else self.edge_part // size
        return replace(self, part=self.part // size, offsets=self.offsets[::size],
                       edge_part=edge_part, statistics={}, node_sizes=())

    @staticmethod
    def from_parts(part: np.ndarray, k: int, *, order: np.ndarray | None = None,
                   edge_part: np.ndarray | None = None, **attributes: Any) -> Partition:
        """Make a partition from the part of each vertex, (n,) integers in [0, k).

        `order`, (n,) integers, has the vertices in the order of each part (such as RCM;
        default: increasing). `edge_part`, (nnz,) in [0, k), is the part of each stored
        entry, if edges have parts of their own. DataError like `check_parts`, or for no
        permutation; parts may be empty.
        """
        if edge_part is not None:
            edge_part = check_parts(edge_part, k, where="edge_part", what="entry")
        part = check_parts(part, k)
        vertices = np.arange(part.size, dtype=np.int64)
        order = vertices if order is None else np.asarray(order)
        if order.dtype.kind not in "ui" or not np.array_equal(np.sort(order), vertices):
            raise DataError(f"order of dtype {order.dtype} and shape {order.shape} must contain "
                            f"each of 0..{part.size - 1} exactly once")

        order = order.astype(np.int64, copy=False)
        perm = order[np.argsort(part[order], kind="stable")]
        iperm = np.empty_like(perm)
        iperm[perm] = vertices
        offsets = run_offsets(np.bincount(part, minlength=k))
        return Partition(part, perm, iperm, offsets, edge_part=edge_part, **attributes)


def halves(k: int) -> tuple[int, ...]:
    """Return k / 2, k / 4 and so on, as long as the number is whole and above 1."""
    numbers = []
    while k > 2 and k % 2 == 0:
        k //= 2
        numbers.append(k)
    return tuple(numbers)


def describe_nodes(sizes: Sequence[int]) -> str:
    """Return the text "8 nodes of 4 parts" of the parts of each node, a tuple of int."""
    least, most = min(sizes), max(sizes)
    parts = f"{least}" if least == most else f"{least} to {most}"
    return f"{len(sizes):,} node{'s' * (len(sizes) > 1)} of {parts} part{'s' * (most > 1)}"


def check_parts(part: np.ndarray, k: int, *, n: int | None = None, where: str = "part vector",
                what: str = "vertex") -> np.ndarray:
    """Check the part of each of n vertices, and return it as int32 (n,).

    DataError unless parts are integers (n,) in 0..k-1. The error names `where`, and calls
    a vertex `what`.
    """
    part = np.asarray(part)
    if part.ndim != 1 or part.dtype.kind not in "ui" or n not in (None, part.size):
        raise DataError(f"{where} has dtype {part.dtype} and shape {part.shape}, expected integers "
                        f"({'n' if n is None else n},)")
    if (place := first_true((part < 0) | (part >= k))) is not None:
        raise DataError(f"{where}: {what} {place} has part {part[place]}, expected 0..{k - 1}")
    return part.astype(np.int32)


def run_offsets(sizes: Any) -> np.ndarray:
    """Return where runs of these sizes begin, and the end of the last, (runs + 1,) int64."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def positions_of(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs begin among their entries, and the positions of all entries.

    Run r has the positions from begins[r] to before ends[r]. The first result is (r +
    1,) int64.
    """
    counts = ends - begins
    pointers = run_offsets(counts)
    return pointers, np.repeat(begins - pointers[:-1], counts) + np.arange(pointers[-1])

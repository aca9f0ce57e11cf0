"""The ways to train a graph that a forecast compares: strategy, parts, ranks and grid, each with its exact volumes."""
from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from hpgcn import cost, store
from hpgcn.check import check_csr
from hpgcn.cost import shares
from hpgcn.errors import DataError, UsageError
from hpgcn.forecast.options import HIDDEN, MOST_RANKS, QUICK
from hpgcn.graph import Graph
from hpgcn.partition import make_partition
from hpgcn.partition.model import pattern
from hpgcn.partition.quality import exchange_counts
from hpgcn.store.csr import read_csr
from hpgcn.store.reader import Reader
from hpgcn.store.schema import GRAPH, PARTITIONED

OWN_PARTS = ("p2p", "1d")  # strategies that keep to the parts of a partitioned file


@dataclass(frozen=True, eq=False)
class Case:
    """One way to train.

    Attributes
    ----------
    strategy : str
    parts : str
        Method of the partition, or "stored" where the stored order of rows is cut.
    ranks : int
    grid : tuple of int
    prediction : hpgcn.cost.Prediction
    share : hpgcn.cost.shares.Share
    """

    strategy: str
    parts: str
    ranks: int
    grid: tuple[int, ...]
    prediction: cost.Prediction
    share: shares.Share


class Survey:
    """The pattern of a graph in a file, and what training on it costs each rank. Values and features are not read.

    Parameters
    ----------
    path : str or path-like
    widths : tuple of int or None
        As `Options`.

    Attributes
    ----------
    header : hpgcn.graph.Header
    offsets : (k + 1,) int64 or None
        Parts of a partitioned file, and `method`, how they were made.
    rows : csr_array (n, n)
        Pattern of A + I.
    step : hpgcn.cost.Step

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `hpgcn.store.load`; no vertices; widths that neither the file nor the caller tells.
    """

    def __init__(self, path, widths=None):
        with store.load(path) as stored:
            self.path, self.header, self.offsets = stored.path, stored.header, stored.offsets
            self.method = stored.partition.method if self.offsets is not None else None
        header = self.header
        if not header.num_nodes:
            raise DataError(f"{self.path}: no vertices")
        self.step = _step(self.path, header, widths)
        with closing(Reader(path, (GRAPH, PARTITIONED))) as reader:
            n = header.num_nodes
            indptr, indices, _ = read_csr(reader, "adjacency", 0, n, n, n, True)
            self.feature_pointers = _feature_pointers(reader, header) if self.step.sparse_features else None
        nothing = np.zeros(n)
        self.graph = Graph(header, 0, indptr, indices, None, None, None, None, nothing, nothing, nothing,
                           vertex=np.arange(n))
        self.rows = pattern(self.graph)

    def plans(self, ranks=None, methods=None):
        """What there is to compare: a list of (strategy, parts, ranks), fewest ranks first.

        Raises
        ------
        DataError
            More ranks than vertices.
        UsageError
            Methods, of a file that is partitioned already.
        """
        n = self.header.num_nodes
        own = None if self.offsets is None else self.offsets.size - 1
        if own is not None and methods:
            raise UsageError(f"{self.path}: partitioned already; give --method with the graph it was made from")
        if ranks is None:
            ranks = (own,) if own else tuple(2**e for e in range(min(n, MOST_RANKS).bit_length()))
        if max(ranks) > n:
            raise DataError(f"{self.path}: {max(ranks)} ranks for {n} vertices, expected 1..{n}")
        methods = methods or QUICK
        found = []
        for k in ranks:
            whole = ("whole",) if k == 1 else methods
            parts = whole if own is None else (self.method or "given",) if k == own else ()
            found += [("p2p", name, k) for name in parts]
            if k > 1 or not parts:  # on a single rank all strategies are one
                found += [(name, (self.method or "given") if own and name in OWN_PARTS else "stored", k)
                          for name in cost.STRATEGIES[1:] if own in (None, k) or name not in OWN_PARTS]
        return found

    def case(self, strategy, parts, ranks):
        """Count one way to train: a Case."""
        if strategy == "p2p":
            return self._point_to_point(parts, ranks)
        grid, indptr = cost.default_grid(strategy, ranks), self.rows.indptr
        offsets = cost.row_blocks(strategy, grid, indptr) if parts == "stored" else self.offsets
        blocks = {}
        if strategy in ("2d", "3d"):
            kinds = {"nnz_blocks": False, **({"nnz_blocks_transposed": True} if self.step.directed else {})}
            blocks = {name: cost.stage_nonzeros(strategy, grid, offsets, indptr, self.rows.indices, transposed=turned)
                      for name, turned in kinds.items()}
        share = shares.stored_order(strategy, grid, offsets, indptr, self.rows.indices,
                                    blocks=blocks.get("nnz_blocks"), feature_pointers=self.feature_pointers)
        prediction = cost.predict(strategy, self.step, grid, offsets, **blocks)
        return Case(strategy, parts, ranks, grid, prediction, share)

    def _point_to_point(self, parts, k):
        n = self.header.num_nodes
        if self.offsets is not None and k == self.offsets.size - 1:
            part = np.repeat(np.arange(k, dtype=np.int32), np.diff(self.offsets))
        elif parts == "whole":
            part = np.zeros(n, np.int32)
        else:
            part = make_partition(self.graph, k, method=parts, rcm=False).part
        found = exchange_counts(self.rows, part, k)
        sent = cost.RankVolumes(found.sent, found.received, found.pairs, found.sources)

        def by_part(weights=None):
            return np.bincount(part, weights, k).astype(np.int64)

        features = None if self.feature_pointers is None else by_part(np.diff(self.feature_pointers))
        rows = by_part()
        share = shares.point_to_point(rows, by_part(np.diff(self.rows.indptr)), sent, features)
        offsets = np.concatenate([[0], np.cumsum(rows)])
        return Case("p2p", parts, k, (k,), cost.predict("p2p", self.step, (k,), offsets, sent=sent), share)


def _feature_pointers(reader, header):
    pointers, nothing = reader.read("features/pointers_to_1"), np.empty(0, np.int32)
    check_csr(pointers, nothing, reader.entries["features/indices_1"].rows, header.num_features,
              f"{reader.path}: features")
    return pointers


def _step(path, header, widths):
    if widths is None:
        for name, count in (("features", header.num_features), ("classes", header.num_classes)):
            if not count:
                raise DataError(f"{path}: no {name}; give --widths, e.g. --widths 128,{HIDDEN},40")
        widths = (header.num_features, HIDDEN, header.num_classes)
    sparse = header.sparse_features and widths[0] == header.num_features
    return cost.Step(widths, sparse_features=sparse, directed=header.directed)

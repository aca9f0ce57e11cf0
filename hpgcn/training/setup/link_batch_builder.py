"""Batches of training links: their pairs on this rank, and the rows that the pairs read."""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.sampling.submatrix_kernels import by_batch

if TYPE_CHECKING:
    from hpgcn.sampling import NeighborBatchBuilder
    from hpgcn.sampling.batch import Batch
    from hpgcn.training.setup.rank_links import RankLinks


class LinkBatchBuilder:
    """Builder of the batches of a sampler of links.

    Parameters
    ----------
    neighbors : hpgcn.sampling.NeighborBatchBuilder
        Builder of the neighborhood of rows.
    links : RankLinks
        The links whose sources are rows of this rank.
    """

    def __init__(self, neighbors: NeighborBatchBuilder, links: RankLinks) -> None:
        self.neighbors = neighbors
        self.links = links
        self.sampler = neighbors.sampler
        self.comm = links.comm
        self.assigned = 0, (np.empty(0, np.int64),) * 2  # an epoch, and its batches

    def batch(self, epoch: int, batch: int) -> Batch:
        """Return batch number `batch` of an epoch, from 0, with its pairs; collective."""
        counters = self.comm.counters
        before, _ = counters.total(counters.phase)

        # the pairs, and own rows that this rank or others read for them
        step = (epoch - 1) * self.sampler.batches + batch + 1
        offsets, positions = self._assignment(epoch)
        draws = self.links.draws.part(positions[offsets[batch]:offsets[batch + 1]])
        pairs = self.links.training_pairs(step, draws, int(self.sampler.sizes()[batch]))
        device, plan = self.comm.device, pairs.pulled.plan
        read = [device.get(each) for each in (pairs.sources, pairs.targets, pairs.shared)]
        rows = np.unique(np.concatenate([*read, plan.send_rows]))
        rows = device.put(rows[rows < plan.layout.num_rows])

        # their neighborhood
        found = self.neighbors.batch_of_rows(rows, step, pairs.share)
        computed = found.rows[-1]
        sent = counters.total(counters.phase)[0] - before
        return replace(found, request_bytes=sent,
                       pairs=pairs.restricted(computed, device.get(computed)))

    def _assignment(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets of the batches of an epoch, and the positions of own links in each."""
        if self.assigned[0] != epoch:
            number = self.sampler.batch_of(self.links.draws.numbers, epoch).astype(np.int32)
            self.assigned = epoch, by_batch(number, self.sampler.batches)
        return self.assigned[1]

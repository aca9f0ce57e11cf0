"""Batches of the submatrix that sampled vertices induce.

Each rank cuts its part of the submatrix without messages, in the memory of its device.

A rank needs two facts of vertices on other ranks: their ORIGINAL numbers, and their
batch in an epoch. The sampler computes the batch of any vertex.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpgcn.sampling.batch import Batch
from hpgcn.sampling.local_matrix import lists_to_owners, plan_of

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.sampling.local_matrix import LocalMatrix
    from hpgcn.sampling.sampler import Sampler


class BatchAssignment(NamedTuple):
    """The vertices of each batch of an epoch.

    Fields are pairs (offsets, positions), as from `submatrix_kernels.by_batch`. All
    arrays but offsets lie on the device.
    """

    number: np.ndarray  # (m + g + t,) batch of own vertices, ghosts, and rows of other ranks
    totals: np.ndarray  # vertices of each batch, over all ranks
    rows: tuple  # own
    ghosts: tuple  # that may be pulled
    targets: tuple  # rows of other ranks whose partial sums may be formed here
    sent: tuple  # rows to send
    returned: tuple  # rows whose sums come back


class InducedBatchBuilder:
    """Builder of the induced subgraphs of batches from the local matrix of a rank.

    Parameters
    ----------
    local : LocalMatrix
    sampler : Sampler
    unit_of : callable
        Function that returns the unit of the sampler for each of some ORIGINAL numbers,
        (k,).
    weights : (units,) int64 or None
        Number of vertices in each unit; None: each unit is one vertex.
    products : int
        Number of products with A in a training step.
    comm : hpgcn.comm.SerialComm or MpiComm
        Communicator; all ranks make the builder together.
    """

    def __init__(self, local: LocalMatrix, sampler: Sampler, unit_of: Callable,
                 weights: np.ndarray | None, products: int, comm: SerialComm) -> None:
        self.sampler = sampler
        self.weights = weights
        self.products = products
        m, g = local.num_own, local.pull.ghosts.size
        read, summed = local.remote_entries()
        lists = [lists_to_owners(local.pull, read[1] - m, local.row_vertex[read[0]], comm),
                 lists_to_owners(local.push, summed[0] - m, local.column_vertex[summed[1]], comm)]

        # every vertex that this rank needs, once: own ones, ghosts, rows of other
        # ranks, witnesses
        vertex = np.concatenate([local.column_vertex, local.row_vertex[m:]])
        known, index = np.unique(np.concatenate([vertex, *(witnesses for _, witnesses in lists)]),
                                 return_inverse=True)
        self.unit = unit_of(known)
        known_index, *witnesses = np.split(index, np.cumsum([vertex.size, lists[0][1].size]))
        units = self.unit[known_index]

        # from here on all is on the device
        device = self.device = local.strategy.comm.device
        blocks = local.strategy.product.all_blocks()
        self.local = local.on_device(blocks[0] if len(blocks) == 1 else None)
        self.kernels = self.local.kernels
        self.unit, self.known_index = device.put(self.unit), device.put(known_index)
        self.lists = [(device.put(pointers), device.put(each))
                      for (pointers, _), each in zip(lists, witnesses)]
        # units of rows, and of columns
        self.units = [device.put(device.keep(each))
                      for each in (np.delete(units, np.s_[m:m + g]), units[:m + g])]
        with device.in_memory():
            self.new_number = device.xp.empty(m + g, np.int32)  # work: new column numbers
        self.assigned = None, None

    def assignment(self, epoch: int) -> BatchAssignment:
        """Return the BatchAssignment of an epoch.

        This takes time in proportion to the rows in the rank's tables.
        """
        if self.assigned[0] != epoch:
            local, batches = self.local, self.sampler.batches
            known = self.sampler.batch_of(self.unit, epoch).astype(np.int32)
            number = known[self.known_index]
            m, g, t = local.num_own, local.pull.ghosts.size, local.push.ghosts.size

            # rows, ghosts and rows of other ranks, by batch
            runs = [self.kernels.by_batch(number[first:last], batches)
                    for first, last in ((0, m), (m, m + g), (m + g, m + g + t))]

            # what is sent: rows whose readers are in the same batch
            for plan, (pointers, witnesses) in zip((local.pull, local.push), self.lists):
                decided = self.device.xp.empty(plan.send_rows.size, np.int32)
                self.kernels.agreeing(pointers, known[witnesses], number[plan.send_rows], decided)
                runs.append(self.kernels.by_batch(decided, batches))

            totals = self.sampler.sizes()
            if self.weights is not None:
                every = self.sampler.batch_of(np.arange(self.weights.size), epoch)
                totals = np.bincount(every, self.weights, batches)
            self.assigned = epoch, BatchAssignment(number, totals, *runs)
        return self.assigned[1]

    def batch(self, epoch: int, batch: int) -> Batch:
        """Return batch number `batch` of an epoch, from 0, as a Batch.

        No message is sent.
        """
        # the entries whose ends are both in the batch
        local, assignment, m = self.local, self.assignment(epoch), self.local.num_own
        device = self.device
        rows, ghosts, targets, sent, returned = (
            places[offsets[batch]:offsets[batch + 1]] for offsets, places in assignment[2:])
        factor = local.values.dtype.type(self.sampler.factor(batch))
        lines = np.concatenate([rows, m + targets])
        pointers, columns, values = self.kernels.induce(
            *local.entries_of(lines, local.columns, local.values), lines, *self.units,
            assignment.number, batch, factor)

        # leave out ghost columns that no entry reads, and rows of other ranks without
        # entries
        self.new_number[m + ghosts] = 0
        self.new_number[rows] = 1
        self.new_number[columns] = 1
        ghosts = ghosts[self.new_number[m + ghosts] > 0]
        self.new_number[rows] = device.xp.arange(rows.size)
        self.new_number[m + ghosts] = rows.size + device.xp.arange(ghosts.size)
        self.kernels.renumber(columns, self.new_number)
        filled = np.diff(pointers[rows.size:]) > 0
        pointers = np.concatenate([pointers[:rows.size + 1], pointers[rows.size + 1:][filled]])
        targets = targets[filled]

        # the map between the rows that are left
        plans = (plan_of(local.pull, ghosts, sent, self.new_number, rows.size, device),
                 plan_of(local.push, targets, returned, self.new_number, rows.size, device))
        shape = rows.size, rows.size
        blocks = local.blocks((pointers, columns, values), shape, *plans)
        strategy = local.strategy
        part = strategy.submap(blocks, plans, shape, symmetric=strategy.symmetric)
        return Batch([part] * self.products, [rows] * (self.products + 1),
                     [int(assignment.totals[batch])] * (self.products + 1),
                     self.sampler.share(batch))

"""Batches of some training vertices and of neighbors drawn for them, level by level.

Draws are keyed, so each rank computes them for the entries that it stores, in the memory
of its device. Row numbers in messages pass through the host. For each
product with A ranks exchange which rows they need. Owners send needed row numbers to
the ranks that hold nonzeros of these rows. They receive the list of their rows that are
read.
"""
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.csr import inverse
from hpgcn.sampling import submatrix_kernels
from hpgcn.sampling.batch import Batch
from hpgcn.sampling.keyed_draws import key_of
from hpgcn.sampling.local_matrix import lists_to_owners, plan_of, to_holders

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.sampling.local_matrix import LocalMatrix
    from hpgcn.sampling.sampler import Sampler
    from hpgcn.strategies.rows import RowStrategy


class SampledHop(NamedTuple):
    """Entries of this rank drawn for a product with A; positions as in HaloPlans."""

    # on the device
    rows: Array  # (r,) own, of the result
    needed: Array  # (r',) own rows to multiply, increasing: `rows` and their own neighbors
    cut: tuple  # row pointers (own rows, then those of other ranks), columns and values
    # on the host
    ghosts: np.ndarray  # ghosts that are read
    targets: np.ndarray  # rows of other ranks whose partial sums are formed here
    sent: np.ndarray  # rows to send
    returned: np.ndarray  # rows whose sums come back


class NeighborBatchBuilder:
    """Builder of batches for a sampler that draws neighbors.

    Parameters
    ----------
    local : LocalMatrix
    sampler : hpgcn.sampling.NeighborSampler
    seeds : (s,) int64
        Own rows of training vertices.
    units : (s,) int64
        Their positions among the training vertices of all ranks.
    comm : hpgcn.comm.SerialComm or MpiComm
        Communicator; all ranks make the builder, and its batches, together.
    nested : bool
        Each level has only the rows that the next one reads; else all levels have the
        rows of the first.
    """

    def __init__(self, local: LocalMatrix, sampler: Sampler, seeds: np.ndarray, units: np.ndarray,
                 comm: SerialComm, *, nested: bool = True) -> None:
        self.sampler = sampler
        self.comm = comm
        self.nested = nested
        device = self.device = local.strategy.comm.device
        self.kernels = local.kernels
        self.seeds, self.units = device.put(device.keep(seeds)), device.put(units)
        m = self.m = local.num_own

        # set the diagonal apart: it is never drawn
        with device.in_memory():
            self.diagonal = np.zeros(m, local.values.dtype)
            self.has_diagonal = np.zeros(m, bool)
        columns, values = np.empty_like(local.columns), np.empty_like(local.values)
        indptr = submatrix_kernels.split_diagonal(
            local.indptr, local.columns, local.values, self.diagonal, self.has_diagonal, columns,
            values)
        columns, values = columns[:indptr[-1]], values[:indptr[-1]]

        # entries of a row in the order of ORIGINAL numbers, places counted over all
        # ranks
        order = np.argsort(local.column_vertex, kind="stable")
        narrow = index_dtype(max(columns.size, order.size))  # SciPy widens no columns then
        renamed = inverse(order).astype(narrow)[columns]
        matrix = sp.csr_array((values, renamed, indptr.astype(narrow)),
                              shape=(indptr.size - 1, order.size))
        matrix.sort_indices()
        columns = order.astype(local.columns.dtype)[matrix.indices]
        self.local = replace(local, indptr=device.keep(indptr), columns=columns, values=matrix.data)
        self.diagonal, self.has_diagonal = map(device.put, (self.diagonal, self.has_diagonal))

        # places and degrees in whole rows, also of rows that other ranks hold parts of
        self.pushes = bool(comm.max([local.push.ghosts.size])[0])
        self.positions, self.degrees = np.empty(0, np.int64), np.diff(indptr)
        if self.pushes:
            self.positions, self.degrees = self._positions()
        self.longest = int(self.degrees.max(initial=0))
        self.positions = device.put(self.positions)
        self.degrees = device.put(device.keep(self.degrees))
        self.local = self.local.on_device()

        # work arrays: new numbers of columns, which of them were seen, which rows are
        # wanted
        with device.in_memory():
            self.new_number = device.xp.empty(local.column_vertex.size, np.int32)
            self.seen = device.xp.zeros(local.column_vertex.size, bool)
            self.wanted = device.xp.zeros(m, bool)
        self.assigned = None, None

    def _positions(self) -> tuple:
        """Return positions of stored entries in whole rows, and the rows' lengths.

        All ranks call this together.
        """
        local, m, comm = self.local, self.m, self.comm
        counts = np.diff(local.indptr)
        positions = np.arange(local.columns.size) - np.repeat(local.indptr[:-1], counts)
        _, (rows, columns) = local.remote_entries()
        pointers, vertex = lists_to_owners(local.push, rows - m, local.column_vertex[columns], comm)
        degrees = np.diff(local.indptr[:m + 1])
        np.add.at(degrees, local.push.send_rows, np.diff(pointers))

        # if other ranks also hold entries of rows, all are put in order
        shared = np.zeros(m, bool)
        shared[local.push.send_rows] = True
        shared_entries = np.flatnonzero(np.repeat(shared, np.diff(local.indptr[:m + 1])))
        rows = np.concatenate([np.searchsorted(local.indptr, shared_entries, side="right") - 1,
                               np.repeat(local.push.send_rows, np.diff(pointers))])
        vertices = np.concatenate([local.column_vertex[local.columns[shared_entries]], vertex])
        order = np.lexsort((vertices, rows))
        begins = run_offsets(degrees * shared)
        rank_in_row = np.empty(order.size, np.int64)
        rank_in_row[order] = np.arange(order.size) - begins[rows[order]]
        positions[shared_entries] = rank_in_row[:shared_entries.size]
        cuts = shared_entries.size + pointers[local.push.send_offsets]
        back = comm.alltoallv([rank_in_row[first:last] for first, last in pairwise(cuts.tolist())])
        positions[local.indptr[m]:] = np.concatenate(back)
        return positions, np.concatenate([degrees, to_holders(local.push, degrees, comm)])

    def batch(self, epoch: int, batch: int) -> Batch:
        """Return batch number `batch` of an epoch, counted from 0, as a Batch.

        All ranks call this together.
        """
        offsets, positions = self._assignment(epoch)
        rows = self.seeds[positions[offsets[batch]:offsets[batch + 1]]]
        return self.batch_of_rows(rows, epoch, self.sampler.share(batch))

    def batch_of_rows(self, rows: Array, key: int, share: float) -> Batch:
        """Return the Batch that computes some own rows, (r,) int64 increasing.

        All ranks call this together. `key` is an epoch or a step, which keys the draws; `share`
        is that of the Batch.
        """
        counters = self.comm.counters
        before, _ = counters.total(counters.phase)

        # draw from the last product to the first: each hop says which rows are read
        levels, steps = [rows], []
        for product in reversed(range(len(self.sampler.fan_outs))):
            steps.insert(0, self._sample_hop(rows, product, key))
            rows = steps[0].needed
            levels.insert(0, rows)

        if not self.nested:
            levels = [rows] * len(levels)
        maps = [self._map(step, *ends) for step, ends in zip(steps, pairwise(levels))]

        totals = self.comm.sum([each.size for each in levels])
        request_bytes = counters.total(counters.phase)[0] - before
        return Batch(maps, levels, totals.astype(int).tolist(), share, request_bytes)

    def _assignment(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self.assigned[0] != epoch:
            number = self.sampler.batch_of(self.units, epoch).astype(np.int32)
            self.assigned = epoch, self.kernels.by_batch(number, self.sampler.batches)
        return self.assigned[1]

    def _sample_hop(self, rows: np.ndarray, product: int, epoch: int) -> SampledHop:
        """Draw entries of own rows, (r,), and return a SampledHop.

        All ranks call this together.
        """
        local, m, device = self.local, self.m, self.device
        targets = self._targets(rows)
        key = key_of(self.sampler.seed, self.sampler.stream, epoch, product)
        lines = np.concatenate([rows, device.put(m + targets)])
        pointers, columns, values = self.kernels.sample_entries(
            *self._entries_of(lines), self.degrees, local.row_vertex, lines,
            self.sampler.fan_outs[product], key, self.longest)
        filled = np.diff(pointers[rows.size:]) > 0
        pointers = np.concatenate([pointers[:rows.size + 1], pointers[rows.size + 1:][filled]])
        targets = targets[device.get(filled)]

        read = self.kernels.distinct(columns, self.seen)
        own = int((read < m).sum())
        ghosts = device.get(read[own:]) - m
        sent, returned = self._ask(ghosts, targets)
        sent_rows = local.pull.send_rows[device.put(sent)]
        needed = self.kernels.distinct(np.concatenate([rows, read[:own], sent_rows]), self.seen)
        return SampledHop(rows, needed, (pointers, columns, values), ghosts, targets, sent,
                          returned)

    def _entries_of(self, lines: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the LocalMatrix.entries_of some rows.

        Columns, values, and positions in whole rows; these are empty if no other rank
        holds entries of the rows.
        """
        local = self.local
        if self.pushes:
            return local.entries_of(lines, local.columns, local.values, self.positions)
        return *local.entries_of(lines, local.columns, local.values), self.positions

    def _targets(self, rows: np.ndarray) -> np.ndarray:
        """Send row numbers to the ranks with nonzeros in these rows.

        Return the received rows, whose nonzeros are summed here.
        """
        if not self.pushes:
            return np.empty(0, np.int64)
        push = self.local.push
        self.wanted[rows] = True
        wanted = self.device.get(self.wanted[push.send_rows])
        self.wanted[rows] = False
        found = self.comm.alltoallv([np.flatnonzero(wanted[first:last]) for first, last
                                     in pairwise(push.send_offsets.tolist())])
        begins = push.recv_offsets.tolist()
        return np.concatenate([begin + each for begin, each in zip(begins, found)])

    def _ask(self, ghosts: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Send owners the list of their rows that are read and summed here.

        Return the lists received. `ghosts` and `targets` are increasing positions among
        the ghosts of the two plans. The lists returned are positions among the rows
        that each plan sends.
        """
        plans = (self.local.pull, ghosts), (self.local.push, targets)

        # for each rank its ghosts and targets, behind their number
        requests = []
        for other in range(self.comm.size):
            parts = []
            for plan, positions in plans:
                begin, end = plan.recv_offsets[other:other + 2]
                part = positions[np.searchsorted(positions, begin):np.searchsorted(positions, end)]
                parts.append(part - begin)
            count = [parts[0].size] * self.pushes
            requests.append(np.concatenate([np.array(count, np.int64), *parts]))

        # split the received lists
        found = self.comm.alltoallv(requests)
        sent, returned = [], []
        for other, part in enumerate(found):
            count = part[0] if self.pushes else part.size
            part = part[int(self.pushes):]
            sent.append(self.local.pull.send_offsets[other] + part[:count])
            returned.append(self.local.push.send_offsets[other] + part[count:])
        return np.concatenate(sent), np.concatenate(returned)

    def _map(self, hop: SampledHop, rows_in: np.ndarray, rows_out: np.ndarray) -> RowStrategy:
        """Return the map of a SampledHop between own rows of two levels."""
        local, m, device = self.local, self.m, self.device
        arange = device.xp.arange
        pointers, columns, values = self.kernels.with_diagonal(
            *hop.cut, hop.rows, self.diagonal, self.has_diagonal)

        if rows_out.size > hop.rows.size:  # other rows of the level get no entries
            counts = device.xp.zeros(1 + rows_out.size + hop.targets.size, np.int64)
            counts[1 + np.searchsorted(rows_out, hop.rows)] = np.diff(pointers)[:hop.rows.size]
            counts[1 + rows_out.size:] = np.diff(pointers)[hop.rows.size:]
            pointers = np.cumsum(counts)

        # number the columns that are left
        self.new_number[rows_in] = arange(rows_in.size)
        self.new_number[m + device.put(hop.ghosts)] = rows_in.size + arange(hop.ghosts.size)
        self.kernels.renumber(columns, self.new_number)
        self.kernels.sort_rows(pointers, columns, values)

        pull = plan_of(local.pull, hop.ghosts, hop.sent, self.new_number, rows_in.size, device)
        self.new_number[rows_out] = arange(rows_out.size)
        push = plan_of(local.push, hop.targets, hop.returned, self.new_number, rows_out.size,
                       device)

        shape = rows_out.size, rows_in.size
        blocks = local.blocks((pointers, columns, values), shape, pull, push)
        return local.strategy.submap(blocks, (pull, push), shape, symmetric=False)

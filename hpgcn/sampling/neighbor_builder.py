"""Batches of some training vertices and of neighbors drawn for them, level by level.

Draws are keyed, so each rank computes them for the entries that it stores. For each
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
    from hpgcn.sampling.local_matrix import LocalMatrix
    from hpgcn.sampling.sampler import Sampler
    from hpgcn.strategies.rows import RowStrategy


class SampledHop(NamedTuple):
    """Entries of this rank drawn for a product with A; positions as in HaloPlans."""

    rows: np.ndarray  # (r,) own, of the result
    needed: np.ndarray  # (r',) own rows to multiply, increasing: `rows` and their own neighbors
    cut: tuple  # row pointers (own rows, then those of other ranks), columns and values
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
        device = local.strategy.comm.device
        self.seeds, self.units = device.keep(seeds), units
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

        # places and degrees in whole rows, also of rows that other ranks hold parts of
        self.pushes = bool(comm.max([local.push.ghosts.size])[0])
        self.positions, self.degrees = np.empty(0, np.int64), np.diff(indptr)
        if self.pushes:
            self.positions, self.degrees = self._positions()
        self.degrees = device.keep(self.degrees)
        self.longest = int(self.degrees.max(initial=0))

        # work arrays: new numbers of columns, which of them were seen, which rows are
        # wanted
        with device.in_memory():
            self.new_number = np.empty(local.column_vertex.size, np.int32)
            self.seen = np.zeros(local.column_vertex.size, bool)
            self.wanted = np.zeros(m, bool)
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
        counters = self.comm.counters
        before, _ = counters.total(counters.phase)

        # draw from the last product to the first: each hop says which rows are read
        offsets, positions = self._assignment(epoch)
        rows = self.seeds[positions[offsets[batch]:offsets[batch + 1]]]
        levels, steps = [rows], []
        for product in reversed(range(len(self.sampler.fan_outs))):
            steps.insert(0, self._sample_hop(rows, product, epoch))
            rows = steps[0].needed
            levels.insert(0, rows)

        if not self.nested:
            levels = [rows] * len(levels)
        maps = [self._map(step, *ends) for step, ends in zip(steps, pairwise(levels))]

        totals = self.comm.sum([each.size for each in levels])
        request_bytes = counters.total(counters.phase)[0] - before
        return Batch(maps, levels, totals.astype(int).tolist(), self.sampler.share(batch),
                     request_bytes)

    def _assignment(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self.assigned[0] != epoch:
            number = self.sampler.batch_of(self.units, epoch).astype(np.int32)
            self.assigned = epoch, submatrix_kernels.by_batch(number, self.sampler.batches)
        return self.assigned[1]

    def _sample_hop(self, rows: np.ndarray, product: int, epoch: int) -> SampledHop:
        """Draw entries of own rows, (r,), and return a SampledHop.

        All ranks call this together.
        """
        local, m = self.local, self.m
        targets = self._targets(rows)
        key = key_of(self.sampler.seed, self.sampler.stream, epoch, product)
        lines = np.concatenate([rows, m + targets])
        pointers, columns, values = submatrix_kernels.sample_entries(
            *self._entries_of(lines), self.degrees, local.row_vertex, lines,
            self.sampler.fan_outs[product], key, self.longest)
        filled = np.diff(pointers[rows.size:]) > 0
        pointers = np.concatenate([pointers[:rows.size + 1], pointers[rows.size + 1:][filled]])
        targets = targets[filled]

        read = np.sort(submatrix_kernels.distinct(columns, self.seen))
        own, ghosts = np.split(read, [np.searchsorted(read, m)])
        ghosts = ghosts - m
        sent, returned = self._ask(ghosts, targets)
        sent_rows = local.pull.send_rows[sent]
        needed = submatrix_kernels.distinct(np.concatenate([rows, own, sent_rows]), self.seen)
        return SampledHop(rows, np.sort(needed), (pointers, columns, values), ghosts, targets, sent,
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
        wanted = self.wanted[push.send_rows]
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
        local, m = self.local, self.m
        pointers, columns, values = submatrix_kernels.with_diagonal(
            *hop.cut, hop.rows, self.diagonal, self.has_diagonal)

        if rows_out.size > hop.rows.size:  # other rows of the level get no entries
            counts = np.zeros(rows_out.size + hop.targets.size, np.int64)
            counts[np.searchsorted(rows_out, hop.rows)] = np.diff(pointers)[:hop.rows.size]
            counts[rows_out.size:] = np.diff(pointers)[hop.rows.size:]
            pointers = run_offsets(counts)

        # number the columns that are left
        self.new_number[rows_in] = np.arange(rows_in.size)
        self.new_number[m + hop.ghosts] = rows_in.size + np.arange(hop.ghosts.size)
        submatrix_kernels.renumber(columns, self.new_number)
        submatrix_kernels.sort_rows(pointers, columns, values)

        pull = plan_of(local.pull, hop.ghosts, hop.sent, self.new_number, rows_in.size)
        self.new_number[rows_out] = np.arange(rows_out.size)
        push = plan_of(local.push, hop.targets, hop.returned, self.new_number, rows_out.size)

        shape = rows_out.size, rows_in.size
        blocks = local.blocks((pointers, columns, values), shape, pull, push)
        return local.strategy.submap(blocks, (pull, push), shape, symmetric=False)

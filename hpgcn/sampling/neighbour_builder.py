"""Batches of some training vertices and of neighbours drawn for them, level by level.

Which entries of a row are drawn, any rank that holds some of them says for itself. Which rows are
needed it asks of others: of each product with A, owners tell who holds nonzeros of rows that they
need, where there is anybody, and are told which of their rows these read.
"""
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import index_dtype
from hpgcn.parallel.csr import inverse
from hpgcn.sampling import submatrix_kernels
from hpgcn.sampling.batch import Batch
from hpgcn.sampling.keyed_draws import key_of
from hpgcn.sampling.local_matrix import lists_to_owners, plan_of, to_holders


class SampledHop(NamedTuple):
    """Entries drawn for a product with A, as a rank holds them; places as of HaloPlans."""

    rows: np.ndarray  # (r,) own, of the result
    needed: np.ndarray  # (r',) own, that are multiplied: those and what is read of them, increasing
    cut: tuple  # row pointers of own rows, then of others', columns and values
    ghosts: np.ndarray  # that are read
    targets: np.ndarray  # rows of others that are summed
    sent: np.ndarray  # rows to send
    returned: np.ndarray  # rows whose sums come back


class NeighbourBatchBuilder:
    """Makes the batches of a sampler that draws neighbours.

    Parameters
    ----------
    held : LocalMatrix
    sampler : hpgcn.sampling.NeighbourSampler
    seeds : (s,) int64
        Own rows of training vertices.
    units : (s,) int64
        Their places among the training vertices of all ranks.
    comm : hpgcn.comm.SerialComm or MpiComm
        Over which ranks ask each other; all of them make it, and its batches, together.
    nested : bool
        Rows of each level are those that are needed; else all levels have those of the first.
    """

    def __init__(self, held, sampler, seeds, units, comm, *, nested=True):
        self.sampler = sampler
        self.comm = comm
        self.nested = nested
        self.seeds, self.units = seeds, units
        m = self.m = held.num_own

        # set the diagonal apart: it is never drawn
        self.diagonal = np.zeros(m, held.values.dtype)
        self.has_diagonal = np.zeros(m, bool)
        indptr, columns, values = submatrix_kernels.part_diagonal(
            held.indptr, held.columns, held.values, self.diagonal, self.has_diagonal)

        # entries of a row in the order of ORIGINAL numbers, places counted over all ranks
        order = np.argsort(held.column_vertex, kind="stable")
        narrow = index_dtype(max(columns.size, order.size))  # SciPy widens no columns then
        renamed = inverse(order).astype(narrow)[columns]
        matrix = sp.csr_array((values, renamed, indptr.astype(narrow)),
                              shape=(indptr.size - 1, order.size))
        matrix.sort_indices()
        columns = order.astype(held.columns.dtype)[matrix.indices]
        self.held = replace(held, indptr=indptr, columns=columns, values=matrix.data)

        # places and degrees in whole rows, also of rows that other ranks hold parts of
        self.pushes = bool(comm.max([held.push.ghosts.size])[0])
        self.places, self.degrees = np.empty(0, np.int64), np.diff(indptr)
        if self.pushes:
            self.places, self.degrees = self._places()
        self.longest = int(self.degrees.max(initial=0))

        # work arrays: new numbers of columns, which of them were seen, which rows are wanted
        self.place = np.empty(held.column_vertex.size, np.int32)
        self.seen = np.zeros(held.column_vertex.size, bool)
        self.wanted = np.zeros(m, bool)
        self.dealt = None, None

    def _places(self):
        """Return where entries stand in whole rows, and how many these hold; all ranks call it."""
        held, m, comm = self.held, self.m, self.comm
        places = np.arange(held.columns.size) - np.repeat(held.indptr[:-1], np.diff(held.indptr))
        _, (rows, columns) = held.of_others()
        pointers, vertex = lists_to_owners(held.push, rows - m, held.column_vertex[columns], comm)
        degrees = np.diff(held.indptr[:m + 1])
        np.add.at(degrees, held.push.send_rows, np.diff(pointers))

        # of rows that others hold entries of, too, all are put in order
        shared = np.zeros(m, bool)
        shared[held.push.send_rows] = True
        mine = np.flatnonzero(np.repeat(shared, np.diff(held.indptr[:m + 1])))
        rows = np.concatenate([np.searchsorted(held.indptr, mine, side="right") - 1,
                               np.repeat(held.push.send_rows, np.diff(pointers))])
        order = np.lexsort((np.concatenate([held.column_vertex[held.columns[mine]], vertex]), rows))
        begins = run_offsets(degrees * shared)
        place = np.empty(order.size, np.int64)
        place[order] = np.arange(order.size) - begins[rows[order]]
        places[mine] = place[:mine.size]
        cuts = mine.size + pointers[held.push.send_offsets]
        back = comm.alltoallv([place[first:last] for first, last in pairwise(cuts.tolist())])
        places[held.indptr[m]:] = np.concatenate(back)
        return places, np.concatenate([degrees, to_holders(held.push, degrees, comm)])

    def batch(self, epoch, batch):
        """Return a Batch of an epoch, counted from 0; all ranks call this together."""
        counters = self.comm.counters
        before, _ = counters.total(counters.phase)

        # draw from the last product to the first: each draw says which rows are read
        offsets, places = self._deal(epoch)
        rows = self.seeds[places[offsets[batch]:offsets[batch + 1]]]
        levels, steps = [rows], []
        for product in reversed(range(len(self.sampler.fan_outs))):
            steps.insert(0, self._draw(rows, product, epoch))
            rows = steps[0].needed
            levels.insert(0, rows)

        if not self.nested:
            levels = [rows] * len(levels)
        maps = [self._map(step, *ends) for step, ends in zip(steps, pairwise(levels))]

        totals = self.comm.sum([each.size for each in levels])
        request_bytes = counters.total(counters.phase)[0] - before
        return Batch(maps, levels, totals.astype(int).tolist(), self.sampler.share(batch),
                     request_bytes)

    def _deal(self, epoch):
        if self.dealt[0] != epoch:
            number = self.sampler.batch_of(self.units, epoch).astype(np.int32)
            self.dealt = epoch, submatrix_kernels.by_batch(number, self.sampler.batches)
        return self.dealt[1]

    def _draw(self, rows, product, epoch):
        """Draw entries of some rows, (r,) own; all ranks call this together, a SampledHop each."""
        held, m = self.held, self.m
        targets = self._targets(rows)
        key = key_of(self.sampler.seed, self.sampler.stream, epoch, product)
        pointers, columns, values = submatrix_kernels.draw(
            held.indptr, held.columns, held.values, self.places, self.degrees, held.row_vertex,
            np.concatenate([rows, m + targets]), self.sampler.fan_outs[product], key, self.longest)
        filled = np.diff(pointers[rows.size:]) > 0
        pointers = np.concatenate([pointers[:rows.size + 1], pointers[rows.size + 1:][filled]])
        targets = targets[filled]

        read = np.sort(submatrix_kernels.distinct(columns, self.seen))
        own, ghosts = np.split(read, [np.searchsorted(read, m)])
        ghosts = ghosts - m
        sent, returned = self._ask(ghosts, targets)
        asked = held.pull.send_rows[sent]
        needed = submatrix_kernels.distinct(np.concatenate([rows, own, asked]), self.seen)
        return SampledHop(rows, np.sort(needed), (pointers, columns, values), ghosts, targets, sent,
                          returned)

    def _targets(self, rows):
        """Tell who holds nonzeros of own rows; return the rows of others that are asked of here."""
        if not self.pushes:
            return np.empty(0, np.int64)
        push = self.held.push
        self.wanted[rows] = True
        wanted = self.wanted[push.send_rows]
        self.wanted[rows] = False
        found = self.comm.alltoallv([np.flatnonzero(wanted[first:last]) for first, last
                                     in pairwise(push.send_offsets.tolist())])
        begins = push.recv_offsets.tolist()
        return np.concatenate([begin + each for begin, each in zip(begins, found)])

    def _ask(self, ghosts, targets):
        """Tell owners which of their rows are read and summed here; return what others say.

        Both are increasing places among the ghosts of a plan; what is returned are places among the
        rows that it sends.
        """
        plans = (self.held.pull, ghosts), (self.held.push, targets)

        # for each rank its ghosts and targets, behind their number
        asked = []
        for other in range(self.comm.size):
            parts = []
            for plan, places in plans:
                begin, end = plan.recv_offsets[other:other + 2]
                part = places[np.searchsorted(places, begin):np.searchsorted(places, end)]
                parts.append(part - begin)
            count = [parts[0].size] * self.pushes
            asked.append(np.concatenate([np.array(count, np.int64), *parts]))

        # take the answers apart
        found = self.comm.alltoallv(asked)
        sent, returned = [], []
        for other, part in enumerate(found):
            count = part[0] if self.pushes else part.size
            part = part[int(self.pushes):]
            sent.append(self.held.pull.send_offsets[other] + part[:count])
            returned.append(self.held.push.send_offsets[other] + part[count:])
        return np.concatenate(sent), np.concatenate(returned)

    def _map(self, draw, rows_in, rows_out):
        """Return the map of a SampledHop between own rows of two levels."""
        held, m = self.held, self.m
        pointers, columns, values = submatrix_kernels.with_diagonal(
            *draw.cut, draw.rows, self.diagonal, self.has_diagonal)

        if rows_out.size > draw.rows.size:  # the others get no entries
            counts = np.zeros(rows_out.size + draw.targets.size, np.int64)
            counts[np.searchsorted(rows_out, draw.rows)] = np.diff(pointers)[:draw.rows.size]
            counts[rows_out.size:] = np.diff(pointers)[draw.rows.size:]
            pointers = run_offsets(counts)

        # number the columns that are left
        self.place[rows_in] = np.arange(rows_in.size)
        self.place[m + draw.ghosts] = rows_in.size + np.arange(draw.ghosts.size)
        submatrix_kernels.renumber(columns, self.place)
        submatrix_kernels.sort_rows(pointers, columns, values)

        pull = plan_of(held.pull, draw.ghosts, draw.sent, self.place, rows_in.size)
        self.place[rows_out] = np.arange(rows_out.size)
        push = plan_of(held.push, draw.targets, draw.returned, self.place, rows_out.size)

        shape = rows_out.size, rows_in.size
        blocks = held.blocks((pointers, columns, values), shape, pull, push)
        return held.strategy.submap(blocks, (pull, push), shape, symmetric=False)

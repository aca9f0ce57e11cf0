"""What a batch is expected to send, from what each rank holds of a graph that no rank holds whole.

The formulas are those of hpgcn.sampling.expectation; all ranks call these functions together.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpgcn.sampling.expectation import any_of, drawn, expected_rows, some_drawn
from hpgcn.sampling.local_matrix import from_holders, to_holders


class Expected(NamedTuple):
    """Means of a batch, over all ranks, of one product with A."""

    pulled: float  # rows
    pushed: float  # partial sums
    pulling: float  # pairs of ranks between which some are pulled
    pushing: float
    talking: float  # between which either goes, the same way


def of_induced(maker, comm):
    """Return the Expected of each product of a hpgcn.sampling.InducedBatchBuilder, a list."""
    sampler = maker.sampler
    plans = maker.held.pull, maker.held.push

    rows, some = [], []

    for plan, (pointers, witnesses) in zip(plans, maker.lists):
        place = np.repeat(np.arange(plan.send_rows.size), np.diff(pointers))
        unit, theirs = maker.units[1][plan.send_rows], maker.unit[witnesses]
        others = np.repeat(np.arange(comm.size), np.diff(plan.send_offsets))
        chances = _chances(place, theirs, unit, sampler)
        rows.append(chances.sum())
        if sampler.samples_parts:  # all rows of a part that some other part reads go together
            keys, group = np.unique(others * sampler.units + unit, return_inverse=True)
            chances = _chances(group[place], theirs, keys % sampler.units, sampler)
            others = keys // sampler.units
        some.append(any_of(others, chances, comm.size))
    return [_summed(comm, rows, some)] * maker.products


def changes(maker, comm):
    """Return what each unit may change by going to another batch: two (units,).

    maker: an InducedBatchBuilder. Rows that are pulled, and sums that are pushed, of a product;
    over all ranks.
    """
    units = maker.sampler.units
    found = []
    for plan, (pointers, witnesses) in zip((maker.held.pull, maker.held.push), maker.lists):
        rows = np.arange(plan.send_rows.size)
        place = np.repeat(rows, np.diff(pointers))
        keys = np.unique(np.concatenate([place * units + maker.unit[witnesses],
                                         rows * units + maker.units[1][plan.send_rows]]))
        found.append(np.bincount(keys % units, minlength=units).astype(np.float64))
        comm.allreduce(found[-1], "plan")
    return found


def _chances(place, theirs, unit, sampler):
    """Chance of each pair, (s,), to matter in a batch; theirs: units that decide, by its place."""
    own = theirs == unit[place]
    keys = np.unique(place[~own] * sampler.units + theirs[~own])
    others = np.bincount(keys // sampler.units, minlength=unit.size)
    mine = np.bincount(place[own], minlength=unit.size) > 0
    return expected_rows(others, sampler.units, sampler.batches, mine) / sampler.batches


def of_drawn(maker, comm):
    """Return the Expected of each product of a NeighbourBatchBuilder, a list: a mean field."""
    held, sampler, m = maker.held, maker.sampler, maker.m
    pull, push = held.pull, held.push

    rows = np.repeat(np.arange(held.indptr.size - 1), np.diff(held.indptr))
    counts = np.diff(held.indptr[m:])
    needed = np.zeros(m)
    needed[maker.seeds] = 1 / sampler.batches

    # from the last product to the first
    found = []
    for fan_out in reversed(sampler.fan_outs):
        everywhere = np.concatenate([needed, to_holders(push, needed, comm)])
        entry = everywhere[rows] * drawn(maker.degrees[rows], fan_out)
        read = any_of(held.columns, entry, held.column_vertex.size)
        sums = everywhere[m:] * some_drawn(maker.degrees[m:], counts, fan_out)
        sources = [np.repeat(np.arange(comm.size), np.diff(plan.recv_offsets))
                   for plan in (pull, push)]
        some = [any_of(source, chance, comm.size)
                for source, chance in zip(sources, (read[m:], sums))]
        found.insert(0, _summed(comm, [read[m:].sum(), sums.sum()], some))

        # rows that are read are needed in the product before
        with np.errstate(divide="ignore"):
            kept = np.log1p(-needed) + np.log1p(-read[:m])
            np.add.at(kept, pull.send_rows, np.log1p(-from_holders(pull, read[m:], comm)))
        needed = -np.expm1(kept)

    return found


def _summed(comm, rows, some):
    """Sum over ranks; some: for each other rank, the chance of a message of rows, and of sums.

    Both are told at the same end, of the owner or of the holder: one is there, the other back.
    """
    table = np.array(comm.allgather([each.tolist() for each in some]))  # (P, 2, P)
    pulled, pushed = table[:, 0], table[:, 1].T
    either = 1 - (1 - pulled) * (1 - pushed)
    totals = comm.sum(rows)
    return Expected(*totals.tolist(), float(pulled.sum()), float(pushed.sum()),
                    float(either.sum()))

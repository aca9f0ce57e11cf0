"""Expected bytes and messages of a batch, from the local part of a graph on each rank.

The formulas are those of hpgcn.sampling.expectation; all ranks call these functions
together.
"""
from typing import NamedTuple

import numpy as np

from hpgcn.sampling.expectation import any_entry_chance, any_of, entry_chance, expected_rows
from hpgcn.sampling.local_matrix import from_holders, to_holders


class Expected(NamedTuple):
    """Means of a batch, over all ranks, of one product with A."""

    pulled: float  # rows
    pushed: float  # partial sums
    pulling: float  # pairs of ranks between which some are pulled
    pushing: float
    talking: float  # between which either goes, the same way


def expect_induced(builder, comm):
    """Return the Expected of each product of a hpgcn.sampling.InducedBatchBuilder, a list."""
    sampler = builder.sampler
    plans = builder.local.pull, builder.local.push

    rows, some = [], []

    for plan, (pointers, witnesses) in zip(plans, builder.lists):
        place = np.repeat(np.arange(plan.send_rows.size), np.diff(pointers))
        unit, theirs = builder.units[1][plan.send_rows], builder.unit[witnesses]
        others = np.repeat(np.arange(comm.size), np.diff(plan.send_offsets))
        chances = _chances(place, theirs, unit, sampler)
        rows.append(chances.sum())
        if sampler.samples_parts:  # all rows of a part that some other part reads go together
            keys, group = np.unique(others * sampler.units + unit, return_inverse=True)
            chances = _chances(group[place], theirs, keys % sampler.units, sampler)
            others = keys // sampler.units
        some.append(any_of(others, chances, comm.size))
    return [_summed(comm, rows, some)] * builder.products


def changes(builder, comm):
    """Return what each unit may change by going to another batch: two (units,).

    builder: an InducedBatchBuilder. Rows that are pulled, and sums that are pushed, of
    a product; over all ranks.
    """
    units = builder.sampler.units
    found = []
    for plan, (pointers, witnesses) in zip((builder.local.pull, builder.local.push), builder.lists):
        rows = np.arange(plan.send_rows.size)
        place = np.repeat(rows, np.diff(pointers))
        keys = np.unique(np.concatenate([place * units + builder.unit[witnesses],
                                         rows * units + builder.units[1][plan.send_rows]]))
        found.append(np.bincount(keys % units, minlength=units).astype(np.float64))
        comm.allreduce(found[-1], "plan")
    return found


def _chances(place, theirs, unit, sampler):
    """Return the chance of each pair, (s,), to matter in a batch; theirs: deciding units, by
    position.
    """
    own = theirs == unit[place]
    keys = np.unique(place[~own] * sampler.units + theirs[~own])
    others = np.bincount(keys // sampler.units, minlength=unit.size)
    mine = np.bincount(place[own], minlength=unit.size) > 0
    return expected_rows(others, sampler.units, sampler.batches, mine) / sampler.batches


def expect_neighbours(builder, comm):
    """Return the Expected of each product of a NeighbourBatchBuilder, a list: a mean field."""
    local, sampler, m = builder.local, builder.sampler, builder.m
    pull, push = local.pull, local.push

    rows = np.repeat(np.arange(local.indptr.size - 1), np.diff(local.indptr))
    counts = np.diff(local.indptr[m:])
    needed = np.zeros(m)
    needed[builder.seeds] = 1 / sampler.batches

    # from the last product to the first
    found = []
    for fan_out in reversed(sampler.fan_outs):
        everywhere = np.concatenate([needed, to_holders(push, needed, comm)])
        entry = everywhere[rows] * entry_chance(builder.degrees[rows], fan_out)
        read = any_of(local.columns, entry, local.column_vertex.size)
        sums = everywhere[m:] * any_entry_chance(builder.degrees[m:], counts, fan_out)
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

    Both counts are for the same end, of the owner or of the holder: one as it is, the
    other transposed.
    """
    table = np.array(comm.allgather([each.tolist() for each in some]))  # (P, 2, P)
    pulled, pushed = table[:, 0], table[:, 1].T
    either = 1 - (1 - pulled) * (1 - pushed)
    totals = comm.sum(rows)
    return Expected(*totals.tolist(), float(pulled.sum()), float(pushed.sum()),
                    float(either.sum()))

"""Count the pinned memory of messages between ranks that take turns on GPUs.

Ranks send in rounds, one after the other. Before it sends, a rank takes what was sent to it in
the round before. Rows of ranks before it may be there in the same round. A rank of another
process may be a round ahead, or MPI may not have sent its messages yet.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.planning.counts.disk_traffic import taken_at_once, whole_products
from hpgcn.runtime.disk.page_cache import whole_pages


@dataclass
class Round:
    """Messages that ranks send in one round: bytes by reader and source, (P, P)."""

    later: np.ndarray  # taken in the next round
    soon: np.ndarray  # taken in the same round from ranks before, else in the next one
    shared: np.ndarray  # (P,) of one that all other ranks take, from each rank

    @property
    def paired(self):
        """Bytes of messages for one rank each."""
        return self.later + self.soon


def pinned_messages(footprint, strategy, gpus):
    """Return the most bytes of messages in homes at a time, (gpus,), in whole pages."""
    most = np.zeros(gpus, np.int64)
    ranks = footprint.rows.size
    nothing = np.zeros((ranks, ranks), np.int64)
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        before = Round(nothing, nothing, nothing[0])
        for product in whole_products(footprint, number):
            for each in _rounds(plans[product.layer], product, footprint, strategy, number == 0):
                most = np.maximum(most, [_held(before, each, own) for own in np.split(
                    np.arange(ranks), gpus)])
                before = each
    return most


def _rounds(plan, product, footprint, strategy, training):
    """Yield the Rounds of a product: rows, then sums if it waits twice."""
    moves = plan.traffic.moves(product, footprint.spec.row_itemsize)
    waits = strategy.waits(product)
    pulls = [place for place, (transfer, _, pushed) in enumerate(moves)
             if transfer.largest and not pushed]
    cut = pulls[-1] + 1 if pulls and waits > 1 else len(moves)
    for part in moves[:cut], moves[cut:]:
        later, soon = np.zeros((2, plan.num_ranks, plan.num_ranks), np.int64)
        shared = np.zeros(plan.num_ranks, np.int64)
        for transfer, nbytes, pushed in part:
            nbytes //= 1 if training or not (pushed and product.heads) else 2
            sizes, once = transfer.spooled(nbytes, 0, pushed=pushed, rule=_sizes) or (0, False)
            at_once = taken_at_once(transfer, plan.num_ranks, bool(pulls), waits, pushed)
            if once:
                shared += sizes.max(0)
            elif at_once.all():
                soon += sizes
            else:
                later += sizes
        if part:
            yield Round(later, soon, shared)


def _sizes(sizes, in_files, *, at_once=True, once=False):
    """Return the bytes of messages in whole pages, as a rule of hpgcn.parallel.counts."""
    return whole_pages(sizes), once


def _held(before, now, own):
    """Return the most bytes of two Rounds in the process of some ranks."""
    others = np.setdiff1d(np.arange(len(now.shared)), own)

    def away(each):  # to other processes, and from them
        return each.paired[np.ix_(others, own)].sum() + (
            each.paired[np.ix_(own, others)].sum() + own.size * each.shared[others].sum())

    here = np.ix_(own, own)
    lower = np.tri(own.size, k=-1, dtype=bool)  # from ranks before
    sent = np.cumsum(now.paired[here].sum(0) + now.shared[own])
    taken = np.cumsum((now.soon[here] * lower).sum(1))
    left = (before.paired[here] - before.soon[here] * lower).sum(1)
    left[:-1] += before.shared[own][1:]  # the last rank that takes it is the one before
    after = left.sum() - left.cumsum()  # for the ranks that have not sent yet
    held = (sent - np.append(0, taken[:-1]) + after).max()
    return held + away(before) + away(now) + before.shared[own].sum() * bool(others.size)

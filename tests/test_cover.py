"""Covers of matrix blocks, which are rows and columns that contain all nonzeros: size
and limits.
"""
import itertools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.pattern import Pattern
from hpgcn.parallel.vertex_covers import balanced_cover, trimmed_cover
from hpgcn.strategies import STRATEGIES, Product, RankGrid


def entries(n, k, density, seed):
    """Return a random pattern's nonzeros between ranks: vertex owners, rows, columns,
    and their owners.
    """
    rng = np.random.default_rng(seed)
    own = rng.integers(0, k, n)
    A = sp.random_array((n, n), density=density, rng=rng).tocoo()
    across = own[A.row] != own[A.col]
    rows, columns = A.row[across], A.col[across]
    return own, rows, columns, own[rows], own[columns]


def minimum_cover(rows, columns, reader, owner):
    """Return the cover of all blocks without a limit on ranks."""
    ranks = 1 + max(reader.max(), owner.max())
    return balanced_cover(rows, columns, reader, owner, np.zeros(ranks, np.int64), 2**62)


def passed(rows, columns, reader, owner, pushed):
    """Return the number of rows and partial sums that a cover sends."""
    sums = {*zip(rows[pushed], owner[pushed])}
    return len(sums) + len({*zip(columns[~pushed], reader[~pushed])})


def least(rows, columns):
    """Return the least number of rows and columns that contain all nonzeros, by trying all."""
    lines = [*(("row", i) for i in set(rows)), *(("column", j) for j in set(columns))]
    return next(count for count in range(len(lines) + 1)
                for chosen in itertools.combinations(lines, count)
                if all(("row", i) in chosen or ("column", j) in chosen
                       for i, j in zip(rows, columns)))


@pytest.mark.parametrize("seed", range(8))
def test_fewest_rows_and_sums(seed):
    _, rows, columns, reader, owner = entries(12, 3, 0.25, seed)
    pushed = minimum_cover(rows, columns, reader, owner)
    expected = 0
    for p, q in itertools.permutations(range(3), 2):
        block = (reader == p) & (owner == q)
        expected += least(rows[block].tolist(), columns[block].tolist())
    assert passed(rows, columns, reader, owner, pushed) == expected


@pytest.mark.parametrize("balance", [0, 0.05, 0.3, 9])
@pytest.mark.parametrize("seed, hub", [(0, 0), (1, 90), (2, 30)])
def test_no_rank_takes_on_more_than_the_limit_and_ranks_agree(balance, seed, hub):
    k, n = 5, 120
    own, rows, columns, reader, owner = entries(n, k, 0.06, seed)
    # a vertex that reads many rows: sending its sums is cheaper
    others = np.flatnonzero(own != own[0])[:hub]
    rows = np.concatenate([rows, np.zeros(others.size, int)])
    columns = np.concatenate([columns, others])
    reader, owner = own[rows], own[columns]
    loads = np.bincount(reader, minlength=k) + 3 * np.bincount(own, minlength=k)
    limit = int((1 + balance) * loads.sum() / k)
    pushed = balanced_cover(rows, columns, reader, owner, loads, limit)
    held = loads + np.bincount(owner[pushed], minlength=k) - np.bincount(reader[pushed],
                                                                         minlength=k)
    assert np.all(held <= np.maximum(limit, loads))
    everything = passed(rows, columns, reader, owner, np.zeros(rows.size, bool))
    fewest = passed(rows, columns, reader, owner, minimum_cover(rows, columns, reader, owner))
    assert fewest <= passed(rows, columns, reader, owner, pushed) <= everything
    if balance == 9:
        assert passed(rows, columns, reader, owner, pushed) == fewest < everything

    meeting = threading.Barrier(k)
    given = [None] * k
    apart = np.zeros(rows.size, bool)

    def rank(p):
        def total(array):
            given[p] = array
            meeting.wait()
            result = sum(given)
            meeting.wait()
            return result

        mine = np.flatnonzero(reader == p)
        block = (array[mine] for array in (rows, columns, reader, owner))
        apart[mine] = balanced_cover(*block, loads, limit, total)

    threads = [threading.Thread(target=rank, args=(p,)) for p in range(k)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(apart, pushed)


def heavy_tailed(seed):
    """Return a random CSR pattern with hubs and a full diagonal; directed if seed % 3 is 0."""
    rng = np.random.default_rng(seed)
    n, mean = int(rng.integers(60, 500)), int(rng.integers(4, 40))
    share = (1 + np.arange(n)) ** -rng.uniform(0.3, 1.1)
    ends = rng.choice(n, (2, n * mean // 2), p=share / share.sum())
    i, j = rng.permutation(n)[ends]
    if seed % 3:
        i, j = np.concatenate([i, j]), np.concatenate([j, i])
    A = sp.coo_array((np.ones(i.size, bool), (i, j)), shape=(n, n)) + sp.eye_array(n, dtype=bool)
    A = A.tocsr()
    A.sort_indices()
    return A, bool(seed % 3), rng


@pytest.mark.parametrize("seed", range(6))
def test_no_message_is_longer_than_that_of_p2p(seed):
    """No rank sends more with strategy cover than with p2p, for any balance and restriction."""
    A, symmetric, rng = heavy_tailed(seed)
    n = A.shape[0]
    pattern = Pattern(A, symmetric)
    out = rng.random(n) < rng.choice([0.02, 0.1, 0.4])
    into = A[out].sum(0) > 0
    cuts = [(None, None), (out, into), (into, A[into].sum(0) > 0), (out, rng.random(n) < 0.4)]
    fewer = 0
    for k, balance in ((2, 0), (3, 0.05), (8, 0.01), (8, 3)):
        layout = BlockLayout(np.arange(k + 1) * n // k, 1, 0)
        whole = {name: STRATEGIES[name].Plan.of(pattern, RankGrid((k,), layout, options))
                 for name, options in (("cover", {"balance": balance}), ("p2p", {}))}
        for rows in cuts:
            for backward in (False, True):
                product = Product(0, 1, False, backward)
                ours, theirs = (plan.restrict(*rows).traffic.counts(product, 1)
                                for plan in whole.values())
                assert np.all(ours[0] <= theirs[0]) and np.all(ours[1] <= theirs[1])
                fewer += (ours[0] < theirs[0]).any()
    assert fewer


def test_a_sum_that_alone_costs_more_is_given_up():
    """If a load limit forbids one of two partial sums over the same columns, both are given up."""
    rows, columns = np.repeat([0, 1], 10), np.tile(np.arange(2, 12), 2)
    reader, owner = np.zeros(20, int), np.ones(20, int)
    both = minimum_cover(rows, columns, reader, owner)
    assert both.all()
    loads = np.array([25, 25])
    for limit, summed in ((60, 20), (45, 20), (44, 0), (34, 0)):
        pushed = balanced_cover(rows, columns, reader, owner, loads, limit)
        assert pushed.sum() == summed
    assert not trimmed_cover(rows, columns, reader, owner, rows == 0).any()
    # a column that both read alone passes one row, instead of two sums
    one = columns == 2
    assert not trimmed_cover(rows[one], columns[one], reader[one], owner[one], both[one]).any()

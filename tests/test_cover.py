"""Covers of blocks: the fewest rows and sums by trying all, limits, ranks apart as together."""
import itertools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.parallel.cover import balanced_cover, minimum_cover


def entries(n, k, density, seed):
    """Nonzeros across ranks of a random pattern: rows, columns, and their owners."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, k, n)
    A = sp.random_array((n, n), density=density, rng=rng).tocoo()
    across = own[A.row] != own[A.col]
    rows, columns = A.row[across], A.col[across]
    return own, rows, columns, own[rows], own[columns]


def passed(rows, columns, reader, owner, pushed):
    """Rows and sums that pass between ranks."""
    sums = {*zip(rows[pushed], owner[pushed])}
    return len(sums) + len({*zip(columns[~pushed], reader[~pushed])})


def least(rows, columns):
    """Fewest rows and columns of a small block that hold all its nonzeros, by trying all."""
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
    # a vertex that reads many: its sums are few
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

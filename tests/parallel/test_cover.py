"""Sizes and limits of covers: rows and columns with all nonzeros of a block."""
import itertools
import threading

import cover_reference
import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all, assert_none

from hpgcn.kernels.host.threads import num_threads, set_num_threads, threshold
from hpgcn.parallel.covers.cover_balance import PushedGraph, select_cheapest
from hpgcn.parallel.covers.vertex_covers import balanced_cover, trimmed_cover
from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.pattern import BlockPattern, Pattern
from hpgcn.strategies import STRATEGIES, Product, RankGrid


def entries(n, k, density, seed):
    """Return a random pattern, csr_array (n, n), and the owners of its vertices."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, k, n)
    return sp.random_array((n, n), density=density, rng=rng).tocsr(), own


def between(matrix, own):
    """Return rows, columns and owners of the nonzeros between ranks.

    Return also their positions among all nonzeros.
    """
    rows, columns = matrix.tocoo().coords
    across = np.flatnonzero(own[rows] != own[columns])
    rows, columns = rows[across], columns[across]
    return rows, columns, own[rows], own[columns], across


def minimum_cover(matrix, own):
    """Return the cover of all blocks without a limit on ranks."""
    return balanced_cover(matrix, own, own, np.zeros(1 + own.max(), np.int64), 2**62)


def passed(matrix, own, pushed):
    """Return the number of rows and partial sums that a cover sends."""
    rows, columns, reader, owner, across = between(matrix, own)
    pushed = pushed[across]
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
    matrix, own = entries(12, 3, 0.25, seed)
    rows, columns, reader, owner, _ = between(matrix, own)
    expected = 0
    for p, q in itertools.permutations(range(3), 2):
        block = (reader == p) & (owner == q)
        expected += least(rows[block].tolist(), columns[block].tolist())
    assert passed(matrix, own, minimum_cover(matrix, own)) == expected


@pytest.mark.parametrize("balance", [0, 0.05, 0.3, 9])
@pytest.mark.parametrize("seed, hub", [(0, 0), (1, 90), (2, 30)])
def test_no_rank_takes_on_more_than_the_limit_and_ranks_agree(balance, seed, hub):
    k, n = 5, 120
    matrix, own = entries(n, k, 0.06, seed)
    # a vertex that reads many rows: sending its sums is cheaper
    others = np.flatnonzero(own != own[0])[:hub]
    matrix = (matrix + sp.csr_array((np.ones(others.size), (0 * others, others)), (n, n))).tocsr()
    *_, reader, owner, across = between(matrix, own)
    loads = np.bincount(reader, minlength=k) + 3 * np.bincount(own, minlength=k)
    limit = int((1 + balance) * loads.sum() / k)
    result = balanced_cover(matrix, own, own, loads, limit)
    pushed = result[across]
    assert pushed.sum() == result.sum()
    held = loads + np.bincount(owner[pushed], minlength=k) - np.bincount(reader[pushed],
                                                                         minlength=k)
    assert_all(held <= np.maximum(limit, loads))
    everything = passed(matrix, own, np.zeros(matrix.nnz, bool))
    fewest = passed(matrix, own, minimum_cover(matrix, own))
    assert fewest <= passed(matrix, own, result) <= everything
    if balance == 9:
        assert passed(matrix, own, result) == fewest < everything

    meeting = threading.Barrier(k)
    given = [None] * k
    apart = np.zeros(matrix.nnz, bool)

    def rank(p):
        def total(array):
            given[p] = array
            meeting.wait()
            result = sum(given)
            meeting.wait()
            return result

        mine = np.flatnonzero(own == p)
        apart[np.repeat(own == p, np.diff(matrix.indptr))] = balanced_cover(
            matrix[mine], own[mine], own, loads, limit, total)

    threads = [threading.Thread(target=rank, args=(p,)) for p in range(k)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(apart, result)


@pytest.mark.parametrize("seed", range(6))
def test_as_the_reference_with_any_number_of_threads(seed, monkeypatch):
    """The choice is that of NumPy and SciPy, in groups of readers of any size."""
    A, _, rng = heavy_tailed(seed)
    if seed % 2:
        A = A[:, :A.shape[0] // 2].tocsr()
    k = [2, 5, 12][seed // 2]
    owner = rng.integers(0, k, A.shape[1])
    reader = np.concatenate([owner, rng.integers(0, k, A.shape[0] - owner.size)])
    loads = np.bincount(reader, np.diff(A.indptr), k).astype(np.int64)
    limit = int((1 + rng.choice([0, 0.05, 0.3])) * A.nnz / k)
    expected = cover_reference.balanced_cover(A, reader, owner, loads, limit)
    given = expected & (rng.random(A.nnz) < 0.9)
    trimmed = cover_reference.trimmed_cover(A, reader, owner, given)

    count = num_threads()
    try:
        for threads, group in ((1, 1), (2, A.nnz // 2), (2, 1 << 24)):
            monkeypatch.setattr("hpgcn.parallel.covers.vertex_covers.GROUP", group)
            set_num_threads(threads)
            with threshold(0):
                found = balanced_cover(A, reader, owner, loads, limit)
                np.testing.assert_array_equal(found, expected)
                np.testing.assert_array_equal(trimmed_cover(A, reader, owner, given), trimmed)
    finally:
        set_num_threads(count)


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
    A.indptr, A.indices = (each.astype(np.int32) for each in (A.indptr, A.indices))  # as in files
    return A, bool(seed % 3), rng


@pytest.mark.parametrize("balance", [0, 0.05, 9])
@pytest.mark.parametrize("seed, k", [(0, 2), (1, 5), (2, 12), (3, 12), (4, 2)])
def test_covers_of_parts_are_counted_as_those_of_rows_in_the_order_of_runs(seed, k, balance):
    A, symmetric, rng = heavy_tailed(seed)
    part = rng.integers(0, k, A.shape[0]).astype(np.int16)
    part[part == 2] = 0  # an empty part
    order = np.argsort(part, kind="stable")
    runs = np.lexsort((rng.random(part.size), part))
    offsets = np.searchsorted(part[order], np.arange(k + 1))
    pattern = BlockPattern(Pattern(A, symmetric), part, order, offsets, lambda: runs)
    grid = RankGrid((k,), BlockLayout(offsets, 1, 0), {"balance": balance})
    plan, expected = (STRATEGIES["cover"].Plan.of(each, grid)
                      for each in (pattern, pattern.ordered))
    np.testing.assert_array_equal(plan.counts, expected.counts)
    np.testing.assert_array_equal(plan.held_entries, expected.held_entries)


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
                assert_all(ours[0] <= theirs[0])
                assert_all(ours[1] <= theirs[1])
                fewer += (ours[0] < theirs[0]).any()
    assert fewer


def test_a_sum_that_alone_costs_more_is_given_up():
    """If a load limit forbids one of two partial sums over the same columns, both are given up."""
    rows, columns = np.repeat([0, 1], 10), np.tile(np.arange(2, 12), 2)
    own = np.repeat([0, 1], [2, 10])
    matrix = sp.csr_array((np.ones(20), (rows, columns)), shape=(12, 12))
    both = minimum_cover(matrix, own)
    assert_all(both)
    loads = np.array([25, 25])
    for limit, summed in ((60, 20), (45, 20), (44, 0), (34, 0)):
        pushed = balanced_cover(matrix, own, own, loads, limit)
        assert pushed.sum() == summed
    assert_none(trimmed_cover(matrix, own, own, rows == 0))
    # a column that both read alone passes one row, instead of two sums
    one = matrix[:, :3]
    assert_none(trimmed_cover(one, own, own[:3], np.ones(2, bool)))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("prices", [1, 4, 1000])
def test_the_cheapest_sums_are_those_of_a_sort(prices, whole):
    """Few prices, so that rows and positions decide, also at the exact limits."""
    rng = np.random.default_rng(prices)
    n = 60
    price, row = rng.integers(0, prices, n) / 7, rng.integers(0, 9, n)
    size = rng.integers(1, 6, n)
    order = np.lexsort((np.arange(n), row, price))
    ends = np.cumsum(size[order])
    for most in range(-1, ends[-1] + 2):
        expected = np.count_nonzero((ends if whole else ends - size[order] + 1) <= most)
        chosen = select_cheapest(price, row, size, most, whole)
        np.testing.assert_array_equal(chosen, order[:expected])


def test_arrays_of_a_pushed_graph_have_one_layout():
    """Kernels would be compiled once more for arrays with gaps."""
    graph = PushedGraph.empty(np.ones((4, 3, 3), np.int64))
    assert graph.giver.size == 9
    assert all(array.flags.c_contiguous for array in graph)

"""Keyed random permutations are uniform and independent; an epoch draws each unit once."""
import numpy as np
import pytest
from arrays import assert_differ

from hpgcn.parallel.layout import split
from hpgcn.sampling import SAMPLERS, keyed_draws, parse, submatrix_kernels


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 1000, 4096, 4097, 70_001])
def test_places_are_a_bijection_that_each_number_knows_alone(n):
    numbers = np.arange(n)
    for seed in range(3):
        key = keyed_draws.key_of(seed, 1, 7)
        found = keyed_draws.permuted(numbers, n, key)
        np.testing.assert_array_equal(np.sort(found), numbers)
        some = np.random.default_rng(seed).integers(0, n, 5)
        np.testing.assert_array_equal(keyed_draws.permuted(some, n, key), found[some])
    if n > 10:
        other = keyed_draws.permuted(numbers, n, keyed_draws.key_of(2, 1, 8))
        assert_differ(found, other)


@pytest.mark.parametrize("n, least", [
    (5, 4096), (40, 4096), (130, 0), pytest.param(600, 0, marks=pytest.mark.long)])
def test_places_are_uniform_alone_and_in_pairs(monkeypatch, n, least):
    """Positions in keyed permutations, and pairs of them, are uniform for small n."""
    monkeypatch.setattr(keyed_draws, "SORTED", least)
    trials, first = 4000, n // 2
    counts, pairs = np.zeros((n, n)), np.zeros((n, n))
    for seed in range(trials):
        places = keyed_draws.permuted(np.arange(n), n, keyed_draws.key_of(seed, 3))
        counts[np.arange(n), places] += 1
        below = (places < first).astype(np.float32)
        pairs += np.outer(below, below)
    mean, freedom = trials / n, (n - 1) ** 2
    assert abs(((counts - mean) ** 2 / mean).sum() - freedom) < 6 * np.sqrt(2 * freedom)
    chance = first * (first - 1) / (n * (n - 1))
    apart = pairs[~np.eye(n, dtype=bool)]
    spread = ((apart - trials * chance) ** 2).mean() / (trials * chance * (1 - chance))
    assert spread == pytest.approx(1, abs=0.9 if n == 5 else 0.25)


@pytest.mark.parametrize("n, blocks", [(10, 3), (9, 3), (5, 5), (7, 1), (100, 7)])
def test_blocks_are_those_of_a_split(n, blocks):
    found = keyed_draws.block_of(np.arange(n), n, blocks)
    np.testing.assert_array_equal(found, np.repeat(np.arange(blocks), np.diff(split(n, blocks))))


@pytest.mark.parametrize("kind", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("units, size", [(103, 25), (10, 3), (50, 16)])
def test_an_epoch_deals_each_unit_once(kind, units, size):
    fan_outs = [] if kind.induced else [(2, 3)]
    sampler, again = (kind(units, size, 4, *fan_outs) for _ in range(2))
    numbers = np.arange(units)
    first, second = (sampler.batch_of(numbers, epoch) for epoch in (1, 2))
    np.testing.assert_array_equal(np.bincount(first), sampler.sizes())
    assert sampler.sizes().max() <= sampler.size
    assert_differ(first, second)
    assert sum(map(sampler.share, range(sampler.batches))) == pytest.approx(1)
    np.testing.assert_array_equal(first, again.batch_of(numbers, 1))


@pytest.mark.parametrize("kind", SAMPLERS.values(), ids=SAMPLERS)
def test_words_of_a_sampler_are_taken(kind):
    for words in (kind.example, kind.smallest):
        assert parse(f"{kind.name}:{words}").name == kind.name


def test_samplers_draw_apart():
    assert len({each.stream for each in SAMPLERS.values()}) == len(SAMPLERS)


def rows_of_a_matrix(degrees, seed=0):
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    columns = np.concatenate([np.sort(np.random.default_rng(seed).permutation(500)[:degree])
                              for degree in degrees]).astype(np.int32)
    return indptr, columns, np.arange(columns.size, dtype=np.float64) + 1


def draw(matrix, degrees, count, seed, places=None, vertex=None):
    places = np.empty(0, np.int64) if places is None else places
    vertex = np.arange(degrees.size) if vertex is None else vertex
    indptr, columns, values = matrix
    return submatrix_kernels.sample_entries(
        indptr[:-1], indptr[1:], columns, values, places, degrees, vertex, np.arange(degrees.size),
        count,
        keyed_draws.key_of(seed), int(degrees.max()))


def test_entries_are_drawn_uniformly_without_replacement():
    degrees = np.array([0, 1, 3, 4, 9, 30])
    matrix = rows_of_a_matrix(degrees)
    trials, count = 5000, 3
    drawn = np.zeros(matrix[1].size)
    pairs = np.zeros((9, 9))
    for seed in range(trials):
        pointers, columns, values = draw(matrix, degrees, count, seed)
        np.testing.assert_array_equal(np.diff(pointers), np.minimum(degrees, count))
        rows = np.repeat(np.arange(degrees.size), np.diff(pointers))
        factor = np.maximum(degrees / count, 1)[rows]
        places = np.rint(values / factor - 1).astype(int)
        np.testing.assert_array_equal(matrix[1][places], columns)
        assert np.unique(places).size == places.size
        drawn[places] += 1
        nine = places[rows == 4] - matrix[0][4]
        pairs[np.ix_(nine, nine)] += 1
    expected = np.repeat(np.minimum(count / np.maximum(degrees, 1), 1), degrees) * trials
    deviation = np.sqrt(np.maximum(expected * (1 - expected / trials), 1e-9))
    assert np.abs((drawn - expected) / np.maximum(deviation, 1)).max() < 4.5
    chance = 3 * 2 / (9 * 8)
    apart = pairs[~np.eye(9, dtype=bool)]
    assert np.abs(apart - trials * chance).max() < 4.5 * np.sqrt(trials * chance * (1 - chance))


def test_holders_of_parts_of_rows_draw_what_one_holder_draws():
    degrees = np.array([12, 40, 5])
    indptr, columns, values = rows_of_a_matrix(degrees)
    place = np.concatenate([np.arange(degree) for degree in degrees])
    owner = np.random.default_rng(1).integers(0, 3, columns.size)
    rows = np.repeat(np.arange(3), degrees)
    for seed in range(20):
        whole = draw((indptr, columns, values), degrees, 4, seed)
        found = []
        for rank in range(3):
            mine = owner == rank
            pointers = np.concatenate([[0], np.cumsum(np.bincount(rows[mine], minlength=3))])
            part = draw((pointers, columns[mine], values[mine]), degrees, 4, seed, place[mine])
            found += list(zip(np.repeat(np.arange(3), np.diff(part[0])), *part[1:]))
        expected = zip(np.repeat(np.arange(3), np.diff(whole[0])), *whole[1:])
        assert sorted(found) == sorted(expected)


def test_rows_of_any_length_are_sorted():
    """Equal columns keep the order of their values."""
    rng = np.random.default_rng(0)
    counts = [0, 1, 48, 64, 65, 66, 200, 3000]
    pointers = np.r_[0, np.cumsum(counts)]
    columns = rng.integers(0, 1500, pointers[-1], np.int32)
    columns[-200:-100] = 7
    columns[-3000:-2800] = np.arange(200)[::-1]
    values = rng.random(columns.size)
    row = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((columns, row))
    expected = columns[order], values[order]
    submatrix_kernels.sort_rows(pointers, columns, values)
    np.testing.assert_array_equal(columns, expected[0])
    np.testing.assert_array_equal(values, expected[1])

"""Negatives are keyed by seed, epoch and number; strict ones are no links."""
import numpy as np
import pytest

from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.sampling import LinkSampler
from hpgcn.sampling.negatives import (
    NEGATIVES,
    DrawnLinks,
    KnownLinks,
    SharedTargets,
    UniformTargets,
    check_link_settings,
    parse_negatives,
    turned,
)

N = 50
PAIRS = np.unique(np.random.default_rng(0).integers(0, N, (400, 2)), axis=0)
NUMBERS = np.arange(len(PAIRS))
NONE = KnownLinks(N)


@pytest.mark.parametrize("strict", [False, True])
def test_draws_do_not_depend_on_the_order_of_links(strict):
    sampler, known = UniformTargets(3, N, 7, strict), KnownLinks(N, PAIRS)
    whole = sampler.targets(PAIRS[:, 0], NUMBERS, known, 2)
    order = np.random.default_rng(1).permutation(len(PAIRS))[:100]
    np.testing.assert_array_equal(
        sampler.targets(PAIRS[order, 0], order, known, 2), whole[order])
    others = [UniformTargets(3, N, 8, strict).targets(PAIRS[:, 0], NUMBERS, known, 2),
              sampler.targets(PAIRS[:, 0], NUMBERS, known, 3),
              sampler.targets(PAIRS[:, 0], NUMBERS, known, 2, "val")]
    assert all((other != whole).mean() > 0.9 for other in others)
    links = {*map(tuple, PAIRS.tolist())}
    drawn = [*zip(np.repeat(PAIRS[:, 0], 3).tolist(), whole.ravel().tolist())]
    wrong = [pair for pair in drawn if pair in links or pair[0] == pair[1]]
    assert bool(wrong) != strict


def test_draws_are_uniform():
    drawn = UniformTargets(40, N, 0).targets(np.zeros(1000, int), np.arange(1000), NONE, 1)
    counts = np.bincount(drawn.ravel(), minlength=N)
    expected = 40_000 / N
    assert ((counts - expected)**2 / expected).sum() < 100  # chi-squared with 49 degrees


def test_shared_targets_are_those_of_all_sources():
    sampler = SharedTargets(6, N, 0)
    pairs = [DrawnLinks(PAIRS[part], NUMBERS[part], sampler, NONE).pairs(4)
             for part in (slice(10), slice(10, None))]
    np.testing.assert_array_equal(pairs[0][2], pairs[1][2])
    assert pairs[0][2].size == 6 and pairs[0][0].size == 10


def test_each_link_is_in_one_batch_of_an_epoch():
    links = DrawnLinks(PAIRS, NUMBERS, UniformTargets(2, N, 0), NONE)
    batches = LinkSampler(len(PAIRS), 60, 0, (-1,))
    numbers = [links.in_batch(batches, 3, batch).numbers for batch in range(batches.batches)]
    assert [each.size for each in numbers] == batches.sizes().tolist()
    np.testing.assert_array_equal(np.sort(np.concatenate(numbers)), NUMBERS)
    sources, _, _ = links.in_batch(batches, 3, 1).pairs(9)
    np.testing.assert_array_equal(sources[:numbers[1].size], PAIRS[numbers[1], 0])


@pytest.mark.parametrize("name, strict", [
    (name, strict) for name, kind in NEGATIVES.items() for strict in {False, kind.supports_strict}])
def test_registered_samplers_draw_by_numbers(name, strict):
    """Any rank gets the same negatives of a link, and strict ones are no links."""
    kind, known = NEGATIVES[name], KnownLinks(N, PAIRS)
    sampler = kind(3, N, 0, strict)
    drawn = sampler.targets(PAIRS[:, 0], NUMBERS, known, 5)
    assert drawn.dtype == np.int64 and 0 <= drawn.min() <= drawn.max() < N
    assert drawn.shape == ((3,) if kind.shared else (len(PAIRS), 3))
    order = NUMBERS[::-3]
    part = sampler.targets(PAIRS[order, 0], order, known, 5)
    np.testing.assert_array_equal(part, drawn if kind.shared else drawn[order])
    if strict:
        assert np.count_nonzero(known.holds(np.repeat(PAIRS[:, 0], 3), drawn.ravel())) == 0


def test_half_of_undirected_links_are_turned():
    found = turned(PAIRS, NUMBERS, 3)
    np.testing.assert_array_equal(np.sort(found), np.sort(PAIRS))
    assert 0.4 < (found != PAIRS)[:, 0].mean() < 0.6
    np.testing.assert_array_equal(turned(PAIRS[20:], NUMBERS[20:], 3), found[20:])


def test_a_vertex_with_all_links_has_no_negatives():
    known = KnownLinks(N, np.stack([np.zeros(N, int), np.arange(N)], axis=1))
    with pytest.raises(DataError, match="vertex 0 has links with nearly all vertices"):
        UniformTargets(1, N, 0, strict=True).targets(np.zeros(1, int), np.arange(1), known, 1)


@pytest.mark.parametrize("text, message", [
    ("unifrm:1", "expected uniform:K or shared:M; did you mean uniform"),
    ("uniform", "expected a number from 1"), ("shared:0", "expected a number from 1"),
    ("uniform:-1", "expected a number from 1")])
def test_refused_settings(text, message):
    with pytest.raises(UsageError, match=message):
        parse_negatives(text)


@pytest.mark.parametrize("changes, message", [
    ({"batch": "vertices:8"}, "batch = 'vertices:8': not supported by task='links', expected full"),
    ({"split_index": 1}, "split_index = 1: not supported"), ({"dtype": "bf16"}, "expected float32"),
    ({"scratch": "/tmp"}, "scratch = '/tmp': not supported"), ({"delay": "2"}, "delay = '2'"),
    ({"training_graph": "train"}, "training_graph = 'train'"),
    ({"negatives": "shared:2", "strict_negatives": True}, "only for negatives='uniform:K'")])
def test_settings_that_links_do_not_support(changes, message):
    with pytest.raises(UsageError, match=message):
        check_link_settings(Config(task="links", **changes))

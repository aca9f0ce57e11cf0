"""Batches before they are trained on: closed forms against enumeration, replay against a loop."""
import json
from functools import cache
from itertools import combinations, pairwise, permutations
from math import comb

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.parallel.layout import split
from hpgcn.partition import make_partition
from hpgcn.planning.answers.batch_report import takers
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast, table
from hpgcn.planning.counts.batch_traffic import InducedTraffic, NeighbourTraffic
from hpgcn.planning.counts.survey import Survey
from hpgcn.sampling import NeighbourSampler, PartSampler, VertexSampler, parse
from hpgcn.sampling import expectation as formulas
from hpgcn.strategies import STRATEGIES

KINDS = [(name, directed) for name in takers() for directed in (False, True)]


class Dealt:
    """A Sampler whose batches are given."""

    def __init__(self, batch):
        self.batch = np.array(batch)
        self.units = self.batch.size
        self.batches = int(self.batch.max()) + 1
        self.samples_parts = False

    def batch_of(self, units, epoch):
        return self.batch[units]


@cache
def case(name, directed, n=7, ranks=3, degree=3):
    """Return a full plan of a random graph, and its inputs; holders at random if they count."""
    graph = make(n, 4, 3, directed=directed, degree=degree, seed=n)
    survey = Survey(graph, Config(dtype="float64", prune=False, input_dropout=0.5), (4, 5, 3))
    reading = survey.reading
    if STRATEGIES[name].accepts_nonzero_owners:
        draws = np.random.default_rng(1)
        holders = draws.integers(0, ranks, graph.indices.size)
        reading = reading.with_holders(graph, holders.astype(np.int32))
    offsets = np.array([0, *sorted({n // 4, *range(n // 2, n, n)}), n])[:ranks + 1]
    footprint = count(reading, survey, STRATEGIES[name], (offsets.size - 1,), offsets)
    return survey, (footprint.plan, footprint.prediction,
                    footprint.steps.products(survey.spec, footprint.levels), 8)


def induced(name, directed, sampler, unit=None, **size):
    survey, given = case(name, directed, **size)
    unit = np.arange(survey.header.num_nodes) if unit is None else unit
    return InducedTraffic(*given, sampler, unit=unit)


def loop(batches, epoch=1):
    """Return bytes and messages of products, (2, batches, P) by phase: entry by entry."""
    plan, unit = batches.plan, batches.unit
    k = plan.num_ranks
    batch = batches.sampler.batch_of(unit, epoch)
    pulls, pushes = set(), set()  # batch, source, target, line
    for row_owner, column_owner, i, j, holder in zip(*(each.tolist() for each in plan.entries())):
        if batch[i] == batch[j]:
            if column_owner != holder:
                pulls.add((batch[i], column_owner, holder, j))
            if row_owner != holder:
                pushes.add((batch[i], holder, row_owner, i))
    merged = "balance" in plan.rank_grid.options
    found = {phase: np.zeros((2, batches.sampler.batches, k)) for phase in ("forward", "backward")}
    for product in batches.products:
        ways = [pulls, pushes]
        if product.backward and not plan.pattern.symmetric:
            ways = [{(b, q, p, line) for b, p, q, line in each} for each in ways]
        pairs = [{key[:3] for key in way} for way in ways]
        for b, source, _, _ in [*ways[0], *ways[1]]:
            found[product.phase][0, b, source] += product.width * 8
        for b, source, _ in pairs[0] | pairs[1] if merged else [*pairs[0], *pairs[1]]:
            found[product.phase][1, b, source] += 1
    return found


def aggregation(counts):
    return {phase: np.stack([book["aggregation", phase] for book in (counts.bytes,
                                                                     counts.messages)])
            for phase in ("forward", "backward")}


def same(found, expected, **tolerance):
    for phase, counts in expected.items():
        np.testing.assert_allclose(found[phase], counts, err_msg=phase, **tolerance)


def test_chances_by_enumeration():
    for units, size in ((1, 1), (7, 1), (7, 3), (7, 7), (6, 5)):
        drawn = list(combinations(range(units), size))
        for others in range(units):
            with_some = sum(0 in each and any(1 <= unit <= others for unit in each)
                            for each in drawn) / len(drawn)
            found = formulas.chance([others, others], units, size, np.array([False, True]))
            np.testing.assert_allclose(found, [with_some, size / units], rtol=1e-12, atol=1e-15)
            if others and size < units - others + 1:
                exact = size / units * (1 - comb(units - 1 - others, size - 1)
                                        / comb(units - 1, size - 1))
                assert found[0] == pytest.approx(exact)
    tiny = formulas.chance([1, 50], 10**9, 20_000)  # no cancellation
    assert tiny == pytest.approx([2e-5 * 19_999 / 999_999_999, 2e-5 * (50 * 1.9999e-5)], rel=1e-3)
    assert formulas.chance([], 9, 3).size == 0
    for degree, k in ((5, 2), (5, 5), (5, 9), (1, 1)):
        for held in range(degree + 1):
            exact = 1 - comb(degree - held, k) / comb(degree, k) if k <= degree else float(held > 0)
            assert formulas.any_entry_chance(degree, held, k) == pytest.approx(exact, abs=1e-12)
            assert formulas.any_entry_chance(degree, held, -1) == (held > 0)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("name, directed", KINDS)
def test_expected_bytes_are_the_mean_over_all_epochs(name, directed, parts):
    unit = np.array([0, 3, 1, 1, 2, 4, 0]) if parts else np.arange(7)
    units = unit.max() + 1
    cuts = split(units, 3)
    batch = np.repeat(np.arange(3), np.diff(cuts))
    epochs = sorted(set(permutations(batch.tolist())))
    totals = {}
    for dealt in epochs:
        batches = induced(name, directed, Dealt(dealt), unit)
        counted = aggregation(batches.replay(1))
        same(counted, loop(batches))
        for phase, counts in counted.items():
            totals[phase] = totals.get(phase, 0) + counts.sum(1)
    found = aggregation(batches.expected())
    repeats = batches.expected().repeats
    assert repeats.sum() == 3
    for phase, total in totals.items():
        np.testing.assert_allclose(repeats @ found[phase][0], total[0] / len(epochs), rtol=1e-12)
    assert sum(total[0].sum() for total in totals.values()) > 0


@pytest.mark.parametrize("sampler", [VertexSampler(60, 13, 3), PartSampler(17, 4, 3)],
                         ids=["v", "p"])
@pytest.mark.parametrize("name, directed", KINDS)
def test_replays_of_keyed_epochs(name, directed, sampler):
    unit = None
    if sampler.samples_parts:
        unit = np.random.default_rng(0).permutation(np.arange(60) % 17)
    batches = induced(name, directed, sampler, unit, n=60, degree=6)
    same(aggregation(batches.replay(4)), loop(batches, 4))
    batch = sampler.batch_of(batches.unit, 4)
    for number in range(sampler.batches):  # and the plan of the matrix that the batch induces
        pattern = batches.plan.pattern.restrict(batch == number, batch == number)
        part = type(batches.plan)(pattern, batches.plan.rank_grid)  # with the holders of all rows
        for phase, counts in aggregation(batches.replay(4)).items():
            sums = sum(part.traffic.counts(product, 8) for product in batches.products
                       if product.phase == phase)
            assert counts[:, number].tolist() == sums.tolist()
    epochs = [batches.replay(epoch) for epoch in range(1, 401)]
    totals = np.array([each.epoch(each.bytes) for each in epochs])
    mean = batches.expected()
    error = totals.std(0) / np.sqrt(len(totals))
    assert (np.abs(totals.mean(0) - mean.epoch(mean.bytes)) <= 4.5 * error + 1e-9).all()
    beyond = np.abs(totals.sum(1) - mean.epoch(mean.bytes).sum()) > batches.deviation(0.05)
    assert beyond.mean() <= 0.05
    messages = np.mean([each.epoch(each.messages) for each in epochs], 0)
    np.testing.assert_allclose(mean.epoch(mean.messages), messages, rtol=0.25)
    weights = epochs[0].bytes["weights", "backward"]  # once a step
    assert (weights == batches.prediction.bytes["weights", "backward"]).all()
    largest = epochs[0].by_rank(epochs[0].bytes).max(1)
    assert epochs[0].busiest(epochs[0].bytes) == pytest.approx(largest.mean())


@pytest.mark.parametrize("directed", [False, True])
def test_messages_of_parts_that_are_the_ranks_own_are_exact(directed):
    given = case("p2p", directed, n=60, degree=6)[1]
    owner = given[0].layout.row_blocks
    found = np.zeros(3)
    for dealt in ([0, 0, 1], [0, 1, 0], [1, 0, 0]):
        counted = InducedTraffic(*given, Dealt(dealt), unit=owner).replay(1)
        found += counted.epoch(counted.messages) / 3
    mean = InducedTraffic(*given, PartSampler(3, 2, 0), unit=owner).expected()
    np.testing.assert_allclose(mean.epoch(mean.messages), found)


def test_the_busiest_unit_bounds_what_a_swap_changes():
    batches = induced("vertex-cut", True, Dealt([0, 0, 1, 1, 2, 2, 2]))
    units = np.arange(7)
    changes = sum(pairs.changes(units, 7) for pairs in batches.pairs)

    def rows(dealt):
        return sum(int(pairs.hit(np.array(dealt)).sum()) for pairs in batches.pairs)

    for dealt in sorted(set(permutations([0, 0, 1, 1, 2, 2, 2])))[::7]:
        for one, other in combinations(range(7), 2):
            swapped = list(dealt)
            swapped[one], swapped[other] = swapped[other], swapped[one]
            assert abs(rows(dealt) - rows(swapped)) <= changes[one] + changes[other]
    assert formulas.permutation_ranges([1, 5, 2]).tolist() == [7, 3]
    assert formulas.deviation([3, 4], 2 / np.e**2) == pytest.approx(5)


def drawn_neighbours(name, fan_outs, size, directed=True, **sizes):
    survey, given = case(name, directed, **sizes)
    seeds = survey.reading.labelled
    sampler = NeighbourSampler(int(seeds.sum()), size, 0, fan_outs[::-1])
    return NeighbourTraffic(*given, sampler, seeds=seeds)


@pytest.mark.parametrize("name", takers())
def test_all_neighbours_of_all_seeds_are_a_pruned_step(name):
    batches = drawn_neighbours(name, (-1, -1), 10**6, n=40, degree=2)
    found = aggregation(batches.expected())
    A = batches.plan.pattern.matrix.astype(bool)
    A.data[:] = True  # also holder 0
    levels = [batches.seeds]
    for _ in range(2):
        levels.insert(0, levels[0] | (A.T @ levels[0]))
    plans = [batches.plan.restrict(out, into) for into, out in pairwise(levels)]
    assert not all(level.all() for level in levels)
    for phase, counts in found.items():
        sums = sum(plans[product.layer].traffic.counts(product, 8) for product in batches.products
                   if product.phase == phase)
        np.testing.assert_allclose(counts[:, 0], sums, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", takers())
def test_drawn_neighbours_are_near_their_estimate(name, directed):
    fan_outs, size = (3, 2), 20
    batches = drawn_neighbours(name, fan_outs, size, directed, n=400, degree=7)
    row_owner, column_owner, rows, columns, holder = batches.plan.entries()
    off = np.flatnonzero(rows != columns)
    off_rows = rows[off]
    rng = np.random.default_rng(0)
    sent = []  # rows and sums of each hop, by a loop

    def draw(hop, needed, batch):
        order = np.lexsort((rng.random(off.size), off_rows))
        first = np.searchsorted(off_rows[order], off_rows[order])
        taken = rng.random(rows.size) < 0.5  # entries of the diagonal do not matter
        taken[off[order]] = np.arange(off.size) - first < fan_outs[::-1][hop]
        held = [each[(taken & needed[rows])[off].nonzero()] for each in
                (row_owner[off], column_owner[off], off_rows, columns[off], holder[off])]
        ends = zip(*(each.tolist() for each in held))
        sent.append((hop, len({pair for mine, other, i, j, h in ends for pair in (
            *([("row", j, h)] if other != h else ()), *([("sum", i, h)] if mine != h else ()))})))
        return taken

    place = np.cumsum(batches.seeds) - 1
    epochs = [batches.replay(place, epoch, draw) for epoch in range(1, 31)]
    widths = [product.width for product in batches.products if product.phase == "forward"]
    found = sum(aggregation(each)["forward"][0].sum() for each in epochs)
    assert found == sum(count * widths[hop] * 8 for hop, count in sent)
    mean = batches.expected()
    for phase, counts in aggregation(mean).items():
        totals = np.mean([aggregation(each)[phase].sum(1) for each in epochs], 0)
        np.testing.assert_allclose(mean.repeats @ counts[0], totals[0], rtol=0.08)
        np.testing.assert_allclose(mean.repeats @ counts[1], totals[1], rtol=0.2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    graph = make(train=60)
    store.write_graph(folder / "whole.h5", graph)
    parts = make_partition(graph, 4, method="block")  # RCM moves rows
    store.write_partitioned(folder / "parts.h5", graph, parts)
    assert (parts.perm != np.arange(203)).any()
    return folder


def leaves(tree):
    """Return the numbers in nested dicts, in order."""
    if isinstance(tree, dict):
        return [leaf for each in tree.values() for leaf in leaves(each)]
    return [] if tree is None else [tree]


def forecast_of(path, batch, ranks=(4,), **options):
    return forecast(path, Options(ranks, config=Config(batch=batch), **options))


def test_draws_are_by_original_numbers(files):
    for batch in ("vertices:50", f"parts:2:{files / 'parts.h5'}", "neighbours:3,2:20"):
        whole = forecast_of(files / "whole.h5", batch, methods=("block",))
        parts = forecast_of(files / "parts.h5", batch)
        for name in ("p2p", "cover"):
            one, other = (next(row for row in report["rows"] if row["strategy"] == name)
                          for report in (whole, parts))
            if name == "p2p":  # cover breaks ties by rows' places
                for key in ("epoch", "replayed"):
                    assert leaves(one[key]) == pytest.approx(leaves(other[key]))
    itself = forecast_of(files / "parts.h5", f"parts:2:{files / 'parts.h5'}")
    assert itself["rows"] == forecast_of(files / "parts.h5", "parts:2")["rows"]


def test_json_and_table(files):
    asked = "plan", files / "whole.h5", "-k", "1,3", "--method", "block"
    report = json.loads(succeed(*asked, "--batch", "vertices:50", "--json"))
    assert set(report) == {"graph", "step", "settings", "batch", "seed", "rows", "notes"}
    assert report["batch"] == report["settings"]["batch"] == "vertices:50"
    assert {row["strategy"] for row in report["rows"]} == {"p2p", "cover"}
    assert any("1d, 1.5d, 2d, 3d, mop: left out" in line for line in report["notes"])
    for row in report["rows"]:
        assert row["steps"] == 5
        epoch, step, replayed = row["epoch"], row["step"], row["replayed"]
        for name in ("bytes", "messages"):
            assert step[name]["total"] == pytest.approx(epoch[name]["total"] / 5)
            assert step[name]["max"] <= replayed[name]["mean_of_max"] + step[name]["max"] / 2
            assert isinstance(replayed[name]["total"], int)
        low, high = row["interval"]["bytes"]
        assert low <= replayed["bytes"]["total"] <= high
        assert (epoch["bytes"]["total"] > 0) == (row["ranks"] > 1)
    lines = succeed(*asked, "--batch", "neighbours:5,5:20").splitlines()
    assert lines[0].endswith("batches neighbours:5,5:20 of gcn")
    assert "estimates" in lines[1] and lines[-1].startswith("cover") and " - " in lines[-1]
    assert table(report).splitlines()[0].endswith("batches vertices:50 of gcn")


@pytest.mark.parametrize("batch, options, error, said", [
    ("neighbours:5,5,5:20", {}, UsageError, "3 numbers of neighbors, expected one, or one for"),
    ("vertices:9", {"memory": 10**9}, UsageError, "memory= needs batch='full'"),
    ("parts:2:999", {}, UsageError, "999 parts of 203 vertices"),
    ("parts:2:{0}/whole.h5", {}, DataError, "whole.h5: not partitioned"),
    ("parts:2:{0}/small.h5", {}, DataError, "small.h5: 50 vertices, expected the 203 of")])
def test_refusals(files, batch, options, error, said):
    small = make(50)
    store.write_partitioned(files / "small.h5", small, make_partition(small, 3, method="block"),
                            overwrite=True)
    with pytest.raises(error, match=said):
        forecast_of(files / "whole.h5", batch.format(files), **options)


def test_refusals_of_commands(files):
    line = refused(2, "plan", files / "whole.h5", "--batch", "vertices:9", "--plot", "a.png")
    assert "--plot draws seconds" in line
    assert "expected full" in refused(2, "plan", files / "whole.h5", "--batch", "some")
    assert parse("full") is None


def test_a_vertex_cut_takes_batches_unless_it_is_delayed(tmp_path):
    graph = make()
    made = make_partition(graph, 3, method="vertex-cut", refine=False)
    store.write_partitioned(tmp_path / "cut.h5", graph, made)
    rows = forecast_of(tmp_path / "cut.h5", "parts:2", (3,))["rows"]
    assert [row["strategy"] for row in rows] == takers()
    config = Config(batch="vertices:40", delay="2")
    report = forecast(tmp_path / "cut.h5", Options((3,), config=config))
    assert [row["strategy"] for row in report["rows"]] == ["p2p", "cover"]
    assert any(line.startswith("vertex-cut, 1d, ") for line in report["notes"])

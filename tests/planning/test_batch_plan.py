"""Forecasts of mini-batches: their traffic equals a count entry by entry."""
import json
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from arrays import assert_all, assert_some
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.partition import make_partition
from hpgcn.planning.answers.batch_report import takers
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast, table
from hpgcn.planning.counts.batch_traffic import COUNTED, BatchPlans, counted_batches
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.sampling import NeighborSampler, PartSampler, VertexSampler, parse
from hpgcn.strategies import STRATEGIES

KINDS = [(name, directed) for name in takers() for directed in (False, True)]


class Dealt:
    """A sampler of vertices with given batches."""

    induced = True

    def __init__(self, batch):
        self.batch = np.array(batch)
        self.batches = int(self.batch.max()) + 1

    def batch_of(self, units, epoch):
        return self.batch[units]


@cache
def case(name, directed, n=7, ranks=3, degree=3):
    """Return the plan of a random graph for strategy `name`, and its inputs."""
    graph = make(n, 4, 3, directed=directed, degree=degree, seed=n)
    inputs = PlanInput(graph, Config(dtype="float64", prune=False, input_dropout=0.5), (4, 5, 3))
    ordered = inputs.ordered
    if STRATEGIES[name].accepts_nonzero_owners:
        draws = np.random.default_rng(1)
        holders = draws.integers(0, ranks, graph.indices.size)
        ordered = ordered.with_holders(graph, holders.astype(np.int32))
    offsets = np.array([0, *sorted({n // 4, *range(n // 2, n, n)}), n])[:ranks + 1]
    footprint = count(ordered, inputs, STRATEGIES[name], (offsets.size - 1,), offsets)
    return inputs, (footprint.plan, footprint.prediction,
                    footprint.steps.products(inputs.spec, footprint.levels), inputs.spec)


def plans_of(name, directed, sampler, unit, **size):
    inputs, given = case(name, directed, **size)
    return BatchPlans(*given, sampler, unit, inputs.ordered.vertex)


def loop(batches, epoch, number):
    """Return bytes and messages of a batch's products by phase, (2, P), counted entry by entry."""
    plan = batches.plan
    k, owner = plan.num_ranks, plan.rank_grid.layout.row_blocks.tolist()
    batch = batches.sampler.batch_of(batches.unit, epoch)
    rows, columns = plan.pattern.rows, plan.pattern.indices
    holders = plan.pattern.holders
    pulls, pushes = set(), set()  # source, target, line
    for entry, (i, j) in enumerate(zip(rows.tolist(), columns.tolist())):
        holder = owner[i] if holders is None else int(holders[entry])
        if batch[i] == batch[j] == number:
            if owner[j] != holder:
                pulls.add((owner[j], holder, j))
            if owner[i] != holder:
                pushes.add((holder, owner[i], i))
    merged = "balance" in plan.rank_grid.options
    found = {phase: np.zeros((2, k)) for phase in ("forward", "backward")}
    for product in batches.products:
        ways = [pulls, pushes]
        if product.backward and not plan.pattern.symmetric:
            ways = [{(q, p, line) for p, q, line in way} for way in ways]
        pairs = [{key[:2] for key in way} for way in ways]
        for source, _, _ in [*ways[0], *ways[1]]:
            found[product.phase][0, source] += product.width * 8
        for source, _ in pairs[0] | pairs[1] if merged else [*pairs[0], *pairs[1]]:
            found[product.phase][1, source] += 1
    return found


def aggregation(prediction, phase):
    return np.stack([book["aggregation", phase]
                     for book in (prediction.bytes, prediction.messages)])


@pytest.mark.parametrize("sampler", [
    Dealt([0, 1, 0, 2, 1, 0, 1]), VertexSampler(60, 13, 3), PartSampler(17, 4, 3)],
    ids=["given", "vertices", "parts"])
@pytest.mark.parametrize("name, directed", KINDS)
def test_batches_send_what_a_loop_over_entries_counts(name, directed, sampler):
    n = 7 if isinstance(sampler, Dealt) else 60
    unit = np.arange(n)
    if isinstance(sampler, PartSampler):
        unit = np.random.default_rng(0).permutation(unit % 17)
    batches = plans_of(name, directed, sampler, unit, n=n, degree=3 if n == 7 else 6)
    for number in range(sampler.batches):
        prediction = batches.predict(4, number)
        for phase, counts in loop(batches, 4, number).items():
            np.testing.assert_array_equal(aggregation(prediction, phase), counts)
        weights = prediction.bytes["weights", "backward"]  # counted once per step
        assert_all(weights == batches.full_step.bytes["weights", "backward"])


@pytest.mark.parametrize("name", takers())
def test_all_neighbors_of_all_seeds_are_a_pruned_step(name):
    inputs, given = case(name, True, n=40, degree=2)
    seeds = inputs.ordered.labeled
    unit = np.where(seeds, np.cumsum(seeds) - 1, -1)
    sampler = NeighborSampler(int(seeds.sum()), 10**6, 0, (-1, -1))
    batches = BatchPlans(*given, sampler, unit, inputs.ordered.vertex)
    prediction = batches.predict(1, 0)
    A = batches.plan.pattern.matrix.astype(bool)
    A.data[:] = True  # also holder 0
    levels = [seeds]
    for _ in range(2):
        levels.insert(0, levels[0] | (A.T @ levels[0]))
    plans = [batches.plan.restrict(out, into) for into, out in pairwise(levels)]
    assert_some([~level for level in levels])
    for phase in ("forward", "backward"):
        sums = sum(plans[product.layer].traffic.counts(product, 8) for product in batches.products
                   if product.phase == phase)
        np.testing.assert_array_equal(aggregation(prediction, phase), sums)


def test_counted_batches_are_spread_over_an_epoch():
    assert counted_batches(3) == [0, 1, 2]
    spread = counted_batches(1000)
    assert (len(spread), spread[0], spread[-1]) == (COUNTED, 0, 999)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    graph = make(train=60)
    store.write_graph(folder / "whole.h5", graph)
    parts = make_partition(graph, 4, method="block")  # RCM moves rows
    store.write_partitioned(folder / "parts.h5", graph, parts)
    assert_some(parts.perm != np.arange(203))
    return folder


def leaves(tree):
    """Return the numbers in nested dicts, in order."""
    if isinstance(tree, dict):
        return [leaf for each in tree.values() for leaf in leaves(each)]
    return [] if tree is None else [tree]


def forecast_of(path, batch, ranks=(4,), **options):
    return forecast(path, Options(ranks, config=Config(batch=batch), **options))


def test_draws_are_by_original_numbers(files):
    for batch in ("vertices:50", f"parts:2:{files / 'parts.h5'}", "neighbors:3,2:20"):
        whole = forecast_of(files / "whole.h5", batch, methods=("block",))
        parts = forecast_of(files / "parts.h5", batch)
        for name in ("p2p", "cover"):
            one, other = (next(row for row in report["rows"] if row["strategy"] == name)
                          for report in (whole, parts))
            if name == "p2p":  # cover breaks ties by the order of rows
                assert leaves(one["step"]) == leaves(other["step"])
                assert one["epoch"] == other["epoch"]
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
        assert (row["steps"], row["counted"]) == (5, 5)
        for name in ("bytes", "messages"):
            step, epoch = row["step"][name], row["epoch"][name]
            assert isinstance(epoch, int) and step["total"] == pytest.approx(epoch / 5)
            assert step["total"] / row["ranks"] <= step["max"] <= step["total"]
            assert (epoch > 0) == (row["ranks"] > 1)
    lines = succeed(*asked, "--batch", "neighbors:5,5:5").splitlines()
    assert lines[0].endswith("batches neighbors:5,5:5 of gcn")
    assert lines[1] == f"counted in {COUNTED} batches of epoch 1" and lines[-1].startswith("cover")
    assert table(report).splitlines()[0].endswith("batches vertices:50 of gcn")


@pytest.mark.parametrize("batch, options, error, said", [
    ("neighbors:5,5,5:20", {}, UsageError, "3 numbers of neighbors, expected one, or one for"),
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

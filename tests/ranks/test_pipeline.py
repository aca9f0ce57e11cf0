"""Strategy mop updates one batch of rows while it aggregates the next (MixGCN, section 3.2.2)."""
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import make
from held import check_held, footprint_of
from test_strategies import build
from training import alone, assert_same_curves, metrics_of, on_ranks, start

from hpgcn import Config
from hpgcn.graphs.graph import Graph
from hpgcn.model.stages import LayerStage
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.mixed_devices import pipeline_seconds
from hpgcn.strategies.mixture.product_in_flight import ProductInFlight
from hpgcn.strategies.mixture.staged_buffers import Shared

MODELS = {"W first": {"hidden": 12}, "A first": {"hidden": 20}, "elu": {"activation": "elu"},
          "layer norm": {"norm": "layer"}, "all rows": {"prune": False}, "sparse": {},
          "deep": {"layers": 4, "jump": "cat", "output_layer": True}}


@on_ranks(3)
@pytest.mark.parametrize("name", [
    "W first", "A first", "deep", *(pytest.param(name, marks=pytest.mark.long) for name in (
        "elu", "layer norm", "all rows", "sparse"))])
def test_batches_train_like_one_rank(comm, name):
    graph = make(60, 16, 5, sparse=name == "sparse")
    config = Config(**{"layers": 3, "strategy": "mop", "pipeline_batches": 4, "dtype": "float64",
                       **MODELS[name]})
    with start(graph, config, comm) as trainer:
        history = metrics_of(trainer, 3)
        weights = trainer.parameters.flat.copy()
    ours, flat = alone(graph, config)
    assert_same_curves(history, ours, 1e-9)
    np.testing.assert_allclose(weights, flat, rtol=1e-6, atol=1e-9)


def schedule(events, batches, aggregate, update):
    """Return the end time if the host aggregates batches and a second device updates them."""
    host = device = 0.0
    for kind, _ in events:
        if kind == "aggregate":
            host += aggregate / batches
        elif kind == "update":
            device = max(host, device) + update / batches
    return max(host, device)


@pytest.fixture
def events(monkeypatch):
    """Record (kind, product, batch) of each rank: batches that are aggregated, sent, updated."""
    recorded = defaultdict(list)

    def note(kind, flight, batch):
        products = flight.buffers.__dict__.setdefault("seen", [])
        if flight not in products:
            products.append(flight)
        recorded[flight.comm.rank].append((kind, products.index(flight), batch))

    aggregate, take = ProductInFlight.aggregate_next, ProductInFlight.take_next

    def aggregate_next(flight, between):
        batch = len(flight.returns)
        tiles = []

        def before_tile():
            between()
            if not tiles:
                note("aggregate", flight, batch)
            tiles.append(batch)

        aggregate(flight, before_tile)
        note("sent", flight, batch)

    def take_next(flight, out, rows_done, following):
        batch = flight.num_updated
        take(flight, out, rows_done, following)
        note("update", flight, batch)

    monkeypatch.setattr(ProductInFlight, "aggregate_next", aggregate_next)
    monkeypatch.setattr(ProductInFlight, "take_next", take_next)
    return recorded


@pytest.fixture(params=[False, True])
def two_devices(request, monkeypatch):
    """Pack and send rows as between a GPU and the host, or not."""
    monkeypatch.setattr(Shared, "eager", request.param)
    return request.param


@on_ranks(2)
def test_batches_are_updated_while_others_are_aggregated(comm, events, two_devices):
    batches = 5
    graph = make(60, 16, 5)
    config = Config(layers=3, hidden=12, strategy="mop", pipeline_batches=batches, prune=False)
    with start(graph, config, comm) as trainer:
        product_map = trainer.shard.strategy
        assert {*map(id, trainer.training.model.field.maps)} == {id(product_map)}
        trainer.train_epoch(1)

    # forward and backward of three layers
    mine = events[comm.rank]
    assert {product for _, product, _ in mine} == {*range(6)}
    products = [[(kind, batch) for kind, product, batch in mine if product == number]
                for number in range(6)]
    for each in products:
        for kind in ("aggregate", "sent", "update"):
            assert [batch for name, batch in each if name == kind] == [*range(batches)]
        place = {event: number for number, event in enumerate(each)}
        for batch in range(batches - 1 - two_devices):
            assert place["sent", batch + 1 - two_devices] < place["update", batch]

    # a rank that finds all sums there keeps both devices busy, as `plan` says. On one device
    # a batch is updated after the next one is sent
    for a, u in ((5.0, 1.0), (1.0, 5.0), (2.0, 2.0)):
        ends = min(schedule(each, batches, a, u) for each in products)
        late = 0 if two_devices else min(a, u) / batches
        assert min(comm.allgather(ends)) == pytest.approx(pipeline_seconds(a, u, batches) + late)


# What follows begins the product of a layer before that of the last one is complete (Figure 5d).

def banded(n=240, band=6, classes=5):
    """Return a graph whose rows read at most `band` rows on either side; all of them if n."""
    made = make(n, 16, classes)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    near = sp.csr_array((distance <= band) * 1.0)
    return Graph.from_scipy(near, made.features, made.labels, made.masks, classes=True)


def trained(comm, graph, config, *, border=True):
    """Train two epochs, with or without the next product begun early; return the results."""
    with start(graph, config, comm) as trainer:
        for stage in trainer.training.model.stages if not border else ():
            if isinstance(stage, LayerStage) and stage.pipeline:
                stage.pipeline.lower = stage.pipeline.expected = None
        history = metrics_of(trainer, 2)
        assert trainer.shard.strategy.buffers.early is None
        if border:
            check_held(footprint_of(graph, config, comm, PlanInput(graph, config)), trainer,
                       comm.rank)
        losses = [entry["loss"] for entry in history]
        return losses, trainer.parameters.flat.tobytes()


BORDERS = {  # settings, classes, and borders where a product begins early: forward, backward
    "W first": ({"hidden": 12}, 5, "01 12 21 10"),
    "A first": ({"hidden": 20}, 5, "12 21"),
    "A last": ({"hidden": 12}, 30, "01 12 10"),
    "two layers": ({"hidden": 12, "layers": 2}, 5, "01 10"),
    "four layers": ({"hidden": 12, "layers": 4}, 5, "01 12 23 32 21 10"),
    "few labels": ({"hidden": 12, "prune": True}, 5, "01 12 21 10"),
    "means": ({"hidden": 12, "model": "sage", "aggregator": "gcn"}, 5, "01 12 21 10"),
    "elu": ({"hidden": 12, "activation": "elu"}, 5, "01 12"),
    "norm": ({"hidden": 12, "norm": "layer"}, 5, ""),
    "residual": ({"hidden": 12, "residual": True}, 5, ""),
    "masked": ({"hidden": 12, "dropout": 0.5, "masked_products": "always"}, 5, "12 21 10"),
    "sage": ({"hidden": 12, "model": "sage"}, 5, ""),
    "gin": ({"hidden": 12, "model": "gin"}, 5, "")}


@pytest.fixture
def patient(monkeypatch):
    """Aggregate a batch as soon as its rows are sent, and wait for those of other ranks."""
    monkeypatch.setattr(ProductInFlight, "ready", property(lambda flight: (
        len(flight.returns) < flight.num_batches
        and flight.operand.needed[len(flight.returns)] <= len(flight.sends))))


@on_ranks(2, 3, 4)
@pytest.mark.parametrize("batches", [2, 5, 6])
@pytest.mark.parametrize("name", BORDERS)
def test_a_product_that_begins_early_changes_no_bit(comm, name, batches, two_devices):
    settings, classes, _ = BORDERS[name]
    config = Config(strategy="mop", **{"layers": 3, "prune": False, **settings},
                    pipeline_batches=batches)
    graph = banded(classes=classes)
    ours = trained(comm, graph, config)
    assert ours == trained(comm, graph, config, border=False)


def borders_in(events):
    """Return the borders in a list of events: "01" if layer 1 began before the last of layer 0."""
    begun, updated = {}, {}
    for name, begin, end, _, detail, _ in events:
        if detail.startswith("layer"):
            _, layer, phase = detail.split()
            place = int(layer) * (1 if phase == "forward" else -1), phase
            if name == "spmm":
                begun[place] = min(begin, begun.get(place, begin))
            elif name == "dense":
                updated[place] = max(end, updated.get(place, end))
    return " ".join(
        f"{abs(layer)}{abs(layer + 1)}"
        for phase in ("forward", "backward") for layer in range(-9, 9)
        if begun.get((layer + 1, phase), np.inf) < updated.get((layer, phase), -np.inf))


@on_ranks(2, 4)
@pytest.mark.parametrize("name", BORDERS)
def test_the_next_layer_is_aggregated_before_the_last_update(comm, name, patient):
    settings, classes, expected = BORDERS[name]
    config = Config(strategy="mop", **{"layers": 3, "prune": False, **settings}, pipeline_batches=6)
    with start(banded(classes=classes), config, comm) as trainer:
        assert trainer.shard.strategy.operand.needed[0] < 5
        comm.clock.record(limit=10_000)
        trainer.train_epoch(1)
        assert borders_in(comm.clock.stop()) == expected


@on_ranks(2, 4)
def test_rows_in_random_order_wait_for_all_batches(comm, events, patient):
    config = Config(strategy="mop", layers=3, hidden=12, prune=False, pipeline_batches=5)
    graph = banded(n=60, band=60)
    with start(graph, config, comm) as trainer:
        assert trainer.shard.strategy.operand.needed == [5] * 5
        trainer.train_epoch(1)
    order = [(product, kind) for kind, product, _ in events[comm.rank] if kind != "sent"]
    assert order == sorted(order, key=lambda each: each[0])
    ours = trained(comm, graph, config)
    assert ours == trained(comm, graph, config, border=False)


def ignore_rows(out, first, last):
    """Do nothing with the rows that have returned."""


@on_ranks(3)
def test_a_product_that_does_not_follow_is_received(comm):
    """As after an error on all ranks between two layers."""
    made, _ = build(comm, ("mop", (3,), 5), banded(), "even")
    rows = made.layout.rows
    H, other = np.random.default_rng(3).standard_normal((2, rows.num_rows, 7))
    right = made.forward(H), made.forward(other), made.backward(H)
    made.expect(other)
    made.rows_done = ignore_rows
    np.testing.assert_array_equal(made.forward(H), right[0])
    assert made.buffers.early
    np.testing.assert_array_equal(made.backward(H), right[2])
    assert not made.buffers.early
    made.expect(other)
    made.rows_done = ignore_rows
    np.testing.assert_array_equal(made.forward(H), right[0])
    np.testing.assert_array_equal(made.forward(other), right[1])
    made.expect(H)  # an evaluation follows: nothing is begun
    np.testing.assert_array_equal(made.forward(other), right[1])
    assert not made.buffers.early and not made.buffers.expected
    made.close()

"""Strategy mop updates one batch of rows while it aggregates the next (MixGCN, section 3.2.2)."""
import numpy as np
import pytest
from graphs import make
from training import alone, assert_same_curves, metrics_of, on_ranks, start

from hpgcn import Config
from hpgcn.planning.seconds.mixed_devices import pipeline_seconds
from hpgcn.strategies.mixture.mop_attention import BatchProduct

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


@on_ranks(2)
@pytest.mark.parametrize("two_devices", [False, True])
def test_batches_are_updated_while_others_are_aggregated(comm, two_devices):
    batches = 5
    graph = make(60, 16, 5)
    config = Config(layers=3, hidden=12, strategy="mop", pipeline_batches=batches, prune=False)
    with start(graph, config, comm) as trainer:
        product_map = trainer.shard.strategy
        assert {*map(id, trainer.training.model.field.maps)} == {id(product_map)}
        product_map.buffers.packed.eager = two_devices
        products = record(product_map)
        trainer.train_epoch(1)

    # forward and backward of three layers
    assert len(products) == 6
    for events in products:
        for kind in ("aggregate", "sent", "update"):
            assert [batch for name, batch in events if name == kind] == [*range(batches)]
        place = {event: number for number, event in enumerate(events)}
        for batch in range(batches - 1 - two_devices):
            assert place["sent", batch + 1 - two_devices] < place["update", batch]

    # a rank that finds all sums there keeps both devices busy, as `plan` says. On one device
    # a batch is updated after the next one is sent
    for a, u in ((5.0, 1.0), (1.0, 5.0), (2.0, 2.0)):
        mine = min(schedule(events, batches, a, u) for events in products)
        late = 0 if two_devices else min(a, u) / batches
        assert min(comm.allgather(mine)) == pytest.approx(pipeline_seconds(a, u, batches) + late)


def record(product_map):
    """Record the events (kind, batch) of each product of a map; return a list for each product."""
    products = []
    whole, comm = product_map.product, product_map.comm
    start_alltoall = comm.start_alltoall

    def product(operand, H, out, work, mask=None, update=None):
        events = []
        products.append(events)
        sums = operand.rows.bounds

        class Noted(BatchProduct):
            def tile(self, block, indptr, X, Z, first, last, bits):
                batch = int(np.searchsorted(sums, first, side="right")) - 1
                if ("aggregate", batch) not in events:
                    events.append(("aggregate", batch))
                super().tile(block, indptr, X, Z, first, last, bits)

        def start_noted(send, *others):
            handle = start_alltoall(send, *others)
            aggregated = [batch for kind, batch in events if kind == "aggregate"]
            if aggregated:
                events.append(("sent", aggregated[-1]))
            return handle

        def noted(first, last):
            starts = operand.rows.starts[:, comm.rank] - operand.rows.offsets[comm.rank]
            events.append(("update", int(np.flatnonzero(starts == first)[0])))
            update(first, last)

        comm.start_alltoall = start_noted
        try:
            return whole(operand, H, out, Noted(), mask, noted if update else None)
        finally:
            comm.start_alltoall = start_alltoall

    product_map.product = product
    return products

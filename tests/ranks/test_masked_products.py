"""Products with A skip elements that dropout sets to zero (S-SpMM) if that pays; no bit changes."""
import numpy as np
import pytest
import scipy.sparse as sp
from graphs import make, scattered
from training import metrics_of, on_ranks, start

from hpgcn import Config, kernels
from hpgcn.kernels import reference, unpack_mask
from hpgcn.model import ModelSpec, masked_layers
from hpgcn.model.masked_results import ROW, SECTOR, saves, skipped_share

WIDE = {602: {"layers": 3, "hidden": 128}, 128: {"layers": 3, "hidden": 128}}


def graph_of(features, classes):
    return make(60, features, classes, degree=6)


@pytest.fixture
def masked_calls(monkeypatch):
    """Record (rows, columns) of each sparse product that is called with a mask."""
    calls = []
    ops = kernels.backend(np.empty(0))
    spmm = ops.spmm

    def spy(indptr, indices, data, x, out=None, **named):
        if named.get("mask") is not None:
            calls.append((indptr.size - 1, x.shape[1]))
        return spmm(indptr, indices, data, x, out, **named)

    monkeypatch.setattr(ops, "spmm", spy)
    return calls


@pytest.mark.parametrize("dropped, width, together, share", [
    (0.5, 128, 1, 0.5), (0.5, 128, SECTOR, 0.5**8), (0.5, 128, ROW, 0.5**128),
    (0.5, 12, SECTOR, (8 * 0.5**8 + 4 * 0.5**4) / 12), (0.5, 3, ROW, 0.125), (0.9, 1, SECTOR, 0.9)])
def test_share_that_a_kernel_skips(dropped, width, together, share):
    assert skipped_share(dropped, width, together) == pytest.approx(share)


def test_rule():
    # one bit is read for each number: 1/32 of the bytes of float32, 1/64 of float64
    assert [saves(p, 128, SECTOR, 4, 500) for p in (0.0, 0.5, 0.64, 0.65)] == [0, 0, 0, 1]
    assert [saves(0.5, width, ROW, 4, 500) for width in (1, 5, 6, 128)] == [1, 1, 0, 0]
    assert [saves(0.5, width, ROW, 8, 500) for width in (6, 7)] == [1, 0]
    # short rows save less than three passes over the mask
    assert [saves(0.5, 4, ROW, 4, entries) for entries in (4, 47, 48)] == [0, 0, 1]


@pytest.mark.parametrize("settings, masked", [
    ({}, (1, 1, 0)), ({"norm": "layer"}, (0, 0, 0)), ({"residual": True}, (0, 0, 0)),
    ({"activation": "elu"}, (1, 1, 0)), ({"dropout": 0.0}, (0, 0, 0)),
    ({"architecture": "gat"}, (0, 0, 0))])
def test_layers_that_may_be_masked(settings, masked):
    settings = {"architecture": "gcn", "dropout": 0.5, **settings}
    spec = ModelSpec(widths=(602, 128, 128, 41), **settings)
    assert masked_layers(spec, "always", 1, 500) == masked
    assert masked_layers(spec, "always", 0, 500) == (0, 0, 0)  # sums over ranks
    assert masked_layers(spec, "auto", 1, 500) == (0, 0, 0)
    assert masked_layers(spec, "auto", 1, 500, on_gpu=True) == (0, 0, 0)
    assert masked_layers(spec, "auto", 32, 500) == masked  # 4 columns a rank
    assert masked_layers(spec, "auto", 32, 10) == (0, 0, 0)
    assert masked_layers(spec, "never", 32, 500) == (0, 0, 0)


@pytest.mark.parametrize("features, classes, products", [
    (602, 41, [128, 128]), (128, 40, [128, 128])])
def test_step_calls_the_masked_product(masked_calls, features, classes, products):
    graph = graph_of(features, classes)
    found = {}
    for setting in ("never", "auto", "always"):
        config = Config(**WIDE[features], prune=False, masked_products=setting)
        masked_calls.clear()
        with start(graph, config) as trainer:
            metrics = [trainer.train_epoch(epoch) for epoch in (1, 2)]
            found[setting] = [one["loss"] for one in metrics], trainer.parameters.flat.copy()
            called = [width for _, width in masked_calls]
            assert called == (2 * products if setting == "always" else [])
    for setting in ("auto", "always"):
        assert found[setting][0] == found["never"][0]
        np.testing.assert_array_equal(found[setting][1], found["never"][1])

    # zero bits of the two masks, each as often as its row has entries
    entries = np.diff(sp.csr_array(graph.adjacency + sp.eye_array(graph.num_rows)).indptr)
    for step, one in enumerate(metrics, 1):
        zeros = sum(~unpack_mask(reference.dropout_bits(
            np.arange(graph.num_rows), width, seed=0, epoch=step, layer=level, p=0.5), width)
            for level, width in enumerate(products, 1))
        assert one["masked_additions"] == entries @ zeros.sum(axis=1)


def test_narrow_results_are_masked_by_the_rule(masked_calls):
    config = Config(layers=2, hidden=2, prune=False)
    with start(make(60, 13, 2, degree=30), config) as trainer:
        assert trainer.train_epoch(1)["masked_additions"] > 0
    assert masked_calls == [(60, 2)]


@on_ranks(4)
@pytest.mark.parametrize("settings", [
    {"strategy": "1d"}, {"strategy": "mop", "pipeline_batches": 3}, {"strategy": "cover"},
    pytest.param({"strategy": "2d", "grid": "2x2"}, marks=pytest.mark.long),
    pytest.param({"strategy": "1.5d"}, marks=pytest.mark.long),
    pytest.param({"strategy": "p2p", "model": "sage", "activation": "gelu"},
                 marks=pytest.mark.long),
    pytest.param({"strategy": "p2p", "dtype": "bf16"}, marks=pytest.mark.long)],
    ids=lambda settings: "-".join(map(str, settings.values())))
def test_ranks_compute_the_same_bits(comm, settings):
    graph = graph_of(13, 5)
    if settings["strategy"] in ("p2p", "cover"):
        graph = scattered(graph, comm)
    found = []
    for setting in ("never", "always"):
        config = Config(layers=3, hidden=12, prune=False, masked_products=setting, **settings)
        with start(graph, config, comm) as trainer:
            history = metrics_of(trainer, 2)  # compares sent bytes with the prediction
            found.append(([one["loss"] for one in history], trainer.parameters.flat.copy()))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    sums = settings["strategy"] in ("1.5d", "cover")
    assert [one.get("masked_additions", 0) > 0 for one in history] == [not sums] * 2

"""Strategies, layers, samplers, partitioners and decoders defined here work as the package's do.

No file of hpgcn is changed. The code between the two lines is a user's; CONTRIBUTING
explains it step by step.
"""
import numpy as np
import oracle
import pytest
import test_mini_batches
import test_strategies
from arrays import assert_differ
from commands import succeed
from graphs import make, scattered, with_links
from training import alone, assert_same_curves, loss_and_gradient, metrics_of, run, start

import hpgcn
from hpgcn import setting_words, store
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.model import MODELS, Layer
from hpgcn.model.links.decoders import DECODERS, Dot
from hpgcn.parallel.csr import Csr
from hpgcn.parallel.transfers import LOCAL, GatheredPlan, GatheredRows, OwnRows, OwnRowsPlan
from hpgcn.parallel.workspace import Workspace
from hpgcn.partition import METHODS, make_partition
from hpgcn.partition.method_table import Method
from hpgcn.partition.partition_request import Parts
from hpgcn.planning.answers import dry_run, report
from hpgcn.planning.answers.options import Options
from hpgcn.planning.counts.footprint import PARTS
from hpgcn.sampling import SAMPLERS, parse, smallest
from hpgcn.sampling.keyed_draws import block_of, key_of, permuted
from hpgcn.sampling.negatives import NEGATIVES, NegativeSampler
from hpgcn.sampling.sampler import Sampler
from hpgcn.strategies import STRATEGIES, RowPlan, RowProduct, RowStrategy, RowTraffic
from hpgcn.training.setup.placement import assign_rows

# ------------------------------------------------------------------------------------------


class EverybodyTraffic(RowTraffic):
    """Traffic of an allgather of rows and, if A is not symmetric, of a reduce-scatter of sums."""

    def __init__(self, layouts, symmetric):
        layout, layout_in = layouts
        transfers = [each for rows in (layout_in, layout)
                     for each in (GatheredPlan(np.diff(rows.offsets)[None], OwnRowsPlan()),
                                  OwnRowsPlan())]
        super().__init__(layouts, symmetric, transfers)


class EverybodyPlan(RowPlan):
    """The plan of ranks that each store their rows of A in one block."""

    Traffic = EverybodyTraffic


class Everybody(RowStrategy):
    """A strategy in which every rank gathers all rows of H and multiplies its rows of A by them."""

    name = "everybody"
    Plan = EverybodyPlan

    @classmethod
    def build(cls, adjacency, rank_grid, comm, *, width=0):
        """Build the strategy from the rows of A that this rank owns."""
        layout = rank_grid.layout
        with comm.collective_errors():
            rows = adjacency.block(layout.rows.start, layout.rows.stop)
        workspace = Workspace(adjacency.dtype, comm.device)
        strategy = cls(layout, layout, comm, gathered(rows, layout, comm, workspace),
                       symmetric=adjacency.symmetric)
        strategy.reserve(width)
        return strategy

    def build_submatrix(self, rows_out, rows_in):
        """Build the product for the submatrix of A in `rows_out` and `rows_in`."""
        block, = self.product.all_blocks()
        rows = block.select(rows_out[self.layout.rows.start:self.layout.rows.stop], rows_in)
        return gathered(rows, self.layout.restricted(rows_in), self.comm,
                        self.product.pull.workspace)


def gathered(rows, layout_in, comm, workspace):
    """Return a product with `rows` of A, (m, n), that gathers all rows of its input first."""
    pull = GatheredRows(np.diff(layout_in.offsets), comm, OwnRows(), workspace)
    return RowProduct({LOCAL: {LOCAL: Csr.of(rows, comm.device)}}, pull, OwnRows(), rows.shape[0])


class TwoHops(Layer):
    """A layer that computes Z = A (A H W) + b."""

    products = 2

    def forward(self, H, out, *, keep=False):
        """Multiply H by W, then twice by A; return the result and the backward function."""
        first, second = self.hop.maps
        Y = self.times_W(H, "W", self.buffer("scratch", self.rows_in, self.width_out))
        Y = first.forward(Y, out=self.buffer("scratch2", self.hop.rows[1], self.width_out))
        return second.forward(Y, out=out), lambda *given: self._backward(H, *given)

    def _backward(self, H, G, below, gradient):
        first, second = self.hop.maps
        G = second.backward(G, out=self.buffer("scratch2", self.hop.rows[1], self.width_out))
        G = first.backward(G, out=self.buffer("scratch", self.rows_in, self.width_out))
        G = self.gathered(G, self.fan_out)
        self.weight_gradient(gradient, "W", H, G)
        if not self.needs_gradient:
            return None
        return self.masked(self.times_W_transposed(G, "W", "ping", self.scale), below)


class FlipFlop(Sampler):
    """A sampler of vertices whose even epochs reverse the batch order of the epoch before."""

    name = "flip-flop"
    stream = 4

    def batch_of(self, units, epoch):
        order = permuted(units, self.units, key_of(self.seed, self.stream, epoch - 1 + epoch % 2))
        if epoch % 2 == 0:
            order = self.units - 1 - order
        return block_of(order, self.units, self.batches)


def snake(rows, weights, request):
    """Deal vertices to the parts back and forth, the heaviest first."""
    order = np.argsort(-weights, kind="stable")
    place = np.arange(weights.size) % (2 * request.k)
    part = np.empty(weights.size, np.int32)
    part[order] = np.minimum(place, 2 * request.k - 1 - place)
    return Parts(part)


class Scaled(Dot):
    """The dot product over the root of the width, s = sum(h * t) / sqrt(d)."""

    def weighted(self, rows):
        return rows / rows.shape[1]**0.5

    def scaled(self, G, rows, gradient):
        return G / G.shape[1]**0.5


class NearTargets(NegativeSampler):
    """K targets of each positive whose numbers are at most 100 above that of the source."""

    name = "near"

    def targets(self, sources, numbers, known, epoch, key="train"):
        numbers = (numbers[:, None] * self.count + np.arange(self.count)).ravel()
        above = 1 + self.draw(numbers, epoch, key) % 100
        return ((np.repeat(sources, self.count) + above) % self.n).reshape(-1, self.count)


# ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register the definitions of this file."""
    monkeypatch.setitem(METHODS, "snake", Method(snake))
    monkeypatch.setitem(STRATEGIES, Everybody.name, Everybody)
    monkeypatch.setitem(MODELS, "hops", TwoHops)
    monkeypatch.setitem(SAMPLERS, FlipFlop.name, FlipFlop)
    monkeypatch.setitem(DECODERS, "scaled", Scaled)
    monkeypatch.setitem(setting_words.DECODERS, "scaled", 0)
    monkeypatch.setitem(NEGATIVES, NearTargets.name, NearTargets)


SETTINGS = {"strategy": "everybody", "model": "hops", "dtype": "float64", "layers": 3, "hidden": 6,
            "seed": 3}
CASES = [{}, {"dropout": 0.0}, {"strategy": "2d"}, {"strategy": "mop"}, {"strategy": "1.5d"}]


def squared(graph):
    """Return A A as a dense matrix: one hop with it equals two hops with A."""
    A = oracle.normalized(graph)
    return A @ A


@pytest.mark.parametrize("comm", [1, 4], indirect=True)
@pytest.mark.parametrize("kind, half", [("directed", 0), ("mean", 1), ("few vertices", 0)])
def test_the_strategy_meets_the_contract_of_all(comm, kind, half):
    case = Everybody.name, (comm.size,), 0
    test_strategies.test_it_is_the_matrix_and_sends_and_holds_what_is_planned(comm, case, kind,
                                                                              half)


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_its_buffers_are_made_once(comm):
    test_strategies.test_buffers_grow_and_are_made_once(comm, (Everybody.name, (comm.size,), 0))


@pytest.mark.long
@pytest.mark.parametrize("comm", [1, 3, 4], indirect=True)
@pytest.mark.parametrize("directed, sparse", [(True, False), (False, True)])
@pytest.mark.parametrize("changed", CASES, ids=str)
def test_both_train(comm, changed, directed, sparse):
    graph = make(directed=directed, weighted=True, sparse=sparse)
    config = Config(**{**SETTINGS, **changed})
    trainer = start(scattered(graph, comm), config, comm)
    initial = trainer.parameters
    expected, slope = oracle.losses(graph, config, initial, 3, model="gcn", A=squared(graph))
    _, gradient = loss_and_gradient(trainer)
    np.testing.assert_allclose(gradient, slope, rtol=1e-10, atol=1e-13)
    losses = [entry["loss"] for entry in metrics_of(trainer, 3)]  # which sends what was predicted
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    trainer.close()


@pytest.mark.parametrize("comm", [3], indirect=True)
@pytest.mark.parametrize("model", ["gin", "sage"])
def test_the_strategy_trains_other_models(comm, model):
    graph = make(directed=True)
    config = Config(**{**SETTINGS, "model": model})
    ours, _ = run(scattered(graph, comm), config, comm)
    assert_same_curves(ours, alone(graph, config)[0], 1e-10)


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_rows_that_nobody_reads_are_left_out(comm):
    graph = scattered(make(n=500, degree=1.5, train=6), comm)
    pruned, whole = (run(graph, Config(**SETTINGS, prune=prune), comm)[0]
                     for prune in (True, False))
    for key in ("loss", "val_loss", "train_acc"):
        np.testing.assert_allclose([m[key] for m in pruned], [m[key] for m in whole], rtol=1e-10)
    assert pruned[0]["sent_bytes"] < whole[0]["sent_bytes"] or comm.size == 1


@pytest.mark.parametrize("comm", [1, 4], indirect=True)
@pytest.mark.parametrize("directed", [False, True])
def test_a_dry_run_tells_what_a_run_sends(comm, directed):
    graph = scattered(make(n=500, degree=1.5, directed=directed, train=6), comm)
    config = Config(**SETTINGS)
    told = dry_run.forecast(assign_rows(graph, comm, config), config, comm)
    history, _ = run(graph, config, comm, 2)
    for kind in ("bytes", "messages"):
        assert told[f"predicted_{kind}_per_epoch"] == history[-1][f"sent_{kind}"]
    assert len(told["memory"]) == comm.size
    assert all(rank[part] > 0 for rank in told["memory"]
               for part in set(PARTS) - {"buffers", "plan", "reductions"})
    assert (told["model"], told["strategy"]) == ("hops", "everybody")
    assert dry_run.table(told)


def test_a_plan_lists_it(tmp_path):
    store.write_graph(tmp_path / "graph.h5", make())
    config = Config(**{**SETTINGS, "strategy": "p2p", "prune": False})
    told = report.forecast(tmp_path / "graph.h5", Options(ranks=(1, 4, 64), config=config))
    rows = {row["ranks"]: row for row in told["rows"] if row["strategy"] == "everybody"}
    assert set(rows) == {4, 64}
    each_way = 203 * (6 + 6 + 5) * 2 * 8  # bytes: rows x widths x products of a layer x itemsize
    for ranks, row in rows.items():
        sent = each_way * (ranks - 1)
        assert row["bytes"]["aggregation"] == {"forward": sent, "backward": sent}
    assert "everybody" in report.table(told)


@pytest.mark.long
@pytest.mark.parametrize("comm", [3], indirect=True)
def test_a_run_is_kept_resumed_and_predicts(comm, tmp_path):
    graph = make(directed=True)
    source = scattered(graph, comm)
    out = comm.bcast(str(tmp_path / "run"))
    config = Config(**SETTINGS, epochs=6, checkpoint_every=2)
    expected = hpgcn.train(source, config.replace(checkpoint_every=0), comm)
    hpgcn.train(source, config.replace(out=out, epochs=4), comm)
    comm.barrier()
    resumed = hpgcn.train(source, config.replace(out=out), comm, resume=out)
    comm.barrier()
    assert resumed["final_loss"] == expected["final_loss"]
    assert resumed["best_epoch"] == expected["best_epoch"]
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], array)
    predicted = hpgcn.predict(source, out, comm)
    if comm.rank == 0:
        logits = oracle.logits("gcn", squared(graph), oracle.features(graph), resumed.weights, 3)
        np.testing.assert_allclose(predicted["logits"], logits, atol=1e-10)
    comm.barrier()


def test_the_sampler_reverses_every_second_epoch():
    sampler = FlipFlop(100, 25, 4)
    first, second, third = (sampler.batch_of(np.arange(100), epoch) for epoch in (1, 2, 3))
    np.testing.assert_array_equal(second, 3 - first)
    assert_differ(third, first)
    assert smallest("flip-flop:25") == "flip-flop:2"
    with pytest.raises(UsageError, match=r"K:B or flip-flop:B, e\.g\. .* or flip-flop:20000"):
        parse("flip-flop:25:25")


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_the_sampler_sends_what_is_counted_before(comm, tmp_path):
    test_mini_batches.test_counters_equal_the_plans_of_batches(
        comm, tmp_path, "p2p", "flip-flop:60", "gcn", True)


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_the_sampler_trains_alike_on_one_rank_and_on_several(comm):
    graph = make(directed=True)
    config = Config(**{**SETTINGS, "strategy": "cover"}, batch="flip-flop:60")
    alone, weights = test_mini_batches.of_one_rank(graph, config)
    found, found_weights, _ = test_mini_batches.curves(scattered(graph, comm), config, comm)
    assert_same_curves(found, alone, 1e-9)
    np.testing.assert_allclose(found_weights, weights, rtol=1e-6, atol=1e-9)


def test_a_plan_counts_batches_of_the_sampler(tmp_path):
    store.write_graph(tmp_path / "graph.h5", make())
    config = Config(strategy="p2p", batch="flip-flop:60")
    told = report.forecast(tmp_path / "graph.h5", Options(ranks=(4,), config=config))
    assert told["batch"] == "flip-flop:60" and {row["steps"] for row in told["rows"]} == {4}


@pytest.mark.long
def test_a_run_goes_on_within_an_epoch_of_the_sampler(tmp_path):
    config = Config(batch="flip-flop:60", epochs=5, checkpoint_every=3, hidden=6, seed=3)
    expected = hpgcn.train(make(), config.replace(checkpoint_every=0))
    out = str(tmp_path / "run")
    hpgcn.train(make(), config.replace(out=out, epochs=2))
    resumed = hpgcn.train(make(), config.replace(out=out), resume=out)
    assert resumed["final_loss"] == expected["final_loss"]
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], array)


def test_parts_of_the_partitioner_are_written_planned_and_trained_on(tmp_path):
    graph = make()
    made = make_partition(graph, 3, method="snake")
    sizes = np.bincount(made.part)
    assert made.method == "snake" and sizes.max() - sizes.min() <= 1
    assert made.statistics["imbalance_nnz"] < 0.1
    store.write_graph(tmp_path / "g.h5", graph)
    parted = tmp_path / "g.p3.h5"
    succeed("partition", tmp_path / "g.h5", "-k", 3, "--method", "snake", "-o", parted)
    assert "snake" in succeed("inspect", parted)
    rows = report.forecast(parted, Options((3,)))["rows"]
    assert {row["parts"] for row in rows} == {"snake", "stored"}
    config = Config(epochs=2, hidden=4, dtype="float64")
    losses = [hpgcn.train(tmp_path / name, config, ranks=k)["final_loss"]
              for name, k in (("g.h5", 1), ("g.p3.h5", 3))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_a_layer_without_an_oracle_says_what_to_add():
    with pytest.raises(LookupError, match=r"no oracle of model 'hops': add the norm of A.*MATRIX"):
        oracle.MATRIX["hops"]


@pytest.mark.parametrize("comm", [3], indirect=True)
def test_the_decoder_and_the_negatives_train_on_links(comm):
    graph = with_links(make(n=150))
    config = Config(task="links", decoder="scaled", negatives="near:2", dtype="float64", hidden=6,
                    output_width=9, epochs=1)
    ours, _ = run(scattered(graph, comm), config, comm, epochs=1)  # with the bytes of its plan
    assert_same_curves(ours, alone(graph, config, epochs=1)[0], 1e-9)
    with pytest.raises(UsageError, match=r"strict_negatives = True: only for .* not near"):
        hpgcn.train(graph, config.replace(strict_negatives=True))

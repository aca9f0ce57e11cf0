"""Predicted bytes and messages of a training step equal counts by rank pairs and closed forms.

For single products with A, tests/planning/test_plan.py compares plans with a simulation of all
ranks.
"""
from copy import copy
from functools import cache
from itertools import product
from math import gcd, prod

import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.model import ModelSpec
from hpgcn.model.parameters import parameter_shapes
from hpgcn.parallel.layout import BlockLayout, split, stages
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.counts.shaped_step import PHASES, LevelSizes, Steps
from hpgcn.planning.counts.traffic import predict_step
from hpgcn.strategies import STRATEGIES, Product
from hpgcn.strategies.grids.summa_plan import BroadcastBlocks, cube_of

SOME = [("p2p", (5,)), ("1d", (5,)), ("mop", (7,)), ("1.5d", (5, 3)), ("1.5d", (2, 3)),
        ("2d", (3, 4)), ("2d", (4, 3)), ("3d", (2, 3, 2)), ("3d", (3, 2, 2))]


@cache
def inputs(widths=(5, 7, 7, 3), *, directed=True, sparse=False, n=23, **settings):
    """Return the PlanInput of a random graph whose layers all use every row."""
    rng = np.random.default_rng(0)
    A = sp.random_array((n, n), density=0.15, rng=rng, format="csr")
    X = rng.standard_normal((n, widths[0]))
    X = sp.csr_array(X) if sparse else X
    graph = Graph.from_scipy(A, X, rng.integers(0, 2, n), symmetrize=not directed)
    return PlanInput(graph, Config(**{"dtype": "float64", "prune": False, **settings}), widths)


def footprint_of(name, shape, graph, offsets=None, **settings):
    if offsets is None:
        offsets = STRATEGIES[name].row_offsets(shape, graph.pointers)
    graph = copy(graph)
    graph.config = Config(**settings)
    return count(graph.ordered, graph, STRATEGIES[name], shape, offsets)


class Sends:
    """Counters of the bytes and messages that P ranks send to each other."""

    def __init__(self, ranks):
        self.counts = np.zeros((2, ranks), np.int64)

    def __call__(self, source, destination, nbytes, messages=1):
        if source != destination and nbytes:
            self.counts[:, source] += int(nbytes), messages

    def allreduce(self, group, nbytes):
        """Count an allreduce.

        The q ranks of `group` send 2 `nbytes` (q - 1) bytes in equal shares.
        """
        total = 2 * int(nbytes) * (len(group) - 1)
        for place, rank in enumerate(group):
            messages = 2 * (len(group) - 1) * (total > 0)
            self.counts[:, rank] += len(range(place, total, len(group))), messages


def count_dense(sends, spec, layout):
    """Count the messages of dense products, softmax and gradients if C ranks share a row block."""
    C, s = layout.columns, spec.itemsize
    groups = [range(rank, rank + C) for rank in range(0, layout.size, C)]
    for group, m in zip(groups, np.diff(layout.offsets)):
        for width in spec.widths[1:]:
            own = np.diff(split(width, C)) * m * s
            for p, q in product(range(C), repeat=2):
                sends["dense", "forward"](group[p], group[q], own[q])
                sends["dense", "backward"](group[p], group[q], own[p])
        sends["dense", "forward"].allreduce(group, m * s)
        sends["dense", "forward"].allreduce(group, m * 8)
    shapes = parameter_shapes(spec).values()
    sizes = sum(np.diff(split(shape[0], C)) * prod(shape[1:]) for shape in shapes) * s
    for j in range(C):
        sends["weights", "backward"].allreduce(range(j, layout.size, C), sizes[j])
    for group in groups:
        for p, q in product(range(C), repeat=2):
            sends["weights", "backward"](group[p], group[q], sizes[p])


def check(footprint):
    """Compare the predicted traffic of every rank with counts by rank pairs."""
    spec, layout, found = footprint.spec, footprint.layout, footprint.prediction
    sends = {key: Sends(layout.size) for key in found.bytes}
    for one in footprint.steps.products(spec, footprint.levels):
        plan = footprint.train_plans[one.layer]
        sends["aggregation", one.phase].counts += plan.traffic.counts(one, spec.itemsize)
    count_dense(sends, spec, layout)
    for key, expected in sends.items():
        assert found.bytes[key].dtype == np.int64
        counts = [found.bytes[key].tolist(), found.messages[key].tolist()]
        assert counts == expected.counts.tolist(), key
    total = sum(each.counts.sum(1) for each in sends.values())
    assert [found.total_bytes(), found.total_messages()] == total.tolist()


@pytest.mark.parametrize("widths, settings", [
    ((5, 7, 7, 3), {"directed": False}), ((2, 9, 17, 30), {"sparse": True}),
    ((2, 9, 17, 30), {"input_dropout": 0.0}), ((11, 5, 2), {"dtype": "float32"}),
    ((6, 1), {"sparse": True}), ((3, 4, 2), {"n": 5})], ids=str)  # with fewer rows than ranks
@pytest.mark.parametrize("name, shape", SOME, ids=str)
def test_steps_are_sums(name, shape, widths, settings):
    check(footprint_of(name, shape, inputs(widths, **settings)))


def test_empty_blocks_send_nothing(monkeypatch):
    monkeypatch.setattr("hpgcn.parallel.pattern_counts.PIECE", 3)  # entries are counted in pieces
    for blocks in ((0, 0, 4, 4, 9, 23, 23), (0, 23, 23, 23, 23, 23, 23)):
        for name, shape in (("2d", (6, 2)), ("3d", (3, 2, 2))):
            check(footprint_of(name, shape, inputs((4, 6, 3)), blocks))


def traffic_of(name, shape, offsets, *given):
    """Return the Traffic object of a strategy on all rows; `given` are its other arguments."""
    strategy = STRATEGIES[name]
    layout = BlockLayout(np.asarray(offsets), strategy.block_grid(shape)[1], 0)
    return strategy.Plan.Traffic((layout, layout), *given)


def predict(traffic, widths, dtype="float32"):
    levels = LevelSizes.of([None] * len(widths), traffic.layout)
    spec = ModelSpec("gcn", widths, dtype)
    traffics = [traffic] * spec.num_layers
    return predict_step(spec, traffics, (levels, levels), traffic.layout, Steps())


@pytest.mark.parametrize("name, shape", [
    ("1.5d", (6, 3)), ("1.5d", (2, 4)), ("2d", (4, 3)), ("2d", (2, 6)), ("3d", (3, 2, 4)),
    ("3d", (5, 1, 2))], ids=str)
def test_closed_forms(name, shape):
    n, f, s = 1003, 45, 4
    rng = np.random.default_rng(0)
    R, L, C = (*shape, 1) if name == "1.5d" else cube_of(shape)
    offsets = np.concatenate([[0], np.sort(rng.integers(1, n, R * L - 1)), [n]])
    if name == "1.5d":
        traffic, sparse = traffic_of(name, shape, offsets, True, shape), 0
    else:
        number = L * (R + C - gcd(R, C))
        nonzeros = rng.integers(1, 90, (R, number))
        layout = BlockLayout(offsets, C, 0)
        blocks = BroadcastBlocks(layout, layout, stages(offsets, R, L, C), nonzeros)
        traffic = traffic_of(name, shape, offsets, shape, (blocks, blocks))
        sparse = (4 + s) * int(nonzeros.sum()) + 8 * number * (n + R)
    found = predict(traffic, (f, f))
    over_layers = (2 if name == "1.5d" else 1) * (L - 1)
    parameters = f * f + f
    expected = {"aggregation": 2 * (s * n * f * (R - 1 + over_layers) + sparse * (C - 1)),
                "dense": 2 * s * n * f * (C - 1) + 2 * (s + 8) * n * (C - 1),
                "weights": 2 * s * parameters * (R * L - 1) + s * parameters * R * L * (C - 1)}
    for kind, nbytes in expected.items():
        assert sum(found.bytes[kind, phase].sum() for phase in PHASES) == nbytes, kind


@pytest.mark.parametrize("P", [1, 2, 3, 4, 6])
def test_mop_moves_two_n_f_whatever_the_graph(P):
    n, f = 24, 12  # P divides both: 2 n f (1 - 1/P) elements a product, evenly
    found = predict(traffic_of("mop", (P,), split(n, P), 1), (f, f, f))
    sent = found.bytes["aggregation", "forward"]
    assert sent.tolist() == [2 * 2 * n * f * 4 * (P - 1) // P // P] * P
    # rows and columns that P does not divide: n f - sum of own rows x own columns, each way
    odd = traffic_of("mop", (3,), (0, 10, 11, 23), 1).counts(Product(0, 7), 4)
    assert odd[0].sum() == 2 * (23 * 7 - (10 * 3 + 1 * 2 + 12 * 2)) * 4


@pytest.mark.parametrize("blocks", [
    (0, 23), (0, 3, 11, 23), (0, 0, 4, 4, 9, 23, 23), (0, 4, 8, 12, 15, 18, 21, 23)], ids=str)
def test_batches_change_messages_alone(blocks):
    graph, shape = inputs((5, 7, 9, 3)), (len(blocks) - 1,)
    whole, *batched = (footprint_of("mop", shape, graph, blocks, pipeline_batches=number)
                       for number in (1, 2, 5, 40))
    for footprint in batched:
        check(footprint)
        found, expected = footprint.prediction, whole.prediction
        assert found.total_bytes() == expected.total_bytes()
        assert found.total_messages() <= footprint.plan.batches * expected.total_messages()
    assert batched[0].plan.batches == min(2, len(blocks) - 1)


def test_literal_mop_in_batches():
    # rows 3, 1, 0 and columns 1, 1, 1 of width 3, float32
    traffic = traffic_of("mop", (3,), (0, 3, 4, 4), 2)
    there_and_back = traffic.counts(Product(0, 3), 4).tolist()
    # there 2 x 3, 2 x 1, 0 elements; back to the others 1, 3, 4
    assert there_and_back[0] == [4 * (6 + 1), 4 * (2 + 3), 4 * (0 + 4)]
    # there: two others, 2 batches of rank 0 and 1 of rank 1; back: 1 of rank 1's, 2 of rank 0's
    assert there_and_back[1] == [4 + 1, 2 + 2, 0 + 3]
    # the bits: a byte a row for each of two others, in one message each
    masked = traffic.counts(Product(0, 3, masked=True, backward=True), 4) - there_and_back
    assert masked.tolist() == [[6, 2, 0], [2, 2, 0]]


def test_literal_two_d():
    # rows 2 + 1, width 3 in columns 2 + 1, float32; blocks of A hold 2, 1, 1 and 0 entries
    layout = BlockLayout(np.array([0, 2, 3]), 2, 0)
    cuts = stages(layout.offsets, 2, 1, 2)
    blocks = BroadcastBlocks(layout, layout, cuts, np.array([[2, 1], [1, 0]]))
    traffic = traffic_of("2d", (2, 2), layout.offsets, (2, 2), (blocks, blocks))
    found = predict(traffic, (3, 3))
    # pointers int64, entries of 4 + 4 bytes, to one other rank
    A = [[3 * 8 + 2 * 8, 3 * 8 + 8], [2 * 8 + 8, 0]]
    H = [[2 * 2 * 4, 2 * 4], [2 * 4, 4]]
    for phase in ("forward", "backward"):
        assert found.bytes["aggregation", phase].tolist() == np.add(A, H).ravel().tolist()
        assert found.messages["aggregation", phase].tolist() == [2, 2, 2, 1]
    # forward: the other's columns of the partial product, and 2 m (4 + 8) / 2 bytes for softmax
    forward = [2 * 4 + 24, 2 * 2 * 4 + 24, 4 + 12, 2 * 4 + 12]
    assert found.bytes["dense", "forward"].tolist() == forward
    assert found.messages["dense", "forward"].tolist() == [1 + 4] * 4
    assert found.bytes["dense", "backward"].tolist() == [16, 8, 8, 4]
    # own rows of W x 3 and own biases: 2 x 3 + 2 and 1 x 3 + 1 numbers, reduced and then gathered
    assert found.bytes["weights", "backward"].tolist() == [32 + 32, 16 + 16] * 2
    assert found.messages["weights", "backward"].tolist() == [2 + 1] * 4


@pytest.mark.parametrize("widths, settings, expected", [
    ((3, 16, 16, 40), {},
     [(0, 3, 0, 0), (1, 16, 0, 0), (2, 16, 0, 0), (2, 16, 1, 1), (1, 16, 0, 1)]),
    ((9, 4, 3), {"precomputed": True}, [(1, 3, 0, 0), (1, 3, 0, 1)]),
    ((3, 16, 7), {"sparse_features": True},
     [(0, 16, 0, 0), (1, 7, 0, 0), (1, 7, 0, 1), (0, 16, 0, 1)])])
def test_products_of_a_step(widths, settings, expected):
    levels = LevelSizes.of([None] * len(widths), BlockLayout(np.array([0, 1]), 1, 0))
    products = Steps().products(ModelSpec("gcn", widths, **settings), (levels, levels))
    assert [(one.layer, one.width, one.masked, one.backward) for one in products] == expected


def test_large_counts_stay_exact():
    n, P = 2**40, 512
    traffic = traffic_of("1d", (P,), np.arange(P + 1) * (n // P), True, (P, 1))
    assert traffic.counts(Product(0, 256), 8)[0].sum() == (P - 1) * n * 256 * 8


def test_default_shapes():
    expected = {1: ((1, 1), (1, 1, 1)), 4: ((2, 2), (2, 1, 2)),
                6: ((3, 2), (3, 1, 2)), 7: ((7, 1), (7, 1, 1)), 8: ((4, 2), (2, 2, 2)),
                12: ((4, 3), (3, 2, 2)), 27: ((9, 3), (3, 3, 3)), 512: ((32, 16), (8, 8, 8))}
    for P, (square, cube) in expected.items():
        shapes = [STRATEGIES[name].default_shape(P) for name in ("1.5d", "2d", "3d")]
        assert shapes == [square, square, cube]
        assert {STRATEGIES[name].default_shape(P) for name in ("p2p", "1d", "mop")} == {(P,)}
    for strategy, P in product(STRATEGIES.values(), range(1, 65)):
        shape = strategy.default_shape(P)
        assert strategy.check_shape(P, shape) == shape


@pytest.mark.parametrize("call, words", [
    (lambda: STRATEGIES["2d"].check_shape(6, (2, 2)),
     "grid 2x2 has 4 ranks, but there are 6: expected RxC with product 6, e.g. 3x2"),
    (lambda: STRATEGIES["2d"].check_shape(6, (6,)), "grid 6: strategy 2d takes RxC"),
    (lambda: STRATEGIES["3d"].check_shape(8, (4, 2)), "grid 4x2: strategy 3d takes RxCxL"),
    (lambda: STRATEGIES["1.5d"].check_shape(6, (3, 4)), "grid 3x4 has 12 ranks"),
    (lambda: STRATEGIES["2d"].check_shape(4, (-2, -2)), "at least 1"),
    (lambda: STRATEGIES["2d"].check_shape(4, (2.5, 2)), "whole number"),
    (lambda: STRATEGIES["1d"].check_shape(0, (0,)), "at least 1"),
    (lambda: ModelSpec("gcn", [4]), "widths 4: expected two or more"),
    (lambda: ModelSpec("gcn", [4, 0, 3]), "widths 4,0,3"),
    (lambda: ModelSpec("gcn", [4, 3], sparse_features=True, precomputed=True), "exclude")])
def test_refusals(call, words):
    with pytest.raises(UsageError) as error:
        call()
    assert words in str(error.value)

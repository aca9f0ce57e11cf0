"""Models on one rank: finite differences, dense reference, limits, initial weights, arrays."""
from dataclasses import replace

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from arrays import assert_all, assert_differ, assert_none, assert_some
from graphs import make, several_labels
from poison import poisoned, poisoned_forward  # noqa: F401 - a fixture
from training import SETTINGS, loss_and_gradient, run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.model import (
    MODELS,
    ModelSpec,
    Parameters,
    find_model,
    keyed_uniform,
    num_parameters,
)
from hpgcn.model.layers.gcn import GraphConvolution
from hpgcn.model.layers.layer import Layer, spmm_first
from hpgcn.model.parameters import parameter_shapes
from hpgcn.model.registry import find_widths, spec_of
from hpgcn.planning.counts.shaped_step import LevelSizes, Steps
from hpgcn.training.files.run_directory import read_run
from hpgcn.training.steps.training_step import evaluate

NEW = ["sage-mean", "sage-gcn", "gin"]
KNOWN = [name for name in SETTINGS if name in oracle.MATRIX]  # others: finite differences alone
# settings of gat: all shapes of heads are compiled
HEADS = {"heads": 4, "output_heads": 4, "hidden": 12}
pytestmark = pytest.mark.usefixtures("poisoned")


def trainer_of(graph, model, **settings):
    heads = HEADS if model == "gat" else {}
    return start(graph, Config(**{"dtype": "float64", **settings, **SETTINGS[model], **heads}))


def logits_of(trainer):
    return trainer.evaluation.model.infer(trainer.evaluation.features)[0]


@pytest.mark.parametrize("model", ["gcn", "sage-mean"])
@pytest.mark.parametrize("settings", [
    {}, {"residual": True}, {"norm": "layer"}, {"jump": "cat", "output_layer": True},
    {"ffn": True, "norm": "layer", "input_layer": True, "output_layer": True}], ids=str)
def test_a_gradient_takes_the_place_of_what_no_layer_reads_again(model, settings, monkeypatch):
    graph = make()
    n, classes = graph.num_rows, graph.header.num_classes

    def train():
        trainer = trainer_of(graph, model, layers=3, hidden=24, prune=False, **settings)
        for epoch in (1, 2):
            trainer.train_epoch(epoch)
            evaluate(trainer.evaluation)
        arrays = trainer.training.model.workspace.arrays.items()
        return trainer.parameters.flat, {name: array.size for name, array in arrays}

    # the same bits as with an array for all gradients
    weights, sizes = train()
    monkeypatch.setattr(Layer, "input_gradient", lambda self, H: self.buffer("ping", *H.shape))
    expected, larger = train()
    np.testing.assert_array_equal(weights, expected)

    # which is not needed, nor for evaluations
    if not settings:
        assert sizes.pop("ping") == n * classes
        assert larger.pop("ping") == n * 24
        assert sizes == larger


def shaken(trainer, size=0.05):
    """Add random numbers to all parameters, so that none is 0 and ReLU has no ties."""
    flat = trainer.parameters.flat
    flat += size * np.random.default_rng(1).standard_normal(flat.size)
    return trainer


def test_registries_agree():
    assert set(MODELS) - set(SETTINGS) == {"gine"} and set(oracle.MATRIX) <= set(MODELS)
    for name, matrix in oracle.MATRIX.items():
        assert (MODELS[name].norm, MODELS[name].self_loops) == matrix


@pytest.mark.parametrize("directed, weighted, sparse, input_dropout", [
    (False, False, False, -1), (True, True, False, -1), (True, False, True, -1),
    (True, True, False, 0)])
@pytest.mark.parametrize("changes", [
    {"layers": 1}, {"layers": 2, "hidden": 5}, {"layers": 3, "hidden": 6, "layer_norm": True},
    {"layers": 2, "hidden": 6, "several": True}], ids=str)
@pytest.mark.parametrize("model", [
    pytest.param(name, marks=[pytest.mark.long] * (name == "gat")) for name in SETTINGS])
def test_every_parameter_by_finite_differences(model, changes, directed, weighted, sparse,
                                               input_dropout):
    graph = make(n=24, f=5, c=5, directed=directed, weighted=weighted, sparse=sparse)
    changes = dict(changes)
    if model == "gat":  # with more layers it has many parameters
        changes["layers"] = min(changes["layers"], 2)
    if changes.pop("several", False):
        graph = several_labels(graph, graph.header.num_classes)
        changes["label_smoothing"] = 0.3
    trainer = trainer_of(graph, model, dropout=0.3, input_dropout=input_dropout, **changes)
    if "layer_norm" in changes:
        assert {"gain0", "shift0"} < set(trainer.parameters.arrays)
    check_gradient(trainer)


def test_every_parameter_with_other_targets_by_finite_differences():
    graph = make(n=24, f=5, c=5, directed=True)
    check_gradient(trainer_of(graph, "gcn", hidden=6, dropout=0.3, label_smoothing=0.3,
                              class_weight="balanced"))


def check_arrays(model, **settings):
    """Check that inference equals training, and steps are independent.

    Inference reuses arrays.
    """
    graph = make(n=40, f=5, c=5, directed=True, weighted=True)
    settings = {"layers": 3, "dropout": 0.0, "seed": 3, "prune": False, **SETTINGS[model],
                **settings}
    settings |= {"attention_dropout": 0.0} | (HEADS if model == "gat" else {})
    trainer = shaken(start(graph, Config(dtype="float64", **settings)))
    view = trainer.training
    first = logits_of(trainer).copy()
    np.testing.assert_allclose(view.model.forward(view.features, 1)[0], first, rtol=1e-12)
    loss, gradient = loss_and_gradient(trainer)
    gradient = gradient.copy()
    again, same = loss_and_gradient(trainer)
    assert loss == again
    assert_all(np.isfinite(first))
    np.testing.assert_array_equal(gradient, same)
    np.testing.assert_array_equal(logits_of(trainer), first)


@pytest.mark.parametrize("hidden", [5, 10])
@pytest.mark.parametrize("model", SETTINGS)
def test_arrays_are_read_before_they_are_written(model, hidden):
    check_arrays(model, hidden=hidden)


class Early(GraphConvolution):
    """A faulty layer that overwrites its result array before it reads its input."""

    def forward(self, H, out, *, keep=False, AX=None):
        out[:] = 0
        return super().forward(H, out, keep=keep, AX=AX)


class Stale(GraphConvolution):
    """A faulty layer that reads numbers left in a work array by another call."""

    def forward(self, H, out, *, keep=False, AX=None):
        left = self.buffer("scratch2", self.rows_out, self.width_out)[0, 0]
        Z, backward = super().forward(H, out, keep=keep, AX=AX)
        Z += 0 * left
        return Z, backward


@pytest.mark.parametrize("kind", [GraphConvolution, Early, Stale])
def test_a_layer_that_misuses_arrays_is_caught(kind, monkeypatch):
    monkeypatch.setitem(MODELS, "gcn", kind)
    if kind is not GraphConvolution:
        monkeypatch.setattr(kind, "forward", poisoned_forward(kind.forward))
        with pytest.raises(AssertionError):
            check_arrays("gcn", hidden=10)
    else:
        check_arrays("gcn", hidden=10)


def check_gradient(trainer):
    flat = shaken(trainer).parameters.flat
    _, gradient = loss_and_gradient(trainer)
    assert np.count_nonzero(gradient) > flat.size / 3
    for i in range(flat.size):
        for h in (1e-6, 1e-7):  # the smaller one where a kink lies within the larger
            before = flat[i]
            flat[i] = before + h
            above, _ = loss_and_gradient(trainer)
            flat[i] = before - h
            below, _ = loss_and_gradient(trainer)
            flat[i] = before
            # a loss is known to a few 1e-16 of itself, and divided by 2 h here
            bound = 5e-15 / h * max(1, above)
            close = pytest.approx((above - below) / (2 * h), rel=2e-5, abs=bound)
            if gradient[i] == close:
                break
        else:
            assert gradient[i] == close, (i, above)


@pytest.mark.parametrize("settings", [{}, {"decay_layers": "all", "hidden": 20},
                                      {"input_dropout": 0.0, "weight_decay": 0.0},
                                      {"layers": 1}, {"weight_decay": 0.1, "layers": 2},
                                      {"layer_norm": True}])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", KNOWN)
def test_three_epochs_equal_the_dense_oracle(model, directed, several, settings):
    graph = make(directed=directed, weighted=True)
    graph = several_labels(graph) if several else graph
    trainer = trainer_of(graph, model, **{"layers": 3, "hidden": 10, "lr": 0.003, **settings})
    losses, expected = oracle.losses(graph, trainer.config, Parameters.initial(trainer.shard.spec),
                                     3)
    _, gradient = loss_and_gradient(trainer)
    assert np.linalg.norm(gradient - expected) < 1e-12 * np.linalg.norm(expected)
    history, _ = run(graph, trainer.config)
    np.testing.assert_allclose([metrics["loss"] for metrics in history], losses, rtol=1e-9)


@pytest.mark.parametrize("norm", ["in", "row", "none"])
@pytest.mark.parametrize("input_dropout", [0.0, 0.4])
@pytest.mark.parametrize("directed", [False, True])
def test_another_norm(directed, input_dropout, norm):
    graph = make(directed=directed, weighted=True)
    trainer = trainer_of(graph, "gcn", layers=2, hidden=10, lr=0.003, norm_adj=norm,
                         input_dropout=input_dropout)
    losses, _ = oracle.losses(graph, trainer.config, Parameters.initial(trainer.shard.spec), 3)
    history, _ = run(graph, trainer.config)
    np.testing.assert_allclose([metrics["loss"] for metrics in history], losses, rtol=1e-9)


def test_the_norm_of_what_arrives_by_hand():
    """With norm_adj="in", logits of three vertices equal PyG's gcn_norm by hand."""
    A = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    graph = hpgcn.Graph.from_scipy(A, np.eye(3), [0, 1, 2], ([0], [1], [2]))
    trainer = trainer_of(graph, "gcn", layers=1, input_dropout=0.0, norm_adj="in")
    trainer.parameters.arrays["W0"][:] = np.eye(3)
    expected = np.array([[1, 0, 0], [2**-0.5, 1 / 2, 0], [3**-0.5, 6**-0.5, 1 / 3]])
    np.testing.assert_allclose(logits_of(trainer), expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", NEW)
def test_logits_of_three_vertices_by_hand(model, sparse):
    """Logits of sage and gin with identity weights equal sums by hand for three vertices."""
    A, X = np.array([[0, 1, 1], [3, 0, 0], [0, 0, 0]]), np.array([[1.0, 4], [2, -2], [6, 8]])
    graph = hpgcn.Graph.from_scipy(A, sp.csr_array(X) if sparse else X, [0, 1, 0], ([0], [1], [2]))
    trainer = trainer_of(graph, model, layers=1, input_dropout=0.0)
    for name, array in trainer.parameters.arrays.items():
        array[:] = np.eye(2) if name.startswith("W") else 0.5 if name.startswith("eps") else 0
    found = logits_of(trainer)
    expected = {"sage-mean": [[1 + 4, 4 + 3], [2 + 1, -2 + 4], [6, 8]],
                "sage-gcn": [[3, 10 / 3], [5 / 4, 10 / 4], [6, 8]],
                "gin": [[1.5 + 8, 6 + 6], [3 + 3, -3 + 12], [9, 12]]}[model]
    np.testing.assert_allclose(found, expected)


def same_with(graph, one, other, layers=2, **settings):
    """Check that two models, whose parameters functions set, give equal losses and logits."""
    found = []
    for model, change in (one, other):
        trainer = trainer_of(graph, model, layers=layers, hidden=10, **settings)
        change(trainer.parameters.arrays)
        found.append((loss_and_gradient(trainer)[0], logits_of(trainer).copy()))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)


def set_all(**values):
    """Return a function that sets parameters to keyed numbers, or by rules for name prefixes."""
    def change(arrays):
        for name, array in arrays.items():
            ending = name.lstrip("Wbeps0123456789")
            key = {"W": 10, "b": 20, "e": 30}[name[0]] + int("".join(filter(str.isdigit, name)))
            array[:] = np.random.default_rng(key).standard_normal(array.shape) / 3
            rule = values.get(name[0] + ending, values.get(name[0]))
            if rule is not None:
                array[:] = rule(array)
    return change


@pytest.mark.parametrize("directed", [False, True])
def test_sage_mean_without_its_own_weights_is_sage_gcn_where_every_vertex_has_a_loop(directed):
    graph = make(directed=directed, weighted=True)
    looped = graph.adjacency.toarray()
    np.fill_diagonal(looped, np.where(np.diag(looped) == 0, 1, np.diag(looped)))
    graph = hpgcn.Graph.from_scipy(looped, graph.features, graph.labels, graph.masks)
    same_with(graph, ("sage-mean", set_all(W_self=np.zeros_like)), ("sage-gcn", set_all()))


def test_sage_mean_with_equal_weights_is_sage_gcn_on_a_ring():
    """On a ring, sage-mean with weights W/3 and 2W/3 equals sage-gcn with W."""
    n = 12
    A = np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)
    X = np.random.default_rng(0).standard_normal((n, 5))
    graph = hpgcn.Graph.from_scipy(A, X, np.arange(n) % 3, ([0, 1, 2, 3], [4, 5], [6, 7]))
    same_with(graph,
              ("sage-mean", set_all(W_self=lambda W: W / 3, W_neighbour=lambda W: 2 * W / 3)),
              ("sage-gcn", set_all()))


def test_without_edges_sage_and_gin_are_perceptrons():
    X = np.abs(np.random.default_rng(0).standard_normal((9, 4)))
    graph = hpgcn.Graph.from_scipy(sp.csr_array((9, 9)), X, np.arange(9) % 3,
                                   ([0, 1, 2, 3], [4, 5], [6, 7]))
    same_with(graph, ("sage-mean", set_all()), ("gcn", set_all()))
    rng = np.random.default_rng(5)
    trainer = trainer_of(graph, "gin", layers=1)
    w = trainer.parameters.arrays
    for array in w.values():
        array[:] = rng.standard_normal(array.shape)
    inner = np.maximum((1 + w["eps0"]) * X.astype(np.float32) @ w["W0_a"] + w["b0_a"], 0)
    np.testing.assert_allclose(logits_of(trainer), inner @ w["W0_b"] + w["b0_b"])


def test_gin_with_epsilon_minus_one_forgets_the_vertex():
    """With eps = -1, gin sums only neighbors.

    An isolated vertex gives the result of an empty row.
    """
    graph = make(weighted=True)
    trainer = shaken(trainer_of(graph, "gin", layers=1), 0.5)
    trainer.parameters.arrays["eps0"][:] = -1
    found = logits_of(trainer)
    w = trainer.parameters.arrays
    alone = found[graph.degree_row == 0]
    assert alone.size
    empty = np.maximum(w["b0_a"], 0) @ w["W0_b"] + w["b0_b"]
    np.testing.assert_allclose(alone, np.broadcast_to(empty, alone.shape))
    S = oracle.normalized(graph, "none", False) @ oracle.features(graph)
    expected = np.maximum(S @ w["W0_a"] + w["b0_a"], 0) @ w["W0_b"] + w["b0_b"]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_evaluation_has_no_dropout_and_global_counts():
    graph = make()
    trainer = trainer_of(graph, "gcn", hidden=10, dropout=0.9)
    found = evaluate(trainer.evaluation)
    A, H = oracle.normalized(graph), oracle.features(graph)
    H = np.maximum(A @ H @ trainer.parameters.weights[0] + trainer.parameters.biases[0], 0)
    logits = A @ H @ trainer.parameters.weights[1] + trainer.parameters.biases[1]
    right = logits.argmax(1) == graph.labels
    for key in ("train", "val", "test"):
        assert found[f"{key}_acc"] == pytest.approx(right[graph.masks[key]].mean())
    val = np.flatnonzero(graph.masks["val"])
    soft = np.exp(logits[val])
    assert found["val_loss"] == pytest.approx(-np.log((soft / soft.sum(1, keepdims=True))[
        np.arange(val.size), graph.labels[val]]).mean())


def initial(model, *widths, seed=7):
    return Parameters.initial(ModelSpec(model, widths, seed=seed))


def test_initial_weights_are_keyed():
    one = initial("gcn", 5, 4, 3)
    assert one.flat.tobytes() == initial("gcn", 5, 4, 3).flat.tobytes()
    assert_differ(initial("gcn", 5, 4, 3, seed=8).flat, one.flat)
    assert np.abs(one.weights[0]).max() <= np.sqrt(6 / 9)
    assert_none(one.biases[0])
    # a layer's weights do not depend on how many layers there are
    np.testing.assert_array_equal(initial("gcn", 5, 4, 3, 2).weights[0], one.weights[0])
    draws = keyed_uniform(0, "W0", 100_000)
    assert 0 <= draws.min() <= draws.max() < 1 and abs(draws.mean() - 0.5) < 0.005


def test_initial_weights_are_keyed_by_name():
    sage = initial("sage-mean", 5, 4, 3)
    assert list(sage.arrays) == ["W0_self", "W0_neighbour", "W1_self", "W1_neighbour", "b0", "b1"]
    assert_differ(sage.arrays["W0_self"], sage.arrays["W0_neighbour"])
    deeper = initial("sage-mean", 5, 4, 3, 2)
    np.testing.assert_array_equal(deeper.arrays["W1_neighbour"], sage.arrays["W1_neighbour"])
    gin = initial("gin", 5, 4, 3)
    assert {name: array.shape for name, array in gin.arrays.items()} == {
        "W0_a": (5, 4), "W0_b": (4, 4), "W1_a": (4, 4), "W1_b": (4, 3),
        "b0_a": (4,), "b0_b": (4,), "eps0": (1,), "b1_a": (4,), "b1_b": (3,), "eps1": (1,)}
    assert initial("gin", 5, 3).arrays["W0_a"].shape == (5, 3)
    for array in gin.arrays.values():
        (assert_some if array.ndim == 2 else assert_none)(array)
    np.testing.assert_array_equal(initial("sage-gcn", 5, 4).flat, initial("gcn", 5, 4).flat)


def test_views_share_the_flat_array():
    parameters = Parameters.zeros(ModelSpec("gcn", (3, 2, 4), "float64"))
    parameters.weights[1][:] = 1
    parameters.biases[0][:] = 2
    assert parameters.flat.tolist() == [0] * 6 + [1] * 8 + [2] * 2 + [0] * 4
    assert list(parameters.arrays) == ["W0", "W1", "b0", "b1"]


def products(*widths, **options):
    """Return widths of the products with A, and of those with A^T, in a training step."""
    spec = ModelSpec(options.pop("architecture", "gcn"), widths, **options)
    levels = len(widths)
    sizes = LevelSizes([np.array([50])] * levels, [True] * levels, [50] * levels,
                       np.ones((2, 1), np.int64))
    found = Steps().products(spec, (sizes, sizes))
    return [[each.width for each in found if each.backward == backward]
            for backward in (False, True)]


def test_order_of_products():
    assert spmm_first(3, 5) and not spmm_first(5, 5)
    assert spmm_first(5, 5, narrows=True) and not spmm_first(3, 5, sparse=True)
    assert products(128, 128, 128, 40) == [[128, 128, 40], [40, 128, 128]]
    assert products(3, 16, 7) == [[3, 7], [7]]
    assert products(128, 128, 40, precomputed=True) == [[40], [40]]
    assert products(3, 16, 7, architecture="gin") == [[3, 16], [16]]
    assert products(9, 4, 7, architecture="sage-mean") == [[4, 4], [4, 4]]
    assert products(9, 4, 7, architecture="sage-mean", precomputed=True) == [[4], [4]]
    assert num_parameters(ModelSpec("gcn", (3, 16, 7))) == 3 * 16 + 16 + 16 * 7 + 7


@pytest.mark.parametrize("model, first, every", [
    ("gcn", 20, 32), ("sage-gcn", 20, 32), ("sage-mean", 40, 64), ("gin", 36, 64)])
def test_what_decays_leads(model, first, every):
    spec = ModelSpec(model, (5, 4, 3))
    parameters = Parameters.zeros(spec)
    assert (parameters.decayed("first"), parameters.decayed("all")) == (first, every)
    for name, array in parameters.arrays.items():
        array[:] = 2 if name.startswith("W0") else 1 if name.startswith("W") else 0
    assert_all(parameters.flat[:first] == 2)
    assert_all(parameters.flat[first:every] == 1)
    assert_none(parameters.flat[every:])
    assert num_parameters(spec) == parameters.flat.size
    assert num_parameters(replace(spec, norm="layer")) == parameters.flat.size + 2 * 4


@pytest.mark.parametrize("model", NEW)
@pytest.mark.parametrize("input_dropout", [-1, 0])
def test_buffers_are_made_once(model, input_dropout):
    trainer = trainer_of(make(), model, layers=3, hidden=10, input_dropout=input_dropout)
    work = trainer.training.model.workspace.arrays
    trainer.train_epoch(1)
    evaluate(trainer.evaluation)
    before = {name: array.ctypes.data for name, array in work.items()}
    features = trainer.training.features.arrays()
    kept = [array.copy() for array in features]
    for epoch in range(2, 5):
        trainer.train_epoch(epoch)
        evaluate(trainer.evaluation)
    assert {name: array.ctypes.data for name, array in work.items()} == before
    # X and A X are read, never written
    for pair in zip(kept, features):
        np.testing.assert_array_equal(*pair)


@pytest.mark.long
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", SETTINGS)
def test_a_run_is_stored_and_predicts(tmp_path, model, sparse, layers):
    graph, out = make(directed=True, sparse=sparse), tmp_path / "run"
    config = Config(**{"out": str(out), "epochs": 1, "hidden": 10, "layers": layers,
                       "dtype": "float64", "input_dropout": 0.0, "layer_norm": layers == 3,
                       **SETTINGS[model], **(HEADS if model == "gat" else {})})
    hpgcn.train(graph, config)
    weights, settings, _ = read_run(out)
    assert find_model(options_of(**settings)) == model
    options = config
    spec = spec_of(options, model, find_widths(options, model, 13, 5))
    assert sorted(weights) == sorted(parameter_shapes(spec))
    found = hpgcn.predict(graph, out)
    if model in KNOWN:
        A = oracle.normalized(graph, *oracle.MATRIX[model])
        expected = oracle.logits(model, A, oracle.features(graph), weights, layers)
        np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
    assert ("embedding" in found) == (len(spec.layers) > 1)
    assert len(spec.layers) == 1 or found["embedding"].shape == (203, spec.widths[-2])


def options_of(**settings):
    return Config(**settings)


def test_a_model_file_that_does_not_fit_is_one_line():
    good = initial("gin", 5, 4, 3).arrays
    options = options_of(model="gin", layers=2)
    assert Parameters.stored(good, options, "m.h5")[1].widths == (5, 4, 3)
    for name, shape, message in (  # without it, where there is no shape
            ("W1_a", None, "is missing"), ("eps1", None, r"has shape None, expected \(1,\)"),
            ("b0_a", 3, r"has shape \(3,\), expected \(4,\)"), ("b1_b", None, "is missing"),
            ("more", 2, r"has shape \(2,\), expected None"), ("W0_a", 4, "is missing or not a"),
            ("W1_a", (4, 9), r"has shape \(4, 9\), expected \(4, 4\)")):
        arrays = {key: array for key, array in good.items() if key != name}
        if shape is not None:
            arrays[name] = np.zeros(shape)
        with pytest.raises(DataError, match=f"m.h5: weights/{name} {message}"):
            Parameters.stored(arrays, options, "m.h5")
    with pytest.raises(DataError, match=r"m.h5: weights/gain0 has shape None, expected \(4,\)"):
        Parameters.stored(good, replace(options, norm="layer"), "m.h5")


def test_metrics_of_several_labels_by_hand():
    """Micro-F1 and loss of three vertices with several labels equal numbers by hand."""
    y = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    graph = hpgcn.Graph.from_scipy(np.zeros((3, 3)), np.eye(3), y, ([0], [1], [2]))
    trainer = trainer_of(graph, "gcn", layers=1)
    found = trainer.evaluation.loss.evaluate(np.array([[2.0, 0.5, -1], [-1, -1, 0], [-3, -3, -3]]))
    assert (found["train_acc"], found["val_acc"], found["test_acc"]) == (2 / 3, 0, 0)
    assert found["val_loss"] == pytest.approx(np.log([1 + np.e, 1 + 1 / np.e, 2]).mean())
    empty = hpgcn.Graph.from_scipy(np.zeros((3, 3)), np.eye(3), y, ([0], [], []))
    found = evaluate(trainer_of(empty, "gcn", layers=1).evaluation)
    assert found["val_acc"] is found["test_acc"] is found["val_loss"] is None


def test_settings_name_a_model():
    assert find_model(options_of()) == "gcn"
    assert [find_model(options_of(**settings)) for settings in SETTINGS.values()] == list(SETTINGS)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("model", ["gcn", *NEW])
def test_gradients_without_A_H_are_the_same(model, layer_norm, monkeypatch):
    """Gradients are equal whether layers store A H or compute it again in the backward."""
    graph = make(n=60, f=5, c=20, directed=True, weighted=True)
    found, held = [], []
    for drops in (False, True):
        monkeypatch.setattr("hpgcn.training.setup.run_plan.drops_AX", lambda *_, drops=drops: drops)
        trainer = shaken(trainer_of(graph, model, layers=2, hidden=10, dropout=0.3,
                                    layer_norm=layer_norm))
        found.append(loss_and_gradient(trainer))
        held.append("T1" in trainer.training.model.workspace.arrays)
    assert held == [True, False] and found[0][0] == found[1][0]
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-12)


def test_normalization_of_a_directed_graph():
    """The normalized matrix of a directed graph equals the table in docs/models.md."""
    A = np.zeros((3, 3))
    A[[1, 2, 2], [0, 0, 1]] = 1
    found = NormalizedAdjacency(Graph.from_scipy(A), dtype=np.float64).block(0, 3).toarray()
    expected = [[3 ** -0.5, 0, 0], [6 ** -0.5, 1 / 2, 0], [1 / 3, 6 ** -0.5, 3 ** -0.5]]
    np.testing.assert_allclose(found, expected)

    # as gcn_norm of PyG has them, loops last
    source, target = np.array([[0, 0, 1, 0, 1, 2], [1, 2, 2, 0, 1, 2]])
    factor = np.bincount(target) ** -0.5
    of_pyg = np.zeros((3, 3))
    of_pyg[target, source] = factor[source] * factor[target]
    expected = [[1, 0, 0], [2 ** -0.5, 1 / 2, 0], [3 ** -0.5, 6 ** -0.5, 1 / 3]]
    np.testing.assert_allclose(of_pyg, expected)

    undirected = NormalizedAdjacency(Graph.from_scipy(A, symmetrize=True), dtype=np.float64)
    np.testing.assert_allclose(undirected.block(0, 3).toarray(), np.full((3, 3), 1 / 3))

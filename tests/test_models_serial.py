"""GraphSAGE and GIN, serial: gradients by finite differences, the dense oracle, limits, what is stored and read."""
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from graphs import make

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost import Step
from hpgcn.cost.step import MODELS as NAMES
from hpgcn.cost.step import num_parameters, shapes
from hpgcn.errors import DataError, UsageError
from hpgcn.graph import Graph
from hpgcn.model import MODELS, Parameters
from hpgcn.operator import Operator
from hpgcn.rundir import read_run
from hpgcn.trainer import Trainer

SETTINGS = {"gcn": {"model": "gcn"}, "sage-mean": {"model": "sage"}, "sage-gcn": {"model": "sage", "aggregator": "gcn"},
            "gin": {"model": "gin"}}
NEW = ["sage-mean", "sage-gcn", "gin"]


def trainer_of(graph, model, **settings):
    return Trainer(graph, Config(dtype="float64", **SETTINGS[model], **settings), SerialComm(), warm=False)


def loss_and_gradient(trainer, epoch=1):
    logits, backward = trainer.training.model.forward(trainer.training.X, epoch)
    total, G = trainer.training.loss.gradient(logits)
    return total / trainer.training.loss.count["train"], backward(G).flat


def shaken(trainer, size=0.05):
    """Move all parameters, so that biases and epsilon are not 0 and ReLU has no ties."""
    flat = trainer.parameters.flat
    flat += size * np.random.default_rng(1).standard_normal(flat.size)
    return trainer


def test_registries_agree():
    assert tuple(MODELS) == NAMES == tuple(SETTINGS) == tuple(oracle.MATRIX)
    assert {name: (kind.norm, kind.self_loops) for name, kind in MODELS.items()} == oracle.MATRIX


@pytest.mark.parametrize("directed, weighted, sparse, input_dropout", [
    (False, False, False, -1), (True, True, False, -1), (True, False, True, -1), (True, True, False, 0)])
@pytest.mark.parametrize("layers, hidden", [(1, 4), (2, 4), (2, 11), (3, 12)])
@pytest.mark.parametrize("model", NEW)
def test_every_parameter_by_finite_differences(model, layers, hidden, directed, weighted, sparse, input_dropout):
    graph = make(n=24, f=6, c=7 if layers == 1 else 3, directed=directed, weighted=weighted, sparse=sparse)
    check_gradient(trainer_of(graph, model, layers=layers, hidden=hidden, dropout=0.3, input_dropout=input_dropout))


@pytest.mark.parametrize("layers, hidden", [(2, 4), (3, 9)])
@pytest.mark.parametrize("model", SETTINGS)
def test_every_parameter_with_layer_norm_by_finite_differences(model, layers, hidden):
    graph = make(n=24, f=6, c=3, directed=True, weighted=True)
    trainer = trainer_of(graph, model, layers=layers, hidden=hidden, dropout=0.3, layer_norm=True)
    assert {"gain0", "shift0"} < set(trainer.parameters.arrays)
    check_gradient(trainer)


@pytest.mark.parametrize("model", SETTINGS)
def test_every_parameter_with_several_labels_by_finite_differences(model):
    check_gradient(trainer_of(several_labels(make(n=24, f=6, directed=True)), model, hidden=5, dropout=0.3))


def several_labels(graph, t=4):
    y = (np.random.default_rng(7).random((graph.num_rows, t)) < 0.4).astype(float)
    return hpgcn.Graph.from_scipy(graph.adjacency, graph.features, y, graph.masks)


def check_gradient(trainer):
    flat = shaken(trainer).parameters.flat
    _, gradient = loss_and_gradient(trainer)
    assert np.count_nonzero(gradient) > flat.size / 3
    for i in range(flat.size):
        before = flat[i]
        flat[i] = before + 1e-6
        above, _ = loss_and_gradient(trainer)
        flat[i] = before - 1e-6
        below, _ = loss_and_gradient(trainer)
        flat[i] = before
        rounding = 5e-9 * max(1, above)  # a loss is known to a few 1e-16 of itself, and divided by 2e-6 here
        assert gradient[i] == pytest.approx((above - below) / 2e-6, rel=2e-5, abs=rounding), (i, above)


@pytest.mark.parametrize("settings", [{}, {"decay_layers": "all", "hidden": 30}, {"input_dropout": 0.0},
                                      {"layers": 1}, {"weight_decay": 0.1, "layers": 2}, {"layer_norm": True}])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("model", SETTINGS)
def test_twenty_epochs_equal_the_dense_oracle(model, directed, several, settings):
    graph = make(directed=directed, weighted=True)
    graph = several_labels(graph) if several else graph
    trainer = trainer_of(graph, model, **{"layers": 3, "hidden": 7, "lr": 0.003, **settings})
    initial = Parameters.initial(trainer.widths, "float64", 0, model, trainer.config.layer_norm)
    expected, slope = oracle.losses(graph, trainer.config, initial, 20)
    _, gradient = loss_and_gradient(trainer)
    assert np.linalg.norm(gradient - slope) < 1e-12 * np.linalg.norm(slope)
    np.testing.assert_allclose([trainer.step(e)["loss"] for e in range(1, 21)], expected, rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", NEW)
def test_logits_of_three_vertices_by_hand(model, sparse):
    """Vertex 0 reads 1 and 2, vertex 1 reads 0 (weight 3), vertex 2 reads nobody; all matrices are the identity."""
    A, X = np.array([[0, 1, 1], [3, 0, 0], [0, 0, 0]]), np.array([[1.0, 4], [2, -2], [6, 8]])
    graph = hpgcn.Graph.from_scipy(A, sp.csr_array(X) if sparse else X, [0, 1, 0], ([0], [1], [2]))
    trainer = trainer_of(graph, model, layers=1, input_dropout=0.0)
    for name, array in trainer.parameters.arrays.items():
        array[:] = np.eye(2) if name.startswith("W") else 0.5 if name.startswith("eps") else 0
    found, _ = trainer.evaluation.model.infer(trainer.evaluation.X)
    expected = {"sage-mean": [[1 + 4, 4 + 3], [2 + 1, -2 + 4], [6, 8]],
                "sage-gcn": [[3, 10 / 3], [5 / 4, 10 / 4], [6, 8]],
                "gin": [[1.5 + 8, 6 + 6], [3 + 3, -3 + 12], [9, 12]]}[model]
    np.testing.assert_allclose(found, expected)


def same_with(graph, one, other, layers=2, **settings):
    """Losses of an epoch, and logits, of two models whose parameters `other` takes from `one`."""
    found = []
    for model, change in (one, other):
        trainer = trainer_of(graph, model, layers=layers, hidden=9, **settings)
        change(trainer.parameters.arrays)
        found.append((loss_and_gradient(trainer)[0], trainer.evaluation.model.infer(trainer.evaluation.X)[0].copy()))
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)


def set_all(**values):
    """Parameters set by the beginning of their names; W{l} of every kind to keyed numbers of layer l."""
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
    """Each vertex has two neighbours: mean of three = (own + 2 mean of two) / 3."""
    n = 12
    A = np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)
    X = np.random.default_rng(0).standard_normal((n, 4))
    graph = hpgcn.Graph.from_scipy(A, X, np.arange(n) % 3, ([0, 1, 2, 3], [4, 5], [6, 7]))
    same_with(graph, ("sage-mean", set_all(W_self=lambda W: W / 3, W_neighbour=lambda W: 2 * W / 3)),
              ("sage-gcn", set_all()))


def test_without_edges_sage_and_gin_are_perceptrons():
    X = np.abs(np.random.default_rng(0).standard_normal((9, 4)))
    graph = hpgcn.Graph.from_scipy(sp.csr_array((9, 9)), X, np.arange(9) % 3, ([0, 1, 2, 3], [4, 5], [6, 7]))
    same_with(graph, ("sage-mean", set_all()), ("gcn", set_all()))
    rng = np.random.default_rng(5)
    trainer = trainer_of(graph, "gin", layers=1)
    w = trainer.parameters.arrays
    for array in w.values():
        array[:] = rng.standard_normal(array.shape)
    expected = np.maximum((1 + w["eps0"]) * X.astype(np.float32) @ w["W0_a"] + w["b0_a"], 0) @ w["W0_b"] + w["b0_b"]
    np.testing.assert_allclose(trainer.evaluation.model.infer(trainer.evaluation.X)[0], expected)


def test_gin_with_epsilon_minus_one_forgets_the_vertex():
    """Then it sums neighbours alone: isolated vertices get what an empty row gets, whatever their features."""
    graph = make(weighted=True)
    trainer = shaken(trainer_of(graph, "gin", layers=1), 0.5)
    trainer.parameters.arrays["eps0"][:] = -1
    found = trainer.evaluation.model.infer(trainer.evaluation.X)[0]
    w = trainer.parameters.arrays
    alone = np.flatnonzero(graph.degree_row == 0)
    assert alone.size
    np.testing.assert_allclose(found[alone], np.tile(np.maximum(w["b0_a"], 0) @ w["W0_b"] + w["b0_b"], (alone.size, 1)))
    A = oracle.normalised(graph, "none", False)
    np.testing.assert_allclose(found, np.maximum(A @ oracle.features(graph) @ w["W0_a"] + w["b0_a"], 0) @ w["W0_b"]
                               + w["b0_b"], atol=1e-12)


def test_initial_weights_are_keyed_by_name():
    sage = Parameters.initial([5, 4, 3], "float32", 7, "sage-mean")
    assert list(sage.named()) == ["W0_self", "W0_neighbour", "W1_self", "W1_neighbour", "b0", "b1"]
    assert np.any(sage.arrays["W0_self"] != sage.arrays["W0_neighbour"])
    deeper = Parameters.initial([5, 4, 3, 2], "float32", 7, "sage-mean")
    np.testing.assert_array_equal(deeper.arrays["W1_neighbour"], sage.arrays["W1_neighbour"])
    gin = Parameters.initial([5, 4, 3], "float32", 7, "gin")
    assert {name: array.shape for name, array in gin.named().items()} == {
        "W0_a": (5, 4), "W0_b": (4, 4), "W1_a": (4, 4), "W1_b": (4, 3),
        "b0_a": (4,), "b0_b": (4,), "eps0": (1,), "b1_a": (4,), "b1_b": (3,), "eps1": (1,)}
    assert Parameters.zeros([5, 3], "float32", "gin").arrays["W0_a"].shape == (5, 3)
    assert all(array.any() == (array.ndim == 2) for array in gin.named().values())
    np.testing.assert_array_equal(Parameters.initial([5, 4], "float32", 7, "sage-gcn").flat,
                                  Parameters.initial([5, 4], "float32", 7).flat)


@pytest.mark.parametrize("model, first, every", [("gcn", 20, 32), ("sage-gcn", 20, 32), ("sage-mean", 40, 64),
                                                 ("gin", 36, 64)])
def test_what_decays_leads(model, first, every):
    parameters = Parameters.zeros([5, 4, 3], "float64", model)
    assert (parameters.decayed("first"), parameters.decayed("all")) == (first, every)
    for name, array in parameters.arrays.items():
        array[:] = 2 if name.startswith("W0") else 1 if name.startswith("W") else 0
    assert np.all(parameters.flat[:first] == 2)
    assert np.all(parameters.flat[first:every] == 1)
    assert not parameters.flat[every:].any()
    assert num_parameters([5, 4, 3], model) == parameters.flat.size
    assert num_parameters([5, 4, 3], model, True) == parameters.flat.size + 2 * 4


def test_what_a_step_multiplies():
    step = Step((3, 16, 7), model="gin")
    assert [one.width for one in step.forward] == [3, 16]
    assert [(one.layer, one.width, one.masked) for one in step.backward] == [(1, 16, False)]
    assert step.linear == ((1, 16), (1, 16), (1, 16), (2, 7))  # (level, width): both of layer 0 on the rows it computes
    assert step.gathered == ((2, 7), (1, 16), (1, 16), (1, 16))
    assert not any(one.masked for one in Step((9, 4, 8, 2), model="sage-mean").backward)
    assert any(one.masked for one in Step((9, 4, 8, 2), model="sage-gcn").backward)
    assert Step((3, 16, 7), model="sage-mean").linear == ((1, 16), (1, 16), (2, 7), (1, 7))
    assert Step((3, 16, 7), model="sage-mean").gathered == ((2, 7), (1, 7), (1, 16))
    assert Step((9, 4, 7), model="sage-mean").gathered == ((2, 7), (1, 4), (0, 4))
    assert Step((9, 4, 7), model="sage-mean", constant=True).gathered == ((2, 7), (1, 4))
    assert Step((9, 4, 7)).gathered == ((2, 7), (0, 4))
    assert Step((9, 4, 7)).row_sums == (("forward", 2, 4), ("forward", 2, 8))
    assert Step((9, 4, 4, 7), multilabel=True).row_sums == ()
    assert Step((9, 4, 7), 8, multilabel=True, layer_norm=True).row_sums == (
        ("forward", 1, 8), ("forward", 1, 8), ("backward", 1, 16))
    with pytest.raises(UsageError, match=r"model sage: expected one of gcn, sage-mean, sage-gcn, gin"):
        Step((3, 2), model="sage")


@pytest.mark.parametrize("model", NEW)
@pytest.mark.parametrize("input_dropout", [-1, 0])
def test_buffers_are_made_once(model, input_dropout):
    trainer = trainer_of(make(), model, layers=3, hidden=9, input_dropout=input_dropout)
    trainer.step(1)
    trainer.evaluate()
    before = {name: array.ctypes.data for name, array in trainer.buffers.flat.items()}
    X = trainer.training.X if isinstance(trainer.training.X, tuple) else (trainer.training.X,)
    kept = [x.copy() for x in X]
    for epoch in range(2, 5):
        trainer.step(epoch)
        trainer.evaluate()
    assert {name: array.ctypes.data for name, array in trainer.buffers.flat.items()} == before
    assert all(np.array_equal(*pair) for pair in zip(kept, X))  # X and A X are read, never written


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", SETTINGS)
def test_a_run_is_stored_and_predicts(tmp_path, model, sparse, layers):
    graph, out = make(directed=True, sparse=sparse), tmp_path / "run"
    config = Config(out=str(out), epochs=4, hidden=6, layers=layers, dtype="float64", input_dropout=0.0,
                    layer_norm=layers == 3, **SETTINGS[model])
    hpgcn.train(graph, config)
    weights, settings, _ = read_run(out)
    assert Config(**settings).architecture == model
    assert sorted(weights) == sorted(shapes([13, *[6] * (layers - 1), 5], model, layer_norm=True))
    found = hpgcn.predict(graph, out)
    A = oracle.normalised(graph, *oracle.MATRIX[model])
    expected = oracle.logits(model, A, oracle.features(graph), weights, layers)
    np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
    assert ("embedding" in found) == (layers > 1)
    assert layers == 1 or found["embedding"].shape == (203, 6)


def test_a_model_file_that_does_not_fit_is_one_line():
    good = Parameters.initial([5, 4, 3], "float32", 0, "gin").named()
    assert Parameters.stored(good, "float64", 2, "gin", False, "m.h5")[1] == [5, 4, 3]
    bad = {"weights/W1_a is missing": {k: v for k, v in good.items() if k != "W1_a"},
           r"weights/b0_a has shape \(3,\), expected \(4,\)": {**good, "b0_a": np.zeros(3)},
           r"weights/eps1 has shape None, expected \(1,\)": {k: v for k, v in good.items() if k != "eps1"},
           r"weights/more has shape \(2,\), expected None": {**good, "more": np.zeros(2)},
           r"weights/W1_a has shape \(4, 9\), expected \(4, 4\)": {**good, "W1_a": np.zeros((4, 9))},
           "weights/W0_a is missing or no matrix": {**good, "W0_a": np.zeros(4)},
           "weights/b1_b is missing": {k: v for k, v in good.items() if k != "b1_b"}}
    for message, arrays in bad.items():
        with pytest.raises(DataError, match=f"m.h5: {message}"):
            Parameters.stored(arrays, "float32", 2, "gin", False, "m.h5")
    with pytest.raises(DataError, match=r"m.h5: weights/gain0 has shape None, expected \(4,\)"):
        Parameters.stored(good, "float32", 2, "gin", True, "m.h5")


def test_metrics_of_several_labels_by_hand():
    """One row a mask: (true positives, false positives, false negatives) = (1, 1, 0), (0, 0, 2), (0, 0, 0)."""
    y = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    graph = hpgcn.Graph.from_scipy(np.zeros((3, 3)), np.eye(3), y, ([0], [1], [2]))
    trainer = trainer_of(graph, "gcn", layers=1)
    found = trainer.evaluation.loss.evaluate(np.array([[2.0, 0.5, -1], [-1, -1, 0], [-3, -3, -3]]))
    assert (found["train_acc"], found["val_acc"], found["test_acc"]) == (2 / 3, 0, 0)
    assert found["val_loss"] == pytest.approx((np.log(1 + np.e) + np.log(1 + 1 / np.e) + np.log(2)) / 3)
    empty = hpgcn.Graph.from_scipy(np.zeros((3, 3)), np.eye(3), y, ([0], [], []))
    found = trainer_of(empty, "gcn", layers=1).evaluate()
    assert found["val_acc"] is found["test_acc"] is found["val_loss"] is None


def test_settings():
    assert Config().architecture == "gcn"
    assert Config(model="sage").architecture == "sage-mean"
    assert Config(model="sage", aggregator="gcn").architecture == "sage-gcn"
    with pytest.raises(UsageError, match="aggregator = gcn: model gin takes none"):
        Config(model="gin", aggregator="gcn")
    with pytest.raises(UsageError, match="did you mean sage"):
        Config(model="sagee")


@pytest.mark.parametrize("model", NEW)
def test_tiny_and_edgeless_graphs_train(model):
    for n in (1, 2):
        graph = hpgcn.Graph.from_scipy(sp.csr_array((n, n)), np.ones((n, 3)), np.arange(n), ([0], [], []))
        assert np.isfinite(hpgcn.train(graph, Config(epochs=3, **SETTINGS[model]))["final_loss"])


@pytest.mark.parametrize("model", NEW)
def test_training_learns(model):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = np.eye(3)[y] + rng.standard_normal((300, 3))
    A = (rng.random((300, 300)) < np.where(y[:, None] == y, 0.05, 0.005)).astype(float)
    masks = np.arange(300) < 60, (np.arange(300) >= 60) & (np.arange(300) < 120), np.arange(300) >= 120
    graph = hpgcn.Graph.from_scipy(A, X, y, masks, symmetrize=True)
    summary = hpgcn.train(graph, Config(lr=0.02, epochs=150, dropout=0.2, hidden=16, **SETTINGS[model]))
    assert summary["test_acc"] > 0.85


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("model", SETTINGS)
def test_gradients_without_T_are_the_same(model, layer_norm, monkeypatch):
    """Widths rise in every layer, so that each multiplies by A first."""
    graph = make(n=60, f=4, c=19, directed=True, weighted=True)
    found, held = [], []
    for lean in (False, True):
        monkeypatch.setattr("hpgcn.trainer.choose_lean", lambda *_, lean=lean: lean)
        trainer = trainer_of(graph, model, layers=2, hidden=11, dropout=0.3, layer_norm=layer_norm)
        trainer = shaken(trainer)
        found.append(loss_and_gradient(trainer))
        held.append("T1" in trainer.buffers.flat)
    assert held == [True, False]
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-12)


def test_normalisation_of_a_directed_graph():
    """The table of docs/models.md: edges 0 -> 1, 0 -> 2, 1 -> 2, stored as a[target, source]."""
    A = np.zeros((3, 3))
    A[[1, 2, 2], [0, 0, 1]] = 1
    found = Operator(Graph.from_scipy(A), dtype=np.float64).block(0, 3).toarray()
    expected = [[3 ** -0.5, 0, 0], [6 ** -0.5, 1 / 2, 0], [1 / 3, 6 ** -0.5, 3 ** -0.5]]
    np.testing.assert_allclose(found, expected)

    source, target = np.array([[0, 0, 1, 0, 1, 2], [1, 2, 2, 0, 1, 2]])  # as gcn_norm of PyG has them, loops last
    factor = np.bincount(target) ** -0.5
    of_pyg = np.zeros((3, 3))
    of_pyg[target, source] = factor[source] * factor[target]
    np.testing.assert_allclose(of_pyg, [[1, 0, 0], [2 ** -0.5, 1 / 2, 0], [3 ** -0.5, 6 ** -0.5, 1 / 3]])

    undirected = Operator(Graph.from_scipy(A, symmetrize=True), dtype=np.float64).block(0, 3).toarray()
    np.testing.assert_allclose(undirected, np.full((3, 3), 1 / 3))

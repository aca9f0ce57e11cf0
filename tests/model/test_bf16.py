"""Training with bf16 rows on one rank equals NumPy code that rounds at the documented places."""
import numpy as np
import oracle
import pytest
from graphs import make
from training import run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.kernels import reference
from hpgcn.model import Parameters


def rounded(x):
    """Round to the nearest bf16 numbers, ties to even, by their spacing."""
    x = np.asarray(x, np.float64)
    spacing = np.ldexp(1.0, np.frexp(x)[1] - 8)
    return (np.rint(x / spacing) * spacing).astype(np.float32)


def train_by_hand(graph, config, epochs):
    """Train a GCN in float32 with stored rows of X, H and G rounded to bf16; return the losses."""
    trainer = start(graph, config)
    spec = trainer.shard.spec
    trainer.close()
    w = Parameters.initial(spec)
    A = oracle.normalized(graph).astype(np.float32)
    X = oracle.features(graph).astype(np.float32)
    X = X if spec.sparse_features else rounded(X)
    train = graph.masks["train"]
    moments = np.zeros((2, w.flat.size), np.float32)
    losses = []
    for epoch in range(1, epochs + 1):
        gradient = Parameters.zeros(spec)
        loss, G, backwards = forward(A, X, w.arrays, spec, graph.labels, train, epoch)
        losses.append(loss)
        for backward in reversed(backwards):
            G = backward(G, gradient.arrays)
        reference.adam(w.flat, gradient.flat, *moments, step=epoch, lr=config.lr,
                       decay=config.weight_decay, decayed=w.decayed("first"))
    return losses


def forward(A, X, w, spec, labels, train, epoch):
    p = spec.first_dropout
    factor = oracle.drop(X, p, seed=spec.seed, epoch=epoch, layer=0).astype(np.float32)
    H = X * factor if spec.sparse_features else rounded(X * factor)
    scale, kept = np.float32(1), None
    backwards = []
    for layer, (fan_in, fan_out) in enumerate(spec.layers):
        W = w[f"W{layer}"]
        if not (spec.sparse_features and layer == 0):  # beside rows of 16 bits it is read as such
            W = rounded(W)
        A_first = fan_in < fan_out and not (spec.sparse_features and layer == 0)
        T = rounded(A @ H) if A_first else H
        Z = T @ W if A_first else A @ rounded(H @ W)
        backwards.append(backward_of(A, T, rounded(w[f"W{layer}"] * scale), kept, layer, A_first))
        if layer + 1 == spec.num_layers:
            break
        Z = rounded(Z) + w[f"b{layer}"]
        factor = oracle.drop(Z, spec.dropout, seed=spec.seed, epoch=epoch, layer=layer + 1)
        kept = (Z > 0) & (factor > 0)
        scale = np.float32(65536 / (65536 - round(spec.dropout * 65536)))
        H = rounded(np.where(kept, Z * scale, 0))
    logits = (Z + w[f"b{layer}"]).astype(np.float64)  # these are not rounded
    soft = np.exp(logits - logits.max(1, keepdims=True))
    soft /= soft.sum(1, keepdims=True)
    rows = np.flatnonzero(train)
    loss = -np.log(soft[rows, labels[rows]]).mean()
    soft[rows, labels[rows]] -= 1
    return loss, rounded(soft * train[:, None] / rows.size), backwards


def backward_of(A, T, W, kept, layer, A_first):
    def backward(G, slopes):
        slopes[f"b{layer}"][:] = G.sum(0)
        if not A_first:
            G = rounded(A.T @ G)
        slopes[f"W{layer}"][:] = T.T @ G
        G = G @ W.T
        G = A.T @ rounded(G) if A_first else G
        return None if kept is None else rounded(np.where(kept, G, 0))

    return backward


def apart(found, expected):
    return np.abs(np.divide(found, expected) - 1).max()


@pytest.mark.long
@pytest.mark.parametrize("directed, sparse", [
    (False, False), *(pytest.param(True, sparse, marks=pytest.mark.long)
                      for sparse in (False, True))])
def test_the_curve_is_that_of_an_oracle_that_rounds(directed, sparse):
    """In most bf16 runs the losses equal those of the NumPy code.

    Ties may be rounded differently.
    """
    graph = make(directed=directed, sparse=sparse)
    ours, wide = [], []
    for seed in range(9):
        config = Config(strategy="p2p", layers=4, hidden=16, dropout=0.4, seed=seed, dtype="bf16",
                        prune=False)
        expected = train_by_hand(graph, config, 3)
        for found, kind in ((ours, config), (wide, config.replace(dtype="float64"))):
            history, _ = run(graph, kind, epochs=3)
            found.append(apart([entry["loss"] for entry in history], expected))
    assert np.median(ours) < 1e-7
    assert np.median(wide) > 1e-6
    assert max(ours) < 1e-3


def test_the_oracle_rounds_as_the_kernels_do():
    x = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32) * 100
    x[0, :3] = 0, 1.00390625, -3.0117188  # halfway
    bits = hpgcn.kernels.bits16.to_bf16(x)
    np.testing.assert_array_equal(rounded(x), hpgcn.kernels.bits16.to_float32(bits))


@pytest.mark.long
def test_weights_and_logits_are_float32():
    result = hpgcn.train(make(), Config(dtype="bf16", epochs=1, hidden=10))
    assert {array.dtype for array in result.weights.values()} == {np.dtype(np.float32)}
    trainer = start(make(), Config(dtype="bf16", hidden=10))
    with trainer:
        logits, _ = trainer.training.model.forward(trainer.training.features, 1)
        assert logits.dtype == np.float32
        H, last = trainer.training.model.outputs()
        assert (H.dtype, last.dtype) == (np.uint16, np.float32)
        assert trainer.training.features.X.dtype == np.uint16


@pytest.mark.long
def test_a_loss_that_is_not_finite_names_its_layer():
    config = Config(dtype="bf16", hidden=10, lr=1e30, epochs=3, eval_every=0)
    with pytest.raises(hpgcn.errors.DivergedError, match=r"layer \d forward has"):
        hpgcn.train(make(), config)


def test_products_alone_take_no_16_bits():
    with pytest.raises(UsageError, match="dtype = 'bf16': only for training"):
        hpgcn.propagation(make(), dtype="bf16")

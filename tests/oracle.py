"""A GCN in dense NumPy, float64, all rows in one place: what every parallel run is held against."""
import numpy as np

from hpgcn.kernels import reference


def normalised(graph):
    """D_row^-1/2 (A + I where there is no loop) D_col^-1/2, dense."""
    A = graph.adjacency.toarray().astype(np.float64)
    A[np.diag_indices_from(A)] = np.where(np.diag(A) == 0, 1, np.diag(A))
    with np.errstate(divide="ignore", invalid="ignore"):
        row, column = (np.where(A.sum(axis) > 0, A.sum(axis) ** -0.5, 0) for axis in (1, 0))
    return row[:, None] * A * column


def features(graph):
    X = graph.features
    return (X.toarray() if hasattr(X, "toarray") else X).astype(np.float64)


def drop(H, p, **key):
    if not p:
        return H
    keep = reference.unpack(reference.dropout_bits(np.arange(len(H)), H.shape[1], p=p, **key), H.shape[1])
    return np.where(keep, H / (1 - round(p * 65536) / 65536), 0)


def loss_and_gradient(A, X, y, train, weights, biases, *, drops, seed, epoch):
    """Mean loss over the rows in `train`, and gradients of weights and biases."""
    H, kept = X, []
    for layer, (W, b) in enumerate(zip(weights, biases)):
        dropped = drop(H, drops[layer], seed=seed, epoch=epoch, layer=layer)
        factor = np.where(dropped != 0, dropped / np.where(H != 0, H, 1), 0) if layer else None
        Z = A @ dropped @ W + b
        kept.append((dropped, factor))
        H = np.maximum(Z, 0)
    power = np.exp(Z - Z.max(1, keepdims=True))
    soft = power / power.sum(1, keepdims=True)
    loss = -np.log(soft[train, y[train]]).mean()
    G = np.zeros_like(Z)
    G[train] = soft[train] / train.size
    G[train, y[train]] -= 1 / train.size
    dW, db = [], []
    for layer in reversed(range(len(weights))):
        dropped, factor = kept[layer]
        dW.insert(0, (A @ dropped).T @ G)
        db.insert(0, G.sum(0))
        if layer:
            G = (A.T @ G @ weights[layer].T) * factor  # factor is 0 where ReLU or dropout cut
    return loss, dW, db


def losses(graph, config, initial, epochs):
    """Training losses of epochs 1..epochs, with Adam, from the initial weights; and the first gradient, flat."""
    A, X = normalised(graph), features(graph)
    train = np.flatnonzero(graph.masks["train"])
    weights = [W.astype(np.float64) for W in initial.weights]
    biases = [b.astype(np.float64) for b in initial.biases]
    drops = [config.first_dropout] + [config.dropout] * (len(weights) - 1)
    values = [*weights, *biases]
    mean, square = [np.zeros_like(v) for v in values], [np.zeros_like(v) for v in values]
    found, first = [], None
    for epoch in range(1, epochs + 1):
        loss, dW, db = loss_and_gradient(A, X, graph.labels, train, weights, biases, drops=drops, seed=config.seed,
                                         epoch=epoch)
        found.append(loss)
        slopes = [*dW, *db]
        if first is None:
            first = np.concatenate([s.ravel() for s in slopes])
        decayed = 1 if config.decay_layers == "first" else len(weights)
        for i, (v, g, m, s) in enumerate(zip(values, slopes, mean, square)):
            g = g + config.weight_decay * v if i < decayed else g
            m += 0.1 * (g - m)
            s += 0.001 * (g * g - s)
            v -= config.lr * (m / (1 - 0.9**epoch)) / (np.sqrt(s / (1 - 0.999**epoch)) + 1e-8)
    return np.array(found), first

"""All models in dense float64 NumPy on all rows: the reference for parallel runs.

Products have the order of the formulas: sage multiplies [H, A H] by its two stacked
matrices, gin by A + (1 + eps) I.
"""
from types import SimpleNamespace

import numpy as np
from once import once

from hpgcn.kernels import reference, unpack_mask
from hpgcn.model import find_model
from hpgcn.setting_words import parse_schedule


class ByModel(dict):
    """Entries of the oracle by model; the error for a missing one names the places to fill."""

    def __missing__(self, model):
        raise LookupError(
            f"the tests have no oracle of model {model!r}: add the norm of A, and whether it has "
            "self loops, to MATRIX of tests/support/oracle.py, and the forward and backward of the "
            "layer in dense NumPy to `logits` and `loss_and_gradient` there (CONTRIBUTING.md, Add "
            "a layer)")


MATRIX = ByModel({
    "gcn": ("sym", True), "sage-mean": ("row", False), "sage-gcn": ("row", True),
    "gin": ("none", False), "sgc": ("sym", True), "appnp": ("sym", True), "gat": ("none", True)})
READ = ("attention_dropout", "class_weight", "clip_norm", "decay_layers", "dropout", "epochs",
        "first_dropout", "label_smoothing", "layers", "lr", "norm_adj", "optimizer", "schedule",
        "seed", "warmup", "weight_decay")  # settings that are used


def normalized(graph, norm="sym", self_loops=True):
    """Return dense A with self-loops: D_row^-1/2 A D_col^-1/2 ("sym"), D_row^-1 A ("row") or A."""
    A = graph.adjacency.toarray().astype(np.float64)
    if self_loops:
        A[np.diag_indices_from(A)] = np.where(np.diag(A) == 0, 1, np.diag(A))
    if norm == "none":
        return A
    with np.errstate(divide="ignore", invalid="ignore"):
        if norm == "in":
            norm = np.where(A.sum(1) > 0, A.sum(1) ** -0.5, 0)
            return norm[:, None] * A * norm
        if norm == "row":
            return np.where(A.sum(1, keepdims=True) > 0, A / A.sum(1, keepdims=True), 0)
        row, column = (np.where(A.sum(axis) > 0, A.sum(axis) ** -0.5, 0) for axis in (1, 0))
    return row[:, None] * A * column


def features(graph):
    X = graph.features
    return (X.toarray() if hasattr(X, "toarray") else X).astype(np.float64)


def drop(H, p, **key):
    """Return the dropout factor of each element of H: 0, or 1 / (1 - p)."""
    if not p:
        return np.ones(H.shape)
    keep = unpack_mask(reference.dropout_bits(np.arange(len(H)), H.shape[1], p=p, **key),
                            H.shape[1])
    return keep / (1 - round(p * 65536) / 65536)


def attention_keep(w, n, layer, config, epoch):
    """Return the dropout factor of each attention weight, (n, n, K); 1 without dropout."""
    if not config.attention_dropout:
        return 1
    rows, columns = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    heads = len(w[f"a{layer}_self"])
    p = config.attention_dropout
    keep = reference.attention_bits(rows, columns, heads, seed=config.seed, epoch=epoch,
                                    layer=layer, p=p)
    return keep.reshape(n, n, heads) / (1 - round(p * 65536) / 65536)


def attention_forward(A, H, w, layer, keep):
    """Return Z of a GAT layer.

    Heads are concatenated; their mean if the bias has one head's width.
    """
    of_row, of_column = w[f"a{layer}_self"], w[f"a{layer}_neighbour"]
    x = (H @ w[f"W{layer}"]).reshape(len(H), *of_row.shape)
    z = (x * of_row).sum(-1)[:, None] + (x * of_column).sum(-1)[None]
    score = np.where((A != 0)[..., None], np.where(z > 0, z, 0.2 * z), -np.inf)
    alpha = np.exp(score - score.max(1, keepdims=True))
    alpha /= alpha.sum(1, keepdims=True)
    out = np.einsum("ijk,jkf->ikf", alpha * keep, x)
    averaged = w[f"b{layer}"].size != of_row.size
    Z = (out.mean(1) if averaged else out.reshape(len(H), -1)) + w[f"b{layer}"]
    return Z, (x, z, alpha, keep, averaged)


def attention_backward(H, w, layer, kept, G):
    x, z, alpha, keep, averaged = kept
    of_row, of_column = w[f"a{layer}_self"], w[f"a{layer}_neighbour"]
    heads = len(of_row)
    own = np.repeat(G[:, None] / heads, heads, 1) if averaged else G.reshape(x.shape)
    slope = keep * np.einsum("ikf,jkf->ijk", own, x)
    slope = alpha * (slope - (alpha * slope).sum(1, keepdims=True)) * np.where(z > 0, 1, 0.2)
    to_row, to_column = slope.sum(1)[..., None], slope.sum(0)[..., None]
    dx = np.einsum("ijk,ikf->jkf", alpha * keep, own) + to_row * of_row + to_column * of_column
    dx = dx.reshape(len(H), -1)
    return {f"W{layer}": H.T @ dx, f"a{layer}_self": (to_row * x).sum(0), f"b{layer}": G.sum(0),
            f"a{layer}_neighbour": (to_column * x).sum(0)}, dx @ w[f"W{layer}"].T


def propagated(A, hops=10, restart=0.1):
    """Return the matrix M for which M H is the result of `hops` steps Z = (1 - a) A Z + a H."""
    found = np.eye(len(A))
    for _ in range(hops):
        found = (1 - restart) * A @ found + restart * np.eye(len(A))
    return found


def of_hops(model, A, w, layer):
    """Return the propagation matrix of a layer.

    A A for sgc, that of `propagated` for appnp, else A.
    """
    if model == "sgc":
        return A @ A
    if model == "appnp":
        return np.eye(len(A)) if f"W{layer + 1}" in w else propagated(A)
    return A


def layer_forward(model, A, H, w, layer, keep=1):
    """Return Z of one layer, and the values that its backward needs."""
    if model == "gat":
        return attention_forward(A, H, w, layer, keep)
    A = of_hops(model, A, w, layer)
    if model == "appnp":
        return A @ (H @ w[f"W{layer}"] + w[f"b{layer}"]), None
    if model == "sage-mean":
        both = np.hstack([H, A @ H])
        return both @ np.vstack([w[f"W{layer}_self"],
                                 w[f"W{layer}_neighbour"]]) + w[f"b{layer}"], both
    if model == "gin":
        S = (A + (1 + w[f"eps{layer}"]) * np.eye(len(A))) @ H
        U = S @ w[f"W{layer}_a"] + w[f"b{layer}_a"]
        return np.maximum(U, 0) @ w[f"W{layer}_b"] + w[f"b{layer}_b"], (S, U)
    return A @ H @ w[f"W{layer}"] + w[f"b{layer}"], A @ H


def layer_backward(model, A, H, w, layer, kept, G):
    if model == "gat":
        return attention_backward(H, w, layer, kept, G)
    A = of_hops(model, A, w, layer)
    if model == "appnp":
        G = A.T @ G
        return {f"W{layer}": H.T @ G, f"b{layer}": G.sum(0)}, G @ w[f"W{layer}"].T
    if model == "sage-mean":
        f = H.shape[1]
        dW, dboth = kept.T @ G, G @ np.vstack([w[f"W{layer}_self"], w[f"W{layer}_neighbour"]]).T
        slopes = {f"W{layer}_self": dW[:f], f"W{layer}_neighbour": dW[f:], f"b{layer}": G.sum(0)}
        return slopes, dboth[:, :f] + A.T @ dboth[:, f:]
    if model == "gin":
        S, U = kept
        dU = (G @ w[f"W{layer}_b"].T) * (U > 0)
        dS = dU @ w[f"W{layer}_a"].T
        slopes = {f"W{layer}_a": S.T @ dU, f"W{layer}_b": np.maximum(U, 0).T @ G,
                  f"b{layer}_a": dU.sum(0),
                  f"b{layer}_b": G.sum(0), f"eps{layer}": np.array([np.trace(dS.T @ H)])}
        return slopes, (A + (1 + w[f"eps{layer}"]) * np.eye(len(A))).T @ dS
    return {f"W{layer}": kept.T @ G, f"b{layer}": G.sum(0)}, A.T @ G @ w[f"W{layer}"].T


def class_weights(config, y, train, classes):
    """Return the weight of each class that the settings specify."""
    if isinstance(config.class_weight, np.ndarray):
        return config.class_weight
    if config.class_weight == "balanced":
        counts = np.array([np.sum(y[train] == c) for c in range(classes)])
        return np.array([len(train) / (classes * count) if count else 0 for count in counts])
    return np.loadtxt(config.class_weight) if config.class_weight else np.ones(classes)


def loss_and_slope(Z, y, train, config):
    """Return the mean loss over the rows `train`, and its gradient.

    Y is (n, C) for several labels.
    """
    G = np.zeros_like(Z)
    smoothing = config.label_smoothing
    if y.ndim == 2:
        z, t = Z[train], (1 - smoothing) * y[train].astype(np.float64) + smoothing / 2
        G[train] = (1 / (1 + np.exp(-z)) - t) / z.size
        return float(np.mean(np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - z * t)), G
    shifted = Z - Z.max(1, keepdims=True)
    log_soft = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))  # avoids log(0)
    soft = np.exp(log_soft)
    weights = class_weights(config, y, train, Z.shape[1])
    targets = weights * ((1 - smoothing) * np.eye(Z.shape[1])[y[train]] + smoothing / Z.shape[1])
    total = weights[y[train]].sum()
    G[train] = (targets.sum(1, keepdims=True) * soft[train] - targets) / total
    return -(targets * log_soft[train]).sum() / total, G


def norm_forward(Z, gain, shift):
    """Normalize rows to mean 0 and variance 1, scale and shift.

    Return also the backward's input.
    """
    deviation = np.sqrt(Z.var(1, keepdims=True) + 1e-5)
    normal = (Z - Z.mean(1, keepdims=True)) / deviation
    return normal * gain + shift, (normal, deviation)


def norm_backward(G, gain, normal, deviation):
    """Return the gradients of the gain, the shift and Z of a layer normalization.

    The Jacobian of a row is (1 - 1 1^T / f - n n^T / f) / deviation.
    """
    g = G * gain
    f = g.shape[1]
    along = np.einsum("if,ig,ig->if", normal, normal, g) / f
    return (G * normal).sum(0), G.sum(0), (g - g.mean(1, keepdims=True) - along) / deviation


def activated(model, Z):
    """Return activations of Z (ELU for gat, else ReLU), and their derivative."""
    if model == "gat":
        return np.where(Z > 0, Z, np.expm1(Z)), np.where(Z > 0, 1, np.exp(np.minimum(Z, 0)))
    return np.maximum(Z, 0), Z > 0


def loss_and_gradient(model, A, X, y, train, w, *, drops, config, epoch):
    """Return the mean loss over the rows `train`, and its gradient by parameter name."""
    Z, kept = X, []
    for layer, p in enumerate(drops):
        H, before = activated(model, Z) if layer else (X, 1)
        factor = drop(H, p, seed=config.seed, epoch=epoch, layer=layer)
        H = H * factor
        keep = attention_keep(w, len(H), layer, config, epoch)
        Z, saved = layer_forward(model, A, H, w, layer, keep)
        norm = None
        if f"gain{layer}" in w:
            Z, norm = norm_forward(Z, w[f"gain{layer}"], w[f"shift{layer}"])
        kept.append((H, factor * before, saved, norm))
    loss, G = loss_and_slope(Z, y, train, config)
    slopes = {}
    for layer in reversed(range(len(drops))):
        H, factor, saved, norm = kept[layer]
        if norm:
            slopes[f"gain{layer}"], slopes[f"shift{layer}"], G = norm_backward(G, w[f"gain{layer}"],
                                                                               *norm)
        found, G = layer_backward(model, A, H, w, layer, saved, G)
        slopes |= found
        G = G * factor  # gradient of activation and dropout
    return loss, {name: slopes[name] for name in w}


def logits(model, A, X, w, layers):
    Z = X
    for layer in range(layers):
        Z, _ = layer_forward(model, A, activated(model, Z)[0] if layer else X, w, layer)
        if f"gain{layer}" in w:
            Z, _ = norm_forward(Z, w[f"gain{layer}"], w[f"shift{layer}"])
    return Z


def learning_rate(epoch, config):
    """Return the learning rate of an epoch (from 1): warm-up, then the schedule."""
    if epoch <= config.warmup:
        return config.lr * epoch / config.warmup
    after = epoch - config.warmup - 1
    share = after / max(1, config.epochs - config.warmup)
    kind, every, factor = parse_schedule(config.schedule)
    return config.lr * {"constant": 1, "cosine": np.cos(np.pi * share / 2) ** 2,
                        "step": np.prod([factor] * (after // every))}[kind]


def losses(graph, config, initial, epochs, *, model=None, A=None):
    """Return the training losses of `epochs` epochs and the first gradient, as a flat array.

    `model` and `A` replace the model of the settings and the matrix of the graph.
    """
    read = {name: getattr(config, name) for name in READ}
    if read["class_weight"] not in ("", "balanced"):  # the file may change
        read["class_weight"] = np.loadtxt(config.class_weight)
    w = {name: array.astype(np.float64) for name, array in initial.arrays.items()}
    model = model or find_model(config)
    return known_losses(graph, read, w, epochs, model, A)


@once
def known_losses(graph, read, w, epochs, model, A):
    config = SimpleNamespace(**read)
    if A is None:
        norm, self_loops = MATRIX[model]
        A = normalized(graph, norm if config.norm_adj == "own" else config.norm_adj, self_loops)
    X = features(graph)
    train = np.flatnonzero(graph.masks["train"])
    drops = [config.first_dropout] + [config.dropout] * (config.layers - 1)
    mean, square = ({name: np.zeros_like(v) for name, v in w.items()} for _ in range(2))
    found, first = [], None
    for epoch in range(1, epochs + 1):
        loss, slopes = loss_and_gradient(model, A, X, graph.labels,
                                         train, w, drops=drops, config=config, epoch=epoch)
        found.append(loss)
        if first is None:
            first = np.concatenate([slope.ravel() for slope in slopes.values()])
        lr, decoupled = learning_rate(epoch, config), config.optimizer == "adamw"
        norm = np.sqrt(sum((g * g).sum() for g in slopes.values()))
        factor = min(1, config.clip_norm / (norm + 1e-6)) if config.clip_norm else 1
        for name, g in slopes.items():
            g = g * factor
            v, m, s = w[name], mean[name], square[name]
            if v.ndim == 2 and (config.decay_layers == "all" or name.split("_")[0][1:] == "0"):
                g = g + (not decoupled) * config.weight_decay * v
                v -= decoupled * lr * config.weight_decay * v
            if config.optimizer == "sgd":
                v -= lr * g
                continue
            m += 0.1 * (g - m)
            s += 0.001 * (g * g - s)
            v -= lr * (m / (1 - 0.9**epoch)) / (np.sqrt(s / (1 - 0.999**epoch)) + 1e-8)
    return np.array(found), first
